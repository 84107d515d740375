# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes that autograd does not see: other values, with the gradient from before.

    self.weight.data *= self.mask
    with torch.no_grad():
        self.weight.copy_(torch.renorm(self.weight, 2, 0, 1.0))
        hidden[:, 0] = 0
    scale.detach().clamp_(min=1)

What is read behind such a write is what was written; its gradient is that of the tensor. In the program the write goes to a copy, which has
the gradient of the tensor, and by which all names for the tensor go on. A trained parameter gets the last copy at the end, from which the
optimizer goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.export.graph_signature import InputKind, OutputKind

from .. import internals
from ..errors import Refused
from ..rewriting.overwritten import WITH_GRADIENT_OF
from ..rewriting.regions import REGIONS, is_detached, is_other_name, is_region, is_result, list_names, list_written, looks_at
from ..rewriting.sides import UPDATED_WHERE
from ..user_code.places import place_of_node

__all__ = ["check_written_parameters", "copy_written_inputs", "keep_hidden_writes"]

aten = torch.ops.aten


def _list_results(write: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """The results of a write that are names for what it was given, with that."""
    for result in write.users if write.target in REGIONS else (write,):
        if (source := looks_at(result)) is not None:
            yield result, source


class _Writes:
    """The hidden writes to one tensor, in the order of the program.

    The tensor has sides: itself, and each `detach` of it or of a view. They have one value, and each has a gradient of its own: of what was
    written by its names, and of what it was before where another side was written."""

    def __init__(self, graph: torch.fx.Graph, tensor: torch.fx.Node):
        self._graph, self._tensor = graph, tensor
        self._values = {tensor: tensor}  # of sides what the whole is by now; others are as they were
        self._name_of = {tensor: tensor}  # of nodes the name for the tensor that they are
        self._sources: dict[torch.fx.Node, torch.fx.Node] = {}  # what a name looks at
        self._sides = {tensor: tensor}  # of names
        self.copies: set[torch.fx.Node] = set()  # that are written in its place

    def keep(self) -> torch.fx.Node:
        """What the tensor is at the end."""
        for node in list(self._graph.nodes):
            written = next((value for value in list_written(node) if value in self._name_of), None)
            side = None if written is None else self._sides[self._name_of[written]]
            if side is not None and (is_region(node) or side is not self._tensor or self._tensor.op == "placeholder"):
                self._write_to_copy(node, side)
            elif (source := looks_at(node)) in self._name_of:
                self._note(node, source)
        return self._values[self._tensor]

    def _note(self, node: torch.fx.Node, source: torch.fx.Node) -> None:
        self._name_of[node], self._sources[node] = node, self._name_of[source]
        self._sides[node] = node if _begins_side(node) else self._sides[self._sources[node]]

    def _add(self, function: Callable, *arguments: torch.fx.Node) -> torch.fx.Node:
        node = self._graph.call_function(function, arguments)
        node.meta = dict(self._tensor.meta)
        return node

    def _get_value(self, side: torch.fx.Node) -> torch.fx.Node:
        return self._values[side] if side in self._values else self._add(aten.detach.default, self._values[self._tensor])

    def _write_to_copy(self, write: torch.fx.Node, side: torch.fx.Node) -> None:
        nodes = list(self._graph.nodes)
        behind = set(nodes[nodes.index(write) + 1:])
        written, has_gradient = set(list_written(write)), not is_region(write) and side is not self._tensor
        for result, source in _list_results(write):
            if source in self._name_of:
                self._note(result, source)
        with self._graph.inserting_before(write):
            value = self._get_value(side)
            copy = self._add(aten.clone.default, value if has_gradient else self._add(aten.detach.default, value))
            found: dict[torch.fx.Node, torch.fx.Node] = {}
            write.args, write.kwargs = torch.fx.node.map_arg((write.args, write.kwargs), lambda node: self._find(
                self._name_of[node], copy, found) if node in self._name_of and (node in written or not has_gradient) else node)
        used = [node for node in self._name_of if any(user in behind for user in node.users)]
        with self._graph.inserting_before(write.next):
            self._values = {other: copy if has_gradient and other is side else self._add(WITH_GRADIENT_OF, copy, value)
                            for other, value in self._values.items()}
            if has_gradient:
                self._values[side] = copy
            self._read_anew(used, behind)
        self.copies |= {copy, *self._values.values()}

    def _read_anew(self, used: list[torch.fx.Node], behind: set[torch.fx.Node]) -> None:
        """What has a name for the tensor behind a write reads it there."""
        found: dict[torch.fx.Node, dict] = {}
        for node in used:
            name = self._name_of[node]
            side = self._sides[name]
            if side not in found:
                found[side], self._values[side] = {}, self._get_value(side)
            now = self._find(name, self._values[side], found[side])
            node.replace_all_uses_with(now, lambda user: user in behind and user.target is not UPDATED_WHERE)
            self._name_of[now] = name

    def _find(self, name: torch.fx.Node, whole: torch.fx.Node, made: dict[torch.fx.Node, torch.fx.Node]) -> torch.fx.Node:
        """Of a name for the tensor the same name for another value; at the place of insertion. `made` has those that are there."""
        if name is self._tensor:
            return whole
        if name not in made:
            if is_result(name) and not is_other_name(name):
                raise Refused(f"{place_of_node(name) or 'the model'}: a part of '{self._sources[name].name}' that was taken under "
                              "torch.no_grad() is read behind a write to it; take the part there")
            source = self._find(self._sources[name], whole, made)
            made[name] = source if is_other_name(name) or _begins_side(name) else self._graph.node_copy(
                name, lambda node: source if node in self._name_of else node)
        return made[name]


def _begins_side(node: torch.fx.Node) -> bool:
    return is_detached(node) and not is_other_name(node)


def _follow(value: torch.fx.Node) -> tuple[torch.fx.Node, bool]:
    """The tensor that a name is for, and whether a name on the way to it has no gradient."""
    *names, tensor = list_names(value)
    return tensor, any(map(is_detached, names))


def _is_hidden(node: torch.fx.Node, written: torch.fx.Node) -> bool:
    return is_region(node) or _follow(written)[1]


def _find_computed(graph: torch.fx.Graph, copies: set[torch.fx.Node]) -> torch.fx.Node | None:
    """A value that was computed and that a hidden write goes to, but for copies that were made for these."""
    for node in graph.nodes:
        for written in list_written(node):
            tensor, _ = _follow(written)
            value = tensor.meta.get("val")
            if tensor.op == "call_function" and tensor not in copies and internals.is_real(value) and _is_hidden(node, written):
                return tensor
    return None


def keep_hidden_writes(program: torch.export.ExportedProgram) -> None:
    """In place."""
    graph = program.graph
    trained = {spec.arg.name for spec in program.graph_signature.input_specs
               if spec.kind == InputKind.PARAMETER and program.state_dict[spec.target].requires_grad}
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in trained:
            value = _Writes(graph, node).keep()
            if value is not node:
                _write_back(graph, node, value)
    copies: set[torch.fx.Node] = set()
    while (tensor := _find_computed(graph, copies)) is not None:
        writes = _Writes(graph, tensor)
        writes.keep()
        copies |= writes.copies
    program.graph_module.recompile()


def _write_back(graph: torch.fx.Graph, parameter: torch.fx.Node, value: torch.fx.Node) -> None:
    with graph.inserting_before(graph.output_node()):
        target = graph.call_function(aten.detach.default, (parameter,))
        target.meta = dict(parameter.meta)
        graph.call_function(aten.copy_.default, (target, value)).meta = dict(parameter.meta)


def copy_written_inputs(program: torch.export.ExportedProgram) -> None:
    """What the model writes to the batch it writes to a copy: in place."""
    graph, inputs = program.graph, {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT}
    written = {_follow(value)[0] for node in graph.nodes for value in list_written(node)}
    for node in graph.find_nodes(op="placeholder"):
        if node in written and node.name in inputs:
            with graph.inserting_before(next(other for other in graph.nodes if other.op != "placeholder")):
                copied = graph.call_function(aten.clone.default, (node,))
            copied.meta = dict(node.meta)
            node.replace_all_uses_with(copied, lambda user: user is not copied)
    program.graph_module.recompile()


def check_written_parameters(program: torch.export.ExportedProgram) -> None:
    """Refuses, at the functional level, to write to a parameter what follows from the batch: parts of a batch would write each its own."""
    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT}
    nodes = {node.name: node for node in program.graph.nodes}
    refused = [spec.target for spec in program.graph_signature.output_specs if spec.kind == OutputKind.PARAMETER_MUTATION
               and any(node.name in inputs for node in _list_sources(nodes[spec.arg.name]))]
    if refused:
        raise Refused(f"the forward pass writes the parameter{'s' * (len(refused) > 1)} {', '.join(refused)} by what the batch says. Make "
                      "what forward keeps (a moving average, say) a buffer; where parameters get their first values from the first batch, let "
                      "one through the model in PyTorch before the step is compiled")


def _list_sources(node: torch.fx.Node) -> set[torch.fx.Node]:
    found, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return {node for node in found if node.op == "placeholder"}
