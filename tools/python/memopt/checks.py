# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a model makes of values, as torch.distributions does of its arguments, carried into the step.

PyTorch asserts them while the model runs. A program has no such assertion, but it refuses a step whose loss is not finite, and
leaves everything as it was. So each check is a term of the loss: the mean over all that it sees of 0 where it holds and of what
is no number where it fails. A mean, and not the one answer for all, keeps the samples of a batch apart.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from .places import called_from

__all__ = ["carried_checks"]


class carried_checks(TorchFunctionMode):
    """While entered, assertions about tensors are collected instead of made."""

    def __init__(self):
        super().__init__()
        self._conditions: list[torch.Tensor] = []
        self._elements: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by identity of the one answer, which is kept
        #: What was asserted, a line each: "model.py:12: Expected ...".
        self.texts: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch._assert_async:
            condition, text = (*args, *kwargs.values(), "an assertion")[:2]
            self._conditions.append(self._elements.get(id(condition), (condition, condition))[1])
            self.texts.append(f"{called_from()}: {text}")
            return None
        result = args[0].all() if function is torch._is_all_true else function(*args, **kwargs)
        if function is torch._is_all_true:
            self._elements[id(result)] = result, args[0]
        elif function is torch.Tensor.cpu and id(args[0]) in self._elements:
            self._elements[id(result)] = result, self._elements[id(args[0])][1]
        return result

    def apply(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss with the terms of the checks."""
        while self._conditions:
            holds = self._conditions.pop() != 0
            loss = loss + torch.where(holds, 0.0, float("nan")).mean().to(loss.dtype)
        return loss
