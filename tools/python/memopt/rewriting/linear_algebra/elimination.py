# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inverses, solves and determinants, by elimination with pivots; the exponential."""

from __future__ import annotations

import math

import torch

from ..formulas import with_formula
from .matrices import MOST_ROWS, check_size, eye, t

__all__ = ["det", "inverse", "logdet", "matrix_exp", "slogdet", "solve"]


def _eliminate(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse, and the pivots with the sign of their order (Gauss and Jordan). Rows stay where they are until the end."""
    n = a.shape[-1]
    both = torch.cat([a, eye(a).expand(a.shape)], -1)
    numbers = torch.tensor([[k] for k in range(n)])
    used = torch.zeros([n, 1], dtype=a.dtype)  # infinity for rows that were pivots
    pivots, places = [], []
    for k in range(n):
        column = both.narrow(-1, k, 1)
        place = (column.abs() - used).argmax(-2, keepdim=True)
        row = both.gather(-2, place.expand(*place.shape[:-1], 2 * n))
        pivot = row.narrow(-1, k, 1)
        row, is_own = row / pivot, numbers == place
        both = torch.where(is_own, row, torch.addcmul(both, column, row, value=-1))
        used = used.masked_fill(is_own, math.inf)
        pivots.append(pivot)
        places.append(place)
    order = torch.cat(places, -2)
    inverse = both.narrow(-1, n, n).gather(-2, order.expand(a.shape))
    inverse = inverse + inverse @ (eye(a) - a @ inverse)
    sign = torch.where((order > t(order)).triu(1), -1.0, 1.0).to(a.dtype).prod(-1, keepdim=True)  # by the pairs out of order
    return inverse, (torch.cat(pivots, -2) * sign).squeeze(-1)


def _to_inverse(context, g):
    (inverse,) = context.saved_tensors
    return -(t(inverse) @ g @ t(inverse))


def _save_output(context, _, output):
    context.save_for_backward(output)


def inverse(a):
    check_size(a, MOST_ROWS, "the inverse")
    return with_formula("linalg.inv", (a,), lambda a: _eliminate(a)[0], _save_output, _to_inverse)


def solve(a, b, left=True):
    if not left:
        return t(solve(t(a), t(b)))
    check_size(a, MOST_ROWS, "a solve")
    is_vector = b.dim() == 1 or b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]
    b = b.unsqueeze(-1) if is_vector else b

    def run(a, b):
        found, _ = _eliminate(a)
        x = found @ b
        return x + found @ (b - a @ x), found

    def keep(context, inputs, outputs):
        context.save_for_backward(*outputs)
        context.mark_non_differentiable(outputs[1])

    def backward(context, g, _):
        x, found = context.saved_tensors
        to_b = t(found) @ g
        return -(to_b @ t(x)), to_b
    x, _ = with_formula("linalg.solve", (a, b), run, keep, backward)
    return x.squeeze(-1) if is_vector else x


def slogdet(a):
    check_size(a, MOST_ROWS, "the determinant")

    def run(a):
        found, pivots = _eliminate(a)
        return pivots.sign().prod(-1), pivots.abs().log().sum(-1), found

    def keep(context, _, outputs):
        context.save_for_backward(outputs[2])
        context.mark_non_differentiable(outputs[0], outputs[2])

    def backward(context, _, g, __):
        return g[..., None, None] * t(context.saved_tensors[0])
    sign, size, _ = with_formula("linalg.slogdet", (a,), run, keep, backward)
    return sign, size


def logdet(a):
    sign, size = slogdet(a)
    return torch.where(sign < 0, torch.full((), math.nan, dtype=size.dtype), size)


def det(a):
    check_size(a, MOST_ROWS, "the determinant")

    def run(a):
        found, pivots = _eliminate(a)
        return pivots.prod(-1), found

    def keep(context, _, outputs):
        context.save_for_backward(*outputs)
        context.mark_non_differentiable(outputs[1])

    def backward(context, g, _):
        value, found = context.saved_tensors
        return (g * value)[..., None, None] * t(found)
    return with_formula("linalg.det", (a,), run, keep, backward)[0]


def matrix_exp(a):
    """The series of a scaled matrix, squared again; the scale follows from the norm. Squaring doubles an error, so the matrix is made no
    smaller than eighteen terms of the series need, as PyTorch does."""
    norm = a.detach().abs().sum(-1).amax(-1)[..., None, None]
    most, limit = 10, 1.09 if a.dtype == torch.float64 else 3.0
    halvings = torch.where(norm > limit, (norm / limit).log2().ceil(), torch.zeros_like(norm)).clamp(max=most)
    x = a * torch.exp2(-halvings)
    one = eye(a)
    square = x @ x
    cube = square @ x
    terms = [one / math.factorial(3 * i) + x / math.factorial(3 * i + 1) + square / math.factorial(3 * i + 2) for i in range(6)]
    result = terms[5] + cube / math.factorial(18)
    for term in reversed(terms[:5]):
        result = term + cube @ result
    for turn in range(most):
        result = torch.where(halvings > turn, result @ result, result)
    return result
