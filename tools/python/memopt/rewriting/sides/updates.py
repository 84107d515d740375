# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters for which PyTorch has no gradient in some steps, as the sides that read them are not taken.

PyTorch's optimizers leave these alone then, with their momentum, weight decay and number of updates. A step computes all sides and
has a gradient of zero there, so the program says in which steps these parameters are updated: where a gradient of the loss comes to
them through what is computed under the conditions at hand (edges.py). Where a sum over rows that a mask chooses has no rows, and no
branch of Python is about it, PyTorch has zeros, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from ..regions import list_written
from .asserted import insert
from .edges import WHEN, drop_edges, may_have_gradient
from .markers import BRANCH, find_loss, replace_loss
from .nothing_changes import find_root, find_source, name_of

__all__ = ["UPDATED_WHERE", "mark_updates"]

aten = torch.ops.aten
_library = torch.library.Library("memopt", "FRAGMENT")
#: The loss of a step that updates these parameters where `count` is above zero. It names them, and reads none of their values.
_library.define("updated_where(Tensor loss, Tensor[] parameters, Tensor count) -> Tensor")
_library.impl("updated_where", lambda loss, parameters, count: loss.clone(), "CompositeExplicitAutograd")
torch.library.register_fake("memopt::updated_where", lambda loss, parameters, count: torch.empty_like(loss), lib=_library)
torch.library.register_autograd("memopt::updated_where", lambda ctx, gradient: (gradient, [None] * ctx.parameters, None), lib=_library,
                                setup_context=lambda ctx, inputs, output: setattr(ctx, "parameters", len(inputs[1])))
UPDATED_WHERE = torch.ops.memopt.updated_where.default

#: What has the shape of an argument, and none of its values.
_SHAPES = {"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full", "new_empty",
           "bernoulli"}
#: What holds where its argument does.
_SAME_TRUTH = {"clone", "to", "_to_copy"}
#: What leaves nothing of what was written before.
_OVERWRITES = {"copy", "zero", "fill", "uniform", "normal"}
#: Conditions of which either side may be taken that are looked at together.
_MOST_TOGETHER = 12


class _Formula:
    """A condition made of others. `table` is what it is for all values of those that have two sides, where the rest is false."""

    def __init__(self, kind: str, parts: tuple, table: int):
        self.kind, self.parts, self.table = kind, parts, table


class _Formulas:
    """Formulas of which equal ones are one; what always holds is `always`."""

    def __init__(self, two_sided: Sequence[torch.fx.Node]):
        self._places = {condition: place for place, condition in enumerate(two_sided)} if len(two_sided) <= _MOST_TOGETHER else {}
        self._rows = 1 << len(self._places)
        self.always = _Formula("always", (), (1 << self._rows) - 1)
        self._known: dict[tuple, _Formula] = {}

    def _make(self, kind: str, parts: tuple, table: int) -> _Formula:
        if table == self.always.table:
            return self.always
        key = kind, *sorted(map(id, parts))
        return self._known.setdefault(key, _Formula(kind, parts, table))

    def where(self, condition: torch.fx.Node, holds: bool) -> _Formula:
        place = self._places.get(condition)
        table = 0 if place is None else sum(1 << row for row in range(self._rows) if bool(row >> place & 1) == holds)
        key = "where", condition, holds
        return self._known.setdefault(key, _Formula("where", (condition, holds), table))

    def both(self, a: _Formula, b: _Formula) -> _Formula:
        if a is self.always or b is self.always or a is b:
            return b if a is self.always else a
        return self._make("both", (a, b), a.table & b.table)

    def either(self, a: _Formula | None, b: _Formula) -> _Formula:
        if a is None or a is b:
            return b
        return self.always if self.always in (a, b) else self._make("either", (a, b), a.table | b.table)


