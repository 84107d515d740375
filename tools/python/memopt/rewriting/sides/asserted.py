# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch.export asserts of numbers that follow from the data, where a branch decides whether it has to hold."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["assert_where", "insert", "is_asserted", "list_asserts_of", "list_differing_asserts"]

aten = torch.ops.aten
_library = torch.library.Library("memopt", "FRAGMENT")
#: What is asserted on one side of a branch.
_library.define("expected(Scalar condition, Tensor taken, str text) -> ()")
_library.impl("expected", lambda condition, taken, text: None, "CompositeExplicitAutograd")
torch.fx.node.has_side_effect(torch.ops.memopt.expected.default)
_EXPECTED = torch.ops.memopt.expected.default
_ASSERTIONS = {"aten::_assert_scalar", "memopt::expected", "aten::sym_constrain_range", "aten::sym_constrain_range_for_size",
               "aten::_assert_tensor_metadata"}


def is_asserted(node: torch.fx.Node) -> bool:
    """Whether it asserts something of sizes, or is there for that alone."""
    if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name in _ASSERTIONS:
        return True
    return node.op == "call_function" and isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, torch.SymFloat)) \
        and all(map(is_asserted, node.users))


def _list_asserts(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    return [node for node in program.graph.nodes if node.target in (aten._assert_scalar.default, _EXPECTED)]


def list_asserts_of(program: torch.export.ExportedProgram, body: set[torch.fx.Node]) -> list[torch.fx.Node]:
    """What is asserted of numbers that are made in the body."""
    inside = set(body)
    for node in program.graph.nodes:
        if is_asserted(node) and any(argument in inside for argument in node.all_input_nodes):
            inside.add(node)
    return [node for node in _list_asserts(program) if node in inside]


def list_differing_asserts(first, second, side: Any, pairs: Any) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """What one of two programs asserts and the other does not: torch.export asserts something of a number where that is made, wherever
    it is asked for."""
    def key_of(value: Any) -> Any:
        if not isinstance(value, torch.fx.Node):
            return repr(value)
        found = pairs.first_of.get(value, value)
        if found is not value or not is_asserted(value):
            return found
        return value.target, *map(key_of, value.args)

    def list_differing(program, body, others):
        known = {key_of(node.args[0]) for node in others}
        return [node for node in _list_asserts(program) if node in body or node.target is not _EXPECTED and key_of(node.args[0]) not in known]
    own, other = _list_asserts(first), _list_asserts(second)
    return (list_differing(first, list_asserts_of(first, set(side.body)), other),
            list_differing(second, list_asserts_of(second, set(side.other)), own))


def insert(graph: torch.fx.Graph, target: Any, *arguments: Any, like: torch.fx.Node | None = None, **keywords: Any) -> torch.fx.Node:
    """A node, with its value, as if it had been traced."""
    node = graph.call_function(target, arguments, keywords)
    values = torch.fx.node.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    mode = next(value.fake_mode for other in graph.nodes for value in pytree.tree_leaves(other.meta.get("val"))
                if isinstance(value, torch._subclasses.FakeTensor))
    with mode, torch.no_grad():
        node.meta["val"] = target(*values[0], **values[1])
    if like is not None:
        node.meta.update({key: like.meta[key] for key in ("stack_trace", "nn_module_stack") if key in like.meta})
    return node


def assert_where(graph: torch.fx.Graph, asserted: torch.fx.Node, taken: torch.fx.Node) -> torch.fx.Node:
    """What is asserted has to hold where its side is taken."""
    condition, *others, text = asserted.args
    order = {node: place for place, node in enumerate(graph.nodes)}
    with graph.inserting_after(max(asserted, taken, key=order.__getitem__)):
        end = graph.call_function(_EXPECTED, (condition, taken, text))
    end.meta.update(asserted.meta)
    with graph.inserting_before(end):
        for other in others:
            taken = insert(graph, aten.logical_and.default, taken, other, like=asserted)
    end.args = condition, taken, text
    graph.erase_node(asserted)
    return end
