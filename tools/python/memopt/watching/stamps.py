# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tells that a tensor or an array is another one, or was written to."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

__all__ = ["MOST_BYTES", "is_array", "stamp"]


def is_array(value: Any) -> bool:
    return hasattr(value, "__array_interface__") and not isinstance(value, torch.Tensor)


_MOST_BYTES = 1 << 16  # of an array that are compared
#: Of a tensor that are all compared; _END_BYTES are those at either end of a larger one.
MOST_BYTES, _END_BYTES = 512, 8


def _stamp_memory(value: Any) -> Any:
    """Where a tensor's bytes are, and all of few, or else the first and last of them; those of an array that is not large."""
    if is_array(value):
        return value.tobytes() if value.nbytes <= _MOST_BYTES else None
    if value.layout is not torch.strided:
        return None
    address, size = value.data_ptr(), value.nbytes
    if value.device.type != "cpu" or not address or not value.is_contiguous():
        return address, b""
    # PyTorch does not count what is written through `.data`; in a large tensor that nearly always changes the first or last numbers.
    if size <= MOST_BYTES:
        return address, ctypes.string_at(address, size)
    return address, ctypes.string_at(address, _END_BYTES) + ctypes.string_at(address + size - _END_BYTES, _END_BYTES)


def stamp(tensors: list[Any]) -> list[Any]:
    """What changes if a tensor or an array is another, or is written to."""
    return [*map(id, tensors), *(getattr(tensor, "_version", 0) for tensor in tensors), *map(_stamp_memory, tensors)]
