# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that a model reads on one side of a branch alone.

Where the other side is taken PyTorch has no gradient for them, and its optimizers leave them as they are. A step has a gradient of
zero, with which momentum and weight decay go on.
"""

from __future__ import annotations

import torch
from torch.export.graph_signature import InputKind

from ...user_code.places import place_of_node
from .nothing_changes import Nothing, find_root, name_of

__all__ = ["TracedParameters"]


def _may_have_gradient(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return name_of(node) != "detach" and (not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex())


def _list_behind(program: torch.export.ExportedProgram) -> set[torch.fx.Node]:
    """The nodes that a gradient of the loss comes to, by what is written in place as well."""
    writers: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in program.graph.nodes:
        for written in Nothing.list_written(node):
            writers.setdefault(find_root(written), []).append(node)
    waiting, seen = list(program.graph.output_node().all_input_nodes), set()
    while waiting:
        node = waiting.pop()
        if node in seen or not _may_have_gradient(node):
            continue
        seen.add(node)
        waiting += node.all_input_nodes
        waiting += writers.get(find_root(node), ())
    return seen


class TracedParameters:
    """Those that the loss depends on in each trace of a model."""

    def __init__(self):
        self._traces: list[set[str]] = []
        self._places: dict[str, str] = {}

    def add(self, program: torch.export.ExportedProgram) -> None:
        behind = _list_behind(program)
        names = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        found = set()
        for spec in program.graph_signature.input_specs:
            node = names.get(spec.arg.name)
            if spec.kind == InputKind.PARAMETER and node in behind:
                found.add(spec.target)
                self._places.setdefault(spec.target, next((place for place in map(place_of_node, node.users) if place), ""))
        self._traces.append(found)

    def list_one_sided(self) -> dict[str, str]:
        """The names of those that not all traces have, with the lines that read them."""
        if not self._traces:
            return {}
        always = set.intersection(*self._traces)
        return {name: self._places[name] for name in sorted(set.union(*self._traces) - always)}
