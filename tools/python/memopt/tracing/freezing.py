# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that forward freezes for a while, as losses of actors do with their critics:

    self.critic.requires_grad_(False)
    loss = loss - self.critic(state, action).mean()
    self.critic.requires_grad_(True)

A program has no such switch. What reads them meanwhile reads them without a gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

__all__ = ["followed_freezing"]

_SET = torch.Tensor.requires_grad.__set__


class followed_freezing(TorchFunctionMode):
    """While entered, what forward freezes is read detached until it is trained again."""

    def __init__(self):
        super().__init__()
        self._frozen: dict[int, torch.Tensor] = {}  # by identity

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in (torch.Tensor.requires_grad_, _SET) and isinstance(args[0], torch.Tensor):
            self._switch(args[0], args[1] if len(args) > 1 else kwargs.get("requires_grad", True))
        elif self._frozen and not _is_attribute(function):
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._read, (args, kwargs))
        return function(*args, **kwargs)

    def _switch(self, tensor: torch.Tensor, trains: bool) -> None:
        if trains:
            self._frozen.pop(id(tensor), None)
        elif tensor.requires_grad and tensor.is_leaf:
            self._frozen[id(tensor)] = tensor

    def _read(self, value: torch.Tensor) -> torch.Tensor:
        return value.detach() if id(value) in self._frozen else value


def _is_attribute(function: Any) -> bool:
    """Whether it only looks at a tensor: `x.shape`."""
    return getattr(function, "__name__", "") in ("__get__", "__set__", "__len__", "dim", "size", "numel", "is_floating_point", "is_complex")
