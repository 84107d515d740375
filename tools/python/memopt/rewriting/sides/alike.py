# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two traces that compute the same while the conditions of some branches are false, however the model is written:

    for expert, count in zip(self.experts, counts.tolist()):
        end = start + count
        if count == 0:
            continue
        outputs.append(expert(tokens[start:end]))
        start = end
    tokens = torch.cat(outputs)

With `count` 0, `start` is `end`, and the rows between them are none, with which the others put together are what they are without. So each
value of a trace has a key, equal for what is equal under these conditions, and the traces are alike if their results have the same.
What only the trace with these branches taken has are their sides: they change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..intervals import BETWEEN
from ..regions import list_written
from .amounts import Amounts, is_amount
from .asserted import is_asserted
from .markers import BRANCH
from .nothing_changes import Nothing, name_of
from .pairing import Differs, Pairs, Side

__all__ = ["find_idle_sides"]


class _Values:
    """The keys of what a trace computes. Of tensors that are written to, what is read after a write has another than before."""

    def __init__(self, program: torch.export.ExportedProgram, branches: Sequence[torch.fx.Node], given: Callable[[torch.fx.Node], Any],
                 numbers: dict[Any, int]):
        self.nothing = Nothing(program, branches[0], list(program.graph.nodes), others=branches[1:])
        self._given, self._numbers = given, numbers
        self.keys: dict[torch.fx.Node, int] = {}
        #: Of operators, equal where they are the same of both traces: also of those that give back what they were given.
        self.calls: dict[torch.fx.Node, int] = {}
        self._roots: dict[torch.fx.Node, torch.fx.Node] = {}
        self._versions: dict[torch.fx.Node, int] = {}
        self._draws: dict[int, int] = {}
        self._amounts = Amounts(lambda node: None if self.nothing.is_written(node) else self.keys[node])
        for node in program.graph.nodes:
            if node.op != "output":
                self.keys[node] = self._find_key(node)
            if node in branches:
                self._amounts.learn(node.args[0], False)
            if is_amount(node) and self.nothing.is_none(node):
                self._amounts.learn_zero(node)
        self.results = self._key_of(program.graph.output_node().args)
        inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
        self.state = {self.keys[node]: self._versions.get(node) for node in inputs if node in self._versions}

    def _intern(self, *parts: Any) -> int:
        return self._numbers.setdefault(parts, len(self._numbers))

    def _root(self, node: torch.fx.Node) -> torch.fx.Node:
        return self._roots.get(node, node)

    def _read(self, node: torch.fx.Node) -> int:
        """Of a value as it is by now."""
        version = self._versions.get(self._root(node))
        return self.keys[node] if version is None else self._intern("at", self.keys[node], version)

    def _key_of(self, value: Any) -> Any:
        """Of what a node takes."""
        if is_amount(value):
            return self._intern("amount", self._amounts.find(value))
        if isinstance(value, torch.fx.Node):
            return self._read(value)
        if isinstance(value, (tuple, list)):
            return self._intern("list", *map(self._key_of, value))
        return self._intern("other", str(type(value)), repr(value))

    def _find_key(self, node: torch.fx.Node) -> int:
        if node.op != "call_function":
            return self._intern("given", self._given(node))
        self._note_alias(node)
        if node.target is BRANCH:
            return self._intern("branch", self._key_of(node.args[0]))
        call, written = self._find_call(node), list(list_written(node))
        self.calls[node] = self._intern("written", call, *map(self._read, written)) if written else call
        place = self.nothing.find_kept(node)
        kept = self._find_only_part(node) if place is None else node.args[place]
        if kept is not None:
            return self.keys[kept] if self._root(kept) is self._root(node) else self._read(kept)
        for value in written:
            self._versions[self._root(value)] = self._intern("written", call, self._read(value), self.keys[value])
        return self.keys[written[0]] if len(written) == 1 and node.meta.get("val") is not None else call

    def _list_parts(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """Of `cat`, those that have elements."""
        return [part for part in node.args[0] if not self.nothing.is_empty(part)]

    def _find_only_part(self, node: torch.fx.Node) -> torch.fx.Node | None:
        parts = self._list_parts(node) if name_of(node) == "cat" else ()
        return parts[0] if len(parts) == 1 else None

    def _find_call(self, node: torch.fx.Node) -> int:
        cut = self._find_cut(node)
        if cut is not None:
            return cut
        arguments, tree = pytree.tree_flatten((node.args, dict(node.kwargs)))
        if name_of(node) == "cat":
            arguments, tree = [*self._list_parts(node), *node.args[1:], *node.kwargs.values()], None
        key = self._intern("call", str(node.target), str(tree), *map(self._key_of, arguments))
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            self._draws[key] = self._draws.get(key, -1) + 1
            key = self._intern("draw", key, self._draws[key])
        return key

    def _find_cut(self, node: torch.fx.Node) -> int | None:
        """Of rows between numbers that follow from the data."""
        name = name_of(node)
        if name == "slice" and len(node.args) == 4 and isinstance(node.args[3], torch.fx.Node) and is_amount(node.args[3]):
            x, dim, start, stop = node.args
            return self._intern("cut", self._read(x), dim, self._key_of(start or 0), self._key_of(stop))
        if name == "index" and len(node.args[1]) == 1 and isinstance(node.args[1][0], torch.fx.Node) and node.args[1][0].target is BETWEEN:
            start, stop, _ = node.args[1][0].args
            return self._intern("cut", self._read(node.args[0]), 0, self._key_of(start), self._key_of(stop))
        return None

    def _note_alias(self, node: torch.fx.Node) -> None:
        """What views look at, and what operators that write in place return."""
        schema = getattr(node.target, "_schema", None)
        inner = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if schema is None:
            if inner is not None and isinstance(inner.meta.get("val"), (tuple, list)) and inner in self._roots:
                self._roots[node] = self._roots[inner]  # of unbind, split and chunk
        elif inner is not None and any(result.alias_info is not None for result in schema.returns):
            self._roots[node] = self._root(inner)


def find_idle_sides(first: torch.export.ExportedProgram, second: torch.export.ExportedProgram, numbers: Sequence[int]) -> list[Side]:
    """The sides of these branches of the first program, if it computes the same as the second where all of them are not taken. The second
    has taken all others as the first."""
    def list_branches(program: torch.export.ExportedProgram) -> dict[int, torch.fx.Node]:
        return {node.args[1]: node for node in program.graph.nodes if node.target is BRANCH}
    own, others = list_branches(first), list_branches(second)
    if own.keys() != others.keys():
        raise Differs
    pairs, known = Pairs(first, second), {}
    attributes: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in second.graph.find_nodes(op="get_attr"):
        attributes[node] = next((other for other in first.graph.find_nodes(op="get_attr") if pairs.are_same_attributes(other, node)), node)
    values = _Values(first, [own[number] for number in numbers], lambda node: node, known)
    second_values = _Values(second, [others[number] for number in numbers],
                            lambda node: pairs.first_of.get(node, attributes.get(node, node)), known)
    are_alike = values.results == second_values.results and values.state == second_values.state and all(
        values.keys[own[number]] == second_values.keys[others[number]] for number in own)
    if not are_alike:
        raise Differs
    return _list_sides(first, values, list(second_values.calls.values()), [own[number] for number in numbers])


def _list_sides(first: torch.export.ExportedProgram, values: _Values, common: Sequence[int], branches: Sequence[torch.fx.Node]) -> list[Side]:
    """What the first program has beyond the other, by the branch behind which it stands."""
    left: dict[int, int] = {}
    for key in common:
        left[key] = left.get(key, 0) + 1
    sides = {branch: Side(branch, [], [], branch) for branch in branches}
    current = None
    for node in first.graph.nodes:
        if node in sides:
            current = sides[node]
        if node not in values.calls or is_asserted(node):
            continue
        count = left.get(values.calls[node], 0)
        left[values.calls[node]] = count - 1
        if count <= 0 and current is not None and not isinstance(node.meta.get("val"), torch.SymInt):  # numbers are made where they are asked for
            current.body.append(node)
    for side in sides.values():
        side.is_settled = True
        side.kept = {node: place for node in side.body if (place := values.nothing.find_kept(node)) is not None}
    return list(sides.values())
