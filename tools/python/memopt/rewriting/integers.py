# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`int(x)` of a tensor, `int(batch.max()) + 1`, is `x.item()` while a model is traced, `len(x)` of rows whose number follows from the
data is `x.shape[0]`, and `range(count)` of such a number is a tensor, `torch.arange(count)`, with which others are indexed.

Python's `int`, `len` and `range` ask for a number of Python, which there is none of then. So modules that ask once see others, and the
model is traced again.
"""

from __future__ import annotations

import builtins
import sys
import types

import torch
from torch.fx.experimental import symbolic_shapes

from ..user_code.places import find_caller, is_hidden

__all__ = ["AskedForInteger", "REPLACED", "replaced_integers"]


class _Kind(type):
    """What `int` is but for tensors."""

    def __call__(cls, *arguments, **keywords):
        if len(arguments) == 1 and not keywords and isinstance(arguments[0], torch.Tensor) and arguments[0].numel() == 1:
            value = arguments[0].detach()
            return (value.to(torch.int64) if value.is_floating_point() or value.dtype is torch.bool else value).reshape(()).item()
        if len(arguments) == 1 and isinstance(arguments[0], torch.SymInt):
            return arguments[0]
        return builtins.int(*arguments, **keywords)

    def __instancecheck__(cls, value):
        return isinstance(value, builtins.int)

    def __subclasscheck__(cls, other):
        return issubclass(other, builtins.int)


class _Integer(metaclass=_Kind):
    from_bytes = builtins.int.from_bytes


def _range(*arguments):
    if len(arguments) == 1 and isinstance(arguments[0], torch.SymInt):
        return torch.arange(arguments[0])
    return builtins.range(*arguments)


def _len(value):
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else builtins.len(value)


_OTHERS = {"int": _Integer, "range": _range, "len": _len}


class AskedForInteger(Exception):
    """A frame has called `int` of a tensor, or `range` or `len` of what has a size that follows from the data; its module is to see the
    other one."""

    def __init__(self, frame: types.FrameType, name: str = "int"):
        super().__init__(f"{name}(x) of what follows from the data")
        self.names, self.name = frame.f_globals, name


def _ask(size: torch.SymInt, names: tuple[str, ...]) -> None:
    """`range(size)`, `len(x)` and `int(size)` ask so, and so do others, which ask again where the module has its own of these."""
    frame = find_caller(sys._getframe(2))
    if frame is not None and symbolic_shapes.free_unbacked_symbols(size) and not is_hidden(frame.f_code.co_filename):
        for name in names:
            if name in frame.f_code.co_names and name not in frame.f_globals:
                raise AskedForInteger(frame, name)


def _index(size: torch.SymInt) -> int:
    _ask(size, ("range", "len"))
    return _index.original(size)


def _int(size: torch.SymInt) -> int:
    _ask(size, ("int",))
    return _int.original(size)


_index.original, _int.original = torch.SymInt.__index__, torch.SymInt.__int__
#: What is replaced while a step is traced: owner, name and the other function.
REPLACED = [(torch.SymInt, "__index__", _index), (torch.SymInt, "__int__", _int)]


class replaced_integers:
    """While entered, the modules that have asked see the other `int`."""

    def __init__(self):
        self._owners: list[tuple[dict, str]] = []

    def add(self, asked: AskedForInteger) -> bool:
        """Whether that is new."""
        if asked.name in asked.names:
            return False
        asked.names[asked.name] = _OTHERS[asked.name]
        self._owners.append((asked.names, asked.name))
        return True

    def __enter__(self) -> replaced_integers:
        return self

    def __exit__(self, *_) -> None:
        for names, name in self._owners:
            names.pop(name, None)
