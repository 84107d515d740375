# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`int(x)` of a tensor, `int(batch.max()) + 1`, is `x.item()` while a model is traced.

Python's `int` asks a tensor for a number of Python, which it does not have then. So modules that ask it once see another `int`,
and the model is traced again.
"""

from __future__ import annotations

import builtins
import types

import torch

__all__ = ["AskedForInteger", "replaced_integers"]


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


class AskedForInteger(Exception):
    """A frame has called `int` of a tensor; its module is to see the other one."""

    def __init__(self, frame: types.FrameType):
        super().__init__("int(x) of a tensor")
        self.names = frame.f_globals


class replaced_integers:
    """While entered, the modules that have asked see the other `int`."""

    def __init__(self):
        self._owners: list[dict] = []

    def add(self, asked: AskedForInteger) -> bool:
        """Whether that is new."""
        if "int" in asked.names:
            return False
        asked.names["int"] = _Integer
        self._owners.append(asked.names)
        return True

    def __enter__(self) -> replaced_integers:
        return self

    def __exit__(self, *_) -> None:
        for names in self._owners:
            names.pop("int", None)
