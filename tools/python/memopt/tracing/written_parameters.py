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

from collections.abc import Callable, Iterator

import torch
from torch.export.graph_signature import InputKind, OutputKind

from ..errors import Refused
from ..rewriting.overwritten import WITH_GRADIENT_OF
from ..rewriting.regions import REGIONS, is_other_name, is_result, list_written, looks_at
from ..user_code.places import place_of_node

__all__ = ["check_written_parameters", "keep_written_parameters"]

aten = torch.ops.aten


def _list_results(write: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """The results of a write that are names for what it was given, with that."""
    for result in write.users if write.target in REGIONS else (write,):
        if (source := looks_at(result)) is not None:
            yield result, source


class _Writes:
    """The writes to one parameter, in the order of the program."""

    def __init__(self, graph: torch.fx.Graph, parameter: torch.fx.Node):
        self._graph, self._parameter = graph, parameter
        self._value = parameter  # what it is by now
        self._names = {parameter: parameter}  # what is a name for that, with what it looks at

    def keep(self) -> None:
        for node in list(self._graph.nodes):
            if any(written in self._names for written in list_written(node)):
                self._write_to_copy(node)
            elif (source := looks_at(node)) in self._names:
                self._names[node] = source
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
        """Of a name for the parameter the same name for another value, which `made` has with its names; at the place of insertion."""
        if name not in made:
            source = self._names[name]
            if is_result(name) and not is_other_name(name):
                raise Refused(f"{place_of_node(name) or 'the model'}: a part of '{source.name}' that was taken under torch.no_grad() is read behind "
                              "a write to it; take the part there")
            other = self._find(source, made)
            made[name] = other if is_other_name(name) else self._graph.node_copy(name, lambda node: other if node is source else node)
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
