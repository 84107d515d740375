# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linear algebra of matrices whose sizes are known: written out row by row, with gradients by formula.

Nothing here divides by a difference that the library behind PyTorch would not divide by: solves choose pivots, decompositions turn
by rotations and reflections. A matrix of n rows takes some n (Cholesky, solves, QR) or some 8 n (eigenvalues, singular values)
small operators, so there is a limit to n.
"""

from __future__ import annotations

import math
import torch

from .. import gradients
from ..errors import Refused

__all__ = ["RULES"]

_MOST_ROWS, _MOST_TURNED = 160, 40


def _check_size(x: torch.Tensor, most: int, what: str) -> None:
    if min(x.shape[-2:]) > most:
        raise Refused(f"{what} of a matrix of {min(x.shape[-2:])} rows is written out, and supported up to {most}; compute it outside "
                      "of the step and pass the result as an input or a buffer")


def _eye(x: torch.Tensor, size: int | None = None) -> torch.Tensor:
    return torch.eye(x.shape[-1] if size is None else size, dtype=x.dtype)


def _t(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2)


def _outer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.unsqueeze(-1) * b.unsqueeze(-2)


# ----------------------------------------------------------------------------------------------------------
# Triangular matrices
# ----------------------------------------------------------------------------------------------------------

def _invert_lower(low: torch.Tensor, unit: bool) -> torch.Tensor:
    """By halves: the inverse of [[A, 0], [B, C]] is [[1/A, 0], [-1/C B 1/A, 1/C]]."""
    n = low.shape[-1]
    if n == 1:
        return torch.ones_like(low) if unit else 1 / low
    half = n // 2
    first, second = _invert_lower(low[..., :half, :half], unit), _invert_lower(low[..., half:, half:], unit)
    across = -(second @ low[..., half:, :half] @ first)
    above = torch.nn.functional.pad(first, [0, n - half])
    return torch.cat([above, torch.cat([across, second], -1)], -2)


def _solve_lower(low: torch.Tensor, right: torch.Tensor, unit: bool) -> torch.Tensor:
    """By the inverse, and once more for what that leaves."""
    low = low.tril(-1) + _eye(low) if unit else low.tril()
    inverse = _invert_lower(low, unit)
    found = inverse @ right
    return found + inverse @ (right - low @ found)


def _solve_upper(up: torch.Tensor, right: torch.Tensor, unit: bool) -> torch.Tensor:
    return _solve_lower(up.flip([-2, -1]), right.flip(-2), unit).flip(-2)


def solve_triangular(a, b, *, upper, left=True, unitriangular=False):
    if not left:
        return _t(solve_triangular(_t(a), _t(b), upper=not upper, unitriangular=unitriangular))
    _check_size(a, _MOST_ROWS, "a triangular solve")

    def run(a, b):
        return (_solve_upper if upper else _solve_lower)(a, b, unitriangular)

    def keep(context, inputs, output):
        context.save_for_backward(inputs[0], output)

    def backward(context, g):
        a, x = context.saved_tensors
        to_b = (_solve_lower if upper else _solve_upper)(_t(a), g, unitriangular)
        to_a = -(to_b @ _t(x))
        away = int(unitriangular)
        return (to_a.triu(away) if upper else to_a.tril(-away)), to_b
    return gradients.with_formula("linalg.solve_triangular", (a, b), run, keep, backward)


# ----------------------------------------------------------------------------------------------------------
# Cholesky
# ----------------------------------------------------------------------------------------------------------

def _factor(a: torch.Tensor) -> torch.Tensor:
    n = a.shape[-1]
    if n <= 24:
        columns, numbers = [], torch.arange(n)
        for k in range(n):
            column = a[..., k]
            column = torch.where(numbers >= k, column / column[..., k:k + 1].sqrt(), torch.zeros((), dtype=a.dtype))
            columns.append(column)
            a = a - _outer(column, column)
        return torch.stack(columns, -1)
    half = n // 2
    first = _factor(a[..., :half, :half])
    across = _t(_solve_lower(first, _t(a[..., half:, :half]), False))
    second = _factor(a[..., half:, half:] - across @ _t(across))
    above = torch.cat([first, torch.zeros_like(a[..., :half, half:])], -1)
    return torch.cat([above, torch.cat([across, second], -1)], -2)


def cholesky(a, upper=False):
    """A matrix that is not positive definite gives NaN, and so no finite loss."""
    _check_size(a, _MOST_ROWS, "the Cholesky decomposition")

    def backward(context, g):
        (low,) = context.saved_tensors
        inner = (_t(low) @ g).tril()
        inner = inner - 0.5 * torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))
        inverse = _invert_lower(low, False)
        inner = _t(inverse) @ inner @ inverse
        return 0.5 * (inner + _t(inner))
    low = gradients.with_formula("linalg.cholesky", (a,), _factor, lambda context, _, output: context.save_for_backward(output), backward)
    return _t(low) if upper else low


def cholesky_solve(b, low, upper=False):
    low = _t(low) if upper else low
    return solve_triangular(_t(low), solve_triangular(low, b, upper=False), upper=True)


# ----------------------------------------------------------------------------------------------------------
# Solves with pivots
# ----------------------------------------------------------------------------------------------------------

def _eliminate(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse, and the pivots with the signs of the exchanges (Gauss and Jordan)."""
    n = a.shape[-1]
    both = torch.cat([a, _eye(a).expand(a.shape)], -1)
    numbers = torch.arange(n)
    pivots = []
    for k in range(n):
        column = both[..., k]
        candidate = torch.where(numbers >= k, column.abs(), torch.full((), -1.0, dtype=a.dtype))
        best = candidate.argmax(-1, keepdim=True)  # [..., 1]
        chosen = both.gather(-2, best.unsqueeze(-1).expand(*best.shape, 2 * n))  # [..., 1, 2n]
        pivot = chosen[..., k:k + 1]
        own = both[..., k:k + 1, :]
        both = torch.where((numbers == best).unsqueeze(-1), own, both)
        row = chosen / pivot
        is_own = (numbers == k).unsqueeze(-1)
        both = torch.where(is_own, row, both - both[..., k:k + 1] * row)
        pivots.append(torch.where(best == k, pivot[..., 0], -pivot[..., 0]))
    inverse = both[..., n:]
    inverse = inverse + inverse @ (_eye(a) - a @ inverse)
    return inverse, torch.cat(pivots, -1)


