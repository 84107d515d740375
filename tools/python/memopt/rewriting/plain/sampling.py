# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torchvision's operators that read maps between their points: regions (He et al., Mask R-CNN, 2017) and deformed filters (Zhu et al.,
Deformable ConvNets v2, 2019). Each value is a mean of the four points around its place, by bilinear weights."""

from __future__ import annotations

import itertools
import math

import torch

__all__ = ["RULES"]


def _corners(place: torch.Tensor, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The points before and behind each place along one dimension, and their weights; what lies outside weighs nothing."""
    low = place.detach().floor()
    part = place - low
    found = []
    for point, weight in ((low, 1 - part), (low + 1, part)):
        is_inside = (point >= 0) & (point <= size - 1)
        found.append((point.clamp(0, size - 1).to(torch.int64), torch.where(is_inside, weight, 0)))
    return found


# ----------------------------------------------------------------------------------------------------------
# Regions
# ----------------------------------------------------------------------------------------------------------

def _samples(begin, extent, bins: int, samples: torch.Tensor, grid) -> torch.Tensor:
    """The places of all samples of all bins of each region: [regions, bins, samples]. `grid` is how many of them a bin has."""
    step = (extent / bins)[:, None, None]
    return begin[:, None, None] + torch.arange(bins, dtype=begin.dtype)[:, None] * step + (samples + 0.5) * (step / grid)


def _hold(place: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Places up to a point outside are those of the rim; whether a place is none further out."""
    return place.clamp(0, size - 1), (place >= -1) & (place <= size)


def _read_rows(rows, images, y, x, height: int, width: int) -> torch.Tensor:
    """Bins by a given number of samples each: rows of channels are looked up. [regions, bins, bins, channels]."""
    (y, is_y), (x, is_x) = _hold(y, height), _hold(x, width)
    total = None
    for (row, a), (column, b) in itertools.product(_corners(y, height), _corners(x, width)):
        a, b = torch.where(is_y, a, 0), torch.where(is_x, b, 0)
        index = (images[:, None, None] * height + row)[:, :, None, :, None] * width + column[:, None, :, None, :]
        part = (rows[index] * (a[:, :, None, :, None] * b[:, None, :, None, :]).unsqueeze(-1)).sum((3, 4))
        total = part if total is None else total + part
    return total / (y.shape[2] * x.shape[2])


def _weigh(place, is_sample, count, size: int) -> torch.Tensor:
    """What each point of a dimension weighs in the mean of each bin: [regions, bins, points]."""
    place, is_near = _hold(place, size)
    points = torch.arange(size, dtype=place.dtype)
    weights = (1 - (place.unsqueeze(-1) - points).abs()).clamp(min=0)
    return torch.where((is_sample & is_near).unsqueeze(-1), weights, 0).sum(2) / count.clamp(min=1)[:, None, None]


def _roi_align(engine, x, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    images, channels, height, width = x.shape
    rois = rois.detach()  # which have no gradient
    image = rois[:, 0].to(torch.int64)
    offset = 0.5 if aligned else 0.0
    left, top, right, bottom = (rois[:, 1:] * spatial_scale - offset).unbind(1)
    extents = [bottom - top, right - left]
    if not aligned:
        extents = [extent.clamp(min=1) for extent in extents]
    begins, bins, sizes = (top, left), (pooled_height, pooled_width), (height, width)
    if sampling_ratio > 0:
        samples = torch.arange(sampling_ratio, dtype=rois.dtype)
        y, z = (_samples(begin, extent, count, samples, sampling_ratio) for begin, extent, count in zip(begins, extents, bins))
        rows = x.permute(0, 2, 3, 1).reshape(images * height * width, channels)
        return _read_rows(rows, image, y, z, height, width).permute(0, 3, 1, 2)
    # A bin of a larger region has more samples, so each point is weighed by all that are near it.
    weights = []
    for begin, extent, count, size in zip(begins, extents, bins, sizes):
        most = math.ceil(size / count) + 1
        grid = (extent / count).ceil()
        engine.expect((grid <= most).all(), "torchvision's roi_align with sampling_ratio=-1 takes regions up to the size of the map", rois)
        samples = torch.arange(most, dtype=rois.dtype)
        place = _samples(begin, extent, count, samples, grid.clamp(min=1)[:, None, None])
        weights.append(_weigh(place, samples < grid[:, None, None], grid, size))
    is_own = (image[:, None] == torch.arange(images)).to(x.dtype)
    tall = (weights[0][:, :, None, :] * is_own[:, None, :, None]).reshape(-1, images * height)
    lines = tall @ x.permute(0, 2, 1, 3).reshape(images * height, channels * width)
    lines = lines.reshape(-1, pooled_height * channels, width)
    return (lines @ weights[1].mT).reshape(-1, pooled_height, channels, pooled_width).permute(0, 2, 1, 3)


# ----------------------------------------------------------------------------------------------------------
# Filters whose taps are moved
# ----------------------------------------------------------------------------------------------------------

def _deform_conv2d(engine, x, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups,
                   use_mask):
    samples, channels, height, width = x.shape
    results, _, taps_h, taps_w = weight.shape
    rows, columns = offset.shape[-2:]
    taps, dtype = taps_h * taps_w, x.dtype
    moved = offset.reshape(samples, offset_groups, taps_h, taps_w, 2, rows, columns)
    tap_y, tap_x = (torch.arange(count, dtype=dtype) * dilation for count, dilation in ((taps_h, dilation_h), (taps_w, dilation_w)))
    y = moved[:, :, :, :, 0] + tap_y[:, None, None, None] + (torch.arange(rows, dtype=dtype) * stride_h - pad_h)[:, None]
    z = moved[:, :, :, :, 1] + tap_x[:, None, None] + (torch.arange(columns, dtype=dtype) * stride_w - pad_w)
    image = x.reshape(samples, offset_groups, channels // offset_groups, height * width)
    read = None
    for (row, a), (column, b) in itertools.product(_corners(y, height), _corners(z, width)):
        index, part = (row * width + column).flatten(2).unsqueeze(2), (a * b).flatten(2).unsqueeze(2)
        part = image.gather(3, index.expand(-1, -1, image.shape[2], -1)) * part
        read = part if read is None else read + part
    if use_mask:
        read = read * mask.reshape(samples, offset_groups, 1, taps * rows * columns)
    read = read.reshape(samples, groups, channels // groups * taps, rows * columns)
    result = (weight.reshape(groups, results // groups, channels // groups * taps) @ read).reshape(samples, results, rows, columns)
    return result + bias.reshape(-1, 1, 1)


def _rule(function):
    return lambda engine, target, arguments, keywords: function(engine, *arguments, **keywords)


RULES = {"torchvision::roi_align": _rule(_roi_align), "torchvision::deform_conv2d": _rule(_deform_conv2d)}
