# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Samples of images at places of a grid, in operators that have gradients of any order; PyTorch's own backward pass has none."""

from __future__ import annotations

import itertools

import torch

__all__ = ["grid_sampler"]

aten = torch.ops.aten
_NEAREST, _CUBIC = 1, 2
_BORDER, _REFLECTION = 1, 2


def _reflect(place: torch.Tensor, low: float, high: float) -> torch.Tensor:
    span = high - low
    if span == 0:
        return torch.zeros_like(place)
    gap = (place - low).abs()
    rest, turns = torch.fmod(gap, span), (gap / span).floor()
    return low + torch.where(torch.fmod(turns, 2) == 0, rest, span - rest)


def _locate(place: torch.Tensor, size: int, padding: int, align_corners: bool) -> torch.Tensor:
    """Of places from -1 to 1, which element they mean."""
    place = place * ((size - 1) / 2 if align_corners else size / 2) + (size - 1) / 2
    if padding == _REFLECTION:
        place = _reflect(place, 0, size - 1) if align_corners else _reflect(place, -0.5, size - 0.5)
    return place if not padding else place.clamp(0, size - 1)


def grid_sampler(x, grid, mode, padding, align_corners):
    if mode == _CUBIC:
        return torch._decomp.decomposition_table[aten.grid_sampler_2d.default](x, grid, mode, padding, align_corners)
    sizes = x.shape[2:]
    # The last number of a place in the grid belongs to the image's first dimension.
    places = [_locate(place, size, padding, align_corners) for place, size in zip(reversed(grid.unbind(-1)), sizes)]
    total = 0
    for sides in itertools.product((0, 1) if mode != _NEAREST else (0,), repeat=len(sizes)):
        index, weight = 0, torch.ones_like(places[0])
        for place, size, side in zip(places, sizes, sides):
            low = place.detach().round() if mode == _NEAREST else place.detach().floor()
            at = low + side
            share = 1 if mode == _NEAREST else place - low if side else 1 - (place - low)
            weight = torch.where((at >= 0) & (at < size), weight * share, 0)
            index = index * size + at.clamp(0, size - 1).long()
        values = x.flatten(2).gather(2, index.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1))
        total = total + values.reshape(*x.shape[:2], *index.shape[1:]) * weight.unsqueeze(1)
    return total