def _to_inverse(context, g):
    (inverse,) = context.saved_tensors
    return -(_t(inverse) @ g @ _t(inverse))


def _save_output(context, _, output):
    context.save_for_backward(output)


def inverse(a):
    _check_size(a, _MOST_ROWS, "the inverse")
    return gradients.with_formula("linalg.inv", (a,), lambda a: _eliminate(a)[0], _save_output, _to_inverse)


def solve(a, b, left=True):
    if not left:
        return _t(solve(_t(a), _t(b)))
    _check_size(a, _MOST_ROWS, "a solve")
    is_vector = b.dim() == 1 or b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]
    b = b.unsqueeze(-1) if is_vector else b

    def run(a, b):
        found, _ = _eliminate(a)
        x = found @ b
        return x + found @ (b - a @ x), found

    def keep(context, inputs, outputs):
        context.save_for_backward(*outputs)
        context.mark_non_differentiable(outputs[1])

    def backward(context, g, _):
        x, found = context.saved_tensors
        to_b = _t(found) @ g
        return -(to_b @ _t(x)), to_b
    x, _ = gradients.with_formula("linalg.solve", (a, b), run, keep, backward)
    return x.squeeze(-1) if is_vector else x


def slogdet(a):
    _check_size(a, _MOST_ROWS, "the determinant")

    def run(a):
        found, pivots = _eliminate(a)
        return pivots.sign().prod(-1), pivots.abs().log().sum(-1), found

    def keep(context, _, outputs):
        context.save_for_backward(outputs[2])
        context.mark_non_differentiable(outputs[0], outputs[2])

    def backward(context, _, g, __):
        return g[..., None, None] * _t(context.saved_tensors[0])
    sign, size, _ = gradients.with_formula("linalg.slogdet", (a,), run, keep, backward)
    return sign, size


def logdet(a):
    sign, size = slogdet(a)
    return torch.where(sign < 0, torch.full((), math.nan, dtype=size.dtype), size)


def det(a):
    _check_size(a, _MOST_ROWS, "the determinant")

    def run(a):
        found, pivots = _eliminate(a)
        return pivots.prod(-1), found

    def keep(context, _, outputs):
        context.save_for_backward(*outputs)
        context.mark_non_differentiable(outputs[1])

    def backward(context, g, _):
        value, found = context.saved_tensors
        return (g * value)[..., None, None] * _t(found)
    return gradients.with_formula("linalg.det", (a,), run, keep, backward)[0]


