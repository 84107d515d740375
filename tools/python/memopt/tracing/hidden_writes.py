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
from ..rewriting.regions import REGIONS, is_detached, is_other_name, is_region, is_result, list_written, looks_at
from ..user_code.places import place_of_node

__all__ = ["check_written_parameters", "copy_written_inputs", "keep_hidden_writes"]

aten = torch.ops.aten


def _list_results(write: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """The results of a write that are names for what it was given, with that."""
    for result in write.users if write.target in REGIONS else (write,):
        if (source := looks_at(result)) is not None:
            yield result, source


class _Writes:
    """The hidden writes to one tensor, in the order of the program."""

    def __init__(self, graph: torch.fx.Graph, tensor: torch.fx.Node):
        self._graph, self._tensor = graph, tensor
        self._value = tensor  # what it is by now
        self._names = {tensor: tensor}  # what is a name for that, with what it looks at
        self.copies: set[torch.fx.Node] = set()  # that are written in its place

    def keep(self, is_hidden: Callable[[torch.fx.Node, torch.fx.Node], bool]) -> torch.fx.Node:
        """What the tensor is at the end. `is_hidden` says so of a node and what it writes to."""
        for node in list(self._graph.nodes):
            if any(written in self._names and is_hidden(node, written) for written in list_written(node)):
                self._write_to_copy(node)
            elif (source := looks_at(node)) in self._names:
                self._names[node] = source
        return self._value

    def _add(self, function: Callable, *arguments: torch.fx.Node) -> torch.fx.Node:
        node = self._graph.call_function(function, arguments)
        node.meta = dict(self._tensor.meta)
        return node

    def _write_to_copy(self, write: torch.fx.Node) -> None:
        nodes = list(self._graph.nodes)
        behind = set(nodes[nodes.index(write) + 1:])
        self._names |= {result: source for result, source in _list_results(write) if source in self._names}
        with self._graph.inserting_before(write):
            copy = self._add(aten.clone.default, self._add(aten.detach.default, self._value))
            self.copies.add(copy)
            of_copy = {self._value: copy}
            write.args, write.kwargs = torch.fx.node.map_arg((write.args, write.kwargs),
                                                             lambda name: self._find(name, of_copy) if name in self._names else name)
        with self._graph.inserting_after(write):
            written = self._add(WITH_GRADIENT_OF, copy, self._value)
        with self._graph.inserting_before(written.next):
            of_written = {self._value: written}
            for name in [name for name in self._names if any(user in behind for user in name.users)]:
                name.replace_all_uses_with(self._find(name, of_written), lambda user: user in behind)
        self._names = {new: of_written[self._names[old]] for old, new in of_written.items() if not is_other_name(old)}
        self._value = written

    def _find(self, name: torch.fx.Node, made: dict[torch.fx.Node, torch.fx.Node]) -> torch.fx.Node:
        """Of a name for the tensor the same name for another value, which `made` has with its names; at the place of insertion."""
        if name not in made:
            source = self._names[name]
            if is_result(name) and not is_other_name(name):
                raise Refused(f"{place_of_node(name) or 'the model'}: a part of '{source.name}' that was taken under torch.no_grad() is read behind "
                              "a write to it; take the part there")
            other = self._find(source, made)
            made[name] = other if is_other_name(name) else self._graph.node_copy(name, lambda node: other if node is source else node)
        return made[name]


def _follow(value: torch.fx.Node) -> tuple[torch.fx.Node, bool]:
    """The tensor that a name is for, and whether a name on the way to it has no gradient."""
    detached = False
    while (source := looks_at(value)) is not None:
        detached |= is_detached(value)
        value = source
    return value, detached


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
            value = _Writes(graph, node).keep(lambda write, written: True)
            if value is not node:
                _write_back(graph, node, value)
    copies: set[torch.fx.Node] = set()
    while (tensor := _find_computed(graph, copies)) is not None:
        writes = _Writes(graph, tensor)
        writes.keep(_is_hidden)
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
