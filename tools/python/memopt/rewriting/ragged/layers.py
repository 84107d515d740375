# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that treat rows alike: pointwise ones, layers, products."""

from __future__ import annotations

import string

import torch
from torch.utils import _pytree as pytree

from . import grids
from .values import Count, NotRagged, Ragged, align_all, bind, fill_rows, find_rows, find_whole, is_ragged, plain, plain_all, rank_of, wrap_dim

aten = torch.ops.aten

__all__ = ["POINTWISE", "RULES", "call_with_tensors", "pointwise"]


def _meet(engine, leaves: list) -> tuple[list, int]:
    """Operands that are broadcast together with the same rows, and the rows' dimension in the result."""
    leaves = align_all(engine, leaves)
    first = find_rows(leaves)
    rank = max(rank_of(leaf) for leaf in leaves if isinstance(leaf, (Ragged, torch.Tensor)))
    behind = first.full.dim() - first.dim
    for leaf in leaves:
        if isinstance(leaf, Ragged) and leaf.full.dim() - leaf.dim != behind:
            raise NotRagged("along other dimensions")
        if isinstance(leaf, torch.Tensor) and leaf.dim() >= behind and leaf.shape[leaf.dim() - behind] != 1:
            raise NotRagged("beside a tensor with as many rows")
    return leaves, rank - behind


def _make_whole(engine, leaves: list) -> list:
    """Rows beside a tensor that says how many they are, are tensors of so many."""
    rows = [leaf for leaf in leaves if isinstance(leaf, Ragged)]
    if not rows:
        return leaves
    behind = rows[0].full.dim() - rows[0].dim
    sizes = {leaf.shape[leaf.dim() - behind] for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() >= behind} - {1}
    if len(sizes) != 1 or any(row.full.dim() - row.dim != behind or row.bound < min(sizes) for row in rows):
        return leaves
    (size,) = sizes
    return [find_whole(engine, leaf, size) if isinstance(leaf, Ragged) else leaf for leaf in leaves]


def pointwise(engine, target, arguments, keywords):
    leaves, spec = pytree.tree_flatten((arguments, keywords), is_leaf=is_ragged)
    leaves = _make_whole(engine, [leaf.tensor() if isinstance(leaf, Count) else leaf for leaf in leaves])
    if not any(isinstance(leaf, Ragged) for leaf in leaves):
        return call_with_tensors(target, *pytree.tree_unflatten(leaves, spec))
    if len({leaf.full.dim() - leaf.dim for leaf in leaves if isinstance(leaf, Ragged)}) > 1:
        return grids.pointwise(engine, lambda given, named: call_with_tensors(target, given, named), arguments, keywords)
    leaves, dim = _meet(engine, leaves)
    arguments, keywords = pytree.tree_unflatten([plain(leaf) for leaf in leaves], spec)
    return find_rows(leaves).with_full(call_with_tensors(target, arguments, keywords), dim)


def _broadcast(engine, target, arguments, keywords):
    leaves, dim = _meet(engine, list(arguments[0]))
    first = find_rows(leaves)
    return [first.with_full(full, dim) for full in torch.broadcast_tensors(*map(plain, leaves))]


def call_with_tensors(target, arguments, keywords):
    """An overload for numbers may have got tensors."""
    name = target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else None
    if name and any(isinstance(value, torch.Tensor) and "Tensor" not in str(parameter.type)
                    for parameter, value in zip(target._schema.arguments, arguments)):
        return getattr(torch, name)(*arguments, **keywords)
    return target(*arguments, **keywords)


def _same_shape(engine, target, arguments, keywords):
    x = find_rows(arguments)
    return x.with_full(target(*plain_all(arguments), **plain_all(keywords)))


#: Weights of a product from which on it is worth more to leave rows out than to fill them again behind it.
_LEAST_WEIGHTS = 4096


