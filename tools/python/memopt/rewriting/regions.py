# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the nodes of traced programs write to, and what they are other names for, as the schemas of their operators say; of regions without
gradients or with autocast what their operators do.

Tensors that operators have given back as they are, as `contiguous`, `to` and `dropout` do. In traced programs such a tensor has the
name of what they gave, and what reads it later reads that: if they stand in a region without gradients, which has none.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import internals
from .numbers import PART_AT

__all__ = ["REGIONS", "argument_of", "body_of", "find_original", "is_detached", "is_other_name", "is_region", "is_result", "list_names", "list_written", "list_written_inputs",
           "looks_at", "schema_of", "use_originals"]

aten = torch.ops.aten
#: What they give is what they were given, where that has the type that is asked for.
_CASTS = {aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default}
#: A copy where the elements lie otherwise than is asked for.
_MAY_COPY = {aten.contiguous.default, aten.reshape.default, aten.reshape_as.default, aten.flatten.using_ints, *_CASTS}
_DETACH = {aten.detach.default, aten.detach_.default}
#: Of regions, where the arguments of their graphs begin.
REGIONS = {torch.ops.higher_order.wrap_with_set_grad_enabled: 2, torch.ops.higher_order.wrap_with_autocast: 5}


def body_of(region: torch.fx.Node) -> torch.fx.GraphModule:
    return getattr(region.graph.owning_module, region.args[REGIONS[region.target] - 1].target)


def is_region(node: torch.fx.Node) -> bool:
    """Whether it is a region without gradients."""
    return node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and node.args[0] is False


def is_detached(node: torch.fx.Node) -> bool:
    """Whether it is a name without the gradient of what it is a name for."""
    return node.target in _DETACH or is_result(node) and is_region(node.args[0])


def schema_of(node: torch.fx.Node) -> torch.FunctionSchema | None:
    return getattr(node.target, "_schema", None) if node.op == "call_function" else None


def argument_of(node: torch.fx.Node, place: int, name: str) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def list_written(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The arguments that a node writes to, by place, by name (`out=`) and in lists (`torch._foreach_mul_`); of batch norms their running
    statistics; of a region those that its operators write to."""
    if node.op == "call_function" and node.target in REGIONS:
        yield from (node.args[REGIONS[node.target] + place] for place in sorted(list_written_inputs(body_of(node))))
        return
    if node.target is aten.batch_norm.default:  # whose schema does not say so
        yield from (value for value in node.args[3:5] if isinstance(value, torch.fx.Node) and node.args[5])
        return
    schema = schema_of(node)
    for place, parameter in enumerate(schema.arguments if schema is not None and schema.is_mutable else ()):
        if parameter.alias_info is not None and parameter.alias_info.is_write:
            value = argument_of(node, place, parameter.name)
            yield from (part for part in pytree.tree_leaves(value) if isinstance(part, torch.fx.Node))


def list_written_inputs(body: torch.fx.GraphModule) -> set[int]:
    """The places of the inputs that the nodes of a region write to."""
    places = {node: place for place, node in enumerate(body.graph.find_nodes(op="placeholder"))}
    found = set()
    for node in body.graph.nodes:
        for written in list_written(node):
            tensor = list_names(written)[-1]
            if tensor in places:
                found.add(places[tensor])
    return found


def looks_at(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a view, a part of a view in several parts, or the result of an operator that writes is a name for."""
    if is_result(node):
        *_, inner = _follow(node)
        region, inputs = node.args[0], body_of(node.args[0]).graph.find_nodes(op="placeholder")
        return region.args[REGIONS[region.target] + inputs.index(inner)] if inner in inputs else None
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return node.args[0] if looks_at(node.args[0]) is not None else None
    if node.target is PART_AT:
        return node.args[0]
    schema = schema_of(node)
    results = [result.alias_info.before_set for result in schema.returns if result.alias_info is not None] if schema is not None else []
    for place, parameter in enumerate(schema.arguments if results else ()):
        value, alias = argument_of(node, place, parameter.name), parameter.alias_info
        # Schemas name no set for a list of results; "*" is the mark of the argument that they are parts of.
        if isinstance(value, torch.fx.Node) and alias is not None and any(
                alias.before_set & names or not names and alias.after_set == {"*"} for names in results):
            return None if _is_copy(node, value) else value
    return None


def list_names(value: torch.fx.Node) -> list[torch.fx.Node]:
    """From a name for a tensor to the tensor."""
    names = [value]
    while (source := looks_at(names[-1])) is not None:
        names.append(source)
    return names


def _is_copy(node: torch.fx.Node, value: torch.fx.Node) -> bool:
    """Whether an operator that gives a name for what it is given where it can, `contiguous` or `reshape`, has made a copy."""
    if node.target in _CASTS and node.meta["val"].dtype != value.meta["val"].dtype:
        return True
    if node.target not in _MAY_COPY:
        return False
    values = [other.meta.get("val") for other in (node, value)]
    made, given = (internals.storage_of(other) if isinstance(other, torch.Tensor) else None for other in values)
    return made is not None and given is not None and made != given


def is_result(node: torch.fx.Node) -> bool:
    """Whether it is one of the results of a region."""
    return node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node) and node.args[0].target in REGIONS


def _follow(result: torch.fx.Node) -> Iterator[torch.fx.Node | None]:
    """What a region gives, what that looks at, and so on, to one of its inputs or None."""
    region, place = result.args
    inner = body_of(region).graph.output_node().args[0][place]
    yield inner
    while isinstance(inner, torch.fx.Node) and inner.op != "placeholder":
        inner = looks_at(inner)
        yield inner


def is_other_name(node: torch.fx.Node) -> bool:
    """Whether what `looks_at` finds is all of it: it is the result of an operator that writes, or of a region with such operators alone."""
    if is_result(node):
        *names, _ = _follow(node)
        return all(map(is_other_name, names))
    schema = schema_of(node)
    return schema is not None and schema.is_mutable


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
