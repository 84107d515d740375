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

import torch
from torch.overrides import TorchFunctionMode

from .gradients import Refused, called_from

__all__ = ["decided_draws"]

# What `draw OP bound` is where no number in [0, 1) decides it.
_ALWAYS = {
    torch.Tensor.lt: lambda bound: False if bound <= 0 else True if bound >= 1 else None,
    torch.Tensor.le: lambda bound: False if bound < 0 else True if bound >= 1 else None,
    torch.Tensor.gt: lambda bound: True if bound < 0 else False if bound >= 1 else None,
    torch.Tensor.ge: lambda bound: True if bound <= 0 else False if bound >= 1 else None,
}
_ALWAYS |= {getattr(torch.Tensor, f"__{function.__name__}__"): rule for function, rule in _ALWAYS.items()}
_ALWAYS |= {getattr(torch, name): _ALWAYS[getattr(torch.Tensor, name)] for name in ("lt", "le", "gt", "ge")}


class decided_draws(TorchFunctionMode):
    """Follows scalars of `torch.rand` through comparisons with numbers to the branches that they decide."""

    def __init__(self):
        super().__init__()
        self._draws, self._decided = {}, {}  # by identity; the tensors are kept, so that no other takes their place

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__bool__ and id(args[0]) in self._decided:
            _, value, where = self._decided[id(args[0])]
            if value is None:
                raise Refused(f"{where} takes a branch by a random number, which a compiled step cannot; set its "
                              "probability (layerdrop, say) to 0")
            return value
        result = function(*args, **(kwargs or {}))
        if function is torch.rand and result.dim() == 0:
            self._draws[id(result)] = result
        elif function in _ALWAYS and id(args[0]) in self._draws and isinstance(args[1], (int, float)):
            self._decided[id(result)] = (result, _ALWAYS[function](args[1]), called_from())
        return result
