# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that meet rows as a matrix, each with each:

    likeness = anchors[kept] @ others[found].T
    loss = F.cross_entropy(likeness, torch.arange(len(likeness)))

A `Grid` has all of them, along several dimensions of which each has its own rows that count. A sum over one of these dimensions leaves
rows along the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from .values import Count, NotRagged, Ragged, align, spread_over

__all__ = ["Axis", "Grid", "align_along", "axes_of", "count_dims", "expand", "is_grid", "make", "meet", "plain", "pointwise"]


class Axis(NamedTuple):
    """A dimension of rows."""

    dim: int
    valid: torch.Tensor
    key: Any
    in_front: bool

    def as_rows(self) -> Ragged:
        return Ragged(self.valid, 0, self.valid, self.key, in_front=self.in_front)


class Grid:
    """A tensor with several dimensions of rows."""

    def __init__(self, full: torch.Tensor, axes: Sequence[Axis]):
        self.full, self.axes = full, tuple(sorted(axes))

    def find_axis(self, dim: int) -> Axis | None:
        return next((axis for axis in self.axes if axis.dim == dim), None)

    def counts(self, axes: Sequence[Axis] | None = None) -> torch.Tensor:
        """Which elements count along these, to be broadcast with the tensor."""
        result = None
        for axis in self.axes if axes is None else axes:
            spread = spread_over(axis.valid, self.full.dim(), axis.dim)
            result = spread if result is None else result & spread
        return result

    def masked(self, value: Any, axes: Sequence[Axis] | None = None) -> torch.Tensor:
        return torch.where(self.counts(axes), self.full, torch.full((), value, dtype=self.full.dtype))


def is_grid(value: Any) -> bool:
    return isinstance(value, Grid)


def axes_of(value: Any) -> tuple[Axis, ...]:
    if isinstance(value, Ragged):
        return (Axis(value.dim, value.valid, value.key, value.in_front),)
    return value.axes if isinstance(value, Grid) else ()


def make(full: torch.Tensor, axes: Sequence[Axis]) -> Any:
    """Plain, rows or a grid, by how many dimensions of rows there are."""
    if not axes:
        return full
    if len(axes) > 1:
        return Grid(full, axes)
    (axis,) = axes
    return Ragged(full, axis.dim, axis.valid, axis.key, in_front=axis.in_front)


def plain(value: Any) -> Any:
    return value.full if isinstance(value, (Ragged, Grid)) else value.tensor() if isinstance(value, Count) else value


def count_dims(value: Any) -> int:
    return plain(value).dim()


def align_along(engine: Any, value: Any, axis: Axis, like: Axis) -> Any:
    if axis.key == like.key:
        return value
    rows = align(engine, Ragged(value.full, axis.dim, axis.valid, axis.key, in_front=axis.in_front), like.as_rows())
    return make(rows.full, [like._replace(dim=axis.dim) if other.dim == axis.dim else other for other in axes_of(value)])


def meet(engine: Any, leaves: list) -> tuple[list, list[Axis]]:
    """Operands that are broadcast together, without their rows, and the result's dimensions of rows."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, (Ragged, Grid, torch.Tensor))]
    rank = max(map(count_dims, tensors))
    found: dict[int, Axis] = {}  # by the distance from the end
    for leaf in tensors:
        for axis in axes_of(leaf):
            found.setdefault(count_dims(leaf) - axis.dim, axis)
    met = []
    for leaf in leaves:
        for axis in axes_of(leaf):
            leaf = align_along(engine, leaf, axis, found[count_dims(leaf) - axis.dim])
        own = {count_dims(leaf) - axis.dim for axis in axes_of(leaf)}
        for behind in found.keys() - own if isinstance(leaf, (Ragged, Grid, torch.Tensor)) else ():
            if count_dims(leaf) >= behind and plain(leaf).shape[count_dims(leaf) - behind] != 1:
                raise NotRagged("beside a tensor with as many rows")
        met.append(plain(leaf))
    return met, [axis._replace(dim=rank - behind) for behind, axis in found.items()]


def pointwise(engine, call_plain: Callable, arguments, keywords) -> Any:
    is_leaf = lambda value: isinstance(value, (Ragged, Grid, Count))
    leaves, spec = pytree.tree_flatten((arguments, keywords), is_leaf=is_leaf)
    leaves, axes = meet(engine, [leaf.tensor() if isinstance(leaf, Count) else leaf for leaf in leaves])
    return make(call_plain(*pytree.tree_unflatten(leaves, spec)), axes)


def expand(x: Any, sizes: list) -> Any:
    """Sizes that are counts make dimensions of rows."""
    full = plain(x)
    offset = len(sizes) - full.dim()
    axes = {axis.dim + offset: axis._replace(dim=axis.dim + offset) for axis in axes_of(x)}
    for place, size in enumerate(sizes):
        if isinstance(size, Count) and place not in axes:
            if size.factor != 1 or size.offset or place >= offset and full.shape[place - offset] != 1:
                raise NotRagged("beside a tensor with as many rows")
            axes[place] = axes_of(size.rows)[0]._replace(dim=place)
    sizes = [-1 if place in axes and place >= offset and full.shape[place - offset] != 1 else axes[place].valid.shape[0] if place in axes else size
             for place, size in enumerate(sizes)]
    return make(full.expand(sizes), list(axes.values()))
