# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes by index: rows that do not count change nothing."""

from __future__ import annotations

import torch

from .choosing import find_places, is_mask, replace_known_masks
from .coordinates import add_in_place, put_in_place
from .layers import pointwise
from .values import NotRagged, Ragged, align, align_all, bind, compact, find_rows, find_whole, front_rows, is_ragged, plain, rank_of, spread_over, wrap_dim

aten = torch.ops.aten

__all__ = ["MAKERS", "RULES"]


def _index_put(engine, target, arguments, keywords):
    x, indices, values, accumulate = (*arguments, False)[:4]
    indices = replace_known_masks(engine, indices)
    given = [index for index in indices if index is not None]
    is_in_place = target._schema.name.endswith("_")
    if isinstance(values, Ragged) and len(given) == 1 and not is_ragged(given[0]) and not is_mask(given[0]) and given[0].dim() == 1 \
            and indices.index(given[0]) == values.dim and (not isinstance(x, Ragged) or x.dim == values.dim) and given[0].shape[0] <= values.bound:
        values = find_whole(engine, values, given[0].shape[0])
    if isinstance(x, Ragged):
        by_number = all(index is not None and not is_mask(index) for index in indices)
        if not any(map(is_mask, given)) and (x.in_front or all(index is None for index in indices[x.dim:x.dim + 1])):
            result = _write_in_place(engine, x, indices, values, accumulate)
            return x.with_full(x.full.copy_(result) if is_in_place else result)
        result = (_write_numbered if by_number else _write_among)(engine, x, indices, values, accumulate)
        return x.with_full(x.full.copy_(result) if is_in_place else result)
    if not any(map(is_ragged, [*given, values])):
        if len(given) != 1 or not is_mask(given[0]) or given[0].dim() != 1 or values.dim() != x.dim() or values.shape[indices.index(given[0])] == 1:
            return target(x, indices, values, accumulate)
        size = values.shape[indices.index(given[0])]  # so many as the mask has to choose
        values = front_rows(engine, size, torch.full((), size), size).with_full(values, indices.index(given[0]))
    if len(given) > 1:  # a mask beside other indices stands for its places
        indices = [part for index in indices for part in (find_places(engine, index) if index is not None and is_mask(index) else [index])]
    if len(given) == 1 and is_mask(given[0]) and not isinstance(given[0], Ragged):
        result = _write_mask(engine, x, given[0], indices.index(given[0]) if given[0] is indices[0] else len(indices) - 1, values,
                             accumulate)
    else:
        result = _write_rows(engine, x, list(indices), values, accumulate)
    return x.copy_(result) if is_in_place else result


def _write_in_place(engine, x, indices, values, accumulate):
    """Along other dimensions than that of the rows, or into rows whose numbers are their places."""
    indices = list(indices)
    if len(indices) > x.dim and indices[x.dim] is not None:
        number = indices[x.dim]
        indices[x.dim] = pointwise(engine, aten.where.self, (pointwise(engine, aten.lt.Scalar, (number, 0), {}), pointwise(
            engine, aten.add.Tensor, (number, x.count()), {}), number), {}) if isinstance(number, Ragged) else torch.where(
                number < 0, number + x.count(), number)
    if isinstance(values, Ragged) and not any(isinstance(index, Ragged) for index in indices):
        values = align(engine, values, x).full
    return _index_put(engine, aten.index_put.default, (x.full, indices, values, accumulate), {})


def _write_among(engine, x, indices, values, accumulate):
    """Into those rows that another mask chooses among them."""
    mask = indices[-1]
    if any(index is not None for index in indices[:-1]) or not isinstance(mask, Ragged) or not is_mask(mask) or mask.full.dim() != 1 \
            or len(indices) - 1 != x.dim:
        raise NotRagged("into them")
    mask = align(engine, mask, x)
    like = Ragged(x.full, x.dim, x.valid & mask.full, engine.intern("and", x.key, engine.key_of(mask.full)))
    if isinstance(values, Ragged):
        values = align(engine, values, like).full
    return torch.where(like.spread(), x.full + values if accumulate else values.to(x.full.dtype), x.full)


