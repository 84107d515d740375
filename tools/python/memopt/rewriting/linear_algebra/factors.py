# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The decomposition P L U by elimination with pivots, and what is solved with it."""

from __future__ import annotations

import torch

from ..formulas import with_formula
from .matrices import MOST_ROWS, check_size, t
from .triangular import solve_triangular

__all__ = ["lu", "lu_factor", "lu_solve", "lu_unpack", "older_lu", "older_lu_solve"]


def _swap(numbers: torch.Tensor, k: int, place: torch.Tensor) -> torch.Tensor:
    """The order of rows with row k and this one exchanged."""
    return torch.where(numbers == k, place, torch.where(numbers == place, k, numbers))


def _eliminate(a: torch.Tensor, pivot: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """L and U in one matrix, which row of `a` each row was, and LAPACK's exchanges, counted from 1."""
    m, n = a.shape[-2:]
    numbers, columns = torch.tensor([[i] for i in range(m)]), torch.tensor([list(range(n))])
    order, exchanges = numbers.expand(*a.shape[:-2], m, 1), []
    for k in range(min(m, n)):
        if pivot:
            place = torch.where(numbers >= k, a.narrow(-1, k, 1).abs(), -1.0).argmax(-2, keepdim=True)
            swap = _swap(numbers, k, place)
            a, order = a.gather(-2, swap.expand(a.shape)), order.gather(-2, swap)
            exchanges.append(place)
        row = a.narrow(-2, k, 1)
        factor = a.narrow(-1, k, 1) / row.narrow(-1, k, 1)
        rest = torch.where(columns == k, factor, torch.addcmul(a, factor, row, value=-1))
        a = torch.where((numbers > k) & (columns >= k), rest, a)
    exchanges = torch.cat(exchanges, -2) if exchanges else numbers[:min(m, n)].expand(*a.shape[:-2], min(m, n), 1)
    return a, order, (exchanges + 1).squeeze(-1).to(torch.int32)


def _lower(both: torch.Tensor) -> torch.Tensor:
    m, n = both.shape[-2:]
    return both[..., :min(m, n)].tril(-1) + torch.eye(m, min(m, n), dtype=both.dtype)


def _factor_square(a: torch.Tensor, both: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """L and U of a matrix whose rows are in their order, of which `both` is known; with their gradient."""
    def keep(context, _, outputs):
        context.save_for_backward(*outputs)

    def backward(context, to_low, to_up):
        low, up = context.saved_tensors
        inner = (t(low) @ to_low).tril(-1) + (to_up @ t(up)).triu()
        inner = solve_triangular(t(low), inner, upper=True, unitriangular=True)
        return solve_triangular(t(up), inner, upper=False, left=False), None
    return with_formula("linalg.lu", (a, both), lambda a, both: (_lower(both), both.triu()), keep, backward)


def _factor(a: torch.Tensor, pivot: bool = True):
    """L, U, the order of the rows and the exchanges."""
    check_size(a, MOST_ROWS, "the LU decomposition")
    m, n = a.shape[-2:]
    size = min(m, n)
    both, order, exchanges = _eliminate(a.detach(), pivot)
    a = a.gather(-2, order.expand(a.shape))
    low, up = _factor_square(a[..., :size, :size], both[..., :size, :size])
    if m > n:
        low = torch.cat([low, solve_triangular(up, a[..., n:, :], upper=True, left=False)], -2)
    if m < n:
        up = torch.cat([up, solve_triangular(low, a[..., m:], upper=False, unitriangular=True)], -1)
    return low, up, order, exchanges


def _permutation(order: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """P of a = P L U: column i has its one in the row that row i was."""
    return (torch.arange(order.shape[-2])[:, None] == t(order)).to(dtype)


def lu(a, *, pivot=True):
    low, up, order, _ = _factor(a, pivot)
    return _permutation(order, a.dtype) if pivot else a.new_zeros([0]), low, up


def lu_factor(a, *, pivot=True):
    low, up, _, exchanges = _factor(a, pivot)
    m, n = a.shape[-2:]
    low = low.tril(-1)  # the ones of L are not kept
    pad = torch.nn.functional.pad
    return (pad(low, [0, n - m]) if n > m else low) + (pad(up, [0, 0, 0, m - n]) if m > n else up), exchanges


def older_lu(a, pivot=True, check_errors=True):
    return (*lu_factor(a, pivot=pivot), torch.zeros(a.shape[:-2], dtype=torch.int32))


def _find_order(exchanges: torch.Tensor, rows: int) -> torch.Tensor:
    numbers = torch.arange(rows)[:, None]
    order = numbers.expand(*exchanges.shape[:-1], rows, 1)
    for k in range(exchanges.shape[-1]):
        place = exchanges.narrow(-1, k, 1).unsqueeze(-1).to(torch.int64) - 1
        order = order.gather(-2, _swap(numbers, k, place))
    return order


def lu_unpack(both, exchanges, unpack_data=True, unpack_pivots=True):
    m, n = both.shape[-2:]
    nothing = both.new_zeros([0])
    factors = (_lower(both), both[..., :min(m, n), :].triu()) if unpack_data else (nothing, nothing)
    return (_permutation(_find_order(exchanges, m), both.dtype) if unpack_pivots else nothing, *factors)


def lu_solve(both, exchanges, b, *, left=True, adjoint=False):
    if not left:
        return t(lu_solve(both, exchanges, t(b), adjoint=not adjoint))
    order = _find_order(exchanges, both.shape[-1])
    batch = torch.broadcast_shapes(order.shape[:-2], b.shape[:-2])
    order, b = order.expand(*batch, *order.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    if not adjoint:
        b = solve_triangular(both, b.gather(-2, order.expand(b.shape)), upper=False, unitriangular=True)
        return solve_triangular(both, b, upper=True)
    b = solve_triangular(t(both), b, upper=False)
    b = solve_triangular(t(both), b, upper=True, unitriangular=True)
    return b.gather(-2, order.argsort(-2).expand(b.shape))


def older_lu_solve(b, both, exchanges):
    return lu_solve(both, exchanges, b)
