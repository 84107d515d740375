# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops over the places where a mask holds, while a model is traced:

    hit = (expert_mask.sum((-1, -2)) > 0).nonzero()
    for expert in hit:
        ...

is a loop over all places, with a branch in each turn: whether the mask holds there. Of a mask that asks whether rows of another have
anything in them the branch asks that row, by all ways in which the turn may look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

__all__ = ["Hits"]

#: Of one argument these say where it holds.
_PLACES = {"nonzero", "argwhere", "where"}
_KEEPS = {"squeeze", "flatten", "view", "reshape", "ravel", "detach", "clone"}
_SUMS = {"sum", "any", "amax", "count_nonzero"}
_POSITIVE = {"gt", "greater", "__gt__", "ne", "__ne__", "not_equal"}


def _list_dims(x: torch.Tensor, arguments: Sequence, keywords: Mapping) -> list[int] | None:
    given = arguments[0] if arguments else keywords.get("dim")
    given = [given] if isinstance(given, int) else given
    if not isinstance(given, (list, tuple)) or keywords.get("keepdim") or len(arguments) > 1:
        return None
    return [dim % x.dim() for dim in given]


def _is_first_column(index: Any) -> bool:
    """`[:, 0]`"""
    return isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], slice) and index[0] == slice(None) and type(index[1]) is int and index[1] == 0


class Hits:
    """Which tensors say where a mask holds."""

    def __init__(self):
        #: By identity: what is known of a tensor, which is kept alive, and its version.
        self._rows: dict[int, tuple[torch.Tensor, int, tuple]] = {}
        self._places: dict[int, tuple[torch.Tensor, int, tuple]] = {}
        #: What a turn is given, with its place.
        self._turns: dict[int, tuple[torch.Tensor, int, int]] = {}

    def clear(self) -> None:
        self._rows.clear()
        self._places.clear()
        self._turns.clear()

    @staticmethod
    def _find(known: dict, x: Any) -> tuple | None:
        entry = known.get(id(x))
        return entry[2] if entry is not None and entry[1] == x._version else None

    def note(self, function: Callable, operands: Sequence, keywords: Mapping, result: Any) -> None:
        """After a call of PyTorch."""
        name = getattr(function, "__name__", "")
        x = operands[0] if operands else None
        if not isinstance(x, torch.Tensor):
            return
        if name in _SUMS and isinstance(result, torch.Tensor) and result.dim() == 1 and not x.is_floating_point():
            dims = _list_dims(x, operands[1:], keywords)
            left = [dim for dim in range(x.dim()) if dims is not None and dim not in dims]
            if len(left) == 1:
                self._rows[id(result)] = result, result._version, (x, x._version, left[0])
        elif name in _POSITIVE and len(operands) == 2 and type(operands[1]) is int and operands[1] == 0 and self._find(self._rows, x):
            self._rows[id(result)] = result, result._version, self._find(self._rows, x)
        elif name in _PLACES and len(operands) == 1 and x.dim() == 1:
            found = result if isinstance(result, torch.Tensor) else result[0]
            self._places[id(found)] = found, found._version, (x, x._version)
        elif (name in _KEEPS or name == "__getitem__" and _is_first_column(operands[1])) and isinstance(result, torch.Tensor) and self._find(self._places, x) is not None:
            self._places[id(result)] = result, result._version, self._find(self._places, x)

    def find_turns(self, places: Any, decide: Callable[[torch.Tensor], bool]) -> Iterator[torch.Tensor] | None:
        """The turns of a loop over such places; None of other loops."""
        found = self._find(self._places, places) if isinstance(places, torch.Tensor) and places.dim() in (1, 2) else None
        if found is None or found[0]._version != found[1]:
            return None
        return self._turn(found[0], places.dim() == 2, decide)

    def _turn(self, mask: torch.Tensor, has_dims: bool, decide: Callable[[torch.Tensor], bool]) -> Iterator[torch.Tensor]:
        rows = self._find(self._rows, mask)
        if rows is not None and rows[0]._version != rows[1]:
            rows = None
        for place in range(mask.shape[0]):
            if rows is None:
                holds = torch.select(mask, 0, place)
            else:
                x, dim = rows[0], rows[2]
                holds = torch.select(x, dim, place).any() | torch.ops.aten.slice.Tensor(x, dim, place, place + 1).any()
            if decide(holds):
                turn = torch.tensor([place] if has_dims else place)
                self._turns[id(turn)] = turn, turn._version, place
                yield turn

    def settle(self, index: Any) -> Any:
        """An index, `x[turn]` of a place in a tensor of its own, by the place that is known."""
        place = self._find(self._turns, index) if isinstance(index, torch.Tensor) else None
        return index if place is None else slice(place, place + 1) if index.dim() else place
