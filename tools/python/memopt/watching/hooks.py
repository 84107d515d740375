# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks that somebody adds behind `compile`.

PyTorch numbers all hooks of a process in one row: as long as none was made, nobody has got one, and that is one comparison.
Forward hooks that go are seen by the guards, for tracing has called them; others are refused from the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..internals import count_hooks, list_hooks

__all__ = ["HookWatch"]


class HookWatch:
    """Whether modules, parameters or an optimizer, which come with their names, have no more hooks than they had."""

    def __init__(self, owners: Iterable[tuple[str, Any]]):
        self._owners = list(owners)
        self._hooks = [set(list_hooks(owner)) for _, owner in self._owners]
        self._count = count_hooks()

    def hold(self) -> bool:
        return count_hooks() == self._count or self.find_change() is None

    def find_change(self) -> str | None:
        """Who has got a hook, as a sentence."""
        count = count_hooks()
        for (name, owner), known in zip(self._owners, self._hooks):
            if not known.issuperset(list_hooks(owner)):
                return f"{name} has got a hook since the step was compiled"
        self._count = count
        return None
