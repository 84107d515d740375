# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks on gradients of tensors, in forward and on parameters:

    h.register_hook(lambda gradient: gradient.clamp(-1, 1))
    model.embedding.weight.register_hook(lambda gradient: gradient * trained_rows)

A hook gets the whole gradient of its tensor, and what it gives takes the place of that. While a model is traced a hook is called once, with
a stand-in, and marked; in the program all that reads the tensor reads one with this formula for its gradient (rewriting/formulas.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.fx.node import has_side_effect

from .. import internals
from ..errors import Refused
from ..rewriting.formulas import INCOMING, WITH_FORMULA, fit
from ..rewriting.sides import UPDATED_WHERE
from ..user_code.places import called_from, place_of_node

__all__ = ["add_parameter_hooks", "hook_gradient", "list_parameter_hooks", "place_hooks"]

_library = torch.library.Library("memopt", "FRAGMENT")
#: What a hook makes of the gradient `incoming` of a tensor; nobody reads the result.
_library.define("hooked(Tensor value, Tensor incoming, Tensor given) -> Tensor")
_library.impl("hooked", lambda value, incoming, given: value.detach().clone(), "CompositeExplicitAutograd")
_HOOKED = has_side_effect(torch.ops.memopt.hooked.default)


class _Handle:
    def remove(self) -> None:
        raise Refused(f"{called_from()}: forward takes a hook on a gradient away again; a step has the hooks that stay until it is over")


def hook_gradient(value: torch.Tensor, hook: Callable) -> _Handle:
    """`value.register_hook(hook)`, traced."""
    if not value.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    incoming = torch.ops.memopt.incoming_gradient(value, 0)
    gradient = incoming.detach().clone()  # which a hook may write over
    given = hook(gradient)
    if given is gradient and gradient._version == 0:  # it only looks
        return _Handle()
    if given is None and gradient._version == 0:
        raise Refused(f"{called_from()}: this hook on a gradient gives none in its place; a step hands no gradients to Python. Leave the hook "
                      "out, or return a tensor")
    torch.ops.memopt.hooked(value, incoming, fit(gradient if given is None else given, value))
    return _Handle()


def list_parameter_hooks(module: nn.Module) -> list[tuple[str, int, Callable]]:
    """The hooks on gradients of trained parameters: the names of these, the hooks' numbers, and the hooks."""
    return [(name, number, hook) for name, parameter in module.named_parameters() if parameter.requires_grad
            for number, hook in internals.get_gradient_hooks(parameter).items()]


def add_parameter_hooks(module: nn.Module, hooks: Iterable[tuple[str, int, Callable]]) -> None:
    """Calls them where forward begins: a traced module has other tensors in the place of its parameters."""
    for name, _, hook in hooks:
        hook_gradient(operator.attrgetter(name)(module), hook)


def place_hooks(program: torch.export.ExportedProgram) -> None:
    """Gives tensors the formulas of their hooks, in place."""
    graph = program.graph
    marks: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.target is _HOOKED:
            marks.setdefault(node.args[0], []).append(node)
    for value, hooks in marks.items():
        _place(graph, value, hooks)
    for module in program.graph_module.modules():
        for mark in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if mark.target is _HOOKED:
                raise Refused(f"{place_of_node(mark) or 'the model'}: a hook on a gradient inside of torch.no_grad(), or of a branch, is not "
                              "supported; register it behind")
    for spec, result in zip(program.graph_signature.output_specs, graph.output_node().args[0]):
        if isinstance(result, torch.fx.Node) and spec.arg.name != result.name:  # the loss itself has one
            spec.arg = type(spec.arg)(name=result.name)
    program.graph_module.recompile()


def _place(graph: torch.fx.Graph, value: torch.fx.Node, marks: list[torch.fx.Node]) -> None:
    """What the hooks compute is copied to where their tensor is made, so that all that reads it can read the other. The first of them
    gets the gradient first, so it is the last there."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    start = max(order[value], max((order[node] for node in graph.nodes if node.op == "placeholder"), default=0))
    behind = next(node for node in graph.nodes if order[node] == start + 1)
    hooked, own = value, set()

    def add(function: Callable, *arguments: object) -> torch.fx.Node:
        node = graph.call_function(function, arguments)
        node.meta = {**mark.meta, "val": value.meta["val"]}
        own.add(node)
        return node

    formulas = []
    for mark in reversed(marks):
        _, incoming, given = mark.args
        formula = sorted({incoming, *_list_behind(given, start, order)}, key=order.__getitem__)
        formulas += formula
        with graph.inserting_before(behind):
            copies = {incoming: add(INCOMING, hooked, 0)}
            for node in formula:
                if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                    raise Refused(f"{place_of_node(mark) or 'the model'}: a hook on a gradient that draws random numbers is not supported")
                if node not in copies:
                    copies[node] = graph.node_copy(node, lambda argument: copies.get(argument, argument))
            result = add(WITH_FORMULA, [hooked], [copies[incoming]], [hooked], [copies.get(given, given)])
            result.meta["val"] = [value.meta["val"]]
            hooked = add(operator.getitem, result, 0)
        own.update(copies.values())
    value.replace_all_uses_with(hooked, lambda user: user not in own and user.target not in (torch.ops.aten.detach.default, UPDATED_WHERE))
    for node in (*marks, *sorted(set(formulas), key=order.__getitem__, reverse=True)):
        if not node.users:
            graph.erase_node(node)


def _list_behind(node: torch.fx.Node, start: int, order: dict[torch.fx.Node, int]) -> set[torch.fx.Node]:
    """A node and what it is computed from, behind a place."""
    found, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        if node not in found and order[node] > start:
            found.add(node)
            waiting += node.all_input_nodes
    return found
