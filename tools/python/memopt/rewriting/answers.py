# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers about all elements at once, by the elements: `(x > 0).all()`, `bad.any()`, `labels.max() < classes`.

A check of such an answer mixes the samples of a batch, which micro-batches and ranks take apart. One that has to hold of every element
does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

__all__ = ["Answers"]

_EXTREMES = {"max": "max", "amax": "max", "min": "min", "amin": "min"}
_COMPARISONS = {"lt": torch.lt, "less": torch.lt, "le": torch.le, "less_equal": torch.le,
                "gt": torch.gt, "greater": torch.gt, "ge": torch.ge, "greater_equal": torch.ge}
#: Comparisons of an extreme that hold where they hold of all elements.
_OF_ALL = {"max": (torch.lt, torch.le), "min": (torch.gt, torch.ge)}


class Answers:
    """Which answers are known by their elements."""

    def __init__(self):
        #: By identity: the answer, which is kept alive; "all", "any", "max" or "min"; the elements, and their version.
        self._known: dict[int, tuple[torch.Tensor, str, torch.Tensor, int]] = {}

    def clear(self) -> None:
        self._known.clear()

    def note(self, function: Callable, operands: Sequence, result: object) -> None:
        """After a call of PyTorch without other arguments."""
        name = getattr(function, "__name__", "").strip("_")
        if not isinstance(result, torch.Tensor) or not operands or not isinstance(operands[0], torch.Tensor) or result.dim():
            return
        x = operands[0]
        before = self._known.get(id(x))
        if len(operands) == 1 and name in ("all", "any", "is_all_true"):
            self._remember(result, "any" if name == "any" else "all", x != 0)
        elif len(operands) == 1 and name in _EXTREMES:
            self._remember(result, _EXTREMES[name], x)
        elif len(operands) == 1 and name in ("logical_not", "invert", "bitwise_not") and before is not None:
            self._turn(before, result)
        elif name in ("cpu", "item", "detach", "reshape", "bool") and before is not None:
            self._known[id(result)] = (result, *before[1:])
        elif len(operands) == 2 and name in _COMPARISONS and before is not None:
            self._compare(before, _COMPARISONS[name], operands[1], result)

    def find(self, condition: torch.Tensor) -> torch.Tensor:
        """What has to hold of every element for the condition to hold; else the condition."""
        _, kind, elements, _ = self._known.get(id(condition), (None, "", None, 0))
        return elements if kind == "all" else condition

    def negate(self, condition: torch.Tensor) -> torch.Tensor:
        result = torch.logical_not(condition)
        if id(condition) in self._known:
            self._turn(self._known[id(condition)], result)
        return result

    def _remember(self, result: torch.Tensor, kind: str, elements: torch.Tensor) -> None:
        self._known[id(result)] = result, kind, elements, elements._version

    def _turn(self, before: tuple, result: torch.Tensor) -> None:
        _, kind, elements, _ = before
        if kind in ("all", "any"):
            self._remember(result, "any" if kind == "all" else "all", torch.logical_not(elements))

    def _compare(self, before: tuple, comparison: Callable, bound: object, result: torch.Tensor) -> None:
        _, kind, x, version = before
        if kind not in _OF_ALL or x._version != version or (isinstance(bound, torch.Tensor) and bound.dim()):
            return
        # Of a tensor with a NaN the extreme is none, so that PyTorch's comparison does not hold, where that of another element may: then a
        # step is refused that PyTorch makes, if its loss has not been NaN.
        self._remember(result, "all" if comparison in _OF_ALL[kind] else "any", comparison(x, bound))
