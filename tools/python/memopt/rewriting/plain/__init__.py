# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators on tensors of known sizes, by other operators."""

from __future__ import annotations

from . import counting, lists, pooling, repetitions, sampling, statistics

__all__ = ["FUNCTIONS", "RULES"]

#: Functions in the place of PyTorch's, by those.
FUNCTIONS = statistics.FUNCTIONS
RULES = {**repetitions.RULES, **statistics.RULES, **counting.RULES, **pooling.RULES, **sampling.RULES, **lists.RULES}
