# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows chosen by a mask, whose number depends on the data.

    kept = labels >= 0
    loss = F.cross_entropy(logits[kept], labels[kept])

A `Ragged` value has all rows, in their places, and says which of them count. Operators that treat rows alike are applied to
all; sums leave out those that do not count; writes by index leave them alone. A row that does not count is filled with one that
does, so that what is computed from it is as finite, and so are its slopes, which are multiplied by zero.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["Count", "NotRagged", "RULES", "Ragged", "call", "is_ragged"]

aten = torch.ops.aten


class NotRagged(Exception):
    """An operator has no meaning here; what it is that it lacks."""


class Ragged:
    """A tensor of which the entries along `dim` count where `valid` says so; equal keys have the same `valid`."""

    def __init__(self, full: torch.Tensor, dim: int, valid: torch.Tensor, key: Any):
        self.full, self.dim, self.valid, self.key = full, dim, valid, key

    @property
    def bound(self) -> int:
        return self.full.shape[self.dim]

    def with_full(self, full: torch.Tensor, dim: int | None = None) -> Ragged:
        return Ragged(full, self.dim if dim is None else dim, self.valid, self.key)

    def spread(self, rank: int | None = None, dim: int | None = None) -> torch.Tensor:
        """`valid`, to be broadcast with the tensor."""
        return _spread(self.valid, self.full.dim() if rank is None else rank, self.dim if dim is None else dim)

    def masked(self, value: float) -> torch.Tensor:
        return torch.where(self.spread(), self.full, torch.full((), value, dtype=self.full.dtype))

    def count(self) -> torch.Tensor:
        return self.valid.sum()

    def size(self) -> Count:
        return Count(self)


class Count:
    """How many rows count, times and plus numbers."""

    def __init__(self, rows: Ragged, factor: int = 1, offset: int = 0):
        self.rows, self.factor, self.offset = rows, factor, offset

    @property
    def bound(self) -> int:
        return self.rows.bound * self.factor + self.offset

    def tensor(self) -> torch.Tensor:
        count = self.rows.count()
        count = count * self.factor if self.factor != 1 else count
        return count + self.offset if self.offset else count


def is_ragged(value: Any) -> bool:
    return isinstance(value, (Ragged, Count))


def _spread(valid: torch.Tensor, rank: int, dim: int) -> torch.Tensor:
    return valid.reshape([-1 if place == dim else 1 for place in range(rank)])


def _fill(full: torch.Tensor, dim: int, valid: torch.Tensor) -> torch.Tensor:
    """Rows that do not count become the first that does; where none does, ones of floating-point numbers and zeros of others."""
    spread = _spread(valid, full.dim(), dim)
    if not full.is_floating_point():
        return torch.where(spread, full, torch.zeros((), dtype=full.dtype))
    first = valid.to(torch.int64).argmax().reshape(1)
    row = torch.where(valid.any(), full.index_select(dim, first), torch.ones((), dtype=full.dtype))
    return torch.where(spread, full, row)


def _rank(value: Any) -> int:
    return value.full.dim() if isinstance(value, Ragged) else value.dim()


def _plain(value: Any) -> Any:
    return value.full if isinstance(value, Ragged) else value.bound if isinstance(value, Count) else value


def _plain_all(values: Any) -> Any:
    return pytree.tree_map_only((Ragged, Count), _plain, values, is_leaf=is_ragged)


def _find(values: Any) -> Ragged:
    return next(value for value in pytree.tree_leaves(values) if isinstance(value, Ragged))


