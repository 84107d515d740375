# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Regions without gradients, `torch.no_grad()`, in the programs of torch.export: they are there after tracing and gone after the
decompositions, so a `detach` behind each result of theirs says the same."""

from __future__ import annotations

import itertools

import torch
from torch.export.graph_signature import InputKind
from torch.overrides import TorchFunctionMode

from .. import internals
from ..errors import Refused
from ..rewriting.overwritten import WITH_GRADIENT_OF
from ..rewriting.regions import REGIONS, body_of, is_other_name, list_written, list_written_inputs, looks_at, schema_of
from ..rewriting.sides.markers import BRANCH
from ..user_code.places import place_of_node

__all__ = ["detach_behind", "detached_regions", "has_graphs", "inline_branching_regions", "keep_stopped_gradients", "keep_written_gradients"]


class detached_regions(TorchFunctionMode):
    """While entered, results of `torch.no_grad()` are detached one by one: of programs with `torch.cond` and its like,
    torch.export loses the regions."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if torch.is_grad_enabled() or function is torch.Tensor.detach:
            return result
        is_new = lambda value: internals.is_real(value) and not value.requires_grad and not any(value is other for other in args)
        return internals.map_tensors(lambda value: value.detach() if is_new(value) else value, result) if isinstance(
            result, (torch.Tensor, tuple, list)) else result


def has_graphs(program: torch.export.ExportedProgram) -> bool:
    """Whether operators with graphs are among its nodes."""
    return any(isinstance(node.target, torch._ops.HigherOrderOperator) and not node.target.name().startswith("wrap_with")
               for node in program.graph_module.graph.nodes)


