# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trained parameters that forward writes, as layers do that mask their weights or keep them within a norm:

    self.weight.data *= self.mask
    with torch.no_grad():
        self.weight.copy_(torch.renorm(self.weight, 2, 0, 1.0))

In PyTorch what is read behind such a write is the parameter, so its gradient is that of the parameter, and the optimizer goes on from what
was written. In the program the write goes to a copy, which has the gradient of the parameter, and which the parameter gets at the end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

import torch
from torch.export.graph_signature import InputKind, OutputKind

from ..errors import Refused
from ..rewriting.overwritten import WITH_GRADIENT_OF
from ..rewriting.regions import REGIONS, body_of, list_written
from ..user_code.places import place_of_node

__all__ = ["check_written_parameters", "keep_written_parameters"]

aten = torch.ops.aten
#: What they give is what they were given, where that has the type that is asked for.
_CASTS = {aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default}


def _looks_at(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a view, or the result of an operator in place, is a name for."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None or not node.args or not isinstance(node.args[0], torch.fx.Node) or all(
            result.alias_info is None for result in schema.returns):
        return None
    is_copy = node.target in _CASTS and node.meta["val"].dtype != node.args[0].meta["val"].dtype
    return None if is_copy else node.args[0]


def _list_written(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    if node.op == "call_function" and node.target in REGIONS:
        for place in list_written(body_of(node)):
            yield node.args[REGIONS[node.target] + place]
        return
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    for argument, value in zip(schema.arguments, node.args) if schema is not None and schema.is_mutable else ():
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, torch.fx.Node):
            yield value


def _is_other_name(node: torch.fx.Node) -> bool:
    """Whether it is all that it is a name for: the result of an operator in place, or of a region with such operators."""
    schema = getattr(node.target, "_schema", None)
    return node.target is operator.getitem or schema is not None and schema.is_mutable


def _list_results(write: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """The results of a write that are names for what it was given, with that."""
    if write.target not in REGIONS:
        if (source := _looks_at(write)) is not None:
            yield write, source
        return
    body = body_of(write)
    inputs, results = body.graph.find_nodes(op="placeholder"), body.graph.output_node().args[0]
    for user in write.users:
        inner, is_view = results[user.args[1]], False
        while isinstance(inner, torch.fx.Node) and inner not in inputs:
            is_view |= not _is_other_name(inner)
            inner = _looks_at(inner)
        if inner is None:
            continue
        source = write.args[REGIONS[write.target] + inputs.index(inner)]
        if is_view:
            raise Refused(f"{place_of_node(user) or 'the model'}: a part of '{source.name}' that was written under torch.no_grad() is read behind "
                          "it; take the part there")
        yield user, source


class _Writes:
    """The writes to one parameter, in the order of the program."""

    def __init__(self, graph: torch.fx.Graph, parameter: torch.fx.Node):
        self._graph, self._parameter = graph, parameter
        self._value = parameter  # what it is by now
        self._names = {parameter: parameter}  # what is a name for that, with what it looks at

    def keep(self) -> None:
        for node in list(self._graph.nodes):
            if any(written in self._names for written in _list_written(node)):
                self._write_to_copy(node)
            elif _looks_at(node) in self._names:
                self._names[node] = _looks_at(node)
        if self._value is not self._parameter:
            with self._graph.inserting_before(self._graph.output_node()):
                self._add(aten.copy_.default, self._add(aten.detach.default, self._parameter), self._value)

    def _add(self, function: Callable, *arguments: torch.fx.Node) -> torch.fx.Node:
        node = self._graph.call_function(function, arguments)
        node.meta = dict(self._parameter.meta)
        return node

    def _write_to_copy(self, write: torch.fx.Node) -> None:
        nodes = list(self._graph.nodes)
        behind = set(nodes[nodes.index(write) + 1:])
        self._names |= {result: source for result, source in _list_results(write) if source in self._names}
        with self._graph.inserting_before(write):
            copy = self._add(aten.clone.default, self._add(aten.detach.default, self._value))
            of_copy = {self._value: copy}
            write.args = torch.fx.node.map_arg(write.args, lambda name: self._find(name, of_copy) if name in self._names else name)
        with self._graph.inserting_after(write):
            written = self._add(WITH_GRADIENT_OF, copy, self._value)
        with self._graph.inserting_before(written.next):
            of_written = {self._value: written}
            for name in [name for name in self._names if any(user in behind for user in name.users)]:
                name.replace_all_uses_with(self._find(name, of_written), lambda user: user in behind)
        self._names = {new: of_written[self._names[old]] for old, new in of_written.items() if not _is_other_name(old)}
        self._value = written

    def _find(self, name: torch.fx.Node, made: dict[torch.fx.Node, torch.fx.Node]) -> torch.fx.Node:
        """Of a name for the parameter the same name for another value, which `made` has with its names; at the place of insertion."""
        if name not in made:
            source = self._names[name]
            other = self._find(source, made)
            made[name] = other if _is_other_name(name) else self._graph.node_copy(name, lambda node: other if node is source else node)
        return made[name]


def keep_written_parameters(program: torch.export.ExportedProgram) -> None:
    """In place."""
    trained = {spec.arg.name for spec in program.graph_signature.input_specs
               if spec.kind == InputKind.PARAMETER and program.state_dict[spec.target].requires_grad}
    for node in list(program.graph.nodes):
        if node.op == "placeholder" and node.name in trained:
            _Writes(program.graph, node).keep()
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
