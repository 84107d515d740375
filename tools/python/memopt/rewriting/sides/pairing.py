# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What two traces of a model have in common, and what each has between: the sides of its branches."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from ..regions import list_written
from .asserted import is_asserted, list_differing_asserts
from .markers import BEHIND, BRANCH, find_shape
from .nothing_changes import Nothing, find_base, find_source, find_whole

__all__ = ["Differs", "Pairs", "PassesOn", "Side", "compare", "find_side"]


class Differs(Exception):
    """Two programs are not one with two sides."""


class PassesOn(Differs):
    """The first program's side gives a value that was there before, `m = x`, where the other's makes one. Behind it nothing tells x from m."""


def _list_nodes(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    """What computes; what is asserted of sizes differs between programs."""
    return [node for node in program.graph.nodes if node.op in ("call_function", "output") and not is_asserted(node)]


class Pairs:
    """Which nodes of one program are which of the other."""

    def __init__(self, first: torch.export.ExportedProgram, second: torch.export.ExportedProgram):
        self.first_of: dict[torch.fx.Node, torch.fx.Node] = {}  # by the second's
        self._modules = first.graph_module, second.graph_module
        self.second_module = second.graph_module
        self._pair_inputs(first, second)

    def _pair_inputs(self, first, second) -> None:
        def list_inputs(program):
            placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
            return list(zip(placeholders, program.graph_signature.input_specs))

        constants, named = [], {}
        for node, spec in list_inputs(first):
            if spec.kind == InputKind.CONSTANT_TENSOR:
                constants.append((node, first.constants[spec.target]))
            else:
                named[spec.kind, spec.target or node.name] = node
        for node, spec in list_inputs(second):
            if spec.kind != InputKind.CONSTANT_TENSOR:
                if (spec.kind, spec.target or node.name) in named:
                    self.first_of[node] = named[spec.kind, spec.target or node.name]
                continue
            value = second.constants[spec.target]
            for place, (other, data) in enumerate(constants):
                if data.dtype == value.dtype and data.shape == value.shape and torch.equal(data, value):
                    self.first_of[node] = other
                    del constants[place]  # equal ones follow in order
                    break

    def are_alike(self, a: torch.fx.Node, b: torch.fx.Node) -> bool:
        """Of one operator, with the same arguments that are no nodes; those are compared once both are known."""
        if a.op != b.op or (a.op == "call_function" and a.target is not b.target):
            return False
        return self._strip(a) == self._strip(b)

    @staticmethod
    def _strip(node: torch.fx.Node) -> Any:
        leaves, tree = pytree.tree_flatten((node.args, dict(node.kwargs)))
        if node.op == "call_function" and node.target is BRANCH:
            leaves = leaves[:1]  # without its number
        return [None if isinstance(leaf, torch.fx.Node) else repr(leaf) for leaf in leaves], str(tree) if node.op != "output" else ""

    def are_same_attributes(self, a: torch.fx.Node, b: torch.fx.Node) -> bool:
        if a.op != "get_attr" or b.op != "get_attr":
            return False
        x, y = (operator.attrgetter(node.target)(module) for node, module in zip((a, b), self._modules))
        return _are_same(x, y)


def _are_same(x: Any, y: Any) -> bool:
    """Of regions whether they compute the same, whatever their nodes are called."""
    if not (isinstance(x, torch.fx.GraphModule) and isinstance(y, torch.fx.GraphModule)):
        return x is y
    seconds: dict[torch.fx.Node, torch.fx.Node] = {}

    def write(node: torch.fx.Node, own: bool) -> tuple:
        leaves, tree = pytree.tree_flatten((node.args, dict(node.kwargs)))
        return str(tree), [(seconds[leaf] if own else leaf) if isinstance(leaf, torch.fx.Node) else repr(leaf) for leaf in leaves]
    if len(x.graph.nodes) != len(y.graph.nodes):
        return False
    for a, b in zip(x.graph.nodes, y.graph.nodes):
        is_attribute = a.op == b.op == "get_attr"
        if is_attribute and not _are_same(*(operator.attrgetter(node.target)(module) for node, module in ((a, x), (b, y)))):
            return False
        is_alike = a.op == b.op and (is_attribute or a.op == "placeholder" or a.target == b.target) and write(a, True) == write(b, False)
        if not is_alike:
            return False
        seconds[a] = b
    return True


def _pair_arguments(a: torch.fx.Node, b: torch.fx.Node) -> list[tuple[torch.fx.Node, torch.fx.Node]]:
    first, second = (pytree.tree_leaves((node.args, dict(node.kwargs))) for node in (a, b))
    return [(x, y) for x, y in zip(first, second) if isinstance(x, torch.fx.Node)]


class Side:
    """Of one branch: what only the first program has behind it, and what only the second has."""

    def __init__(self, marker: torch.fx.Node, body: list[torch.fx.Node], other: list[torch.fx.Node], behind: torch.fx.Node):
        self.marker, self.body, self.other, self.behind = marker, body, other, behind
        self.is_settled = False
        #: Of a side that is settled: the nodes that are equal to a value from outside, with the places of the arguments with that.
        self.kept: dict[torch.fx.Node, int] = {}
        #: Values of the body that are used behind it, with what the second program has there; that is of the first or of `other`.
        self.phis: dict[torch.fx.Node, torch.fx.Node] = {}
        #: What is behind the sides and of them nevertheless, with what the second program has for it.
        self.moved: dict[torch.fx.Node, torch.fx.Node] = {}
        #: What is asserted there alone.
        self.asserted: list[torch.fx.Node] = []
        self.others_asserted: list[torch.fx.Node] = []

    @property
    def number(self) -> int:
        return self.marker.args[1]

    @property
    def has_branches(self) -> bool:
        """Whether branches stand on the first's side, whose other sides are not in its body."""
        return any(node.target is BRANCH for node in self.body)


def _is_from_inside(written: torch.fx.Node, body: set[torch.fx.Node]) -> bool:
    """Whether it is a name that a side has given to a tensor, or made there."""
    base = find_base(written)
    while written is not base:
        if written in body:
            return True
        written = find_source(written)
    return base in body


def _count_bound(own: list[torch.fx.Node], other: list[torch.fx.Node], count: int, pairs: Pairs) -> int:
    """Of so many nodes at the ends that are alike, how many of the first belong to the sides: up to the last that writes through what these
    differ in, as in `self.ends[0] = x` on one side and `self.ends[1] = y` on the other. Names for the whole of one tensor are no
    difference, and what a side has made itself is copied."""
    bound = 0
    for place in range(count):
        ends = [(nodes[len(nodes) - count + place], set(nodes[:len(nodes) - count + bound])) for nodes in (own, other)]
        for first, second in zip(*(list_written(node) for node, _ in ends)):
            differs = any(_is_from_inside(written, body) for written, (_, body) in zip((first, second), ends))
            is_outer = any(find_base(written) not in body for written, (_, body) in zip((first, second), ends))
            if differs and is_outer and pairs.first_of.get(find_whole(second)) is not find_whole(first):
                bound = place + 1
    return bound


def compare(first, second, markers: Sequence[torch.fx.Node]) -> tuple[list[Side], Pairs, list]:
    """The sides of those branches of the first program that the second has, too, and took otherwise; which nodes are paired; and
    of each node behind a side the arguments that differ: (node, argument of the first, of the second)."""
    pairs = Pairs(first, second)
    nodes, others = _list_nodes(first), _list_nodes(second)
    ends = [place for place, node in enumerate(nodes) if node in markers]
    cuts, other_cuts, waiting = [], [], list(ends)
    taken = [place for place, node in enumerate(others) if node.target is BRANCH]
    if len(markers) == 1:  # before it the programs are equal
        cuts, other_cuts = ends, [place for place in taken if others[place].args[1] == markers[0].args[1]]
    else:
        for place in taken:
            where = others[place].meta.get("stack_trace")
            while waiting and nodes[waiting[0]].meta.get("stack_trace") != where:
                waiting.pop(0)
            if not waiting:
                raise Differs
            cuts.append(waiting.pop(0))
            other_cuts.append(place)
    if len(cuts) != len(other_cuts):
        raise Differs
    sides, differing = [], []

    def pair(a: torch.fx.Node, b: torch.fx.Node) -> None:
        pairs.first_of[b] = a
        for x, y in _pair_arguments(a, b):
            if y.op == "get_attr" and pairs.are_same_attributes(x, y):
                pairs.first_of[y] = x
            if pairs.first_of.get(y) is not x:
                differing.append((a, x, y))

    start, other_start = 0, 0
    for number, (cut, other_cut) in enumerate(zip([*cuts, len(nodes) - 1], [*other_cuts, len(others) - 1])):
        own, other = nodes[start:cut + 1], others[other_start:other_cut + 1]
        count = 0
        while count < min(len(own), len(other)) and pairs.are_alike(own[-1 - count], other[-1 - count]):
            count += 1
        count -= _count_bound(own, other, count, pairs)
        if not count or number == 0 and (count != len(own) or count != len(other)):
            raise Differs
        if number:
            sides.append(Side(nodes[cuts[number - 1]], own[:-count], other[:-count], own[-count]))
        for a, b in zip(own[-count:], other[-count:]):
            pair(a, b)
        start, other_start = cut + 1, other_cut + 1
    return sides, pairs, differing


def find_side(first, second, number: int, passes_on: bool = False) -> Side:
    """The side of one branch, with what is to be chosen behind it; `second` took this branch otherwise. With `passes_on` the first's side may
    give values from before it, which all that reads them behind the branch has to read as the choice."""
    marker = next(node for node in first.graph.nodes if node.target is BRANCH and node.args[1] == number)
    (side,), pairs, differing = compare(first, second, [marker])
    nothing = Nothing(first, marker, side.body)
    side.pairs, (side.asserted, side.others_asserted) = pairs, list_differing_asserts(first, second, side, pairs)
    side.is_settled = not side.other and not side.has_branches and nothing.writes_nothing() and all(
        nothing.value_before(x) is pairs.first_of.get(y, y) for _, x, y in differing)
    if side.is_settled:
        side.kept = nothing.list_kept()
        return side
    _extend(side, pairs, differing, passes_on)
    for x, value in side.phis.items():
        if find_whole(value) is not find_whole(x):  # else it is no choice
            _check_names(side, x, {x, value} - {*side.body, *side.other, *side.moved})
    return side


def _check_names(side: Side, x: torch.fx.Node, outer: set[torch.fx.Node]) -> None:
    """A choice is a copy. So where one of its values is from before the branch, what is written behind it to either must not be read by the
    other's name."""
    nodes = list(x.graph.nodes)
    behind = nodes[nodes.index(side.behind):]
    inside, bases = set(behind), set(map(find_base, outer))

    def follow(node: torch.fx.Node) -> str:
        while node in inside and (source := find_source(node)) is not None:
            node = source
        return "choice" if node is x else "outer" if node not in inside and find_base(node) in bases else ""

    changed: set[str] = set()
    for node in behind if bases else ():
        written = set(list_written(node))
        if any(changed and follow(value) and follow(value) not in changed for value in node.all_input_nodes):
            raise Differs
        changed |= {follow(value) for value in written} - {""}


def _are_of_one_shape(x: torch.fx.Node, y: torch.fx.Node) -> bool:
    a, b = x.meta.get("val"), y.meta.get("val")
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype and find_shape(a) is not None \
        and find_shape(a) == find_shape(b)


def _reads_choice_alone(side: Side, x: torch.fx.Node, y: torch.fx.Node, seconds: dict) -> bool:
    """Whether all that reads a value behind the branch has the same in its place in the second program."""
    nodes = list(x.graph.nodes)
    behind = set(nodes[nodes.index(side.behind):])
    return all(user in seconds and all(b is y for a, b in _pair_arguments(user, seconds[user]) if a is x) for user in x.users if user in behind)


def _extend(side: Side, pairs: Pairs, differing: list, passes_on: bool) -> None:
    """Finds what is to be chosen behind the sides. What takes values of different shapes, the mean of a number of rows on one side and of
    another on the other, is of the sides, too: its result is chosen."""
    body, other = set(side.body), set(side.other)
    seconds = {first: second for second, first in pairs.first_of.items()}
    waiting = list(differing)
    while waiting:
        user, x, y = waiting.pop(0)
        if user in side.moved:
            continue
        value = y if y in other else pairs.first_of.get(y)
        if x not in body and y not in other or value is None:
            raise Differs
        if x not in body and pairs.first_of.get(find_whole(y)) is not find_whole(x):  # nor that tensor, written by the other side
            if not passes_on:
                raise PassesOn
            if not _reads_choice_alone(side, x, y, seconds):
                raise Differs
        if _are_of_one_shape(x, y):
            if side.phis.setdefault(x, value) is not value:
                raise Differs
            continue
        if getattr(user.target, "_schema", None) is None or next(list_written(user), None) is not None or user.target in (BRANCH, BEHIND):
            raise Differs
        partner = side.moved[user] = seconds[user]
        body.add(user)
        other.add(partner)
        del pairs.first_of[partner]
        for behind in user.users:
            if behind in seconds:
                waiting += [(behind, a, b) for a, b in _pair_arguments(behind, seconds[behind]) if a is user]
