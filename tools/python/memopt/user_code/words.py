# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages of the compiler and the runtime in the words of a user of Python.

They speak of the program: of parameters behind the name of the wrapper that holds model and loss (`net.0.weight`), of
nodes of the traced graph, of options of a command line. Who calls from Python knows `0.weight`, a line of a source file,
and keywords.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from torch import nn

from ..errors import Error

__all__ = ["ProgramWords"]

_NAME = re.compile(r"(?<![\w./\-])((?:optimizer\.(?:\w+\.){1,2})?)net\.(?=[\w*?[])(?!py\b)")
_ROOT = re.compile(r"module 'net'|(?<= in )net(?![\w.])")
_NODES = re.compile(r"\bnodes? '[^']+'(?:, '[^']+')*")


class ProgramWords:
    """The names that a program has for what is in a wrapped model; `lines` are those of the nodes."""

    def __init__(self, step: nn.Module, lines: Mapping[str, str] | None = None):
        self._is_wrapped = isinstance(getattr(step, "net", None), nn.Module)
        self._lines = dict(lines or {})

    def translate(self, text: str) -> str:
        if self._is_wrapped:
            text = _NAME.sub(r"\1", text)
            text = _ROOT.sub("the model", text)
        return _NODES.sub(lambda nodes: re.sub(r"'([^']+)'", self._add_line, nodes[0]), text)

    def _add_line(self, node: re.Match) -> str:
        line = self._lines.get(node[1])
        return f"{node[0]} at {line}" if line else node[0]

    @contextlib.contextmanager
    def spoken(self) -> Iterator[None]:
        """Errors that leave are in these words."""
        try:
            yield
        except Error as error:
            error.rephrase(self.translate)
            raise
