# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows in the order of their values, and the first of them, whose number may follow from the data.

    hardest, places = losses[kept].topk(int(0.25 * kept.sum()))

Those that count come to the front; places are numbers among those that count, as PyTorch has them.
"""

from __future__ import annotations

from typing import Any

import torch

from .values import Count, NotRagged, Ragged, bind, compact, rank_of, wrap_dim

__all__ = ["RULES"]


def _put_in_front(engine: Any, x: Ragged, *fulls: torch.Tensor) -> tuple[Ragged, ...]:
    """As many rows as x has, which are the first of these."""
    valid, key = torch.arange(x.bound) < x.count(), engine.intern("front", x.key)
    return tuple(Ragged(full, x.dim, valid, key, in_front=True) for full in fulls)


def _sort_rows(engine: Any, x: Ragged, descending: bool) -> tuple[Ragged, Ragged]:
    values = compact(x)
    order = values.detach().argsort(dim=x.dim, descending=descending, stable=True)
    is_behind = (order >= x.count()).to(torch.int32)
    order = order.gather(x.dim, is_behind.argsort(dim=x.dim, stable=True))
    return _put_in_front(engine, x, values.gather(x.dim, order), order)


def _sort(engine, target, arguments, keywords):
    bound = bind(target, arguments, keywords)
    x, descending = bound["self"], bound.get("descending", False)
    names = target._schema.name.removeprefix("aten::")
    if wrap_dim(bound.get("dim", -1), x.full.dim()) != x.dim:
        result = target(x.full, *arguments[1:], **keywords)
        return x.with_full(result) if names == "argsort" else tuple(map(x.with_full, result))
    values, order = _sort_rows(engine, x, descending)
    return order if names == "argsort" else (values, order)


def _flip(engine, target, arguments, keywords):
    bound = bind(target, arguments, keywords)
    x, dims = bound["self"], {wrap_dim(dim, rank_of(bound["self"])) for dim in bound["dims"]}
    others = sorted(dims - {x.dim})
    full = target(x.full, others) if others else x.full
    if x.dim not in dims:
        return x.with_full(full)
    if x.alike != 1:
        raise NotRagged("with elements of all rows in one order")
    place = (x.count() - 1 - torch.arange(x.bound)).clamp(min=0)
    (turned,) = _put_in_front(engine, x, compact(x.with_full(full)).index_select(x.dim, place))
    return turned


def _take_front(engine: Any, values: Ragged, count: Any) -> Ragged:
    valid = values.valid & (torch.arange(values.bound) < count)
    return Ragged(values.full, values.dim, valid, engine.intern("first", values.key, engine.key_of(count)), in_front=values.in_front)


def _topk(engine, target, arguments, keywords):
    """Of rows, or by a count that follows from the data."""
    bound = bind(target, arguments, keywords)
    x, count, dim = bound["self"], bound["k"], bound["dim"]
    count = count.tensor() if isinstance(count, Count) else count
    if not isinstance(x, Ragged):
        dim = wrap_dim(dim, x.dim())
        x = Ragged(x, dim, torch.ones(x.shape[dim], dtype=torch.bool), ("all", x.shape[dim]))
    elif wrap_dim(dim, x.full.dim()) != x.dim:
        return tuple(map(x.with_full, target(x.full, *arguments[1:], **keywords)))
    values, order = _sort_rows(engine, x, bound["largest"])
    if isinstance(count, int):
        engine.expect(x.count() >= count, f"a mask chooses too few rows for the {count} that topk takes", x)
        return values.full.narrow(x.dim, 0, count), order.full.narrow(x.dim, 0, count)
    engine.expect((count >= 0) & (count <= x.count()), "topk takes more elements than there are", x)
    return _take_front(engine, values, count), _take_front(engine, order, count)


def _list_sorted(engine: Any, x: Ragged, bound: dict) -> Ragged | None:
    """Its rows in order, where the dimension that is reduced is theirs."""
    if bound.get("dim") is None and x.full.dim() != 1:
        raise NotRagged("with elements of all rows in one order")
    if bound.get("dim") is not None and wrap_dim(bound["dim"], x.full.dim()) != x.dim:
        return None
    return _sort_rows(engine, x, False)[0]


def _take(values: Ragged, place: torch.Tensor) -> torch.Tensor:
    return values.full.index_select(values.dim, place.clamp(0, values.bound - 1).reshape(-1))


def _quantile(engine, target, arguments, keywords):
    bound = bind(target, arguments, keywords)
    x, q = bound["self"], bound["q"]
    values = _list_sorted(engine, x, bound)
    if values is None:
        result = target(x.full, *arguments[1:], **keywords)
        first = isinstance(q, torch.Tensor) and q.dim()
        return x.with_full(result, x.dim + (1 if first else 0) - (x.dim > wrap_dim(bound["dim"], x.full.dim()) and not bound["keepdim"]))
    dtype = values.full.dtype
    q = q if isinstance(q, torch.Tensor) else torch.full((), q, dtype=dtype)
    place = q.reshape(-1) * (x.count() - 1).to(dtype)
    kind = bound["interpolation"]
    low = (place.round() if kind == "nearest" else place.ceil() if kind == "higher" else place.floor()).to(torch.int64)
    found = _take(values, low)
    if kind in ("linear", "midpoint"):
        weight = (place - low.to(dtype) if kind == "linear" else torch.full_like(place, 0.5)).reshape(
            [-1 if dim == x.dim else 1 for dim in range(values.full.dim())])
        found = found.lerp(_take(values, place.ceil().to(torch.int64)), weight)
    has_nan = (values.full.isnan() & values.spread()).any(x.dim, keepdim=True)
    found = torch.where((x.count() == 0) | has_nan, float("nan"), found).movedim(x.dim, 0)
    if bound["keepdim"]:
        found = found.unsqueeze(x.dim + 1)
    return found if q.dim() else found.squeeze(0)


def _median(engine, target, arguments, keywords):
    """The lower one of two; the gradient goes to all that are equal to it."""
    bound = bind(target, arguments, keywords)
    x = bound["self"]
    if bound.get("dim") is not None:
        raise NotRagged("along a dimension")
    found = _take(_list_sorted(engine, x, bound), (x.count() - 1).div(2, rounding_mode="floor")).detach()
    is_it = (x.full.detach() == found) & x.valid
    total = torch.where(is_it, x.full, 0).sum() / is_it.sum().to(x.full.dtype)
    has_nan = (x.full.isnan() & x.valid).any()
    return torch.where(has_nan, float("nan"), total if x.full.is_floating_point() else found.squeeze(0))


RULES = {"quantile": _quantile, "median": _median, "sort": _sort, "argsort": _sort, "topk": _topk,
         "flip": _flip}
