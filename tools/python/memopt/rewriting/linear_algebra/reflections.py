# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""QR decompositions, by reflections."""

from __future__ import annotations

import torch

from ... import gradients
from ...errors import Refused
from .matrices import MOST_ROWS, check_size, outer, t
from .triangular import solve_upper

__all__ = ["householder_product", "qr"]


def _reflect(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Q and R of at least as many rows as columns, with LAPACK's signs."""
    m, n = a.shape[-2:]
    rest, vectors, factors = a, [], []
    rows = torch.arange(m)
    for k in range(min(n, m - 1)):
        column = rest[..., k]
        below = torch.where(rows > k, column, torch.zeros((), dtype=a.dtype))
        head = column[..., k:k + 1]
        tail = below.square().sum(-1, keepdim=True)
        size = (head.square() + tail).sqrt()
        beta = torch.where(head > 0, -size, size)
        is_done = tail == 0
        v = torch.where(rows == k, head - beta, below)
        length = v.square().sum(-1, keepdim=True)
        factor = torch.where(is_done, torch.zeros_like(length), 2 / torch.where(is_done, torch.ones_like(length), length))
        rest = rest - factor.unsqueeze(-1) * outer(v, (v.unsqueeze(-2) @ rest).squeeze(-2))
        vectors.append(v)
        factors.append(factor)
    q = torch.eye(m, n, dtype=a.dtype).expand(a.shape)
    for v, factor in zip(reversed(vectors), reversed(factors)):
        q = q - factor.unsqueeze(-1) * outer(v, (v.unsqueeze(-2) @ q).squeeze(-2))
    return q, rest[..., :n, :].triu()


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
    return gradients.with_formula("linalg.qr", (a,), _reflect, lambda context, _, outputs: context.save_for_backward(*outputs), backward)


def householder_product(a, tau):
    m, n = a.shape[-2:]
    q = torch.eye(m, n, dtype=a.dtype).expand(a.shape)
    rows = torch.arange(m)
    for k in reversed(range(tau.shape[-1])):
        v = torch.where(rows > k, a[..., k], (rows == k).to(a.dtype))
        q = q - tau[..., k:k + 1].unsqueeze(-1) * outer(v, (v.unsqueeze(-2) @ q).squeeze(-2))
    return q
