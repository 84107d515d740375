# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the bytecode of Python functions names."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator

__all__ = ["list_asked", "list_indexed", "list_names"]


def _walk_code(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _walk_code(constant)


def list_names(function: types.FunctionType, kinds: tuple[str, ...]) -> set[str]:
    """What the instructions of these kinds name."""
    return {instruction.argval for code in _walk_code(function.__code__) for instruction in dis.get_instructions(code)
            if instruction.opname in kinds}


def list_asked(function: types.FunctionType) -> set[str]:
    """The strings of a function's code, which may be keys of dicts, without those that it only writes to."""
    asked = set()
    for code in _walk_code(function.__code__):
        instructions = list(dis.get_instructions(code))
        for instruction, following in zip(instructions, [*instructions[1:], None]):
            if (isinstance(instruction.argval, str) and instruction.opname == "LOAD_CONST"
                    and (following is None or following.opname not in ("STORE_SUBSCR", "DELETE_SUBSCR"))):
                asked.add(instruction.argval)
        # "x" in d, and calls by keywords, have their strings in tuples.
        for constant in code.co_consts:
            if isinstance(constant, (tuple, frozenset)):
                asked.update(part for part in constant if isinstance(part, str))
    return asked


_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")


def list_indexed(function: types.FunctionType) -> set[str]:
    """Names that stand shortly before an index that is computed, or of which all entries are asked for."""
    names = set()
    for code in _walk_code(function.__code__):
        instructions = list(dis.get_instructions(code))
        for number, instruction in enumerate(instructions):
            front: list[dis.Instruction] = []
            if instruction.opname == "BINARY_SUBSCR" or instruction.opname == "BINARY_OP" and instruction.argrepr == "[]":
                is_constant = number and instructions[number - 1].opname == "LOAD_CONST"
                front = [] if is_constant else instructions[max(0, number - 8):number]
            elif instruction.argval in ("items", "values", "get", "copy") or instruction.opname in ("DICT_MERGE", "DICT_UPDATE"):
                front = instructions[max(0, number - 1):number]
            names.update(one.argval for one in front if one.opname in _LOADS)
    return names