def _is_region(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and node.args[0] is False


def _find_written(value: torch.fx.Node) -> torch.fx.Node:
    """What a value is that operators in place have written over, in this graph or in regions of it."""
    while is_other_name(value) and (source := looks_at(value)) is not None:
        value = source
    return value


_CREATORS = {"zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full",
             "new_empty"}


def _is_bare(graph: torch.fx.Graph, region: torch.fx.Node, value: torch.fx.Node) -> bool:
    """Whether it was made of nothing, or is a copy of what is detached, and was not written to before the region, and so has no gradient of
    its own; nor looked at before by a view that is used behind."""
    schema = schema_of(value)
    is_copy = value.target is torch.ops.aten.clone.default and value.args[0].target is torch.ops.aten.detach.default
    if schema is None or not is_copy and schema.name.removeprefix("aten::") not in _CREATORS:
        return False
    same = {value}  # with its views
    for node in itertools.takewhile(lambda node: node is not region, graph.nodes):
        if any(written in same for written in list_written(node)):
            return False
        if looks_at(node) in same:
            same.add(node)
    before = {*itertools.takewhile(lambda node: node is not region, graph.nodes), region}
    return all(user in before for view in same - {value} for user in view.users)


def _stop_behind(graph: torch.fx.Graph, region: torch.fx.Node, value: torch.fx.Node) -> None:
    """What is read of a value behind a region that wrote it has no gradient: a copy of it is read, and written from there on."""
    nodes = list(graph.nodes)
    behind = set(nodes[nodes.index(region) + 1:])
    with graph.inserting_after(region):
        stopped = _detach(graph, value)
    with graph.inserting_after(stopped):
        copied = graph.call_function(torch.ops.aten.clone.default, (stopped,))
    copied.meta = dict(stopped.meta)
    value.replace_all_uses_with(copied, lambda user: user in behind)


def _check_hidden(program: torch.export.ExportedProgram, region: torch.fx.Node) -> list[torch.fx.Node]:
    """What a region writes over that has no gradient of its own, and none behind it; what has one is refused."""
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    bare = []
    for value in list_written(region):
        root = _find_written(value)
        if value.meta["val"].is_floating_point() and root is value and _is_bare(program.graph_module.graph, region, value):
            bare.append(value)
        elif value.meta["val"].is_floating_point() and kinds.get(root.name) not in (InputKind.BUFFER, InputKind.PARAMETER):
            raise Refused(f"'{value.name}' is written over under torch.no_grad(), which hides from its gradient what is "
                          "computed; write x = x + (f(x) - x).detach() instead")
    return bare


def keep_stopped_gradients(program: torch.export.ExportedProgram) -> None:
    """Detaches what comes out of regions without gradients, and what they read, for they may write that to a part of a tensor: in place."""
    for node in list(program.graph_module.graph.nodes):
        if node.op != "call_function" or not _is_region(node):
            continue
        region = body_of(node)
        for value in _check_hidden(program, node):
            _stop_behind(program.graph_module.graph, node, value)
        _detach_inputs(region)
        (output,) = (n for n in region.graph.nodes if n.op == "output")
        with region.graph.inserting_before(output):
            output.args = (torch.fx.node.map_arg(output.args[0], lambda value: _detach(region.graph, value)),)
        region.recompile()


def _detach_inputs(body: torch.fx.GraphModule) -> None:
    """What a region reads is detached where it is: on the side of a branch that reads it, and in front of none that does not."""
    written = list_written_inputs(body)
    for place, value in enumerate(body.graph.find_nodes(op="placeholder")):
        for user in list(value.users) if place not in written else ():
            with body.graph.inserting_before(user):
                user.replace_input_with(value, _detach(body.graph, value))


def _has_branches(module: torch.fx.GraphModule) -> bool:
    return any(node.target is BRANCH for part in module.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes)


def _changes_nothing(region: torch.fx.Node) -> bool:
    """`torch.autocast(..., enabled=False)` outside of another region, and one for devices that the trace is not on."""
    return region.target is torch.ops.higher_order.wrap_with_autocast and (region.args[0] != "cpu" or not region.args[2])


def inline_branching_regions(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Branches that stand in regions without gradients stand in the program itself, in place: the region's operators see what they read
    detached. So does what stands in regions of autocast that change nothing."""
    graph = program.graph_module.graph
    node = next(iter(graph.nodes))
    while node.op != "output":  # what was in a region comes next
        following = node.next
        if node.op == "call_function" and (_changes_nothing(node) or _is_region(node) and _has_branches(body_of(node))):
            before = node.prev
            _inline(program, node)
            following = before.next
        node = following
    for name, module in program.graph_module.named_modules():
        for node in module.graph.nodes if name and isinstance(module, torch.fx.GraphModule) else ():
            if node.target is BRANCH:
                raise Refused(f"{place_of_node(node) or 'the model'}: a branch that depends on the data inside of torch.autocast, or of torch.cond "
                              "and its like, is not supported; compute both sides and choose by torch.where")
    program.graph_module.recompile()
    return program


def _inline(program: torch.export.ExportedProgram, region: torch.fx.Node) -> None:
    module, graph, begin = program.graph_module, program.graph_module.graph, REGIONS[region.target]
    get_body, body, operands = region.args[begin - 1], body_of(region), region.args[begin:]
    bare = _check_hidden(program, region) if _is_region(region) else []
    if _is_region(region):
        _detach_inputs(body)
    known = dict(zip(body.graph.find_nodes(op="placeholder"), operands))
    with graph.inserting_before(region):
        for inner in body.graph.nodes:
            if inner.op == "get_attr":
                setattr(module, f"{get_body.target}_{inner.target}", getattr(body, inner.target))
                known[inner] = graph.get_attr(f"{get_body.target}_{inner.target}")
            elif inner.op == "call_function":
                known[inner] = graph.node_copy(inner, known.__getitem__)
        results = torch.fx.node.map_arg(body.graph.output_node().args[0], known.__getitem__)
    for value in bare:
        _stop_behind(graph, region, value)
    for user in list(region.users):
        user.replace_all_uses_with(results[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(region)
    if not get_body.users:
        graph.erase_node(get_body)
        delattr(module, get_body.target)


def _list_views(value: torch.fx.Node) -> list[torch.fx.Node]:
    """Down to what writes to a value write to: the tensor, a view of it, a view of that, and so on."""
    views = [value]
    while views[0].target not in _DETACH and not is_other_name(views[0]) and (source := looks_at(views[0])) is not None:
        views.insert(0, source)
    return views


_DETACH = (torch.ops.aten.detach.default, torch.ops.aten.detach_.default)


def detach_behind(program: torch.export.ExportedProgram) -> None:
    """`x.detach_()` takes the gradient from what reads x later, by that name: in place."""
    for module in program.graph_module.modules():
        for node in list(module.graph.nodes) if isinstance(module, torch.fx.GraphModule) else ():
            if node.target is torch.ops.aten.detach_.default:
                node.target, places = torch.ops.aten.detach.default, {other: place for place, other in enumerate(module.graph.nodes)}
                node.args[0].replace_all_uses_with(node, lambda user: places[user] > places[node])


def keep_written_gradients(program: torch.export.ExportedProgram) -> None:
    """`x.detach().clamp_(min=1)`, `x.data.clamp_(min=1)` and `x.detach()[0] = 1` give x other values and leave its gradient as it was. The
    program has such a write as one to x itself, behind which that has none; so x becomes what was written with the gradient of x, in
    place."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        for written in list(list_written(node)):
            alias, *views = _list_views(written)
            if alias.target in _DETACH and alias.args[0].op == "call_function" and internals.is_real(alias.args[0].meta.get("val")):
                _write_beside(graph, alias, views, node)


def _write_beside(graph: torch.fx.Graph, alias: torch.fx.Node, views: list[torch.fx.Node], write: torch.fx.Node) -> None:
    """Makes a write to a detached alias, or the last of its views, one to a copy, and has the value and the alias go on with what the copy
    has then."""
    value, target, order = alias.args[0], (alias, *views)[-1], {node: place for place, node in enumerate(graph.nodes)}

    def add(function: object, *arguments: object) -> torch.fx.Node:
        node = graph.call_function(function, arguments)
        node.meta = dict(value.meta)
        return node

    def look(base: torch.fx.Node) -> dict[torch.fx.Node, torch.fx.Node]:
        """The alias and its views, of another tensor."""
        found = {alias: base}
        for view in views:
            found[view] = graph.node_copy(view, lambda argument: found.get(argument, argument))
        return found

    with graph.inserting_before(write):
        copy = add(torch.ops.aten.clone.default, alias)
        write.replace_input_with(target, look(copy)[target])
    with graph.inserting_after(write):
        written = add(WITH_GRADIENT_OF, copy, value)
    with graph.inserting_after(written):
        stopped = add(torch.ops.aten.detach.default, written)
    with graph.inserting_before(stopped.next):
        found = look(stopped)
    behind = lambda user: order.get(user, -1) > order[write]
    value.replace_all_uses_with(written, behind)
    for node, other in found.items():
        node.replace_all_uses_with(other, behind)
    write.replace_all_uses_with(found[target], behind)


def _detach(graph: torch.fx.Graph, value: torch.fx.Node) -> torch.fx.Node:
    if not internals.is_real(value.meta.get("val")):
        return value
    node = graph.call_function(torch.ops.aten.detach.default, (value,))
    node.meta = dict(value.meta)
    return node
