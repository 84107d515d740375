# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of which some count, and how rows that were chosen apart meet."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

__all__ = ["Count", "NotRagged", "Part", "Ragged", "align", "align_all", "as_count", "bind", "compact", "fill_rows", "find_order", "find_rows", "find_whole", "front_rows", "is_ragged",
           "list_dims", "list_order", "number_among", "plain", "plain_all", "rank_of", "spread_over", "wrap_dim"]


class NotRagged(Exception):
    """An operator has no meaning here; what it is that it lacks."""


class Part(NamedTuple):
    """What rows are a part of: those of a mask of this shape, of which they vary along some axes alone."""

    key: Any
    valid: torch.Tensor
    shape: torch.Size
    axes: tuple[int, ...]


class Ragged:
    """A tensor of which the entries along `dim` count where `valid` says so; equal keys have the same `valid`. Each `alike` entries in
    a row count together, as where a mask of rows was expanded over their elements. The coordinates of a mask's elements know its
    `shape`, and their `axis` where they are those along one. A `part` stands for more rows, which are equal along other axes. Rows `in_front`
    have no others between them, so that their numbers are their places."""

    def __init__(self, full: torch.Tensor, dim: int, valid: torch.Tensor, key: Any, alike: int = 1,
                 shape: torch.Size | None = None, axis: int | None = None, part: Part | None = None, in_front: bool = False):
        self.full, self.dim, self.valid, self.key, self.alike = full, dim, valid, key, alike
        self.shape, self.axis, self.part, self.in_front = shape, axis, part, in_front

    @property
    def bound(self) -> int:
        return self.full.shape[self.dim]

    def with_full(self, full: torch.Tensor, dim: int | None = None) -> Ragged:
        return Ragged(full, self.dim if dim is None else dim, self.valid, self.key, self.alike, part=self.part, in_front=self.in_front)

    def widen(self) -> None:
        """All rows, where these are a part."""
        if self.part is None:
            return
        self.key, self.valid, shape, axes = self.part
        full = self.full.unflatten(self.dim, [shape[axis] for axis in axes])
        for axis in range(len(shape)):
            full = full if axis in axes else full.unsqueeze(self.dim + axis)
        behind = full.shape[self.dim + len(shape):]
        self.full = full.expand(*full.shape[:self.dim], *shape, *behind).flatten(self.dim, self.dim + len(shape) - 1)
        self.part = None

    def of_axis(self, full: torch.Tensor, dim: int, axis: int = 0) -> Ragged:
        """Elements of these; of all coordinates that are rows of them, those along one axis."""
        rows = self.with_full(full, dim)
        if self.shape is not None and full.dim() == 1:
            rows.shape = self.shape
            rows.axis = self.axis if self.axis is not None else axis % len(self.shape) if self.full.numel() == full.numel() * len(
                self.shape) else None
        return rows

    def spread(self, rank: int | None = None, dim: int | None = None) -> torch.Tensor:
        """`valid`, to be broadcast with the tensor."""
        return spread_over(self.valid, self.full.dim() if rank is None else rank, self.dim if dim is None else dim)

    def masked(self, value: float) -> torch.Tensor:
        return torch.where(self.spread(), self.full, torch.full((), value, dtype=self.full.dtype))

    def count(self) -> torch.Tensor:
        return self.valid.sum()

    def size(self) -> Count:
        return Count(self)


class Count:
    """How many rows count, times and plus numbers."""

    def __init__(self, rows: Ragged, factor: int = 1, offset: int = 0, number: Any = None):
        #: `number` is the key of the number of Python that it is, if any.
        self.rows, self.factor, self.offset, self.number = rows, factor, offset, number

    @property
    def bound(self) -> int:
        return self.rows.bound * self.factor + self.offset

    def tensor(self) -> torch.Tensor:
        count = self.rows.count()
        count = count * self.factor if self.factor != 1 else count
        return count + self.offset if self.offset else count


def front_rows(engine: Any, size: int, count: torch.Tensor, key: Any) -> Ragged:
    """The numbers of the first rows among so many; equal keys have equal counts."""
    places = torch.arange(size)
    return Ragged(places, 0, places < count, engine.intern("front", size, key), in_front=True)


def as_count(engine: Any, number: Any, is_clipped: bool = False) -> Count:
    """A number that follows from the data and has a bound, as a size; as the end of a slice it may be larger."""
    holds = (number.tensor >= 0) if is_clipped else (number.tensor >= 0) & (number.tensor <= number.most)
    engine.expect(holds, f"a size that follows from the data has to be at {'least 0' if is_clipped else f'most {number.most}'}", number)
    return Count(front_rows(engine, number.most, number.tensor, engine.key_of(number.tensor) if number.key is None else number.key),
                 number=engine.key_of_number(number))


def is_ragged(value: Any) -> bool:
    return isinstance(value, (Ragged, Count))


def spread_over(valid: torch.Tensor, rank: int, dim: int) -> torch.Tensor:
    return valid.reshape([-1 if place == dim else 1 for place in range(rank)])


def _lend_row(full: torch.Tensor, counts: torch.Tensor, dim: int) -> torch.Tensor:
    spread = spread_over(counts, full.dim(), dim)
    first = counts.to(torch.int64).argmax().reshape(1)
    row = torch.where(counts.any(), full.index_select(dim, first), torch.ones((), dtype=full.dtype))
    return torch.where(spread, full, row)


