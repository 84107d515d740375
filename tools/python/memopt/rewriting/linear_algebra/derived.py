# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PyTorch computes from the decompositions: ranks, condition numbers, norms by singular values, tensors as matrices."""

from __future__ import annotations

import math

import torch

from ...errors import Refused
from .elimination import inverse, solve
from .matrices import t
from .rotations import eigh, pinv, svdvals

__all__ = ["cond", "is_by_sizes", "matrix_norm", "matrix_rank", "norm", "nuclear_norm", "ormqr", "pseudo_inverse", "tensorinv", "tensorsolve"]


# ----------------------------------------------------------------------------------------------------------
# Singular values
# ----------------------------------------------------------------------------------------------------------

def _tolerances(sizes: torch.Tensor, shape: torch.Size, atol, rtol) -> torch.Tensor:
    """Up to where a singular value counts as none."""
    if rtol is None:
        least = torch.finfo(sizes.dtype).eps * max(shape[-2:])
        rtol = least if atol is None else torch.where(atol > 0, 0.0, least) if isinstance(atol, torch.Tensor) else 0.0 if atol > 0 else least
    by_matrix = lambda value: value.unsqueeze(-1) if isinstance(value, torch.Tensor) and value.dim() else value
    limit = sizes.amax(-1, keepdim=True) * by_matrix(rtol)
    atol = by_matrix(0.0 if atol is None else atol)
    return torch.maximum(limit, atol) if isinstance(atol, torch.Tensor) else limit.clamp(min=atol)


def _sizes(a: torch.Tensor, hermitian: bool) -> torch.Tensor:
    return eigh(a)[0].abs() if hermitian else svdvals(a)


def matrix_rank(a, tol=None, hermitian=False, *, atol=None, rtol=None):
    sizes = _sizes(a.detach(), hermitian)
    limit = _tolerances(sizes, a.shape, atol if tol is None else tol, rtol if tol is None else 0.0)
    return (sizes > limit).sum(-1)


def pseudo_inverse(a, rcond=None, hermitian=False, *, atol=None, rtol=None):
    if hermitian:  # the lower triangle has the values, and all elements get gradients as those of any matrix
        a = (a.tril() + t(a.tril(-1))).detach() + (a - a.detach())
    return pinv(a, lambda sizes: _tolerances(sizes, a.shape, atol, rtol if rcond is None else rcond))


def _of_matrices(x: torch.Tensor, dims, keepdim: bool, function) -> torch.Tensor:
    dims = [dim % x.dim() for dim in dims]
    found = function(x.movedim(dims, [-2, -1]))
    for dim in sorted(dims) if keepdim else ():
        found = found.unsqueeze(dim)
    return found


_BY_SIZES = {"nuc": lambda sizes: sizes.sum(-1), 2: lambda sizes: sizes.amax(-1), -2: lambda sizes: sizes.amin(-1)}


def matrix_norm(x, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    x = x if dtype is None else x.to(dtype)
    if ord in _BY_SIZES:
        return _of_matrices(x, dim, keepdim, lambda a: _BY_SIZES[ord](svdvals(a)))
    overload = torch.ops.aten.linalg_matrix_norm.str_ord if isinstance(ord, str) else torch.ops.aten.linalg_matrix_norm.default
    return overload(x, ord, list(dim), keepdim)


def is_by_sizes(x, ord=None, dim=None, *_, **__) -> bool:
    """Whether a norm with these arguments is one of a matrix, by its singular values."""
    return ord in _BY_SIZES and (x.dim() == 2 if dim is None else not isinstance(dim, int) and len(dim) == 2)


def norm(x, ord=None, dim=None, keepdim=False, *, dtype=None):
    if is_by_sizes(x, ord, dim):
        return matrix_norm(x, ord, dim or (-2, -1), keepdim, dtype=dtype)
    overload = torch.ops.aten.linalg_norm.ord_str if isinstance(ord, str) else torch.ops.aten.linalg_norm.default
    return overload(x, ord, dim, keepdim, dtype=dtype)


def nuclear_norm(x, dim=(-2, -1), keepdim=False):
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    return matrix_norm(x, "nuc", dim, keepdim)


def cond(a, p=None):
    if p in (None, 2, -2):
        sizes = svdvals(a)
        most, least = sizes.amax(-1), sizes.amin(-1)
        return least / most if p == -2 else most / least
    return matrix_norm(a, p) * matrix_norm(inverse(a), p)


# ----------------------------------------------------------------------------------------------------------
# Solves
# ----------------------------------------------------------------------------------------------------------

def tensorinv(a, ind=2):
    rows = math.prod(a.shape[:ind])
    return inverse(a.reshape(rows, -1)).reshape(*a.shape[ind:], *a.shape[:ind])


def tensorsolve(a, b, dims=None):
    if dims is not None:
        a = a.movedim(list(dims), list(range(a.dim() - len(dims), a.dim())))
    if a.numel() != b.numel() ** 2:
        raise Refused(f"tensorsolve of a matrix that is not square ({list(a.shape)} and {list(b.shape)}) is not supported")
    return solve(a.reshape(b.numel(), -1), b.flatten()).reshape(a.shape[b.dim():])


def ormqr(a, tau, c, left=True, transpose=False):
    """The product of reflections as geqrf gives them, times c."""
    if not left:
        return t(ormqr(a, tau, t(c), True, not transpose))
    m, count = a.shape[-2], tau.shape[-1]
    a = a[..., :count].tril(-1) + torch.eye(m, count, dtype=a.dtype)
    for k in range(count) if transpose else reversed(range(count)):
        v = a.narrow(-1, k, 1)
        c = torch.addcmul(c, v, tau.narrow(-1, k, 1).unsqueeze(-1) * (t(v) @ c), value=-1)
    return c
