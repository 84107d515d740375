# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators on matrices of rows that meet rows (grids.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .grids import Axis, Grid, align_along, axes_of, count_dims, expand, is_grid, make, meet, plain, pointwise
from .layers import POINTWISE, call_with_tensors
from .reductions import KEEPS_DIM, NEUTRAL
from .values import Count, NotRagged, Ragged, bind, fill_rows, find_order, list_dims, list_order, number_among, wrap_dim

__all__ = ["ASSERTIONS", "call"]

aten = torch.ops.aten
#: What torch.export asserts of sizes and types.
ASSERTIONS = ("_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range")


def _count(axes: Sequence[Axis]) -> torch.Tensor | int:
    total: torch.Tensor | int = 1
    for axis in axes:
        total = total * axis.valid.sum()
    return total


def _reduce(engine, target, arguments, keywords):
    x, rest = arguments[0], arguments[1:]
    name, bound = target._schema.name.removeprefix("aten::"), bind(target, arguments, keywords)
    dims = list_dims(bound.get("dim"), x.full.dim())
    reduced = [axis for axis in x.axes if axis.dim in dims]
    keeps = bound.get("keepdim", False) or name in KEEPS_DIM
    if name in ("argmax", "argmin", "max", "min") and bound.get("dim") is None and "dim" in bound:
        raise NotRagged("whose places are counted with others")
    left = [axis if keeps else axis._replace(dim=axis.dim - sum(dim < axis.dim for dim in dims)) for axis in x.axes
            if axis.dim not in dims or name in KEEPS_DIM]
    if name == "mean":
        total = x.masked(0, reduced) if reduced else x.full
        others = 1
        for dim in dims:
            others *= 1 if x.find_axis(dim) else x.full.shape[dim]
        total = total.sum(dims, keepdim=bound.get("keepdim", False))
        return make(total / torch.as_tensor(_count(reduced) * others).to(total.dtype), left)
    if name not in NEUTRAL:
        raise NotRagged()
    full = x.masked(NEUTRAL[name](x.full.dtype), reduced) if reduced else x.full
    result = target(full, *rest, **keywords)
    if name in KEEPS_DIM:
        for axis in reduced:
            result = fill_rows(result, axis.dim, axis.valid)
    if isinstance(result, tuple):  # with places
        return make(result[0], left), make(number_among(reduced[0].as_rows(), result[1]) if reduced else result[1], left)
    if name in ("argmax", "argmin") and reduced:
        result = number_among(reduced[0].as_rows(), result)
    return make(result, left)


def _spread(engine, target, arguments, keywords):
    """var and std."""
    x, bound = arguments[0], bind(target, arguments, keywords)
    dims, keep = list_dims(bound.get("dim"), x.full.dim()), bound.get("keepdim", False)
    correction = bound.get("correction", 1 if bound.get("unbiased", True) else 0)
    reduced = [axis for axis in x.axes if axis.dim in dims]
    others = 1
    for dim in dims:
        others *= 1 if x.find_axis(dim) else x.full.shape[dim]
    count = torch.as_tensor(_count(reduced) * others).to(x.full.dtype)
    total = x.masked(0, reduced) if reduced else x.full
    gap = x.full - total.sum(dims, keepdim=True) / count
    gap = torch.where(x.counts(reduced), gap, torch.zeros((), dtype=gap.dtype)) if reduced else gap
    result = gap.square().sum(dims, keepdim=keep) / (count - (1 if correction is None else correction))
    result = result.sqrt() if target._schema.name == "aten::std" else result
    return make(result, [axis if keep else axis._replace(dim=axis.dim - sum(dim < axis.dim for dim in dims)) for axis in x.axes
                         if axis.dim not in dims])


def _select(engine, target, arguments, keywords):
    x, dim, index = arguments
    dim = wrap_dim(dim, x.full.dim())
    axis = x.find_axis(dim)
    given = x.full if axis is None else make(x.full, [axis])
    return make(engine.call(target, (given, dim, index), {}), [other._replace(dim=other.dim - (dim < other.dim)) for other in x.axes
                                                               if other is not axis])


def _extreme(engine, target, arguments, keywords):
    if target._overloadname == "other":
        return pointwise(engine, lambda given, named: target(*given, **named), arguments, keywords)
    return _reduce(engine, target, arguments, keywords)


def _permute(engine, target, arguments, keywords):
    x = arguments[0]
    order = list_order(target, arguments, x.full.dim())
    return Grid(x.full.permute(order), [axis._replace(dim=order.index(axis.dim)) for axis in x.axes])


