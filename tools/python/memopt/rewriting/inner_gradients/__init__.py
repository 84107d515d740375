# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that a model takes itself: `torch.autograd.grad`, `torch.func.grad` and their kin in forward or in the loss."""

from . import calls, functional
from .expansion import check_parts, expand_gradients, has_vmap, make_numbers_tensors

__all__ = ["REPLACED", "check_parts", "expand_gradients", "has_vmap", "make_numbers_tensors"]

REPLACED = [*calls.REPLACED, *functional.REPLACED]
