# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Python code reads besides its arguments, and where it lies.

`Reads` follows functions through closures, globals, defaults, `functools.partial`, bound methods and the functions that
they call, by their bytecode. `observed` sees which attributes of modules a call reads.
"""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import enum
import functools
import io
import pathlib
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from .bytecode import list_asked, list_indexed, list_names
from .environment import EnvironmentReads

__all__ = ["ABSENT", "CONTAINERS", "MUTABLE", "Place", "Reads", "begin_forward", "has_few", "is_fixed", "is_iterator", "is_of_user", "is_plain", "may_be_kept", "note_left", "observed", "unobserved"]

#: The value of a place that is not there.
ABSENT = object()
#: Plain values that may change where they are.
MUTABLE = list, set, collections.deque, array.array, bytearray
#: What a forward pass reads in by a key or a number.
CONTAINERS = dict, list, tuple

_LIBRARIES = tuple({str(pathlib.Path(path).resolve()) for name, path in sysconfig.get_paths().items()
                    if name in ("stdlib", "platstdlib", "purelib", "platlib")}
                   | {str(pathlib.Path(torch.__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[1])})
_NUMBERS = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
_MOST_ENTRIES, _MOST_LEVELS, _LONGEST_KEY = 1024, 4, 64


def has_few(value: Any, most: int = _MOST_ENTRIES) -> bool:
    """Whether a container has not too many entries; a user's class of tuples may have no length."""
    try:
        return len(value) <= most
    except Exception:
        return False


def is_plain(value: Any) -> bool:
    """Whether it is a number, a string or the like, or a container of not too many of such."""
    if isinstance(value, (tuple, frozenset, *MUTABLE)):
        return has_few(value) and all(map(is_plain, value))
    return isinstance(value, _NUMBERS)


def is_fixed(value: Any) -> bool:
    """Whether a plain value stays equal to itself."""
    return all(map(is_fixed, value)) if isinstance(value, tuple) else not isinstance(value, MUTABLE)


def is_iterator(value: Any) -> bool:
    """Whether it gives another value each time that it is asked; a file does not count."""
    return isinstance(value, Iterator) and not isinstance(value, io.IOBase)


def _is_of_library(function: types.FunctionType) -> bool:
    name = function.__code__.co_filename
    return name.startswith("<frozen") or str(pathlib.Path(name).resolve()).startswith(_LIBRARIES)


@functools.cache
def is_of_user(kind: type) -> bool:
    """Whether a class was written for this program, and belongs to no library that is installed."""
    return kind.__module__ == "__main__" or _is_file_of_user(sys.modules.get(kind.__module__))


def _is_file_of_user(module: types.ModuleType | None) -> bool:
    path = getattr(module, "__file__", None)
    return bool(path) and not str(pathlib.Path(path).resolve()).startswith(_LIBRARIES)


def _list_slots(value: Any) -> set[str]:
    slots = (vars(kind).get("__slots__", ()) for kind in type(value).__mro__)
    return {name for own in slots for name in ((own,) if isinstance(own, str) else own)} if is_of_user(type(value)) else set()


class Place:
    """Somewhere that holds a value: an entry of a dict or list, a cell of a closure, an attribute."""

    def __init__(self, path: str, holder: Any, key: Any, parent: Place | None = None):
        #: `holder` is a mapping or list with `key`; a cell, whose key is None; with a parent, a tuple that the parent holds.
        self.path, self.holder, self.key, self.parent = path, holder, key, parent

    @property
    def is_entry(self) -> bool:
        return isinstance(self.holder, (dict, types.MappingProxyType, list))

    def get(self) -> Any:
        if self.parent is not None:
            return self.parent.get()[self.key]
        if isinstance(self.holder, types.CellType):
            return self.holder.cell_contents
        if isinstance(self.holder, contextvars.ContextVar):
            return self.holder.get(ABSENT)
        return self.holder[self.key] if self.is_entry else getattr(self.holder, self.key)

    def set(self, value: Any) -> None:
        if self.parent is not None:
            whole = self.parent.get()
            self.parent.set(type(whole)([*whole[:self.key], value, *whole[self.key + 1:]]))
        elif isinstance(self.holder, types.CellType):
            self.holder.cell_contents = value
        elif self.is_entry:
            self.holder[self.key] = value
        elif isinstance(self.holder, functools.partial):
            self.holder.__setstate__((self.holder.func, value, self.holder.keywords, self.holder.__dict__ or None))
        else:
            setattr(self.holder, self.key, value)


