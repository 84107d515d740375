# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All branches of a program: each is computed always, chosen by, or left with one side."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set

import torch

from ...errors import EndlessLoop, Refused
from ...user_code.tracing_errors import find_cause
from ..regions import list_written
from .alike import find_idle_sides
from .asserted import is_asserted
from .choosing import Chooser
from .edges import mark_edges
from .markers import BRANCH, drop_ends, drop_markers
from .nothing_changes import Nothing
from .pairing import Differs, PassesOn, Side, compare, find_side
from .written_parameters import ADVICE, find_writing_branch

__all__ = ["MOST_BRANCHES", "TakenOtherwise", "settle_sides"]

#: Branches that are traced one by one; a loop over more is a loop whose end the data decide.
MOST_SIDES = 12
MOST_TRACES = 25
MOST_BRANCHES = 2048


class TakenOtherwise(Exception):
    """The program is to be traced with the other side of branches, of which it cannot be told what they choose."""

    def __init__(self, numbers: Sequence[int]):
        super().__init__(numbers)
        self.numbers = numbers


def _settle_all(first, second) -> list[Side]:
    """Those branches whose side changes nothing where the branch is not taken; `second` has taken none."""
    markers = [node for node in first.graph.nodes if node.target is BRANCH]
    sides, pairs, differing = compare(first, second, markers)
    inside = {node: side for side in sides for node in side.body}
    nothings = {side: Nothing(first, side.marker, side.body) for side in sides}
    failed = {side for side in sides if side.other or side.has_branches or not nothings[side].writes_nothing()}

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
            if value not in inside:  # the sides give values from before them, as in a, b = b, a
                raise Differs
            while value in inside:
                failed.add(inside[value])
                value = nothings[inside[value]].value_before(value) or other
    for side in sides:
        for node in side.body:
            for user in node.users:
                if inside.get(user) is not side and not is_asserted(user) and nothings[side].value_before(node) is None:
                    failed.add(side)
    settled = [side for side in sides if side not in failed]
    for side in settled:
        side.kept = nothings[side].list_kept()
    return settled


class _Tracer:
    """Traces with some branches taken otherwise; None where that side is not for tracing, and beyond a number of traces."""

    def __init__(self, retrace: Callable[[Callable[[int], bool]], torch.export.ExportedProgram]):
        self._retrace, self._left = retrace, MOST_TRACES
        #: What was in the way of the last trace.
        self.error: Exception | None = None

    def trace(self, otherwise: Callable[[int], bool]) -> torch.export.ExportedProgram | None:
        self._left -= 1
        self.error = None
        if self._left < 0:
            return None
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # PyTorch's words on a side that it cannot trace
        try:
            other = self._retrace(otherwise)
        except Exception as error:  # the branch has one side
            if find_cause(error, EndlessLoop) is not None:
                raise
            self.error = error
            return None
        finally:
            logging.disable(before)
        writing = find_writing_branch(other)
        if writing is not None:
            names = ", ".join(name.removeprefix("net.") for name in writing[1])
            self.error = Refused(f"it writes parameters, {names}, which in a step only the optimizer does. {ADVICE}")
            return None
        drop_ends(other)
        return other


def _settle_idle(program: torch.export.ExportedProgram, tracer: _Tracer, numbers: Sequence[int]) -> list[Side]:
    """Of branches by numbers that follow from the data, those that change nothing where they are not taken. Each second one is left out, and
    then the others: the last that is left would leave nothing to go on with."""
    markers = {node.args[1]: node for node in program.graph.nodes if node.target is BRANCH}
    if len(numbers) < 2:
        return []
    amounts = Nothing(program, markers[numbers[0]], ()).amounts
    numbers = [number for number in numbers if amounts.says_something(markers[number].args[0], False)]
    found = []
    for part in (numbers[::2], numbers[1::2]) if len(numbers) > 1 else ():
        other = tracer.trace(lambda number: number in part)
        try:
            found += () if other is None else find_idle_sides(program, other, part)
        except Differs:
            pass
    return found


