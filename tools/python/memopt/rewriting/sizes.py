# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes that depend on the data, while a model is traced."""

from __future__ import annotations

import functools
import operator
import sys
import threading
from typing import Any

import sympy
import torch
from torch.fx.experimental import symbolic_shapes

from ..errors import ENDLESS_LOOP, EndlessLoop, Refused
from ..user_code.branches import ends_loop, find_frame
from ..user_code.places import called_from, find_caller, is_hidden
from .bounds import FEWEST, kept_ranges

__all__ = ["REPLACED", "Sizes"]


#: As many rows are on the side that is traced first, of a branch that the fewest rows do not decide.
_MANY = 10 ** 9
_active = threading.local()  # `sizes` of the thread that traces


class Sizes:
    """Of such a size, operators ask whether it is 0 or 1, where they know of nothing else to do than to branch. The program is written
    anew for any number of rows; while it is traced there are more.
    """

    def __init__(self):
        self._known: dict[tuple[Any, Any], torch.SymInt] = {}

    def __enter__(self) -> Sizes:
        self._outer, _active.sizes = getattr(_active, "sizes", None), self
        return self

    def __exit__(self, *_) -> None:
        _active.sizes = self._outer

    def get_counts(self, shape_env: Any) -> dict[Any, torch.SymInt]:
        """By their symbols."""
        return {symbol: size for (owner, symbol), size in self._known.items() if owner is shape_env}

    def note(self, value: torch.Tensor) -> None:
        for size in value.shape:
            if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol or not symbolic_shapes.free_unbacked_symbols(size):
                continue
            known = size.node.shape_env, size.node.expr
            if known not in self._known:
                self._known[known] = size
                if not size.node.shape_env.bound_sympy(size.node.expr).upper < FEWEST:
                    torch._check(size >= FEWEST)


def _are_two_counts(expression: sympy.Basic) -> bool:
    return isinstance(expression, (sympy.Eq, sympy.Ne)) and all(
        part.free_symbols and all(symbolic_shapes.symbol_is_type(symbol, symbolic_shapes.SymT.UNBACKED_INT) for symbol in part.free_symbols)
        for part in expression.args)


def _is_size_of_others(expression: sympy.Basic) -> bool:
    """Whether it asks that rows which were put together are as many as other elements, which are more than one."""
    if not isinstance(expression, sympy.Eq):
        return False
    numbers, others = [part for part in expression.args if part.is_number], [part for part in expression.args if not part.is_number]
    return len(numbers) == len(others) == 1 and int(numbers[0]) >= FEWEST and isinstance(others[0], sympy.Add) and all(
        symbolic_shapes.symbol_is_type(symbol, symbolic_shapes.SymT.UNBACKED_INT) for symbol in others[0].free_symbols)


_COMPARISONS = {sympy.Eq: operator.eq, sympy.Ne: operator.ne, sympy.Lt: operator.lt, sympy.Le: operator.le, sympy.Gt: operator.gt,
                sympy.Ge: operator.ge}


def _compute(expression: sympy.Basic, counts: dict) -> Any:
    """A number of rows as a tensor."""
    if expression.is_Symbol:
        return torch.scalar_tensor(counts[expression], dtype=torch.int64)
    if isinstance(expression, (sympy.Add, sympy.Mul)):
        join = operator.add if isinstance(expression, sympy.Add) else operator.mul
        return functools.reduce(join, [_compute(part, counts) for part in expression.args])
    return int(expression)


_OPPOSITES = {operator.eq: operator.ne, operator.ne: operator.eq, operator.lt: operator.ge, operator.ge: operator.lt,
              operator.gt: operator.le, operator.le: operator.gt}


def _take_side(condition: torch.SymBool) -> bool:
    """A branch of the model's own by a number of rows: the side of many rows is traced first, and rewriting/sides has both."""
    from .checks import check_raising_side, decide_side  # which need the modules beside this one
    from .numbers import as_truth
    raising = check_raising_side(condition)
    if raising is not None:
        return raising
    frame = find_frame()
    if frame is not None and ends_loop(frame):
        raise EndlessLoop(f"{called_from()}: {ENDLESS_LOOP}")
    expression, sizes = condition.node.expr, _active.sizes
    kind = next((kind for kind in _COMPARISONS if isinstance(expression, kind)), None)
    value = symbolic_shapes.statically_known_true(condition)
    if not value and not symbolic_shapes.statically_known_true(torch.sym_not(condition)):
        value = expression.subs(dict.fromkeys(expression.free_symbols, _MANY)) == True  # noqa: E712, of sympy's
    if sizes is None or kind is None:
        raise Refused(f"{called_from()}: a branch by the number of rows that a mask chooses is not supported; compute both sides and "
                      "choose by torch.where")
    counts = sizes.get_counts(condition.node.shape_env)
    compare = _COMPARISONS[kind] if value else _OPPOSITES[_COMPARISONS[kind]]
    try:
        holds = torch.as_tensor(compare(*(_compute(part, counts) for part in expression.args)))
    except (KeyError, TypeError):  # of numbers that are none of rows
        holds = as_truth(condition if value else torch.sym_not(condition))
    side = decide_side(holds)
    return value if side is None else value == side


def _decide(condition: torch.SymBool) -> bool:
    """A branch of the model's own has both sides. An operator that asks whether there are as many rows here as there is told
    so; the program makes NaN of them where there are not.
    """
    if not symbolic_shapes.free_unbacked_symbols(condition):
        return _decide.original(condition)
    frame = find_caller(sys._getframe(1))
    if frame is not None and not is_hidden(frame.f_code.co_filename):
        return _take_side(condition)
    if _is_size_of_others(condition.node.expr):  # elements beside a tensor of so many
        with kept_ranges(condition):
            torch._check(condition)
        return True
    if _are_two_counts(condition.node.expr):
        is_equal = isinstance(condition.node.expr, sympy.Eq)
        torch._check(condition if is_equal else torch.sym_not(condition))
        return is_equal
    return _decide.original(condition)


_decide.original = torch.SymBool.__bool__


def _is_not_zero(number: torch.SymInt) -> bool:
    """`if not self.initialized.item()`; PyTorch's own frame would hide who asks."""
    return bool(number != 0)


#: What is replaced while a step is traced: owner, name and the other function.
REPLACED = [(torch.SymBool, "__bool__", _decide), (torch.SymInt, "__bool__", _is_not_zero)]
