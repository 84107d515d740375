# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values with a gradient of their own (rewriting/formulas.py) on the way of a gradient that a model takes: autograd runs their formulas."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from ..regions import REGIONS
from .double_backward import FORWARDS

__all__ = ["is_hook", "run_formula", "stop"]


def stop(value: torch.Tensor) -> torch.Tensor:
    return torch.ops.memopt.stopped(value.detach())


class _Formula(torch.autograd.Function):
    """A value with a gradient of its own."""

    @staticmethod
    def forward(ctx, make, differentiate, *inputs):
        ctx.differentiate = differentiate
        return tuple(make())

    @staticmethod
    def backward(ctx, *gradients):
        return (None, None, *ctx.differentiate(gradients))


def is_hook(node: torch.fx.Node) -> bool:
    """Whether a value with a gradient of its own has it by hooks: it is what it was then, elsewhere what a Function has made."""
    return list(node.args[0]) == list(node.args[2])


def _list_formula(node: torch.fx.Node) -> list[torch.fx.Node]:
    """What computes the gradients of a formula, in the order of the program: all of it is behind the first mark."""
    marks, needed = set(node.args[1]), {node, *node.args[3]}
    found: list[torch.fx.Node] = []
    for other in itertools.takewhile(lambda other: marks, reversed(node.graph.nodes)):
        if other in needed and other is not node and other not in node.args[1]:
            found.append(other)
            needed.update(other.all_input_nodes)
        marks.discard(other)
    return found[::-1]


def _behind_detach(node: torch.fx.Node) -> torch.fx.Node:
    while node.target is torch.ops.aten.detach.default:
        node = node.args[0]
    return node


def run_formula(node: torch.fx.Node, known: dict[torch.fx.Node, Any], run: Callable[[torch.fx.GraphModule, list], Any]) -> list:
    """The results are those that the program has, for a formula that stood there twice would get a part of the gradient each time. Autograd
    runs it, and regions in it by `run`, with the gradients that come. Of a Function it may have gradients by inputs and outputs of forward;
    what forward has made besides has none."""
    values, incoming, inputs, given = node.args
    read, of_hook = set(map(_behind_detach, inputs)), is_hook(node)
    backward = _list_formula(node)
    formula = [other for other in backward if all(value in known or value in incoming for value in other.all_input_nodes)]
    own: dict[torch.fx.Node, Any] = {}

    def take(value: torch.fx.Node) -> Any:
        whole = _behind_detach(value)
        if value in own or whole in own:
            return own.get(value, own.get(whole))
        is_connected = of_hook or whole in read or value in backward or not isinstance(known[value], torch.Tensor)
        return known[whole if whole in read else value] if is_connected else stop(known[value])

    def differentiate(gradients: tuple) -> list:
        own.update(zip(incoming, gradients))
        own.update(zip(map(_behind_detach, values), results) if not of_hook else ())
        for other in formula:
            arguments, keywords = torch.fx.node.map_arg((other.args, dict(other.kwargs)), take)
            if other.target in REGIONS:
                body, *taken = arguments[REGIONS[other.target] - 1:]
                own[other] = run(body, taken)
            else:
                own[other] = FORWARDS.get(other.target, other.target)(*arguments, **keywords)
        return list(map(take, given))
    found = {result.args[1]: known[result] for result in node.users}
    old = [found.get(place, known[value]) for place, value in enumerate(values)]
    results = _Formula.apply(lambda: [value.detach() for value in old], differentiate, *(known[value] for value in inputs))
    return list(results)
