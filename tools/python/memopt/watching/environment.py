# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model's code reads from the environment, `os.environ` and `os.getenv`, while it is traced."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, NamedTuple

from torch import nn

from ..user_code.places import is_hidden, is_installed, is_of_python

__all__ = ["EnvironmentReads", "Variable"]

#: What calls the forward of a module.
_CALLS = {nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__}


class Variable(NamedTuple):
    """One that was asked for."""

    name: str
    #: The environment as the system spells it, in which others look as well, and the name there.
    holder: dict
    key: Any
    #: None where there is none.
    value: Any


def _is_asked_by_model() -> bool:
    """Whether it is asked for while the model runs: by the user's code, or by a library that a module's forward has called. PyTorch and
    ours have settings of their own there, and so has what is imported meanwhile."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return False
        if not is_of_python(name):
            if is_hidden(name):
                return frame.f_code in _CALLS
            if not is_installed(name):
                return True
        frame = frame.f_back
    return False


_lock = threading.Lock()
_readers: dict[int, EnvironmentReads] = {}  # by thread
_KIND = type(os.environ)
_get_plainly = _KIND.__getitem__


def _get(environment: Any, name: Any) -> Any:
    reader = _readers.get(threading.get_ident())
    if reader is not None and isinstance(name, (str, bytes)) and _is_asked_by_model():
        key = environment.encodekey(name)
        reader.variables.setdefault(key, Variable(os.fsdecode(name), environment._data, key, environment._data.get(key)))
    return _get_plainly(environment, name)


class EnvironmentReads:
    """While entered, collects the variables that the model's code asks for in this thread."""

    def __init__(self):
        self.variables: dict[Any, Variable] = {}

    def __enter__(self) -> EnvironmentReads:
        with _lock:
            _readers[threading.get_ident()] = self
            _KIND.__getitem__ = _get
        return self

    def __exit__(self, *_) -> None:
        with _lock:
            _readers.pop(threading.get_ident(), None)
            if not _readers:
                _KIND.__getitem__ = _get_plainly
