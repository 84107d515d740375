# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Square roots of symmetric matrices and polar decompositions. Their gradients divide by sums of roots, where those of eigenvectors
and singular vectors would divide by differences."""

from __future__ import annotations

import torch

from ..formulas import with_formula
from .matrices import t
from .rotations import eigh, svd

__all__ = ["matrix_sqrth", "polar"]


def _divide(x: torch.Tensor, v: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """The Y with H Y + Y H = X, of H with the eigenvectors v and eigenvalues s."""
    return v @ ((t(v) @ x @ v) / (s.unsqueeze(-1) + s.unsqueeze(-2))) @ t(v)


def matrix_sqrth(a):
    """Of the symmetric matrix whose lower triangle is given; its gradient is symmetric, too."""
    made = []

    def run(a):
        w, v = eigh(a.detach())
        made[:] = v, w.sqrt()
        return (v * made[1].unsqueeze(-2)) @ t(v)

    def backward(context, g):
        return _divide((g + t(g)) / 2, *context.saved_tensors)
    return with_formula("linalg.matrix_sqrth", (a,), run, lambda context, _, output: context.save_for_backward(*made), backward)


def polar(a):
    made = []

    def run(a):
        u, s, vh = svd(a.detach(), full_matrices=False)
        made[:] = t(vh), s
        return u @ vh, (t(vh) * s.unsqueeze(-2)) @ vh

    def backward(context, gu, gh):
        u, h, v, s = context.saved_tensors
        turned = _divide(t(u) @ gu - gh @ h, v, s)
        result = u @ (gh + turned - t(turned))
        if u.shape[-2] > u.shape[-1]:
            result = result + (gu - u @ (t(u) @ gu)) @ (v / s.unsqueeze(-2)) @ t(v)
        return result
    return with_formula("linalg.polar", (a,), run, lambda context, _, outputs: context.save_for_backward(*outputs, *made), backward)
