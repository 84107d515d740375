# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of complex matrices: a library's call on pairs, and a formula beside it (formulas.py).

Gradients are PyTorch's: slopes of a real loss by both parts, as one complex matrix. A^H is A transposed and conjugated. What the vectors
of eigenvalues and singular values are turned by, a factor of absolute value 1, is arbitrary, and no loss may depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..formulas import with_formula
from .arithmetic import add, bilinear, mul
from .pairs import Pair, as_pair, as_real, is_complex

__all__ = ["adjoint", "cholesky", "determinant", "eigenvalues", "eigenvectors", "embed", "factor", "identity", "invert", "multiply",
           "pack_reflections", "reflect", "sign_and_logarithm", "singular_values", "singular_vectors", "solve", "solve_triangle", "unembed"]

_library = torch.library.Library("memopt", "FRAGMENT")
_library.define("linear_algebra(Tensor[] inputs, str kind, bool upper=False, bool unit=False, bool transposed=False) -> Tensor[]")


# ----------------------------------------------------------------------------------------------------------
# The call
# ----------------------------------------------------------------------------------------------------------

def _shape(inputs: Sequence[torch.Tensor], kind: str, *_: Any) -> list[torch.Tensor]:
    a = inputs[0]
    *batch, m, n, _ = a.shape
    k = min(m, n)
    numbers = lambda count: a.new_empty([*batch, count], dtype=torch.int64)
    if kind == "eigenvectors":
        return [a.new_empty([*batch, n]), a.new_empty(a.shape)]
    if kind == "singular_vectors":
        return [a.new_empty([*batch, m, k, 2]), a.new_empty([*batch, k]), a.new_empty([*batch, k, n, 2])]
    if kind == "reflections":
        return [a.new_empty(a.shape), a.new_empty([*batch, k, 2])]
    if kind == "lu":
        return [a.new_empty(a.shape), numbers(k), numbers(m)]
    return [a.new_empty((a if kind in ("cholesky", "reflection_product") else inputs[-1]).shape)]


def _run(inputs: Sequence[torch.Tensor], kind: str, upper: bool = False, unit: bool = False,
         transposed: bool = False) -> list[torch.Tensor]:
    """What the call gives, by PyTorch: for programs that run there."""
    a, *rest = [torch.view_as_complex(value.contiguous()) if value.is_floating_point() else value for value in inputs]
    solve = lambda matrix, right, upper, unit: torch.linalg.solve_triangular(matrix, right, upper=upper, unitriangular=unit)
    if kind == "cholesky":
        found = [torch.linalg.cholesky(a)]
    elif kind == "eigenvectors":
        found = list(torch.linalg.eigh(a))
    elif kind == "singular_vectors":
        found = list(torch.linalg.svd(a, full_matrices=False))
    elif kind == "reflections":
        found = list(torch.geqrf(a))
    elif kind == "reflection_product":
        found = [torch.linalg.householder_product(a, *rest)]
    elif kind == "lu":
        both, pivots = torch.linalg.lu_factor(a)
        permutation = torch.lu_unpack(both, pivots, unpack_data=False)[0]
        found = [both, pivots.to(torch.int64) - 1, permutation.real.argmax(-2)]
    elif kind == "lu_solve":
        found = [torch.linalg.lu_solve(a, (rest[0] + 1).to(torch.int32), rest[1], adjoint=transposed)]
    else:
        found = [solve(a.mH if transposed else a, rest[0], upper != transposed, unit)]
    return [torch.view_as_real(value.resolve_conj().contiguous()) if value.is_complex() else value.contiguous() for value in found]


_library.impl("linear_algebra", _run, "CompositeExplicitAutograd")
torch.library.register_fake("memopt::linear_algebra", _shape, lib=_library)


def _call(kind: str, *inputs: Any, **flags: bool) -> list[torch.Tensor]:
    """Complex results with a last dimension of two, as complex inputs may be, too."""
    return torch.ops.memopt.linear_algebra([as_real(value) if is_complex(value) else value for value in inputs], kind, **flags)


