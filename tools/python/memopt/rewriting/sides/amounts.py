# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers that follow from the data as sums of others, and what the conditions of branches say of them: `n == 0`, `start == end`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Amounts", "is_amount"]

#: What is multiplied by the constant part of a sum.
_ONE = "1"
_SAME = {"item", "_local_scalar_dense", "detach", "clone", "alias", "view", "reshape", "scalar_tensor", "to", "_to_copy", "lift_fresh",
         "contiguous", "squeeze"}
_OF_PYTHON = {operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.neg: "neg", torch.sym_not: "logical_not",
              **{getattr(operator, name): name for name in ("eq", "ne", "lt", "le", "gt", "ge")}}
_OPPOSITES = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_KEEP_COUNTS = {"sum", "cumsum", "unbind", "select", "view", "reshape", "to", "_to_copy", "detach", "clone", "index", "slice", "item",
                "scalar_tensor", "squeeze", "unsqueeze", "flatten", "alias", "lift_fresh", "contiguous", "max", "amax"}
_NO_LESS_THAN_ZERO = {"bincount", "one_hot", "zeros", "new_zeros", "zeros_like", "count_nonzero", "ones", "ones_like"}


def _name_of(node: torch.fx.Node) -> str:
    """ "add", of the functions of Python and of operators that write nothing."""
    if node.op != "call_function" or node.target in _OF_PYTHON:
        return _OF_PYTHON.get(node.target, "")
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None or schema.is_mutable else schema.name.removeprefix("aten::")


