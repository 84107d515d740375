# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled steps in the trainers of other libraries, each a module that needs its library:

    memopt.integrations.transformers   Trainer, a subclass of theirs
    memopt.integrations.lightning      MemoptStrategy, for their Trainer
    memopt.integrations.mmengine       MemoptRunner, a subclass of their Runner

What a trainer's arguments say is translated, or refused by name. docs/Python.md is the guide.
"""

from __future__ import annotations

import importlib

_MODULES = ("lightning", "mmengine", "transformers")

__all__ = list(_MODULES)


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'memopt.integrations' has no attribute '{name}'")
