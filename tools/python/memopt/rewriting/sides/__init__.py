# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches of Python that the data decide:

    for expert in range(experts):
        mask = chosen == expert
        if mask.any():
            out[mask] += self.experts[expert](x[mask])

The model is traced with all such branches taken, and again with others. Two programs begin alike, up to the branch, and end alike;
what lies between are the two sides. So the sides are found without a look at the model's code, which may `continue`, return early
or call others.

A side that changes nothing where its mask chooses nothing (nothing_changes.py) is always computed. Of others both sides are
computed, and what follows takes the values of the one that holds. While a mask chooses nothing, the side that is not taken sees
its first element, so that means of it, and their slopes, are finite.
"""

from .markers import find_known_side, finish_sides
from .settling import MOST_BRANCHES, TakenOtherwise, settle_sides
from .updates import UPDATED_WHERE, mark_updates
from .written_parameters import ADVICE, find_writing_branch

__all__ = ["ADVICE", "MOST_BRANCHES", "TakenOtherwise", "UPDATED_WHERE", "find_known_side", "find_writing_branch", "finish_sides", "mark_updates",
           "settle_sides"]
