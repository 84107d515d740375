# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches of Python that the data decide:

    for expert in range(experts):
        mask = chosen == expert
        if mask.any():
            out[mask] += self.experts[expert](x[mask])

The model is traced with all such branches taken, and again with others. Two programs begin alike, up to the branch, and end alike;
what lies between are the two sides. So the sides are found without a look at the model's code, which may `continue`, return early
or call others.

A side that changes nothing where its mask chooses nothing (nothing_changes.py) is always computed. Of others both sides are
computed, and what follows takes the values of the one that holds. While a mask chooses nothing, the side that is not taken sees
its first element, so that means of it, and their slopes, are finite.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from ..errors import EndlessLoop, Refused
from ..user_code.tracing_errors import find_cause
from .asserted import assert_where, insert, is_asserted, list_asserts_of, list_differing_asserts
from .nothing_changes import Nothing, find_root
from .one_sided import TracedParameters
from .written_parameters import ADVICE, find_writing_branch

__all__ = ["MOST_BRANCHES", "find_known_side", "finish_sides", "settle_sides"]

aten = torch.ops.aten
_library = torch.library.Library("memopt", "FRAGMENT")
#: The condition of a branch, and the loss behind all branches; both keep the others in the graph.
_library.define("branch(Tensor condition, int number) -> Tensor")
_library.impl("branch", lambda condition, number: condition.clone(), "CompositeExplicitAutograd")
_library.define("behind(Tensor loss, Tensor condition) -> Tensor")
_library.impl("behind", lambda loss, condition: loss.clone(), "CompositeExplicitAutograd")
_BRANCH, _BEHIND = torch.ops.memopt.branch.default, torch.ops.memopt.behind.default

#: Branches that are traced one by one; a loop over more is a loop whose end the data decide.
MOST_SIDES = 12
MOST_TRACES = 25
MOST_BRANCHES = 2048
#: The largest tensor that is looked at for a condition.
_MOST_KNOWN = 1 << 20


class _Differs(Exception):
    """Two programs are not one with two sides."""


def _list_nodes(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    """What computes; what is asserted of sizes differs between programs."""
    return [node for node in program.graph.nodes if node.op in ("call_function", "output") and not is_asserted(node)]


def _drop_ends(program: torch.export.ExportedProgram) -> None:
    for node in list(program.graph.nodes):
        if node.op == "call_function" and node.target is _BEHIND:
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)


class _Pairs:
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
        if node.op == "call_function" and node.target is _BRANCH:
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


class _Side:
    """Of one branch: what only the first program has behind it, and what only the second has."""

    def __init__(self, marker: torch.fx.Node, body: list[torch.fx.Node], other: list[torch.fx.Node], behind: torch.fx.Node):
        self.marker, self.body, self.other, self.behind = marker, body, other, behind
        self.is_settled = False
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


def _compare(first, second, markers: Sequence[torch.fx.Node]) -> tuple[list[_Side], _Pairs, list]:
    """The sides of those branches of the first program that the second has, too, and took otherwise; which nodes are paired; and
    of each node behind a side the arguments that differ: (node, argument of the first, of the second)."""
    pairs = _Pairs(first, second)
    nodes, others = _list_nodes(first), _list_nodes(second)
    ends = [place for place, node in enumerate(nodes) if node in markers]
    cuts, other_cuts, waiting = [], [], list(ends)
    taken = [place for place, node in enumerate(others) if node.target is _BRANCH]
    if len(markers) == 1:  # before it the programs are equal
        cuts, other_cuts = ends, [place for place in taken if others[place].args[1] == markers[0].args[1]]
    else:
        for place in taken:
            where = others[place].meta.get("stack_trace")
            while waiting and nodes[waiting[0]].meta.get("stack_trace") != where:
                waiting.pop(0)
            if not waiting:
                raise _Differs
            cuts.append(waiting.pop(0))
            other_cuts.append(place)
    if len(cuts) != len(other_cuts):
        raise _Differs
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
        if not count or number == 0 and (count != len(own) or count != len(other)):
            raise _Differs
        if number:
            sides.append(_Side(nodes[cuts[number - 1]], own[:-count], other[:-count], own[-count]))
        for a, b in zip(own[-count:], other[-count:]):
            pair(a, b)
        start, other_start = cut + 1, other_cut + 1
    return sides, pairs, differing


# ----------------------------------------------------------------------------------------------------------
# Sides that change nothing
# ----------------------------------------------------------------------------------------------------------

