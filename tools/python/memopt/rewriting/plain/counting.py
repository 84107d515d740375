# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions of segments, and histograms: by the place that each element falls in."""

from __future__ import annotations

import itertools
import math

import torch

__all__ = ["RULES"]


# ----------------------------------------------------------------------------------------------------------
# Segments
# ----------------------------------------------------------------------------------------------------------

_FIRST = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_NAMES = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


def _segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """Segments lie one behind the other along `axis`; in front of it each row has segments of its own."""
    if offsets is None:
        ends = lengths.cumsum(axis)
        starts = ends - lengths
    else:
        starts, ends = offsets.narrow(axis, 0, offsets.shape[axis] - 1), offsets.narrow(axis, 1, offsets.shape[axis] - 1)
    count = ends.shape[axis]
    numbers = torch.arange(data.shape[axis]).expand(*data.shape[:axis], -1).contiguous()
    inside = torch.searchsorted(ends.contiguous(), numbers, right=True)
    inside = torch.where(numbers < starts.narrow(axis, 0, 1), count, inside)  # what no segment has falls behind all
    shape = (*data.shape[:axis], count + 1, *data.shape[axis + 1:])
    spread = inside.reshape(*inside.shape, *[1] * (data.dim() - axis - 1)).expand(data.shape)
    first = torch.full(shape, _FIRST[reduce] if initial is None else initial, dtype=data.dtype)
    found = first.scatter_reduce(axis, spread, data, _NAMES[reduce]).narrow(axis, 0, count)
    if reduce == "mean":
        sizes = (ends - starts).reshape(*ends.shape, *[1] * (data.dim() - axis - 1))
        found = torch.where(sizes > 0, found / sizes.clamp(min=1).to(data.dtype), math.nan if initial is None else found)
    return found


# ----------------------------------------------------------------------------------------------------------
# Histograms
# ----------------------------------------------------------------------------------------------------------

def _find_edges(x, bins, ranges):
    """Of each column of samples."""
    edges = []
    for place, bin in enumerate(bins):
        if isinstance(bin, torch.Tensor):
            edges.append(bin)
            continue
        if ranges is None:
            low, high = x[:, place].min(), x[:, place].max()
            low, high = torch.where(low == high, low - 0.5, low), torch.where(low == high, high + 0.5, high)
            number, step = torch.arange(bin + 1, dtype=x.dtype), (high - low) / bin
            edges.append(torch.where(2 * number < bin + 1, low + step * number, high - step * (bin - number)))
        else:
            low, high = ranges[2 * place:2 * place + 2]
            low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
            edges.append(torch.linspace(low, high, bin + 1, dtype=x.dtype))
    return edges


def _count(x, bins, ranges, weight, density):
    """Samples are the rows of `x`. The last place of a column has its end, too."""
    x = x.detach()
    edges = _find_edges(x, bins, ranges)
    sizes = [len(edge) - 1 for edge in edges]
    place, counts = 0, torch.ones(len(x), dtype=torch.bool)
    for column, edge, size in zip(x.unbind(1), edges, sizes):
        counts = counts & (column >= edge[0]) & (column <= edge[-1])
        found = torch.searchsorted(edge.contiguous(), column.contiguous(), right=True) - 1
        place = place * size + found.clamp(0, size - 1)
    weight = torch.ones(len(x), dtype=x.dtype) if weight is None else weight.detach().reshape(-1)
    total = torch.zeros(math.prod(sizes), dtype=x.dtype).index_add(0, place, torch.where(counts, weight, 0.0)).reshape(sizes)
    if density:
        total = total / total.sum()
        for dim, edge in enumerate(edges):
            total = total / (edge[1:] - edge[:-1]).reshape([-1 if other == dim else 1 for other in range(len(edges))])
    return total, edges


def _histogram(x, bins=100, *, range=None, weight=None, density=False):
    total, (edges,) = _count(x.reshape(-1, 1), [bins], range, weight, density)
    return total, edges


def _histogramdd(x, bins, range=None, weight=None, density=False):
    rows = x.reshape(-1, x.shape[-1])
    bins = list(itertools.repeat(bins, rows.shape[1])) if isinstance(bins, int) else bins
    return _count(rows, bins, range, weight, density)


def _rule(function):
    return lambda engine, target, arguments, keywords: function(*arguments, **keywords)


RULES = {f"aten::{name}": _rule(function) for name, function in {
    "segment_reduce": _segment_reduce, "histogram": _histogram, "histogramdd": _histogramdd}.items()}
