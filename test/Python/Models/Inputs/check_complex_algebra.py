# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""As check_algebra.py, of complex matrices. Their parts are the last dimension of a real parameter. Of vectors count absolute values, which
no factor of absolute value 1 changes."""

import torch

import check_algebra
from check_algebra import check, regular


def complexes(function):
    def run(w, t):
        w, t = torch.view_as_complex(w), torch.view_as_complex(t)
        found = function(w, t)
        return (found.real + 0.5 * found.imag) if found.is_complex() else found
    run.__name__ = f"complex {function.__name__}"
    return run


def dot(a, t):
    """Real and imaginary parts weigh differently."""
    return (a * t).sum()


def hermitian(w):
    return w @ w.mH / w.shape[-1] + torch.eye(w.shape[-1], dtype=w.dtype)


def spread(w):
    return w / (2 * w.shape[-1]) ** 0.5 + torch.diag(2 * torch.arange(1, w.shape[-1] + 1, dtype=w.real.dtype)).to(w.dtype)


def cholesky(w, t):
    low = torch.linalg.cholesky(hermitian(w))
    upper = torch.linalg.cholesky(hermitian(w), upper=True)
    return dot(low, t) + low.diagonal(dim1=-2, dim2=-1).log().sum() + dot(torch.cholesky_solve(t, low), t) + dot(upper, t) + (
        torch.cholesky_inverse(low) * t).sum()


def solve(w, t):
    a = regular(w)
    one = torch.linalg.solve(a, t[..., 0].unsqueeze(-1)).squeeze(-1)
    return dot(torch.linalg.solve(a, t), t) + dot(torch.linalg.inv(a).mT, t) + dot(torch.linalg.solve(a, t, left=False), t) + one.sum()


def determinant(w, t):
    a = regular(w) / w.shape[-1] ** 0.5
    sign, logarithm = torch.linalg.slogdet(a)
    return torch.linalg.det(a / 2).sum() / torch.linalg.det(a / 2).abs().detach().sum() + dot(sign, t[..., 0, 0]) + logarithm.sum() + (
        torch.logdet(hermitian(w)).sum())


def triangles(w, t):
    a = regular(w)
    return (dot(torch.linalg.solve_triangular(a, t, upper=True), t) + dot(torch.linalg.solve_triangular(a.mT, t, upper=True, left=False), t)
            + dot(torch.linalg.solve_triangular(0.1 * w / w.shape[-1], t, upper=False, unitriangular=True), t))


def lu(w, t):
    p, low, up = torch.linalg.lu(w)
    tall = torch.linalg.lu(w[..., : w.shape[-1] // 2 + 1])
    wide = torch.linalg.lu(w[..., : w.shape[-1] // 2 + 1, :])
    factors = torch.linalg.lu_factor(regular(w))
    return (dot(p @ low, t) + dot(up, t) + tall.L.sum() + wide.U.sum() + dot(torch.linalg.lu_solve(*factors, t), t)
            + dot(torch.linalg.lu_solve(*factors, t, left=False, adjoint=True), t))


def qr(w, t):
    q, r = torch.linalg.qr(w)
    tall, _ = torch.linalg.qr(w[..., : w.shape[-1] // 2 + 1])
    _, wide = torch.linalg.qr(w[..., : w.shape[-1] // 2 + 1, :])
    return dot(q, t) + dot(r, t) + dot(tall * tall.conj(), t[..., : tall.shape[-1]]) + dot(wide, t[..., : wide.shape[-2], :])


def reflections(w, t):
    vectors, factors = w / w.shape[-1], t[..., 0] / 2
    q = torch.linalg.householder_product(vectors, factors)
    return dot(q, t) + dot(torch.ormqr(vectors, factors, t), t) + dot(torch.ormqr(vectors, factors, t, left=False, transpose=True), t)


def eigh(w, t):
    values, vectors = torch.linalg.eigh(spread(w + w.mH))
    return (values * t[..., 0].real).sum() + (vectors.abs().square() * t.real).sum() + torch.linalg.eigvalsh(hermitian(w)).log().sum()


def svd(w, t):
    u, s, vh = torch.linalg.svd(spread(w), full_matrices=False)
    tall = torch.linalg.svd(spread(w)[..., : w.shape[-1] // 2 + 1], full_matrices=False)
    wide = torch.linalg.svdvals(w[..., : w.shape[-1] // 2 + 1, :])
    return ((s * t[..., 0].real).sum() + (u.abs().square() * t.real).sum() + (vh.abs().square() * t.real).sum() + wide.square().sum()
            + tall.U.abs().square()[..., 0, 0].sum() + dot(u * s.unsqueeze(-2) @ vh, t))


def whole(w, t):
    """What is made of the real matrix of twice as many rows, and norms."""
    a = regular(w)
    small = w / w.shape[-1]
    return (dot(torch.linalg.matrix_exp(small), t) + dot(torch.linalg.pinv(a), t) + dot(torch.linalg.matrix_power(small, 3), t)
            + torch.linalg.matrix_norm(w, "nuc").sum() + torch.linalg.matrix_norm(w, 2).sum() + torch.linalg.matrix_norm(w, 1).sum()
            + torch.linalg.norm(w).sum())


CASES = [(function, n, dtype) for function in (cholesky, solve, determinant, triangles, lu, qr, reflections, eigh, svd, whole)
         for n in (3, 20) for dtype in (torch.float32, torch.float64)]

if __name__ == "__main__":
    torch.set_num_threads(1)
    check_algebra.LAST = (2,)
    for function, n, dtype in CASES:
        check(complexes(function), n, dtype)
