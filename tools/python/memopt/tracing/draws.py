# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches on a random number, as models write them that leave out whole layers ("layerdrop"):

    if self.training and torch.rand([]) < self.layerdrop:
        continue

A program has no such branches, and torch.export stops at them even where the probability is 0 and the branch is never
taken. While `decided_draws` is entered, a branch that no draw can change is decided; any other is refused by name. An integer of
Python that all draws give, `sizes[int(torch.empty(1).uniform_(0, len(sizes)).item())]` of one size, is that number.
"""

from __future__ import annotations

import math
import operator

import torch
from torch.overrides import TorchFunctionMode

from ..errors import Refused
from ..user_code.places import called_from

__all__ = ["decided_draws"]

# How a comparison is called, and what it says of two numbers.
_COMPARISONS = {getattr(owner, spelling): getattr(operator, name) for name in ("lt", "le", "gt", "ge")
                for owner, spelling in ((torch, name), (torch.Tensor, name), (torch.Tensor, f"__{name}__"))}


# What has the same element as its first operand.
_SAME = {"detach", "reshape", "view", "squeeze", "clone", "cpu"}


def _find_range(function, args, kwargs) -> tuple[float, float] | None:
    """From where to where a draw of one element is, the end included."""
    name, numbers = getattr(function, "__name__", ""), [value for value in args if isinstance(value, (int, float))]
    if name == "rand" and not numbers[1:]:
        return 0.0, math.nextafter(1.0, 0.0)
    if name == "uniform_":
        least, most = (*numbers, *(kwargs.get(key, default) for key, default in (("from", 0.0), ("to", 1.0))[len(numbers):]))
        return least, math.nextafter(most, least)
    if name == "randint" and numbers:
        return (numbers[0], numbers[1] - 1) if len(numbers) > 1 else (0, numbers[0] - 1)
    return None


def _decide(compare, bound: float) -> bool | None:
    """What `compare(draw, bound)` is for every draw in [0, 1), if it is one: it changes at most once from end to end."""
    least, most = compare(0.0, bound), compare(math.nextafter(1.0, 0.0), bound)
    return least if least == most else None


class decided_draws(TorchFunctionMode):
    """Follows scalars of `torch.rand` through comparisons with numbers to the branches that they decide."""

    def __init__(self):
        super().__init__()
        self._draws, self._decided = {}, {}  # by identity; the tensors are kept, so that no other takes their place
        self._ranges: dict[int, tuple[torch.Tensor, int, tuple[float, float]]] = {}  # by identity: a draw, its version, from where to where

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__bool__ and id(args[0]) in self._decided:
            _, value = self._decided[id(args[0])]
            if value is None:
                raise Refused(f"{called_from()} takes a branch by a random number, which a compiled step cannot; set its "
                              "probability (layerdrop, say) to 0")
            return value
        known = self._find_integer(args[0]) if function is torch.Tensor.item else None
        if known is not None:
            return known
        result = function(*args, **(kwargs or {}))
        self._note_range(function, args, kwargs or {}, result)
        if function is torch.rand and result.dim() == 0:
            self._draws[id(result)] = result
        elif function in _COMPARISONS and id(args[0]) in self._draws and isinstance(args[1], (int, float)):
            self._decided[id(result)] = (result, _decide(_COMPARISONS[function], args[1]))
        return result

    def _note_range(self, function, args, kwargs, result) -> None:
        if not isinstance(result, torch.Tensor) or any(type(size) is not int or size != 1 for size in result.shape):
            return
        found, name = _find_range(function, args, kwargs), getattr(function, "__name__", "")
        if found is None and args and id(args[0]) in self._ranges and (name in _SAME or name in ("to", "long", "int")):
            before, version, found = self._ranges[id(args[0])]
            if before._version != version:
                return
        if found is not None:
            ends = found if result.is_floating_point() else (math.trunc(found[0]), math.trunc(found[1]))
            self._ranges[id(result)] = result, result._version, ends

    def _find_integer(self, draw: torch.Tensor) -> int | None:
        """The one that all draws give."""
        value, version, (least, most) = self._ranges.get(id(draw), (None, 0, (0, 1)))
        return least if value is draw and draw._version == version and least == most and not draw.is_floating_point() else None
