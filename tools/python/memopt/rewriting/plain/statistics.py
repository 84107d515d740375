# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Covariances, least squares, slopes of samples, values that come most often, counts, margins of several labels, Gaussian
likelihoods: by other operators."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

__all__ = ["FUNCTIONS", "RULES"]


# ----------------------------------------------------------------------------------------------------------
# Covariances: PyTorch's own ask whether their divisor is above zero, which tracing takes for a question to the data
# ----------------------------------------------------------------------------------------------------------

def _cov(x, *, correction=1, fweights=None, aweights=None):
    x = x.reshape(1, -1) if x.dim() < 2 else x
    count, weight, total = x.shape[1], None, x.shape[1]
    for given in (fweights, aweights):
        if given is not None:
            weight = given.to(x.real.dtype) if weight is None else weight * given
    if weight is not None:
        total = weight.sum()
        mean = (x * weight).sum(1, keepdim=True) / total
    else:
        mean = x.sum(1, keepdim=True) / count
    if aweights is not None and correction != 0:
        divisor = total - correction * (weight * aweights).sum() / total
    else:
        divisor = total - correction
    divisor = divisor.clamp(min=0) if isinstance(divisor, torch.Tensor) else max(divisor, 0)
    x = x - mean
    result = (x if weight is None else x * weight) @ x.mH
    return (result / divisor if isinstance(divisor, torch.Tensor) or divisor else result / torch.zeros_like(result)).squeeze()


def _corrcoef(x):
    found = _cov(x)
    if found.dim() == 0:
        return found / found
    size = found.diagonal().real.sqrt()
    found = found / size[:, None] / size
    return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1)) if found.is_complex() else found.clamp(-1, 1)


# ----------------------------------------------------------------------------------------------------------
# Least squares: PyTorch's own gives residuals or none, as the rank says, which tracing does not know
# ----------------------------------------------------------------------------------------------------------

def _lstsq(a, b, rcond=None, *, driver=None):
    """Of a matrix of full rank, by QR: the solution, what it leaves, the rank, and no singular values."""
    m, n = a.shape[-2:]
    is_vector = b.dim() == 1 or b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]
    b = b.unsqueeze(-1) if is_vector else b
    q, r = torch.linalg.qr(a if m >= n else a.mH)
    if m >= n:
        x = torch.linalg.solve_triangular(r, q.mH @ b, upper=True)
    else:
        x = q @ torch.linalg.solve_triangular(r.mH, b, upper=False)
    left = (a @ x - b).abs().square().sum(-2) if m > n else a.new_zeros([0])
    rank = torch.full(a.shape[:-2], min(m, n), dtype=torch.int64)
    return torch.return_types.linalg_lstsq((x.squeeze(-1) if is_vector else x, left, rank, a.new_zeros([0])))


#: Functions in the place of PyTorch's, by those.
FUNCTIONS = {torch.linalg.lstsq: _lstsq}
FUNCTIONS.update((getattr(owner, name), own) for owner in (torch, torch.Tensor) for name, own in (("cov", _cov), ("corrcoef", _corrcoef)))


# ----------------------------------------------------------------------------------------------------------
# Slopes
# ----------------------------------------------------------------------------------------------------------

def _slope(x: torch.Tensor, step: Any, edge_order: int) -> torch.Tensor:
    """Along the last dimension. `step` is the distance of neighbours, or the place of each."""
    if isinstance(step, torch.Tensor) and step.dim() == 1:
        gaps = step[1:] - step[:-1]
        left, right = gaps[:-1], gaps[1:]
        inner = (left.square() * x[..., 2:] + (right.square() - left.square()) * x[..., 1:-1] - right.square() * x[..., :-2]) / (
            left * right * (left + right))
        ends = [(gaps[0], gaps[1] if len(gaps) > 1 else None), (gaps[-1], gaps[-2] if len(gaps) > 1 else None)]
    else:
        inner = (x[..., 2:] - x[..., :-2]) * 0.5 / step
        ends = [(step, step)] * 2
    edges = []
    for (near, far), (a, b, c), sign in zip(ends, ((0, 1, 2), (-1, -2, -3)), (1, -1)):
        if edge_order == 1:
            edge = (x[..., b] - x[..., a]) / near
        else:
            edge = (-(2 * near + far) / (near * (near + far)) * x[..., a] + (near + far) / (near * far) * x[..., b]
                    - near / (far * (near + far)) * x[..., c])
        edges.append((sign * edge).unsqueeze(-1))
    return torch.cat([edges[0], inner, edges[1]], -1)


