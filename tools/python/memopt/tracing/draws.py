# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches on a random number, as models write them that leave out whole layers ("layerdrop"):

    if self.training and torch.rand([]) < self.layerdrop:
        continue

A program has no such branches, and torch.export stops at them even where the probability is 0 and the branch is never
taken. While `decided_draws` is entered, a branch that no draw can change is decided; any other is refused by name.
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


def _decide(compare, bound: float) -> bool | None:
    """What `compare(draw, bound)` is for every draw in [0, 1), if it is one: it changes at most once from end to end."""
    least, most = compare(0.0, bound), compare(math.nextafter(1.0, 0.0), bound)
    return least if least == most else None


class decided_draws(TorchFunctionMode):
    """Follows scalars of `torch.rand` through comparisons with numbers to the branches that they decide."""

    def __init__(self):
        super().__init__()
        self._draws, self._decided = {}, {}  # by identity; the tensors are kept, so that no other takes their place

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__bool__ and id(args[0]) in self._decided:
            _, value = self._decided[id(args[0])]
            if value is None:
                raise Refused(f"{called_from()} takes a branch by a random number, which a compiled step cannot; set its "
                              "probability (layerdrop, say) to 0")
            return value
        result = function(*args, **(kwargs or {}))
        if function is torch.rand and result.dim() == 0:
            self._draws[id(result)] = result
        elif function in _COMPARISONS and id(args[0]) in self._draws and isinstance(args[1], (int, float)):
            self._decided[id(result)] = (result, _decide(_COMPARISONS[function], args[1]))
        return result