class Reads:
    """The places that functions, and the forward passes of classes, read; of objects, the attributes that the code names."""

    def __init__(self, functions: Iterable[Callable], kinds: Iterable[type] = ()):
        self.names: set[str] = set()  #: of attributes
        self.constants: set[str] = set()  #: strings, which may be keys of dicts
        self.indexed: set[str] = set()  #: names of dicts of which the code may read any entry
        #: Entries of dicts and attributes that the code may ask for and that are not there: a path, the dict, the key.
        self.absent: list[tuple[str, dict, str]] = []
        self._sources: dict[int, Any] = {}  # functions, partials and objects that were met
        self._kinds = list(kinds)
        for function in functions:
            self._meet(function)
        known = -1
        while known != len(self._sources):  # a method is called by a name that is met later, say
            known = len(self._sources)
            for kind in self._kinds:
                self._meet_class(kind, "forward" if issubclass(kind, nn.Module) else "__call__")
            for source in list(self._sources.values()):
                self._meet_methods(source)

    # What is called

    def _meet(self, value: Any, level: int = 0) -> None:
        if id(value) in self._sources or level > _MOST_LEVELS or isinstance(value, (torch.Tensor, nn.Module)):
            return
        if isinstance(value, functools.partial):
            self._sources[id(value)] = value
            for part in (value.func, *value.args, *value.keywords.values()):
                self._meet(part, level + 1)
        elif isinstance(value, types.MethodType):
            self._sources[id(value)] = value
            self._meet(value.__func__, level)
            self._meet(value.__self__, level)
            self._meet_class(type(value.__self__), value.__name__)
        elif isinstance(value, types.FunctionType):
            self._sources[id(value)] = value
            self._meet_function(value, level)
        elif isinstance(value, type):
            is_function = issubclass(value, torch.autograd.Function) and not value.__module__.startswith("torch.")
            if is_function or is_of_user(value):
                self._sources[id(value)] = value
        elif isinstance(value, types.ModuleType):
            if _is_file_of_user(value):
                self._sources[id(value)] = value
        elif isinstance(value, (tuple, list)):
            for part in value[:_MOST_ENTRIES]:
                self._meet(part, level + 1)
        elif hasattr(value, "__dict__") and type(value).__module__ != "builtins":
            self._sources[id(value)] = value

    def _meet_function(self, function: types.FunctionType, level: int) -> None:
        self.names.update(list_names(function, ("LOAD_ATTR", "LOAD_METHOD")))
        self.constants.update(list_asked(function))
        self.indexed.update(list_indexed(function))
        for place in self._list_own(function):
            with contextlib.suppress(ValueError):  # a cell that is empty as yet
                self._meet(place.get(), level + 1)

    def _meet_methods(self, source: Any) -> None:
        if isinstance(source, type) and issubclass(source, torch.autograd.Function):
            for value in vars(source).values():
                self._meet(getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value)
        elif isinstance(source, type):
            self._meet_class(source, "")
        elif isinstance(source, types.ModuleType):
            for name in sorted(self.names & vars(source).keys()):
                if isinstance(vars(source)[name], (types.FunctionType, type)):
                    self._meet(vars(source)[name])
        elif isinstance(source, types.MethodType):
            self._meet_class(type(source.__self__), source.__name__)
        elif not isinstance(source, (types.FunctionType, functools.partial)):
            self._meet_class(type(source), "__call__")

    def _meet_class(self, kind: type, first: str) -> None:
        """The functions of a class that the code may call on its objects, beginning with one."""
        for name in (first, *sorted(self.names)):
            method = getattr(kind, name, None)
            method = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
            if isinstance(method, types.FunctionType) and (name == first or not _is_of_library(method)):
                self._meet(method)

    # Where that reads

    def _list_own(self, function: types.FunctionType) -> Iterator[Place]:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            yield Place(name, cell, None)
        if _is_of_library(function):
            return
        names = list_names(function, ("LOAD_GLOBAL", "LOAD_NAME"))
        for name in sorted(names & function.__globals__.keys()):
            yield Place(name, function.__globals__, name)
        if function.__defaults__:
            arguments = function.__code__.co_varnames[:function.__code__.co_argcount]
            whole = Place(f"defaults of {function.__name__}", function, "__defaults__")
            for number, name in enumerate(arguments[-len(function.__defaults__):]):
                yield Place(name, None, number, parent=whole)
        for name in function.__kwdefaults__ or ():
            yield Place(name, function.__kwdefaults__, name)

    def _list_of(self, source: Any) -> Iterator[Place]:
        if isinstance(source, types.FunctionType):
            yield from self._list_own(source)
        elif isinstance(source, functools.partial):
            whole = Place("arguments", source, "args")
            for number in range(len(source.args)):
                yield Place(f"argument {number}", None, number, parent=whole)
            for name in source.keywords:
                yield Place(name, source.keywords, name)
        elif isinstance(source, types.MethodType):
            yield Place("self", source, "__self__")
        elif not isinstance(source, (type, types.ModuleType)):
            yield from self.list_attributes("", source)

    def list_attributes(self, path: str, value: Any) -> Iterator[Place]:
        """Of an object, those that the code names."""
        named, own, front = self.names | self.constants, getattr(value, "__dict__", {}), f"{path}." if path else ""
        for name in sorted(named & own.keys()):
            yield Place(front + name, own, name)
        for name in sorted(named & _list_slots(value)):
            yield Place(front + name, value, name)
        if type(own) is dict:
            self._note_absent(front + "{}", own, {name for name in self.constants if not hasattr(type(value), name)})

    def _list_of_class(self, path: str, kind: type) -> Iterator[Place]:
        """The values, none of them functions, that the code names of a user's class."""
        if is_of_user(kind) and not issubclass(kind, enum.Enum):
            there = {name: value for base in reversed(kind.__mro__) if is_of_user(base) for name, value in vars(base).items()}
            for name in sorted((self.names | self.constants) & there.keys()):
                if not callable(there[name]) and not hasattr(type(there[name]), "__get__"):
                    yield Place(f"{path}.{name}", kind, name)

    def _note_absent(self, form: str, holder: dict, keys: Iterable[str]) -> None:
        self.absent += [(form.format(key), holder, key) for key in keys if key not in holder and len(key) <= _LONGEST_KEY]

    def list_places(self) -> Iterator[tuple[Place, Any]]:
        """Places and what they hold: whatever functions read, and what is inside of that."""
        seen: set = set()
        for kind in self._kinds:  # type(self).scale
            for place in self._list_of_class(kind.__name__, kind):
                yield from self.expand(place, seen)
        for source in list(self._sources.values()):
            is_library = isinstance(source, types.FunctionType) and _is_of_library(source)
            for place in self._list_of(source):
                for inner, value in self.expand(place, seen):
                    if not (is_library and isinstance(value, types.FunctionType)):  # what a decorator has wrapped
                        yield inner, value

    def expand(self, place: Place, seen: set, level: int = 0) -> Iterator[tuple[Place, Any]]:
        """A place, and those inside of what it holds that the code may read."""
        key = (id(place.holder if place.parent is None else place.parent.get()), place.key)
        if key in seen or level > _MOST_LEVELS:
            return
        seen.add(key)
        try:
            value = place.get()
        except (ValueError, AttributeError, KeyError):
            return
        yield place, value
        if is_plain(value) or isinstance(value, (torch.Tensor, nn.Module, types.BuiltinFunctionType)):
            return
        for inner in self._list_inside(place, value):
            yield from self.expand(inner, seen, level + 1)

    def _list_inside(self, place: Place, value: Any) -> Iterator[Place]:
        if isinstance(value, (dict, types.MappingProxyType)):
            is_indexed = place.path.rpartition(".")[2] in self.indexed
            for key in list(value)[:_MOST_ENTRIES] if len(value) <= _MOST_ENTRIES else ():
                if is_indexed or not isinstance(key, str) or key in self.constants or key in self.names:
                    yield Place(f"{place.path}[{key!r}]", value, key)
            if len(value) <= _MOST_ENTRIES and type(value) is dict:
                self._note_absent(f"{place.path}".replace("{", "{{").replace("}", "}}") + "[{!r}]", value, self.constants)
        elif isinstance(value, (list, tuple)) and has_few(value):
            for number in range(len(value)):
                own = {"parent": place} if isinstance(value, tuple) else {}
                yield Place(f"{place.path}[{number}]", None if own else value, number, **own)
        elif isinstance(value, (collections.UserDict, collections.UserList, collections.ChainMap)):
            for name in vars(value):
                yield Place(place.path, vars(value), name)
        elif isinstance(value, contextvars.ContextVar):
            yield Place(f"{place.path}.get()", value, None)
        elif isinstance(value, types.ModuleType):
            if _is_file_of_user(value):
                yield from self.list_attributes(place.path, value)
        elif isinstance(value, type):
            yield from self._list_of_class(place.path, value)
        elif isinstance(value, types.FunctionType):
            if not _is_of_library(value):
                yield from self.list_attributes(place.path, value)
        elif is_of_user(type(value)) or isinstance(getattr(value, "__dict__", None), dict) and not callable(value):
            yield from self.list_attributes(place.path, value)


