# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes that depend on the data, while a model is traced."""

from __future__ import annotations

import sys
from typing import Any

import sympy
import torch
from torch.fx.experimental import symbolic_shapes

from ..errors import Refused
from ..places import _is_hidden, called_from

__all__ = ["REPLACED", "Sizes"]


class Sizes:
    """Of such a size, operators ask whether it is 0 or 1, where they know of nothing else to do than to branch. The program is written
    anew for any number of rows; while it is traced there are more.
    """

    def __init__(self):
        self._known: set[tuple[Any, Any]] = set()

    def note(self, value: torch.Tensor) -> None:
        for size in value.shape:
            if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol or not symbolic_shapes.free_unbacked_symbols(size):
                continue
            known = size.node.shape_env, size.node.expr
            if known not in self._known:
                self._known.add(known)
                if not size.node.shape_env.bound_sympy(size.node.expr).upper < 2:
                    torch._check(size >= 2)


def _are_two_counts(expression: sympy.Basic) -> bool:
    return isinstance(expression, (sympy.Eq, sympy.Ne)) and all(
        part.is_Symbol and symbolic_shapes.symbol_is_type(part, symbolic_shapes.SymT.UNBACKED_INT) for part in expression.args)


def _decide(condition: torch.SymBool) -> bool:
    """A branch of the model's own is none of an operator's. An operator that asks whether there are as many rows here as there is
    told so; the program makes NaN of them where there are not.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(__file__.rpartition("rewriting")[0]):
        frame = frame.f_back
    if frame is not None and not _is_hidden(frame.f_code.co_filename) and symbolic_shapes.free_unbacked_symbols(condition):
        raise Refused(f"{called_from()}: a branch, or max() and min() of Python, by the number of rows that a mask chooses is not "
                      "supported; leave out a branch that skips what has no rows, which counts for nothing, and bound a divisor as in "
                      "mask.sum().clamp(min=1)")
    if _are_two_counts(condition.node.expr):
        is_equal = isinstance(condition.node.expr, sympy.Eq)
        torch._check(condition if is_equal else torch.sym_not(condition))
        return is_equal
    return _decide.original(condition)


_decide.original = torch.SymBool.__bool__
#: What is replaced while a step is traced: owner, name and the other function.
REPLACED = [(torch.SymBool, "__bool__", _decide)]
