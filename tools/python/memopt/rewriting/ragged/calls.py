# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which rule an operator has where some of its values are rows, or counts of them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import numbers
from ..sizes import FEWEST
from . import choosing, layers, reductions, shapes, writing
from .choosing import find_places
from .layers import pointwise
from .values import Count, NotRagged, is_ragged

__all__ = ["RULES", "call"]

#: By the operator's name.
_OF_ROWS = {**choosing.RULES, **writing.RULES, **reductions.RULES, **shapes.RULES, **layers.RULES}


def _calculate(target, arguments):
    """Python's arithmetic with counts."""
    a, b = (*arguments, None)[:2]
    if isinstance(a, Count) and isinstance(b, int):
        if target is operator.mul:
            return Count(a.rows, a.factor * b, a.offset * b)
        if target in (operator.add, operator.sub):
            return Count(a.rows, a.factor, a.offset + (b if target is operator.add else -b))
    if isinstance(b, Count) and isinstance(a, int) and target in (operator.mul, operator.add):
        return _calculate(target, (b, a))
    result = numbers.calculate(target, arguments)
    if result is None:
        raise NotRagged("as a number of Python")
    if isinstance(a, Count) and isinstance(b, int) and a.factor > 0:
        result.is_assumed = target is operator.ge and b <= a.offset + FEWEST * a.factor or target is operator.le and b >= a.bound
    return result


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
    **dict.fromkeys(("_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range"), _drop)}.items()}