# ----------------------------------------------------------------------------------------------------------
# Attributes of modules
# ----------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_observers: dict[int, observed] = {}  # by thread


_OF_ALL = set(vars(nn.Module)) | {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}


def _get_attribute(module: nn.Module, name: str) -> Any:
    observer = _observers.get(threading.get_ident())
    is_observed = observer is not None and id(module) in observer.modules and (name not in _OF_ALL or name == "training")
    try:
        value = object.__getattribute__(module, name)
    except AttributeError:
        if is_observed:
            own = object.__getattribute__(module, "__dict__")
            if all(name not in own.get(kind, ()) for kind in ("_parameters", "_buffers", "_modules")):
                observer.absent.add((id(module), name))
                observer.asked.add((id(module), name))
        raise
    if is_observed:
        observer.reads.setdefault((id(module), name), value)
        if may_be_kept(value):
            observer.asked.add((id(module), name))
    return value


_set_plainly = nn.Module.__setattr__


def note_left(module: nn.Module, name: str) -> None:
    """Forward leaves a tensor in an attribute: for its next call, if it has asked for it before."""
    observer = _observers.get(threading.get_ident())
    if observer is not None and (id(module), name) in observer.asked:
        observer.kept.add((id(module), name))


def _set_attribute(module: nn.Module, name: str, value: Any) -> None:
    observer = _observers.get(threading.get_ident())
    if observer is not None and isinstance(value, torch.Tensor):
        if name not in module._parameters and name not in module._buffers:
            note_left(module, name)
    elif observer is not None and isinstance(value, CONTAINERS):
        observer.written.add((id(module), name))
    elif observer is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        first = observer.reads.get((id(module), name), value)
        if isinstance(first, (int, float)) and first != value and value == value:
            observer.changed.add((id(module), name))
    _set_plainly(module, name, value)