def _list_views(value: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """A view, the view that it is of, and so on; marks are among them."""
    root = find_root(value)
    while value is not root:
        yield value
        value = find_source(value)


def _find_formulas(program: torch.export.ExportedProgram, loss: torch.fx.Node) -> tuple[dict[torch.fx.Node, _Formula], _Formulas]:
    """By parameter, where a gradient of the loss comes to it."""
    marks = [node for node in program.graph.nodes if node.target is WHEN]
    formulas = _Formulas(list(dict.fromkeys(node.args[1] for node in marks if not node.args[2])))
    #: By what views look at, where a gradient comes to it as it is at the place at hand.
    found: dict[torch.fx.Node, _Formula] = {}

    def give(value: torch.fx.Node, where: _Formula) -> None:
        for view in _list_views(value):
            if name_of(view) == "detach":
                return
            if view.target is WHEN:
                where = formulas.both(where, formulas.where(view.args[1], view.args[2]))
        root = find_root(value)
        found[root] = formulas.either(found.get(root), where)

    give(loss, formulas.always)
    for node in reversed(program.graph.nodes):
        if node.op != "call_function" or find_root(node) is not node and not next(list_written(node), None):
            continue
        where, name = found.get(node), name_of(node)
        for written in list_written(node):
            where = formulas.either(where, found[find_root(written)]) if find_root(written) in found else where
            if name in _OVERWRITES and find_root(written) is written:
                found.pop(written, None)
        if where is None or not may_have_gradient(node) or name in _SHAPES or \
                node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and node.args[0] is False:
            continue
        for argument in node.all_input_nodes:
            if may_have_gradient(argument) and not (name in _OVERWRITES and argument is node.args[0]):
                give(argument, where)
    return found, formulas


class _Writer:
    """Computes formulas in a program."""

    def __init__(self, graph: torch.fx.Graph):
        self._graph = graph
        self._values: dict[int, torch.fx.Node] = {}
        self._conditions: dict[torch.fx.Node, torch.fx.Node] = {}

    def _insert_behind(self, node: torch.fx.Node, target: Any, *arguments: Any) -> torch.fx.Node:
        with self._graph.inserting_after(node):
            return insert(self._graph, target, node, *arguments, like=node)

    def _take(self, condition: torch.fx.Node) -> torch.fx.Node:
        """The condition as it is when the branch is taken, as a truth value. Whether any of several holds is said by their number, which
        adds up over micro-batches."""
        if condition not in self._conditions:
            asked, node = condition, condition
            while node.target is BRANCH or name_of(node) in _SAME_TRUTH or find_root(node) is not node or \
                    node.target is aten.ne.Scalar and node.args[1] == 0:
                node = node.args[0]
            if name_of(node) == "any":
                with self._graph.inserting_before(node):
                    are = insert(self._graph, aten.ne.Scalar, node.args[0], 0, like=node)
                asked = self._insert_behind(self._insert_behind(are, aten.to.dtype, torch.float32), aten.sum.default)
            self._conditions[condition] = self._insert_behind(self._insert_behind(asked, aten.ne.Scalar, 0), aten.reshape.default, [])
        return self._conditions[condition]

    def write(self, formula: _Formula, like: torch.fx.Node) -> torch.fx.Node:
        pending = [formula]
        while pending:
            now = pending[-1]
            if id(now) in self._values:
                pending.pop()
            elif now.kind == "where":
                condition, holds = now.parts
                value = self._take(condition)
                self._values[id(now)] = value if holds else insert(self._graph, aten.logical_not.default, value, like=like)
            elif missing := [part for part in now.parts if id(part) not in self._values]:
                pending += missing
            else:
                target = aten.logical_and.default if now.kind == "both" else aten.logical_or.default
                self._values[id(now)] = insert(self._graph, target, *(self._values[id(part)] for part in now.parts), like=like)
        return self._values[id(formula)]


def mark_updates(program: torch.export.ExportedProgram) -> list[str]:
    """Says in which steps those parameters are updated that not every step is to update, and returns their names. The marks of edges
    are taken off."""
    graph, output = program.graph, program.graph.output_node()
    loss = output.args[0][find_loss(program)]
    names = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    parameters = {names[spec.arg.name]: spec.target for spec in program.graph_signature.input_specs
                  if spec.kind == InputKind.PARAMETER and spec.arg.name in names}
    found, formulas = _find_formulas(program, loss) if any(node.target is WHEN for node in graph.nodes) else ({}, None)
    drop_edges(graph)
    groups: dict[int, tuple[_Formula, list[torch.fx.Node]]] = {}
    for node in parameters:
        if node in found and found[node] is not formulas.always:
            groups.setdefault(id(found[node]), (found[node], []))[1].append(node)
    writer = _Writer(graph)
    for formula, members in groups.values():
        with graph.inserting_before(output):
            where = writer.write(formula, loss)
            count = insert(graph, aten.to.dtype, where, torch.float32, like=loss)
            named = [insert(graph, aten.view_as_real.default, node, like=loss) if node.meta["val"].is_complex() else node for node in members]
            loss = insert(graph, UPDATED_WHERE, loss, named, count, like=loss)
    if groups:
        replace_loss(program, loss)
    return [parameters[node] for _, members in groups.values() for node in members]
