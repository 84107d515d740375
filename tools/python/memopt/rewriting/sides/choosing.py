# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program that computes both sides of a branch, and goes on with the values of the one that holds."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence

import torch

from ..regions import list_written
from .asserted import assert_where, insert, is_asserted, list_asserts_of
from .edges import WHEN, mark_edges
from .nothing_changes import Nothing, find_base, find_whole
from .pairing import Side

__all__ = ["Chooser"]

aten = torch.ops.aten
#: Marks what writes to a tensor again what it was where a side is not taken.
_LEAVES = "leaves_untaken"


class Chooser:
    """Writes into a program what chooses between two sides."""

    def __init__(self, program: torch.export.ExportedProgram):
        self._graph = program.graph
        self._program = program
        self._now: dict[torch.fx.Node, torch.fx.Node] = {}  # what stands for a value by now

    def _current(self, value: torch.fx.Node) -> torch.fx.Node:
        while value in self._now:
            value = self._now[value]
        return value

    def can_apply(self, side: Side) -> bool:
        """Whether all that the other side takes is there."""
        other = {*side.other, *side.moved.values()}
        return all(value in other or value in side.pairs.first_of or value.op == "get_attr" for node in other for value in node.all_input_nodes)

    def _copy_attribute(self, side: Side, node: torch.fx.Node) -> torch.fx.Node:
        """What the other program has as an attribute, a region's graph."""
        module = self._program.graph_module
        name = next(name for name in map("other_{}".format, itertools.count()) if not hasattr(module, name))
        setattr(module, name, operator.attrgetter(node.target)(side.pairs.second_module))
        copy = self._graph.get_attr(name)
        copy.meta.update(node.meta)
        return copy

    def assert_where_taken(self, side: Side) -> None:
        for asserted in side.asserted or list_asserts_of(self._program, set(side.body)):
            asserted = self._current(asserted)
            self._now[asserted] = assert_where(self._graph, asserted, side.marker)

    def apply(self, side: Side) -> None:
        graph, body = self._graph, {*side.body, *side.moved}
        holds = side.marker
        nothing = Nothing(self._program, side.marker, [*side.body, *side.moved])
        with graph.inserting_after(side.marker):
            missed = insert(graph, aten.logical_not.default, side.marker, like=side.marker)
        self._keep_something(nothing, missed)
        nodes = list(graph.nodes)  # with those of inner branches
        inside = nodes[nodes.index(side.marker) + 1:nodes.index(side.behind)]
        self._write_where_taken(side, inside, {*inside, *side.moved}, True)
        copies: dict[torch.fx.Node, torch.fx.Node] = {}

        def take(value: torch.fx.Node) -> torch.fx.Node:
            if value in copies:
                return copies[value]
            if value.op == "get_attr" and value not in side.pairs.first_of:
                return self._copy_attribute(side, value)
            return self._current(side.pairs.first_of[value])

        self.assert_where_taken(side)
        with graph.inserting_before(side.behind):
            for node in side.other:
                copies[node] = graph.node_copy(node, take)
        order = {node: place for place, node in enumerate(graph.nodes)}
        for first, second in sorted(side.moved.items(), key=lambda pair: order[pair[0]]):
            with graph.inserting_after(first):
                copies[second] = graph.node_copy(second, take)
        self._write_where_taken(side, [copies[node] for node in side.other], {*copies.values()}, False)
        self._copy_asserts(side, copies, take, missed)
        self._keep_something(Nothing(self._program, side.marker, list(copies.values()), is_other=True), side.marker)
        chosen, order = {}, {node: place for place, node in enumerate(graph.nodes)}
        for value, other in side.phis.items():
            end = copies.get(other) or self._current(other)
            if find_whole(end) is find_whole(self._current(value)):  # which has what was written where it was taken
                self._read_behind(side, self._current(value), find_whole(end))
                continue
            last = max(end, self._current(value), key=lambda node: order.get(node, -1))
            with graph.inserting_after(last) if value in side.moved else graph.inserting_before(side.behind):
                chosen[value] = insert(graph, aten.where.self, holds, self._current(value), end, like=side.behind)
        order = {node: place for place, node in enumerate(graph.nodes)}
        for value, choice in chosen.items():
            now = self._current(value)
            now.replace_all_uses_with(choice, lambda user: user is not choice and order[user] > order[choice])
            self._now[now] = choice
        for choice in chosen.values():
            self._mark_choice(side, choice)
        for nodes, holds in ((body, True), (set(copies.values()), False)):
            for node in nodes:
                mark_edges(node, side.marker, holds, but={*nodes, *list_written(node)})

    def _write_where_taken(self, side: Side, nodes: Sequence[torch.fx.Node], own: set[torch.fx.Node], holds: bool) -> None:
        """What a side writes to tensors from outside it writes where it is taken. Behind that, what an inner branch left as it was is so still."""
        graph = self._graph
        for node in nodes:
            if node.meta.get(_LEAVES):
                continue
            for written in list_written(node):
                if find_base(written) in own:
                    continue
                with graph.inserting_before(node):
                    old = insert(graph, aten.clone.default, written, like=node)
                with graph.inserting_after(node):
                    values = (written, old) if holds else (old, written)
                    chosen = insert(graph, aten.where.self, side.marker, *values, like=node)
                with graph.inserting_after(chosen):
                    insert(graph, aten.copy_.default, written, chosen, like=node).meta[_LEAVES] = True
                self._mark_choice(side, chosen)

    def _read_behind(self, side: Side, name: torch.fx.Node, whole: torch.fx.Node) -> None:
        if name is not whole:
            nodes = list(self._graph.nodes)
            behind = set(nodes[nodes.index(side.behind):])
            name.replace_all_uses_with(whole, lambda user: user in behind)
            self._now[name] = whole

    @staticmethod
    def _mark_choice(side: Side, choice: torch.fx.Node) -> None:
        """Each of the two values is taken where its side is."""
        mark_edges(choice, side.marker, True, but=(0, 2))
        mark_edges(choice, side.marker, False, but=(0, 1))

    def _copy_asserts(self, side: Side, copies: dict, take: Callable[[torch.fx.Node], torch.fx.Node], taken: torch.fx.Node) -> None:
        """What is asserted on the other side."""
        def copy(node: torch.fx.Node) -> torch.fx.Node:
            if node not in copies and is_asserted(node):
                copies[node] = self._graph.node_copy(node, copy)
            return take(node)
        with self._graph.inserting_before(side.behind):
            for node in side.others_asserted:
                assert_where(self._graph, self._graph.node_copy(node, copy), taken)

    def _keep_something(self, nothing: Nothing, missed: torch.fx.Node) -> None:
        """Where a side is not taken, and its mask chooses nothing, it sees the mask's first element."""
        mask, marker = nothing.mask, nothing.marker
        if mask is None or not all(isinstance(size, int) for size in mask.meta["val"].shape) or not mask.meta["val"].numel():
            return
        graph, shape = self._graph, list(mask.meta["val"].shape)
        with graph.inserting_after(missed):
            places = insert(graph, aten.arange.default, mask.meta["val"].numel(), device=torch.device("cpu"), like=marker)
        with graph.inserting_after(places):
            is_first = insert(graph, aten.eq.Scalar, places, 0, like=marker)
        with graph.inserting_after(is_first):
            shaped = insert(graph, aten.reshape.default, is_first, shape, like=marker)
        with graph.inserting_after(shaped):
            wanted = insert(graph, aten.logical_and.default, shaped, missed, like=marker)
        with graph.inserting_after(wanted):
            other = insert(graph, aten.logical_or.default, mask, wanted, like=marker)
        copies = {node: other for node in nothing.list_equal(mask)}
        last = other

        def take(node: torch.fx.Node) -> torch.fx.Node:
            """What was made of the mask before the branch, made of the other."""
            nonlocal last
            if node in copies or not nothing.follows_from_mask(node):
                return copies.get(node, node)
            arguments = torch.fx.node.map_arg((node.args, node.kwargs), take) if node.target is not WHEN else \
                ((take(node.args[0]), *node.args[1:]), {})
            with graph.inserting_after(last):
                last = copies[node] = graph.call_function(node.target, *arguments)
            last.meta.update(node.meta)
            return last

        for node in nothing.body:
            for argument in list(node.all_input_nodes):
                if argument not in nothing.body and nothing.follows_from_mask(argument):
                    node.replace_input_with(argument, take(argument))
