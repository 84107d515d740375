# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex tensors as pairs of real ones: what the rules for complex numbers and for Fourier transforms share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["Pair", "as_pair", "as_real", "has_complex", "is_complex"]


class Pair:
    """No container, for rules see it whole."""

    def __init__(self, re: torch.Tensor, im: torch.Tensor):
        self.re, self.im = re, im

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter((self.re, self.im))

    def __getitem__(self, place: int) -> torch.Tensor:
        return self.im if place else self.re


def is_complex(value: Any) -> bool:
    return isinstance(value, Pair)


def has_complex(value: Any) -> bool:
    """A complex tensor, or a complex number of Python."""
    return isinstance(value, (Pair, complex))


def as_pair(real: torch.Tensor) -> Pair:
    """Of a real tensor with a last dimension of two."""
    return Pair(real.select(-1, 0), real.select(-1, 1))


def as_real(value: Pair) -> torch.Tensor:
    return torch.stack([value.re, value.im], -1)