def _differentiable(name: str, args: Sequence[Pair], run: Callable, formula: Callable) -> list:
    """What `run` gives of tensors with a last dimension of two; `formula(args, results, gradients)` is one gradient for each of `args`.
    A result of a real type and of no more dimensions than eigenvalues is real."""
    real_rank = args[0].re.dim() - 1

    def unpack(values: Sequence[torch.Tensor]) -> list:
        return [as_pair(value) if value.is_floating_point() and value.dim() > real_rank else value for value in values]

    def keep(context: Any, values: tuple, outputs: tuple) -> None:
        context.save_for_backward(*values, *outputs)

    def backward(context: Any, *gradients: torch.Tensor) -> tuple:
        saved = context.saved_tensors
        given = formula([as_pair(value) for value in saved[:len(args)]], unpack(saved[len(args):]), unpack(gradients))
        return tuple(as_real(value) for value in given)

    return unpack(with_formula(f"linalg.{name}", [as_real(value) for value in args], lambda *values: tuple(run(*values)), keep, backward))


# ----------------------------------------------------------------------------------------------------------
# Words
# ----------------------------------------------------------------------------------------------------------

def adjoint(z: Pair) -> Pair:
    return Pair(z.re.mT, -z.im.mT)


def multiply(a: Any, b: Any) -> Pair:
    return bilinear(torch.matmul, a, b)


def _of_parts(function: Callable, z: Pair) -> Pair:
    return Pair(function(z.re), function(z.im))


def _lower(z: Pair, diagonal: int = 0) -> Pair:
    return _of_parts(lambda part: part.tril(diagonal), z)


def _upper(z: Pair, diagonal: int = 0) -> Pair:
    return _of_parts(lambda part: part.triu(diagonal), z)


def _negative(z: Pair) -> Pair:
    return Pair(-z.re, -z.im)


def _subtract(a: Any, b: Any) -> Pair:
    return add(a, b, 1, -1)


def _diagonal(z: Pair) -> Pair:
    return _of_parts(lambda part: part.diagonal(dim1=-2, dim2=-1), z)


