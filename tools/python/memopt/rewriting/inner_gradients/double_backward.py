# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of backward passes, written in operators that have gradients themselves."""

from __future__ import annotations

import math
import operator

import torch

from . import separable
from .grid_sampling import grid_sampler

__all__ = ["DECOMPOSITIONS", "FORWARDS", "guard_quotients", "write_statistics"]

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


def _slopes(gaps: torch.Tensor, distances: torch.Tensor, p: float) -> torch.Tensor:
    """Of norms of these gaps; where a distance is zero, it has no slope."""
    distances = distances.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(gaps)
    if p == 1:
        return gaps.sign()
    if p == math.inf:
        return torch.where(gaps.abs() == distances, gaps.sign(), 0)
    is_apart = distances != 0 if p == 2 else (distances != 0) & (gaps != 0)  # powers of a gap of zero have no slope
    ratio = torch.where(is_apart, gaps, 1) / torch.where(is_apart, distances, 1)
    return torch.where(is_apart, ratio if p == 2 else ratio.sign() * ratio.abs().pow(p - 1), 0)


def _cdist_backward(grad, x, y, p, distances):
    return (grad.unsqueeze(-1) * _slopes(x.unsqueeze(-2) - y.unsqueeze(-3), distances, p)).sum(-2)


def _pairs(x):
    first, second = aten.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind(0)
    return first, second, x.index_select(0, first) - x.index_select(0, second)


def _pdist(x, p=2.0):
    return torch.linalg.vector_norm(_pairs(x)[2], p, -1)


def _pdist_backward(grad, x, p, distances):
    first, second, gaps = _pairs(x)
    found = grad.unsqueeze(-1) * _slopes(gaps, distances, p)
    return torch.zeros_like(x).index_add(0, first, found).index_add(0, second, -found)


def _rrelu(x, lower=1 / 8, upper=1 / 3, training=False, generator=None):
    slope = torch.rand_like(x) * (upper - lower) + lower if training else (lower + upper) / 2
    return torch.where(x <= 0, x * slope, x)


def _new_empty_strided(x, size, stride, **keywords):
    """What writes to views have as their backward passes; zeros, as nothing is left of them."""
    if list(stride) != list(torch.empty(size, device="meta").stride()):
        return NotImplemented
    return x.new_zeros(size)


def _masked_scatter_backward(grad, mask, sizes):
    """Of the source, whose elements went to where the mask holds, one after the other."""
    mask, total = mask.expand_as(grad).flatten(), math.prod(sizes)
    places = (mask.to(torch.int64).cumsum(0) - 1).clamp(0, total - 1)
    zeros = torch.zeros([total], dtype=grad.dtype, device=grad.device)
    return zeros.scatter_add(0, places, torch.where(mask, grad.flatten(), 0)).reshape(sizes)


def _trilinear(a, b, c, without_a, without_b, without_c, summed, unroll_dim=1):
    """A product of three tensors, which stand for those with a dimension of one at these places, summed along others."""
    count = a.dim() + len(without_a)
    letters = [[d for d in range(count) if d not in without] for without in (without_a, without_b, without_c)]
    kept = [d for d in range(count) if d not in summed]
    word = lambda dims: "".join(chr(ord("a") + d) for d in dims)
    return torch.einsum(f"{','.join(map(word, letters))}->{word(kept)}", a, b, c)


def _index_fill(x, dim, index, value):
    """PyTorch's gradient of the value asks which places are named more than once."""
    is_filled = torch.zeros([x.shape[dim] if x.dim() else 1], dtype=torch.bool, device=x.device).index_fill(0, index, True)
    shape = [size if d == dim % x.dim() else 1 for d, size in enumerate(x.shape)]
    return torch.where(is_filled.reshape(shape), value, x)


# ----------------------------------------------------------------------------------------------------------
# Statistics of norms
# ----------------------------------------------------------------------------------------------------------

def _group(node: torch.fx.Node) -> tuple[list[int], list[int]]:
    """The shape in which the statistics of a norm are means over its last or other dimensions, and those dimensions."""
    shape = list(node.args[0].meta["val"].shape)
    name = node.target._schema.name
    if name == "aten::native_group_norm":
        samples, groups = node.args[3], node.args[6]
        return [samples, groups, -1], [2]
    if name in ("aten::native_layer_norm", "aten::_fused_rms_norm"):
        return shape, list(range(len(shape) - len(node.args[1]), len(shape)))
    return shape, [0, *range(2, len(shape))]


