# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Triangular solves and the Cholesky decomposition.

What takes time is tracing the operators one by one, so that few operators of whole matrices are better than many of small parts.
"""

from __future__ import annotations

import torch

from ..formulas import with_formula
from .matrices import MOST_IN_BLOCKS, check_size, eye, t

__all__ = ["cholesky", "cholesky_inverse", "cholesky_solve", "solve_triangular", "solve_upper", "triangular_solve"]

_MOST_WHOLE = 48  # rows that are inverted as one matrix, and from which parts are cheaper than what they save


# ----------------------------------------------------------------------------------------------------------
# Solves
# ----------------------------------------------------------------------------------------------------------

def _keep(context, _, outputs):
    """Of a solve: the solution, and what it was made with, for the gradient."""
    context.save_for_backward(*outputs)
    context.mark_non_differentiable(*outputs[1:])


def _join(first: torch.Tensor, across: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """[[first, 0], [across, second]]"""
    above = torch.nn.functional.pad(first, [0, second.shape[-1]])
    return torch.cat([above, torch.cat([across, second], -1)], -2)


def _below(n: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Ones in the lower left quarter of each block of 2 size rows on the diagonal."""
    is_below = lambda i, j: i // size % 2 == 1 and j // size == i // size - 1
    return torch.tensor([[float(is_below(i, j)) for j in range(n)] for i in range(n)], dtype=dtype)


def invert_lower(low: torch.Tensor, unit: bool) -> torch.Tensor:
    """By halves: the inverse of [[A, 0], [B, C]] is [[1/A, 0], [-1/C B 1/A, 1/C]]. Blocks of one size are joined by one product."""
    n = low.shape[-1]
    if n > _MOST_WHOLE:
        half = n // 2
        first, second = invert_lower(low[..., :half, :half], unit), invert_lower(low[..., half:, half:], unit)
        return _join(first, -(second @ low[..., half:, :half] @ first), second)
    inverse = eye(low).expand(low.shape) if unit else torch.diag_embed(low.diagonal(dim1=-2, dim2=-1).reciprocal())
    for level in range((n - 1).bit_length()):
        inverse = inverse - inverse @ (low * _below(n, 2 ** level, low.dtype)) @ inverse
    return inverse


def _solve_lower(low: torch.Tensor, inverse: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """By the inverse, and once more for what that leaves."""
    found = inverse @ right
    return found + inverse @ (right - low @ found)


def _prepare(low: torch.Tensor, unit: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The triangle alone, and its inverse."""
    low = low.tril(-1) + eye(low) if unit else low.tril()
    return low, invert_lower(low, unit)


def solve_upper(up: torch.Tensor, right: torch.Tensor, unit: bool) -> torch.Tensor:
    low, inverse = _prepare(t(up), unit)
    return _solve_lower(t(low), t(inverse), right)


def solve_triangular(a, b, *, upper, left=True, unitriangular=False):
    if not left:
        return t(solve_triangular(t(a), t(b), upper=not upper, unitriangular=unitriangular))
    check_size(a, MOST_IN_BLOCKS, "a triangular solve")
    turn = t if upper else lambda x: x

    def run(a, b):
        low, inverse = map(turn, _prepare(turn(a), unitriangular))
        return _solve_lower(low, inverse, b), low, inverse

    def backward(context, g, *_):
        x, low, inverse = context.saved_tensors
        to_b = _solve_lower(t(low), t(inverse), g)
        to_a = -(to_b @ t(x))
        away = int(unitriangular)
        return (to_a.triu(away) if upper else to_a.tril(-away)), to_b
    return with_formula("linalg.solve_triangular", (a, b), run, _keep, backward)[0]


# ----------------------------------------------------------------------------------------------------------
# Cholesky
# ----------------------------------------------------------------------------------------------------------

def _factor_columns(a: torch.Tensor) -> torch.Tensor:
    rows = []
    for k in range(a.shape[-1]):
        row = a.narrow(-2, k, 1)
        row = row / row.narrow(-1, k, 1).sqrt()
        rows.append(row)
        if k + 1 < a.shape[-1]:
            a = torch.addcmul(a, t(row), row, value=-1)
    return torch.cat(rows, -2)


#: The upper factor, row by row, in a loop of the program; a row taken off leaves zeros but for rounding, which the triangle drops.
_library = torch.library.Library("memopt", "FRAGMENT")
_library.define("cholesky_rows(Tensor a) -> Tensor")
_library.impl("cholesky_rows", _factor_columns, "CompositeExplicitAutograd")
torch.library.register_fake("memopt::cholesky_rows", lambda a: torch.empty_like(a, memory_format=torch.contiguous_format), lib=_library)


def _factor(a: torch.Tensor) -> torch.Tensor:
    """The lower factor of a symmetric matrix."""
    n = a.shape[-1]
    if n <= _MOST_WHOLE:
        return t(torch.ops.memopt.cholesky_rows(a).triu())
    half = n // 2
    first = _factor(a[..., :half, :half])
    across = t(_solve_lower(first, invert_lower(first, False), a[..., :half, half:]))
    return _join(first, across, _factor(a[..., half:, half:] - across @ t(across)))


def cholesky(a, upper=False):
    """A matrix that is not positive definite gives NaN, and so no finite loss."""
    check_size(a, MOST_IN_BLOCKS, "the Cholesky decomposition")

    def run(a):
        return _factor(a.tril() + t(a.tril(-1)))

    def backward(context, g):
        (low,) = context.saved_tensors
        inner = (t(low) @ g).tril()
        inner = inner - 0.5 * torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))
        inverse = invert_lower(low, False)
        inner = t(inverse) @ inner @ inverse
        return 0.5 * (inner + t(inner))
    low = with_formula("linalg.cholesky", (a,), run, lambda context, _, output: context.save_for_backward(output), backward)
    return t(low) if upper else low


def cholesky_solve(b, low, upper=False):
    low = t(low) if upper else low
    check_size(low, MOST_IN_BLOCKS, "a solve")

    def solve(low, inverse, b):
        return _solve_lower(t(low), t(inverse), _solve_lower(low, inverse, b))

    def run(b, low):
        low, inverse = _prepare(low, False)
        return solve(low, inverse, b), low, inverse

    def backward(context, g, *_):
        x, low, inverse = context.saved_tensors
        to_b = solve(low, inverse, g)
        both = to_b @ t(x)
        return to_b, -((both + t(both)) @ low)
    return with_formula("cholesky_solve", (b, low), run, _keep, backward)[0]


def cholesky_inverse(low, upper=False):
    return cholesky_solve(eye(low).expand(low.shape), low, upper)


def triangular_solve(b, a, upper=True, transpose=False, unitriangular=False):
    x = solve_triangular(t(a) if transpose else a, b, upper=upper != transpose, unitriangular=unitriangular)
    return x, a
