# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What goes into the sides of branches and comes out of them, marked by the condition under which PyTorch computes it: while a program
computes both sides, these marks are what is left of the branches."""

from __future__ import annotations

from collections.abc import Collection

import torch

__all__ = ["WHEN", "drop_edges", "mark_edges", "may_have_gradient"]

_library = torch.library.Library("memopt", "FRAGMENT")
#: A value, and through it a gradient, where the condition is what `holds` says.
_library.define("when(Tensor value, Tensor condition, bool holds) -> Tensor")
_library.impl("when", lambda value, condition, holds: value.clone(), "CompositeExplicitAutograd")
WHEN = torch.ops.memopt.when.default


def may_have_gradient(node: torch.fx.Node) -> bool:
    """Whether a gradient may come to it: it is, or has, numbers."""
    value = node.meta.get("val")
    return isinstance(value, (tuple, list)) or isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def mark_edges(user: torch.fx.Node, condition: torch.fx.Node, holds: bool, but: Collection[torch.fx.Node | int]) -> None:
    """Marks what a node takes, but some of it: values, or places of arguments."""
    def mark(value: torch.fx.Node) -> torch.fx.Node:
        if value in but or not isinstance(value.meta.get("val"), torch.Tensor) or not may_have_gradient(value):
            return value
        with user.graph.inserting_before(user):
            made = user.graph.call_function(WHEN, (value, condition, holds))
        made.meta.update(value.meta)
        return made
    user.args = tuple(argument if place in but else torch.fx.node.map_arg(argument, mark) for place, argument in enumerate(user.args))
    user.kwargs = torch.fx.node.map_arg(user.kwargs, mark)


def drop_edges(graph: torch.fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.target is WHEN:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