def _multiply_rows(x: Ragged, weights: torch.Tensor, multiply) -> Ragged:
    """Zeros where rows do not count, which the compiler's products leave out."""
    if x.full.dim() != 2 or x.dim or not x.full.is_floating_point() or weights.dim() != 2 or weights.numel() < _LEAST_WEIGHTS:
        return x.with_full(multiply(x.full))
    return x.with_full(fill_rows(multiply(x.masked(0)), 0, x.valid))


def _multiply_pairs(a, b, multiply):
    """Each row with each: rows by one mask are the result's rows, those by another its columns."""
    if not isinstance(a, Ragged) or not isinstance(b, Ragged) or a.dim != rank_of(a) - 2 or b.dim != rank_of(b) - 1:
        raise NotRagged("with what has other rows")
    full = multiply(a.full, b.full)
    return grids.make(full, [axis._replace(dim=full.dim() - 2 + place) for place, value in enumerate((a, b)) for axis in grids.axes_of(value)])


def _measure(engine, target, arguments, keywords):
    """cdist: of each row from each."""
    a, b, *rest = arguments
    if any(isinstance(value, Ragged) and value.dim != rank_of(value) - 2 for value in (a, b)):
        raise NotRagged("along other dimensions")
    full = target(plain(a), plain(b), *rest, **keywords)
    return grids.make(full, [axis._replace(dim=full.dim() - 2 + place) for place, value in enumerate((a, b)) for axis in grids.axes_of(value)])


def _linear(engine, target, arguments, keywords):
    x = arguments[0]
    if isinstance(arguments[1], Ragged) and arguments[1].dim == 0 and len(arguments) < 3:
        return _matmul(engine, aten.matmul.default, (x, arguments[1].with_full(arguments[1].full.t(), 1)), {})
    if not isinstance(x, Ragged) or x.dim == x.full.dim() - 1 or any(map(is_ragged, arguments[1:])):
        raise NotRagged("as weights")
    return _multiply_rows(x, arguments[1], lambda full: target(full, *arguments[1:], **keywords))


def _matmul(engine, target, arguments, keywords):
    name = target._schema.name.removeprefix("aten::")
    if name == "addmm":
        bias, a, b = arguments
        return pointwise(engine, aten.add.Tensor, (_matmul(engine, aten.matmul.default, (a, b), {}), bias), {})
    a, b = arguments
    rank_a, rank_b = rank_of(a), rank_of(b)
    in_a = isinstance(a, Ragged) and a.dim == rank_a - 1
    in_b = isinstance(b, Ragged) and b.dim == max(rank_b - 2, 0)
    if in_a and in_b:
        a, b = align_all(engine, [a, b])
        return target(a.masked(0), b.masked(0))
    if in_a or in_b or isinstance(a, Ragged) and isinstance(b, Ragged):
        return _multiply_pairs(a, b, target)
    if isinstance(a, Ragged) and rank_a == 2 and rank_b == 2:
        return _multiply_rows(a, b, lambda full: target(full, b))
    full = target(plain(a), plain(b))
    if isinstance(a, Ragged):
        return a.with_full(full, full.dim() - (rank_a - a.dim) + (1 if rank_b == 1 else 0))
    return b.with_full(full, full.dim() - (rank_b - b.dim) + (1 if rank_a == 1 and b.dim < rank_b - 2 else 0))


