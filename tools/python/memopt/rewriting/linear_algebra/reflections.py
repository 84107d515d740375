# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""QR decompositions, by reflections."""

from __future__ import annotations

import torch

from ...errors import Refused
from ..formulas import with_formula
from .matrices import MOST_ROWS, check_size, eye, t
from .triangular import solve_upper

__all__ = ["householder_product", "qr"]


def _reflect(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Q and R of at least as many rows as columns, with LAPACK's signs."""
    m, n = a.shape[-2:]
    both = torch.cat([a, eye(a, m).expand(*a.shape[:-2], m, m)], -1)
    for k in range(min(n, m - 1)):
        column = both.narrow(-1, k, 1)
        below = column * torch.tensor([[float(i > k)] for i in range(m)], dtype=a.dtype)
        head, tail = column.narrow(-2, k, 1), torch.linalg.vector_norm(below, dim=-2, keepdim=True)
        head = head + torch.copysign(torch.hypot(head, tail), head)
        v = torch.addcmul(below, head, torch.tensor([[float(i == k)] for i in range(m)], dtype=a.dtype))
        factor = torch.where(tail == 0, 0.0, 2 / (t(v) @ v))  # nothing is left to reflect
        both = torch.addcmul(both, v, factor * (t(v) @ both), value=-1)
    return t(both.narrow(-1, n, m)).narrow(-1, 0, n), both.narrow(-1, 0, n).narrow(-2, 0, n).triu()


def qr(a, mode="reduced"):
    m, n = a.shape[-2:]
    check_size(a, MOST_ROWS, "the QR decomposition")
    if mode == "complete" and m > n or mode == "r":
        raise Refused(f"the QR decomposition of a matrix with {m} rows and {n} columns in mode '{mode}' is not supported; reduced ones are")
    if m < n:
        q, r = qr(a[..., :m])
        return q, torch.cat([r, t(q) @ a[..., m:]], -1)

    def backward(context, gq, gr):
        q, r = context.saved_tensors
        m = r @ t(gr) - t(gq) @ q
        low = m.tril(-1)
        m = low + t(low) + torch.diag_embed(m.diagonal(dim1=-2, dim2=-1))
        return t(solve_upper(r, t(gq + q @ m), False))
    return with_formula("linalg.qr", (a,), _reflect, lambda context, _, outputs: context.save_for_backward(*outputs), backward)


def householder_product(a, tau):
    m, n = a.shape[-2:]
    q = torch.eye(m, n, dtype=a.dtype).expand(a.shape)
    a = a.tril(-1) + torch.eye(m, n, dtype=a.dtype)
    for k in reversed(range(tau.shape[-1])):
        v = a.narrow(-1, k, 1)
        q = torch.addcmul(q, v, tau.narrow(-1, k, 1).unsqueeze(-1) * (t(v) @ q), value=-1)
    return q
