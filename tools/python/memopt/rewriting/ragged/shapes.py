# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that move the dimension of the rows, join rows, or make tensors of as many."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ..intervals import Interval, join
from . import grids
from .values import (Count, NotRagged, Ragged, align, align_all, bind, compact, fill_rows, find_order, find_rows, find_whole, front_rows,
                     list_dims, list_order, plain, plain_all, spread_over, wrap_dim)

__all__ = ["RULES", "SIZED"]


def _unsqueeze(engine, target, arguments, keywords):
    x, dim = arguments
    dim = wrap_dim(dim, x.full.dim() + 1)
    return x.with_full(target(x.full, dim), x.dim + (dim <= x.dim))


def _squeeze(engine, target, arguments, keywords):
    x, *rest = arguments
    rank = x.full.dim()
    dims = list_dims(rest[0], rank) if rest else list(range(rank))
    dims = [dim for dim in dims if dim != x.dim and x.full.shape[dim] == 1]
    return x.of_axis(x.full.squeeze(dims), x.dim - sum(dim < x.dim for dim in dims))


def _select(engine, target, arguments, keywords):
    x, dim, index = arguments
    dim = wrap_dim(dim, x.full.dim())
    if dim == x.dim:
        if isinstance(index, Count):
            raise NotRagged("by their number")
        index = torch.as_tensor(index)
        place = torch.where(index < 0, index + x.count(), index)
        engine.expect((place >= 0) & (place < x.count()), f"a mask chooses too few rows for the index {arguments[2]}"
                      if isinstance(arguments[2], int) else "an index among rows that a mask chooses is not one of theirs", x)
        return _take_row(engine, x, place.clamp(0, x.bound - 1))
    return x.of_axis(target(x.full, dim, index), x.dim - (dim < x.dim), index)


def _take_row(engine, x: Ragged, place: torch.Tensor) -> torch.Tensor:
    """The row that has this number among those that count."""
    where = find_order(x).index_select(0, place.reshape(1))

    def read() -> torch.Tensor:
        return x.full.index_select(x.dim, where).squeeze(x.dim)

    row = read()
    engine.views.add(row, x.full, read, lambda: x.full.index_copy(x.dim, where, row.unsqueeze(x.dim)))
    return row


def _slice(engine, target, arguments, keywords):
    x, dim, start, end, step = (*arguments, *(0, None, None, 1)[len(arguments) - 1:])[:5]
    start = start or 0
    end = sys.maxsize if end is None else end
    if isinstance(x, Ragged) and wrap_dim(dim, x.full.dim()) == x.dim and isinstance(step, int):
        is_all = isinstance(start, int) and not start and isinstance(end, int) and end >= x.bound and step == 1
        return x if is_all else _take_slice(engine, x, start, end, step)
    if not isinstance(x, Ragged) and start == 0 and step == 1:
        return _take_front(engine, x, wrap_dim(dim, x.dim()), end)
    if not isinstance(x, Ragged) or not all(isinstance(part, int) for part in (start, end, step)):
        raise NotRagged("a slice of others")
    return x.with_full(target(x.full, dim, start, end, step))


def _take_front(engine, x: torch.Tensor, dim: int, end: Count) -> Ragged:
    """`x[:, :longest]`."""
    size = x.shape[dim]
    rows = end.rows if (end.factor, end.offset, end.bound) == (1, 0, size) else front_rows(
        engine, size, _wrap_place(end, torch.full((), size)), ("cut", end.rows.key, end.factor, end.offset))

    def read() -> torch.Tensor:
        return fill_rows(x, dim, rows.valid)

    part = Ragged(read(), dim, rows.valid, rows.key, in_front=True)
    if end.number is not None:
        engine.know_interval(rows.key, Interval(size, 0, end.number))
    engine.views.add(part.full, x, read, lambda: torch.where(part.spread(), part.full, x))
    return part


def _narrow(engine, target, arguments, keywords):
    x, dim, start, length = arguments
    rank = x.full.dim() if isinstance(x, Ragged) else x.dim()
    dim = wrap_dim(dim, rank)
    if isinstance(x, Ragged) and dim != x.dim:
        return x.with_full(target(x.full, dim, start, length))
    if isinstance(length, int):
        places = torch.arange(length) + (start.tensor() if isinstance(start, Count) else start)
        return (compact(x) if isinstance(x, Ragged) else x).index_select(dim, places)
    if isinstance(start, int) and not start:
        return _slice(engine, target, (x, dim, 0, length), {})
    if not isinstance(x, Ragged):
        raise NotRagged("from there on")
    first = start.tensor() if isinstance(start, Count) else torch.as_tensor(start)
    return _take_slice(engine, x, first, first + (length.tensor() if isinstance(length, Count) else length))