def _unsqueeze(engine, target, arguments, keywords):
    x, dim = arguments
    dim = wrap_dim(dim, x.full.dim() + 1)
    return Grid(target(x.full, dim), [axis._replace(dim=axis.dim + (dim <= axis.dim)) for axis in x.axes])


def _squeeze(engine, target, arguments, keywords):
    x, *rest = arguments
    dims = list_dims(rest[0] if rest else None, x.full.dim())
    dims = [dim for dim in dims if x.find_axis(dim) is None and x.full.shape[dim] == 1]
    return Grid(x.full.squeeze(dims), [axis._replace(dim=axis.dim - sum(dim < axis.dim for dim in dims)) for axis in x.axes])


def _same_shape(engine, target, arguments, keywords):
    x = arguments[0]
    return Grid(target(x.full, *arguments[1:], **keywords), x.axes)


def _size(engine, target, arguments, keywords):
    x, dim = arguments
    axis = x.find_axis(wrap_dim(dim, x.full.dim()))
    return x.full.shape[dim] if axis is None else Count(axis.as_rows())


def _is_square(x: Grid) -> bool:
    """Whether it has the same rows along both of its dimensions."""
    return x.full.dim() == 2 and len(x.axes) == 2 and x.axes[0].key == x.axes[1].key


def _diagonal(engine, target, arguments, keywords):
    x = arguments[0]
    if not _is_square(x) or any(arguments[1:2]):
        raise NotRagged("with others")
    return make(x.full.diagonal(), [x.axes[0]])


def _triangle(engine, target, arguments, keywords):
    """Rows stay in order, so that what is above the diagonal stays there."""
    x, above = (*arguments, 0)[:2]
    if not _is_square(x) or above not in ((0, 1) if target._schema.name.endswith("triu") else (0, -1)):
        raise NotRagged("by another diagonal")
    return Grid(target(x.full, above), x.axes)


def _choose(engine, target, arguments, keywords):
    """By a mask of the same rows; the elements that count follow each other."""
    x, mask = arguments[0], arguments[1]
    if isinstance(mask, (list, tuple)):
        (mask,) = mask if len(mask) == 1 else (None,)
    if not is_grid(mask) or not is_grid(x) or mask.full.dtype is not torch.bool or mask.full.shape != x.full.shape[:mask.full.dim()] \
            or [axis.key for axis in mask.axes] != [axis.key for axis in x.axes]:
        raise NotRagged("by a mask of others")
    valid, full = (mask.full & mask.counts()).flatten(), x.full.flatten(0, mask.full.dim() - 1)
    return Ragged(fill_rows(full, 0, valid), 0, valid, engine.intern("mask", engine.key_of(mask)))


def _put(engine, target, arguments, keywords):
    """One number where a mask of the same rows holds."""
    x, (mask, *others), value = arguments[:3]
    if others or not is_grid(mask) or mask.full.dtype is not torch.bool or mask.full.shape != x.full.shape or plain(value).numel() != 1 \
            or any(arguments[3:4]):
        raise NotRagged("by such indices")
    result = torch.where(mask.full, plain(value).to(x.full.dtype), x.full)
    return Grid(x.full.copy_(result) if target._schema.name.endswith("_") else result, x.axes)


def _flatten(engine, target, arguments, keywords):
    x, *rest = arguments
    name = target._schema.name.removeprefix("aten::")
    if x.full.dim() != len(x.axes) or (list(rest[0]) != [-1] if name in ("view", "reshape") else any(rest[:1]) or (*rest, 0, -1)[1] not in (
            -1, x.full.dim() - 1)):
        raise NotRagged("in another shape")
    valid = x.counts().expand(x.full.shape).flatten()
    return Ragged(x.full.flatten(), 0, valid, engine.intern("grid", *(axis.key for axis in x.axes)))


def _matmul(engine, target, arguments, keywords):
    """A matrix of rows by rows, times rows: what a softmax of it weights."""
    a, b = arguments
    rank_a, rank_b = count_dims(a), count_dims(b)
    left, right = {axis.dim: axis for axis in axes_of(a)}, {axis.dim: axis for axis in axes_of(b)}
    inner, other = left.pop(rank_a - 1, None), right.pop(max(rank_b - 2, 0), None)
    if (inner is None) != (other is None) or rank_a < 2 or rank_b < 2 or any(dim != rank_a - 2 for dim in left) \
            or any(dim != rank_b - 1 for dim in right):
        raise NotRagged("with what has other rows")
    if inner is not None:
        b = align_along(engine, b, other, inner)
        a, b = (Grid(plain(value), [axis]).masked(0) for value, axis in ((a, inner), (b, inner._replace(dim=rank_b - 2))))
    full = target(plain(a), plain(b))
    return make(full, [axis._replace(dim=full.dim() - 2) for axis in left.values()] + [axis._replace(dim=full.dim() - 1)
                                                                                     for axis in right.values()])


