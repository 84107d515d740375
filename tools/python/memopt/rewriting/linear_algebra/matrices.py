# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Words for matrices, and how large they may be."""

from __future__ import annotations

import torch

from ...errors import Refused

__all__ = ["MOST_IN_BLOCKS", "MOST_ROWS", "MOST_TURNED", "check_size", "eye", "t"]

#: Of what is written out by blocks of rows, by rows, and of what turns by rotations.
MOST_IN_BLOCKS, MOST_ROWS, MOST_TURNED = 1024, 160, 40


def check_size(x: torch.Tensor, most: int, what: str) -> None:
    if min(x.shape[-2:]) > most:
        raise Refused(f"{what} of a matrix of {min(x.shape[-2:])} rows is written out, and supported up to {most}; compute it outside "
                      "of the step and pass the result as an input or a buffer")


def eye(x: torch.Tensor, size: int | None = None) -> torch.Tensor:
    return torch.eye(x.shape[-1] if size is None else size, dtype=x.dtype)


def t(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2)

