# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What can go wrong, as exceptions with fields.

Who can help is the user (`BadInput`, `Refused`), the budget (`DoesNotFit`) or the machine (`Unavailable`): the exit codes
of the tools. All have `message`, the failure in a line, and `details`, whatever else was said of it; the text of an
exception is both.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["BadInput", "DoesNotFit", "ENDLESS_LOOP", "EndlessLoop", "Error", "LossNotFinite", "NumbersWarning", "Refused", "UNKNOWN_NUMBER", "Unavailable"]

#: Said while a model is traced, and while its program is rewritten.
UNKNOWN_NUMBER = ("a Python number (.item(), int(x), float(x), tolist()) that follows from the data is not known when the step is "
                  "compiled; keep it a tensor, or give it as a size that is fixed")

ENDLESS_LOOP = ("a loop whose end depends on the data is not supported; give it a number of turns, and keep what is done by "
                "torch.where(condition, new, old)")


class Error(Exception):
    """Any failure of memopt's."""

    def __init__(self, message: str, details: str = ""):
        super().__init__(message, details)
        self.message, self.details = message, details

    def __str__(self) -> str:
        return f"{self.message}\n{self.details}" if self.details else self.message

    def rephrase(self, translate: Callable[[str], str]) -> None:
        """Puts the failure into other words, in place."""
        self.args = self.message, self.details = translate(self.message), translate(self.details)


class BadInput(Error, ValueError):
    """Something that was given is wrong, or cannot be compiled; the message says what to do instead.

    `step` is the number of the step that failed, counted from 1, and 0 outside of steps.
    """

    def __init__(self, message: str, details: str = "", step: int = 0):
        super().__init__(message, details)
        self.step = step


class Refused(BadInput):
    """What cannot be exported and compiled without changing what training would do; the message says what to write
    instead."""


class EndlessLoop(Refused):
    """A loop whose end depends on the data."""


class LossNotFinite(BadInput, ArithmeticError):
    """A step was left before it changed anything, for its loss is infinite or not a number."""


class DoesNotFit(Error, MemoryError):
    """No plan within the budget was found.

    `budget` and `smallest_budget` are bytes of device memory; `lower_bound` is what no order of the step can do with,
    or None where several forms of the step were tried; `largest` lists (bytes, what) of the values that are alive at
    the peak of the smallest plan.
    """

    def __init__(self, message: str, details: str = "", report: dict | None = None):
        super().__init__(message, details)
        if report is None:
            return  # a copy, whose fields are set behind this
        self.budget = report["budget_bytes"]["device"]
        self.smallest_budget = report["smallest_budget_bytes"]["device"]
        self.lower_bound = report.get("lower_bound_bytes", {}).get("device")
        self.largest = [(entry["bytes"], entry["what"]) for entry in report.get("largest_at_peak", [])]

    def rephrase(self, translate: Callable[[str], str]) -> None:
        super().rephrase(translate)
        self.largest = [(count, translate(what)) for count, what in self.largest]


class Unavailable(Error, OSError):
    """The machine lacks something: memopt's tools, disk space, memory, a library."""


class NumbersWarning(UserWarning):
    """The numbers of a compiled step differ from those of the loop in PyTorch; the text says why."""