def _loss_of_classes(engine, target, arguments, keywords):
    """The classes are rows, too: a label is the number of one."""
    name, bound = target._schema.name.removeprefix("aten::"), bind(target, arguments, keywords)
    names = [parameter.name for parameter in target._schema.arguments][:2]
    x, labels = (bound[name] for name in names)
    classes = x.find_axis(1) if is_grid(x) else None
    if not is_grid(x) or not isinstance(labels, Ragged) or classes is None or x.full.dim() != 2 or bound.get("label_smoothing") \
            or bound["weight"] is not None:
        raise NotRagged()
    place = labels.full
    if not classes.in_front:
        place = find_order(classes.as_rows()).index_select(0, place.clamp(0, classes.valid.shape[0] - 1))
        place = torch.where(labels.full == bound["ignore_index"], labels.full, place)
    lowest = -float("inf") if name == "cross_entropy_loss" else 0.0
    bound.update(zip(names, (make(x.masked(lowest, [classes]), [axis for axis in x.axes if axis.dim == 0]), labels.with_full(place))))
    return engine.call(target, tuple(bound[parameter.name] for parameter in target._schema.arguments), {})


def _loss(engine, target, arguments, keywords):
    """Of elements, which are reduced here."""
    bound = bind(target, arguments, keywords)
    reduction = bound["reduction"]
    names = [parameter.name for parameter in target._schema.arguments]
    given, axes = meet(engine, [bound[name] for name in names[:2]])
    bound.update(zip(names, given))
    each = make(target(**{**bound, "reduction": 0}), axes)
    if reduction == 0:
        return each
    return engine.call(aten.mean.default if reduction == 1 else aten.sum.default, (each,), {})


def _broadcast(engine, target, arguments, keywords):
    fulls, axes = meet(engine, list(arguments[0]))
    return [make(full, axes) for full in torch.broadcast_tensors(*fulls)]


_RULES = {
    "broadcast_tensors": _broadcast, "select": _select, **dict.fromkeys(("var", "std"), _spread),
    "expand": lambda engine, target, arguments, keywords: expand(arguments[0], list(arguments[1])),
    **dict.fromkeys(("sum", "nansum", "prod", "any", "all", "amax", "amin", "argmax", "argmin", "logsumexp", "count_nonzero", "mean", "softmax",
                     "log_softmax", "_softmax", "_log_softmax"), _reduce), "max": _extreme, "min": _extreme,
    **dict.fromkeys(("transpose", "permute", "t", "numpy_T", "mT", "swapaxes", "swapdims"), _permute),
    "unsqueeze": _unsqueeze, "squeeze": _squeeze, "sym_size": _size,
    **dict.fromkeys(("clone", "contiguous", "to", "_to_copy", "detach", "detach_", "alias", "dropout", "zeros_like", "ones_like", "full_like",
                     "empty_like"), _same_shape),
    **dict.fromkeys(("diagonal", "diag"), _diagonal), **dict.fromkeys(("triu", "tril"), _triangle),
    **dict.fromkeys(("index", "masked_select"), _choose), **dict.fromkeys(("index_put", "index_put_"), _put),
    **dict.fromkeys(("view", "reshape", "flatten"), _flatten), **dict.fromkeys(("matmul", "mm"), _matmul),
    **dict.fromkeys(("cross_entropy_loss", "nll_loss", "nll_loss_nd"), _loss_of_classes),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
                     "kl_div"), _loss),
}


def call(engine: Any, target: Any, arguments: tuple, keywords: dict) -> Any:
    """An operator with values of which some are grids."""
    name = target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else ""
    if not name:
        return target(*arguments)
    rule = _RULES.get(name)
    if name in ASSERTIONS:
        return None
    if rule is not None:
        return rule(engine, target, arguments, keywords)
    if torch.Tag.pointwise in target.tags or name in POINTWISE or name == "copy_":
        return pointwise(engine, lambda given, named: call_with_tensors(target, given, named), arguments, keywords)
    raise NotRagged("with others by another mask")
