# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows chosen by a mask, whose number depends on the data.

    kept = labels >= 0
    loss = F.cross_entropy(logits[kept], labels[kept])

A `Ragged` value has all rows, in their places, and says which of them count. Operators that treat rows alike are applied to
all; sums leave out those that do not count; writes by index leave them alone. A row that does not count is filled with one that
does, so that what is computed from it is as finite, and so are its slopes, which are multiplied by zero.
"""

from .calls import RULES, as_count, call, takes_counts, takes_tensors, widen_parts
from .grids import Grid, is_grid
from .grid_rules import call as call_grids
from .values import Count, NotRagged, Ragged, find_whole, is_ragged
from .views import CopiedViews

__all__ = ["CopiedViews", "Count", "Grid", "NotRagged", "RULES", "Ragged", "as_count", "call", "call_grids", "find_whole", "is_grid",
           "is_ragged", "takes_counts", "takes_tensors", "widen_parts"]