def _wrap_place(place: Any, count: torch.Tensor) -> Any:
    """Where a slice begins or ends, counted from the front; a number of Python, or one that follows from the data."""
    if isinstance(place, int):
        return place if place >= 0 else (count + place).clamp(min=0)
    place = place.tensor() if isinstance(place, Count) else place
    return torch.where(place < 0, place + count, place).clamp(min=0)


def _take_slice(engine, x: Ragged, start: Any, end: Any, step: int = 1) -> Ragged:
    """The rows stay in their places, and fewer of them count."""
    rank = x.valid.to(torch.int64).cumsum(0) - 1
    first = _wrap_place(start, x.count())
    valid = x.valid & (rank >= first)
    if not isinstance(end, int) or end < x.bound:
        valid = valid & (rank < _wrap_place(end, x.count()))
    if step != 1:
        valid = valid & ((rank - first) % step == 0)

    def read() -> torch.Tensor:
        return fill_rows(x.full, x.dim, valid)

    part = Ragged(read(), x.dim, valid, engine.intern("slice", x.key, *map(_key_of_place(engine), (start, end)), step))
    engine.views.add(part.full, x.full, read, lambda: torch.where(part.spread(), part.full, x.full))
    return part


def _key_of_place(engine: Any) -> Callable[[Any], Any]:
    return lambda place: place if isinstance(place, int) else (place.rows.key, place.factor, place.offset) if isinstance(place, Count) \
        else engine.key_of(place)


def _diff(engine, target, arguments, keywords):
    bound = bind(target, arguments, keywords)
    x = arguments[0]
    if not isinstance(x, Ragged) or bound["prepend"] is not None or bound["append"] is not None:
        raise NotRagged("with others in front or behind")
    if wrap_dim(bound["dim"], x.full.dim()) != x.dim:
        return x.with_full(target(x.full, *arguments[1:], **keywords))
    for _ in range(bound["n"]):
        first, second = _take_slice(engine, x, 0, -1), _take_slice(engine, x, 1, sys.maxsize)
        x = second.with_full(second.full - align(engine, first, second).full)
    return x


def _permute(engine, target, arguments, keywords):
    x = arguments[0]
    order = list_order(target, arguments, x.full.dim())
    return x.with_full(x.full.permute(order), order.index(x.dim))


def _view(engine, target, arguments, keywords):
    x, sizes = arguments[0], list(arguments[1])
    if not isinstance(x, Ragged) or sum(isinstance(size, Count) for size in sizes) > 1:
        raise NotRagged("as sizes")
    sizes = [size.bound if isinstance(size, Count) else size for size in sizes]
    return _reshape(engine, x, sizes)


