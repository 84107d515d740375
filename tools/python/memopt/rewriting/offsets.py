# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Places in tensors and what is added to them, while a model is traced: in `x[:, first:last]` with `last = first + 4`, both of them
tensors, the slice has four elements. PyTorch asks each of them for a number of Python then, and would know nothing of their difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["Offsets", "is_place"]

_SIGNS = {"add": 1, "__add__": 1, "__radd__": 1, "sub": -1, "__sub__": -1}


def is_place(value: Any) -> bool:
    """Whether it is one integer."""
    return isinstance(value, torch.Tensor) and not value.dim() and not value.is_floating_point() and value.dtype is not torch.bool


class Offsets:
    """Which tensors are others with a number added."""

    def __init__(self):
        #: By identity: the sum, which is kept alive, and its version; what it is the sum of, and its version; the number.
        self._known: dict[int, tuple[torch.Tensor, int, torch.Tensor, int, int]] = {}
        #: By identity: a tensor, its version, and its number.
        self._numbers: dict[int, tuple[torch.Tensor, int, Any]] = {}

    def clear(self) -> None:
        self._known.clear()
        self._numbers.clear()

    def note(self, function: Callable, operands: Sequence, result: Any) -> None:
        """After a call of PyTorch without other arguments."""
        sign = _SIGNS.get(getattr(function, "__name__", ""))
        if sign is None or len(operands) != 2 or not is_place(operands[0]) or type(operands[1]) is not int or not is_place(result):
            return
        root, version, number = self._find(operands[0])
        self._known[id(result)] = result, result._version, root, version, number + sign * operands[1]

    def _find(self, place: torch.Tensor) -> tuple[torch.Tensor, int, int]:
        """What a place is the sum of, and the number that is added."""
        _, version, root, root_version, number = self._known.get(id(place), (None, None, None, None, 0))
        if version == place._version and root is not None and root_version == root._version:
            return root, root_version, number
        return place, place._version, 0

    def find_number(self, place: torch.Tensor) -> Any:
        """`place.item()`, in terms of what it is the sum of."""
        root, version, number = self._find(place)
        if id(root) not in self._numbers or self._numbers[id(root)][1] != version:
            self._numbers[id(root)] = root, version, root.item()
        return self._numbers[id(root)][2] + number

    def settle(self, index: Any) -> Any:
        """An index with numbers of Python for the places in it, and for those that its slices begin and end at."""
        if isinstance(index, tuple):
            return tuple(map(self.settle, index))
        if is_place(index):
            return self.find_number(index)
        if not isinstance(index, slice) or not (is_place(index.start) and is_place(index.stop)):
            return index
        return slice(self.find_number(index.start), self.find_number(index.stop), index.step)
