# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linear algebra of matrices whose sizes are known: written out row by row, with gradients by formula.

Nothing here divides by a difference that the library behind PyTorch would not divide by: solves choose pivots, decompositions turn
by rotations and reflections. A matrix of n rows takes some n (Cholesky, solves, QR) or some 8 n (eigenvalues, singular values)
small operators, so there is a limit to n.
"""

from __future__ import annotations

import torch

from .elimination import det, inverse, logdet, matrix_exp, slogdet, solve
from .reflections import householder_product, qr
from .rotations import eigh, older_svd, pinv, svd, svdvals
from .triangular import cholesky, cholesky_inverse, cholesky_solve, solve_triangular, triangular_solve

__all__ = ["RULES"]


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
    "linalg_pinv": _rule(pinv), "pinverse": _rule(pinv),
}.items()}
