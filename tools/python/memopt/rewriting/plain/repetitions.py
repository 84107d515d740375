# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements that are repeated as often as a tensor says, where the size of the result is given."""

from __future__ import annotations

import torch

from ...errors import Refused

__all__ = ["RULES"]


def _repeat(engine, target, arguments, keywords):
    """repeat_interleave: element i of the result is the first whose repetitions, with those before it, are more than i."""
    overload, size = target._overloadname, keywords.get("output_size")
    if overload == "self_int":
        return target(*arguments, **keywords)
    if size is None:
        raise Refused("repeat_interleave by a tensor gives as many elements as that adds up to; give it output_size=, the number that "
                      "the batches are made for")
    counts = arguments[0] if overload == "Tensor" else arguments[1]
    ends = counts.cumsum(0)
    places = torch.searchsorted(ends, torch.arange(size, dtype=ends.dtype), right=True)
    if overload == "Tensor":
        return places.to(counts.dtype)
    x, dim = arguments[0], (*arguments, keywords.get("dim"))[2]
    x, dim = (x.flatten(), 0) if dim is None else (x, dim)
    return x.index_select(dim, places if counts.dim() and counts.shape[0] > 1 else places.clamp(max=0))


RULES = {"aten::repeat_interleave": _repeat}
