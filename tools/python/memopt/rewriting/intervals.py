# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices between numbers that follow from the data, as of tokens that are sorted by their expert:

    for expert, count in zip(self.experts, counts.tolist()):
        outputs.append(expert(tokens[start:start + count]))
        start += count
    tokens = torch.cat(outputs)

While a model is traced such a slice is the rows that a mask chooses, `tokens[between(start, end)]`, so that all rules for those hold. Slices
that follow each other without a gap are, put together again, the tensor that they were cut from, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .numbers import Number, find_length, follows_from_data

__all__ = ["BETWEEN", "Interval", "RULES", "count", "cut", "join", "split", "write"]

_library = torch.library.Library("memopt", "FRAGMENT")
#: The numbers from `start` up to `stop`, of those below `size`.
_library.define("between(SymInt start, SymInt stop, int size) -> Tensor")
_library.impl("between", lambda start, stop, size: (torch.arange(size) >= start) & (torch.arange(size) < stop), "CompositeExplicitAutograd")
torch.library.register_fake("memopt::between", lambda start, stop, size: torch.empty(size, dtype=torch.bool), lib=_library)
BETWEEN = torch.ops.memopt.between.default


class Interval(NamedTuple):
    """What rows are cut from: so many, from one number to another; equal keys are equal numbers."""

    size: int
    start: Any
    stop: Any


# ----------------------------------------------------------------------------------------------------------
# While a model is traced
# ----------------------------------------------------------------------------------------------------------

def _find_mask(size: Any, start: Any, stop: Any, step: Any) -> torch.Tensor | None:
    start, stop = 0 if start is None else start, size if stop is None else stop
    if step not in (None, 1) or not isinstance(size, int) or not (follows_from_data(start) or follows_from_data(stop)):
        return None
    start, stop = (value + size if isinstance(value, int) and value < 0 else value for value in (start, stop))
    return BETWEEN(start, stop, size)


def cut(x: torch.Tensor, dim: int = 0, start: Any = None, stop: Any = None, step: Any = 1) -> torch.Tensor | None:
    """A slice that begins at a number which follows from the data, of a length that does, too; None of other slices."""
    is_cut = follows_from_data(start) and find_length(slice(start, stop, step)) is None
    mask = _find_mask(x.shape[dim], start, stop, step) if is_cut else None
    return None if mask is None else torch.ops.aten.index.Tensor(x, [*[None] * (dim % x.dim()), mask])


def write(function: Callable, x: torch.Tensor, index: Any, value: Any) -> bool:
    """`x[start:stop] = value`; whether it is of that kind."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not isinstance(parts[0], slice) or not all(part == slice(None) for part in parts[1:] if not isinstance(part, torch.Tensor)) \
            or any(isinstance(part, torch.Tensor) for part in parts):
        return False
    mask = _find_mask(x.shape[0], parts[0].start, parts[0].stop, parts[0].step)
    if mask is None:
        return False
    function(x, mask, value)
    return True


def split(x: torch.Tensor, sizes: Sequence, dim: int = 0) -> list[torch.Tensor] | None:
    """In pieces of sizes that follow from the data; None of other sizes."""
    if not isinstance(sizes, (list, tuple)) or not any(map(follows_from_data, sizes)):
        return None
    start, pieces = 0, []
    for size in sizes:
        mask = _find_mask(x.shape[dim], start, start + size, 1)
        pieces.append(torch.ops.aten.index.Tensor(x, [*[None] * (dim % x.dim()), mask]) if mask is not None
                      else x.narrow(dim, start, size))
        start = start + size
    torch._check(start == x.shape[dim])
    return pieces


def count(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor | None:
    """`bincount`, of numbers below `minlength`: so many; None of others."""
    if not isinstance(minlength, int) or not minlength or not isinstance(x.shape[0], int):
        return None
    ones = torch.ones(x.shape, dtype=torch.int64) if weights is None else weights if weights.dtype is torch.float32 else weights.double()
    return torch.zeros(minlength, dtype=ones.dtype).index_add(0, x.long(), ones)


# ----------------------------------------------------------------------------------------------------------
# In the program
# ----------------------------------------------------------------------------------------------------------

def _between(engine, target, arguments, keywords):
    start, stop, size = arguments
    places = torch.arange(size)

    def take(number: Any) -> Any:
        number = number.tensor if isinstance(number, Number) else number.tensor() if hasattr(number, "rows") else number
        return torch.where(number < 0, number + size, number) if isinstance(number, torch.Tensor) else number
    mask = (places >= take(start)) & (places < take(stop))
    found = Interval(size, engine.key_of_number(start), engine.key_of_number(stop))
    engine.know_mask(mask, found)
    return mask


def join(engine: Any, parts: Sequence, dim: int) -> tuple[torch.Tensor, torch.Tensor, Interval] | None:
    """Of rows that follow each other without a gap: the rows in their places, which of them count, and from where to where they are."""
    found = [engine.find_interval(getattr(part, "key", None)) for part in parts]
    if None in found or any(a.stop != b.start or a.size != b.size for a, b in zip(found, found[1:])):
        return None
    full, valid = parts[0].full, parts[0].valid
    for part in parts[1:]:
        full, valid = torch.where(part.spread(), part.full, full), valid | part.valid
    return full, valid, Interval(found[0].size, found[0].start, found[-1].stop)


RULES = {"memopt::between": _between}
