# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operators of linear algebra on complex matrices, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import Refused
from . import matrices
from .arithmetic import absolute, add, log, mul, pair
from .matrices import adjoint, multiply
from .pairs import Pair

__all__ = ["ALGEBRA", "EMBEDDED", "read_hermitian"]


def _of_parts(function: Callable, z: Pair) -> Pair:
    return Pair(function(z.re), function(z.im))


def _info(z: Pair) -> torch.Tensor:
    """Whether a solver failed: here that shows in the values, as no number."""
    return torch.zeros(z.re.shape[:-2], dtype=torch.int32)


# ----------------------------------------------------------------------------------------------------------
# Factors of Hermitian matrices, and triangles
# ----------------------------------------------------------------------------------------------------------

def _cholesky(a: Pair, upper: bool = False, **_: Any) -> Pair:
    return adjoint(matrices.cholesky(adjoint(a))) if upper else matrices.cholesky(a)


def _cholesky_solve(b: Any, low: Any, upper: bool = False) -> Pair:
    low = adjoint(pair(low)) if upper else pair(low)
    return matrices.solve_triangle(adjoint(low), matrices.solve_triangle(low, pair(b), upper=False), upper=True)


def _solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Pair:
    a, b = pair(a), pair(b)
    if left:
        return matrices.solve_triangle(a, b, upper, unitriangular)
    return adjoint(matrices.solve_triangle(adjoint(a), adjoint(b), not upper, unitriangular))


def _triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> list[Pair]:
    a = pair(a)
    turned = _of_parts(lambda part: part.mT, a) if transpose else a
    return [matrices.solve_triangle(turned, pair(b), upper != transpose, unitriangular), a]


# ----------------------------------------------------------------------------------------------------------
# Elimination
# ----------------------------------------------------------------------------------------------------------

def _solve(a: Any, b: Any, *, left: bool = True, **_: Any) -> Pair:
    a, b = pair(a), pair(b)
    if b.re.dim() == 1 or b.re.shape == a.re.shape[:-1]:
        found = matrices.solve(a, _of_parts(lambda part: part[..., None], b))
        return _of_parts(lambda part: part[..., 0], found)
    return matrices.solve(a, b) if left else adjoint(matrices.solve(adjoint(a), adjoint(b)))


def _solve_with_factors(a: Any, b: Any, *, left: bool = True, **_: Any) -> list:
    return [_solve(a, b, left=left), *_factor_packed(pair(a) if left else _of_parts(lambda part: part.mT, pair(a))), _info(pair(a))]


def _log_determinant(a: Pair) -> Pair:
    sign, logarithm = matrices.sign_and_logarithm(a)
    return add(log(sign), logarithm)


def _factor(a: Pair, *, pivot: bool = True) -> list:
    if not pivot:
        raise Refused("LU without pivots of complex matrices is not supported")
    order, low, up, _ = matrices.factor(a)
    picks = (order[..., None, :] == torch.arange(order.shape[-1])[:, None]).to(low.re.dtype)
    return [Pair(picks, torch.zeros_like(picks)), low, up]


def _factor_packed(a: Pair, pivot: bool = True, *_: Any, **__: Any) -> list:
    if not pivot:
        raise Refused("LU without pivots of complex matrices is not supported")
    m, n = a.re.shape[-2:]
    _, low, up, exchanges = matrices.factor(a)
    fit = lambda part: torch.nn.functional.pad(part, [0, n - part.shape[-1], 0, m - part.shape[-2]])
    both = add(_of_parts(lambda part: fit(part.tril(-1)), low), _of_parts(fit, up))
    return [both, (exchanges + 1).to(torch.int32)]


def _permutation(both: Pair, pivots: torch.Tensor) -> torch.Tensor:
    return torch.lu_unpack(both.re.detach(), pivots, unpack_data=False)[0]


