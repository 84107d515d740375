# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes to parameters on one side of a branch, as of layers that take their first values from their first batch:

    if not self.initialized:
        self.scale.data.copy_(1 / x.std(0))
        self.initialized.fill_(1)

In a step only the optimizer writes parameters, so the program has the other side alone.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch.export.graph_signature import InputKind

from ..regions import REGIONS, list_written
from .nothing_changes import find_root

__all__ = ["ADVICE", "find_writing_branch"]

ADVICE = "If they get their first values there, let a batch through the model in PyTorch, and compile the step then"


def _list_writes(module: torch.fx.GraphModule) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """The nodes that write to what a graph is given, with that; graphs of operators such as torch.cond write as well."""
    for node in module.graph.nodes:
        for written in list_written(node):
            yield node, find_root(written)
        if node.op != "call_function" or not isinstance(node.target, torch._ops.HigherOrderOperator) or node.target in REGIONS:
            continue
        for place, argument in enumerate(node.args):
            region = operator.attrgetter(argument.target)(module) if isinstance(argument, torch.fx.Node) and argument.op == "get_attr" else None
            if not isinstance(region, torch.fx.GraphModule):
                continue
            given = [inner for inner in region.graph.nodes if inner.op == "placeholder"]
            operands = node.args[place + 1:]
            for _, root in _list_writes(region):
                if root in given and given.index(root) < len(operands) and isinstance(operands[given.index(root)], torch.fx.Node):
                    yield node, find_root(operands[given.index(root)])


def find_writing_branch(program: torch.export.ExportedProgram) -> tuple[int, list[str]] | None:
    """The number of the first branch behind which trained parameters are written, and their names."""
    trained = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs
               if spec.kind == InputKind.PARAMETER and program.state_dict[spec.target].requires_grad}
    written = {}
    for node, root in _list_writes(program.graph_module):
        if root.op == "placeholder" and root.name in trained:
            written.setdefault(node, []).append(trained[root.name])
    number, names = None, []
    for node in program.graph.nodes:
        if node.target is torch.ops.memopt.branch.default:
            if names:
                break
            number = node.args[1]
        elif number is not None:
            names += written.get(node, ())
    return (number, list(dict.fromkeys(names))) if names else None
