# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training steps of PyTorch, compiled into programs with a fixed arena of memory.

    step = memopt.compile(model, loss_fn, batch, optimizer=torch.optim.AdamW(model.parameters(), lr=3e-4),
                          device_memory="8GiB")
    for batch in loader:
        loss = step(batch)
        scheduler.step()
    step.sync()

`Session` runs packages without PyTorch. docs/Python.md of the source tree is the guide.
"""

from __future__ import annotations

import importlib

from .errors import BadInput, DoesNotFit, Error, LossNotFinite, NumbersWarning, Refused, Unavailable
from .plan import Estimate, Frontier, Plan
from .runtime import Session

__version__ = "0.1.0"

#: What needs PyTorch is imported with its first use.
_NEEDING_TORCH = {"Step": "step", "Steps": "training", "Training": "training", "compile_steps": "training", "compile": "step", "estimate": "step", "frontier": "step",
                  "operator": "operators", "read_checkpoint": "checkpoints", "write_checkpoint": "checkpoints",
                  "read_optimizer_state": "optimizers", "write_optimizer_state": "optimizers"}
_MODULES_NEEDING_TORCH = ("export", "integrations", "optim")

# `from memopt import *` leaves out what needs PyTorch: it would import it, and `compile` would hide Python's own.
__all__ = ["BadInput", "DoesNotFit", "Error", "Estimate", "Frontier", "LossNotFinite", "NumbersWarning", "Plan", "Refused",
           "Session", "Unavailable"]


def __getattr__(name: str):
    if name in _MODULES_NEEDING_TORCH:
        return importlib.import_module(f".{name}", __name__)
    if name not in _NEEDING_TORCH:
        raise AttributeError(f"module 'memopt' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_NEEDING_TORCH[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_NEEDING_TORCH, *_MODULES_NEEDING_TORCH])
