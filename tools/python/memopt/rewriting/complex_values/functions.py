# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of complex numbers that follow from those of their parts, and from products."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import torch.nn.functional as F

from .arithmetic import absolute, add, bilinear, div, exp, log, mul, pair, reciprocal, sqrt
from .pairs import Pair, is_complex

__all__ = ["FUNCTIONS"]


# ----------------------------------------------------------------------------------------------------------
# Of each number
# ----------------------------------------------------------------------------------------------------------

def _sinh(z: Pair) -> Pair:
    return Pair(z.re.sinh() * z.im.cos(), z.re.cosh() * z.im.sin())


def _cosh(z: Pair) -> Pair:
    return Pair(z.re.cosh() * z.im.cos(), z.re.sinh() * z.im.sin())


def _tanh(z: Pair) -> Pair:
    # Beyond 20 the real part is 1 in every type, and squares would leave the type.
    x = z.re.clamp(-20, 20)
    below = x.sinh().square() + z.im.cos().square()
    return Pair(x.sinh() * x.cosh() / below, z.im.sin() * z.im.cos() / below)


def _turned(function):
    """sin and tan by their hyperbolic sisters: f(z) = -i g(iz)."""
    def run(z: Pair) -> Pair:
        found = function(Pair(-z.im, z.re))
        return Pair(found.im, -found.re)
    return run


def _expm1(z: Pair) -> Pair:
    half = (z.im / 2).sin()
    return Pair(z.re.expm1() * z.im.cos() - 2 * half * half, z.re.exp() * z.im.sin())


def _log1p(z: Pair) -> Pair:
    return Pair((z.re * (2 + z.re) + z.im * z.im).log1p() / 2, torch.atan2(z.im, 1 + z.re))


def _log_to(base: float):
    def run(z: Pair) -> Pair:
        found, factor = log(z), 1 / torch.tensor(base, dtype=torch.float64).log().item()
        return Pair(found.re * factor, found.im * factor)
    return run


def _arsinh(z: Pair) -> Pair:
    """Odd, so that of a negative real part nothing is taken off what is nearly the same."""
    sign = torch.where(z.re < 0, -1.0, 1.0).to(z.re.dtype)
    z = Pair(z.re * sign, z.im * sign)
    square = mul(z, z)
    found = _log1p(add(z, div(square, add(sqrt(add(square, 1)), 1))))
    return Pair(found.re * sign, found.im * sign)


def _artanh(z: Pair) -> Pair:
    sign = torch.where(z.re < 0, -1.0, 1.0).to(z.re.dtype)
    x, y = z.re * sign, z.im * sign
    square, rest = y * y, 1 - x
    return Pair(sign * (4 * x / (rest * rest + square)).log1p() / 4, sign * torch.atan2(2 * y, rest * (1 + x) - square) / 2)


def _arcosh(z: Pair) -> Pair:
    return log(add(z, mul(sqrt(add(z, 1)), sqrt(add(z, -1)))))


def _arccos(z: Pair) -> Pair:
    found = _turned(_arsinh)(z)
    return Pair(math.pi / 2 - found.re, -found.im)


def _sigmoid(z: Pair) -> Pair:
    return reciprocal(add(exp(Pair(-z.re, -z.im)), 1))


# ----------------------------------------------------------------------------------------------------------
# Over dimensions
# ----------------------------------------------------------------------------------------------------------

def _list_dims(z: Pair, dims: Any) -> list[int]:
    rank = z.re.dim()
    given = range(rank) if dims is None or dims == [] else dims if isinstance(dims, (list, tuple)) else [dims]
    return [dim % max(rank, 1) for dim in given]


def _logsumexp(z: Pair, dims: Any, keepdim: bool = False) -> Pair:
    dims = _list_dims(z, dims)
    largest = z.re.detach().amax(dims, True)
    shifted = exp(Pair(z.re - largest, z.im))
    total = log(Pair(shifted.re.sum(dims, keepdim), shifted.im.sum(dims, keepdim)))
    return Pair(total.re + (largest if keepdim else largest.squeeze(dims)), total.im)


