# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linear algebra of matrices whose sizes are known: written out row by row, with gradients by formula.

Nothing here divides by a difference that the library behind PyTorch would not divide by: solves choose pivots, decompositions turn
by rotations and reflections. The Cholesky decomposition and triangular solves go by blocks, whose rows a loop of the program
factors and inverts: some 30 operators for each 48 rows. Of the others a matrix of n rows takes some 12 n (inverses, solves, LU), 16 n (QR) or, with the
logarithm l to base 2, 16 n (l + 3) operators (eigenvalues, singular values), each of the whole matrix. Tracing them is what takes
time, a few milliseconds each, so there is a limit to n.
"""

from __future__ import annotations

import torch

from .derived import cond, is_by_sizes, matrix_norm, matrix_rank, norm, nuclear_norm, ormqr, pseudo_inverse, tensorinv, tensorsolve
from .elimination import det, inverse, logdet, matrix_exp, slogdet, solve
from .factors import lu, lu_factor, lu_solve, lu_unpack, older_lu, older_lu_solve
from .reflections import householder_product, qr
from .roots import matrix_sqrth, polar
from .rotations import eigh, older_svd, svd, svdvals
from .triangular import cholesky, cholesky_inverse, cholesky_solve, solve_triangular, triangular_solve

__all__ = ["ONLY_IF", "RULES"]


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


def _with_factors(function, has_info=False):
    """What PyTorch's own solvers return besides, for their gradients: the LU factors, and what was said."""
    def call(a, *arguments, **keywords):
        keywords.pop("check_errors", None)
        found = function(a, *arguments, **keywords)
        return (*(found if isinstance(found, tuple) else (found,)), *lu_factor(a), *([torch.zeros((), dtype=torch.int32)] if has_info else []))
    return _rule(call)


def _drop(engine, target, arguments, keywords):
    """PyTorch's look at what a solver says: here a matrix that cannot be solved gives what is no number, and the step refuses that."""


def _drop_effect(engine, target, arguments, keywords):
    """The same where PyTorch keeps its order by a token, as under `torch.vmap`."""
    token, called, *rest = arguments
    if called is torch.ops.aten._linalg_check_errors.default:
        return (token,)
    return target(*arguments, **keywords)


RULES = {f"aten::{name}": rule for name, rule in {
    "linalg_cholesky": _rule(lambda a, upper=False: cholesky(a, upper)), "cholesky": _rule(cholesky),
    "linalg_cholesky_ex": _with_info(lambda a, upper=False: cholesky(a, upper)), "cholesky_solve": _rule(cholesky_solve),
    "cholesky_inverse": _rule(cholesky_inverse),
    "linalg_solve_triangular": _rule(solve_triangular), "triangular_solve": _rule(triangular_solve),
    "linalg_solve": _rule(solve), "linalg_solve_ex": _with_info(solve), "linalg_inv": _rule(inverse), "inverse": _rule(inverse),
    "linalg_inv_ex": _with_info(inverse), "linalg_det": _rule(det), "det": _rule(det), "logdet": _rule(logdet),
    "linalg_slogdet": _rule(slogdet), "slogdet": _rule(slogdet), "linalg_qr": _rule(qr),
    "linalg_householder_product": _rule(householder_product), "orgqr": _rule(householder_product),
    "linalg_eigh": _rule(eigh), "linalg_eigvalsh": _first(eigh, 0), "linalg_svd": _rule(svd), "svd": _rule(older_svd),
    "linalg_svdvals": _rule(svdvals), "linalg_matrix_exp": _rule(matrix_exp), "matrix_exp": _rule(matrix_exp),
    "linalg_pinv": _rule(pseudo_inverse), "pinverse": _rule(lambda a, rcond=1e-15: pseudo_inverse(a, rcond)),
    "linalg_lu": _rule(lu), "linalg_lu_factor": _rule(lu_factor), "linalg_lu_factor_ex": _with_info(lu_factor),
    "linalg_lu_solve": _rule(lu_solve), "lu_solve": _rule(older_lu_solve), "lu_unpack": _rule(lu_unpack), "_lu_with_info": _rule(older_lu),
    "linalg_cond": _rule(cond), "linalg_matrix_rank": _rule(matrix_rank), "linalg_matrix_norm": _rule(matrix_norm),
    "linalg_norm": _rule(norm), "nuclear_norm": _rule(nuclear_norm), "linalg_tensorinv": _rule(tensorinv),
    "linalg_tensorsolve": _rule(tensorsolve), "ormqr": _rule(ormqr), "linalg_matrix_sqrth": _rule(matrix_sqrth), "linalg_polar": _rule(polar),
    "_linalg_check_errors": _drop, "_linalg_solve_ex": _with_factors(solve, has_info=True), "_linalg_det": _with_factors(det),
    "_linalg_slogdet": _with_factors(slogdet), "_linalg_eigh": _rule(lambda a, uplo="L", compute_v=True: eigh(a, uplo)),
    "_linalg_svd": _rule(lambda a, full_matrices=False, compute_uv=True, driver=None: svd(a, full_matrices)),
}.items()} | {"higher_order::with_effects": _drop_effect}
#: Of operators that have rules for some of their arguments alone: whether it is these.
ONLY_IF = {"aten::linalg_norm": is_by_sizes, "aten::linalg_matrix_norm": lambda x, ord="fro", *_, **__: is_by_sizes(x, ord, (-2, -1))}
