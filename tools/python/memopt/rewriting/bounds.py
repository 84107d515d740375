# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Between which numbers the elements of integer tensors lie, whatever the data: a count of what holds among eight is at most eight. Such
a number may be a size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes

from ..internals import storage_of

__all__ = ["FEWEST", "ValueBounds", "kept_ranges"]

#: While a model is traced, a mask is taken to choose as many rows.
FEWEST = 2
Bounds = tuple[int, int]  #: The least and the largest.

_SAME = {"to", "_to_copy", "view", "reshape", "squeeze", "unsqueeze", "expand", "expand_as", "select", "slice", "index", "index_select", "gather",
         "clone", "detach", "alias", "max", "min", "amax", "amin", "flatten", "transpose", "permute", "t", "contiguous", "type_as", "sort",
         "topk", "narrow", "lift_fresh_copy"}
_SUMS = {"sum", "count_nonzero", "cumsum"}


def _take_all(found: list[int]) -> Bounds:
    return min(found), max(found)


_JOINS: dict[str, Callable[[Bounds, Bounds], Bounds]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]), "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: _take_all([x * y for x in a for y in b]),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])), "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "where": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])), "cat": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "stack": lambda a, b: (min(a[0], b[0]), max(a[1], b[1]))}


def _plain(value: Any) -> Any:
    """Of rows that were chosen by a mask all."""
    return getattr(value, "full", value)


class ValueBounds:
    """Of traced values, by identity."""

    def __init__(self):
        self._bounds: dict[int, tuple[torch.Tensor, Bounds]] = {}

    def know(self, value: torch.Tensor, least: int, most: int) -> None:
        self._bounds[id(value)] = value, (least, most)

    def get(self, value: Any) -> Bounds | None:
        value = _plain(value)
        if isinstance(value, bool) or not isinstance(value, (int, torch.Tensor)):
            return None
        if isinstance(value, int):
            return value, value
        if value.dtype is torch.bool:
            return 0, 1
        return self._bounds.get(id(value), (None, None))[1]

    def forget(self, storage: int) -> None:
        """Something that has this storage was written."""
        self._bounds = {number: (value, bounds) for number, (value, bounds) in self._bounds.items()
                        if storage_of(value) != storage}

    def note(self, target: Any, arguments: tuple, keywords: dict, result: Any) -> None:
        value = _plain(result[0] if isinstance(result, (tuple, list)) and result else result)
        if isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex() and value.dtype is not torch.bool:
            bounds = self._find(target._schema.name.removeprefix("aten::"), arguments, keywords, value)
            if bounds is not None:
                self._bounds[id(value)] = value, bounds

    def _find(self, name: str, arguments: tuple, keywords: dict, result: torch.Tensor) -> Bounds | None:
        arguments = tuple(map(_plain, arguments))
        given = arguments[1:] if name == "where" else arguments[0] if name in ("cat", "stack") else arguments
        if name in _JOINS and not keywords.get("alpha", 1) != 1:
            parts = [self.get(part) for part in given if isinstance(part, (int, torch.Tensor))]
            if not parts or None in parts or name not in ("cat", "stack") and len(parts) != 2:
                return None
            bounds = parts[0]
            for part in parts[1:]:
                bounds = _JOINS[name](bounds, part)
            return bounds
        first = arguments[0] if arguments else None
        if not isinstance(first, (int, torch.Tensor)):
            return None
        if name in ("argmax", "argmin", "arange"):
            if name == "arange":
                return (0, first) if isinstance(first, int) and len(arguments) == 1 else None
            return 0, max(first.numel() - 1, 0)
        bounds = self.get(first)
        if name == "clamp":
            low, high = (*arguments[1:], None, None)[:2]
            low, high = keywords.get("min", low), keywords.get("max", high)
            known = [bounds[0] if bounds else None, bounds[1] if bounds else None]
            if isinstance(low, int):
                known = [low if known[0] is None else max(known[0], low), None if known[1] is None else max(known[1], low)]
            if isinstance(high, int):
                known = [None if known[0] is None else min(known[0], high), high if known[1] is None else min(known[1], high)]
            return None if None in known else (known[0], known[1])
        if bounds is None:
            return None
        if name in _SAME:
            return bounds
        if name in _SUMS:
            count = first.numel() // max(result.numel(), 1) if name != "cumsum" else first.shape[arguments[1]] if first.dim() else 1
            low, high = (0, 1) if name == "count_nonzero" else bounds
            return min(low * count, low), max(high * count, high)
        if name in ("floor_divide", "div") and len(arguments) > 1 and isinstance(arguments[1], int) and arguments[1] > 0 and bounds[0] >= 0:
            return bounds[0] // arguments[1], bounds[1] // arguments[1]
        if name == "remainder" and isinstance(arguments[1], int) and arguments[1] > 0:
            return 0, arguments[1] - 1
        return None


@contextlib.contextmanager
def kept_ranges(condition: Any) -> Iterator[None]:
    """While PyTorch's trace takes it for granted that parts are so many together. As each of them has a few rows while the model is traced, it
    would conclude that none of them has nearly all."""
    symbols = symbolic_shapes.free_unbacked_symbols(condition) if isinstance(condition, torch.SymBool) else ()
    if len(symbols) < 2:
        yield
        return
    env = condition.node.shape_env
    before = {symbol: env.var_to_range[symbol] for symbol in symbols}
    yield
    env.var_to_range.update(before)
