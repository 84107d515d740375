# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts of Python objects, hundreds of them, that are compared in one call of the runtime's library.

An entry of a dict takes some 8 ns so, a third of what it takes in Python, and whether a tensor needs a gradient a tenth.
What is compared are identities: equal values that are others count as a change, and whoever asks has to look closer.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import pathlib
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from .errors import Error
from .runtime import Watched, load_are_unchanged

__all__ = ["ABSENT", "Backoff", "Watch"]

#: The value of an entry that is not there.
ABSENT = object()
_EVERY_BIT = ctypes.c_size_t(-1).value


class _Fact(NamedTuple):
    look_up: int  #: the address of a function, or 0
    table: int  #: an address
    key: int
    value: int
    mask: int = _EVERY_BIT
    is_table_pointed: bool = False


def _find_address(library: ctypes.CDLL, name: str) -> int:
    """That of a function, 0 where there is none."""
    function = getattr(library, name, None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function is not None else 0


@functools.cache
def _load() -> tuple[Callable[[Any, int], int], int, int, int, int] | None:
    """The call that compares, and the addresses of the interpreter's functions for entries of dicts and of lists, and their sizes."""
    # Elsewhere an id is no address, or others may change what is looked at.
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    looks = [_find_address(ctypes.pythonapi, name) for name in ("PyDict_GetItemWithError", "PyList_GetItem", "PyList_Size", "PyDict_Size")]
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
def _find_version() -> int:
    """TensorBase::_version, which counts how often a tensor was written to, if it answers as the attribute does."""
    method = _find_method("libtorch_cpu.so", "_ZNK2at10TensorBase8_versionEv")
    ask = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(method)
    probes = [torch.zeros(1), torch.zeros(1).add_(1)] if method else []
    return method if all(place and ask(place) == tensor._version for tensor in probes for place in (_find_inside(tensor),)) else 0


@functools.cache
def _find_storage() -> int:
    """Where a tensor's inside has the pointer to its memory; 0 where that is not known."""
    probes = [torch.zeros(3), torch.zeros(2, requires_grad=True)]
    for offset in range(8, 64, 8):
        if all(ctypes.c_void_p.from_address(tensor._cdata + offset).value == tensor.untyped_storage()._cdata for tensor in probes):
            return offset
    return 0


def _find_inside(tensor: torch.Tensor) -> int | None:
    """Where a tensor's object has the pointer to its inside: behind the object's head, or a word later."""
    for offset in (0, ctypes.sizeof(ctypes.c_void_p)):
        place = id(tensor) + object.__basicsize__ + offset
        if type(tensor).__basicsize__ >= place - id(tensor) + 8 and ctypes.c_void_p.from_address(place).value == tensor._cdata:
            return place
    return None


class Watch:
    """What was added is compared by `holds`; what `add_…` gives False for is left to the caller."""

    def __init__(self):
        self._facts: list[_Fact] = []
        self._kept: list[Any] = []  # objects whose addresses the facts have
        #: Whether all is as it was; not before `finish`, and never where the library does not do this.
        self.holds: Callable[[], object] = bool

    def _add(self, fact: _Fact, *kept: Any) -> bool:
        self._facts.append(fact)
        self._kept += kept
        return True

    def add_entry(self, holder: Any, key: Any, value: Any) -> bool:
        """A dict has this value at a key, or with `ABSENT` none."""
        loaded = _load()
        if loaded is None or type(holder) not in (dict, OrderedDict) or type(key) is not str:
            return False
        return self._add(_Fact(loaded[1], id(holder), id(key), 0 if value is ABSENT else id(value)), holder, key, value)

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

    def add_items(self, holder: list) -> bool:
        """A list has these items."""
        loaded = _load()
        if loaded is None or type(holder) is not list:
            return False
        self._add(_Fact(loaded[3], id(holder), 0, len(holder)), holder)
        return all(self._add(_Fact(loaded[2], id(holder), number, id(value)), value) for number, value in enumerate(holder))

    def add_size(self, holder: dict) -> bool:
        """A dict has no more and no fewer entries."""
        loaded = _load()
        if loaded is None or type(holder) not in (dict, OrderedDict):
            return False
        return self._add(_Fact(loaded[4], id(holder), 0, len(holder)), holder)

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

    def add_version(self, tensor: torch.Tensor) -> bool:
        """The tensor is not written to, nor given other memory by `.data`; of a number on the host the bytes are compared too."""
        version, place, storage = _find_version(), _find_inside(tensor), _find_storage()
        if not (_load() and version and place and storage) or tensor.layout is not torch.strided:
            return False
        memory = tensor.untyped_storage()
        self._add(_Fact(version, place, 0, tensor._version), tensor, memory)
        self._add(_Fact(0, tensor._cdata + storage, 0, memory._cdata))
        bits = 8 * tensor.element_size()
        if tensor.numel() == 1 and tensor.device.type == "cpu" and bits <= 64:
            address, inside = tensor.data_ptr() & ~7, tensor.data_ptr() & 7  # a word of its page
            mask = ((1 << bits) - 1) << 8 * inside
            self._add(_Fact(0, address, 0, ctypes.c_uint64.from_address(address).value & mask, mask))
        return True

    def finish(self) -> None:
        """From here on it can be asked."""
        loaded, parts, arrays = _load(), [], []
        groups: dict[tuple[int, int, bool], list[_Fact]] = {}
        for fact in self._facts:
            groups.setdefault((fact.look_up, fact.mask, fact.is_table_pointed), []).append(fact)
        for (look_up, mask, is_pointed), facts in groups.items():
            columns = [_make_array(column) for column in ((fact.table for fact in facts), (fact.key for fact in facts),
                                                          (fact.value for fact in facts))]
            arrays += columns
            parts.append(Watched(look_up, *map(ctypes.addressof, columns), mask, len(facts), is_pointed))
        if loaded is None:
            return
        self._arrays = arrays
        are_unchanged, table, count = loaded[0], (Watched * len(parts))(*parts), ctypes.c_int64(len(parts))
        self.holds = functools.partial(are_unchanged, table, count)


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