def _wrap(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


# ----------------------------------------------------------------------------------------------------------
# Choosing
# ----------------------------------------------------------------------------------------------------------

def _choose(engine: Any, x: Any, mask: torch.Tensor, at: int) -> Ragged:
    """`x[mask]`, the mask over the dimensions from `at`."""
    rank = mask.dim()
    key = engine.intern("mask", engine.key_of(mask))
    valid = mask.flatten() if rank != 1 else mask
    if isinstance(x, Ragged):
        raise NotRagged("once more, by another mask")
    full = x.flatten(at, at + rank - 1) if rank != 1 else x
    return Ragged(_fill(full, at, valid), at, valid, key)


def _choose_again(engine: Any, x: Ragged, mask: Ragged, at: int) -> Ragged:
    if at != x.dim or mask.full.dim() != 1:
        raise NotRagged("by a mask over other dimensions")
    mask = _align(engine, mask, x)
    valid = x.valid & mask.full
    return Ragged(_fill(x.full, at, valid), at, valid, engine.intern("and", x.key, engine.key_of(mask.full)))


def _places(engine: Any, condition: Any) -> list[Ragged]:
    """The coordinates where a condition holds."""
    if isinstance(condition, Ragged):
        raise NotRagged("in places among them")
    mask = condition if condition.dtype is torch.bool else condition != 0
    key = engine.intern("mask", engine.key_of(condition) if condition.dtype is torch.bool else engine.key_of(mask))
    valid, flat = mask.flatten(), torch.arange(mask.numel())
    found, below = [], mask.numel()
    for size in mask.shape:
        below //= max(size, 1)
        place = flat if below == 1 else torch.div(flat, below, rounding_mode="floor")
        found.append(Ragged(place % size if size * below != mask.numel() else place, 0, valid, key))
    return found


def _where(engine, target, arguments, keywords):
    if len(arguments) == 1:
        return _places(engine, arguments[0])
    return _call_or(engine, target, arguments, keywords)


def _nonzero(engine, target, arguments, keywords):
    places = _places(engine, arguments[0])
    return places[0].with_full(torch.stack([place.full for place in places], 1), 0)


def _masked_select(engine, target, arguments, keywords):
    x, mask = arguments
    if is_ragged(x) or is_ragged(mask):
        x, mask = _align_all(engine, [x, mask])
        whole, rank = _find([x, mask]), max(_rank(x), _rank(mask))
        chosen = torch.broadcast_to(_plain(mask), torch.broadcast_shapes(_plain(x).shape, _plain(mask).shape))
        dim = whole.dim + rank - whole.full.dim()
        mask = chosen & _spread(whole.valid, rank, dim)
        x = _plain(x)
    x, mask = torch.broadcast_tensors(x, mask)
    return _choose(engine, x, mask, 0)


def _call_or(engine, target, arguments, keywords):
    if any(map(is_ragged, pytree.tree_leaves((arguments, keywords), is_leaf=is_ragged))):
        return call(engine, target, arguments, keywords)
    return target(*arguments, **keywords)


def _is_mask(value: Any) -> bool:
    return value is not None and _plain(value).dtype in (torch.bool, torch.uint8)



def _index(engine, target, arguments, keywords):
    x, indices = arguments
    masks = [place for place, index in enumerate(indices) if index is not None and _is_mask(index)]
    if not masks and not any(map(is_ragged, [x, *indices])):
        return target(*arguments, **keywords)
    if masks:
        others = [index for index in indices if index is not None]
        if len(others) != 1:
            return _index(engine, target, (x, [part for index in indices for part in
                                               (_places(engine, index) if index is not None and _is_mask(index) else [index])]), {})
        mask = indices[masks[0]]
        if isinstance(mask, Ragged) != isinstance(x, Ragged):
            raise NotRagged("by a mask of another kind")
        if isinstance(mask, Ragged):
            return _choose_again(engine, x, mask, masks[0])
        return _choose(engine, x, mask, masks[0])
    dims = [place for place, index in enumerate(indices) if index is not None]
    if isinstance(x, Ragged):
        if x.dim in dims:
            x = _compact(x)
        elif any(isinstance(index, Ragged) for index in indices):
            raise NotRagged("by other rows")
        else:
            if dims != list(range(dims[0], dims[-1] + 1)):
                raise NotRagged("along dimensions that lie apart")
            rank = max(indices[dim].dim() for dim in dims)
            moved = x.dim if x.dim < dims[0] else x.dim - len(dims) + rank
            return x.with_full(target(x.full, list(indices)), moved)
    indices = _align_all(engine, list(indices))
    first = next((index for index in indices if isinstance(index, Ragged)), None)
    if first is None:
        return target(_plain(x), list(indices))
    rank = max(_rank(index) for index in indices if index is not None)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    full = target(_plain(x), [_plain(index) for index in indices])
    dim = (dims[0] if adjacent else 0) + rank - first.full.dim() + first.dim
    return first.with_full(_fill(full, dim, first.valid), dim)


# ----------------------------------------------------------------------------------------------------------
# Rows beside rows
# ----------------------------------------------------------------------------------------------------------

def _order(x: Ragged) -> torch.Tensor:
    """Where the rows that count are, in their order, and then the others."""
    return torch.argsort((~x.valid).to(torch.int32), stable=True)


def _compact(x: Ragged) -> torch.Tensor:
    """The rows that count in front."""
    return x.full.index_select(x.dim, _order(x))


def _align(engine: Any, x: Ragged, like: Ragged) -> Ragged:
    """The same rows, in the places that others have."""
    if x.key == like.key:
        return x
    rank = (like.valid.to(torch.int64).cumsum(0) - 1).clamp(0, x.bound - 1)
    full = _compact(x).index_select(x.dim, rank)
    return Ragged(_fill(full, x.dim, like.valid), x.dim, like.valid, like.key)


def _align_all(engine: Any, values: list) -> list:
    first = next((value for value in values if isinstance(value, Ragged)), None)
    return values if first is None else [_align(engine, value, first) if isinstance(value, Ragged) else value for value in values]


def _pointwise(engine, target, arguments, keywords):
    leaves, spec = pytree.tree_flatten((arguments, keywords), is_leaf=is_ragged)
    leaves = [leaf.tensor() if isinstance(leaf, Count) else leaf for leaf in leaves]
    rows = [leaf for leaf in leaves if isinstance(leaf, Ragged)]
    if not rows:
        return _call_with_tensors(target, *pytree.tree_unflatten(leaves, spec))
    leaves = _align_all(engine, leaves)
    first = _find(leaves)
    rank = max(_rank(leaf) for leaf in leaves if isinstance(leaf, (Ragged, torch.Tensor)))
    behind = first.full.dim() - first.dim
    for leaf in leaves:
        if isinstance(leaf, Ragged) and leaf.full.dim() - leaf.dim != behind:
            raise NotRagged("along other dimensions")
        if isinstance(leaf, torch.Tensor) and leaf.dim() >= behind and leaf.shape[leaf.dim() - behind] != 1:
            raise NotRagged("beside a tensor with as many rows")
    arguments, keywords = pytree.tree_unflatten([_plain(leaf) for leaf in leaves], spec)
    return first.with_full(_call_with_tensors(target, arguments, keywords), rank - behind)


def _call_with_tensors(target, arguments, keywords):
    """An overload for numbers may have got tensors."""
    name = target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else None
    if name and any(isinstance(value, torch.Tensor) and "Tensor" not in str(parameter.type)
                    for parameter, value in zip(target._schema.arguments, arguments)):
        return getattr(torch, name)(*arguments, **keywords)
    return target(*arguments, **keywords)


# ----------------------------------------------------------------------------------------------------------
# Reductions
# ----------------------------------------------------------------------------------------------------------

def _lowest(dtype: torch.dtype) -> float:
    return False if dtype is torch.bool else -float("inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> float:
    return True if dtype is torch.bool else float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


#: What does not count becomes this.
_NEUTRAL = {"sum": lambda t: 0, "nansum": lambda t: 0, "prod": lambda t: 1, "any": lambda t: False, "all": lambda t: True,
            "amax": _lowest, "amin": _highest, "max": _lowest, "min": _highest, "argmax": _lowest, "argmin": _highest,
            "logsumexp": _lowest, "count_nonzero": lambda t: 0, "linalg_vector_norm": lambda t: 0, "norm": lambda t: 0,
            "cumsum": lambda t: 0, "softmax": _lowest, "log_softmax": _lowest, "_softmax": _lowest, "_log_softmax": _lowest}
_KEEPS_DIM = {"cumsum", "softmax", "log_softmax", "_softmax", "_log_softmax"}


def _bind(target, arguments, keywords) -> dict[str, Any]:
    values = {parameter.name: parameter.default_value for parameter in target._schema.arguments if parameter.has_default_value()}
    values.update(zip((parameter.name for parameter in target._schema.arguments), arguments))
    return {**values, **keywords}


def _list_dims(given: Any, rank: int) -> list[int]:
    if given is None or given == []:
        return list(range(rank))
    return [_wrap(dim, rank) for dim in (given if isinstance(given, (list, tuple)) else [given])]


def _reduce(engine, target, arguments, keywords):
    x, rest = arguments[0], arguments[1:]
    name = target._schema.name.removeprefix("aten::")
    bound = _bind(target, arguments, keywords)
    rank = x.full.dim()
    dims = _list_dims(bound.get("dim"), rank)
    if x.dim not in dims:
        result = target(x.full, *rest, **keywords)
        keeps = bound.get("keepdim", False) or name in _KEEPS_DIM
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
    if name not in _NEUTRAL:
        raise NotRagged()
    if name in ("argmax", "argmin"):
        raise NotRagged("whose places are counted")
    full = x.masked(_NEUTRAL[name](x.full.dtype))
    result = target(full, *rest, **keywords)
    if name in _KEEPS_DIM:
        return x.with_full(_fill(result, x.dim, x.valid))
    return result


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
    bound = _bind(target, arguments, keywords)
    reduction = bound["reduction"]
    names = [parameter.name for parameter in target._schema.arguments]
    rows = _align_all(engine, [bound[name] for name in names[:2]])
    first = _find(rows)
    bound.update(zip(names, rows))
    is_of_classes = name in ("cross_entropy_loss", "nll_loss", "nll_loss_nd") and not _plain(rows[1]).is_floating_point()
    if is_of_classes:
        if not isinstance(rows[1], Ragged) or first.dim != 0:
            raise NotRagged()
        labels = torch.where(rows[1].spread(), rows[1].full, torch.full((), bound["ignore_index"], dtype=torch.int64))
        bound.update({names[0]: _plain(rows[0]), names[1]: labels})
        result = target(**bound)
        return first.with_full(result) if reduction == 0 else result
    bound.update({parameter: _plain(value) for parameter, value in zip(names, rows)}, reduction=0)
    each = first.with_full(target(**bound), first.dim)
    if reduction == 0:
        return each
    total = each.masked(0).sum()
    return total if reduction == 2 else total / (each.count() * (each.full.numel() // each.bound)).to(total.dtype)


# ----------------------------------------------------------------------------------------------------------
# Writes by index
# ----------------------------------------------------------------------------------------------------------

def _index_put(engine, target, arguments, keywords):
    x, indices, values, accumulate = (*arguments, False)[:4]
    given = [index for index in indices if index is not None]
    is_in_place = target._schema.name.endswith("_")
    if isinstance(x, Ragged):
        raise NotRagged("into them")
    if not any(map(is_ragged, [*given, values])):
        return target(*arguments, **keywords)
    if len(given) == 1 and _is_mask(given[0]) and not isinstance(given[0], Ragged):
        result = _write_mask(engine, x, given[0], indices.index(given[0]) if given[0] is indices[0] else len(indices) - 1, values,
                             accumulate)
    else:
        result = _write_rows(engine, x, list(indices), values, accumulate)
    return x.copy_(result) if is_in_place else result


def _write_mask(engine, x, mask, at, values, accumulate):
    flat = x.flatten(at, at + mask.dim() - 1) if mask.dim() != 1 else x
    like = Ragged(flat, at, mask.flatten() if mask.dim() != 1 else mask, engine.intern("mask", engine.key_of(mask)))
    if isinstance(values, Ragged):
        values = _align(engine, values, like).full
    spread = like.spread()
    result = torch.where(spread, flat + values, flat) if accumulate else torch.where(spread, values.to(flat.dtype), flat)
    return result.reshape(x.shape)


def _write_rows(engine, x, indices, values, accumulate):
    if any(index is None for index in indices):
        raise NotRagged("along dimensions behind the first")
    rows = [*indices, values]
    rows = _align_all(engine, rows)
    first = _find(rows)
    *indices, values = map(_plain, rows)
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


def _scatter(engine, target, arguments, keywords):
    """index_add, scatter_add, scatter_reduce and their like: rows that do not count go into one behind the last."""
    x, dim, index, source, *rest = arguments
    if isinstance(x, Ragged):
        raise NotRagged("into them")
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    dim = _wrap(dim, x.dim())
    index, source = _align_all(engine, [index, source])
    first = _find([index, source])
    size = x.shape[dim]
    by_row = name.startswith("index_")
    rank = 1 if by_row else _rank(index)
    where = 0 if by_row else first.dim
    if isinstance(source, Ragged) and by_row and source.dim != dim:
        raise NotRagged("along another dimension")
    place = torch.where(_spread(first.valid, rank, where), _plain(index), torch.full((), size, dtype=torch.int64))
    padded = torch.cat([x, torch.zeros_like(x.narrow(dim, 0, 1))], dim)
    function = getattr(aten, name).__getattr__(target._overloadname)
    written = function(padded, dim, place, _plain(source), *rest, **keywords).narrow(dim, 0, size)
    return x.copy_(written) if target._schema.name.endswith("_") else written


# ----------------------------------------------------------------------------------------------------------
# Layers and shapes
# ----------------------------------------------------------------------------------------------------------

def _same_shape(engine, target, arguments, keywords):
    x = _find(arguments)
    return x.with_full(target(*_plain_all(arguments), **_plain_all(keywords)))


def _linear(engine, target, arguments, keywords):
    x = arguments[0]
    if not isinstance(x, Ragged) or x.dim == x.full.dim() - 1 or any(map(is_ragged, arguments[1:])):
        raise NotRagged("as weights")
    return _same_shape(engine, target, arguments, keywords)


def _matmul(engine, target, arguments, keywords):
    name = target._schema.name.removeprefix("aten::")
    if name == "addmm":
        bias, a, b = arguments
        return _pointwise(engine, aten.add.Tensor, (_matmul(engine, aten.matmul.default, (a, b), {}), bias), {})
    a, b = arguments
    rank_a, rank_b = _rank(a), _rank(b)
    in_a = isinstance(a, Ragged) and a.dim == rank_a - 1
    in_b = isinstance(b, Ragged) and b.dim == max(rank_b - 2, 0)
    if in_a and in_b:
        a, b = _align_all(engine, [a, b])
        return target(a.masked(0), b.masked(0))
    if in_a or in_b or isinstance(a, Ragged) and isinstance(b, Ragged):
        raise NotRagged("with what has other rows")
    full = target(_plain(a), _plain(b))
    if isinstance(a, Ragged):
        return a.with_full(full, full.dim() - (rank_a - a.dim) + (1 if rank_b == 1 else 0))
    return b.with_full(full, full.dim() - (rank_b - b.dim) + (1 if rank_a == 1 and b.dim < rank_b - 2 else 0))


def _normalize(engine, target, arguments, keywords):
    """layer_norm, rms_norm: the dimensions behind are normalized."""
    x, shape = arguments[:2]
    if x.dim >= x.full.dim() - len(shape):
        raise NotRagged("over the rows")
    return _same_shape(engine, target, arguments, keywords)


def _by_sample(engine, target, arguments, keywords):
    x = arguments[0]
    if x.dim != 0 or any(isinstance(value, Ragged) for value in pytree.tree_leaves(arguments[1:], is_leaf=is_ragged)):
        raise NotRagged()
    return _same_shape(engine, target, arguments, keywords)


def _unsqueeze(engine, target, arguments, keywords):
    x, dim = arguments
    dim = _wrap(dim, x.full.dim() + 1)
    return x.with_full(target(x.full, dim), x.dim + (dim <= x.dim))


def _squeeze(engine, target, arguments, keywords):
    x, *rest = arguments
    rank = x.full.dim()
    dims = _list_dims(rest[0], rank) if rest else list(range(rank))
    dims = [dim for dim in dims if dim != x.dim and x.full.shape[dim] == 1]
    return x.with_full(x.full.squeeze(dims), x.dim - sum(dim < x.dim for dim in dims))


def _select(engine, target, arguments, keywords):
    x, dim, index = arguments
    dim = _wrap(dim, x.full.dim())
    if dim == x.dim:
        return _compact(x).select(dim, index)
    return x.with_full(target(x.full, dim, index), x.dim - (dim < x.dim))


def _slice(engine, target, arguments, keywords):
    x, dim, start, end, step = (*arguments, *(0, None, None, 1)[len(arguments) - 1:])[:5]
    if isinstance(x, Ragged) and _wrap(dim, x.full.dim()) != x.dim:
        return x.with_full(target(x.full, dim, start, end, step))
    if isinstance(x, Ragged) and not start and (end is None or isinstance(end, int) and end >= x.bound) and step == 1:
        return x
    raise NotRagged("a slice of them")


def _permute(engine, target, arguments, keywords):
    x = arguments[0]
    rank = x.full.dim()
    order = list(range(rank))
    name = target._schema.name.removeprefix("aten::")
    if name in ("transpose", "swapaxes", "swapdims"):
        a, b = (_wrap(dim, rank) for dim in arguments[1:3])
        order[a], order[b] = order[b], order[a]
    elif name == "permute":
        order = [_wrap(dim, rank) for dim in arguments[1]]
    else:  # t, mT, numpy_T
        order = order[::-1] if name in ("t", "numpy_T") else [*order[:-2], *order[-2:][::-1]]
    return x.with_full(x.full.permute(order), order.index(x.dim))


def _view(engine, target, arguments, keywords):
    x, sizes = arguments[0], list(arguments[1])
    if not isinstance(x, Ragged):
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
            return x.with_full(full, dim)
        if after == before and size != 1 and size % x.bound == 0:  # rows with what lies behind them
            valid = x.valid[:, None].expand(x.bound, size // x.bound).reshape(-1)
            return Ragged(full, dim, valid, engine.intern("flat", x.key, size // x.bound))
        after *= size
    raise NotRagged("in another shape")


def _flatten(engine, target, arguments, keywords):
    x, start, end = (*arguments, *(0, -1)[len(arguments) - 1:])[:3]
    return _reshape(engine, x, list(x.full.flatten(start, end).shape))


def _expand(engine, target, arguments, keywords):
    x, sizes = arguments[0], list(arguments[1])
    if isinstance(x, Ragged):
        offset = len(sizes) - x.full.dim()
        sizes = [size.bound if isinstance(size, Count) else size for size in sizes]
        sizes[x.dim + offset] = -1
        return x.with_full(x.full.expand(sizes), x.dim + offset)
    dim = next(place for place, size in enumerate(sizes) if isinstance(size, Count))
    count = sizes[dim]
    return count.rows.with_full(x.expand([_plain(size) for size in sizes]), dim)


def _cat(engine, target, arguments, keywords):
    parts, dim = list(arguments[0]), (*arguments, keywords.get("dim", 0))[1]
    first = _find(parts)
    dim = _wrap(dim, first.full.dim())
    if dim != first.dim:
        parts = _align_all(engine, parts)
        if not all(isinstance(part, Ragged) and part.dim == first.dim for part in parts):
            raise NotRagged("beside what has other rows")
        return first.with_full(torch.cat([part.full for part in parts], dim))
    valid = torch.cat([part.valid if isinstance(part, Ragged) else torch.ones(part.shape[dim], dtype=torch.bool) for part in parts])
    key = engine.intern("cat", *(part.key if isinstance(part, Ragged) else part.shape[dim] for part in parts))
    return Ragged(torch.cat([_plain(part) for part in parts], dim), dim, valid, f"cat{key}")


def _stack(engine, target, arguments, keywords):
    parts, dim = list(arguments[0]), (*arguments, keywords.get("dim", 0))[1]
    parts = _align_all(engine, parts)
    first = _find(parts)
    if not all(isinstance(part, Ragged) and part.dim == first.dim for part in parts):
        raise NotRagged("beside what has other rows")
    dim = _wrap(dim, first.full.dim() + 1)
    return first.with_full(torch.stack([part.full for part in parts], dim), first.dim + (dim <= first.dim))


def _pieces(engine, target, arguments, keywords):
    """unbind, split, chunk: along other dimensions than that of the rows."""
    x = arguments[0]
    name = target._schema.name.removeprefix("aten::")
    bound = _bind(target, arguments, keywords)
    dim = _wrap(bound["dim"], x.full.dim())
    if dim == x.dim:
        raise NotRagged("piece by piece")
    pieces = target(*_plain_all(arguments), **keywords)
    return [x.with_full(piece, x.dim - (name == "unbind" and dim < x.dim)) for piece in pieces]


def _take(engine, target, arguments, keywords):
    """gather, index_select, embedding."""
    name = target._schema.name.removeprefix("aten::")
    if name == "embedding":
        table, index = arguments[:2]
        return index.with_full(target(table, index.full, *arguments[2:], **keywords))
    x, dim, index = arguments[:3]
    dim = _wrap(dim, _rank(x))
    if isinstance(x, Ragged) and x.dim == dim:
        x = _compact(x)
    if name == "index_select":
        if isinstance(x, Ragged):
            if isinstance(index, Ragged):
                raise NotRagged("by other rows")
            return x.with_full(target(x.full, dim, index))
        if not isinstance(index, Ragged):
            return target(x, dim, index)
        full = target(x, dim, index.full)
        return index.with_full(_fill(full, dim, index.valid), dim)
    if isinstance(x, Ragged) and isinstance(index, Ragged):
        x, index = _align_all(engine, [x, index])
    found = _find([x, index])
    if isinstance(x, Ragged) and not isinstance(index, Ragged):
        raise NotRagged("by fewer indices")
    return found.with_full(target(_plain(x), dim, _plain(index), *arguments[3:], **keywords))


def _create(engine, target, arguments, keywords):
    """zeros, ones and their like with a size that is a count."""
    x = arguments[0]
    if isinstance(x, Ragged) and target._schema.name.endswith("_like"):
        return x.with_full(target(x.full, *arguments[1:], **keywords))
    sizes = next(value for value in arguments if isinstance(value, (list, tuple)) or isinstance(value, Count))
    if isinstance(sizes, Count):  # arange
        rows = sizes.rows
        if sizes.factor != 1 or sizes.offset or len(arguments) != 1:
            raise NotRagged("with such bounds")
        places = (rows.valid.to(torch.int64).cumsum(0) - 1).clamp(min=0)
        return Ragged(places.to(keywords.get("dtype") or torch.int64), 0, rows.valid, rows.key)
    counts = [place for place, size in enumerate(sizes) if isinstance(size, Count)]
    if len(counts) > 1:
        raise NotRagged("twice")
    full = target(*_plain_all(arguments), **_plain_all(keywords))
    if not counts:
        return full
    rows = sizes[counts[0]].rows
    if sizes[counts[0]].bound != rows.bound:
        raise NotRagged("with such a size")
    return Ragged(full, counts[0], rows.valid, rows.key)


def _size(engine, target, arguments, keywords):
    x, dim = arguments
    if not isinstance(x, Ragged):
        return target(x, dim)
    return x.size() if _wrap(dim, x.full.dim()) == x.dim else x.full.shape[dim]


def _one_hot(engine, target, arguments, keywords):
    x, classes = arguments
    if classes < 1:
        raise NotRagged("without a number of classes")
    return x.with_full(target(x.full, classes))


_LIKE_ROWS = {
    **dict.fromkeys(_NEUTRAL, _reduce), **dict.fromkeys(("mean", "var", "std"), _reduce),
    **dict.fromkeys(("cross_entropy_loss", "nll_loss", "nll_loss_nd", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
                     "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss", "poisson_nll_loss"),
                    _loss),
    **dict.fromkeys(("index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "scatter",
                     "scatter_", "index_copy", "index_copy_", "index_reduce", "index_reduce_"), _scatter),
    **dict.fromkeys(("clone", "contiguous", "to", "_to_copy", "detach", "detach_", "alias", "dropout", "native_dropout", "lift_fresh_copy", "clone_",
                     "feature_dropout", "bernoulli"), _same_shape),
    "linear": _linear, **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot", "addmm"), _matmul),
    **dict.fromkeys(("layer_norm", "rms_norm"), _normalize),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "group_norm", "max_pool2d", "avg_pool2d", "max_pool1d",
                     "avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool1d", "instance_norm_"), _by_sample),
    "unsqueeze": _unsqueeze, "squeeze": _squeeze, "select": _select, "slice": _slice,
    **dict.fromkeys(("transpose", "permute", "t", "numpy_T", "mT", "swapaxes", "swapdims"), _permute),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "view_copy"), _view), "flatten": _flatten,
    "expand": _expand, "cat": _cat, "concat": _cat, "stack": _stack,
    **dict.fromkeys(("unbind", "split", "split_with_sizes", "chunk"), _pieces),
    **dict.fromkeys(("gather", "index_select", "embedding"), _take),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty", "zeros", "ones", "full", "empty", "arange", "zeros_like",
                     "ones_like", "full_like", "empty_like", "rand", "randn", "rand_like", "randn_like"), _create),
    "one_hot": _one_hot, "sym_size": _size,
}
_ARITHMETIC = {operator.add: torch.add, operator.sub: torch.sub, operator.mul: torch.mul, operator.truediv: torch.true_divide,
               operator.floordiv: torch.floor_divide, torch.sym_float: lambda value: value.to(torch.get_default_dtype())}
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
    if name == "_assert_scalar" or name.startswith("sym_constrain_range"):
        return None
    rule = _LIKE_ROWS.get(name)
    if rule is not None:
        return rule(engine, target, arguments, keywords)
    if torch.Tag.pointwise in target.tags or name in ("where", "masked_fill", "masked_fill_", "clamp", "rsub", "nan_to_num"):
        return _pointwise(engine, target, arguments, keywords)
    raise NotRagged()


#: Operators that make rows, whatever they are called with.
RULES = {"aten::where": _where, "aten::nonzero": _nonzero, "aten::argwhere": _nonzero, "aten::nonzero_numpy": lambda e, t, a, k: _places(e, a[0]),
         "aten::masked_select": _masked_select, "aten::index": _index, "aten::index_put": _index_put, "aten::index_put_": _index_put,
         "aten::_assert_scalar": lambda e, t, a, k: None,
         "aten::sym_constrain_range_for_size": lambda e, t, a, k: None, "aten::sym_constrain_range": lambda e, t, a, k: None}
