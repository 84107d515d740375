# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""File and line of the user's source that something comes from.

The user's is what lies neither in PyTorch nor in this package, and not among installed libraries, as long as there is
such a place. Where a library of models was called from there, its own line is told as well.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from types import FrameType, TracebackType

import torch

__all__ = ["called_from", "find_caller", "find_place", "is_hidden", "is_installed", "is_of_python", "is_own", "list_frames", "place_of_error", "place_of_node"]

Frame = tuple[str, int]

_OWN = str(pathlib.Path(__file__).parents[1]) + os.sep
_HIDDEN = tuple(os.path.join(os.path.realpath(path), "") for path in (os.path.dirname(torch.__file__), _OWN))
_STANDARD = tuple(os.path.realpath(sysconfig.get_paths()[name]) + os.sep for name in ("stdlib", "platstdlib"))
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def is_own(file: str) -> bool:
    """Whether it is a file of this package."""
    return file.startswith(_OWN)


def find_caller(frame: FrameType | None) -> FrameType | None:
    """The first frame, from the innermost on, that is not of this package."""
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_of_python(file: str) -> bool:
    """Whether it is a file of Python's own library."""
    path = os.path.realpath(file)
    return file.startswith("<frozen") or path.startswith(_STANDARD) and not _INSTALLED.search(path)


def is_installed(file: str) -> bool:
    """Whether it is a file of a library that was installed."""
    return bool(_INSTALLED.search(file))


def is_hidden(file: str) -> bool:
    """Whether it is a file of this package, of PyTorch or of Python: none that a message would name."""
    return file.startswith(("<eval_with_key>", "<string>")) or os.path.realpath(file).startswith(_HIDDEN) or is_of_python(file)


def _write(frame: Frame) -> str:
    return f"{frame[0]}:{frame[1]}"


def find_place(frames: Iterable[Frame]) -> str | None:
    """Of frames, the outermost first, the user's innermost line: "model.py:12", or "model.py:12 (through
    torchvision/ops/giou_loss.py:50)"."""
    shown = [frame for frame in frames if not is_hidden(frame[0])]
    if not shown:
        return None
    own = next((frame for frame in reversed(shown) if not _INSTALLED.search(frame[0])), None)
    if own is None or own is shown[-1]:
        return _write(shown[-1])
    return f"{_write(own)} (through {_write((_INSTALLED.split(shown[-1][0])[-1], shown[-1][1]))})"


def called_from() -> str:
    """The user's line that is running."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(sys._getframe(1))]
    return find_place(reversed(frames)) or "the model"


def list_frames(trace: TracebackType | None) -> list[Frame]:
    return [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]


def place_of_error(error: BaseException) -> str | None:
    """The user's line that an error passed on its way."""
    return find_place(list_frames(error.__traceback__))


def place_of_node(node: torch.fx.Node) -> str | None:
    """The user's line that a node was traced from."""
    trace = node.meta.get("stack_trace") or ""
    return find_place((file, int(line)) for file, line in re.findall(r'File "(.*?)", line (\d+)', trace))
