# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts of Python objects, hundreds of them, that are compared in one call of the runtime's library.

An entry of a dict takes some 8 ns so, a third of what it takes in Python, and whether a tensor needs a gradient a tenth.
Where the interpreter gives dicts a version, which each change of a dict makes another (PEP 509), a dict with all of its entries
takes 1 or 2 ns: the entries are compared only when the version has changed.
What is compared are identities: equal values that are others count as a change, and whoever asks has to look closer.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import pathlib
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import Error
from ..internals import count_hooks
from ..runtime import Watched, load_are_unchanged
from .reads import ABSENT
from .stamps import MOST_BYTES

__all__ = ["Backoff", "Look", "Watch"]

_DICTS = dict, OrderedDict, defaultdict
_EVERY_BIT = ctypes.c_size_t(-1).value
_WORD = ctypes.sizeof(ctypes.c_size_t)
_VERSION_OFFSET = object.__basicsize__ + _WORD  # behind the number of entries
_COUNT_OFFSET, _COUNT_MASK = 2 * _WORD, 0xffffffff  # in a counter of PyTorch's, behind its methods and who has it
_LIST_OFFSETS = object.__basicsize__, object.__basicsize__ + _WORD  # the number of items, and where they lie


def _read_word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


class _Fact(NamedTuple):
    look_up: int  #: the address of a function, or 0
    table: int  #: an address
    key: int
    value: int
    mask: int = _EVERY_BIT
    is_table_pointed: bool = False
    stage: int = 0  #: What lies where others say is looked at behind these.


def _find_address(library: ctypes.CDLL, name: str) -> int:
    """That of a function, 0 where there is none."""
    function = getattr(library, name, None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function is not None else 0


@functools.cache
def _load() -> tuple[Callable[[Any, int], int], int, int] | None:
    """The call that compares, and the addresses of the interpreter's functions for entries of dicts and their number."""
    # Elsewhere an id is no address, or others may change what is looked at.
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    looks = [_find_address(ctypes.pythonapi, name) for name in ("PyDict_GetItemWithError", "PyDict_Size")]
    try:
        are_unchanged = load_are_unchanged()
    except Error:  # no runtime: there will be no steps
        return None
    return (are_unchanged, *looks) if are_unchanged and all(looks) else None


@functools.cache
def _find_method(library: str, name: str) -> int:
    """The address of a method of PyTorch's; 0 where there is none."""
    try:
        return _find_address(ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / library)), name)
    except OSError:
        return 0


@functools.cache
def _find_needs_gradient() -> int:
    """TensorImpl::requires_grad, if it answers as the attribute does."""
    method = _find_method("libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv")
    ask = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(method)
    probes = [torch.zeros(1, requires_grad=flag) for flag in (False, True)] if method else []
    return method if all(ask(tensor._cdata) == tensor.requires_grad for tensor in probes) else 0


@functools.cache
def _find_counter() -> int:
    """Where a tensor's inside has the pointer to the counter of what was written to it; 0 where that is not known."""
    tensor = torch.zeros(3)
    other, same = tensor.data, tensor.detach()  # one has a counter of its own, the other this one
    for offset in range(_WORD, 8 * _WORD, _WORD):
        own, differing, shared = (_read_word(one._cdata + offset) for one in (tensor, other, same))
        if own and own % _WORD == 0 and own == shared != differing:
            for expected in range(1, 4):
                tensor.add_(1)
                if _read_word(own + _COUNT_OFFSET) & _COUNT_MASK != expected or tensor._version != expected:
                    return 0
            return offset
    return 0


@functools.cache
def _find_storage() -> int:
    """Where a tensor's inside has the pointer to its memory; 0 where that is not known."""
    probes = [torch.zeros(3), torch.zeros(2, requires_grad=True)]
    for offset in range(_WORD, 8 * _WORD, _WORD):
        if all(_read_word(tensor._cdata + offset) == tensor.untyped_storage()._cdata for tensor in probes):
            return offset
    return 0


