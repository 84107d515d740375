# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Backward passes of pools, samplings and pads, which are matrices along each dimension, as products with those.

What the forward operator makes of an identity is its matrix, so that nothing of its rules is written twice."""

from __future__ import annotations

import math
from typing import Callable

import torch

__all__ = ["DECOMPOSITIONS"]

aten = torch.ops.aten


def _spread(grad: torch.Tensor, sizes: list[int], forward: Callable[[torch.Tensor, int], torch.Tensor]) -> torch.Tensor:
    """`forward` gets an image of one column, with a channel for each of its rows, and the dimension that the column stands for."""
    for d, size in enumerate(sizes):
        dim = d - len(sizes)
        unit = torch.eye(size, dtype=grad.dtype, device=grad.device)
        matrix = forward(unit[None, :, :, None], d)[0, :, :, 0]  # [from, to]
        grad = (grad.movedim(dim, -1) @ matrix.mT).movedim(-1, dim)
    return grad


def _pool(dims: int):
    def backward(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
        kernel, stride, padding = (list(v) * dims if len(v) == 1 else list(v) for v in (kernel, stride or kernel, padding))

        def forward(unit, d):
            return aten.avg_pool2d.default(unit, [kernel[d], 1], [stride[d], 1], [padding[d], 0], ceil_mode, count_include_pad,
                                           1 if divisor else None)
        found = _spread(grad, list(x.shape[-dims:]), forward)
        return found / divisor if divisor else found
    return backward


def _adaptive_pool(dims: int):
    def backward(grad, x):
        return _spread(grad, list(x.shape[-dims:]), lambda unit, d: aten._adaptive_avg_pool2d.default(unit, [grad.shape[d - dims], 1]))
    return backward


def _sample(op, has_corners: bool):
    def backward(grad, output_size, input_size, *rest):
        corners, scales = (rest[:1], rest[1:]) if has_corners else ((), rest)

        def forward(unit, d):
            return op(unit, [output_size[d], 1], *corners, scales[d] if d < len(scales) else None, None)
        return _spread(grad, list(input_size[2:]), forward)
    return backward


def _replicate(dims: int):
    def backward(grad, x, padding):
        pairs = [padding[2 * d:2 * d + 2] for d in reversed(range(dims))]
        return _spread(grad, list(x.shape[-dims:]), lambda unit, d: aten.replication_pad2d.default(unit, [0, 0, *pairs[d]]))
    return backward


def _shrink(grad, x, lambd):
    return torch.where(x.abs() > lambd, grad, 0)


def _scatter_places(dims: int):
    """Of largest values, whose places in each image are known."""
    def backward(grad, x, *rest):
        places, flat = rest[-1], math.prod(x.shape[-dims:])
        zeros = torch.zeros([*x.shape[:-dims], flat], dtype=grad.dtype, device=grad.device)
        return zeros.scatter_add(-1, places.flatten(-dims), grad.flatten(-dims)).reshape(x.shape)
    return backward


DECOMPOSITIONS = {
    aten.avg_pool2d_backward.default: _pool(2),
    aten.avg_pool3d_backward.default: _pool(3),
    aten._adaptive_avg_pool2d_backward.default: _adaptive_pool(2),
    aten._adaptive_avg_pool3d_backward.default: _adaptive_pool(3),
    aten.adaptive_max_pool2d_backward.default: _scatter_places(2),
    aten.adaptive_max_pool3d_backward.default: _scatter_places(3),
    aten.max_pool3d_with_indices_backward.default: _scatter_places(3),
    aten.fractional_max_pool2d_backward.default: _scatter_places(2),
    aten.fractional_max_pool3d_backward.default: _scatter_places(3),
    aten.replication_pad1d_backward.default: _replicate(1),
    aten.replication_pad2d_backward.default: _replicate(2),
    aten.replication_pad3d_backward.default: _replicate(3),
    aten.upsample_nearest1d_backward.default: _sample(aten.upsample_nearest2d.default, False),
    aten.upsample_nearest2d_backward.default: _sample(aten.upsample_nearest2d.default, False),
    aten.upsample_nearest3d_backward.default: _sample(aten.upsample_nearest2d.default, False),
    aten._upsample_nearest_exact1d_backward.default: _sample(aten._upsample_nearest_exact2d.default, False),
    aten._upsample_nearest_exact2d_backward.default: _sample(aten._upsample_nearest_exact2d.default, False),
    aten._upsample_nearest_exact3d_backward.default: _sample(aten._upsample_nearest_exact2d.default, False),
    aten.upsample_linear1d_backward.default: _sample(aten.upsample_bilinear2d.default, True),
    aten.upsample_bilinear2d_backward.default: _sample(aten.upsample_bilinear2d.default, True),
    aten.upsample_trilinear3d_backward.default: _sample(aten.upsample_bilinear2d.default, True),
    aten.upsample_bicubic2d_backward.default: _sample(aten.upsample_bicubic2d.default, True),
    aten.hardshrink_backward.default: _shrink,
    aten.softshrink_backward.default: _shrink,
}
