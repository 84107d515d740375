# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that choose rows: by a mask, by the places where a condition holds, by other rows, one of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .coordinates import take_in_place
from .values import (NotRagged, Ragged, align, align_all, compact, fill_rows, find_rows, is_ragged, plain, rank_of, spread_over, wrap_dim)

__all__ = ["MAKERS", "RULES", "find_places", "is_mask", "replace_known_masks"]


def _choose(engine: Any, x: Any, mask: torch.Tensor, at: int) -> Ragged:
    """`x[mask]`, the mask over the dimensions from `at`."""
    rank = mask.dim()
    key = engine.intern("mask", engine.key_of(mask))
    engine.mask_shapes[key] = mask.shape
    valid = mask.flatten() if rank != 1 else mask
    if isinstance(x, Ragged):
        raise NotRagged("once more, by another mask")
    full = x.flatten(at, at + rank - 1) if rank != 1 else x
    part = Ragged(fill_rows(full, at, valid), at, valid, key, mask.shape[-1] if engine.is_expanded(mask) else 1)
    if engine.find_interval(key) is not None:  # a slice, which in PyTorch is a view
        engine.views.add(part.full, x, lambda: fill_rows(x, at, valid), lambda: torch.where(part.spread(), part.full, x))
    return part


def _choose_again(engine: Any, x: Ragged, mask: Ragged, at: int) -> Ragged:
    if at != x.dim or mask.full.dim() != 1:
        raise NotRagged("by a mask over other dimensions")
    mask = align(engine, mask, x)
    valid = x.valid & mask.full
    return Ragged(fill_rows(x.full, at, valid), at, valid, engine.intern("and", x.key, engine.key_of(mask.full)))


def find_known_places(engine: Any, condition: Any, shape: Sequence[int] | None = None) -> list[torch.Tensor] | None:
    """The coordinates where a condition holds that follows from no data, broadcast to a shape."""
    places = engine.known.list_places(condition, shape)
    return None if places is None else [torch.tensor(numbers, dtype=torch.int64) for numbers in places]


def replace_known_masks(engine: Any, indices: Any) -> list:
    """Masks that follow from no data are lists of places."""
    found = []
    for index in indices:
        places = find_known_places(engine, index) if index is not None and is_mask(index) else None
        found += [index] if places is None else places
    return found


def find_places(engine: Any, condition: Any) -> list:
    """The coordinates where a condition holds."""
    if isinstance(condition, Ragged):
        return _find_places_among(engine, condition)
    known = find_known_places(engine, condition)
    if known is not None:
        return known
    mask = condition if condition.dtype is torch.bool else condition != 0
    key = engine.intern("mask", engine.key_of(condition) if condition.dtype is torch.bool else engine.key_of(mask))
    valid, flat = mask.flatten(), torch.arange(mask.numel())
    found, below = [], mask.numel()
    for size in mask.shape:
        below //= max(size, 1)
        place = flat if below == 1 else torch.div(flat, below, rounding_mode="floor")
        place = place % size if size * below != mask.numel() else place
        found.append(Ragged(place, 0, valid, key, shape=mask.shape, axis=len(found)))
    return found


def _find_places_among(engine: Any, condition: Ragged) -> list:
    """Along the rows, their numbers among those that count."""
    full = condition.full if condition.full.dtype is torch.bool else condition.full != 0
    found = find_places(engine, full & condition.spread())
    if not condition.in_front:
        rank = (condition.valid.to(torch.int64).cumsum(0) - 1).clamp(min=0)
        place = found[condition.dim]
        found[condition.dim] = place.with_full(rank.index_select(0, place.full))
    return found


def _nonzero(engine, target, arguments, keywords):
    places = find_places(engine, arguments[0])
    if not is_ragged(places[0]):
        return torch.stack(places, 1)
    first = places[0]
    return Ragged(torch.stack([place.full for place in places], 1), 0, first.valid, first.key, shape=first.shape)


def _masked_select(engine, target, arguments, keywords):
    x, mask = arguments
    if is_ragged(x) or is_ragged(mask):
        x, mask = align_all(engine, [x, mask])
        whole, rank = find_rows([x, mask]), max(rank_of(x), rank_of(mask))
        chosen = torch.broadcast_to(plain(mask), torch.broadcast_shapes(plain(x).shape, plain(mask).shape))
        dim = whole.dim + rank - whole.full.dim()
        mask = chosen & spread_over(whole.valid, rank, dim)
        x = plain(x)
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    places = find_known_places(engine, mask, shape)
    if places is not None:
        return torch.ops.aten.index.Tensor(x.expand(shape), places)
    x, mask = torch.broadcast_tensors(x, mask)
    return _choose(engine, x, mask, 0)


def is_mask(value: Any) -> bool:
    return value is not None and plain(value).dtype in (torch.bool, torch.uint8)


