# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums and their like over rows, and losses that are means of them: what does not count is left out."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from .layers import pointwise
from .values import NotRagged, Ragged, align_all, bind, fill_rows, find_rows, list_dims, number_among, plain

__all__ = ["KEEPS_DIM", "NEUTRAL", "RULES"]


def _lowest(dtype: torch.dtype) -> float:
    return False if dtype is torch.bool else -float("inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> float:
    return True if dtype is torch.bool else float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


#: What does not count becomes this.
NEUTRAL = {"sum": lambda t: 0, "nansum": lambda t: 0, "prod": lambda t: 1, "any": lambda t: False, "all": lambda t: True,
            "amax": _lowest, "amin": _highest, "max": _lowest, "min": _highest, "argmax": _lowest, "argmin": _highest,
            "logsumexp": _lowest, "count_nonzero": lambda t: 0, "linalg_vector_norm": lambda t: 0, "norm": lambda t: 0,
            "cumsum": lambda t: 0, "softmax": _lowest, "log_softmax": _lowest, "_softmax": _lowest, "_log_softmax": _lowest}

KEEPS_DIM = {"cumsum", "softmax", "log_softmax", "_softmax", "_log_softmax"}


def _reduce(engine, target, arguments, keywords):
    x, rest = arguments[0], arguments[1:]
    name = target._schema.name.removeprefix("aten::")
    bound = bind(target, arguments, keywords)
    rank = x.full.dim()
    dims = list_dims(bound.get("dim"), rank)
    if x.dim not in dims:
        result = target(x.full, *rest, **keywords)
        keeps = bound.get("keepdim", False) or name in KEEPS_DIM
        dim = x.dim if keeps else x.dim - sum(other < x.dim for other in dims)
        return pytree.tree_map_only(torch.Tensor, lambda value: x.with_full(value, dim), result)
    if name == "mean":
        keep = bound.get("keepdim", False)
        others = 1
        for dim in dims:
            others *= 1 if dim == x.dim else x.full.shape[dim]
        total = x.masked(0).sum(dims, keepdim=keep)
        return total / (x.count() * others).to(total.dtype)
    if name in ("var", "std"):
        return _spread_of(x, bound, dims, name)
    if name not in NEUTRAL:
        raise NotRagged()
    full = x.masked(NEUTRAL[name](x.full.dtype))
    if name in ("argmax", "argmin") and len(dims) > 1:
        raise NotRagged("whose places are counted with others")
    result = target(full, *rest, **keywords)
    if name in ("argmax", "argmin"):
        return number_among(x, result)
    if isinstance(result, tuple):  # with places
        return result[0], number_among(x, result[1])
    if name in KEEPS_DIM:
        return x.with_full(fill_rows(result, x.dim, x.valid))
    return result


def _extreme(engine, target, arguments, keywords):
    """Of one tensor, or of two."""
    return (pointwise if target._overloadname == "other" else _reduce)(engine, target, arguments, keywords)


def _spread_of(x, bound, dims, name):
    correction = bound.get("correction", 1 if bound.get("unbiased", True) else 0)
    correction = 1 if correction is None else correction
    keep = bound.get("keepdim", False)
    others = 1
    for dim in dims:
        others *= 1 if dim == x.dim else x.full.shape[dim]
    count = (x.count() * others).to(x.full.dtype)
    mean = x.masked(0).sum(dims, keepdim=True) / count
    gap = torch.where(x.spread(), x.full - mean, torch.zeros((), dtype=x.full.dtype))
    result = gap.square().sum(dims, keepdim=keep) / (count - correction)
    return result.sqrt() if name == "std" else result


def _loss(engine, target, arguments, keywords):
    """Losses of elements or rows, which are reduced here."""
    name = target._schema.name.removeprefix("aten::")
    bound = bind(target, arguments, keywords)
    reduction = bound["reduction"]
    names = [parameter.name for parameter in target._schema.arguments]
    rows = align_all(engine, [bound[name] for name in names[:2]])
    first = find_rows(rows)
    bound.update(zip(names, rows))
    is_of_classes = name in ("cross_entropy_loss", "nll_loss", "nll_loss_nd") and not plain(rows[1]).is_floating_point()
    if is_of_classes:
        if not isinstance(rows[1], Ragged) or first.dim != 0:
            raise NotRagged()
        labels = torch.where(rows[1].spread(), rows[1].full, torch.full((), bound["ignore_index"], dtype=torch.int64))
        bound.update({names[0]: plain(rows[0]), names[1]: labels})
        result = target(**bound)
        return first.with_full(result) if reduction == 0 else result
    bound.update({parameter: plain(value) for parameter, value in zip(names, rows)}, reduction=0)
    each = first.with_full(target(**bound), first.dim)
    if reduction == 0:
        return each
    total = each.masked(0).sum()
    return total if reduction == 2 else total / (each.count() * (each.full.numel() // each.bound)).to(total.dtype)


def _loss_and_weight(engine, target, arguments, keywords):
    """A loss of classes as PyTorch's autograd has it, beside the weight that its mean is divided by."""
    bound = bind(target, arguments, keywords)
    logits, labels = align_all(engine, [bound["self"], bound["target"]])
    if not isinstance(logits, Ragged) or not isinstance(labels, Ragged) or logits.dim or labels.dim:
        raise NotRagged()
    left = torch.where(labels.spread(), labels.full, torch.full((), bound["ignore_index"], dtype=torch.int64))
    result, weight = target(**{**bound, "self": logits.full, "target": left})
    return (logits.with_full(result) if bound["reduction"] == 0 else result), weight


def _row_loss(engine, target, arguments, keywords):
    """Losses of rows of several tensors, which are reduced here."""
    bound = bind(target, arguments, keywords)
    reduction = bound["reduction"]
    names = [name for name, value in bound.items() if isinstance(value, (Ragged, torch.Tensor))]
    rows = align_all(engine, [bound[name] for name in names])
    if not all(isinstance(row, Ragged) and row.dim == 0 for row in rows):
        raise NotRagged("beside what has other rows")
    bound.update(zip(names, map(plain, rows)), reduction=0)
    each = find_rows(rows).with_full(target(**bound), 0)
    if reduction == 0:
        return each
    total = each.masked(0).sum()
    return total if reduction == 2 else total / (each.count() * (each.full.numel() // each.bound)).to(total.dtype)


RULES = {
    **dict.fromkeys((*NEUTRAL, "mean", "var", "std"), _reduce), "max": _extreme, "min": _extreme,
    **dict.fromkeys(("cross_entropy_loss", "nll_loss", "nll_loss_nd", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
                     "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss", "poisson_nll_loss"),
                    _loss),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _loss_and_weight),
    **dict.fromkeys(("triplet_margin_loss", "cosine_embedding_loss", "margin_ranking_loss", "hinge_embedding_loss", "multi_margin_loss"),
                    _row_loss),
}
