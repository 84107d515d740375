# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is used of PyTorch that has no public name: it may change with any release of PyTorch, and has its place here alone.

Tried with PyTorch 2.15. What another release may lack is asked for, not taken for granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["has_backward_hooks", "has_gradient_hooks", "map_tensors", "mark_stepped"]


def map_tensors(change: Callable[[torch.Tensor], Any], values: Any) -> Any:
    """The same containers with changed tensors."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, change, values)


def has_gradient_hooks(parameter: torch.Tensor) -> bool:
    return bool(getattr(parameter, "_backward_hooks", None) or getattr(parameter, "_post_accumulate_grad_hooks", None))


def has_backward_hooks(module: nn.Module) -> bool:
    return bool(getattr(module, "_backward_hooks", None) or getattr(module, "_backward_pre_hooks", None))


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """Schedulers warn when nobody has called `optimizer.step()` before `scheduler.step()`; a compiled step has."""
    optimizer._opt_called = True