def _gradient(x, *, spacing=None, dim=None, edge_order=1):
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    steps = list(spacing) if isinstance(spacing, (tuple, list)) else [1 if spacing is None else spacing] * len(dims)
    return [_slope(x.transpose(place, -1), step, edge_order).transpose(place, -1) for place, step in zip(dims, steps)]


# ----------------------------------------------------------------------------------------------------------
# Values that come most often
# ----------------------------------------------------------------------------------------------------------

def _mode(x, dim=-1, keepdim=False):
    """The smallest of them, at the last place that has it."""
    if x.dim() == 0:
        return x, torch.zeros_like(x, dtype=torch.int64)
    rows = x.transpose(dim, -1)
    ordered, places = rows.detach().sort(dim=-1, stable=True)
    ordered = ordered.contiguous()
    after = torch.searchsorted(ordered, ordered, right=True)
    best = (after - torch.searchsorted(ordered, ordered)).argmax(-1, keepdim=True)
    place = places.gather(-1, after.gather(-1, best) - 1)
    found = rows.gather(-1, place), place
    return tuple(part.transpose(dim, -1) if keepdim else part.transpose(dim, -1).squeeze(dim) for part in found)


# ----------------------------------------------------------------------------------------------------------
# Margins
# ----------------------------------------------------------------------------------------------------------

def _multilabel_margin(x, target, reduction=1):
    """The labels of a sample are those before the first that is below 0."""
    classes = x.shape[-1] if x.dim() else 1
    rows, labels = x.reshape(-1, classes), target.reshape(-1, classes)
    is_label = (labels < 0).cumsum(-1) == 0
    places = torch.where(is_label, labels, 0)
    other = 1 - torch.zeros_like(rows).scatter_reduce(-1, places, is_label.to(x.dtype), "amax")
    gaps = (1 - rows.gather(-1, places).unsqueeze(-1) + rows.unsqueeze(-2)).relu()
    each = (gaps * is_label.unsqueeze(-1) * other.unsqueeze(-2)).sum([-1, -2]) / classes
    each = each.reshape(x.shape[:-1])
    return each.mean() if reduction == 1 else each.sum() if reduction == 2 else each


def _gaussian_nll(x, target, var, full=False, eps=1e-6, reduction="mean"):
    """PyTorch's own looks at the variances behind the trace's back."""
    var = x.new_full((), var).expand(x.shape) if isinstance(var, float) else var
    torch._check_value((var >= 0).all(), lambda: "var has negative entry/entries")
    if var.shape != x.shape and var.shape == x.shape[:-1]:
        var = var.unsqueeze(-1)
    var = var + (var.clamp(min=eps) - var).detach()
    each = 0.5 * (var.log() + (x - target).square() / var)
    each = each + 0.5 * math.log(2 * math.pi) if full else each
    return each.mean() if reduction == "mean" else each.sum() if reduction == "sum" else each


# ----------------------------------------------------------------------------------------------------------
# Counts
# ----------------------------------------------------------------------------------------------------------

def _count(engine, target, arguments, keywords):
    """With `minlength` classes; the step refuses a number that is no class, for which PyTorch would make the result longer."""
    bound = {**dict(zip(("self", "weights", "minlength"), arguments)), **keywords}
    x, weights, length = bound["self"], bound.get("weights"), bound.get("minlength", 0)
    if not length:
        return target(*arguments, **keywords)  # refused behind this, with what would do
    if weights is None:
        weights = torch.ones_like(x, dtype=torch.int64)
    elif weights.dtype != torch.float32:
        weights = weights.to(torch.float64)
    return torch.zeros(length, dtype=weights.dtype).index_add(0, x.to(torch.int64), weights)


FUNCTIONS[F.gaussian_nll_loss] = _gaussian_nll


def _rule(function):
    return lambda engine, target, arguments, keywords: function(*arguments, **keywords)


RULES = {f"aten::{name}": _rule(function) for name, function in {
    "gradient": _gradient, "mode": _mode, "multilabel_margin_loss": _multilabel_margin}.items()} | {"aten::bincount": _count}