def matrix_exp(a):
    """The series of a scaled matrix, squared again; the scale follows from the norm."""
    norm = a.detach().abs().sum(-1).amax(-1)[..., None, None]
    most = 12
    halvings = torch.where(norm > 0.5, (norm / 0.5).log2().ceil(), torch.zeros_like(norm)).clamp(max=most)
    x = a * torch.exp2(-halvings)
    one = _eye(a)
    square = x @ x
    cube = square @ x
    terms = [one / math.factorial(3 * i) + x / math.factorial(3 * i + 1) + square / math.factorial(3 * i + 2) for i in range(4)]
    result = terms[3] + cube / math.factorial(12)
    for term in reversed(terms[:3]):
        result = term + cube @ result
    for turn in range(most):
        result = torch.where(halvings > turn, result @ result, result)
    return result


# ----------------------------------------------------------------------------------------------------------
# Reflections
# ----------------------------------------------------------------------------------------------------------

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
        rest = rest - factor.unsqueeze(-1) * _outer(v, (v.unsqueeze(-2) @ rest).squeeze(-2))
        vectors.append(v)
        factors.append(factor)
    q = torch.eye(m, n, dtype=a.dtype).expand(a.shape)
    for v, factor in zip(reversed(vectors), reversed(factors)):
        q = q - factor.unsqueeze(-1) * _outer(v, (v.unsqueeze(-2) @ q).squeeze(-2))
    return q, rest[..., :n, :].triu()


def qr(a, mode="reduced"):
    m, n = a.shape[-2:]
    _check_size(a, _MOST_ROWS, "the QR decomposition")
    if m < n or mode == "complete" and m != n or mode == "r":
        raise Refused(f"the QR decomposition of a matrix with {m} rows and {n} columns in mode '{mode}' is not supported; reduced ones "
                      "of at least as many rows as columns are")

    def backward(context, gq, gr):
        q, r = context.saved_tensors
        m = r @ _t(gr) - _t(gq) @ q
        low = m.tril(-1)
        m = low + _t(low) + torch.diag_embed(m.diagonal(dim1=-2, dim2=-1))
        return _t(_solve_upper(r, _t(gq + q @ m), False))
    return gradients.with_formula("linalg.qr", (a,), _reflect, lambda context, _, outputs: context.save_for_backward(*outputs), backward)


def householder_product(a, tau):
    m, n = a.shape[-2:]
    q = torch.eye(m, n, dtype=a.dtype).expand(a.shape)
    rows = torch.arange(m)
    for k in reversed(range(tau.shape[-1])):
        v = torch.where(rows > k, a[..., k], (rows == k).to(a.dtype))
        q = q - tau[..., k:k + 1].unsqueeze(-1) * _outer(v, (v.unsqueeze(-2) @ q).squeeze(-2))
    return q


# ----------------------------------------------------------------------------------------------------------
# Rotations
# ----------------------------------------------------------------------------------------------------------

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
    a = a.tril() + _t(a.tril(-1))
    vectors = _eye(a).expand(a.shape)
    for turn in [_Round(partner, a.dtype) for partner in _list_rounds(n)] * _sweeps(n):
        own = a.diagonal(dim1=-2, dim2=-1)
        cosine, sine = _turn(own, own.index_select(-1, turn.places), (a * turn.pairs).sum(-1), turn.sign)
        a = a * cosine - a.index_select(-1, turn.places) * sine
        a = a * _t(cosine) - a.index_select(-2, turn.places) * _t(sine)
        vectors = vectors * cosine - vectors.index_select(-1, turn.places) * sine
    values, order = a.diagonal(dim1=-2, dim2=-1).sort(-1)
    return values, vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))


def _gap(values: torch.Tensor) -> torch.Tensor:
    """What an entry of row i and column j is divided by: value j less value i, and 1 on the diagonal."""
    return values.unsqueeze(-2) - values.unsqueeze(-1) + _eye(values)


def eigh(a, uplo="L"):
    _check_size(a, _MOST_TURNED, "the eigenvalues")
    a = a if uplo in ("L", "l") else _t(a)

    def backward(context, gv, gw):
        values, vectors = context.saved_tensors
        inner = (_t(vectors) @ gw) / _gap(values)
        inner = inner * (1 - _eye(inner)) + torch.diag_embed(gv)
        return vectors @ inner @ _t(vectors)
    return gradients.with_formula("linalg.eigh", (a,), _rotate_both, lambda context, _, outputs: context.save_for_backward(*outputs),
                                  backward)


