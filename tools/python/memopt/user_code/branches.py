# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches of Python that lead to an exception on one side:

    assert (x >= 0).all(), "counts must not be negative"
    if x.min() < 0:
        raise ValueError("counts must not be negative")
    if x.min() < 0:
        torch._assert(False, "counts must not be negative")

Such a branch is a check: forward goes on with the other side, and what the exception says is what the check says. Which side
raises is read from the bytecode of the frame that takes the branch.
"""

from __future__ import annotations

import dis
import sys
import types

from .places import is_own

__all__ = ["ends_loop", "find_frame", "find_raising_side"]

_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RETURN_GENERATOR", "YIELD_VALUE")
_ASSERTIONS = ("_assert", "_check")
_RAISES = ("RAISE_VARARGS", "RERAISE")
_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
_BETWEEN = ("CACHE", "TO_BOOL", "NOT_TAKEN", "PRECALL", "COPY", "RESUME")
_MOST_INSTRUCTIONS = 400


class _Code:
    """The instructions of a function, by their offsets."""

    def __init__(self, code: types.CodeType):
        self.list = list(dis.get_instructions(code))
        self.places = {instruction.offset: place for place, instruction in enumerate(self.list)}
        parse = getattr(dis, "_parse_exception_table", None)
        self._covered = list(parse(code)) if parse else []

    def jump(self, place: int) -> int:
        return self.places[self.list[place].argval]

    def is_caught(self, place: int) -> bool:
        """Whether an exception of this instruction reaches a handler other than that of a `with`."""
        offset = self.list[place].offset
        for entry in self._covered:
            if entry.start <= offset < entry.end and entry.target in self.places:
                names = [part.opname for part in self.list[self.places[entry.target]:][:3]]
                if "WITH_EXCEPT_START" not in names and "RERAISE" not in names:
                    return True
        return False


def _follow(code: _Code, place: int, value: bool) -> int | None:
    """Where the program goes on that has just made a truth value; None if it does not branch by it."""
    for number, instruction in enumerate(code.list[place:place + 12], place):
        name = instruction.opname
        if "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name):
            return code.jump(number) if value == ("IF_TRUE" in name) else number + 1
        if name == "UNARY_NOT":
            value = not value
        elif number > place and name not in _BETWEEN:
            return None
    return None


def _find_failed_check(code: _Code, place: int) -> int | None:
    """The end of `torch._assert(False, …)`, if it begins here."""
    if code.list[place].argval not in _ASSERTIONS or not code.list[place].opname.startswith("LOAD_"):
        return None
    first = next((part for part in code.list[place + 1:] if part.opname not in _BETWEEN and part.opname != "PUSH_NULL"), None)
    if first is None or first.opname != "LOAD_CONST" or first.argval is not False:
        return None
    return next((end for end in range(place, len(code.list)) if code.list[end].opname == "POP_TOP"), None)


def _list_raising(code: _Code, place: int) -> list[int] | None:
    """The instructions on the way to the exception in which every way from `place` ends; None if one does not."""
    seen: list[int] = []
    waiting, found = [place], False
    while waiting:
        place = waiting.pop()
        while place not in seen:
            if place >= len(code.list) or len(seen) > _MOST_INSTRUCTIONS:
                return None
            seen.append(place)
            end = _find_failed_check(code, place)
            if end is not None and not code.is_caught(place):
                seen.extend(range(place + 1, end))
                found = True
                break
            name = code.list[place].opname
            if name in _RAISES:
                if code.is_caught(place):
                    return None
                found = True
                break
            if name in _ENDS or name.startswith(("FOR_ITER", "SEND")):
                return None
            if name in _JUMPS:
                place = code.jump(place)
            elif "JUMP" in name:
                waiting.append(code.jump(place))
                place += 1
            else:
                place += 1
    return seen if found else None


def _describe(code: _Code, places: list[int], frame: types.FrameType) -> str:
    """What the exception says: the strings of its making."""
    words = []
    for place in sorted(places):
        instruction = code.list[place]
        value = instruction.argval
        if instruction.opname == "LOAD_FAST":
            value = frame.f_locals.get(instruction.argval)
            value = value() if isinstance(value, types.FunctionType) and not value.__code__.co_argcount else value
        if instruction.opname in ("LOAD_CONST", "LOAD_FAST") and isinstance(value, str) and value not in words:
            words.append(value)
    return " ".join(" ".join(words).split()) or "an assertion"


def find_frame() -> types.FrameType | None:
    """The frame that asks for a truth value, behind what listens to it."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_name == "__torch_function__" or is_own(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def ends_loop(frame: types.FrameType) -> bool:
    """Whether the branch that is being taken goes back to where it was taken before: `while` of a truth value."""
    code = _Code(frame.f_code)
    start = code.places.get(frame.f_lasti)
    if start is None:
        return False
    for value in (False, True):
        place = _follow(code, start, value)
        if place is not None and code.list[place].opname in _JUMPS:
            place = code.jump(place)
        if place is not None and place <= start and code.list[place].opname != "FOR_ITER":
            return True
    return False


def find_raising_side() -> tuple[bool, str] | None:
    """Of the branch that is being taken by a truth value: the value that ends in an exception, and what that says."""
    frame = find_frame()
    if frame is None:
        return None
    code = _Code(frame.f_code)
    start = code.places.get(frame.f_lasti)
    if start is None:
        return None
    for value in (False, True):
        target, other = _follow(code, start, value), _follow(code, start, not value)
        raising = None if target is None else _list_raising(code, target)
        if raising is not None and _list_raising(code, other) is None:
            return value, _describe(code, raising, frame)
    return None