def _settle_all(first, second) -> list[_Side]:
    """Those branches whose side changes nothing where the branch is not taken; `second` has taken none."""
    markers = [node for node in first.graph.nodes if node.target is _BRANCH]
    sides, pairs, differing = _compare(first, second, markers)
    inside = {node: side for side in sides for node in side.body}
    nothings = {side: Nothing(first, side.marker, side.body) for side in sides}
    failed = {side for side in sides if side.other or not nothings[side].writes_nothing()}

    def resolve(value: torch.fx.Node) -> torch.fx.Node:
        while value in inside:
            side = inside[value]
            before = nothings[side].value_before(value)
            if before is None:
                failed.add(side)
                return value
            value = before
        return value

    for node, value, other in differing:
        if resolve(value) is not pairs.first_of.get(other):
            while value in inside:
                failed.add(inside[value])
                value = nothings[inside[value]].value_before(value) or other
    for side in sides:
        for node in side.body:
            for user in node.users:
                if inside.get(user) is not side and nothings[side].value_before(node) is None:
                    failed.add(side)
    return [side for side in sides if side not in failed]


# ----------------------------------------------------------------------------------------------------------
# Both sides
# ----------------------------------------------------------------------------------------------------------

def _find_shape(value: torch.Tensor) -> list[int] | None:
    """None if it depends on the data."""
    shape = [size if isinstance(size, int) else size.node.maybe_as_int() for size in value.shape]
    return None if None in shape else shape


def _find_side(first, second, number: int) -> _Side:
    """The side of one branch, with what is to be chosen behind it; `second` took this branch otherwise."""
    marker = next(node for node in first.graph.nodes if node.target is _BRANCH and node.args[1] == number)
    (side,), pairs, differing = _compare(first, second, [marker])
    nothing = Nothing(first, marker, side.body)
    side.pairs, (side.asserted, side.others_asserted) = pairs, list_differing_asserts(first, second, side, pairs)
    side.is_settled = not side.other and nothing.writes_nothing() and all(
        nothing.value_before(x) is pairs.first_of.get(y, y) for _, x, y in differing)
    if side.is_settled:
        return side
    _extend(side, pairs, differing)
    return side


def _are_of_one_shape(x: torch.fx.Node, y: torch.fx.Node) -> bool:
    a, b = x.meta.get("val"), y.meta.get("val")
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype and _find_shape(a) is not None \
        and _find_shape(a) == _find_shape(b)


def _extend(side: _Side, pairs: _Pairs, differing: list) -> None:
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
            raise _Differs
        if _are_of_one_shape(x, y):
            if side.phis.setdefault(x, value) is not value:
                raise _Differs
            continue
        schema = getattr(user.target, "_schema", None)
        if schema is None or schema.is_mutable or user.target in (_BRANCH, _BEHIND):
            raise _Differs
        partner = side.moved[user] = seconds[user]
        body.add(user)
        other.add(partner)
        del pairs.first_of[partner]
        for behind in user.users:
            if behind in seconds:
                waiting += [(behind, a, b) for a, b in _pair_arguments(behind, seconds[behind]) if a is user]


