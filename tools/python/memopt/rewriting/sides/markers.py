# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What marks branches in a program, until it is known what becomes of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch.export.graph_signature import InputKind, OutputKind

from ...internals import storage_of
from .asserted import insert

__all__ = ["BEHIND", "BRANCH", "drop_ends", "drop_markers", "find_known_side", "find_loss", "find_shape", "finish_sides", "replace_loss"]

aten = torch.ops.aten
_library = torch.library.Library("memopt", "FRAGMENT")
#: The condition of a branch, and the loss behind all branches; both keep the others in the graph.
_library.define("branch(Tensor condition, int number) -> Tensor")
_library.impl("branch", lambda condition, number: condition.clone(), "CompositeExplicitAutograd")
_library.define("behind(Tensor loss, Tensor condition) -> Tensor")
_library.impl("behind", lambda loss, condition: loss.clone(), "CompositeExplicitAutograd")
BRANCH, BEHIND = torch.ops.memopt.branch.default, torch.ops.memopt.behind.default

#: The largest tensor that is looked at for a condition.
_MOST_KNOWN = 1 << 20


def drop_ends(program: torch.export.ExportedProgram) -> None:
    for node in list(program.graph.nodes):
        if node.op == "call_function" and node.target is BEHIND:
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)


def drop_markers(program: torch.export.ExportedProgram, numbers: Sequence[int]) -> None:
    for node in [node for node in program.graph.nodes if node.target is BRANCH and node.args[1] in numbers]:
        node.replace_all_uses_with(node.args[0])
        program.graph.erase_node(node)


def find_shape(value: torch.Tensor) -> list[int] | None:
    """None if it depends on the data."""
    shape = [size if isinstance(size, int) else size.node.maybe_as_int() for size in value.shape]
    return None if None in shape else shape


def find_known_side(program: torch.export.ExportedProgram) -> tuple[int, bool] | None:
    """Of the first branch whose condition follows from no data, its number and what the condition is."""
    if all(node.target is not BRANCH for node in program.graph.nodes):
        return None
    constants = {spec.arg.name: program.constants[spec.target] for spec in program.graph_signature.input_specs
                 if spec.kind == InputKind.CONSTANT_TENSOR}
    known: dict[torch.fx.Node, torch.Tensor] = {}

    def forget(written: torch.fx.Node) -> None:
        if written in known:
            storage = storage_of(known[written])
            for node in [node for node, value in known.items() if storage_of(value) == storage]:
                del known[node]

    for node in program.graph.nodes:
        value, schema = node.meta.get("val"), getattr(node.target, "_schema", None)
        if node.op == "placeholder" and node.name in constants and constants[node.name].numel() <= _MOST_KNOWN:
            known[node] = constants[node.name].clone()
        if node.op != "call_function":
            continue
        if node.target is BRANCH and node.args[0] in known:
            with torch._C.DisableTorchFunction():  # which would take it for a branch
                return node.args[1], bool(known[node.args[0]])
        is_known = (isinstance(node.target, torch._ops.OpOverload) and node.target is not BRANCH and isinstance(value, torch.Tensor)
                    and torch.Tag.nondeterministic_seeded not in node.target.tags and find_shape(value) is not None
                    and value.numel() <= _MOST_KNOWN and all(argument in known for argument in node.all_input_nodes))
        if is_known:
            arguments, keywords = torch.fx.node.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
            with torch.no_grad():
                known[node] = node.target(*arguments, **keywords)
        elif schema is not None and schema.is_mutable:
            for written in node.all_input_nodes:
                forget(written)
    return None


def find_loss(program: torch.export.ExportedProgram) -> int:
    """The first of the program's results that is no state."""
    return next(place for place, spec in enumerate(program.graph_signature.output_specs) if spec.kind == OutputKind.USER_OUTPUT)


def replace_loss(program: torch.export.ExportedProgram, loss: torch.fx.Node) -> None:
    output, place = program.graph.output_node(), find_loss(program)
    results = list(output.args[0])
    results[place] = loss
    output.args = (tuple(results),)
    spec = program.graph_signature.output_specs[place]
    spec.arg = type(spec.arg)(name=loss.name)


def finish_sides(program: torch.export.ExportedProgram, one_sided: Collection[int]) -> None:
    """Branches that have one side are checked: the loss is no number where the other holds. Markers are taken off."""
    graph = program.graph
    output = graph.output_node()
    loss = output.args[0][find_loss(program)]
    for node in [node for node in graph.nodes if node.target is BRANCH]:
        if node.args[1] in one_sided:
            with graph.inserting_before(output):
                zero = insert(graph, aten.where.Scalar, node, 0.0, float("nan"), like=node)
                zero = insert(graph, aten.to.dtype, zero, loss.meta["val"].dtype, like=node)
                checked = insert(graph, aten.add.Tensor, loss, zero, like=node)
            replace_loss(program, checked)
            loss = checked
    drop_markers(program, [node.args[1] for node in graph.nodes if node.target is BRANCH])
    program.graph_module.recompile()
