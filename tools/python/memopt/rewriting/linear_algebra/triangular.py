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

_MOST_WHOLE = 48  # rows of a block on the diagonal


# ----------------------------------------------------------------------------------------------------------
# Blocks
# ----------------------------------------------------------------------------------------------------------

def _get_block_rows(n: int) -> int:
    """Of blocks as alike as can be; the last is the rest."""
    return -(-n // -(-n // _MOST_WHOLE))


def _fill(x: torch.Tensor, size: int) -> torch.Tensor:
    """[[x, 0], [0, 1]] of `size` rows."""
    more = size - x.shape[-1]
    if not more:
        return x
    ones = torch.tensor([float(i >= size - more) for i in range(size)], dtype=x.dtype)
    return torch.nn.functional.pad(x, [0, more, 0, more]) + torch.diag_embed(ones)


def _below(n: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Ones in the lower left quarter of each block of 2 size rows on the diagonal."""
    is_below = lambda i, j: i // size % 2 == 1 and j // size == i // size - 1
    return torch.tensor([[float(is_below(i, j)) for j in range(n)] for i in range(n)], dtype=dtype)


def _invert(low: torch.Tensor, unit: bool) -> torch.Tensor:
    """By halves: the inverse of [[A, 0], [B, C]] is [[1/A, 0], [-1/C B 1/A, 1/C]]. Blocks of one size are joined by one product."""
    inverse = eye(low).expand(low.shape) if unit else torch.diag_embed(low.diagonal(dim1=-2, dim2=-1).reciprocal())
    for level in range((low.shape[-1] - 1).bit_length()):
        inverse = inverse - inverse @ (low * _below(low.shape[-1], 2 ** level, low.dtype)) @ inverse
    return inverse


def _invert_blocks(low: torch.Tensor, unit: bool) -> torch.Tensor:
    """The inverses [..., blocks, size, size] of the blocks on the diagonal of a lower triangle."""
    n, size = low.shape[-1], _get_block_rows(low.shape[-1])
    blocks = [_fill(low[..., k:k + size, k:k + size], size) for k in range(0, n, size)]
    return _invert(torch.stack(blocks, -3), unit)


class _Triangle:
    """A lower triangle of which the inverses of the blocks on the diagonal are known. What lies above the diagonal is not read."""

    def __init__(self, low: torch.Tensor, inverses: torch.Tensor, unit: bool = False):
        self.low, self.inverses, self.unit = low, inverses, unit
        self.size, self.count = inverses.shape[-1], inverses.shape[-3]

    def _rows(self, first: int, last: int) -> slice:
        return slice(first * self.size, min(last * self.size, self.low.shape[-1]))

    def _solve_block(self, k: int, right: torch.Tensor, is_turned: bool) -> torch.Tensor:
        """By the inverse, and once more for what that leaves."""
        rows = self._rows(k, k + 1)
        turn = t if is_turned else lambda x: x
        block, n = self.low[..., rows, rows], rows.stop - rows.start
        block = turn(block.tril(-1) + eye(block) if self.unit else block.tril())
        inverse = turn(self.inverses[..., k, :n, :n])
        found = inverse @ right
        return found + inverse @ (right - block @ found)

    def _solve(self, first: int, last: int, right: torch.Tensor, is_turned: bool) -> torch.Tensor:
        """By halves: most of it are products of large matrices, of the triangle alone."""
        if last - first == 1:
            return self._solve_block(first, right, is_turned)
        middle = (first + last + 1) // 2
        upper, lower = self._rows(first, middle), self._rows(middle, last)
        begin, end = right.split([upper.stop - upper.start, lower.stop - lower.start], -2)
        across = self.low[..., lower, upper]
        if is_turned:
            end = self._solve(middle, last, end, True)
            begin = self._solve(first, middle, begin - t(across) @ end, True)
        else:
            begin = self._solve(first, middle, begin, False)
            end = self._solve(middle, last, end - across @ begin, False)
        return torch.cat([begin, end], -2)

    def solve(self, right: torch.Tensor, is_turned: bool = False) -> torch.Tensor:
        """X of L X = right, or of L^T X = right."""
        return self._solve(0, self.count, right, is_turned)


def solve_upper(up: torch.Tensor, right: torch.Tensor, unit: bool) -> torch.Tensor:
    return _Triangle(t(up), _invert_blocks(t(up), unit), unit).solve(right, True)


# ----------------------------------------------------------------------------------------------------------
# Solves
# ----------------------------------------------------------------------------------------------------------

def _keep(context, arguments, outputs):
    """For the gradient: the result, the inverses of the blocks, and what both were made from."""
    context.save_for_backward(*outputs, *arguments)
    context.mark_non_differentiable(*outputs[1:])


def solve_triangular(a, b, *, upper, left=True, unitriangular=False):
    if not left:
        return t(solve_triangular(t(a), t(b), upper=not upper, unitriangular=unitriangular))
    check_size(a, MOST_IN_BLOCKS, "a triangular solve")
    turn = t if upper else lambda x: x

    def run(a, b):
        inverses = _invert_blocks(turn(a), unitriangular)
        return _Triangle(turn(a), inverses, unitriangular).solve(b, upper), inverses

    def backward(context, g, *_):
        x, inverses, a, _ = context.saved_tensors
        to_b = _Triangle(turn(a), inverses, unitriangular).solve(g, not upper)
        to_a = -(to_b @ t(x))
        away = int(unitriangular)
        return (to_a.triu(away) if upper else to_a.tril(-away)), to_b
    return with_formula("linalg.solve_triangular", (a, b), run, _keep, backward)[0]


# ----------------------------------------------------------------------------------------------------------
# Cholesky
# ----------------------------------------------------------------------------------------------------------

def _factor_columns(a: torch.Tensor) -> torch.Tensor:
    rows = []
    for k in range(a.shape[-2]):
        row = a.narrow(-2, k, 1)
        row = row / row.narrow(-1, k, 1).sqrt()
        rows.append(row)
        if k + 1 < a.shape[-2]:
            a = torch.addcmul(a, t(row.narrow(-1, 0, a.shape[-2])), row, value=-1)
    return torch.cat(rows, -2)


#: Of [A, B] the upper factor U of A and U^-T B, row by row, in a loop of the program; a row taken off leaves zeros in A but for rounding.
_library = torch.library.Library("memopt", "FRAGMENT")
_library.define("cholesky_rows(Tensor a) -> Tensor")
_library.impl("cholesky_rows", _factor_columns, "CompositeExplicitAutograd")
torch.library.register_fake("memopt::cholesky_rows", lambda a: torch.empty_like(a, memory_format=torch.contiguous_format), lib=_library)


def _factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower factor of a symmetric matrix, and the inverses of its blocks on the diagonal: a block of rows after the other."""
    n, size = a.shape[-1], _get_block_rows(a.shape[-1])
    parts, inverses = [], []
    for first in range(0, n, size):
        block = _fill(a[..., :size, :size], size)
        rows = torch.ops.memopt.cholesky_rows(torch.cat([block, eye(block).expand(block.shape)], -1))
        here = min(size, n - first)
        part, inverse = rows[..., :here, :here].triu(), rows[..., size:].tril()
        inverses.append(inverse)
        if first + size < n:
            across = inverse @ a[..., :size, size:]
            a = a[..., size:, size:] - t(across) @ across
            part = torch.cat([part, across], -1)
        parts.append(torch.nn.functional.pad(part, [first, 0]))
    return t(torch.cat(parts, -2)), torch.stack(inverses, -3)


def cholesky(a, upper=False):
    """A matrix that is not positive definite gives NaN, and so no finite loss."""
    check_size(a, MOST_IN_BLOCKS, "the Cholesky decomposition")

    def run(a):
        return _factor(a.tril() + t(a.tril(-1)))

    def backward(context, g, *_):
        low, inverses, _ = context.saved_tensors
        inner = t(low) @ g.tril()
        inner = 0.5 * (inner.tril() + t(inner.tril(-1)))
        triangle = _Triangle(low, inverses)
        return triangle.solve(t(triangle.solve(inner, True)), True)
    low = with_formula("linalg.cholesky", (a,), run, _keep, backward)[0]
    return t(low) if upper else low


def cholesky_solve(b, low, upper=False):
    low = t(low) if upper else low
    check_size(low, MOST_IN_BLOCKS, "a solve")

    def solve(low, inverses, b):
        triangle = _Triangle(low, inverses)
        return triangle.solve(triangle.solve(b), True)

    def run(b, low):
        inverses = _invert_blocks(low, False)
        return solve(low, inverses, b), inverses

    def backward(context, g, *_):
        x, inverses, _, low = context.saved_tensors
        to_b = solve(low, inverses, g)
        if 2 * x.shape[-1] < low.shape[-1]:  # few columns
            to_low = to_b @ (t(x) @ low) + x @ (t(to_b) @ low)
        else:
            both = to_b @ t(x)
            to_low = (both + t(both)) @ low
        return to_b, -to_low
    return with_formula("cholesky_solve", (b, low), run, _keep, backward)[0]


def cholesky_inverse(low, upper=False):
    return cholesky_solve(eye(low).expand(low.shape), low, upper)


def triangular_solve(b, a, upper=True, transpose=False, unitriangular=False):
    x = solve_triangular(t(a) if transpose else a, b, upper=upper != transpose, unitriangular=unitriangular)
    return x, a