def _prod(z: Pair, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Pair:
    if dim is None:
        z, dim = Pair(z.re.flatten(), z.im.flatten()), 0
    if z.re.dim() == 0:
        return z
    re, im = z.re.movedim(dim, 0), z.im.movedim(dim, 0)
    if re.shape[0] == 0:
        result = Pair(torch.ones_like(re).sum(0) + 1, torch.zeros_like(im).sum(0))
    else:
        while re.shape[0] > 1:  # halves, so that rounding and depth stay small
            half = re.shape[0] // 2
            found = mul(Pair(re[:half], im[:half]), Pair(re[half:2 * half], im[half:2 * half]))
            re, im = torch.cat([found.re, re[2 * half:]]), torch.cat([found.im, im[2 * half:]])
        result = Pair(re[0], im[0])
    return Pair(result.re.unsqueeze(dim), result.im.unsqueeze(dim)) if keepdim else result


def _var(z: Pair, *rest: Any, **keywords: Any) -> torch.Tensor:
    """Of the distances, which is that of both parts together."""
    return torch.var(z.re, *rest, **keywords) + torch.var(z.im, *rest, **keywords)


def _mean_of(z: Pair, *rest: Any, **keywords: Any) -> Pair:
    dims = rest[0] if rest and not isinstance(rest[0], bool) else keywords.get("dim")
    keep = keywords.get("keepdim", rest[2] if len(rest) > 2 else False)
    dims = _list_dims(z, dims)
    return Pair(z.re.mean(dims, keep), z.im.mean(dims, keep))


def _either(function):
    return lambda z: function(z.re) | function(z.im)


# ----------------------------------------------------------------------------------------------------------
# Of several
# ----------------------------------------------------------------------------------------------------------

def _plus_product(product):
    """`beta * added + alpha * product(a, b)`."""
    def run(added, a, b, *, beta=1, alpha=1):
        found = bilinear(product, a, b)
        found = found if alpha == 1 else mul(found, alpha)
        return found if beta == 0 else add(added if beta == 1 else mul(pair(added), beta), found)
    return run


def _convolution(function):
    def run(x, weight, bias=None, *rest, **keywords):
        found = bilinear(lambda a, b: function(a, b, None, *rest, **keywords), x, weight)
        if bias is None:
            return found
        bias = pair(bias)
        shape = [-1, *[1] * (weight.re if is_complex(weight) else weight)[0, 0].dim()]
        return add(found, Pair(bias.re.reshape(shape), bias.im.reshape(shape)))
    return run


def _of_lists(function):
    """Of a list of tensors, one for each."""
    def run(values, *rest, **keywords):
        pairs = [pair(value) for value in values]
        parts = [function([value[place] for value in pairs], *rest, **keywords) for place in (0, 1)]
        return [Pair(*both) for both in zip(*parts)]
    return run


def _chain(values) -> Pair:
    return functools.reduce(lambda a, b: bilinear(torch.matmul, a, b), values)


def _mse(a, b, reduction: int = 1) -> torch.Tensor:
    d = add(pair(a), b, 1, -1)
    return _reduce(d.re * d.re + d.im * d.im, reduction)


def _is_close(a, b, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> torch.Tensor:
    a, b = pair(a), pair(b)
    found = (absolute(add(a, b, 1, -1)) <= atol + rtol * absolute(b)) | (a.re == b.re) & (a.im == b.im)
    return found | _either(torch.isnan)(a) & _either(torch.isnan)(b) if equal_nan else found


def _l1(a, b, reduction: int = 1) -> torch.Tensor:
    return _reduce(absolute(add(pair(a), b, 1, -1)), reduction)


def _reduce(values: torch.Tensor, reduction: int) -> torch.Tensor:
    return values if reduction == 0 else values.mean() if reduction == 1 else values.sum()


def _dropped(function):
    """Both parts of an element, or none."""
    def run(z, p, train):
        return mul(z, function(torch.ones_like(z.re), p, train))
    return run


FUNCTIONS = {
    "dropout": _dropped(torch.dropout), "feature_dropout": _dropped(torch.feature_dropout),
    "pairwise_distance": lambda a, b, p=2, eps=1e-6, keepdim=False: torch.linalg.vector_norm(
        absolute(add(add(pair(a), b, 1, -1), eps)), p, -1, keepdim),
    "sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "sin": _turned(_sinh), "tan": _turned(_tanh),
    "asinh": _arsinh, "asin": _turned(_arsinh), "acos": _arccos, "acosh": _arcosh, "atanh": _artanh, "atan": _turned(_artanh),
    "cos": lambda z: _cosh(Pair(-z.im, z.re)), "expm1": _expm1, "log1p": _log1p, "log2": _log_to(2), "log10": _log_to(10),
    "exp2": lambda z: exp(mul(z, torch.tensor(2.0, dtype=torch.float64).log().item())), "sigmoid": _sigmoid,
    "silu": lambda z: mul(z, _sigmoid(z)), "rsqrt": lambda z: reciprocal(sqrt(z)),
    "logsumexp": _logsumexp, "prod": _prod, "var": _var, "std": lambda *rest, **keywords: _var(*rest, **keywords).sqrt(),
    "var_mean": lambda *rest, **keywords: (_var(*rest, **keywords), _mean_of(*rest, **keywords)),
    "std_mean": lambda *rest, **keywords: (_var(*rest, **keywords).sqrt(), _mean_of(*rest, **keywords)),
    "isnan": _either(torch.isnan), "isinf": _either(torch.isinf),
    "isfinite": lambda z: torch.isfinite(z.re) & torch.isfinite(z.im),
    "count_nonzero": lambda z, dim=None: torch.count_nonzero((z.re != 0) | (z.im != 0), dim),
    "is_complex": lambda z: True, "ones_like": lambda z, **_: Pair(torch.ones_like(z.re), torch.zeros_like(z.re)),
    "addmm": _plus_product(torch.matmul), "baddbmm": _plus_product(torch.bmm), "addmv": _plus_product(torch.mv),
    "addr": _plus_product(torch.outer), "addbmm": _plus_product(lambda a, b: torch.bmm(a, b).sum(0)),
    "addcmul": lambda z, a, b, value=1: add(pair(z), mul(mul(a, b), value)),
    "addcdiv": lambda z, a, b, value=1: add(pair(z), mul(div(pair(a), b), value)),
    "lerp": lambda z, end, weight: add(pair(z), mul(add(pair(end), z, 1, -1), weight)),
    "inner": lambda a, b: bilinear(torch.inner, a, b),
    "tensordot": lambda a, b, *rest, **keywords: bilinear(lambda x, y: torch.ops.aten.tensordot(x, y, *rest, **keywords), a, b),
    "linalg_multi_dot": _chain, "chain_matmul": _chain,
    "conv1d": _convolution(F.conv1d), "conv2d": _convolution(F.conv2d), "conv3d": _convolution(F.conv3d),
    "conv_transpose1d": _convolution(F.conv_transpose1d), "conv_transpose2d": _convolution(F.conv_transpose2d),
    "conv_transpose3d": _convolution(F.conv_transpose3d),
    "broadcast_tensors": _of_lists(torch.ops.aten.broadcast_tensors), "meshgrid": _of_lists(torch.ops.aten.meshgrid),
    "isclose": _is_close,
    "mse_loss": _mse, "l1_loss": _l1, "dist": lambda a, b, p=2: torch.linalg.vector_norm(absolute(add(pair(a), b, 1, -1)), p),
    "trace": lambda z: Pair(z.re.diagonal().sum(), z.im.diagonal().sum()),
}
