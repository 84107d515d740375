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

from .values import Count, Ragged, bind, compact, wrap_dim

__all__ = ["RULES"]


def _sort_rows(engine: Any, x: Ragged, descending: bool) -> tuple[Ragged, Ragged]:
    values = compact(x)
    order = values.detach().argsort(dim=x.dim, descending=descending, stable=True)
    is_behind = (order >= x.count()).to(torch.int32)
    order = order.gather(x.dim, is_behind.argsort(dim=x.dim, stable=True))
    valid, key = torch.arange(x.bound) < x.count(), engine.intern("front", x.key)
    return tuple(Ragged(full, x.dim, valid, key, in_front=True) for full in (values.gather(x.dim, order), order))


def _sort(engine, target, arguments, keywords):
    bound = bind(target, arguments, keywords)
    x, descending = bound["self"], bound.get("descending", False)
    names = target._schema.name.removeprefix("aten::")
    if wrap_dim(bound.get("dim", -1), x.full.dim()) != x.dim:
        result = target(x.full, *arguments[1:], **keywords)
        return x.with_full(result) if names == "argsort" else tuple(map(x.with_full, result))
    values, order = _sort_rows(engine, x, descending)
    return order if names == "argsort" else (values, order)


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


RULES = {"sort": _sort, "argsort": _sort, "topk": _topk}