def is_amount(node: Any) -> bool:
    """Whether it is an integer, of Python or a tensor of one."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
    if isinstance(value, torch.Tensor):
        return not value.dim() and not value.is_floating_point() and not value.is_complex() and value.dtype is not torch.bool
    return isinstance(value, torch.SymInt) or type(value) is int


def _is_count(node: Any) -> bool:
    """Whether it is known to be nowhere below zero: how often something is there, or sums of that."""
    if not isinstance(node, torch.fx.Node):
        return isinstance(node, int) and node >= 0
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.dtype is torch.bool:
        return True
    name = getattr(getattr(node.target, "_schema", None), "name", "").removeprefix("aten::") if node.op == "call_function" else ""
    if name in _NO_LESS_THAN_ZERO:
        return all(name != "bincount" or argument is None for argument in node.args[1:2])
    if name.removesuffix("_") in ("scatter", "scatter_add", "index_add") and len(node.args) == 4:
        return _is_count(node.args[0]) and _is_count(node.args[3])
    inner = node.args[0] if node.args else None
    return (name in _KEEP_COUNTS or node.target is operator.getitem) and isinstance(inner, torch.fx.Node) and _is_count(inner)


class Amounts:
    """Integers by what they are sums of. `key_of` is equal for equal nodes; None of what another node writes to."""

    def __init__(self, key_of: Callable[[torch.fx.Node], Any]):
        self._key_of = key_of
        self._sums: dict[torch.fx.Node, dict[Any, int]] = {}
        #: What an amount is known to be.
        self._known: dict[Any, dict[Any, int]] = {}

    def find(self, value: Any) -> frozenset | None:
        """Equal for equal amounts; None of what is none."""
        return frozenset(self._sum(value).items()) if is_amount(value) else None

    def is_zero(self, value: Any) -> bool:
        return is_amount(value) and not self._sum(value)

    def are_equal(self, a: Any, b: Any) -> bool:
        return is_amount(a) and is_amount(b) and self._sum(a) == self._sum(b)

    def learn(self, condition: Any, holds: bool) -> None:
        """That a condition holds, or does not."""
        if not isinstance(condition, torch.fx.Node):
            return
        name = _name_of(condition)
        arguments = condition.args
        value = arguments[0].meta.get("val") if arguments and isinstance(arguments[0], torch.fx.Node) else None
        is_truth = isinstance(value, torch.SymBool) or isinstance(value, torch.Tensor) and value.dtype is torch.bool
        if condition.target is torch.sym_ite and arguments[1:] == (1, 0):
            self.learn(arguments[0], holds)
        elif name in ("logical_not", "bitwise_not"):
            self.learn(arguments[0], not holds)
        elif name in _SAME or is_truth and name == "ne" and arguments[1] == 0:
            self.learn(arguments[0], holds)
        elif name == "ne" and arguments[1] == 0 and isinstance(arguments[0], torch.fx.Node) and self._is_truth(arguments[0]):
            self.learn(arguments[0], holds)
        elif name in _OPPOSITES and all(map(is_amount, arguments[:2])):
            self._learn_comparison(name if holds else _OPPOSITES[name], *arguments[:2])

    @staticmethod
    def _is_truth(node: torch.fx.Node) -> bool:
        """Whether it is 1 or 0, of a condition."""
        while _name_of(node) in _SAME and isinstance(node.args[0], torch.fx.Node):
            node = node.args[0]
        return node.target is torch.sym_ite

    def learn_zero(self, value: torch.fx.Node) -> None:
        self._learn_zero(self._sum(value))

    def says_something(self, condition: Any, holds: bool) -> bool:
        """Whether a number would be known if a condition held, or did not."""
        fresh = Amounts(self._key_of)
        fresh.learn(condition, holds)
        return bool(fresh._known)

    def _learn_comparison(self, name: str, a: Any, b: Any) -> None:
        nothing = (("le", 0), ("lt", 1)) if _is_count(a) else ()
        if name == "eq" or (name, b) in nothing:
            self._learn_zero(self._subtract(self._sum(a), self._sum(0 if name != "eq" else b)))

    def _learn_zero(self, total: dict[Any, int]) -> None:
        atom = next((atom for atom in reversed(total) if atom != _ONE and abs(total[atom]) == 1), None)
        if atom is not None:
            self._known[atom] = {key: -count * total[atom] for key, count in total.items() if key != atom}
            self._sums.clear()

    @staticmethod
    def _subtract(a: dict[Any, int], b: dict[Any, int], times: int = 1) -> dict[Any, int]:
        total = dict(a)
        for atom, count in b.items():
            total[atom] = total.get(atom, 0) - times * count
        return {atom: count for atom, count in total.items() if count}

    def _sum(self, value: Any) -> dict[Any, int]:
        if not isinstance(value, torch.fx.Node):
            return {_ONE: int(value)} if value else {}
        if value not in self._sums:
            self._sums[value] = self._resolve(self._compute(value))
        return self._sums[value]

    def _resolve(self, total: dict[Any, int]) -> dict[Any, int]:
        while (atom := next((atom for atom in total if atom in self._known), None)) is not None:
            count = total[atom]
            total = self._subtract({key: number for key, number in total.items() if key != atom}, self._known[atom], -count)
        return total

    def _compute(self, node: torch.fx.Node) -> dict[Any, int]:
        key = self._key_of(node)
        if key is None:
            return {node: 1}
        name, arguments = _name_of(node), node.args
        if any(isinstance(argument, torch.fx.Node) and self._key_of(argument) is None for argument in arguments):
            return {key: 1}
        if name in ("add", "sub") and len(arguments) == 2 and not node.kwargs and all(map(is_amount, arguments)):
            return self._subtract(self._sum(arguments[0]), self._sum(arguments[1]), -1 if name == "add" else 1)
        if name == "neg" and is_amount(arguments[0]):
            return self._subtract({}, self._sum(arguments[0]))
        if name == "mul" and all(map(is_amount, arguments)):
            factor = next((other for other in arguments if type(other) is int), None)
            other = next((other for other in arguments if isinstance(other, torch.fx.Node)), None)
            if factor is not None and other is not None:
                return self._subtract({}, self._sum(other), -factor)
        if name in _SAME and is_amount(arguments[0]):
            return self._sum(arguments[0])
        return {key: 1}
