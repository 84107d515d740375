# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators on lists of tensors, and copies, which are plain operators on each."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["RULES"]


def _at_least(rank: int) -> Callable:
    def one(x):
        if rank == 3 and 0 < x.dim() < 3:
            return x[None, :, None] if x.dim() == 1 else x[:, :, None]
        return x.reshape([1] * (rank - x.dim()) + list(x.shape)) if x.dim() < rank else x

    def rule(engine, target, arguments, keywords):
        x = arguments[0]
        return [one(part) for part in x] if isinstance(x, (list, tuple)) else one(x)
    return rule


RULES = {**{f"aten::atleast_{rank}d": _at_least(rank) for rank in (1, 2, 3)},
         "aten::alias_copy": lambda engine, target, arguments, keywords: arguments[0].clone()}
