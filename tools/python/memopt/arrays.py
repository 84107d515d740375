# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looks at arrays of other libraries where they lie.

NumPy's interface, DLPack (PyTorch, JAX, CuPy, ...) and Python's buffers are read without a copy; no library is needed
for it.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any, NamedTuple

from .errors import BadInput

__all__ = ["View", "view_array"]


class View(NamedTuple):
    """A tensor in host memory. `owner` keeps its bytes where they are."""

    address: int
    dtype: str  #: as manifests have it: "f32"
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  #: in elements; None: row-major without gaps
    owner: Any


# ----------------------------------------------------------------------------------------------------------
# DLPack (https://dmlc.github.io/dlpack), the part that describes a tensor
# ----------------------------------------------------------------------------------------------------------

class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("rank", ctypes.c_int32), ("dtype", _DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("offset", ctypes.c_uint64)]


_HOST_DEVICES = (1, 3, 11, 13)  # plain memory, and what CUDA and ROCm pin or manage
_CODES = {0: "i", 1: "u", 2: "f", 4: "bf", 6: "i"}  # a bool has 8 bits

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _view_dlpack(value: Any) -> View:
    if getattr(value, "requires_grad", False):
        value = value.detach()  # who only looks needs no gradient
    for name in ("neg", "conj"):  # a view of PyTorch's may have other signs than its bytes, which DLPack does not say
        if getattr(value, f"is_{name}", bool)():
            value = getattr(value, f"resolve_{name}")()
    try:
        device = value.__dlpack_device__()[0]
    except Exception as error:  # a sparse tensor, say, or one that lies nowhere
        raise BadInput(f"the array cannot be seen by DLPack: {error}") from error
    if device not in _HOST_DEVICES:
        raise BadInput(f"the array lies on a device (DLPack's type {int(device)}), expected host memory; move it by .cpu()")
    try:
        capsule = value.__dlpack__()
    except Exception as error:
        raise BadInput(f"the array cannot be seen by DLPack: {error}") from error
    tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    kind = _CODES.get(tensor.dtype.code)
    if kind is None or tensor.dtype.lanes != 1:
        raise BadInput(f"the array's elements (DLPack's code {tensor.dtype.code}) have no counterpart")
    dtype = "i1" if tensor.dtype.code == 6 else f"{kind}{tensor.dtype.bits}"
    strides = tuple(tensor.strides[:tensor.rank]) if tensor.strides else None
    return View((tensor.data or 0) + tensor.offset, dtype, tuple(tensor.shape[:tensor.rank]), strides, capsule)


# ----------------------------------------------------------------------------------------------------------
# NumPy and buffers
# ----------------------------------------------------------------------------------------------------------

#: By kind and bytes, as NumPy's type strings have them.
_DTYPES = {"f8": "f64", "f4": "f32", "f2": "f16", "i8": "i64", "i4": "i32", "i2": "i16", "i1": "i8", "u1": "u8", "b1": "i1"}
#: Of buffers, whose letters are those of C's types; all have the sizes of x86-64 and AArch64.
_LETTERS = {"d": "f8", "f": "f4", "e": "f2", "q": "i8", "l": "i8", "i": "i4", "h": "i2", "b": "i1", "B": "u1", "?": "b1"}


def _make_view(address: int, type_string: str, shape, strides, size: int, owner: Any) -> View:
    dtype = _DTYPES.get(type_string.lstrip("<=|@"))
    if dtype is None:
        raise BadInput(f"the array's elements are of type '{type_string}', which has no counterpart; there are "
                       "floating-point numbers of 16, 32 and 64 bits, integers and booleans in the machine's order of bytes")
    if strides is not None and any(stride % size for stride in strides):
        raise BadInput(f"the array's elements lie {strides} bytes apart, which are no multiples of their size")
    return View(address, dtype, tuple(shape), None if strides is None else tuple(stride // size for stride in strides), owner)


def _view_buffer(value: Any) -> View:
    buffer = memoryview(value)
    shape, strides, size = buffer.shape, buffer.strides, buffer.itemsize
    if buffer.readonly or not buffer.c_contiguous:
        raise BadInput("a buffer has to be writable and without gaps for its address to be known; give an array")
    address = ctypes.addressof((ctypes.c_char * buffer.nbytes).from_buffer(buffer)) if buffer.nbytes else 0
    return _make_view(address, _LETTERS.get(buffer.format.lstrip("@=<"), buffer.format), shape, strides, size, buffer)


def view_array(value: Any) -> View:
    """Where the array lies and what it is. Raises `BadInput` for what is none, or is not in host memory."""
    if hasattr(value, "__array_interface__"):
        facts = value.__array_interface__
        size = re.fullmatch(r"[<>=|@][a-zA-Z](\d+)", facts["typestr"])  # of a date or a structure it says more
        return _make_view(facts["data"][0], facts["typestr"], facts["shape"], facts.get("strides"),
                          int(size[1]) if size else 1, value)
    if hasattr(value, "__dlpack__"):
        return _view_dlpack(value)
    try:
        return _view_buffer(value)
    except TypeError:
        raise BadInput(f"expected an array (NumPy, PyTorch or anything with DLPack), found {type(value).__name__}") from None
