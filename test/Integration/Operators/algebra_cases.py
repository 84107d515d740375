# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of import_numbers.py for linear algebra and transforms. Gradients are central differences of the definitions in
float64; of decompositions that read one triangle they are those of the symmetric matrix."""

import numpy as np

from import_cases import uniform
from spelling_cases import floats, row

TOLERANCE = 2e-5


def slopes_of(function, *arrays, step=1e-5):
    """Of the sum of what the function gives, by each of the arrays."""
    arrays = [np.array(x, "f8") for x in arrays]
    found = []
    for x in arrays:
        slopes = np.zeros_like(x)
        for place in np.ndindex(*x.shape):
            kept = x[place]
            ends = []
            for sign in (1, -1):
                x[place] = kept + sign * step
                ends.append(np.sum(function(*arrays)))
            x[place] = kept
            slopes[place] = (ends[0] - ends[1]) / (2 * step)
        found.append(slopes)
    return found


def smooth(target, function, tolerance=TOLERANCE, /, more=(), keywords=None, **operands):
    """A case of a function of all operands, with their gradients; `more` are further results."""
    names, arrays = list(operands), list(operands.values())
    slopes = dict(zip(names, slopes_of(function, *arrays)))
    results = [function(*(x.astype("f8") for x in arrays)), *more]
    return row(target, results if more else results[0], slopes, tolerance, **operands, **(keywords or {}))


def t(x):
    return np.swapaxes(x, -1, -2)


def definite(random, *shape):
    x = uniform(random, *shape)
    return (x @ t(x) + 0.5 * np.eye(shape[-1])).astype("f4")


def regular(random, *shape):
    """Far from singular, with pivots that are not on the diagonal."""
    return (uniform(random, *shape) + 2 * np.eye(shape[-1])[::-1]).astype("f4")


def spread(random, m, n):
    """A matrix with singular values 1, 2, ..."""
    u, v = (np.linalg.qr(uniform(random, size, size).astype("f8"))[0] for size in (m, n))
    size = min(m, n)
    return (u[:, :size] * np.arange(1, size + 1) @ v[:size]).astype("f4")


INFO = np.zeros([], "i4")


# ----------------------------------------------------------------------------------------------------
# Triangles
# ----------------------------------------------------------------------------------------------------

def triangles(random):
    a, b = definite(random, 2, 5, 5), uniform(random, 2, 5, 3)
    symmetric = lambda a: (a + t(a)) / 2
    lower = lambda a: np.linalg.cholesky(symmetric(a))
    yield smooth("cholesky", lower, self_=a)
    yield smooth("linalg_cholesky", lambda a: t(lower(a)), keywords={"upper": True}, self_=a)
    yield smooth("linalg_cholesky_ex", lower, more=[np.zeros(2, "i4")], self_=a)
    yield row("linalg_cholesky", lower(np.tril(a[0]) + np.tril(a[0], -1).T), None, TOLERANCE, self_=np.tril(a[0]))
    low = np.linalg.cholesky(a.astype("f8")).astype("f4")
    yield smooth("cholesky_solve", lambda b, low: np.linalg.solve(low @ t(low), b), 1e-4, self_=b, input2=low)
    yield row("cholesky_solve", np.linalg.solve(a.astype("f8"), b), None, 1e-4, self_=b, input2=t(low).copy(), upper=True)
    yield smooth("cholesky_inverse", lambda low: np.linalg.inv(low @ t(low)), 1e-4, self_=low)
    full = (uniform(random, 4, 4) + 3 * np.eye(4)).astype("f4")
    right = uniform(random, 4, 2)
    for upper, part in ((False, np.tril), (True, np.triu)):
        for unit in (False, True):
            ones = lambda a: part(a, 1 if upper else -1) + np.eye(4) if unit else part(a)
            how = {"upper": upper, "unitriangular": unit}
            yield smooth("linalg_solve_triangular", lambda a, b: np.linalg.solve(ones(a), b), keywords=how, self_=full, B=right)
            yield smooth("linalg_solve_triangular", lambda a, b: t(np.linalg.solve(t(ones(a)), t(b))), keywords={**how, "left": False},
                         self_=full, B=t(right).copy())
            yield smooth("triangular_solve", lambda b, a: np.linalg.solve(t(ones(a)), b), more=[None],
                         keywords={**how, "transpose": True}, self_=right, A=full)
    wide = np.stack([full, full + np.float32(0.25) * np.eye(4, dtype="f4")])  # the right side is the same for each
    yield row("linalg_solve_triangular", np.linalg.solve(np.tril(wide.astype("f8")), right), None, TOLERANCE, self_=wide, B=right, upper=False)


# ----------------------------------------------------------------------------------------------------
# Elimination
# ----------------------------------------------------------------------------------------------------

def solves(random):
    a, b = regular(random, 2, 4, 4), uniform(random, 2, 4, 3)
    inverse, solve = np.linalg.inv, np.linalg.solve
    for target, name, more in (("linalg_inv", "A", []), ("inverse", "self_", []), ("linalg_inv_ex", "A", [np.zeros(2, "i4")])):
        yield smooth(target, inverse, more=more, **{name: a})
    yield smooth("linalg_solve", solve, A=a, B=b)
    yield smooth("linalg_solve", lambda a, b: t(solve(t(a), t(b))), keywords={"left": False}, A=a, B=t(b).copy())
    yield smooth("linalg_solve_ex", lambda a, b: solve(a, b), more=[INFO], A=a[0], B=b[0])
    yield smooth("linalg_solve", lambda a, b: solve(a, b[..., None])[..., 0], A=a, B=uniform(random, 2, 4))
    square = regular(random, 6, 6)
    yield smooth("linalg_tensorinv", lambda a: np.linalg.tensorinv(a, 1), keywords={"ind": 1}, self_=square.reshape(6, 2, 3))
    yield smooth("linalg_tensorsolve", lambda a, b: np.linalg.tensorsolve(a, b), self_=square.reshape(2, 3, 6), other=uniform(random, 2, 3))
    yield row("linalg_tensorsolve", np.linalg.tensorsolve(square.reshape(2, 6, 3).astype("f8"), np.ones(6), axes=(0, 2)), None, TOLERANCE,
              self_=square.reshape(2, 6, 3), other=np.ones(6, "f4"), dims=[0, 2])
    for target, name in (("linalg_det", "A"), ("det", "self_")):
        yield smooth(target, np.linalg.det, **{name: a})
    even = np.stack([x if np.linalg.det(x) > 0 else x[[1, 0, 2, 3]] for x in a])
    yield smooth("logdet", lambda a: np.log(np.linalg.det(a)), self_=even)
    yield row("logdet", np.full(2, np.nan), self_=even[:, [1, 0, 2, 3]].copy())
    yield row("linalg_det", floats(0), None, A=floats([[1, 2, 3], [2, 4, 6], [1, 0, 1]]))
    for target, name in (("linalg_slogdet", "A"), ("slogdet", "self_")):
        yield row(target, list(np.linalg.slogdet(a.astype("f8"))), None, TOLERANCE, **{name: a})
    x = uniform(random, 2, 4, 4) * np.array([0.2, 5], "f4")[:, None, None]
    for target in ("linalg_matrix_exp", "matrix_exp"):
        yield smooth(target, exponential, 5e-5, self_=x)


def exponential(a):
    result = power = np.broadcast_to(np.eye(a.shape[-1]), a.shape) / 1.0
    small = a / 64
    for k in range(1, 25):
        power = power @ small / k
        result = result + power
    for _ in range(6):
        result = result @ result
    return result


# ----------------------------------------------------------------------------------------------------
# Factors
# ----------------------------------------------------------------------------------------------------

def factor(a):
    """P, L, U and LAPACK's exchanges, by the definition."""
    u, order, exchanges = a.astype("f8").copy(), np.arange(len(a)), []
    low = np.zeros((len(a), min(a.shape)))
    for k in range(min(a.shape)):
        place = k + np.abs(u[k:, k]).argmax()
        for x in (u, low, order):
            x[[k, place]] = x[[place, k]]
        exchanges.append(place + 1)
        low[k, k] = 1
        low[k + 1:, k] = u[k + 1:, k] / u[k, k]
        u[k + 1:] -= np.outer(low[k + 1:, k], u[k])
    return np.eye(len(a))[order].T, low, np.triu(u[:min(a.shape)]), np.array(exchanges, "i4")