def _write_numbered(engine, x, indices, values, accumulate):
    """Into those rows that have these numbers among them."""
    if x.dim or not isinstance(indices[0], Ragged):
        raise NotRagged("into them")
    number = indices[0].full
    number = torch.where(number < 0, number + x.count(), number).clamp(0, x.bound - 1)
    place = compact(x.with_full(torch.arange(x.bound), 0)).index_select(0, number)
    return _write_rows(engine, x.full, [indices[0].with_full(place), *indices[1:]], values, accumulate)


def _write_mask(engine, x, mask, at, values, accumulate):
    flat = x.flatten(at, at + mask.dim() - 1) if mask.dim() != 1 else x
    like = Ragged(flat, at, mask.flatten() if mask.dim() != 1 else mask, engine.intern("mask", engine.key_of(mask)))
    if isinstance(values, Ragged):
        values = align(engine, values, like).full
    spread = like.spread()
    result = torch.where(spread, flat + values, flat) if accumulate else torch.where(spread, values.to(flat.dtype), flat)
    return result.reshape(x.shape)


def _write_rows(engine, x, indices, values, accumulate):
    if any(index is None for index in indices):
        raise NotRagged("along dimensions behind the first")
    in_place = put_in_place(x, indices, values, accumulate)
    if in_place is not None:
        return in_place
    rows = [*indices, values]
    rows = align_all(engine, rows)
    first = find_rows(rows)
    *indices, values = map(plain, rows)
    if first.dim != 0 or any(index.dim() != 1 for index in indices):
        raise NotRagged("by indices of more than one dimension")
    place, below = torch.zeros((), dtype=torch.int64), 1
    for index, size in reversed(list(zip(indices, x.shape))):
        place, below = place + torch.where(index < 0, index + size, index) * below, below * size
    place = torch.where(first.valid, place, torch.full((), below, dtype=torch.int64))
    flat = x.flatten(0, len(indices) - 1) if len(indices) > 1 else x
    padded = torch.cat([flat, torch.zeros_like(flat[:1])])
    shape = (first.bound, *flat.shape[1:])
    written = torch.index_put(padded, [place], values.to(x.dtype).expand(shape) if values.dim() < len(shape) or
                              values.shape != shape else values.to(x.dtype), accumulate)
    return written[:below].reshape(x.shape)


def _index_fill(engine, target, arguments, keywords):
    """`x[rows] = 1`; along another dimension than the first, of what is turned to it."""
    x, dim, index, value = arguments
    name = f"index_put{'_' if target._schema.name.endswith('_') else ''}"
    dim = wrap_dim(dim, rank_of(x))
    if not is_ragged(x) and not is_ragged(index):
        return target(x, dim, index, value)
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=plain(x).dtype)
    put = getattr(aten, name).default
    if isinstance(x, Ragged) or not dim:
        return _index_put(engine, put, (x, [*[None] * dim, index], value), {})
    written = _index_put(engine, put, (x.movedim(dim, 0), [index], value), {})
    return x if name.endswith("_") else written.movedim(0, dim)


def _copy(engine, target, arguments, keywords):
    """Into a view of rows, `rows[:, 0] = 1`."""
    if not isinstance(arguments[0], Ragged):
        raise NotRagged("into what has other rows")
    return pointwise(engine, target, arguments, keywords)


def _scatter(engine, target, arguments, keywords):
    """index_add, scatter_add, scatter_reduce and their like: rows that do not count go into one behind the last."""
    x, dim, index, source, *rest = arguments
    if isinstance(x, Ragged):
        return _scatter_among(engine, target, x, wrap_dim(dim, rank_of(x)), index, source, rest, keywords)
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    dim = wrap_dim(dim, x.dim())
    index, source = align_all(engine, [index, source])
    if name == "index_add" and isinstance(index, Ragged) and isinstance(source, Ragged) and not rest and not keywords:
        in_place = add_in_place(x, dim, index, source)
        if in_place is not None:
            return x.copy_(in_place) if target._schema.name.endswith("_") else in_place
    first = find_rows([index, source])
    size = x.shape[dim]
    by_row = name.startswith("index_")
    rank = 1 if by_row else rank_of(index)
    where = 0 if by_row else first.dim
    if isinstance(source, Ragged) and by_row and source.dim != dim:
        raise NotRagged("along another dimension")
    place = torch.where(spread_over(first.valid, rank, where), plain(index), torch.full((), size, dtype=torch.int64))
    padded = torch.cat([x, torch.zeros_like(x.narrow(dim, 0, 1))], dim)
    function = getattr(aten, name).__getattr__(target._overloadname)
    written = function(padded, dim, place, plain(source), *rest, **keywords).narrow(dim, 0, size)
    return x.copy_(written) if target._schema.name.endswith("_") else written


