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
import torch.utils.hooks
from torch import nn

__all__ = ["count_hooks", "get_gradient_hooks", "has_accumulation_hooks", "has_backward_hooks", "has_step_hooks", "is_autocast_on", "list_hooks", "map_tensors",
           "mark_stepped", "storage_of"]


def is_real(value: Any) -> bool:
    """Whether it is a tensor of floating-point numbers."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def storage_of(value: torch.Tensor) -> int | None:
    """Equal of tensors that are names for one; None of what `torch.vmap` has for tensors."""
    try:
        return value.untyped_storage()._cdata
    except NotImplementedError:
        return None


def map_tensors(change: Callable[[torch.Tensor], Any], values: Any) -> Any:
    """The same containers with changed tensors."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, change, values)


def get_gradient_hooks(parameter: torch.Tensor) -> dict[int, Callable]:
    """Those of `register_hook`, by their numbers."""
    return getattr(parameter, "_backward_hooks", None) or {}


def has_accumulation_hooks(parameter: torch.Tensor) -> bool:
    return bool(getattr(parameter, "_post_accumulate_grad_hooks", None))


def has_backward_hooks(module: nn.Module) -> bool:
    return bool(getattr(module, "_backward_hooks", None) or getattr(module, "_backward_pre_hooks", None))


def has_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    return bool(getattr(optimizer, "_optimizer_step_pre_hooks", None) or getattr(optimizer, "_optimizer_step_post_hooks", None))


def count_hooks() -> int:
    """The number of the next hook: PyTorch numbers those of modules, tensors and optimizers in one row."""
    return torch.utils.hooks.RemovableHandle.next_id


_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks", "_post_accumulate_grad_hooks",
                "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_global_forward_pre_hooks", "_global_forward_hooks",
                "_global_backward_pre_hooks", "_global_backward_hooks")


def list_hooks(owner: Any) -> list[int]:
    """The numbers of the hooks of a module, a tensor or an optimizer that a step would call, or of all modules."""
    return [number for table in _HOOK_TABLES for number in getattr(owner, table, None) or ()]


#: Whether `torch.autocast` is entered, for any device.
is_autocast_on = getattr(torch._C, "_is_any_autocast_enabled", None) or (lambda: torch.is_autocast_enabled("cpu"))


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """Schedulers warn when nobody has called `optimizer.step()` before `scheduler.step()`; a compiled step has."""
    optimizer._opt_called = True
