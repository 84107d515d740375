# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eigenvalues and singular values, by rotations of pairs of columns (Jacobi)."""

from __future__ import annotations

import math

import torch

from ... import gradients
from ...errors import Refused
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


def _turn(own: torch.Tensor, other: torch.Tensor, across: torch.Tensor, sign: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines that make `across` zero between columns with the squares `own` and `other`; the two columns of a pair, of
    different signs, turn in opposite directions."""
    is_zero = across == 0
    ratio = (other - own) / torch.where(is_zero, torch.ones((), dtype=own.dtype), across * 2)
    tangent = torch.where(ratio == 0, sign, ratio.sign()) / (ratio.abs() + (1 + ratio * ratio).sqrt())
    tangent = torch.where(is_zero, torch.zeros((), dtype=own.dtype), tangent)
    cosine = (1 + tangent * tangent).rsqrt()
    return cosine.unsqueeze(-2), (tangent * cosine).unsqueeze(-2)


def _sweeps(n: int) -> int:
    return 3 + max(1, math.ceil(math.log2(max(n, 2))))


class _Round:
    """A pairing as constants."""

    def __init__(self, partner: list[int], dtype: torch.dtype):
        self.places = torch.tensor(partner)
        self.sign = torch.tensor([float((i < j) - (i > j)) for i, j in enumerate(partner)], dtype=dtype)
        n = len(partner)
        self.pairs = torch.tensor([[float(j == other != i) for j in range(n)] for i, other in enumerate(partner)], dtype=dtype)


def _rotate_both(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    n = a.shape[-1]
    a = a.tril() + t(a.tril(-1))
    vectors = eye(a).expand(a.shape)
    for turn in [_Round(partner, a.dtype) for partner in _list_rounds(n)] * _sweeps(n):
        own = a.diagonal(dim1=-2, dim2=-1)
        cosine, sine = _turn(own, own.index_select(-1, turn.places), (a * turn.pairs).sum(-1), turn.sign)
        a = a * cosine - a.index_select(-1, turn.places) * sine
        a = a * t(cosine) - a.index_select(-2, turn.places) * t(sine)
        vectors = vectors * cosine - vectors.index_select(-1, turn.places) * sine
    values, order = a.diagonal(dim1=-2, dim2=-1).sort(-1)
    return values, vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))


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
    return gradients.with_formula("linalg.eigh", (a,), _rotate_both, lambda context, _, outputs: context.save_for_backward(*outputs),
                                  backward)


def _rotate_columns(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """U, S and V of at least as many rows as columns."""
    n = a.shape[-1]
    vectors = eye(a).expand(*a.shape[:-2], n, n)
    for turn in [_Round(partner, a.dtype) for partner in _list_rounds(n)] * (_sweeps(n) if n > 1 else 0):
        mate = a.index_select(-1, turn.places)
        own = (a * a).sum(-2)
        across = (a * mate).sum(-2) * (turn.sign * turn.sign)
        cosine, sine = _turn(own, own.index_select(-1, turn.places), across, turn.sign)
        a = a * cosine - mate * sine
        vectors = vectors * cosine - vectors.index_select(-1, turn.places) * sine
    sizes, order = a.square().sum(-2).sqrt().sort(-1, descending=True)
    pick = lambda x: x.gather(-1, order.unsqueeze(-2).expand(x.shape))
    return pick(a) / torch.where(sizes == 0, torch.ones_like(sizes), sizes).unsqueeze(-2), sizes, pick(vectors)


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
    u, s, v = gradients.with_formula("linalg.svd", (a,), _rotate_columns,
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


def pinv(a, *_, **__):
    u, s, vh = _thin_svd(a)
    limit = max(a.shape[-2:]) * torch.finfo(a.dtype).eps * s.amax(-1, keepdim=True)
    inverse = torch.where(s > limit, 1 / torch.where(s > limit, s, torch.ones_like(s)), torch.zeros_like(s))
    return (t(vh) * inverse.unsqueeze(-2)) @ t(u)