def _scatter_among(engine, target, x, dim, index, source, rest, keywords):
    """Into rows by their numbers among those that count, or along another dimension within each."""
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    by_row = name.startswith("index_")
    function = getattr(aten, name).__getattr__(target._overloadname)
    if dim == x.dim:
        if isinstance(index, Ragged) and not by_row and index.dim != 0:
            raise NotRagged("into them")
        if not x.in_front:
            places = compact(x.with_full(torch.arange(x.bound), 0))
            numbers = plain(index).clamp(0, x.bound - 1)
            numbers = places.index_select(0, numbers.flatten()).reshape(numbers.shape)
            index = index.with_full(numbers) if isinstance(index, Ragged) else numbers
        if is_ragged(index) or is_ragged(source):
            written = _scatter(engine, function, (x.full, dim, index, source, *rest), keywords)
        else:
            written = function(x.full, dim, index, source, *rest, **keywords)
    else:
        if by_row == isinstance(index, Ragged) or any(isinstance(value, Ragged) and value.dim != x.dim for value in (index, source)) \
                or isinstance(source, torch.Tensor) and source.dim():
            raise NotRagged("into them")
        index, source = (align(engine, value, x).full if isinstance(value, Ragged) else value for value in (index, source))
        written = function(x.full, dim, index, source, *rest, **keywords)
    return x.with_full(x.full.copy_(written) if target._schema.name.endswith("_") else written)


def _masked_scatter(engine, target, arguments, keywords):
    """The elements of rows, one row behind the other."""
    bound = bind(target, arguments, keywords)
    x, mask, source = bound["self"], bound["mask"], bound["source"]
    if isinstance(x, Ragged) or isinstance(mask, Ragged) or source.dim:
        raise NotRagged("into them" if isinstance(x, Ragged) else "with elements of all rows in one order")
    elements = compact(source).reshape(-1)
    engine.expect(mask.expand_as(x).sum() <= source.count() * (elements.numel() // source.bound),
                  "masked_scatter takes more elements than there are", source)
    missing = x.numel() - elements.numel()
    return target(x, mask, torch.cat([elements, elements.new_zeros(missing)]) if missing > 0 else elements)


def _count(engine, target, arguments, keywords):
    """How many rows have each of `minlength` numbers; as above."""
    bound = {**dict(zip(("self", "weights", "minlength"), arguments)), **keywords}
    x, weights, length = bound["self"], bound.get("weights"), bound.get("minlength", 0)
    if not length:
        raise NotRagged("without minlength")
    kind = torch.int64 if weights is None else torch.float32 if plain(weights).dtype == torch.float32 else torch.float64
    if weights is None:
        weights = x.with_full(torch.ones_like(x.full))
    index, weights = (pointwise(engine, aten.to.dtype, (value, dtype), {}) for value, dtype in ((x, torch.int64), (weights, kind)))
    return _scatter(engine, aten.index_add.default, (torch.zeros(length, dtype=kind), 0, index, weights), {})


RULES = {"bincount": _count, "copy_": _copy, "masked_scatter": _masked_scatter, "masked_scatter_": _masked_scatter, **dict.fromkeys(("index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "scatter",
                       "scatter_", "index_copy", "index_copy_", "index_reduce", "index_reduce_"), _scatter)}
#: What may have rows for indices.
MAKERS = {"index_put": _index_put, "index_put_": _index_put, "index_fill": _index_fill, "index_fill_": _index_fill}