class observed:
    """While entered, collects the attributes that this thread reads of the modules, and the numbers among them that it changes."""

    def __init__(self, modules: Iterable[nn.Module]):
        self.modules = {id(module): module for module in modules}
        #: By `id(module)` and attribute, what the first reading gave.
        self.reads: dict[tuple[int, str], Any] = {}
        #: By `id(module)`, the attributes that somebody has asked for in vain.
        self.absent: set[tuple[int, str]] = set()
        #: Numbers that got another value after they were read; PyTorch's export may have put the old one back since.
        self.changed: set[tuple[int, str]] = set()
        #: Those that this call of forward has asked for while they had a tensor or nothing.
        self.asked: set[tuple[int, str]] = set()
        #: Of these the ones that it gave a tensor, which is for the next call.
        self.kept: set[tuple[int, str]] = set()
        #: Those that got a dict, list or tuple: what forward leaves for a loss, say.
        self.written: set[tuple[int, str]] = set()
        self.environment = EnvironmentReads()

    def __enter__(self) -> None:
        self.environment.__enter__()
        with _lock:
            _observers[threading.get_ident()] = self
            nn.Module.__getattribute__ = _get_attribute
            nn.Module.__setattr__ = _set_attribute

    def __exit__(self, *_) -> None:
        self.environment.__exit__()
        with _lock:
            del _observers[threading.get_ident()]
            if not _observers:
                del nn.Module.__getattribute__
                nn.Module.__setattr__ = _set_plainly

    def add_reads_of(self, functions: Iterable[Callable]) -> None:
        """What the code of functions, and of the modules that they close over, may read of them."""
        functions = [function for function in functions if isinstance(function, (types.FunctionType, types.MethodType, functools.partial))]
        held = {id(module): module for function in functions for root in _list_held(function) for module in root.modules()}
        names = Reads(functions, {type(module) for module in held.values()}).names
        for number, module in held.items():
            if number in self.modules:
                for name in names & vars(module).keys():
                    if name not in _OF_ALL or name == "training":
                        self.reads.setdefault((number, name), vars(module)[name])


def begin_forward() -> None:
    """A call of forward begins, which reads what others have left."""
    observer = _observers.get(threading.get_ident())
    if observer is not None:
        observer.asked.clear()


def may_be_kept(value: Any) -> bool:
    """Whether a call may have left this for the next one, or nothing as yet."""
    return value is None or isinstance(value, torch.Tensor)


def _list_held(value: Any, level: int = 0) -> Iterator[nn.Module]:
    """The modules that a function closes over."""
    if isinstance(value, nn.Module):
        yield value
        return
    inner: Iterable[Any] = ()
    if isinstance(value, functools.partial):
        inner = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        inner = (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType):
        cells = [cell for cell in value.__closure__ or () if cell != types.CellType()]
        names = list_names(value, ("LOAD_GLOBAL", "LOAD_NAME"))
        inner = (*(cell.cell_contents for cell in cells), *(value.__defaults__ or ()),
                 *(value.__globals__[name] for name in names & value.__globals__.keys() if not _is_of_library(value)))
    elif isinstance(value, (tuple, list)) and has_few(value):
        inner = value
    for part in inner if level <= _MOST_LEVELS else ():
        yield from _list_held(part, level + 1)


@contextlib.contextmanager
def unobserved(functions: Iterable[Callable]) -> Iterator[None]:
    """While entered, this thread observes nothing, as Dynamo does not take modules that are; what the functions may read counts
    as read."""
    observer = _observers.get(threading.get_ident())
    if observer is None:
        yield
        return
    observer.add_reads_of(functions)
    observer.__exit__()
    try:
        yield
    finally:
        observer.__enter__()
