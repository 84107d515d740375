# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters and buffers that a model holds a second time, where torch.export does not look:

    self.regularized = [weight for name, weight in self.named_parameters() if "weight" in name]
    ...
    loss = loss + 1e-4 * sum(weight.square().sum() for weight in self.regularized)

While a model is traced its modules have other tensors in the place of their own. A call of PyTorch that is given one of the old gets the new;
else that would be a number of the program, with the value of when it was traced and no gradient.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

__all__ = ["list_held_tensors", "traced_tensors"]


def list_held_tensors(module: nn.Module) -> dict[int, tuple[torch.Tensor, str]]:
    """By identity: the parameters and buffers of modules that are not traced, with their names."""
    return {id(tensor): (tensor, name) for tensors in (module.named_parameters(), module.named_buffers()) for name, tensor in tensors}


class traced_tensors(TorchFunctionMode):
    """While entered, within forward, calls that are given a tensor which the module had before get that which it has."""

    def __init__(self, module: nn.Module, held: Mapping[int, tuple[torch.Tensor, str]]):
        super().__init__()
        self._module, self._held = module, held

    def __torch_function__(self, function, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._find, (args, kwargs or {}))
        return function(*args, **kwargs)

    def _find(self, value: torch.Tensor) -> torch.Tensor:
        tensor, name = self._held.get(id(value), (None, ""))
        return operator.attrgetter(name)(self._module) if tensor is value else value
