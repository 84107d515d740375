# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tells that a tensor or an array is another one, or was written to."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

__all__ = ["is_array", "stamp"]


def is_array(value: Any) -> bool:
    return hasattr(value, "__array_interface__") and not isinstance(value, torch.Tensor)


_MOST_BYTES = 1 << 16  # of an array that are compared


def _stamp_memory(value: Any) -> Any:
    """Where a tensor's bytes are, and the bytes of a number; those of an array that is not large."""
    if is_array(value):
        return value.tobytes() if value.nbytes <= _MOST_BYTES else None
    if value.layout is not torch.strided:
        return None
    address, is_number = value.data_ptr(), value.numel() == 1 and value.device.type == "cpu"
    return address, ctypes.string_at(address, value.element_size()) if is_number else b""


def stamp(tensors: list[Any]) -> list[Any]:
    """What changes if a tensor or an array is another, or is written to."""
    return [*map(id, tensors), *(getattr(tensor, "_version", 0) for tensor in tensors), *map(_stamp_memory, tensors)]
