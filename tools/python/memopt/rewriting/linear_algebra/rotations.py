# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eigenvalues and singular values, by rotations of pairs of columns (Jacobi)."""

from __future__ import annotations

import math

import torch

from ...errors import Refused
from ..formulas import with_formula
from .matrices import MOST_TURNED, check_size, eye, t

__all__ = ["eigh", "older_svd", "pinv", "svd", "svdvals"]


def _list_rounds(n: int) -> list[list[int]]:
    """Pairings of the columns in which each pair comes once; a column without a partner has itself."""
    players = list(range(n + n % 2))
    rounds = []
    for _ in range(len(players) - 1):
        partner = list(range(n))
        for a, b in zip(players[:len(players) // 2], reversed(players[len(players) // 2:])):
            if a < n and b < n:
                partner[a], partner[b] = b, a
        rounds.append(partner)
        players = [players[0], players[-1], *players[1:-1]]
    return rounds


def _sweeps(n: int, dtype: torch.dtype) -> int:
    """Convergence is quadratic at the end, so that twice as many digits take one turn more."""
    return (3 if dtype == torch.float64 else 2) + max(1, math.ceil(math.log2(max(n, 2))))


class _Round:
    """A pairing as constants."""

    def __init__(self, partner: list[int], dtype: torch.dtype):
        sign = [(i < j) - (i > j) for i, j in enumerate(partner)]
        make = lambda entry: torch.tensor([[float(entry(i, j)) for j in range(len(partner))] for i in range(len(partner))], dtype=dtype)
        self.ones = torch.ones([1, len(partner)], dtype=dtype)
        self.stays = make(lambda i, j: i == j)
        self.turns = make(lambda i, j: -sign[j] * (i == partner[j]))
        self.pairs = make(lambda i, j: abs(sign[j]) * (i == partner[j]))
        self.sums = make(lambda i, j: i in (j, partner[j]))
        self.gaps = make(lambda i, j: sign[j] * ((i == partner[j]) - (i == j)))

    def rotation(self, a: torch.Tensor) -> torch.Tensor:
        """Of a symmetric matrix: the columns of each pair turn by the angle, 45 degrees at most, that makes the entry between them zero.
        Both columns have the same bits of it, or else they would not stay orthogonal where rounding alone decides."""
        gap = a.diagonal(dim1=-2, dim2=-1).unsqueeze(-2) @ self.gaps
        across = (a * self.pairs).sum(-2, keepdim=True) @ self.sums
        angle = 0.5 * torch.atan2(across * torch.copysign(self.ones, gap), gap.abs())
        return torch.addcmul(angle.cos() * self.stays, angle.sin(), self.turns)


def _list_turns(n: int, dtype: torch.dtype) -> list[_Round]:
    return [_Round(partner, dtype) for partner in _list_rounds(n)] * (_sweeps(n, dtype) if n > 1 else 0)


def _pick(a: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Columns in this order."""
    return a.gather(-1, order.unsqueeze(-2).expand(a.shape))


def _rotate_both(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a = a.tril() + t(a.tril(-1))
    order = a.diagonal(dim1=-2, dim2=-1).abs().argsort(-1)  # small before large converges in fewer turns
    a, vectors = _pick(t(_pick(a, order)), order), _pick(eye(a).expand(a.shape), order)
    for turn in _list_turns(a.shape[-1], a.dtype):
        rotation = turn.rotation(a)
        a, vectors = t(rotation) @ a @ rotation, vectors @ rotation
    values, order = a.diagonal(dim1=-2, dim2=-1).sort(-1)
    return values, _pick(vectors, order)


def _gap(values: torch.Tensor) -> torch.Tensor:
    """What an entry of row i and column j is divided by: value j less value i, and 1 on the diagonal."""
    return values.unsqueeze(-2) - values.unsqueeze(-1) + eye(values)


def eigh(a, uplo="L"):
    check_size(a, MOST_TURNED, "the eigenvalues")
    a = a if uplo in ("L", "l") else t(a)

    def backward(context, gv, gw):
        values, vectors = context.saved_tensors
        inner = (t(vectors) @ gw) / _gap(values)
        inner = inner * (1 - eye(inner)) + torch.diag_embed(gv)
        return vectors @ inner @ t(vectors)
    return with_formula("linalg.eigh", (a,), _rotate_both, lambda context, _, outputs: context.save_for_backward(*outputs),
                                  backward)


def _rotate_columns(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """U, S and V of at least as many rows as columns."""
    n = a.shape[-1]
    order = a.square().sum(-2).argsort(-1)
    a, vectors = _pick(a, order), _pick(eye(a).expand(*a.shape[:-2], n, n), order)
    for turn in _list_turns(n, a.dtype):
        rotation = turn.rotation(t(a) @ a)
        a, vectors = a @ rotation, vectors @ rotation
    sizes, order = torch.linalg.vector_norm(a, dim=-2).sort(-1, descending=True)
    return _pick(a, order) / torch.where(sizes == 0, torch.ones_like(sizes), sizes).unsqueeze(-2), sizes, _pick(vectors, order)


def _thin_svd(a):
    """U, S and the transposed V."""
    m, n = a.shape[-2:]
    if m < n:
        u, s, vh = _thin_svd(t(a))
        return t(vh), s, t(u)
    check_size(a, MOST_TURNED, "the singular values")

    def backward(context, gu, gs, gv):
        u, s, v = context.saved_tensors
        skew = lambda x: (x - t(x)) / _gap(s.square())
        inner = skew(t(u) @ gu) * s.unsqueeze(-2) + s.unsqueeze(-1) * skew(t(v) @ gv)
        inner = inner * (1 - eye(inner)) + torch.diag_embed(gs)
        result = u @ inner
        if m > n:
            result = result + (gu - u @ (t(u) @ gu)) / s.unsqueeze(-2)
        return result @ t(v)
    u, s, v = with_formula("linalg.svd", (a,), _rotate_columns,
                                     lambda context, _, outputs: context.save_for_backward(*outputs), backward)
    return u, s, t(v)


def svd(a, full_matrices=True, compute_uv=True, driver=None):
    if full_matrices and a.shape[-1] != a.shape[-2]:
        raise Refused("singular vectors in full_matrices are not supported, as those of no singular value are arbitrary; give it "
                      "full_matrices=False")
    return _thin_svd(a)


def svdvals(a, driver=None):
    return _thin_svd(a)[1]


def older_svd(a, some=True, compute_uv=True):
    u, s, vh = svd(a, not some)
    return u, s, t(vh)


def pinv(a, find_limit):
    """`find_limit` gives, of the singular values, up to where one counts as none. The gradient needs no singular vectors, which several
    equal values do not have."""
    check_size(a, MOST_TURNED, "the pseudoinverse")

    def run(a):
        is_wide = a.shape[-2] < a.shape[-1]
        u, s, v = _rotate_columns(t(a) if is_wide else a)
        counts = s > find_limit(s)
        scaled = v * torch.where(counts, 1 / torch.where(counts, s, 1.0), 0.0).unsqueeze(-2)
        return u @ t(scaled) if is_wide else scaled @ t(u)

    def keep(context, inputs, output):
        context.save_for_backward(inputs[0], output)

    def backward(context, g):
        a, inverse = context.saved_tensors
        g, turned = t(g), t(inverse)
        across = g @ inverse
        inner = across @ turned
        return -t(inverse @ across) + inner - a @ (inverse @ inner) + turned @ (inverse @ (g - across @ a))
    return with_formula("linalg.pinv", (a,), run, keep, backward)
