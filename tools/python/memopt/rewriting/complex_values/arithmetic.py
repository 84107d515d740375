# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums, products, powers and polar form of complex numbers that are pairs of tensors."""

from __future__ import annotations

import operator
from typing import Any

import torch

from .pairs import Pair, as_real, is_complex

__all__ = ["absolute", "add", "angle", "bilinear", "div", "exp", "log", "mul", "pair", "polar", "reciprocal", "split", "sqrt"]


def split(value: Any) -> tuple[Any, Any]:
    """Real and imaginary part; None for what has no imaginary part."""
    if isinstance(value, Pair):
        return value.re, value.im
    if isinstance(value, complex):
        return value.real, value.imag
    return value, None


def pair(value: Any) -> Pair:
    re, im = split(value)
    if not isinstance(re, torch.Tensor):
        re = torch.tensor(float(re))
        im = None if im is None else torch.tensor(float(im))
    return Pair(re, torch.zeros_like(re) if im is None else im)


def bilinear(function, a: Any, b: Any) -> Any:
    (ar, ai), (br, bi) = split(a), split(b)
    if ai is None or bi is None:
        return Pair(function(ar, br), function(ar, bi) if ai is None else function(ai, br))
    return Pair(function(ar, br) - function(ai, bi), function(ar, bi) + function(ai, br))


# ----------------------------------------------------------------------------------------------------------
# Arithmetic
# ----------------------------------------------------------------------------------------------------------

def mul(a: Any, b: Any) -> Pair:
    return bilinear(operator.mul, a, b)


def add(a: Any, b: Any, alpha: float = 1, sign: int = 1) -> Pair:
    (ar, ai), (br, bi) = split(a), split(b)
    factor = alpha * sign
    scaled = lambda x: x if factor == 1 else x * factor
    shape = torch.broadcast_shapes(*(x.shape for x in (ar, br) if isinstance(x, torch.Tensor)))
    re = ar + scaled(br)
    im = ai if bi is None else scaled(bi) if ai is None else ai + scaled(bi)
    return Pair(re, im.expand(shape) if im.shape != shape else im)


def _scale(z: Pair) -> torch.Tensor:
    """A power of two by which each number is multiplied before it is squared: squares of all finite numbers that are not 0
    are then finite and not 0, in float32 and in float64."""
    large, small, factor = (60, -50, 100) if z.re.dtype == torch.float32 else (500, -450, 600)
    size = torch.maximum(z.re.abs(), z.im.abs())
    one = torch.ones_like(size)
    return torch.where(size > 2.0 ** large, one * 2.0 ** -factor, torch.where(size < 2.0 ** small, one * 2.0 ** factor, one))


def reciprocal(z: Pair) -> Pair:
    scale = _scale(z)
    re, im = z.re * scale, z.im * scale
    square = re * re + im * im
    return Pair(re / square * scale, -im / square * scale)


def div(a: Any, b: Any) -> Pair:
    if not is_complex(b):
        return Pair(a.re / b, a.im / b) if not isinstance(b, complex) else mul(a, 1 / b)
    return mul(a, reciprocal(b))


def absolute(z: Pair) -> torch.Tensor:
    scale = _scale(z)
    return torch.linalg.vector_norm(as_real(Pair(z.re * scale, z.im * scale)), dim=-1) / scale


def angle(z: Pair) -> torch.Tensor:
    is_zero = (z.re == 0) & (z.im == 0)
    return torch.atan2(z.im, torch.where(is_zero, torch.ones_like(z.re), z.re))


def polar(radius: torch.Tensor, angle: torch.Tensor) -> Pair:
    return Pair(radius * angle.cos(), radius * angle.sin())


def exp(z: Pair) -> Pair:
    return polar(z.re.exp(), z.im)


def log(z: Pair) -> Pair:
    return Pair(absolute(z).log(), angle(z))


def sqrt(z: Pair) -> Pair:
    return polar(absolute(z).sqrt(), angle(z) / 2)
