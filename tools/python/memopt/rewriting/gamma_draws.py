# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws from gamma and Dirichlet distributions, and so of `torch.distributions.Beta`, Chi2 and StudentT, made of normal and uniform ones,
with their gradients by the parameters; and draws from Poisson distributions.

Marsaglia and Tsang, A simple method for generating gamma variables (2000), takes a draw of the cube of a normal number with a probability
of at least 0.95. A step has no loop that ends by chance, so several are made at once, of which the first that is taken counts. Its
gradient is that of the quantile at which the draw lies (implicit reparametrization), by PyTorch's formulas (`_standard_gamma_grad`).

Poisson draws of small rates are found in a table of their probabilities, those of others by Hormann, The transformed rejection method for
generating Poisson random variables (1993), which takes a draw with a probability of at least 0.7.
"""

from __future__ import annotations

import torch

__all__ = ["RULES", "gamma_slope"]

#: All of them are refused once in 10 ** 15 draws.
_TRIES = 12
_POISSON_TRIES = 30
#: From here on draws are tried; below, more than `_COUNTS` come once in 10 ** 17 draws.
_LARGE_RATE, _COUNTS = 10, 56


def _evaluate(coefficients: list, x: torch.Tensor) -> torch.Tensor:
    value = torch.full_like(x, coefficients[-1]) if isinstance(coefficients[-1], float) else coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def _slope_by_series(shape: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Of small draws, by the Taylor series of the distribution's function."""
    term, denominator = torch.ones_like(x), shape
    first, second = 1 / denominator, 1 / denominator.square()
    for number in range(1, 6):
        term, denominator = term * (-x / number), denominator + 1
        first, second = first + term / denominator, second + term / denominator.square()
    by_shape = (x.log() - shape.digamma()) * first - second
    return -by_shape * x * x.exp()  # over the density, x ** (shape - 1) * exp(-x)


def _slope_near_mean(shape: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    squared = shape.square()
    scale = 1 + 24 * shape * (1 + 12 * shape)
    value = 1440 * squared + 6 * x * (53 - 120 * x) - 65 * x * x / shape + shape * (107 + 3600 * x)
    return scale * value / (1244160 * squared * squared)


def _slope_by_saddle_point(shape: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    scale, ratio = (8 * shape).sqrt(), (x / shape).log()
    root = (x - shape - shape * ratio).clamp(min=torch.finfo(x.dtype).tiny).pow(-1.5)
    term = scale / (shape - x) + torch.where(x < shape, -root, root)
    term = ratio * term - (2 / shape).sqrt() * (shape + x) / (shape - x).square()
    stirling = 1 + 1 / (12 * shape) * (1 + 1 / (24 * shape))
    return -stirling * x * term / scale


#: In the logarithms of draw over shape and of shape: numerators, then denominators.
_BETWEEN = ((0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1.0, 0.32668115, 0.10406089, 0.0014179084),
            (0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623),
            (0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07))


def _slope_between(shape: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A rational approximation."""
    u, v = (x / shape).log(), shape.log()
    by_place = [_evaluate(list(column), u) for column in zip(*_BETWEEN)]
    return (_evaluate(by_place[:4], v) / _evaluate(by_place[4:], v)).exp()


def gamma_slope(shape: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """How a draw grows with its shape, at the same quantile: `torch._standard_gamma_grad`."""
    is_small, is_large = x < 0.8, shape > 8
    is_near = is_large & (0.9 * shape <= x) & (x <= 1.1 * shape)
    # Where a formula is not taken it gets numbers that it is finite for.
    small = _slope_by_series(shape, torch.where(is_small, x, 0.5))
    near = _slope_near_mean(shape, x)
    far = _slope_by_saddle_point(shape, torch.where(is_near | ~is_large, 2 * shape, x))
    between = _slope_between(torch.where(is_large, 1.0, shape), torch.where(is_large, 1.0, x))
    slope = torch.where(is_small, small, torch.where(is_near, near, torch.where(is_large, far, between)))
    return torch.where(slope.isnan(), 0.0, slope)


def _draw_gamma(shape: torch.Tensor) -> torch.Tensor:
    with_gradient = torch.is_grad_enabled() and shape.requires_grad
    given, shape = shape, shape.detach()
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
    drawn = torch.where(shape < 1, drawn * smaller, drawn).clamp(min=tiny)
    if not with_gradient:
        return drawn
    return drawn.detach() + gamma_slope(shape, drawn).detach() * (given - shape)


def _draw_poisson(rate: torch.Tensor) -> torch.Tensor:
    rate = rate.detach()
    tiny = torch.finfo(rate.dtype).tiny
    is_large = rate >= _LARGE_RATE
    # The number of counts that are less probable together than the uniform number is large.
    low = torch.where(is_large, 1.0, rate)
    counts = torch.arange(_COUNTS, dtype=rate.dtype).reshape(-1, *[1] * rate.dim())
    below = (counts * low.clamp(min=tiny).log() - low - (counts + 1).lgamma()).exp().cumsum(0)
    drawn = (torch.rand(rate.shape, dtype=rate.dtype) > below).to(rate.dtype).sum(0)
    high = torch.where(is_large, rate, float(_LARGE_RATE))
    b = 0.931 + 2.53 * high.sqrt()
    a = -0.059 + 0.02483 * b
    u = torch.rand([_POISSON_TRIES, *rate.shape], dtype=rate.dtype) - 0.5
    v = torch.rand([_POISSON_TRIES, *rate.shape], dtype=rate.dtype)
    room = (0.5 - u.abs()).clamp(min=tiny)
    tried = ((2 * a / room + b) * u + high + 0.43).floor()
    is_inside = (room >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    is_outside = (tried < 0) | (room < 0.013) & (v > room)
    ratio = v.clamp(min=tiny).log() + (1.1239 + 1.1328 / (b - 3.4)).log() - (a / room.square() + b).log()
    is_taken = is_inside | ~is_outside & (ratio <= tried.clamp(min=0) * high.log() - high - (tried.clamp(min=0) + 1).lgamma())
    first = is_taken.to(torch.int64).argmax(0, keepdim=True)
    return torch.where(is_large, tried.gather(0, first).squeeze(0), drawn)


def _gamma(engine, target, arguments, keywords):
    return _draw_gamma(arguments[0])


def _dirichlet(engine, target, arguments, keywords):
    drawn = _draw_gamma(arguments[0])
    return drawn / drawn.sum(-1, keepdim=True)


def _poisson(engine, target, arguments, keywords):
    return _draw_poisson(arguments[0])


RULES = {"aten::poisson": _poisson, "aten::_standard_gamma": _gamma, "aten::_sample_dirichlet": _dirichlet}