def pack(low, up, shape):
    both = np.zeros(shape)
    both[:, :low.shape[1]] += np.tril(low, -1)
    both[:len(up)] += up
    return both


def factors(random):
    for m, n in ((4, 4), (3, 5), (5, 3)):
        a = uniform(random, m, n)
        p, low, up, exchanges = factor(a)
        both = pack(low, up, a.shape)
        yield row("linalg_lu", [p, low, up], None, TOLERANCE, A=a)
        packed = lambda a: pack(*factor(a)[1:3], a.shape)
        yield smooth("linalg_lu_factor", packed, 1e-4, more=[exchanges], A=a)
        yield smooth("linalg_lu_factor_ex", packed, 1e-4, more=[exchanges, INFO], A=a)
        yield smooth("_lu_with_info", packed, 1e-4, more=[exchanges, INFO], self_=a)
        yield row("lu_unpack", [p, low, up], None, TOLERANCE, LU_data=both.astype("f4"), LU_pivots=exchanges)
    a, b = regular(random, 4, 4), uniform(random, 4, 2)
    _, low, up, exchanges = factor(a)
    both = pack(low, up, a.shape).astype("f4")
    # With what PyTorch's own gradients read.
    yield smooth("_linalg_det", np.linalg.det, 1e-4, more=[both, exchanges], A=a)
    yield row("_linalg_slogdet", [*np.linalg.slogdet(a.astype("f8")), both, exchanges], None, TOLERANCE, A=a)
    yield smooth("_linalg_solve_ex", np.linalg.solve, 1e-4, more=[both, exchanges, INFO], A=a, B=b)
    _, left_low, left_up, left_exchanges = factor(a.T)
    yield row("_linalg_solve_ex", [np.linalg.solve(a.T.astype("f8"), b).T, pack(left_low, left_up, a.shape), left_exchanges, INFO], None, TOLERANCE,
              A=a, B=b.T.copy(), left=False)
    x = np.linalg.solve(a.astype("f8"), b)
    yield row("linalg_lu_solve", x, None, TOLERANCE, LU=both, pivots=exchanges, B=b)
    yield row("linalg_lu_solve", np.linalg.solve(a.T.astype("f8"), b), None, TOLERANCE, LU=both, pivots=exchanges, B=b, adjoint=True)
    yield row("linalg_lu_solve", np.linalg.solve(a.T.astype("f8"), b).T, None, TOLERANCE, LU=both, pivots=exchanges, B=b.T.copy(), left=False)
    yield row("lu_solve", x, None, TOLERANCE, self_=b, LU_data=both, LU_pivots=exchanges)