def _find_inside(tensor: torch.Tensor) -> int | None:
    """Where a tensor's object has the pointer to its inside: behind the object's head, or a word later."""
    for offset in (0, ctypes.sizeof(ctypes.c_void_p)):
        place = id(tensor) + object.__basicsize__ + offset
        if type(tensor).__basicsize__ >= place - id(tensor) + 8 and ctypes.c_void_p.from_address(place).value == tensor._cdata:
            return place
    return None


class _Table:
    """Many facts, as the library takes them."""

    def __init__(self, facts: Iterable[_Fact]):
        groups: dict[tuple[int, int, int, bool], list[_Fact]] = {}
        for fact in facts:
            groups.setdefault((fact.stage, fact.look_up, fact.mask, fact.is_table_pointed), []).append(fact)
        self._arrays, self.parts = [], []
        for (_, look_up, mask, is_pointed), group in sorted(groups.items()):
            columns = [_make_array(column) for column in ((fact.table for fact in group), (fact.key for fact in group),
                                                          (fact.value for fact in group))]
            self._arrays += columns
            self.parts.append(Watched(look_up, *map(ctypes.addressof, columns), mask, len(group), is_pointed))
        #: Whether all are as they were.
        self.hold = _make_call(self.parts)


def _make_call(parts: Sequence[Watched]) -> Callable[[], object]:
    return functools.partial(_load()[0], (Watched * len(parts))(*parts), ctypes.c_int64(len(parts)))


#: A dict whose version changes again within so many looks is compared entry by entry from then on.
_FEW_LOOKS = 8


class _Versions:
    """Entries of dicts, which are looked at only where a dict has another version; and other facts."""

    def __init__(self, entries: Sequence[_Fact], others: Sequence[_Fact]):
        self._entries, self._others = entries, others
        self._dicts = list(dict.fromkeys(fact.table for fact in entries))
        self._restless: set[int] = set()
        self._every, self._looks = _Table(entries), 0
        self._mark()

    def _mark(self) -> None:
        """The versions of now are those of the entries that are known."""
        self._versions = {table: _read_version(table) for table in self._dicts if table not in self._restless}
        seen = [_Fact(0, table + _VERSION_OFFSET, 0, version) for table, version in self._versions.items()]
        self.table = _Table([*seen, *(fact for fact in self._entries if fact.table in self._restless), *self._others])

    def hold(self) -> bool:
        self._looks += 1
        if self.table.hold():
            return True
        if not self._every.hold():
            return False
        changed = {table for table, version in self._versions.items() if _read_version(table) != version}
        if not changed:
            return False  # one of the others
        if self._looks <= _FEW_LOOKS:
            self._restless |= changed
        self._looks = 0
        self._mark()
        return bool(self.table.hold())


def _read_version(table: int) -> int:
    return _read_word(table + _VERSION_OFFSET)


@functools.cache
def _has_plain_lists() -> bool:
    """Whether a list has its items where this file looks for them."""
    probe = [object(), object(), object()]
    size, items = (_read_word(id(probe) + offset) for offset in _LIST_OFFSETS)
    return size == len(probe) and [_read_word(items + number * _WORD) for number in range(size)] == list(map(id, probe))


