# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values rounded to the levels of a quantized type, whose gradient passes where they lie within its bounds."""

from __future__ import annotations

from typing import Any

import torch

from .formulas import with_formula

__all__ = ["RULES"]


def _tensor(value: Any, like: torch.Tensor) -> torch.Tensor:
    return value.to(like.dtype) if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=like.dtype)


def _levels(x, scale, zero, low, high, rounds_sum=False):
    """What x becomes before it is cut off, and behind that. An offset that is a whole number is added to the rounded value, which
    counts where x lies between two levels."""
    level = torch.round(x * (1 / scale) + zero) if rounds_sum else torch.round(x * (1 / scale)) + zero
    return level, (level.clamp(low, high) - zero) * scale


def _is_inside(level, low, high):
    return (level >= low) & (level <= high)


def _fake_quantize(x, scale, zero, low, high, shape=None):
    rounds_sum = isinstance(zero, torch.Tensor) and zero.is_floating_point()
    scale, zero = _tensor(scale, x).detach(), _tensor(zero, x).detach()
    scale, zero = (part.reshape(shape) if shape is not None else part.reshape(()) for part in (scale, zero))

    def keep(context, inputs, output):
        context.save_for_backward(_is_inside(_levels(inputs[0], scale, zero, low, high, rounds_sum)[0], low, high))

    def backward(context, g):
        return torch.where(context.saved_tensors[0], g, torch.zeros((), dtype=g.dtype))
    return with_formula("fake_quantize", (x,), lambda x: _levels(x, scale, zero, low, high, rounds_sum)[1], keep, backward)


def _by_channel(x, scale, zero, axis, low, high):
    return _fake_quantize(x, scale, zero, low, high, [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())])


def _learnable(x, scale, zero, low, high, factor=1.0, axis=None):
    """The scale and the offset have gradients themselves (Esser and others)."""
    shape = [1] * x.dim() if axis is None else [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    others = [dim for dim in range(x.dim()) if axis is None or dim != axis % x.dim()]

    def spread(scale, zero):
        return scale.reshape(shape), zero.clamp(low, high).round().reshape(shape)

    def run(x, scale, zero):
        return _levels(x, *spread(scale, zero), low, high)[1]

    def keep(context, inputs, output):
        context.save_for_backward(*inputs)

    def backward(context, g):
        x, scale, zero = context.saved_tensors
        spread_scale, offset = spread(scale, zero)
        level, y = _levels(x, spread_scale, offset, low, high, rounds_sum=True)  # PyTorch's gradient does
        inside = _is_inside(level, low, high)
        nothing = torch.zeros((), dtype=g.dtype)
        by_scale = torch.where(inside, (y - x) / spread_scale, torch.where(level < low, low - offset, high - offset))
        by_zero = torch.where(inside, nothing, -spread_scale)
        total = lambda value: (g * value * factor).sum(others).reshape(scale.shape)
        return torch.where(inside, g, nothing), total(by_scale), total(by_zero)
    return with_formula("fake_quantize", (x, scale, zero), run, keep, backward)


def _rule(function):
    return lambda engine, target, arguments, keywords: function(*arguments, **keywords)


RULES = {"aten::fake_quantize_per_tensor_affine": _rule(_fake_quantize), "aten::fake_quantize_per_channel_affine": _rule(_by_channel),
         "aten::_fake_quantize_learnable_per_tensor_affine": _rule(_learnable),
         "aten::_fake_quantize_learnable_per_channel_affine": _rule(
             lambda x, scale, zero, axis, low, high, factor=1.0: _learnable(x, scale, zero, low, high, factor, axis))}