def _reshape(engine, x: Ragged, sizes: list[int]) -> Ragged:
    full = x.full.reshape(sizes)
    before = after = 1
    for size in x.full.shape[:x.dim]:
        before *= size
    for dim, size in enumerate(full.shape):
        if after == before and size == x.bound:
            return x.of_axis(full, dim)
        if after == before and size != 1 and size % x.bound == 0:  # rows with what lies behind them
            valid = x.valid[:, None].expand(x.bound, size // x.bound).reshape(-1)
            return Ragged(full, dim, valid, engine.intern("flat", x.key, size // x.bound))
        if after == before and 0 < size < x.bound and x.bound % size == 0 and x.full.shape[x.dim + 1:].numel() == 1:
            return _group(engine, x, sizes, dim, size)
        merged = _merge(engine, x, full, dim) if after < before else None
        if merged is not None:
            return merged
        after *= size
    interval = engine.find_interval(x.key)
    if interval is not None and interval.start == 0:
        return find_whole(engine, x, x.bound).reshape(sizes)
    raise NotRagged("in another shape")


def _merge(engine, x: Ragged, full: torch.Tensor, dim: int) -> Ragged | None:
    """Rows of each of what lies in front, one behind the other, with what lies behind them."""
    shape = x.full.shape
    for first in range(x.dim):
        for last in range(x.dim, len(shape)):
            if shape[:first].numel() == full.shape[:dim].numel() and shape[first:last + 1].numel() == full.shape[dim]:
                valid = spread_over(x.valid, last + 1 - first, x.dim - first).expand(shape[first:last + 1]).reshape(-1)
                return Ragged(full, dim, valid, engine.intern("merged", x.key, shape[first:x.dim].numel(), shape[x.dim + 1:last + 1].numel()))
    return None


def _group(engine, x: Ragged, sizes: list[int], dim: int, count: int) -> Ragged:
    """Elements by elements that follow each other: `x[mask].view(-1, 4)`."""
    size = x.bound // count
    if x.alike % size == 0:  # the mask chooses groups
        full, valid = x.full.reshape(sizes), x.valid.reshape(count, size)[:, 0]
        return Ragged(full, dim, valid, engine.intern("groups", x.key, size))
    valid = torch.arange(count) < torch.div(x.count(), size, rounding_mode="floor")
    order = find_order(x)

    def read() -> torch.Tensor:
        return fill_rows(x.full.index_select(x.dim, order).reshape(sizes), dim, valid)

    groups = Ragged(read(), dim, valid, engine.intern("groups in front", x.key, size))
    engine.views.add(groups.full, x.full, read, lambda: torch.where(
        x.spread(), torch.zeros_like(x.full).index_copy(x.dim, order, groups.full.reshape(x.full.shape)), x.full))
    return groups


def _flatten(engine, target, arguments, keywords):
    x, start, end = (*arguments, *(0, -1)[len(arguments) - 1:])[:3]
    return _reshape(engine, x, list(x.full.flatten(start, end).shape))


def _expand(engine, target, arguments, keywords):
    x, sizes = arguments[0], list(arguments[1])
    counts = [place for place, size in enumerate(sizes) if isinstance(size, Count)]
    offset = len(sizes) - (x.full.dim() if isinstance(x, Ragged) else x.dim())
    if isinstance(x, Ragged) and all(place == x.dim + offset for place in counts):
        sizes[x.dim + offset] = -1
        return x.with_full(x.full.expand(sizes), x.dim + offset)
    return grids.expand(x, sizes)


def _repeat(engine, target, arguments, keywords):
    """Of rows a number of times, and as often as there are rows, which makes a dimension of them."""
    x, times = arguments
    full = x.full if isinstance(x, Ragged) else x
    offset = len(times) - full.dim()
    if isinstance(x, Ragged) and (again := times[x.dim + offset]) != 1:
        if isinstance(again, Count) or again == 0:
            raise NotRagged("as often as others have rows, or not at all")
        once = _repeat(engine, target, (x, [*times[:x.dim + offset], 1, *times[x.dim + offset + 1:]]), keywords)
        return _cat(engine, torch.ops.aten.cat.default, ([once] * again, once.dim), {})
    full = full.repeat([1 if isinstance(count, Count) else count for count in times])
    rows = x.with_full(full, x.dim + offset) if isinstance(x, Ragged) else full
    counts = [place for place, count in enumerate(times) if isinstance(count, Count)]
    return grids.expand(rows, [count if place in counts else size for place, (count, size) in enumerate(zip(times, full.shape))]) if counts else rows


def _expand_as(engine, target, arguments, keywords):
    x, like = arguments
    if isinstance(x, Ragged) and isinstance(like, Ragged):
        x = align(engine, x, like)
        if x.full.dim() - x.dim == like.full.dim() - like.dim:
            return x.with_full(x.full.expand_as(like.full), like.dim)
    elif isinstance(like, Ragged) and (behind := like.full.dim() - like.dim) and (x.dim() < behind or x.shape[x.dim() - behind] == 1):
        return like.with_full(x.expand_as(like.full))
    raise NotRagged("beside what has other rows")


def _pad(engine, target, arguments, keywords):
    x, pads = arguments[:2]
    if x.full.dim() - len(pads) // 2 <= x.dim and any(pads[2 * (x.full.dim() - 1 - x.dim):][:2]):
        raise NotRagged("with others in front or behind")
    return x.with_full(target(x.full, *arguments[1:], **keywords))


def _cat(engine, target, arguments, keywords):
    parts, dim = list(arguments[0]), (*arguments, keywords.get("dim", 0))[1]
    first = find_rows(parts)
    dim = wrap_dim(dim, first.full.dim())
    if dim != first.dim:
        parts = align_all(engine, parts)
        if not all(isinstance(part, Ragged) and part.dim == first.dim for part in parts):
            raise NotRagged("beside what has other rows")
        return first.with_full(torch.cat([part.full for part in parts], dim))
    joined = join(engine, parts, dim) if all(isinstance(part, Ragged) and part.dim == dim and part.part is None for part in parts) else None
    if joined is not None:
        full, valid, interval = joined
        return Ragged(full, dim, valid, engine.know_interval(engine.intern("between", *interval), interval), in_front=interval.start == 0)
    valid = torch.cat([part.valid if isinstance(part, Ragged) else torch.ones(part.shape[dim], dtype=torch.bool) for part in parts])
    key = engine.intern("cat", *(part.key if isinstance(part, Ragged) else part.shape[dim] for part in parts))
    return Ragged(torch.cat([plain(part) for part in parts], dim), dim, valid, f"cat{key}")


def _stack(engine, target, arguments, keywords):
    parts, dim = list(arguments[0]), (*arguments, keywords.get("dim", 0))[1]
    parts = align_all(engine, parts)
    first = find_rows(parts)
    if not all(isinstance(part, Ragged) and part.dim == first.dim for part in parts):
        raise NotRagged("beside what has other rows")
    dim = wrap_dim(dim, first.full.dim() + 1)
    return first.with_full(torch.stack([part.full for part in parts], dim), first.dim + (dim <= first.dim))


def _pieces(engine, target, arguments, keywords):
    """unbind, split, chunk: along other dimensions than that of the rows."""
    x = arguments[0]
    name = target._schema.name.removeprefix("aten::")
    bound = bind(target, arguments, keywords)
    dim = wrap_dim(bound["dim"], x.full.dim())
    if dim == x.dim:
        raise NotRagged("piece by piece")
    pieces = target(*plain_all(arguments), **keywords)
    if name == "unbind":
        return [x.of_axis(piece, x.dim - (dim < x.dim), axis) for axis, piece in enumerate(pieces)]
    return [x.with_full(piece, x.dim) for piece in pieces]


def _create(engine, target, arguments, keywords):
    """zeros, ones and their like with a size that is a count."""
    x = arguments[0]
    if isinstance(x, Ragged) and target._schema.name.endswith("_like"):
        return x.with_full(target(x.full, *arguments[1:], **keywords))
    sizes = next(value for value in arguments if isinstance(value, (list, tuple)) or isinstance(value, Count))
    if target._schema.name == "aten::eye":
        return _create_unit(target, arguments, keywords)
    if isinstance(sizes, Count):  # arange
        rows = sizes.rows
        if sizes.factor != 1 or sizes.offset or len(arguments) != 1:
            raise NotRagged("with such bounds")
        places = torch.arange(rows.bound) if rows.in_front else (rows.valid.to(torch.int64).cumsum(0) - 1).clamp(min=0)
        return Ragged(places.to(keywords.get("dtype") or torch.int64), 0, rows.valid, rows.key, in_front=rows.in_front)
    counts = [place for place, size in enumerate(sizes) if isinstance(size, Count)]
    full = target(*plain_all(arguments), **plain_all(keywords))
    if len(counts) > 1:
        if any(sizes[place].factor != 1 or sizes[place].offset for place in counts):
            raise NotRagged("in such numbers, twice")
        return grids.make(full, [axis._replace(dim=place) for place in counts for axis in grids.axes_of(sizes[place].rows)])
    if not counts:
        return full
    count = sizes[counts[0]]
    if count.factor == 1 and not count.offset:
        return Ragged(full, counts[0], count.rows.valid, count.rows.key, in_front=count.rows.in_front)
    valid = torch.arange(count.bound) < count.tensor()  # as many as there are with others behind them
    return Ragged(full, counts[0], valid, engine.intern("counted", count.rows.key, count.factor, count.offset), in_front=True)


def _create_unit(target, arguments, keywords):
    """`torch.eye(count)`."""
    counts = [value for value in arguments if isinstance(value, Count)]
    if len({count.rows.key for count in counts}) > 1 or any(count.factor != 1 or count.offset for count in counts) \
            or any(isinstance(value, int) for value in arguments):
        raise NotRagged("in such numbers")
    full = target(*plain_all(arguments), **keywords)
    (axis,) = grids.axes_of(counts[0].rows)
    return grids.make(full, [axis._replace(dim=0), axis._replace(dim=1)])


def _size(engine, target, arguments, keywords):
    x, dim = arguments
    if not isinstance(x, Ragged):
        return target(x, dim)
    return x.size() if wrap_dim(dim, x.full.dim()) == x.dim else x.full.shape[dim]


def _scalar_tensor(engine, target, arguments, keywords):
    return arguments[0].tensor().to(keywords.get("dtype") or torch.get_default_dtype())


_CREATORS = ("eye", "new_zeros", "new_ones", "new_full", "new_empty", "zeros", "ones", "full", "empty", "arange", "zeros_like", "ones_like",
             "full_like", "empty_like", "rand", "randn", "rand_like", "randn_like")
_VIEWS = ("view", "reshape", "_unsafe_view", "view_copy")
#: What takes sizes.
SIZED = {*_CREATORS, *_VIEWS, "expand", "repeat", "slice", "narrow"}

RULES = {
    "scalar_tensor": _scalar_tensor, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "select": _select, "slice": _slice, "narrow": _narrow,
    **dict.fromkeys(("transpose", "permute", "t", "numpy_T", "mT", "swapaxes", "swapdims"), _permute),
    **dict.fromkeys(_VIEWS, _view), "flatten": _flatten,
    "expand": _expand, "repeat": _repeat, "expand_as": _expand_as, "diff": _diff, **dict.fromkeys(("pad", "constant_pad_nd"), _pad), "cat": _cat, "concat": _cat, "stack": _stack,
    **dict.fromkeys(("unbind", "split", "split_with_sizes", "chunk"), _pieces),
    **dict.fromkeys(_CREATORS, _create),
    "sym_size": _size,
}
