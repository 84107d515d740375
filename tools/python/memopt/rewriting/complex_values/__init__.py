# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers as pairs of real ones, and Fourier transforms of them."""

from __future__ import annotations

from .calls import call, finish, makes_complex, refuse, write
from .pairs import as_pair, has_complex, is_complex

__all__ = ["as_pair", "call", "finish", "has_complex", "is_complex", "makes_complex", "refuse", "write"]
