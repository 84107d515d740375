# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which rule an operator has where some of its values are rows, or counts of them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import choosing, layers, reductions, shapes, writing
from .choosing import find_places
from .layers import pointwise
from .values import Count, NotRagged, is_ragged

__all__ = ["RULES", "call"]

#: By the operator's name.
_OF_ROWS = {**choosing.RULES, **writing.RULES, **reductions.RULES, **shapes.RULES, **layers.RULES}
_ARITHMETIC = {operator.add: torch.add, operator.sub: torch.sub, operator.mul: torch.mul, operator.truediv: torch.true_divide,
               operator.floordiv: torch.floor_divide, operator.mod: torch.remainder, torch.sym_float: lambda value: value.to(torch.get_default_dtype()),
               torch.sym_max: lambda a, b: a.clamp(min=b) if isinstance(a, torch.Tensor) else b.clamp(min=a),
               torch.sym_min: lambda a, b: a.clamp(max=b) if isinstance(a, torch.Tensor) else b.clamp(max=a)}
_COMPARISONS = {operator.ge, operator.le, operator.lt, operator.gt, operator.eq, operator.ne}


def _calculate(target, arguments):
    """Python's arithmetic with counts."""
    if target in _COMPARISONS:
        return True  # what torch.export asserts of sizes; a branch would have been refused
    a, b = (*arguments, None)[:2]
    if isinstance(a, Count) and isinstance(b, int):
        if target is operator.mul:
            return Count(a.rows, a.factor * b, a.offset * b)
        if target in (operator.add, operator.sub):
            return Count(a.rows, a.factor, a.offset + (b if target is operator.add else -b))
    if isinstance(b, Count) and isinstance(a, int) and target in (operator.mul, operator.add):
        return _calculate(target, (b, a))
    if target not in _ARITHMETIC:
        raise NotRagged("as a number of Python")
    return _ARITHMETIC[target](*(value.tensor() if isinstance(value, Count) else value for value in arguments))


def call(engine: Any, target: Any, arguments: tuple, keywords: dict) -> Any:
    """An operator with values of which some are ragged."""
    if target is operator.getitem:
        return target(*arguments)
    if not isinstance(target, torch._ops.OpOverload):
        return _calculate(target, arguments)
    name = target._schema.name.removeprefix("aten::")
    rule = _OF_ROWS.get(name)
    if rule is not None:
        return rule(engine, target, arguments, keywords)
    if torch.Tag.pointwise in target.tags:
        return pointwise(engine, target, arguments, keywords)
    raise NotRagged()


def _where(engine, target, arguments, keywords):
    if len(arguments) == 1:
        return find_places(engine, arguments[0])
    return _call_or(engine, target, arguments, keywords)


def _call_or(engine, target, arguments, keywords):
    if any(map(is_ragged, pytree.tree_leaves((arguments, keywords), is_leaf=is_ragged))):
        return call(engine, target, arguments, keywords)
    return target(*arguments, **keywords)


def _drop(engine, target, arguments, keywords):
    """What torch.export asserts of sizes and types."""


#: Operators that make rows, whatever they are called with.
RULES = {f"aten::{name}": rule for name, rule in {
    **choosing.MAKERS, **writing.MAKERS, "where": _where,
    **dict.fromkeys(("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range"), _drop)}.items()}
