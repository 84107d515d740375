# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of backward passes, written in operators that have gradients themselves."""

from __future__ import annotations

import torch

__all__ = ["DECOMPOSITIONS"]

aten = torch.ops.aten


def _convolution_backward(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
    """A convolution's gradients as convolutions."""
    dims = x.dim() - 2
    to_x = to_weight = to_bias = None
    if mask[0]:
        if transposed:
            to_x = aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * dims, groups)
        else:
            reached = [(grad.shape[d + 2] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (weight.shape[d + 2] - 1) + 1
                       for d in range(dims)]
            rest = [x.shape[d + 2] - reached[d] for d in range(dims)]
            to_x = aten.convolution(grad, weight, None, stride, padding, dilation, True, rest, groups)
    if mask[1]:
        a, b = (grad, x) if transposed else (x, grad)
        # Samples become channels: one group for each group.
        out = b.shape[1]
        per_a, per_b = a.shape[1] // groups, out // groups
        a = a.unflatten(1, (groups, per_a)).movedim(0, 2)  # [groups, per_a, n, ...]
        a = a.movedim(1, 0).flatten(1, 2)  # [per_a, groups * n, ...]
        b = b.unflatten(1, (groups, per_b)).movedim(0, 2).flatten(0, 1)  # [groups * per_b, n, ...]
        found = aten.convolution(a, b, None, dilation, padding, stride, False, [0] * dims, groups)  # [per_a, groups * per_b, ...]
        for d in range(dims):
            found = found.narrow(d + 2, 0, weight.shape[d + 2])
        to_weight = found.movedim(0, 1)
    if mask[2]:
        to_bias = grad.sum([0, *range(2, grad.dim())])
    return to_x, to_weight, to_bias


def _make() -> dict:
    found = {op: function for op, function in torch._decomp.decomposition_table.items()
             if isinstance(op, torch._ops.OpOverload) and "backward" in op._schema.name and op._schema.name.startswith("aten::")}
    found[aten.convolution_backward.default] = _convolution_backward
    return found


DECOMPOSITIONS = _make()