def _ones(like: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.eye(rows, dtype=like.dtype)


def identity(like: Pair) -> Pair:
    """Of the same rows, for each matrix."""
    one = _ones(like.re, like.re.shape[-2]).expand_as(like.re)
    return Pair(one, torch.zeros_like(one))


def _broadcast(a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """With the same batch dimensions."""
    batch = torch.broadcast_shapes(a.re.shape[:-2], b.re.shape[:-2])
    return tuple(_of_parts(lambda part: part.expand([*batch, *part.shape[-2:]]), value) for value in (a, b))


def embed(z: Pair) -> torch.Tensor:
    """The real matrix [[A, -B], [B, A]] of A + i B. Sums, products, inverses and series of it are those of z."""
    return torch.cat([torch.cat([z.re, -z.im], -1), torch.cat([z.im, z.re], -1)], -2)


def unembed(whole: torch.Tensor) -> Pair:
    rows, columns = whole.shape[-2] // 2, whole.shape[-1] // 2
    return Pair(whole[..., :rows, :columns], whole[..., rows:, :columns])


# ----------------------------------------------------------------------------------------------------------
# Triangles
# ----------------------------------------------------------------------------------------------------------

def solve_triangle(a: Pair, b: Pair, upper: bool, unit: bool = False) -> Pair:
    def formula(args: list, results: list, gradients: list) -> tuple:
        (a, _), (x,) = args, results
        to_b = as_pair(_call("triangular_solve", a, gradients[0], upper=upper, unit=unit, transposed=True)[0])
        to_a = _negative(multiply(to_b, adjoint(x)))
        return (_upper(to_a, int(unit)) if upper else _lower(to_a, -int(unit))), to_b
    run = lambda a, b: _call("triangular_solve", a, b, upper=upper, unit=unit)
    return _differentiable("solve_triangular", _broadcast(a, b), run, formula)[0]


def cholesky(a: Pair) -> Pair:
    """The lower factor, of the lower triangle."""
    def formula(args: list, results: list, gradients: list) -> tuple:
        (low,) = results
        inner = _lower(multiply(adjoint(low), _lower(gradients[0])))
        inner = _of_parts(lambda part: part - 0.5 * part * _ones(part, part.shape[-1]), inner)
        for _ in range(2):
            inner = adjoint(as_pair(_call("triangular_solve", low, inner, transposed=True)[0]))
        return (mul(add(inner, adjoint(inner)), 0.5),)
    return _differentiable("cholesky", [a], lambda a: _call("cholesky", a), formula)[0]


# ----------------------------------------------------------------------------------------------------------
# Elimination
# ----------------------------------------------------------------------------------------------------------

def _eliminate(a: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The factors, NaN where the matrix is singular, and the exchanges of rows."""
    both, exchanges, _ = _call("lu", a)
    pivots = both.diagonal(dim1=-3, dim2=-2)
    is_singular = (pivots == 0).all(-2).any(-1)[..., None, None, None]
    return torch.where(is_singular, torch.full((), torch.nan, dtype=both.dtype), both), exchanges


def solve(a: Pair, b: Pair) -> Pair:
    def run(a: torch.Tensor, b: torch.Tensor) -> list:
        both, exchanges = _eliminate(a)
        return [*_call("lu_solve", both, exchanges, b), both, exchanges]

    def formula(args: list, results: list, gradients: list) -> tuple:
        x, both, exchanges = results
        to_b = as_pair(_call("lu_solve", both, exchanges, gradients[0], transposed=True)[0])
        return _negative(multiply(to_b, adjoint(x))), to_b
    return _differentiable("solve", _broadcast(a, b), run, formula)[0]


def invert(a: Pair) -> Pair:
    def formula(args: list, results: list, gradients: list) -> tuple:
        inverse = adjoint(results[0])
        return (_negative(multiply(inverse, multiply(gradients[0], inverse))),)
    return _differentiable("inv", [a], lambda a: _call("lu_solve", *_eliminate(a), as_real(identity(as_pair(a)))), formula)[0]


def _find_pivots(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., n, 2], and the sign of the exchanges [...]."""
    both, exchanges, _ = _call("lu", a)
    places = torch.arange(exchanges.shape[-1])
    return both.diagonal(dim1=-3, dim2=-2).mT, torch.where(exchanges == places, 1.0, -1.0).to(both.dtype).prod(-1)


def _multiply_all(z: Pair) -> Pair:
    """Along the last dimension, by halves."""
    while z.re.shape[-1] > 1:
        half = z.re.shape[-1] // 2
        first, second, rest = (_of_parts(lambda part: part[..., begin:end], z)
                               for begin, end in ((0, half), (half, 2 * half), (2 * half, None)))
        found = mul(first, second)
        z = Pair(torch.cat([found.re, rest.re], -1), torch.cat([found.im, rest.im], -1))
    return _of_parts(lambda part: part[..., 0], z)


def _inverse_of_adjoint(a: Pair) -> Pair:
    return as_pair(_call("lu_solve", *_eliminate(a), identity(a), transposed=True)[0])


def _scale(z: Pair, factor: Any) -> Pair:
    """Each matrix by a number."""
    spread = lambda part: part[..., None, None]
    return mul(z, _of_parts(spread, factor) if is_complex(factor) else spread(factor))


def determinant(a: Pair) -> Pair:
    def run(a: torch.Tensor) -> list:
        pivots, sign = _find_pivots(a)
        found = _multiply_all(as_pair(pivots))
        return [as_real(mul(found, sign))[..., None, None, :]]

    def formula(args: list, results: list, gradients: list) -> tuple:
        value, gradient = (_of_parts(lambda part: part[..., 0, 0], each[0]) for each in (results, gradients))
        return (_scale(_inverse_of_adjoint(args[0]), mul(Pair(value.re, -value.im), gradient)),)
    found = _differentiable("det", [a], run, formula)[0]
    return _of_parts(lambda part: part[..., 0, 0], found)


def sign_and_logarithm(a: Pair) -> tuple[Pair, torch.Tensor]:
    """A determinant's factor of absolute value 1, and the logarithm of its absolute value."""
    def run(a: torch.Tensor) -> list:
        pivots, sign = _find_pivots(a)
        sizes = torch.linalg.vector_norm(pivots, dim=-1)
        turned = _multiply_all(as_pair(pivots / torch.where(sizes == 0, 1.0, sizes)[..., None]))
        sign = torch.where((sizes == 0).any(-1), 0.0, sign)
        return [as_real(mul(turned, sign))[..., None, None, :], sizes.log().sum(-1)]

    def formula(args: list, results: list, gradients: list) -> tuple:
        sign, gradient = (_of_parts(lambda part: part[..., 0, 0], each[0]) for each in (results, gradients))
        turns = sign.im * gradient.re - sign.re * gradient.im
        return (_scale(_inverse_of_adjoint(args[0]), Pair(gradients[1], -turns)),)
    sign, logarithm = _differentiable("slogdet", [a], run, formula)
    return _of_parts(lambda part: part[..., 0, 0], sign), logarithm


def factor(a: Pair) -> tuple[torch.Tensor, Pair, Pair, torch.Tensor]:
    """The row that each row was, L, U, and the exchanges of rows from 0."""
    m, n = a.re.shape[-2:]
    k = min(m, n)
    both, exchanges, order = _call("lu", _of_parts(torch.Tensor.detach, a))
    exchanged = _of_parts(lambda part: part.gather(-2, order[..., None].expand_as(part)), a)
    square = _of_parts(lambda part: part[..., :k, :k], exchanged)
    known = _of_parts(lambda part: part[..., :k, :k], as_pair(both))

    def run(_: torch.Tensor) -> list:
        below, above = _lower(known, -1), _upper(known)
        return [as_real(Pair(below.re + _ones(below.re, k), below.im)), as_real(above)]

    def formula(args: list, results: list, gradients: list) -> tuple:
        low, up = results
        inner = add(_lower(multiply(adjoint(low), gradients[0]), -1), _upper(multiply(gradients[1], adjoint(up))))
        inner = as_pair(_call("triangular_solve", low, inner, unit=True, transposed=True)[0])
        return (adjoint(as_pair(_call("triangular_solve", up, adjoint(inner), upper=True)[0])),)
    low, up = _differentiable("lu", [square], run, formula)
    if m > k:  # what is below is that by U
        below = adjoint(solve_triangle(adjoint(up), adjoint(_of_parts(lambda part: part[..., k:, :], exchanged)), upper=False))
        low = Pair(torch.cat([low.re, below.re], -2), torch.cat([low.im, below.im], -2))
    if n > k:
        beside = solve_triangle(low, _of_parts(lambda part: part[..., k:], exchanged), upper=False, unit=True)
        up = Pair(torch.cat([up.re, beside.re], -1), torch.cat([up.im, beside.im], -1))
    return order, low, up, exchanges


# ----------------------------------------------------------------------------------------------------------
# Reflections
# ----------------------------------------------------------------------------------------------------------

def reflect(a: Pair) -> tuple[Pair, Pair]:
    """Q and R, of any matrix."""
    m, n = a.re.shape[-2:]
    if m < n:
        q, r = reflect(_of_parts(lambda part: part[..., :m], a))
        beside = multiply(adjoint(q), _of_parts(lambda part: part[..., m:], a))
        return q, Pair(torch.cat([r.re, beside.re], -1), torch.cat([r.im, beside.im], -1))

    def run(a: torch.Tensor) -> list:
        both, factors = _call("reflections", a)
        return [*_call("reflection_product", both, factors), as_real(_upper(as_pair(both[..., :n, :, :])))]

    def formula(args: list, results: list, gradients: list) -> tuple:
        q, r = results
        inner = _subtract(multiply(r, adjoint(gradients[1])), multiply(adjoint(gradients[0]), q))
        # The Hermitian matrix with this lower triangle.
        inner = add(_lower(inner), adjoint(_lower(inner, -1)))
        inner = Pair(inner.re, inner.im - inner.im * _ones(inner.im, n))
        right = adjoint(add(gradients[0], multiply(q, inner)))
        return (adjoint(as_pair(_call("triangular_solve", r, right, upper=True)[0])),)
    return tuple(_differentiable("qr", [a], run, formula))


def pack_reflections(a: Pair) -> list[Pair]:
    """LAPACK's form, which has no gradient."""
    return [as_pair(value) for value in _call("reflections", _of_parts(torch.Tensor.detach, a))]


# ----------------------------------------------------------------------------------------------------------
# Eigenvalues and singular values
# ----------------------------------------------------------------------------------------------------------

def _divide_by_gaps(inner: Pair, values: torch.Tensor) -> Pair:
    """Off the diagonal by value j less value i; on it nothing."""
    gaps = values[..., None, :] - values[..., :, None]
    ones = _ones(values, values.shape[-1])
    return _of_parts(lambda part: part * (1 - ones) / (gaps + ones), inner)


def _plus_diagonal(inner: Pair, re: torch.Tensor, im: torch.Tensor | None = None) -> Pair:
    return Pair(inner.re + re.diag_embed(), inner.im if im is None else inner.im + im.diag_embed())


def eigenvectors(a: Pair) -> tuple[torch.Tensor, Pair]:
    """Of the Hermitian matrix with this lower triangle."""
    def formula(args: list, results: list, gradients: list) -> tuple:
        values, vectors = results
        inner = _plus_diagonal(_divide_by_gaps(multiply(adjoint(vectors), gradients[1]), values), gradients[0])
        return (multiply(multiply(vectors, inner), adjoint(vectors)),)
    return tuple(_differentiable("eigh", [a], lambda a: _call("eigenvectors", a), formula))


def eigenvalues(a: Pair) -> torch.Tensor:
    """Equal ones have gradients here."""
    def formula(args: list, results: list, gradients: list) -> tuple:
        vectors = results[1]
        return (multiply(mul(vectors, gradients[0][..., None, :]), adjoint(vectors)),)
    return _differentiable("eigvalsh", [a], lambda a: _call("eigenvectors", a), formula)[0]


def singular_vectors(a: Pair) -> tuple[Pair, torch.Tensor, Pair]:
    """U, S and V^H."""
    if a.re.shape[-2] < a.re.shape[-1]:
        u, s, vh = singular_vectors(adjoint(a))
        return adjoint(vh), s, adjoint(u)

    def formula(args: list, results: list, gradients: list) -> tuple:
        u, s, vh = results
        skew = lambda x: _subtract(x, adjoint(x))
        of_u = skew(multiply(adjoint(u), gradients[0]))
        of_v = skew(multiply(vh, adjoint(gradients[2])))
        inner = add(mul(_divide_by_gaps(of_u, s * s), s[..., None, :]), mul(_divide_by_gaps(of_v, s * s), s[..., :, None]))
        inner = _plus_diagonal(inner, gradients[1], _diagonal(of_u).im / (2 * s))
        left = multiply(u, inner)
        if u.re.shape[-2] > u.re.shape[-1]:
            outside = _subtract(gradients[0], multiply(u, multiply(adjoint(u), gradients[0])))
            left = add(left, _of_parts(lambda part: part / s[..., None, :], outside))
        return (multiply(left, vh),)
    return tuple(_differentiable("svd", [a], lambda a: _call("singular_vectors", a), formula))


def singular_values(a: Pair) -> torch.Tensor:
    """Equal ones have gradients here."""
    def formula(args: list, results: list, gradients: list) -> tuple:
        u, _, vh = results
        return (multiply(mul(u, gradients[1][..., None, :]), vh),)
    return _differentiable("svdvals", [a], lambda a: _call("singular_vectors", a), formula)[1]