def _write_out(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of the operands and of the result, without `...` and with what is behind the arrow."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    labels = inputs.split(",")
    spare = [letter for letter in string.ascii_letters if letter not in inputs]
    most = max([0] + [rank - len(label.replace("...", "")) for label, rank in zip(labels, ranks) if "..." in label])
    others = "".join(spare[:most])
    letters = "".join(labels).replace(".", "")
    if not arrow:
        output = "..." * any("..." in label for label in labels) + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    counts = [rank - len(label.replace("...", "")) for label, rank in zip(labels, ranks)]
    return [label.replace("...", others[most - count:]) for label, count in zip(labels, counts)], output.replace("...", others)


def _einsum(engine, target, arguments, keywords):
    """A letter of rows is summed over those that count, or is the rows of the result."""
    equation, operands = arguments[0], list(arguments[1])
    labels, output = _write_out(equation, [rank_of(operand) for operand in operands])
    letters = dict.fromkeys(label[operand.dim] for label, operand in zip(labels, operands) if isinstance(operand, Ragged))
    kept: list[grids.Axis] = []
    for letter in letters:
        places = [place for place, label in enumerate(labels) if letter in label]
        if not all(isinstance(operands[place], Ragged) and labels[place][operands[place].dim] == letter and labels[place].count(letter) == 1
                   for place in places):
            raise NotRagged("beside a tensor with as many rows")
        for place, operand in zip(places, align_all(engine, [operands[place] for place in places])):
            operands[place] = operand
        if letter not in output:
            for place in places:
                operands[place] = operands[place].masked(0)
        else:
            kept += [axis._replace(dim=output.index(letter)) for axis in grids.axes_of(operands[places[0]])]
    full = target(f"{','.join(labels)}->{output}", [plain(operand) for operand in operands], *arguments[2:], **keywords)
    return grids.make(full, kept)


def _normalize(engine, target, arguments, keywords):
    """layer_norm, rms_norm: the dimensions behind are normalized."""
    x, shape = arguments[:2]
    if x.dim >= x.full.dim() - len(shape):
        raise NotRagged("over the rows")
    return _same_shape(engine, target, arguments, keywords)


def _compare(engine, target, arguments, keywords):
    """cosine_similarity, pairwise_distance: of vectors side by side, along another dimension than that of the rows."""
    bound = bind(target, arguments, keywords)
    names = [parameter.name for parameter in target._schema.arguments][:2]
    leaves, dim = _meet(engine, [bound[name] for name in names])
    rank = max(map(rank_of, leaves))
    along = wrap_dim(bound.get("dim", -1), rank)
    if along == dim:
        raise NotRagged("over the rows")
    bound.update(zip(names, map(plain, leaves)))
    return find_rows(leaves).with_full(target(**bound), dim - (along < dim and not bound.get("keepdim", False)))


def _by_sample(engine, target, arguments, keywords):
    x = arguments[0]
    if x.dim != 0 or any(isinstance(value, Ragged) for value in pytree.tree_leaves(arguments[1:], is_leaf=is_ragged)):
        raise NotRagged()
    return _same_shape(engine, target, arguments, keywords)


def _one_hot(engine, target, arguments, keywords):
    x, classes = arguments
    if classes < 1:
        raise NotRagged("without a number of classes")
    return x.with_full(target(x.full, classes))


#: Pointwise without PyTorch's tag.
POINTWISE = ("where", "masked_fill", "masked_fill_", "clamp", "rsub", "nan_to_num", "__and__", "__or__", "divide", "true_divide",
             "multiply", "subtract", "greater", "less", "greater_equal", "less_equal", "not_equal", "floor_divide", "isclose",
             "arctan2", "log_sigmoid", "absolute", "negative", "special_expit", "special_xlogy", "fix", "type_as", "ldexp",
             "hardswish", "fill", "fill_", "zero_")

RULES = {
    **dict.fromkeys(("clone", "contiguous", "to", "_to_copy", "detach", "detach_", "alias", "dropout", "native_dropout",
                     "lift_fresh_copy", "clone_", "feature_dropout", "bernoulli"), _same_shape),
    "einsum": _einsum, "cdist": _measure, "linear": _linear, **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot", "addmm"), _matmul),
    **dict.fromkeys(("layer_norm", "rms_norm"), _normalize),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "group_norm", "max_pool2d", "avg_pool2d", "max_pool1d",
                     "avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool1d", "instance_norm_", "prelu"), _by_sample),
    **dict.fromkeys(("cosine_similarity", "pairwise_distance"), _compare),
    "one_hot": _one_hot, "broadcast_tensors": _broadcast,
    **dict.fromkeys(POINTWISE, pointwise),
}