@functools.cache
def _has_versions() -> bool:
    """Whether dicts have a version that each change makes another; since Python 3.13 none has."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 13):
        return False
    probe = type("Probe", (), {})()
    for number in range(64):  # the interpreter comes to know what this instruction writes to
        probe.part = number
    tables = {}, OrderedDict(), defaultdict(dict), vars(probe)
    changes = (lambda table: table.__setitem__("a", 1.5), lambda table: table.__setitem__("a", 2.5), lambda table: table.update(a=3.5),
               lambda table: table.update(b=1), lambda table: table.setdefault("c", 1), lambda table: table.pop("c"),
               lambda table: table.__delitem__("b"), lambda table: table.clear())
    for table in tables:
        versions = [_read_version(id(table))]
        for change in changes:
            change(table)
            versions.append(_read_version(id(table)))
        table.get("a"), "a" in table, list(table.items())
        if len(set(versions)) != len(versions) or _read_version(id(table)) != versions[-1]:
            return False
    versions = set()
    for number in range(64):
        probe.part = number
        versions.add(_read_version(id(vars(probe))))
    return len(versions) == 64


class Watch:
    """What was added is compared by `holds`; what `add_…` gives False for is left to the caller."""

    def __init__(self):
        self._facts: list[_Fact] = []
        self._entries: list[_Fact] = []  # of dicts
        self._kept: list[Any] = []  # objects whose addresses the facts have
        #: Whether all is as it was; not before `finish`, and never where the library does not do this.
        self.holds: Callable[[], object] = bool
        self._versions: _Versions | None = None
        self._table: _Table | None = None

    def _add(self, fact: _Fact, *kept: Any) -> bool:
        self._facts.append(fact)
        self._kept += kept
        return True

    def add_entry(self, holder: Any, key: Any, value: Any) -> bool:
        """A dict has this value at a key, or with `ABSENT` none."""
        loaded = _load()
        if loaded is None or type(holder) not in _DICTS or type(key) not in (str, bytes):
            return False
        self._entries.append(_Fact(loaded[1], id(holder), id(key), 0 if value is ABSENT else id(value)))
        self._kept += holder, key, value
        return True

    def add_class_attribute(self, kind: type, key: str, value: Any) -> bool:
        """Objects of a class, which have no such attribute of their own, have the class's."""
        for base in kind.__mro__:
            holder = next(iter(gc.get_referents(vars(base))), None)  # behind its read-only view
            if type(holder) is not dict:
                return False
            if key in holder:
                return holder[key] is value and self.add_entry(holder, key, value)
            if not self.add_entry(holder, key, ABSENT):
                return False
        return False

    def add_word(self, address: int, *kept: Any) -> bool:
        """A word of memory, as it is now."""
        return bool(_load()) and self._add(_Fact(0, address, 0, _read_word(address)), *kept)

    def add_class(self, value: Any) -> bool:
        """An object is of this class."""
        address = id(value) + object.__basicsize__ - _WORD
        return _read_word(address) == id(type(value)) and self.add_word(address, value, type(value))

    def add_items(self, holder: list) -> bool:
        """A list has these items."""
        if _load() is None or type(holder) is not list or not _has_plain_lists():
            return False
        # The number of items and where they lie, then each: whoever has moved them is seen in front of what was there.
        self._facts += [_Fact(0, id(holder) + offset, 0, _read_word(id(holder) + offset)) for offset in _LIST_OFFSETS]
        items = _read_word(id(holder) + _LIST_OFFSETS[1])
        self._facts += [_Fact(0, items + number * _WORD, 0, id(value), stage=1) for number, value in enumerate(holder)]
        self._kept += holder, *holder
        return True

    def add_size(self, holder: dict) -> bool:
        """A dict has no more and no fewer entries."""
        loaded = _load()
        if loaded is None or type(holder) not in _DICTS:
            return False
        self._entries.append(_Fact(loaded[2], id(holder), 0, len(holder)))
        self._kept.append(holder)
        return True

    def add_version_of(self, holder: dict) -> bool:
        """Nothing is written to a dict, not even what it has."""
        return type(holder) in _DICTS and _has_versions() and self.add_word(id(holder) + _VERSION_OFFSET, holder)

    def add_cell(self, cell: types.CellType, value: Any) -> bool:
        place = id(cell) + object.__basicsize__
        if _load() is None or ctypes.c_void_p.from_address(place).value != id(value):
            return False
        return self._add(_Fact(0, place, 0, id(value)), cell, value)

    def add_gradients(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether each needs a gradient stays as it is."""
        needs, places = _find_needs_gradient(), list(map(_find_inside, tensors))
        return bool(_load() and needs and None not in places) and all(
            self._add(_Fact(needs, place, 0, int(tensor.requires_grad), 0xff, True), tensor) for place, tensor in zip(places, tensors))

    def add_version(self, tensor: torch.Tensor, is_whole: bool = True) -> bool:
        """The tensor is not written to, nor given other memory by `.data`; the bytes of a number on the host, and the first and
        last ones of other tensors, are compared too: all of a small tensor, if `is_whole`."""
        counter, storage = _find_counter(), _find_storage()
        if not (_load() and counter and storage) or tensor.layout is not torch.strided:
            return False
        memory, counts = tensor.untyped_storage(), _read_word(tensor._cdata + counter)
        self.add_word(tensor._cdata + counter, tensor, memory)
        self.add_word(tensor._cdata + storage)
        self._add(_Fact(0, counts + _COUNT_OFFSET, 0, tensor._version, _COUNT_MASK, stage=1))
        bits = 8 * tensor.element_size()
        if tensor.numel() == 1 and tensor.device.type == "cpu" and bits <= 64:
            address, inside = tensor.data_ptr() & ~7, tensor.data_ptr() & 7  # a word of its page
            mask = ((1 << bits) - 1) << 8 * inside
            self._add(_Fact(0, address, 0, _read_word(address) & mask, mask, stage=1))
        elif tensor.device.type == "cpu" and tensor.nbytes >= _WORD and tensor.is_contiguous():
            # PyTorch does not count what is written through `.data`.
            first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes - _WORD
            for address in {*(range(first, last, _WORD) if is_whole and tensor.nbytes <= MOST_BYTES else ()), first, last}:
                self._add(_Fact(0, address, 0, _read_word(address), stage=1))
        return True

    def finish(self) -> None:
        """From here on it can be asked."""
        if _load() is None:
            return
        if self._entries and _has_versions():
            self._versions = _Versions(self._entries, self._facts)
            self.holds = self._versions.hold
        else:
            self._table = _Table([*self._entries, *self._facts])
            self.holds = self._table.hold

    @property
    def table(self) -> _Table | None:
        """What `holds` compares at first; None as long as it is not finished."""
        return self._versions.table if self._versions else self._table


class Look:
    """Several parts that each `hold`, whose watches are compared in one call where they have them: `watch`, and in `is_all`
    whether that sees all that `hold` does but hooks and the default type."""

    def __init__(self, parts: Sequence[Any]):
        self._parts, self._looks = parts, Backoff()
        self._surroundings: tuple = ()
        self._tables: list[_Table] = []  # what the call compares
        self._hold: Callable[[], object] = bool
        self._rest: list[Any] = []

    def holds(self) -> bool:
        surroundings = count_hooks(), torch.get_default_dtype()
        if surroundings == self._surroundings and self._hold() and all(part.hold() for part in self._rest):
            return True
        if not all(part.hold() for part in self._parts):
            return False
        self._surroundings = surroundings
        if self._looks.is_due():
            self._join()
        return True

    def _join(self) -> None:
        watched = [part for part in self._parts if part.is_all and part.watch.table is not None]
        self._rest = [part for part in self._parts if part not in watched]
        self._tables = [part.watch.table for part in watched]
        self._hold = _make_call([part for table in self._tables for part in table.parts]) if watched else bool


class Backoff:
    """Says yes the first time, the second, the fourth, ...: what is made anew in vain soon is no more."""

    def __init__(self):
        self._count = 0

    def is_due(self) -> bool:
        self._count += 1
        return self._count & (self._count - 1) == 0


def _make_array(numbers: Iterable[int]) -> ctypes.Array:
    numbers = list(numbers)
    return (ctypes.c_size_t * len(numbers))(*numbers)