class _Chooser:
    """Writes into a program what chooses between two sides."""

    def __init__(self, program: torch.export.ExportedProgram):
        self._graph = program.graph
        self._program = program
        self._now: dict[torch.fx.Node, torch.fx.Node] = {}  # what stands for a value by now

    def _current(self, value: torch.fx.Node) -> torch.fx.Node:
        while value in self._now:
            value = self._now[value]
        return value

    def can_apply(self, side: _Side) -> bool:
        """Whether all that the other side takes is there."""
        other = {*side.other, *side.moved.values()}
        return all(value in other or value in side.pairs.first_of or value.op == "get_attr" for node in other for value in node.all_input_nodes)

    def _copy_attribute(self, side: _Side, node: torch.fx.Node) -> torch.fx.Node:
        """What the other program has as an attribute, a region's graph."""
        module = self._program.graph_module
        name = next(name for name in map("other_{}".format, itertools.count()) if not hasattr(module, name))
        setattr(module, name, operator.attrgetter(node.target)(side.pairs.second_module))
        copy = self._graph.get_attr(name)
        copy.meta.update(node.meta)
        return copy

    def assert_where_taken(self, side: _Side) -> None:
        for asserted in side.asserted or list_asserts_of(self._program, set(side.body)):
            asserted = self._current(asserted)
            self._now[asserted] = assert_where(self._graph, asserted, side.marker)

    def apply(self, side: _Side) -> None:
        graph, body = self._graph, {*side.body, *side.moved}
        holds = side.marker
        nothing = Nothing(self._program, side.marker, [*side.body, *side.moved])
        with graph.inserting_after(side.marker):
            missed = insert(graph, aten.logical_not.default, side.marker, like=side.marker)
        self._keep_something(nothing, missed)
        for node in side.body:  # what it writes it writes where it is taken
            for written in nothing.list_written(node):
                if find_root(written) not in body:
                    with graph.inserting_before(node):
                        old = insert(graph, aten.clone.default, written, like=node)
                    with graph.inserting_after(node):
                        chosen = insert(graph, aten.where.self, holds, written, old, like=node)
                    with graph.inserting_after(chosen):
                        insert(graph, aten.copy_.default, written, chosen, like=node)
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
        self._copy_asserts(side, copies, take, missed)
        self._keep_something(Nothing(self._program, side.marker, list(copies.values()), is_other=True), side.marker)
        chosen = {}
        for value, other in side.phis.items():
            end = copies.get(other) or self._current(other)
            with graph.inserting_after(end) if value in side.moved else graph.inserting_before(side.behind):
                chosen[value] = insert(graph, aten.where.self, holds, self._current(value), end, like=side.behind)
        order = {node: place for place, node in enumerate(graph.nodes)}
        for value, choice in chosen.items():
            now = self._current(value)
            now.replace_all_uses_with(choice, lambda user: user is not choice and order[user] > order[choice])
            self._now[now] = choice

    def _copy_asserts(self, side: _Side, copies: dict, take: Callable[[torch.fx.Node], torch.fx.Node], taken: torch.fx.Node) -> None:
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
            arguments = torch.fx.node.map_arg((node.args, node.kwargs), take)
            with graph.inserting_after(last):
                last = copies[node] = graph.call_function(node.target, *arguments)
            last.meta.update(node.meta)
            return last

        for node in nothing.body:
            for argument in list(node.all_input_nodes):
                if argument not in nothing.body and nothing.follows_from_mask(argument):
                    node.replace_input_with(argument, take(argument))


# ----------------------------------------------------------------------------------------------------------
# All branches of a program
# ----------------------------------------------------------------------------------------------------------

class _Tracer:
    """Traces with some branches taken otherwise; None where that side is not for tracing, and beyond a number of traces."""

    def __init__(self, retrace: Callable[[Callable[[int], bool]], torch.export.ExportedProgram], parameters: TracedParameters):
        self._retrace, self._left = retrace, MOST_TRACES
        self._parameters = parameters
        #: What was in the way of the last trace.
        self.error: Exception | None = None

    def trace(self, otherwise: Callable[[int], bool]) -> torch.export.ExportedProgram | None:
        self._left -= 1
        self.error = None
        if self._left < 0:
            return None
        try:
            other = self._retrace(otherwise)
        except Exception as error:  # the branch has one side
            if find_cause(error, EndlessLoop) is not None:
                raise
            self.error = error
            return None
        writing = find_writing_branch(other)
        if writing is not None:
            names = ", ".join(name.removeprefix("net.") for name in writing[1])
            self.error = Refused(f"it writes parameters, {names}, which in a step only the optimizer does. {ADVICE}")
            return None
        _drop_ends(other)
        self._parameters.add(other)
        return other


def _settle_each(program: torch.export.ExportedProgram, tracer: _Tracer, taken: frozenset[int],
                 numbers: Sequence[int]) -> dict[int, Exception | None]:
    """Has the program choose behind each of these branches; `taken` were taken otherwise when it was traced. Returns those that are left,
    with the errors of their other sides."""
    sides: list[_Side] = []
    left: dict[int, Exception | None] = {}
    for number in numbers:
        other = tracer.trace(lambda other: other in taken or other == number)
        try:
            if other is None:
                raise _Differs
            side = _find_side(program, other, number)
            inside = [node.args[1] for node in side.other if node.target is _BRANCH]
            if inside:  # as of elif
                if _settle_each(other, tracer, taken | {number}, inside):
                    raise _Differs
                _drop_markers(other, inside)
                side = _find_side(program, other, number)
            sides.append(side)
        except _Differs:
            left[number] = tracer.error
    order = {node: place for place, node in enumerate(program.graph.nodes)}
    chooser = _Chooser(program)
    for side in sorted(sides, key=lambda side: (order[side.behind], -side.number)):  # the innermost first
        if side.is_settled:
            chooser.assert_where_taken(side)
        elif chooser.can_apply(side):
            chooser.apply(side)
        else:
            left[side.number] = None
    return left


