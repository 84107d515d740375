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
from ..composites import list_parts
from ..bounds import FEWEST
from . import choosing, grid_rules, layers, ordering, reductions, shapes, writing
from .choosing import find_places
from .layers import pointwise
from .values import Count, NotRagged, Ragged, as_count, is_ragged

__all__ = ["RULES", "as_count", "call", "takes_counts", "takes_tensors", "widen_parts"]

#: By the operator's name.
_OF_ROWS = {**choosing.RULES, **writing.RULES, **reductions.RULES, **ordering.RULES, **shapes.RULES, **layers.RULES}


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


#: What treats each row by itself, so that equal rows stay equal.
_BY_ROW = {*layers.RULES} - {"dropout", "native_dropout", "feature_dropout", "bernoulli", "cosine_similarity", "pairwise_distance",
                             "broadcast_tensors", "matmul", "mm", "bmm", "mv", "dot", "addmm"}


_MOVES = {"unsqueeze", "view", "reshape", "flatten"}  # by sizes that are known


def _is_pointwise(target: torch._ops.OpOverload) -> bool:
    """Of operators in place, such as `gt_`, PyTorch says so of the other form alone."""
    tags = target.tags
    if target._schema.is_mutable and torch.Tag.pointwise not in tags:
        other = getattr(torch.ops.aten, target._schema.name.removeprefix("aten::").removesuffix("_"), None)
        tags = getattr(getattr(other, target._overloadname, None), "tags", tags)
    return torch.Tag.pointwise in tags


def _is_by_row(target: Any, leaves: list, rows: list[Ragged]) -> bool:
    if target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    if target._schema.is_mutable and len({row.key for row in rows}) > 1:
        return False
    name = target._schema.name.removeprefix("aten::")
    return _is_pointwise(target) or name in _BY_ROW or name in _MOVES and not any(isinstance(leaf, Count) for leaf in leaves)


def widen_parts(target: Any, leaves: list) -> None:
    """Rows that stand for more become all of them, but for operators that treat each by itself."""
    rows = [leaf for leaf in leaves if isinstance(leaf, Ragged)]
    if any(row.part is not None for row in rows) and not _is_by_row(target, leaves, rows):
        is_written = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
        for row in rows:
            if row.part is not None:
                row.widen()
                row.full = row.full.clone() if is_written else row.full


def takes_tensors(name: str, arguments: tuple) -> bool:
    """Whether a rule has tensors for the numbers of Python, which follow from the data."""
    return name == "aten::topk" or name in ("aten::select", "aten::slice", "aten::narrow") and isinstance(arguments[0], Ragged)


def takes_counts(name: str) -> bool:
    """Whether numbers that follow from the data are sizes of its result, which is rows if they have a bound."""
    return name.removeprefix("aten::") in shapes.SIZED


def _is_made_of_pointwise(target: Any, arguments: tuple, keywords: dict) -> bool:
    given = pytree.tree_map_only((Ragged, Count), lambda value: value.full if isinstance(value, Ragged) else torch.scalar_tensor(0),
                                 (arguments, keywords), is_leaf=is_ragged)
    parts = list_parts(target, *given)
    return bool(parts) and all(torch.Tag.pointwise in part.tags for part in parts)


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
    if _is_pointwise(target) or _is_made_of_pointwise(target, arguments, keywords):
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
    """Assertions."""


#: Operators that make rows, whatever they are called with.
RULES = {f"aten::{name}": rule for name, rule in {
    **choosing.MAKERS, **writing.MAKERS, "where": _where,
    **dict.fromkeys(grid_rules.ASSERTIONS, _drop)}.items()}
