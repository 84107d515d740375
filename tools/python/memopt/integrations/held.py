# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiled step that a trainer of another library holds."""

from __future__ import annotations

from typing import Any

from ..step import Step


class HeldStep:
    """A step that is compiled with the first update, takes batches as they come, and runs ahead of model and optimizer."""

    #: None outside of the training.
    step: Step | None = None
    _is_behind = False

    def _hold(self) -> None:
        """Begins without batches."""
        self._pending: list[Any] = []

    def _take_pending(self) -> list[Any]:
        """The batches of an update, which the next one does not have."""
        batches, self._pending = self._pending, []
        return batches

    def sync(self) -> None:
        """Puts what the step has reached into model and optimizer."""
        if self.step is not None and self._is_behind:
            self.step.sync()
            self._is_behind = False

    def _end(self) -> None:
        self._pending = []
        if self.step is not None:
            self.sync()
            self.step.close()
            self.step = None