#: Floating-point rows that do not count become one that does, or ones where none does; which one makes no difference, so that a part
#: of a batch may take another.
_library = torch.library.Library("memopt", "FRAGMENT")
_library.define("fill_rows(Tensor x, Tensor counts, int dim) -> Tensor")
_library.impl("fill_rows", _lend_row, "CompositeExplicitAutograd")
torch.library.register_fake("memopt::fill_rows", lambda x, counts, dim: torch.empty_like(x, memory_format=torch.contiguous_format),
                            lib=_library)


def _leave_out(ctx: Any, gradient: torch.Tensor) -> tuple:
    return torch.where(spread_over(ctx.saved_tensors[0], gradient.dim(), ctx.dim), gradient, torch.zeros_like(gradient)), None, None


def _keep_counts(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    ctx.dim = inputs[2]
    ctx.save_for_backward(inputs[1])


torch.library.register_autograd("memopt::fill_rows", _leave_out, setup_context=_keep_counts, lib=_library)


def fill_rows(full: torch.Tensor, dim: int, valid: torch.Tensor) -> torch.Tensor:
    """Rows that do not count become such that all functions of the others are defined on them."""
    if full.is_floating_point():
        return torch.ops.memopt.fill_rows(full, valid, dim)
    return torch.where(spread_over(valid, full.dim(), dim), full, torch.zeros((), dtype=full.dtype))


def rank_of(value: Any) -> int:
    return value.full.dim() if isinstance(value, Ragged) else value.dim()


def plain(value: Any) -> Any:
    return value.full if isinstance(value, Ragged) else value.bound if isinstance(value, Count) else value


def plain_all(values: Any) -> Any:
    return pytree.tree_map_only((Ragged, Count), plain, values, is_leaf=is_ragged)


def find_rows(values: Any) -> Ragged:
    return next(value for value in pytree.tree_leaves(values) if isinstance(value, Ragged))


def wrap_dim(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


def list_order(target, arguments, rank: int) -> list[int]:
    """Where the dimensions of the result of a transposition come from."""
    name, order = target._schema.name.removeprefix("aten::"), list(range(rank))
    if name in ("transpose", "swapaxes", "swapdims"):
        a, b = (wrap_dim(dim, rank) for dim in arguments[1:3])
        order[a], order[b] = order[b], order[a]
    elif name == "permute":
        order = [wrap_dim(dim, rank) for dim in arguments[1]]
    else:  # t, mT, numpy_T
        order = order[::-1] if name in ("t", "numpy_T") else [*order[:-2], *order[-2:][::-1]]
    return order


def bind(target, arguments, keywords) -> dict[str, Any]:
    values = {parameter.name: parameter.default_value for parameter in target._schema.arguments if parameter.has_default_value()}
    values.update(zip((parameter.name for parameter in target._schema.arguments), arguments))
    return {**values, **keywords}


def list_dims(given: Any, rank: int) -> list[int]:
    if given is None or given == []:
        return list(range(rank))
    return [wrap_dim(dim, rank) for dim in (given if isinstance(given, (list, tuple)) else [given])]


def number_among(x: Ragged, places: torch.Tensor) -> torch.Tensor:
    """Of places among all rows, the numbers among those that count."""
    if x.in_front:
        return places
    rank = (x.valid.to(torch.int64).cumsum(0) - 1).clamp(min=0)
    return rank.index_select(0, places.reshape(-1)).reshape(places.shape)


# ----------------------------------------------------------------------------------------------------------
# Rows beside rows
# ----------------------------------------------------------------------------------------------------------

def find_order(x: Ragged) -> torch.Tensor:
    """Where the rows that count are, in their order, and then the others."""
    return torch.argsort((~x.valid).to(torch.int32), stable=True)


def compact(x: Ragged) -> torch.Tensor:
    """The rows that count in front."""
    return x.full if x.in_front else x.full.index_select(x.dim, find_order(x))


def find_whole(engine: Any, rows: Ragged, size: int) -> torch.Tensor:
    """Rows of which there are so many, as the sizes of other tensors say."""
    engine.expect(rows.count() == size, f"a number of rows that follows from the data has to be {size}, for the sizes of other tensors fix it",
                  rows)
    return rows.full if size == rows.bound else compact(rows).narrow(rows.dim, 0, size)


def align(engine: Any, x: Ragged, like: Ragged) -> Ragged:
    """The same rows, in the places that others have; PyTorch has an error for other numbers of rows, and this has NaN."""
    if x.key == like.key:
        return x
    rank = (like.valid.to(torch.int64).cumsum(0) - 1).clamp(0, x.bound - 1)
    full = compact(x).index_select(x.dim, rank)
    if full.is_floating_point():
        full = torch.where(x.count() == like.count(), full, torch.full((), float("nan"), dtype=full.dtype))
    return Ragged(fill_rows(full, x.dim, like.valid), x.dim, like.valid, like.key, in_front=like.in_front)


def align_all(engine: Any, values: list) -> list:
    rows = [value for value in values if isinstance(value, Ragged)]
    if len({value.key for value in rows}) > 1:
        for value in rows:
            value.widen()
    first = rows[0] if rows else None
    return values if first is None else [align(engine, value, first) if isinstance(value, Ragged) else value for value in values]
