# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PyTorch asks of its solvers. Here a matrix that cannot be solved gives what is no number, and the step refuses that."""

from __future__ import annotations

import torch

__all__ = ["RULES"]


def _drop(engine, target, arguments, keywords):
    """PyTorch's look at what a solver says."""


def _drop_effect(engine, target, arguments, keywords):
    """The same where PyTorch keeps its order by a token, as under `torch.vmap`."""
    token, called, *_ = arguments
    if called is torch.ops.aten._linalg_check_errors.default:
        return (token,)
    return target(*arguments, **keywords)


RULES = {"aten::_linalg_check_errors": _drop, "higher_order::with_effects": _drop_effect}