def _unpack(both: Pair, pivots: torch.Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> list:
    k = min(both.re.shape[-2:])
    nothing = both.re.new_empty([0])
    found: list[Any] = [Pair(nothing, nothing)] * 3
    if unpack_pivots:
        found[0] = pair(_permutation(both, pivots))
    if unpack_data:
        one = torch.eye(both.re.shape[-2], k, dtype=both.re.dtype)
        low = _of_parts(lambda part: part[..., :k].tril(-1), both)
        found[1:] = Pair(low.re + one, low.im), _of_parts(lambda part: part[..., :k, :].triu(), both)
    return found


def _solve_by_factors(both: Pair, pivots: torch.Tensor, b: Any, *, left: bool = True, adjoint: bool = False) -> Pair:
    if not left:
        return matrices.adjoint(_solve_by_factors(both, pivots, matrices.adjoint(pair(b)), adjoint=not adjoint))
    picks, b = _permutation(both, pivots), pair(b)
    if adjoint:
        b = matrices.solve_triangle(matrices.adjoint(both), b, upper=False)
        return multiply(picks, matrices.solve_triangle(matrices.adjoint(both), b, upper=True, unit=True))
    b = matrices.solve_triangle(both, multiply(picks.mT, b), upper=False, unit=True)
    return matrices.solve_triangle(both, b, upper=True)


def _tensor_inverse(a: Pair, ind: int = 2) -> Pair:
    sizes = list(a.re.shape)
    square = _of_parts(lambda part: part.flatten(ind).flatten(0, ind - 1), a)
    return _of_parts(lambda part: part.reshape(sizes[ind:] + sizes[:ind]), matrices.invert(square))


def _tensor_solve(a: Any, b: Any, dims: list[int] | None = None) -> Pair:
    a, b = pair(a), pair(b)
    rank = a.re.dim()
    moved = [dim % rank for dim in dims or []]
    a = _of_parts(lambda part: part.permute([*(dim for dim in range(rank) if dim not in moved), *moved]), a)
    rows = b.re.numel()
    square = _of_parts(lambda part: part.reshape(rows, rows), a)
    found = matrices.solve(square, _of_parts(lambda part: part.reshape(rows, 1), b))
    return _of_parts(lambda part: part.reshape(a.re.shape[b.re.dim():]), found)


def _power(a: Pair, n: int) -> Pair:
    if n == 0:
        return matrices.identity(a)
    a, n = (matrices.invert(a), -n) if n < 0 else (a, n)
    found = None
    while n:
        found = (a if found is None else multiply(found, a)) if n & 1 else found
        n >>= 1
        a = multiply(a, a) if n else a
    return found


# ----------------------------------------------------------------------------------------------------------
# Reflections
# ----------------------------------------------------------------------------------------------------------

def _qr(a: Pair, mode: str = "reduced") -> list[Pair]:
    m, n = a.re.shape[-2:]
    if mode == "r" or (mode == "complete" and m > n):
        raise Refused(f"the QR decomposition with mode='{mode}' of complex matrices is not supported, 'reduced' is")
    return list(matrices.reflect(a))


def _multiply_reflections(vectors: Any, factors: Any, to: Pair, turned: bool) -> Pair:
    """H_1 ... H_k = I - V (I + D S)^-1 D V^H, with V the vectors, D their factors, and S the upper triangle of V^H V without its diagonal;
    or the adjoint of it; times a matrix."""
    vectors, factors = pair(vectors), pair(factors)
    k = factors.re.shape[-1]
    below = _of_parts(lambda part: part[..., :k].tril(-1), vectors)
    vectors = Pair(below.re + torch.eye(below.re.shape[-2], k, dtype=below.re.dtype), below.im)
    scales = _of_parts(lambda part: part[..., None], factors)
    unit, across = mul(scales, multiply(adjoint(vectors), vectors)), multiply(adjoint(vectors), to)
    if turned:
        across = matrices.solve_triangle(adjoint(unit), across, upper=False, unit=True)
        across = mul(Pair(scales.re, -scales.im), across)
    else:
        across = matrices.solve_triangle(unit, mul(scales, across), upper=True, unit=True)
    return add(to, multiply(vectors, across), 1, -1)


def _householder_product(vectors: Any, factors: Any) -> Pair:
    like = pair(vectors)
    one = torch.eye(*like.re.shape[-2:], dtype=like.re.dtype).expand_as(like.re)
    return _multiply_reflections(like, factors, Pair(one, torch.zeros_like(one)), turned=False)


def _ormqr(vectors: Any, factors: Any, to: Any, left: bool = True, transpose: bool = False) -> Pair:
    if left:
        return _multiply_reflections(vectors, factors, pair(to), transpose)
    return adjoint(_multiply_reflections(vectors, factors, adjoint(pair(to)), not transpose))


# ----------------------------------------------------------------------------------------------------------
# Eigenvalues and singular values
# ----------------------------------------------------------------------------------------------------------

def _read(a: Pair, side: str) -> Pair:
    return a if side.upper() == "L" else adjoint(a)


def _eigenvectors(a: Pair, UPLO: str = "L", compute_v: bool = True) -> list:
    a = _read(a, UPLO)
    if compute_v:
        return list(matrices.eigenvectors(a))
    nothing = a.re.new_empty([0])
    return [matrices.eigenvalues(a), Pair(nothing, nothing)]


def _singular_vectors(a: Pair, full_matrices: bool = True, compute_uv: bool = True, **_: Any) -> list:
    if not compute_uv:
        nothing = a.re.new_empty([0])
        return [Pair(nothing, nothing), matrices.singular_values(a), Pair(nothing, nothing)]
    if full_matrices and a.re.shape[-2] != a.re.shape[-1]:
        raise Refused("singular vectors of no singular value are not supported, as they are arbitrary; give it full_matrices=False")
    return list(matrices.singular_vectors(a))


def _older_singular_vectors(a: Pair, some: bool = True, compute_uv: bool = True) -> list:
    u, s, vh = _singular_vectors(a, not some, compute_uv)
    return [u, s, adjoint(vh) if compute_uv else vh]


def _matrix_norm(a: Pair, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, dtype: Any = None) -> torch.Tensor:
    first, second = (place % a.re.dim() for place in dim)
    if ord == "fro":
        found = torch.linalg.vector_norm(absolute(a), 2, [first, second])
    elif ord in ("nuc", 2, -2):
        values = matrices.singular_values(_of_parts(lambda part: part.movedim((first, second), (-2, -1)), a))
        found = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    else:
        along, other = (first, second) if abs(ord) == 1 else (second, first)
        sums = absolute(a).sum(along, True)
        found = (sums.amax(other, True) if ord > 0 else sums.amin(other, True)).squeeze((first, second))
    if keepdim:
        for place in sorted((first, second)):
            found = found.unsqueeze(place)
    return found if dtype is None else found.to(dtype)


def _norm(a: Pair, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> torch.Tensor:
    dims = dim if isinstance(dim, (list, tuple)) or dim is None else [dim]
    if ord is not None and (len(dims) if dims is not None else a.re.dim()) == 2:
        return _matrix_norm(a, ord, dims or (-2, -1), keepdim, dtype)
    return torch.linalg.vector_norm(absolute(a), 2 if ord is None else ord, dims, keepdim, dtype=dtype)


def _condition(a: Pair, p: Any = None) -> torch.Tensor:
    if p in (None, 2, -2):
        values = matrices.singular_values(a)
        return values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    return _matrix_norm(a, p) * _matrix_norm(matrices.invert(a), p)


#: By the real matrix of twice as many rows, of the same operator.
EMBEDDED = {"linalg_pinv", "pinverse", "linalg_matrix_exp", "matrix_exp", "linalg_matrix_rank"}


def read_hermitian(a: Pair, *rest: Any, **keywords: Any) -> Pair:
    """What such an operator reads: of a Hermitian matrix its lower triangle."""
    if not keywords.get("hermitian", any(value is True for value in rest)):
        return a
    below = _of_parts(lambda part: part.tril(-1), a)
    real = a.re.diagonal(dim1=-2, dim2=-1).diag_embed()
    return Pair(below.re + below.re.mT + real, below.im - below.im.mT)


ALGEBRA = {
    **dict.fromkeys(("cholesky", "linalg_cholesky"), _cholesky), "linalg_cholesky_ex": lambda a, **rest: [_cholesky(a, **rest), _info(a)],
    "cholesky_solve": _cholesky_solve, "linalg_solve_triangular": _solve_triangular, "triangular_solve": _triangular_solve,
    "cholesky_inverse": lambda low, upper=False: _cholesky_solve(matrices.identity(low), low, upper),
    **dict.fromkeys(("linalg_inv", "inverse"), matrices.invert), "linalg_inv_ex": lambda a, **_: [matrices.invert(a), _info(a)],
    "linalg_solve": _solve, "linalg_solve_ex": lambda a, b, **rest: [_solve(a, b, **rest), _info(pair(a))],
    "_linalg_solve_ex": _solve_with_factors, **dict.fromkeys(("linalg_det", "det"), matrices.determinant),
    "_linalg_det": lambda a: [matrices.determinant(a), *_factor_packed(a)], "logdet": _log_determinant,
    **dict.fromkeys(("linalg_slogdet", "slogdet"), lambda a: list(matrices.sign_and_logarithm(a))),
    "_linalg_slogdet": lambda a: [*matrices.sign_and_logarithm(a), *_factor_packed(a)],
    "linalg_lu": _factor, "linalg_lu_factor": _factor_packed, "lu_unpack": _unpack, "linalg_lu_solve": _solve_by_factors,
    **dict.fromkeys(("linalg_lu_factor_ex", "_lu_with_info"), lambda a, *rest, **named: [*_factor_packed(a, *rest, **named), _info(a)]),
    "lu_solve": lambda b, both, pivots: _solve_by_factors(both, pivots, b),
    "linalg_tensorinv": _tensor_inverse, "linalg_tensorsolve": _tensor_solve,
    **dict.fromkeys(("linalg_matrix_power", "matrix_power"), _power), "linalg_qr": _qr,
    "qr": lambda a, some=True: _qr(a, "reduced" if some else "complete"), "geqrf": matrices.pack_reflections,
    **dict.fromkeys(("linalg_householder_product", "orgqr"), _householder_product), "ormqr": _ormqr,
    **dict.fromkeys(("linalg_eigh", "_linalg_eigh"), _eigenvectors),
    "linalg_eigvalsh": lambda a, UPLO="L": matrices.eigenvalues(_read(a, UPLO)),
    **dict.fromkeys(("linalg_svd", "_linalg_svd"), _singular_vectors), "svd": _older_singular_vectors,
    "linalg_svdvals": lambda a, **_: matrices.singular_values(a),
    "linalg_matrix_norm": _matrix_norm, "linalg_norm": _norm,
    "nuclear_norm": lambda a, keepdim=False: _matrix_norm(a, "nuc", keepdim=keepdim),
    "linalg_cond": _condition,
}