def _drop_markers(program: torch.export.ExportedProgram, numbers: Sequence[int]) -> None:
    for node in [node for node in program.graph.nodes if node.target is _BRANCH and node.args[1] in numbers]:
        node.replace_all_uses_with(node.args[0])
        program.graph.erase_node(node)


def find_known_side(program: torch.export.ExportedProgram) -> tuple[int, bool] | None:
    """Of the first branch whose condition follows from no data, its number and what the condition is."""
    if all(node.target is not _BRANCH for node in program.graph.nodes):
        return None
    constants = {spec.arg.name: program.constants[spec.target] for spec in program.graph_signature.input_specs
                 if spec.kind == InputKind.CONSTANT_TENSOR}
    known: dict[torch.fx.Node, torch.Tensor] = {}

    def forget(written: torch.fx.Node) -> None:
        if written in known:
            storage = known[written].untyped_storage()._cdata
            for node in [node for node, value in known.items() if value.untyped_storage()._cdata == storage]:
                del known[node]

    for node in program.graph.nodes:
        value, schema = node.meta.get("val"), getattr(node.target, "_schema", None)
        if node.op == "placeholder" and node.name in constants and constants[node.name].numel() <= _MOST_KNOWN:
            known[node] = constants[node.name].clone()
        if node.op != "call_function":
            continue
        if node.target is _BRANCH and node.args[0] in known:
            with torch._C.DisableTorchFunction():  # which would take it for a branch
                return node.args[1], bool(known[node.args[0]])
        is_known = (isinstance(node.target, torch._ops.OpOverload) and node.target is not _BRANCH and isinstance(value, torch.Tensor)
                    and torch.Tag.nondeterministic_seeded not in node.target.tags and _find_shape(value) is not None
                    and value.numel() <= _MOST_KNOWN and all(argument in known for argument in node.all_input_nodes))
        if is_known:
            arguments, keywords = torch.fx.node.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
            with torch.no_grad():
                known[node] = node.target(*arguments, **keywords)
        elif schema is not None and schema.is_mutable:
            for written in node.all_input_nodes:
                forget(written)
    return None


def settle_sides(program: torch.export.ExportedProgram, retrace: Callable[[Callable[[int], bool]], torch.export.ExportedProgram],
                 parameters: TracedParameters) -> dict[int, Exception | None]:
    """Makes the program compute what holds on either side of its branches. `retrace` traces again with those branches taken
    otherwise whose numbers it is given. Returns the numbers of the branches that have one side in the program nevertheless, with the
    errors of those that could not be traced otherwise. `parameters` sees all traces.
    """
    _drop_ends(program)
    left = [node.args[1] for node in program.graph.nodes if node.target is _BRANCH]
    if not left:
        return {}
    parameters.add(program)
    tracer = _Tracer(retrace, parameters)
    other = tracer.trace(lambda number: True)
    if other is not None:
        try:
            settled = _settle_all(program, other)
            for side in settled:
                _Chooser(program).assert_where_taken(side)
            left = [number for number in left if not any(side.number == number for side in settled)]
        except _Differs:
            pass
    found = _settle_each(program, tracer, frozenset(), left) if len(left) <= MOST_SIDES else dict.fromkeys(left)
    program.graph_module.recompile()
    return found


def finish_sides(program: torch.export.ExportedProgram, one_sided: Collection[int]) -> None:
    """Branches that have one side are checked: the loss is no number where the other holds. Markers are taken off."""
    graph = program.graph
    output = graph.output_node()
    loss = next(node for node, spec in zip(output.args[0], program.graph_signature.output_specs) if spec.kind.name == "USER_OUTPUT")
    for node in [node for node in graph.nodes if node.target is _BRANCH]:
        if node.args[1] in one_sided:
            with graph.inserting_before(output):
                zero = insert(graph, aten.where.Scalar, node, 0.0, float("nan"), like=node)
                zero = insert(graph, aten.to.dtype, zero, loss.meta["val"].dtype, like=node)
                checked = insert(graph, aten.add.Tensor, loss, zero, like=node)
            output.replace_input_with(loss, checked)
            for spec in program.graph_signature.output_specs:
                if spec.arg.name == loss.name:
                    spec.arg = type(spec.arg)(name=checked.name)
            loss = checked
    _drop_markers(program, [node.args[1] for node in graph.nodes if node.target is _BRANCH])
    program.graph_module.recompile()