def reflections(random):
    for m, n in ((4, 4), (5, 3), (3, 5)):
        a = uniform(random, 2, m, n)
        q, r = np.linalg.qr(a.astype("f8"))
        yield smooth("linalg_qr", lambda a: np.linalg.qr(a)[0], 1e-4, more=[r], A=a)
        yield row("qr", [q, r], None, TOLERANCE, self_=a)
    a = uniform(random, 5, 3)
    packed, tau = np.linalg.qr(a.astype("f8"), mode="raw")
    packed, q = packed.T, np.linalg.qr(a.astype("f8"))[0]
    yield row("geqrf", [packed, tau], None, TOLERANCE, self_=a)
    vectors, factors = packed.astype("f4"), tau.astype("f4")
    whole = np.linalg.qr(a.astype("f8"), mode="complete")[0]
    multiply = lambda v, factors: whole_of(v, factors)[:, :3]
    yield smooth("linalg_householder_product", multiply, input=vectors, tau=factors)
    yield row("orgqr", q, None, TOLERANCE, self_=vectors, input2=factors)
    c = uniform(random, 5, 4)
    for transpose in (False, True):
        turned = whole.T if transpose else whole
        yield row("ormqr", turned @ c, None, TOLERANCE, self_=vectors, input2=factors, input3=c, transpose=transpose)
        yield row("ormqr", c.T @ turned, None, TOLERANCE, self_=vectors, input2=factors, input3=c.T.copy(), left=False, transpose=transpose)


def whole_of(vectors, factors):
    result = np.eye(len(vectors))
    for k, factor in enumerate(factors):
        v = np.tril(vectors, -1)[:, k]
        v[k] = 1
        result = result - factor * np.outer(result @ v, v)
    return result


# ----------------------------------------------------------------------------------------------------
# Eigenvalues and singular values
# ----------------------------------------------------------------------------------------------------

