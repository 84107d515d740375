# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that are the places of a mask, used as indices where the mask lies: the elements stay where they are.

    rows, = torch.where(mask)
    out.index_add_(0, rows, expert(x[rows]))

`x[rows]` is all of `x`, of which the rows count that the mask has, and index_add adds zeros to the others. So nothing is gathered, and
samples stay apart. Where a mask has an axis that the indices leave out, as that of the experts which a token has chosen, the rows stay as
many as `x` has until they meet others.
"""

from __future__ import annotations

import torch

from .values import Part, Ragged, fill_rows

__all__ = ["add_in_place", "put_in_place", "take_in_place"]


def _find_axes(indices: list, sizes: list[int]) -> tuple[Ragged, list[int]] | None:
    """The axes of one mask that indices are coordinates along, which have these sizes."""
    first = indices[0]
    if not all(isinstance(index, Ragged) and index.axis is not None and index.key == first.key and index.shape == first.shape
               and index.full.dim() == 1 for index in indices):
        return None
    axes = [index.axis for index in indices]
    return (first, axes) if len({*axes}) == len(axes) and [first.shape[axis] for axis in axes] == sizes else None


def take_in_place(x: torch.Tensor, dims: list[int], indices: list) -> Ragged | None:
    """`x[..., rows, columns, ...]`; None where other elements are meant."""
    found = _find_axes(indices, [x.shape[dim] for dim in dims])
    if found is None or dims != list(range(dims[0], dims[0] + len(dims))):
        return None
    first, axes = found
    at, shape = dims[0], first.shape
    order = sorted(range(len(axes)), key=axes.__getitem__)
    full = x.permute(*range(at), *(at + place for place in order), *range(at + len(axes), x.dim()))
    full = full.flatten(at, at + len(axes) - 1)
    others = [axis for axis in range(len(shape)) if axis not in axes]
    if not others:
        return Ragged(fill_rows(full, at, first.valid), at, first.valid, first.key)
    part = Part(first.key, first.valid, shape, tuple(sorted(axes)))
    valid = first.valid.reshape(shape).any(others[0]) if len(others) == 1 else first.valid.reshape(shape).to(torch.int64).sum(others) > 0
    valid = valid.flatten() if valid.dim() > 1 else valid
    return Ragged(fill_rows(full, at, valid), at, valid, ("part", first.key, part.axes), part=part)


def add_in_place(x: torch.Tensor, dim: int, index: Ragged, source: Ragged) -> torch.Tensor | None:
    """`x.index_add(dim, rows, source)`."""
    found = _find_axes([index], [x.shape[dim]])
    if found is None or source.key != index.key or source.dim != dim or source.full.dim() != x.dim():
        return None
    added = source.masked(0).unflatten(dim, index.shape)
    others = [dim + axis for axis in range(len(index.shape)) if axis != index.axis]
    return x + (added.sum(others) if others else added)


def put_in_place(x: torch.Tensor, indices: list, values: torch.Tensor | Ragged, accumulate: bool) -> torch.Tensor | None:
    """`x[rows, columns] = values`, where each element is written at most once."""
    found = _find_axes(indices, list(x.shape[:len(indices)]))
    if found is None or len(indices) != len(found[0].shape):
        return None
    first, axes = found
    count = len(axes)
    if isinstance(values, Ragged):
        if values.key != first.key or values.dim != 0 or values.full.dim() != x.dim() - count + 1:
            return None
        values = values.full

    def lay(rows: torch.Tensor) -> torch.Tensor:
        """By the dimensions of `x`."""
        return rows.unflatten(0, first.shape).permute(*axes, *range(count, rows.dim() + count - 1))

    values = values.to(x.dtype)
    behind = x.dim() - count
    if values.dim() == behind + 1:
        values = lay(values.expand(first.bound, *values.shape[1:]))
    elif values.dim() > behind + 1:
        return None
    counts = lay(first.valid).reshape(*x.shape[:count], *[1] * behind)
    return torch.where(counts, x + values if accumulate else values, x)