#: Of norms, which results the mean and the inverse deviation are.
_NORMS = {"aten::native_layer_norm": (1, 2), "aten::native_group_norm": (1, 2), "aten::native_batch_norm": (1, 2),
          "aten::_native_batch_norm_legit": (1, 2), "aten::_native_batch_norm_legit_functional": (1, 2),
          "aten::_batch_norm_with_update": (1, 2), "aten::_batch_norm_with_update_functional": (1, 2), "aten::_fused_rms_norm": (None, 1)}


def _get_argument(node: torch.fx.Node, name: str):
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            return node.args[place] if place < len(node.args) else node.kwargs.get(name, argument.default_value)
    return None


def write_statistics(graph: torch.fx.Graph) -> None:
    """Writes the statistics that a norm's gradient reads as operators. As results of the norm they have no gradient, in PyTorch
    neither, and the second gradient needs theirs."""
    for node in list(graph.nodes):
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None or schema.name not in _NORMS or _get_argument(node, "training") is False:
            continue
        mean_place, deviation_place = _NORMS[schema.name]
        readers = [user for user in node.users if user.target is operator.getitem and user.users
                   and user.args[1] in (mean_place, deviation_place)]
        if not readers:
            continue
        shape, dims = _group(node)
        eps = _get_argument(node, "eps")
        keep = schema.name in ("aten::native_layer_norm", "aten::_fused_rms_norm")
        with graph.inserting_before(node):
            x = graph.call_function(aten.reshape.default, (node.args[0], shape))
            if mean_place is None:
                eps = torch.finfo(node.args[0].meta["val"].dtype).eps if eps is None else eps
                values = {deviation_place: graph.call_function(aten.mean.dim, (graph.call_function(aten.square.default, (x,)), dims, keep))}
            else:
                both = graph.call_function(aten.var_mean.correction, (x, dims), {"correction": 0, "keepdim": keep})
                values = {place: graph.call_function(operator.getitem, (both, number))
                          for number, place in enumerate((deviation_place, mean_place))}
            shifted = graph.call_function(aten.add.Scalar, (values[deviation_place], eps))
            values[deviation_place] = graph.call_function(aten.rsqrt.default, (shifted,))
        for reader in readers:
            reader.replace_all_uses_with(values[reader.args[1]])
            graph.erase_node(reader)


def guard_quotients(graph: torch.fx.Graph) -> None:
    """The gradient of a norm is zero where the norm is, `(g / norm ** k).masked_fill(norm == 0, 0)`, and so is that of the quotient in it,
    which is no number."""
    for node in list(graph.nodes):
        if node.target not in (aten.masked_fill.Scalar, aten.masked_fill_.Scalar) or node.args[2] != 0 or node.args[0].target is not aten.div.Tensor:
            continue
        quotient, is_zero = node.args[:2]
        power = quotient.args[1]
        if is_zero.target is aten.eq.Scalar and is_zero.args[1] == 0 and isinstance(power, torch.fx.Node) \
                and power.target is aten.pow.Tensor_Scalar and power.args[0] is is_zero.args[0] and list(quotient.users) == [node]:
            with graph.inserting_before(node):
                divisor = graph.call_function(aten.masked_fill.Scalar, (power, is_zero, 1))
                node.replace_input_with(quotient, graph.call_function(aten.div.Tensor, (quotient.args[0], divisor)))


def _make() -> dict:
    found = {op: function for op, function in torch._decomp.decomposition_table.items()
             if isinstance(op, torch._ops.OpOverload) and "backward" in op._schema.name and op._schema.name.startswith("aten::")}
    found.update(separable.DECOMPOSITIONS)
    found[aten.convolution_backward.default] = _convolution_backward
    found[aten._cdist_backward.default] = _cdist_backward
    found[aten._pdist_forward.default] = _pdist
    found[aten._pdist_backward.default] = _pdist_backward
    found[aten.log_sigmoid_forward.default] = torch._decomp.decomposition_table[aten.log_sigmoid_forward.default]
    found[aten.new_empty_strided.default] = _new_empty_strided
    found[aten._trilinear.default] = _trilinear  # which bilinear layers and their backward passes are made of
    found[aten.masked_scatter_backward.default] = _masked_scatter_backward
    return found


DECOMPOSITIONS = _make()
#: Of operators that are differentiated, what takes their place before, as of their own backward passes there is no gradient.
FORWARDS = {**{op: grid_sampler for op in (aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)},
            aten.index_fill.int_Tensor: _index_fill, aten.rrelu.default: _rrelu}
