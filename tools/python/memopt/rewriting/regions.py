# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Regions of programs, without gradients or with autocast, and what they give back as it was given.

Tensors that operators have given back as they are, as `contiguous`, `to` and `dropout` do. In traced programs such a tensor has the
name of what they gave, and what reads it later reads that: if they stand in a region without gradients, which has none.
"""

from __future__ import annotations

import operator

import torch

__all__ = ["REGIONS", "body_of", "find_original", "use_originals"]

#: Of regions, where the arguments of their graphs begin.
REGIONS = {torch.ops.higher_order.wrap_with_set_grad_enabled: 2, torch.ops.higher_order.wrap_with_autocast: 5}


def body_of(region: torch.fx.Node) -> torch.fx.GraphModule:
    return getattr(region.graph.owning_module, region.args[REGIONS[region.target] - 1].target)


def _is_alike(value: object, other: object) -> bool:
    """By the words of sizes, as those that depend on data cannot be compared."""
    return (isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor) and value.dtype == other.dtype
            and str(value.shape) == str(other.shape))


def find_original(node: torch.fx.Node) -> torch.fx.Node:
    """A tensor that operators have given back as it is, as `contiguous`, `to` or `broadcast_tensors` do, has the name of what they
    gave, though others read it before them."""
    while True:
        made = node.args[0] if node.target is operator.getitem else node
        if made is not node and made.target in REGIONS:
            body = body_of(made)
            inner = body.graph.output_node().args[0][node.args[1]]
            inner = find_original(inner) if isinstance(inner, torch.fx.Node) else None
            if inner is None or inner.op != "placeholder":
                return node
            node = made.args[REGIONS[made.target] + body.graph.find_nodes(op="placeholder").index(inner)]
            continue
        if made.op != "call_function" or not isinstance(made.target, torch._ops.OpOverload) or made.target._schema.is_mutable:
            return node
        value = node.meta.get("val")
        alike = [other for other in made.all_input_nodes if _is_alike(value, other.meta.get("val"))]
        if not alike:
            return node
        arguments, keywords = torch.fx.node.map_arg((made.args, made.kwargs), lambda other: other.meta["val"])
        with value.fake_mode, torch.no_grad():
            result = made.target(*arguments, **keywords)
        result = result[node.args[1]] if made is not node else result
        found = next((other for other in alike if other.meta["val"] is result), None)
        if found is None:
            return node
        node = found


def use_originals(program: torch.export.ExportedProgram) -> None:
    """What regions were given and gave back is read from before them, in place."""
    for module in program.graph_module.modules():
        for node in list(module.graph.nodes) if isinstance(module, torch.fx.GraphModule) else ():
            if node.target is operator.getitem and node.args[0].target in REGIONS:
                original = find_original(node)
                if original is not node:
                    node.replace_all_uses_with(original)
