# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooling by windows whose places a random number gives, one for each dimension of a channel."""

from __future__ import annotations

import math

import torch

__all__ = ["RULES"]


def _place_windows(sample: torch.Tensor, size: int, count: int, window: int) -> torch.Tensor:
    """Where they begin, in a new last dimension: the last ends with the tensor."""
    alpha = torch.tensor((size - window) / max(count - 1, 1), dtype=sample.dtype)
    numbers = torch.arange(count, dtype=sample.dtype)
    sample = sample.unsqueeze(-1)
    begins = ((numbers + sample) * alpha).trunc() - (sample * alpha).trunc()
    return torch.where(numbers == count - 1, size - window, begins.to(torch.int64))


def _fractional_max_pool(x, kernel_size, output_size, random_samples):
    rank = len(output_size)
    image = x if x.dim() == rank + 2 else x.unsqueeze(0)
    sizes = image.shape[2:]
    # Of images, unlike volumes, the first number is for the last dimension.
    order = range(rank) if rank == 3 else reversed(range(rank))
    samples = {dim: random_samples[..., number] for number, dim in enumerate(order)}
    places = torch.zeros((), dtype=torch.int64)
    for dim, (size, count, window) in enumerate(zip(sizes, output_size, kernel_size)):
        begins = _place_windows(samples[dim], size, count, window).unsqueeze(-1) + torch.arange(window)
        shape = [1] * (2 * rank)
        shape[dim], shape[rank + dim] = count, window
        places = places * size + begins.reshape(*begins.shape[:2], *shape)
    places = places.expand(*image.shape[:2], *output_size, *kernel_size).reshape(*image.shape[:2], -1)
    windows = image.flatten(2).gather(2, places).reshape(*image.shape[:2], *output_size, math.prod(kernel_size))
    found, which = windows.max(-1)
    index = places.reshape(windows.shape).gather(-1, which.unsqueeze(-1)).squeeze(-1)
    return (found, index) if image is x else (found.squeeze(0), index.squeeze(0))


def _rule(engine, target, arguments, keywords):
    return _fractional_max_pool(*arguments, **keywords)


RULES = {f"aten::fractional_max_pool{rank}d": _rule for rank in (2, 3)}
