# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Regions without gradients, `torch.no_grad()`, in the programs of torch.export: they are there after tracing and gone after the
decompositions, so a `detach` behind each result of theirs says the same."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from .. import internals
from ..errors import Refused
from ..rewriting.regions import REGIONS, body_of, find_original, is_other_name, is_region, list_names, list_written, list_written_inputs, looks_at
from ..rewriting.sides.markers import BRANCH
from ..rewriting.sides.nothing_changes import find_whole
from ..user_code.places import place_of_node

__all__ = ["detach_behind", "detached_regions", "has_graphs", "inline_branching_regions", "keep_stopped_gradients"]


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


def keep_stopped_gradients(program: torch.export.ExportedProgram) -> None:
    """Detaches what regions without gradients read, and what they give of that: in place. What they compute has no gradient then, until
    the program writes to it what has one."""
    for node in list(program.graph_module.graph.nodes):
        if not is_region(node):
            continue
        region = body_of(node)
        _detach_inputs(region)
        (output,) = (n for n in region.graph.nodes if n.op == "output")
        with region.graph.inserting_before(output):
            output.args = (torch.fx.node.map_arg(output.args[0], lambda value: _detach(region.graph, value) if _is_given(value) else value),)
        region.recompile()


def _is_given(value: torch.fx.Node) -> bool:
    """Whether it is a name for an input of its region."""
    return list_names(value)[-1].op == "placeholder"


def _detach_inputs(body: torch.fx.GraphModule) -> None:
    """What a region reads is detached where it is: on the side of a branch that reads it, and in front of none that does not."""
    written = list_written_inputs(body)
    for place, value in enumerate(body.graph.find_nodes(op="placeholder")):
        for user in list(value.users) if place not in written else ():
            with body.graph.inserting_before(user):
                user.replace_input_with(value, _detach(body.graph, value))


def _is_inlined(module: torch.fx.GraphModule) -> bool:
    """Whether there are branches in it, or gradients that the model takes, as by `torch.func.grad`."""
    targets = BRANCH, torch.ops.memopt.gradient_of.default
    return any(node.target in targets for part in module.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes)


def _changes_nothing(region: torch.fx.Node) -> bool:
    """`torch.autocast(..., enabled=False)` outside of another region, and one for devices that the trace is not on."""
    return region.target is torch.ops.higher_order.wrap_with_autocast and (region.args[0] != "cpu" or not region.args[2])


def _list_users_anew(module: torch.fx.GraphModule) -> None:
    """Where torch.export has made regions, nodes miss some of their users, and have others that are gone."""
    for part in module.modules():
        nodes = list(part.graph.nodes) if isinstance(part, torch.fx.GraphModule) else []
        for node in nodes:
            node.users.clear()
        for node in nodes:
            for value in node.all_input_nodes:
                value.users[node] = None


def inline_branching_regions(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Branches, and gradients that the model takes, stand in the program itself where they stood in regions without gradients, in place:
    the region's operators see what they read detached. So do views that regions give, through which the program may write, and what
    stands in regions of autocast that change nothing."""
    _list_users_anew(program.graph_module)
    graph = program.graph_module.graph
    node = next(iter(graph.nodes))
    while node.op != "output":  # what was in a region comes next
        following = node.next
        if node.op == "call_function" and (_changes_nothing(node) or is_region(node) and (
                _is_inlined(body_of(node)) or any(map(_is_view, node.users)))):
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


def _is_view(result: torch.fx.Node) -> bool:
    return looks_at(result) is not None and not is_other_name(result) and find_original(result) is result


def _inline(program: torch.export.ExportedProgram, region: torch.fx.Node) -> None:
    module, graph, begin = program.graph_module, program.graph_module.graph, REGIONS[region.target]
    get_body, body, operands = region.args[begin - 1], body_of(region), region.args[begin:]
    originals = {user: find_original(user) for user in region.users}
    if is_region(region):
        _detach_inputs(body)
    written = list_written_inputs(body) if is_region(region) else ()
    with graph.inserting_before(region):
        known = {name: _detach(graph, value) if place in written and value.op == "call_function" else value
                 for place, (name, value) in enumerate(zip(body.graph.find_nodes(op="placeholder"), operands))}
        for inner in body.graph.nodes:
            if inner.op == "get_attr":
                setattr(module, f"{get_body.target}_{inner.target}", getattr(body, inner.target))
                known[inner] = graph.get_attr(f"{get_body.target}_{inner.target}")
            elif inner.op == "call_function":
                known[inner] = graph.node_copy(inner, known.__getitem__)
        known |= zip(body.graph.find_nodes(op="placeholder"), operands)
        results = torch.fx.node.map_arg(body.graph.output_node().args[0], lambda result: known[find_whole(result)])
    for user, original in originals.items():
        user.replace_all_uses_with(results[user.args[1]] if original is user else original)
        graph.erase_node(user)
    graph.erase_node(region)
    if not get_body.users:
        graph.erase_node(get_body)
        delattr(module, get_body.target)


def detach_behind(program: torch.export.ExportedProgram) -> None:
    """`x.detach_()` takes the gradient from what reads x later, by that name: in place. What is written to x from there on has a gradient of
    its own."""
    graph = program.graph
    for node in list(graph.nodes):
        if node.target in REGIONS:
            inputs = body_of(node).graph.find_nodes(op="placeholder")
            for inner in body_of(node).graph.nodes:
                if inner.target is torch.ops.aten.detach_.default and (tensor := list_names(inner)[-1]) in inputs:
                    with graph.inserting_after(node):
                        _read_behind(graph, _detach(graph, node.args[REGIONS[node.target] + inputs.index(tensor)]))
    for module in program.graph_module.modules():
        for node in list(module.graph.nodes) if isinstance(module, torch.fx.GraphModule) else ():
            if node.target is torch.ops.aten.detach_.default:
                node.target = torch.ops.aten.detach.default
                _read_behind(module.graph, node)


def _read_behind(graph: torch.fx.Graph, stopped: torch.fx.Node) -> None:
    places = {other: place for place, other in enumerate(graph.nodes)}
    stopped.args[0].replace_all_uses_with(stopped, lambda user: places[user] > places[stopped])
    _write_apart(graph, stopped)


def _write_apart(graph: torch.fx.Graph, stopped: torch.fx.Node) -> None:
    nodes = list(graph.nodes)
    behind = nodes[nodes.index(stopped) + 1:]
    if not any(stopped in list_names(written) for node in behind for written in list_written(node)):
        return
    tensor = list_names(stopped)[-1]
    if any(tensor in (names := list_names(value)) and stopped not in names for node in behind for value in node.all_input_nodes):
        raise Refused(f"{place_of_node(stopped) or 'the model'}: what x.detach_() gives is written to, and read by another name of x; write "
                      "x = x.detach().clone()")
    with graph.inserting_after(stopped):
        copied = graph.call_function(torch.ops.aten.clone.default, (stopped,))
    copied.meta = dict(stopped.meta)
    stopped.replace_all_uses_with(copied, lambda user: user is not copied)


def _detach(graph: torch.fx.Graph, value: torch.fx.Node) -> torch.fx.Node:
    if not internals.is_real(value.meta.get("val")):
        return value
    node = graph.call_function(torch.ops.aten.detach.default, (value,))
    node.meta = dict(value.meta)
    return node
