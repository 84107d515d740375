# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Triangular solves and the Cholesky decomposition, by halves."""

from __future__ import annotations

import torch

from ... import gradients
from .matrices import MOST_ROWS, check_size, eye, outer, t

__all__ = ["cholesky", "cholesky_inverse", "cholesky_solve", "solve_lower", "solve_triangular", "solve_upper", "triangular_solve"]


def invert_lower(low: torch.Tensor, unit: bool) -> torch.Tensor:
    """By halves: the inverse of [[A, 0], [B, C]] is [[1/A, 0], [-1/C B 1/A, 1/C]]."""
    n = low.shape[-1]
    if n == 1:
        return torch.ones_like(low) if unit else 1 / low
    half = n // 2
    first, second = invert_lower(low[..., :half, :half], unit), invert_lower(low[..., half:, half:], unit)
    across = -(second @ low[..., half:, :half] @ first)
    above = torch.nn.functional.pad(first, [0, n - half])
    return torch.cat([above, torch.cat([across, second], -1)], -2)


def solve_lower(low: torch.Tensor, right: torch.Tensor, unit: bool) -> torch.Tensor:
    """By the inverse, and once more for what that leaves."""
    low = low.tril(-1) + eye(low) if unit else low.tril()
    inverse = invert_lower(low, unit)
    found = inverse @ right
    return found + inverse @ (right - low @ found)


def solve_upper(up: torch.Tensor, right: torch.Tensor, unit: bool) -> torch.Tensor:
    return solve_lower(up.flip([-2, -1]), right.flip(-2), unit).flip(-2)


def solve_triangular(a, b, *, upper, left=True, unitriangular=False):
    if not left:
        return t(solve_triangular(t(a), t(b), upper=not upper, unitriangular=unitriangular))
    check_size(a, MOST_ROWS, "a triangular solve")

    def run(a, b):
        return (solve_upper if upper else solve_lower)(a, b, unitriangular)

    def keep(context, inputs, output):
        context.save_for_backward(inputs[0], output)

    def backward(context, g):
        a, x = context.saved_tensors
        to_b = (solve_lower if upper else solve_upper)(t(a), g, unitriangular)
        to_a = -(to_b @ t(x))
        away = int(unitriangular)
        return (to_a.triu(away) if upper else to_a.tril(-away)), to_b
    return gradients.with_formula("linalg.solve_triangular", (a, b), run, keep, backward)


# ----------------------------------------------------------------------------------------------------------
# Cholesky
# ----------------------------------------------------------------------------------------------------------

def _factor(a: torch.Tensor) -> torch.Tensor:
    n = a.shape[-1]
    if n <= 24:
        columns, numbers = [], torch.arange(n)
        for k in range(n):
            column = a[..., k]
            column = torch.where(numbers >= k, column / column[..., k:k + 1].sqrt(), torch.zeros((), dtype=a.dtype))
            columns.append(column)
            a = a - outer(column, column)
        return torch.stack(columns, -1)
    half = n // 2
    first = _factor(a[..., :half, :half])
    across = t(solve_lower(first, t(a[..., half:, :half]), False))
    second = _factor(a[..., half:, half:] - across @ t(across))
    above = torch.cat([first, torch.zeros_like(a[..., :half, half:])], -1)
    return torch.cat([above, torch.cat([across, second], -1)], -2)


def cholesky(a, upper=False):
    """A matrix that is not positive definite gives NaN, and so no finite loss."""
    check_size(a, MOST_ROWS, "the Cholesky decomposition")

    def backward(context, g):
        (low,) = context.saved_tensors
        inner = (t(low) @ g).tril()
        inner = inner - 0.5 * torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))
        inverse = invert_lower(low, False)
        inner = t(inverse) @ inner @ inverse
        return 0.5 * (inner + t(inner))
    low = gradients.with_formula("linalg.cholesky", (a,), _factor, lambda context, _, output: context.save_for_backward(output), backward)
    return t(low) if upper else low


def cholesky_solve(b, low, upper=False):
    low = t(low) if upper else low
    return solve_triangular(t(low), solve_triangular(low, b, upper=False), upper=True)


def cholesky_inverse(low, upper=False):
    return cholesky_solve(eye(low).expand(low.shape), low, upper)


def triangular_solve(b, a, upper=True, transpose=False, unitriangular=False):
    x = solve_triangular(t(a) if transpose else a, b, upper=upper != transpose, unitriangular=unitriangular)
    return x, a