def _mark_settled(sides: Sequence[Side]) -> None:
    """Of sides that are always computed: what a side takes, but for values that it leaves as they are."""
    for side in sides:
        inside = set(side.body)
        for node in side.body:
            written = set(list_written(node))
            place = side.kept.get(node)
            mark_edges(node, side.marker, True, but={*inside, *written, *(() if place is None else (place,))})


def _settle_each(program: torch.export.ExportedProgram, tracer: _Tracer, taken: frozenset[int],
                 numbers: Sequence[int], turned: Set[int]) -> dict[int, Exception | None]:
    """Has the program choose behind each of these branches; `taken` were taken otherwise when it was traced. Returns those that are left,
    with the errors of their other sides."""
    sides: list[Side] = []
    left: dict[int, Exception | None] = {}
    passing: list[int] = []
    for number in numbers:
        other = tracer.trace(lambda other: other in taken or other == number)
        try:
            if other is None:
                raise Differs
            try:
                sides += find_idle_sides(program, other, [number])
                continue
            except Differs:
                pass
            passes_on = bool(taken) or number in turned
            side = find_side(program, other, number, passes_on)
            inside = [node.args[1] for node in side.other if node.target is BRANCH]
            if inside:  # as of elif
                if _settle_each(other, tracer, taken | {number}, inside, turned):
                    raise Differs
                drop_markers(other, inside)
                side = find_side(program, other, number, passes_on)
            sides.append(side)
        except PassesOn:
            passing.append(number)
        except Differs:
            left[number] = tracer.error
    if passing:
        raise TakenOtherwise(passing)
    order = {node: place for place, node in enumerate(program.graph.nodes)}
    crossing = {inner for side in sides for inner in sides if inner.marker in side.body and order[inner.behind] > order[side.behind]}
    left |= dict.fromkeys(side.number for side in crossing)  # what they do at the end would not be where the outer branch is taken
    sides = [side for side in sides if side not in crossing]
    chooser = Chooser(program)
    for side in sorted(sides, key=lambda side: (order[side.behind], -side.number)):  # the innermost first
        if side.is_settled:
            chooser.assert_where_taken(side)
        elif chooser.can_apply(side):
            chooser.apply(side)
        else:
            left[side.number] = None
    _mark_settled([side for side in sides if side.is_settled])
    return left


def settle_sides(program: torch.export.ExportedProgram,
                 retrace: Callable[[Callable[[int], bool]], torch.export.ExportedProgram],
                 turned: Set[int] = frozenset()) -> dict[int, Exception | None]:
    """Makes the program compute what holds on either side of its branches. `retrace` traces again with those branches taken
    otherwise whose numbers it is given. Returns the numbers of the branches that have one side in the program nevertheless, with the
    errors of those that could not be traced otherwise. Raises `TakenOtherwise` for branches that are not among those which were `turned`. What goes into the sides of others is marked (edges.py).
    """
    drop_ends(program)
    left = [node.args[1] for node in program.graph.nodes if node.target is BRANCH]
    if not left:
        return {}
    tracer = _Tracer(retrace)
    other, settled = tracer.trace(lambda number: True), []
    if other is not None:
        try:
            settled = _settle_all(program, other)
            for side in settled:
                Chooser(program).assert_where_taken(side)
            left = [number for number in left if not any(side.number == number for side in settled)]
        except Differs:
            pass
    idle = _settle_idle(program, tracer, left)
    left = [number for number in left if not any(side.number == number for side in idle)]
    found = _settle_each(program, tracer, frozenset(), left, turned) if len(left) <= MOST_SIDES else dict.fromkeys(left)
    for side in idle:
        Chooser(program).assert_where_taken(side)
    _mark_settled([*settled, *idle])
    program.graph_module.recompile()
    return found