def _rotate_columns(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """U, S and V of at least as many rows as columns."""
    n = a.shape[-1]
    vectors = _eye(a).expand(*a.shape[:-2], n, n)
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


def _svd(a):
    """U, S and the transposed V."""
    m, n = a.shape[-2:]
    if m < n:
        u, s, vh = _svd(_t(a))
        return _t(vh), s, _t(u)
    _check_size(a, _MOST_TURNED, "the singular values")

    def backward(context, gu, gs, gv):
        u, s, v = context.saved_tensors
        skew = lambda x: (x - _t(x)) / _gap(s.square())
        inner = skew(_t(u) @ gu) * s.unsqueeze(-2) + s.unsqueeze(-1) * skew(_t(v) @ gv)
        inner = inner * (1 - _eye(inner)) + torch.diag_embed(gs)
        result = u @ inner
        if m > n:
            result = result + (gu - u @ (_t(u) @ gu)) / s.unsqueeze(-2)
        return result @ _t(v)
    u, s, v = gradients.with_formula("linalg.svd", (a,), _rotate_columns,
                                     lambda context, _, outputs: context.save_for_backward(*outputs), backward)
    return u, s, _t(v)


def svd(a, full_matrices=True, compute_uv=True, driver=None):
    if full_matrices and a.shape[-1] != a.shape[-2]:
        raise Refused("singular vectors in full_matrices are not supported, as those of no singular value are arbitrary; give it "
                      "full_matrices=False")
    return _svd(a)


def _older_svd(a, some=True, compute_uv=True):
    u, s, vh = svd(a, not some)
    return u, s, _t(vh)


def pinv(a, *_, **__):
    u, s, vh = _svd(a)
    limit = max(a.shape[-2:]) * torch.finfo(a.dtype).eps * s.amax(-1, keepdim=True)
    inverse = torch.where(s > limit, 1 / torch.where(s > limit, s, torch.ones_like(s)), torch.zeros_like(s))
    return (_t(vh) * inverse.unsqueeze(-2)) @ _t(u)


def _rule(function):
    return lambda engine, target, arguments, keywords: function(*arguments, **keywords)


def _with_info(function):
    def call(*arguments, **keywords):
        keywords.pop("check_errors", None)
        found = function(*arguments, **keywords)
        return (*(found if isinstance(found, tuple) else (found,)), torch.zeros((), dtype=torch.int32))
    return _rule(call)


def _first(function, place):
    return _rule(lambda *arguments, **keywords: function(*arguments, **keywords)[place])


def _triangular(b, a, upper=True, transpose=False, unitriangular=False):
    x = solve_triangular(_t(a) if transpose else a, b, upper=upper != transpose, unitriangular=unitriangular)
    return x, a


RULES = {f"aten::{name}": rule for name, rule in {
    "linalg_cholesky": _rule(lambda a, upper=False: cholesky(a, upper)), "cholesky": _rule(cholesky),
    "linalg_cholesky_ex": _with_info(lambda a, upper=False: cholesky(a, upper)), "cholesky_solve": _rule(cholesky_solve),
    "cholesky_inverse": _rule(lambda low, upper=False: cholesky_solve(_eye(low).expand(low.shape), low, upper)),
    "linalg_solve_triangular": _rule(solve_triangular), "triangular_solve": _rule(_triangular),
    "linalg_solve": _rule(solve), "linalg_solve_ex": _with_info(solve), "linalg_inv": _rule(inverse), "inverse": _rule(inverse),
    "linalg_inv_ex": _with_info(inverse), "linalg_det": _rule(det), "det": _rule(det), "logdet": _rule(logdet),
    "linalg_slogdet": _rule(slogdet), "slogdet": _rule(slogdet), "linalg_qr": _rule(qr),
    "linalg_householder_product": _rule(householder_product), "orgqr": _rule(householder_product),
    "linalg_eigh": _rule(eigh), "linalg_eigvalsh": _first(eigh, 0), "linalg_svd": _rule(svd), "svd": _rule(_older_svd),
    "linalg_svdvals": _first(lambda a, driver=None: _svd(a), 1), "linalg_matrix_exp": _rule(matrix_exp), "matrix_exp": _rule(matrix_exp),
    "linalg_pinv": _rule(pinv), "pinverse": _rule(pinv),
}.items()}
