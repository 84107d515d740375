# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws from gamma and Dirichlet distributions, and so of `torch.distributions.Beta`, Chi2 and StudentT, made of normal and uniform ones.

Marsaglia and Tsang, A simple method for generating gamma variables (2000), takes a draw of the cube of a normal number with a probability
of at least 0.95. A step has no loop that ends by chance, so several are made at once, of which the first that is taken counts.
"""

from __future__ import annotations

import torch

from ..errors import Refused

__all__ = ["RULES"]

#: All of them are refused once in 10 ** 15 draws.
_TRIES = 12


def _draw_gamma(shape: torch.Tensor) -> torch.Tensor:
    if torch.is_grad_enabled() and shape.requires_grad:
        raise Refused("gamma, beta and Dirichlet draws have no gradient by their parameters in a step: use sample() instead of rsample(), or "
                      "a distribution of normal numbers")
    tiny = torch.finfo(shape.dtype).tiny
    d = torch.where(shape < 1, shape + 1, shape) - 1 / 3
    tries = [_TRIES, *shape.shape]
    normal = torch.randn(tries, dtype=shape.dtype)
    uniform = torch.rand(tries, dtype=shape.dtype)
    cube = (1 + normal / (9 * d).sqrt()).pow(3)
    logarithm = cube.clamp(min=tiny).log()
    is_taken = (cube > 0) & (uniform.clamp(min=tiny).log() < 0.5 * normal * normal + d - d * cube + d * logarithm)
    first = is_taken.to(torch.int64).argmax(0, keepdim=True)
    drawn = d * cube.gather(0, first).squeeze(0).clamp(min=tiny)
    smaller = torch.rand(shape.shape, dtype=shape.dtype).clamp(min=tiny).pow(1 / shape)
    return torch.where(shape < 1, drawn * smaller, drawn).clamp(min=tiny)


def _gamma(engine, target, arguments, keywords):
    return _draw_gamma(arguments[0])


def _dirichlet(engine, target, arguments, keywords):
    drawn = _draw_gamma(arguments[0])
    return drawn / drawn.sum(-1, keepdim=True)


RULES = {"aten::_standard_gamma": _gamma, "aten::_sample_dirichlet": _dirichlet}
