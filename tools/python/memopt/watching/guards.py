# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program was compiled for: the numbers, modes and objects that forward and loss read besides tensors.

A program has their values of when it was traced. `Guards` compares them before each step, in lists that are made once.
"""

from __future__ import annotations

import copy
import operator
import os
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..internals import get_gradient_hooks
from .environment import Variable
from .hooks import HookWatch
from .reads import ABSENT, CONTAINERS, MUTABLE, Place, Reads, is_fixed, is_iterator, is_plain, may_be_kept, observed
from .stamps import is_array, stamp
from .step_reads import find_reads
from .watch import Backoff, Watch

__all__ = ["Change", "Guards", "list_numbers"]


_GONE = object()


class Change:
    """A value that is no longer what was compiled."""

    def __init__(self, what: str, old: Any, new: Any):
        self.what, self.old, self.new = what, old, new

    def __str__(self) -> str:
        if self.new is _GONE:
            return f"{self.what} is gone, which the step was compiled with"
        if self.old is _GONE:
            return f"{self.what} was not there when the step was compiled"
        if isinstance(self.old, torch.Tensor) or is_array(self.old):
            return f"{self.what} is another tensor, or has been written to, since the step was compiled"
        return f"{self.what} has become {_show(self.new)}, the step was compiled for {_show(self.old)}"


def _show(value: Any) -> str:
    text = repr(os.fsdecode(value) if isinstance(value, bytes) else value)  # as the environment's are
    return text if len(text) < 80 and not isinstance(value, nn.Module) else f"another {type(value).__name__}"


def _copy(value: Any) -> Any:
    """Lists, sets and the like may change in place."""
    return [_copy(part) for part in value] if isinstance(value, list) else copy.copy(value) if isinstance(value, MUTABLE) else value


def _name(path: str, attribute: str) -> str:
    """An attribute of a module of the step, as a user knows it."""
    root, _, rest = path.partition(".")
    owner = {"net": "the model", "loss": "the loss", "captured": "what the loss captures"}.get(root, "the step")
    return f"'{attribute}' of {owner}" if not rest else f"'{rest}.{attribute}' of {owner}"


class _Watched:
    """Entries of dicts, which are compared quickly, and places elsewhere."""

    def __init__(self):
        self.dicts: list[Mapping] = []
        self.keys: list[Any] = []
        self.cells: list[types.CellType] = []
        self.others: list[Place] = []
        self.values: list[Any] = []  # of the entries, then of cells, then of the others
        self.names: list[str] = []
        self._late: list[tuple[Place, str, Any]] = []

    def add(self, place: Place, name: str, value: Any) -> None:
        if place.parent is None and place.is_entry and isinstance(place.holder, (dict, types.MappingProxyType)):
            self.dicts.append(place.holder)
            self.keys.append(place.key)
            self.names.append(name)
            self.values.append(value)
        else:
            self._late.append((place, name, value))

    def finish(self) -> None:
        is_cell = lambda entry: entry[0].parent is None and isinstance(entry[0].holder, types.CellType)
        for place, name, value in sorted(self._late, key=lambda entry: not is_cell(entry)):
            if is_cell((place,)):
                self.cells.append(place.holder)
            else:
                self.others.append(place)
            self.names.append(name)
            self.values.append(value)

    def read(self) -> list[Any]:
        found = list(map(operator.getitem, self.dicts, self.keys))
        if self.cells:
            found += [cell.cell_contents for cell in self.cells]
        return found + [place.get() for place in self.others] if self.others else found

    def move(self, moved: Mapping[int, Any]) -> None:
        """Looks into the containers that have come in place of others, by the addresses of those."""
        self.dicts = [moved.get(id(holder), holder) for holder in self.dicts]
        for place in self.others:
            place.holder = moved.get(id(place.holder), place.holder)

    def list_places(self) -> list[Place]:
        """In the order of the values."""
        return [*(Place("", holder, key) for holder, key in zip(self.dicts, self.keys)),
                *(Place("", cell, None) for cell in self.cells), *self.others]


class _QuickLook:
    """Whether plain values, objects and entries of dicts are the ones that they were. That one is another may mean nothing."""

    def __init__(self, watched: Iterable[_Watched], entries: Iterable[tuple[Mapping, str, Any]], orders: Iterable[tuple[Mapping, list]],
                 modules: Iterable[nn.Module], methods: Iterable[tuple[type, str]], tensors: _Watched,
                 lists: Iterable[list]):
        self.watch = Watch()
        self._kinds: dict[tuple[type, str], bool] = {}  # classes and attributes, whether they are watched
        self._left: list[tuple[Place, Any]] = []  # what the watch does not take
        for some in watched:
            for place, value in zip(some.list_places(), some.values):
                self._add(place, value)
        for holder, key, value in entries:
            self._add(Place(key, holder, key), value)
        self._orders = [(holder, keys) for holder, keys in orders if not self.watch.add_version_of(holder)]
        self._takes = all(map(self.watch.add_class, modules)) and all(map(self.watch.add_items, lists)) and all(self._add_method(*method) for method in methods)
        self._has_tensors = all(self._add_tensor(place, value) for place, value in zip(tensors.list_places(), tensors.values))
        self.watch.finish()
        self._places = [place for place, _ in self._left]
        self._values = [_copy(value) for _, value in self._left]
        #: Whether the watch sees all that there is to see.
        self.is_all = self._takes and self._has_tensors and not self._left and not self._orders
        self.holds = bool if not self._takes else self._look_at_all if self._left or self._orders else self.watch.holds

    def _add_method(self, kind: type, name: str) -> bool:
        if (kind, name) not in self._kinds:
            self._kinds[kind, name] = self.watch.add_class_attribute(kind, name, getattr(kind, name))
        return self._kinds[kind, name]

    def _add_tensor(self, place: Place, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and self._takes_place(place, value) and self.watch.add_version(value)

    def _add(self, place: Place, value: Any) -> None:
        is_list = type(value) is list and all(map(is_fixed, value))
        if not ((is_list or is_fixed(value)) and self._takes_place(place, value) and (not is_list or self.watch.add_items(value))):
            self._left.append((place, value))

    def _takes_place(self, place: Place, value: Any) -> bool:
        holder = place.holder
        if place.parent is not None:
            return False
        if isinstance(holder, types.CellType):
            return self.watch.add_cell(holder, value)
        if place.is_entry:
            return self.watch.add_entry(holder, place.key, value)
        if isinstance(holder, type):
            return self.watch.add_class_attribute(holder, place.key, value)
        # Modules of a kind have an attribute of their class together, until one has its own.
        if isinstance(holder, nn.Module) and place.key not in vars(holder):
            return self._add_method(type(holder), place.key) and self.watch.add_entry(vars(holder), place.key, ABSENT)
        return False

    def _look_at_all(self) -> bool:
        return (bool(self.watch.holds()) and all(map(_is_same, [place.get() for place in self._places], self._values))
                and all(list(holder) == keys for holder, keys in self._orders))


def _is_same(now: Any, before: Any) -> bool:
    """By identity, but for what may change in place."""
    return now is before or isinstance(now, MUTABLE) and now == before


def _has_items(now: list, items: list) -> bool:
    return len(now) == len(items) and all(map(operator.is_, now, items))


class Guards:
    """The values that `module`, a step as it was traced, has read; `observed` has seen it trace.

    `is_training` is the mode that it was traced in, `before` what `list_numbers` gave in front of it.
    """

    def __init__(self, module: nn.Module, observed: observed, is_training: bool,
                 before: Mapping[tuple[str, int], Any] = types.MappingProxyType({})):
        self._plain, self._objects, self._tensors = _Watched(), _Watched(), _Watched()
        #: Dicts, lists and tuples in which others look; whoever holds one may get another of the same values.
        self._containers = _Watched()
        self._written = observed.written
        self._is_training = is_training
        self._calls: list[tuple[list, str, list]] = []  # lists of what is called, and copies of them
        #: Numbers that forward itself has changed: a counter, say.
        self.counters: list[str] = []
        #: Tensors that forward leaves for its next call outside of buffers.
        self.kept: list[str] = []
        #: What forward takes values from, which moves on as it does.
        self.iterators: list[str] = []
        #: Modules that stood in another mode than the one that they were traced in.
        self.turned: list[str] = []
        self._modes: dict[str, bool] = {}  # what else a mode may be, by name
        code = find_reads(module)
        self._seen: set = set()
        for place, value in code.list_places():
            old = before.get((place.path, id(place.holder)), value)
            if isinstance(value, torch.Tensor) and old is not value:
                self.kept.append(f"'{place.path}'")
                place.set(old)
            elif is_plain(value) and may_be_kept(old) == may_be_kept(value) and old != value and value == value:
                self.counters.append(f"'{place.path}'")
            elif is_iterator(value):
                self.iterators.append(f"'{place.path}'")
            else:
                self._add_read(place, value, module, code)
        paths = {id(inner): path for path, inner in module.named_modules()}
        modules = {id(inner): inner for inner in module.modules()}
        #: Entries of dicts that are to be the same objects, or not there; methods by their classes.
        self._entries: list[tuple[dict, str, str, Any]] = []
        self._methods: dict[tuple[type, str], Any] = {}
        for (number, attribute), first in observed.reads.items():
            self._add_attribute(modules[number], paths[number], attribute, first, code, (number, attribute) in observed.changed)
        self.kept += [_name(paths[number], attribute) for number, attribute in sorted(observed.kept, key=str)]
        for number, attribute in observed.absent:
            self._add_absent(modules[number], paths[number], attribute)
        self._entries += [(holder, key, f"'{path}', which the step reads,", ABSENT) for path, holder, key in code.absent
                          if key not in holder]
        self._add_environment(observed.environment.variables.values())
        self._add_parts(module)
        self._number_type = torch.get_default_dtype()
        for watched in (self._plain, self._objects, self._tensors, self._containers):
            watched.finish()
        self._identities = [id(value) for value in self._objects.values]
        self._stamps = stamp(self._tensors.values)
        self._quick: _QuickLook | None = None
        self._looks = Backoff()

    def _add_environment(self, variables: Iterable[Variable]) -> None:
        for name, holder, key, value in variables:
            path = f"os.environ[{name!r}]"
            if value is None:
                self._entries.append((holder, key, path, ABSENT))
            else:
                self._plain.add(Place(path, holder, key), path, value)

    def _add_parts(self, module: nn.Module) -> None:
        """Modules and the parameters that are trained; others are inputs."""
        self._parts: list[tuple[Mapping, str, str, Any]] = []
        #: What runs all modules that it has runs them in their order.
        self._orders: list[tuple[Mapping, str, list[str]]] = []
        self._kinds: list[tuple[nn.Module, str, type]] = []
        owners: list[tuple[str, Any]] = []
        for path, inner in module.named_modules():
            if not path:
                continue
            for holder in (inner._modules, inner._parameters):
                self._parts += [(holder, key, _name(path, key), part) for key, part in holder.items()
                                if isinstance(part, nn.Module) or part is not None and part.requires_grad]
            # Where there was none, a tensor may come.
            self._entries += [(holder, key, _name(path, key), None) for holder in (inner._parameters, inner._buffers)
                              for key, part in holder.items() if part is None]
            if isinstance(inner, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
                self._orders.append((inner._modules, path, list(inner._modules)))
            self._entries.append((vars(inner), "forward", _name(path, "forward"), vars(inner).get("forward", ABSENT)))
            self._methods[type(inner), "forward"] = type(inner).forward
            self._kinds.append((inner, _name(path, "__class__"), type(inner)))
            owners.append((f"'{path.partition('.')[2]}'" if "." in path else _name(path, "forward"), inner))
            for key, part in inner._parameters.items():
                if part is not None:
                    owners.append((_name(path, key), part))
                    hooks = get_gradient_hooks(part)
                    self._entries += [(hooks, number, f"a hook on the gradient of {_name(path, key)}", hook) for number, hook in hooks.items()]
        self._hooks = HookWatch([*owners, ("PyTorch", torch.nn.modules.module)])
        self._holders = list({id(holder): holder for holder, *_ in self._parts}.values())
        # Equal numbers of one element are equal; of other tensors only the same one is.
        single = [(holder, key) for holder, key, _, part in self._parts
                  if isinstance(part, torch.Tensor) and part.numel() == 1]
        self._single_holders, self._single_keys = [holder for holder, _ in single], [key for _, key in single]
        self._keep_parts()

    def _keep_parts(self) -> None:
        self._held = list(map(dict, self._holders))
        self._single = self._identify_single()

    def _identify_single(self) -> list[int]:
        return list(map(id, map(operator.getitem, self._single_holders, self._single_keys)))

    def _has_parts(self) -> bool:
        """Whether modules and parameters are the same; dicts of them are compared in one go, by identity first."""
        return (self._holders == self._held and self._identify_single() == self._single
                and all(holder.get(key, ABSENT) is value for holder, key, _, value in self._entries)
                and all(list(holder) == keys for holder, _, keys in self._orders)
                and all(type(module) is kind for module, _, kind in self._kinds)
                and all(_has_items(now, items) for now, _, items in self._calls)
                and all(getattr(kind, name, None) is method for (kind, name), method in self._methods.items()))

    def _add_read(self, place: Place, value: Any, step: nn.Module, code: Reads) -> None:
        self._add(place, f"'{place.path}', which the step reads,", value)
        if isinstance(value, nn.Module) and not any(value is inner for inner in step.modules()):
            for attribute in code.list_attributes(place.path.removeprefix("self"), value):
                for inner, found in code.expand(attribute, self._seen):
                    self._add(inner, f"'{inner.path}', which the step reads,", found)

    def _add_attribute(self, module: nn.Module, path: str, attribute: str, first: Any, code: Reads, is_changed: bool) -> None:
        own, name = vars(module), _name(path, attribute)
        if not path:
            return  # the wrapper's
        if attribute == "training":
            if self._is_training:  # evaluation is in evaluation mode
                self._add_mode(own, path, name, first)
            return
        if attribute in own:
            place = Place(attribute, own, attribute)
            now = own[attribute]
            is_number = isinstance(now, (int, float)) and not isinstance(now, bool)
            if is_changed or is_number and now != first and now == now:
                self.counters.append(name)
                return
            if is_iterator(now):
                self.iterators.append(name)
                return
        elif isinstance(method := getattr(type(module), attribute, None), types.FunctionType):
            if not type(module).__module__.startswith("torch.nn."):
                self._methods[type(module), attribute] = method
                self._entries.append((own, attribute, name, ABSENT))
            return
        elif isinstance(method, property) or not is_plain(first):
            return  # what a property reads is seen as well
        elif type(module).__module__.startswith("torch.nn."):
            return
        else:
            place = Place(attribute, module, attribute)
        for inner, value in code.expand(place, self._seen):
            if inner is not place or (id(module), attribute) not in self._written or not isinstance(value, CONTAINERS):
                self._add(inner, _name(path, inner.path), value)

    def _add_absent(self, module: nn.Module, path: str, attribute: str) -> None:
        if path:
            holders = vars(module), module._parameters, module._buffers, module._modules
            self._entries += [(holder, attribute, _name(path, attribute), ABSENT) for holder in holders if attribute not in holder]

    def _add_mode(self, own: Mapping, path: str, name: str, traced: bool) -> None:
        if own["training"] != traced:
            self.turned.append(path)
            self._modes[name] = traced
        self._plain.add(Place(name, own, "training"), name, own["training"])

    def _add(self, place: Place, name: str, value: Any) -> None:
        if is_plain(value):
            self._plain.add(place, name, _copy(value))
        elif isinstance(value, nn.Parameter):
            pass  # held by the step, or refused
        elif isinstance(value, torch.Tensor):
            if type(value) is torch.Tensor and not value.is_inference():
                self._tensors.add(place, name, value)
        elif is_array(value) and hasattr(value, "tobytes"):
            self._tensors.add(place, name, value)
        elif isinstance(value, CONTAINERS):
            self._containers.add(place, name, value)
            if isinstance(value, list) and value and all(map(callable, value)):
                self._calls.append((value, name, list(value)))  # layers, say
        elif not isinstance(value, (types.ModuleType, type)):
            self._objects.add(place, name, value)

    def hold(self) -> bool:
        """Whether all is as it was."""
        try:
            if not self._hooks.hold() or torch.get_default_dtype() is not self._number_type:
                return False
            if self._quick is None or not self._quick.holds():
                if not self._compare():
                    return False
                if self._looks.is_due():
                    self._quick = self._look()
            return not self._stamps or stamp(self._tensors.read()) == self._stamps
        except Exception:  # something is gone
            return False

    @property
    def watch(self) -> Watch:
        """All of `hold` but the hooks and the default type, where `is_all` says so."""
        return self._quick.watch if self._quick else Watch()

    @property
    def is_all(self) -> bool:
        return self._quick is not None and self._quick.is_all

    def _find_other_container(self) -> Change | None:
        """Looks into the containers that are there now; those that are none any more, or are one thing no longer, are a change."""
        moved: dict[int, Any] = {}
        for place, name, old in zip(self._containers.list_places(), self._containers.names, self._containers.values):
            place.holder = moved.get(id(place.holder), place.holder)
            try:
                new = place.get()
            except Exception:
                return Change(name, old, _GONE)
            if type(new) is not type(old) or moved.setdefault(id(old), new) is not new:
                return Change(name, old, new)
        moved = {number: new for number, new in moved.items() if number != id(new)}
        if moved:
            self._quick = None
            for watched in (self._plain, self._objects, self._tensors, self._containers):
                watched.move(moved)
            self._containers.values = [moved.get(id(value), value) for value in self._containers.values]
            self._entries = [(moved.get(id(holder), holder), *rest) for holder, *rest in self._entries]
            self._calls = [(moved.get(id(holder), holder), *rest) for holder, *rest in self._calls]
        return None

    def _compare(self) -> bool:
        return (self._find_other_container() is None and self._plain.read() == self._plain.values
                and self._has_parts()
                and (not self._identities or list(map(id, self._objects.read())) == self._identities))

    def _look(self) -> _QuickLook:
        """At what there is now, which equals what was compiled."""
        plain = _Watched()
        plain.__dict__.update(vars(self._plain), values=self._plain.read())
        entries = [(holder, key, part) for holder, key, _, part in (*self._parts, *self._entries)]
        return _QuickLook((plain, self._objects, self._containers), entries, [(holder, keys) for holder, _, keys in self._orders],
                          [module for module, *_ in self._kinds], self._methods, self._tensors, [items for items, *_ in self._calls])

    def find_change(self) -> Change | str | None:
        """The first value that is another; a mode that has become the one that was traced is none."""
        self._quick = None  # it knows the old values
        if (hook := self._hooks.find_change()) is not None:
            return hook
        if (other := self._find_other_container()) is not None:
            return other
        for watched, is_same in ((self._plain, lambda old, new, _: old is new or old == new),
                                 (self._objects, lambda old, new, _: old is new),
                                 (self._tensors, lambda old, new, number: stamp([new]) == self._stamps[number::len(self._tensors.names)])):
            for number, (place, name, old) in enumerate(zip(watched.list_places(), watched.names, watched.values)):
                try:
                    new = place.get()
                except Exception:
                    return Change(name, old, _GONE)
                if is_same(old, new, number):
                    continue
                if name in self._modes and new == self._modes[name]:
                    watched.values[number] = new
                    continue
                return Change(name, old, new)
        for holder, key, name, old in self._parts:
            if holder.get(key) is not old:
                return Change(name, old, holder.get(key, _GONE))
        for holder, key, name, old in self._entries:
            if (new := holder.get(key, ABSENT)) is not old:
                return Change(name, _GONE if old is ABSENT else old, _GONE if new is ABSENT else new)
        for holder, path, keys in self._orders:
            if list(holder) != keys:
                added = [key for key in holder if key not in keys]
                return Change(_name(path, added[0]), _GONE, holder[added[0]]) if added else (
                    f"the order of {_name(path, 'modules')} is another than the one that the step was compiled for")
        for now, name, items in self._calls:
            if not _has_items(now, items):
                return f"{name.removesuffix(',')} has other items than the step was compiled for"
        for module, name, kind in self._kinds:
            if type(module) is not kind:
                return Change(name, kind.__name__, type(module).__name__)
        for (kind, name), method in self._methods.items():
            if getattr(kind, name, None) is not method:
                return Change(f"{kind.__name__}.{name}", method, getattr(kind, name, _GONE))
        if torch.get_default_dtype() is not self._number_type:
            return Change("torch's default type (torch.set_default_dtype)", self._number_type, torch.get_default_dtype())
        self._keep_parts()  # what is not trained may be another
        return None


def list_numbers(places: Iterable[tuple[Place, Any]]) -> dict[tuple[str, int], Any]:
    """The plain values and tensors among what the code of model and loss reads outside of modules, by path and holder."""
    return {(place.path, id(place.holder)): _copy(value) for place, value in places
            if isinstance(value, torch.Tensor) or is_plain(value) and value == value}