def _index(engine, target, arguments, keywords):
    x, indices = arguments[0], replace_known_masks(engine, arguments[1])
    masks = [place for place, index in enumerate(indices) if index is not None and is_mask(index)]
    if not masks and not any(map(is_ragged, [x, *indices])):
        return target(x, indices)
    if masks:
        others = [index for index in indices if index is not None]
        if len(others) != 1:
            return _index(engine, target, (x, [part for index in indices for part in
                                               (find_places(engine, index) if index is not None and is_mask(index) else [index])]), {})
        mask = indices[masks[0]]
        if isinstance(mask, Ragged) != isinstance(x, Ragged):
            raise NotRagged("by a mask of another kind")
        if isinstance(mask, Ragged):
            return _choose_again(engine, x, mask, masks[0])
        return _choose(engine, x, mask, masks[0])
    dims = [place for place, index in enumerate(indices) if index is not None]
    if isinstance(x, Ragged):
        if x.dim in dims:
            x = compact(x)
        elif any(isinstance(index, Ragged) for index in indices):
            raise NotRagged("by other rows")
        else:
            if dims != list(range(dims[0], dims[-1] + 1)):
                raise NotRagged("along dimensions that lie apart")
            rank = max(indices[dim].dim() for dim in dims)
            moved = x.dim if x.dim < dims[0] else x.dim - len(dims) + rank
            return x.with_full(target(x.full, list(indices)), moved)
    in_place = take_in_place(x, dims, [indices[dim] for dim in dims])
    if in_place is not None:
        return in_place
    indices = align_all(engine, list(indices))
    first = next((index for index in indices if isinstance(index, Ragged)), None)
    if first is None:
        return target(plain(x), list(indices))
    rank = max(rank_of(index) for index in indices if index is not None)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    full = target(plain(x), [plain(index) for index in indices])
    dim = (dims[0] if adjacent else 0) + rank - first.full.dim() + first.dim
    return first.with_full(fill_rows(full, dim, first.valid), dim)


def _take(engine, target, arguments, keywords):
    """gather, index_select, embedding."""
    name = target._schema.name.removeprefix("aten::")
    if name == "embedding":
        table, index = arguments[:2]
        return index.with_full(target(table, index.full, *arguments[2:], **keywords))
    x, dim, index = arguments[:3]
    dim = wrap_dim(dim, rank_of(x))
    if isinstance(x, Ragged) and x.dim == dim:
        x = compact(x)
    if name == "index_select":
        if isinstance(x, Ragged):
            if isinstance(index, Ragged):
                raise NotRagged("by other rows")
            return x.with_full(target(x.full, dim, index))
        if not isinstance(index, Ragged):
            return target(x, dim, index)
        in_place = take_in_place(x, [dim], [index])
        if in_place is not None:
            return in_place
        full = target(x, dim, index.full)
        return index.with_full(fill_rows(full, dim, index.valid), dim)
    if isinstance(x, Ragged) and isinstance(index, Ragged):
        x, index = align_all(engine, [x, index])
    found = find_rows([x, index])
    if isinstance(x, Ragged) and not isinstance(index, Ragged):
        raise NotRagged("by fewer indices")
    return found.with_full(target(plain(x), dim, plain(index), *arguments[3:], **keywords))


# ----------------------------------------------------------------------------------------------------------
# One of each
# ----------------------------------------------------------------------------------------------------------

def _list_runs(engine, values, order, key):
    """Of equal values side by side the first counts; with the run that each value is of, and the lengths of the runs."""
    first = torch.cat([torch.ones(1, dtype=torch.bool), values[1:] != values[:-1]])
    run = first.to(torch.int64).cumsum(0) - 1
    lengths = torch.zeros_like(run).index_add(0, run, torch.ones_like(run)).index_select(0, run)
    engine.bounds.know(lengths, 0, values.numel())
    inverse = run if order is None else torch.zeros_like(run).index_copy(0, order, run)
    return Ragged(values, 0, first, key), inverse, Ragged(lengths, 0, first, key)


def _unique(engine, target, arguments, keywords):
    x = arguments[0]
    if isinstance(x, Ragged):
        raise NotRagged("of which one of each is taken")
    values, order = x.flatten().sort(stable=True)
    found, inverse, lengths = _list_runs(engine, values, order, engine.intern("unique", engine.key_of(x)))
    return found, inverse.reshape(x.shape), lengths


def _unique_consecutive(engine, target, arguments, keywords):
    x = arguments[0]
    if isinstance(x, Ragged) or len(arguments) > 3 and arguments[3] is not None and x.dim() > 1 or keywords.get("dim") is not None:
        raise NotRagged("of which one of each is taken, or along a dimension")
    found, inverse, lengths = _list_runs(engine, x.flatten(), None, engine.intern("runs", engine.key_of(x)))
    return found, inverse.reshape(x.shape), lengths


RULES = dict.fromkeys(("gather", "index_select", "embedding"), _take)
#: What makes rows, whatever it is called with.
MAKERS = {"nonzero": _nonzero, "argwhere": _nonzero, "nonzero_numpy": lambda engine, target, arguments, keywords: find_places(engine, arguments[0]),
          "masked_select": _masked_select, "index": _index, "_unique2": _unique, "unique_consecutive": _unique_consecutive}