def rotations(random):
    a = spread(random, 4, 4) + spread(random, 4, 4).T
    values = lambda a: np.linalg.eigvalsh((a + a.T) / 2)
    both = (a + a.T) / 2
    yield smooth("linalg_eigvalsh", lambda a: values(a) ** 1, 1e-4, self_=both)
    yield row("linalg_eigvalsh", values(both), None, 1e-4, self_=np.triu(both), UPLO="U")
    yield row("linalg_eigh", [values(both), None], None, 1e-4, self_=both)
    yield row("_linalg_eigh", [values(both), None], None, 1e-4, A=both)
    for m, n in ((4, 4), (6, 4), (3, 5)):
        x = spread(random, m, n)
        sizes = lambda x: np.linalg.svd(x, compute_uv=False)
        yield smooth("linalg_svdvals", sizes, 1e-4, A=x)
        yield row("linalg_svd", [None, sizes(x.astype("f8")), None], None, 1e-4, A=x, full_matrices=False)
        yield row("svd", [None, sizes(x.astype("f8")), None], None, 1e-4, self_=x)
        yield row("_linalg_svd", [None, sizes(x.astype("f8")), None], None, 1e-4, A=x)
        for target, how in (("linalg_pinv.atol_rtol_float", {"rtol": 1e-3}), ("linalg_pinv.default", {"rcond": 1e-3}), ("pinverse", {})):
            yield smooth(target, np.linalg.pinv, 1e-4, keywords=how, self_=x)
        yield smooth("linalg_lstsq", lambda a, b: np.linalg.pinv(a) @ b, 2e-4, more=[None, None, None], self_=x, b=uniform(random, m, 2))
        nuclear = lambda x: sizes(x).sum()
        yield smooth("nuclear_norm", nuclear, 1e-4, self_=x)
        yield smooth("nuclear_norm.dim", nuclear, 1e-4, keywords={"dim": [1, 0]}, self_=x)
        for order in (2, -2):
            yield smooth("linalg_matrix_norm", lambda x: np.linalg.norm(x, order), 1e-4, keywords={"ord": order}, self_=x)
        yield smooth("linalg_matrix_norm.str_ord", nuclear, 1e-4, keywords={"ord": "nuc"}, self_=x)
        yield smooth("linalg_cond", lambda x: np.linalg.cond(x, 2), 1e-4, self_=x)
    x = spread(random, 4, 4)
    yield smooth("linalg_cond", lambda x: np.linalg.cond(x, 1), 1e-4, keywords={"p": 1}, self_=x)
    yield smooth("linalg_cond.p_str", lambda x: np.linalg.cond(x, "fro"), 1e-4, keywords={"p": "fro"}, self_=x)
    yield smooth("linalg_norm", lambda x: np.linalg.norm(x, 2), 1e-4, keywords={"ord": 2}, self_=x)
    tolerance = floats([2.5])
    for target in ("linalg_pinv.atol_rtol_tensor", "linalg_matrix_rank.atol_rtol_tensor"):
        cut = np.linalg.pinv(x.astype("f8"), 2.5 / 4) if "pinv" in target else np.array(2)
        yield row(target, cut, None, 1e-4, **{"self_" if "pinv" in target else "input": x, "atol": tolerance.reshape([])})
    yield row("linalg_pinv.rcond_tensor", np.linalg.pinv(x.astype("f8"), 0.6), None, 1e-4, self_=x, rcond=floats(0.6))
    yield row("linalg_matrix_rank", np.array(2), self_=x, tol=2.5)
    yield row("linalg_matrix_rank.tol_tensor", np.array([2, 1]), input=np.stack([x, x]), tol=floats([2.5, 3.5]))
    yield row("linalg_matrix_rank.atol_rtol_float", np.array(1), self_=x, rtol=0.9)
    low = (x[:, :2] @ x[:2]).astype("f4")
    yield row("linalg_matrix_rank.atol_rtol_float", np.array(2), self_=low)
    definite_one = definite(random, 4, 4)

    def root(a):
        w, v = np.linalg.eigh((a + a.T) / 2)
        return v * np.sqrt(w) @ v.T
    yield smooth("linalg_matrix_sqrth", root, 1e-4, self_=definite_one)

    def polar(a):
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return u @ vh
    tall = spread(random, 5, 3)
    u = polar(tall.astype("f8"))
    yield smooth("linalg_polar", polar, 1e-4, more=[u.T @ tall], A=tall)


# ----------------------------------------------------------------------------------------------------
# Transforms
# ----------------------------------------------------------------------------------------------------

def transforms(random):
    x = uniform(random, 3, 4, 5)
    double = x.astype("f8")
    for norm in (None, "ortho", "forward"):
        for n, dim in ((None, -1), (7, 1), (4, 2), (12, 0)):
            how = {"dim": dim, "norm": norm, **({} if n is None else {"n": n})}
            for target, function in (("fft_irfft", np.fft.irfft), ("fft_hfft", np.fft.hfft)):
                yield smooth(target, lambda x: function(x, n, dim, norm), keywords=how, self_=x)
        space = {"norm": norm}
        yield smooth("fft_irfft2", lambda x: np.fft.irfft2(x, norm=norm), keywords=space, self_=x)
        yield smooth("fft_irfftn", lambda x: np.fft.irfftn(x, norm=norm), keywords=space, self_=x)
        yield smooth("fft_irfftn", lambda x: np.fft.irfftn(x, (5, 7), (2, 0), norm=norm), keywords={**space, "s": [5, 7], "dim": [2, 0]}, self_=x)
        last = lambda x, sizes=None, dims=None: np.fft.hfft(np.fft.fftn(x, sizes and sizes[:-1], dims[:-1], norm=norm),
                                                            sizes and sizes[-1], dims[-1], norm=norm)
        yield row("fft_hfft2", last(double, None, (1, 2)), None, TOLERANCE, self_=x, **space)
        yield row("fft_hfftn", last(double, (3, 6), (0, 1)), None, TOLERANCE, self_=x, s=[3, 6], dim=[0, 1], **space)


FAMILIES = {"triangles": triangles, "solves": solves, "factors": factors, "reflections": reflections, "rotations": rotations,
            "transforms": transforms}
