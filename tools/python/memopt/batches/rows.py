# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the samples of a batch lie in the values of a traced program, and which operators keep them apart.

Two traces of one module, for batches of two sizes, tell by their shapes which dimension of a value grows with the batch.
Whether each part along it depends on its own sample alone is a property of the operators, which the table below has. What
adds samples up is listed by its name and left to the caller. What the table does not have is no answer.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

__all__ = ["Mixed", "Rows", "SampleRows", "find_rows", "is_alike"]


class Rows(NamedTuple):
    """Samples along dimension `dim`, each with `inner` entries of it in one piece; with all of them `outer` times over, as
    where positions that come first have been flattened together with samples."""

    dim: int
    inner: int
    outer: int = 1


class SampleRows(NamedTuple):
    """What is known of a program's values."""

    rows: Mapping[torch.fx.Node, Any]  #: Rows, or None for what has no samples; of operators with several results a list
    sums: list[torch.fx.Node]  #: operators that add samples up: losses, sums and means, in their order


class Mixed(Exception):
    """An operator that may mix samples; the text names it."""


_RESHAPES = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "clone", "contiguous", "detach",
             "detach_", "alias", "lift_fresh_copy", "_to_copy", "to", "type_as", "view_as", "reshape_as", "copy"}
#: Sizes of their results are among the arguments.
_SIZED = {*_RESHAPES, "expand", "expand_as", "zeros", "ones", "full", "empty", "arange", "new_zeros", "new_ones", "new_full",
          "new_empty", "rand", "randn", "zeros_like", "ones_like", "full_like", "slice", "broadcast_to"}
#: Elementwise operators without PyTorch's tag for these.
_ELEMENTWISE = {"dropout", "dropout_", "native_dropout", "masked_fill", "masked_fill_", "bernoulli", "rand_like", "randn_like", "zeros_like", "ones_like",
                "full_like", "empty_like", "log_sigmoid", "hardswish", "hardsigmoid", "relu6", "fill", "feature_dropout", "alpha_dropout",
                "broadcast_tensors", "where", "__and__", "__or__", "__xor__"}
#: Losses of elements: reduction is an argument of that name.
_LOSSES = {"cross_entropy_loss", "nll_loss_nd", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
           "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss"}
_REDUCTIONS = {"sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "var", "std", "logsumexp", "softmax", "_softmax",
               "log_softmax", "_log_softmax", "cumsum", "cumprod", "sort", "topk", "prod", "linalg_vector_norm", "norm", "any", "all",
               "glu", "flip", "diff", "select", "unbind", "split", "split_with_sizes", "chunk", "narrow", "slice", "gather", "logcumsumexp"}
#: Operators whose inputs have samples first and this many dimensions.
_FIRST = {"conv1d": 3, "conv2d": 4, "conv3d": 5, "conv_transpose1d": 3, "conv_transpose2d": 4, "conv_transpose3d": 5,
          "max_pool1d": 3, "max_pool2d": 4, "max_pool3d": 5, "avg_pool1d": 3, "avg_pool2d": 4, "avg_pool3d": 5,
          "adaptive_avg_pool1d": 3, "adaptive_avg_pool2d": 4, "adaptive_avg_pool3d": 5, "adaptive_max_pool1d": 3,
          "adaptive_max_pool2d": 4, "max_pool2d_with_indices": 4, "upsample_nearest2d": 4, "upsample_bilinear2d": 4,
          "upsample_bicubic2d": 4, "upsample_nearest1d": 3, "upsample_linear1d": 3, "grid_sampler": 4, "pixel_shuffle": 4,
          "pixel_unshuffle": 4}
_CHECKS = {"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size", "sym_constrain_range"}


def name_of(node: torch.fx.Node) -> str:
    """ "cross_entropy_loss", of any overload."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        name = target._schema.name.partition("::")[2]
        return "batch_norm" if name.startswith("_native_batch_norm_legit") else name
    return "getitem" if target is operator.getitem else str(target)


def get_argument(node: torch.fx.Node, name: str, default: Any = None) -> Any:
    """An argument of an operator by its name in the schema, given or by default."""
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            if not argument.kwarg_only and place < len(node.args):
                return node.args[place]
            return node.kwargs.get(name, argument.default_value if argument.has_default_value() else default)
    return default


# ----------------------------------------------------------------------------------------------------------
# Two traces
# ----------------------------------------------------------------------------------------------------------

def _is_alike(left: Any, right: Any, numbers: Mapping[torch.fx.Node, int], others: Mapping[torch.fx.Node, int], may_differ: bool) -> bool:
    if isinstance(left, torch.fx.Node):
        return isinstance(right, torch.fx.Node) and numbers[left] == others[right]
    if isinstance(left, (list, tuple)):
        return isinstance(right, (list, tuple)) and len(left) == len(right) and all(
            _is_alike(a, b, numbers, others, may_differ) for a, b in zip(left, right))
    if may_differ and type(left) is type(right) is int:
        return True
    return type(left) is type(right) and (left == right or left != left and right != right)


def is_alike(program: torch.export.ExportedProgram, other: torch.export.ExportedProgram) -> bool:
    """Whether two programs have the same operators, whose arguments are the same but for sizes."""
    if program.constants.keys() != other.constants.keys() or not all(
            value.shape == other.constants[name].shape and torch.equal(value, other.constants[name])
            for name, value in program.constants.items() if isinstance(value, torch.Tensor)):
        return False
    nodes, others = list(program.graph.nodes), list(other.graph.nodes)
    numbers, places = ({node: place for place, node in enumerate(own)} for own in (nodes, others))
    return len(nodes) == len(others) and all(
        left.op == right.op and (left.target == right.target or left.op == "placeholder") and left.kwargs.keys() == right.kwargs.keys()
        and _is_alike((left.args, tuple(left.kwargs.values())), (right.args, tuple(right.kwargs.values())), numbers, places,
                      name_of(left) in _SIZED)
        for left, right in zip(nodes, others))


def _compare_shapes(left: Any, right: Any, count: int, fewer: int, node: torch.fx.Node) -> Rows | None:
    """The dimension along which one value is that of fewer samples."""
    if not isinstance(left, torch.Tensor):
        return None
    differing = [dim for dim, (a, b) in enumerate(zip(left.shape, right.shape)) if a != b]
    if not differing:
        return None
    (dim, *more), inner = differing, left.shape[differing[0]] // count
    if more or left.shape[dim] != inner * count or right.shape[dim] != inner * fewer:
        raise Mixed(f"{name_of(node)}, whose result has the shape {list(left.shape)}")
    return Rows(dim, inner)


# ----------------------------------------------------------------------------------------------------------
# Operators
# ----------------------------------------------------------------------------------------------------------

class _Rules:
    """The rules of operators, over what is known of their arguments. Each says whether samples stay apart."""

    def __init__(self):
        self.rows: dict[torch.fx.Node, Any] = {}
        self.sums: list[torch.fx.Node] = []
        self.numbers: set[torch.fx.Node] = set()  # tensors that have, for each sample, its number

    def note_numbers(self, node: torch.fx.Node, rows: Any) -> None:
        """Follows what `torch.arange` of the samples becomes."""
        name = name_of(node)
        if not isinstance(rows, Rows):
            return
        if name == "arange":
            ends = [argument for argument in node.args if isinstance(argument, int)]
            if rows.inner == 1 and (len(ends) == 1 or ends[0] == 0 and ends[2:] in ([], [1])):
                self.numbers.add(node)
        elif node.args and node.args[0] in self.numbers and (
                name in _RESHAPES or name in ("expand", "expand_as") or name in ("add", "sub") and node.args[1] == 0):
            self.numbers.add(node)

    def get(self, value: Any) -> Rows | None:
        found = self.rows.get(value) if isinstance(value, torch.fx.Node) else None
        return found if isinstance(found, Rows) else None

    def split(self, node: torch.fx.Node, rows: Rows) -> Rows:
        """The shapes say how many entries a sample has along its dimension; the operands say whether in one piece."""
        own = next((own for _, own in self.list_operands(node) if own is not None), None)
        if own is None:
            return rows
        if name_of(node) in _RESHAPES:
            own = self.get(node.args[0])
            return rows if own is None else _split(node.args[0].meta["val"], own, node.meta["val"], rows)
        return Rows(rows.dim, own.inner, own.outer) if own.inner * own.outer == rows.inner else rows

    def list_operands(self, node: torch.fx.Node) -> list[tuple[torch.fx.Node, Rows | None]]:
        return [(value, self.get(value)) for value in pytree.tree_leaves((node.args, dict(node.kwargs)))
                if isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)]

    def is_aligned(self, node: torch.fx.Node, result: torch.Tensor, rows: Rows | None) -> bool:
        """Elementwise, with broadcasting: samples of all operands meet those of the result."""
        for value, own in self.list_operands(node):
            if own is not None and (rows is None or own.dim + result.dim() - value.meta["val"].dim() != rows.dim or own.inner != rows.inner):
                return False
        return True

    def keeps(self, node: torch.fx.Node, rows: Rows | None) -> bool:
        """Whether an operator with samples among its operands keeps them apart."""
        name, value = name_of(node), node.meta.get("val")
        first = next((v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, torch.Tensor)), None)
        if name in ("getitem", "new_zeros", "new_ones", "new_full") or name in _CHECKS or first is None:
            return True
        if name in _RESHAPES:
            own = self.get(node.args[0])
            return (own is None) == (rows is None) and (own is None or _count_piece(node.args[0].meta["val"], own) == _count_piece(first, rows))
        if name in _ELEMENTWISE or torch.Tag.pointwise in getattr(node.target, "tags", ()):
            return self.is_aligned(node, first, rows)
        if name in _LOSSES:
            return self._is_loss(node, name)
        if name in ("any", "all", "sum", "mean") and self._reduces(node):
            if (self.get(node.args[0]) or Rows(0, 1)).outer > 1:
                return False
            if name in ("sum", "mean"):
                self.sums.append(node)
            return True  # a sample that stands in for padding changes neither any nor all
        if name in _REDUCTIONS:
            own = self.get(node.args[0])
            same = all(other is None or other.dim == own.dim for _, other in self.list_operands(node)) if own else False
            return same and not self._reduces(node) and rows is not None and rows.inner == own.inner
        if name in _FIRST:
            return self._has_samples_first(node, _FIRST[name], rows)
        rule = getattr(self, f"_{name}", None)
        return rule is not None and bool(rule(node, rows))

    def _reduces(self, node: torch.fx.Node) -> bool:
        """Whether the samples' dimension is among those that an operator works along."""
        own, rank = self.get(node.args[0]), node.args[0].meta["val"].dim()
        if own is None:
            return True
        dims = get_argument(node, "dims" if name_of(node) == "flip" else "dim")
        if dims is None or dims == []:
            return True
        dims = {int(dim) % rank for dim in (dims if isinstance(dims, (list, tuple)) else [dims])}
        return own.dim in dims and not (name_of(node) == "slice" and self._is_whole(node))

    def _is_whole(self, node: torch.fx.Node) -> bool:
        return node.meta["val"].shape == node.args[0].meta["val"].shape

    def _is_loss(self, node: torch.fx.Node, name: str) -> bool:
        value, target = node.args[:2]
        own, other = self.get(value), self.get(target)
        weight = self.get(get_argument(node, "weight"))
        if own is None or own.dim != 0 or own.outer > 1 or other != own or weight is not None and not name.startswith("binary_cross_entropy"):
            return False
        if name in ("cross_entropy_loss", "nll_loss_nd"):
            same = value.meta["val"].dim() > 1 and target.meta["val"].dim() + (not target.meta["val"].is_floating_point()) == value.meta["val"].dim()
        else:
            same = value.meta["val"].shape == target.meta["val"].shape and self.get(get_argument(node, "pos_weight")) is None
        if same and get_argument(node, "reduction", 1) != 0:
            self.sums.append(node)
        return same

    def _has_samples_first(self, node: torch.fx.Node, rank: int, rows: Rows | None) -> bool:
        for place, (value, own) in enumerate(self.list_operands(node)):
            if own is not None and (own.dim != 0 or value.meta["val"].dim() != rank or place and name_of(node) != "grid_sampler"):
                return False
        return rows is not None and rows.dim == 0 and node.args[0].meta["val"].dim() == rank

    # One operator each

    def _linear(self, node, rows):
        own = self.get(node.args[0])
        return own == rows is not None and own.dim < node.args[0].meta["val"].dim() - 1 and not any(map(self.get, node.args[1:]))

    def _embedding(self, node, rows):
        return self.get(node.args[0]) is None and self.get(node.args[1]) == rows

    def _layer_norm(self, node, rows):
        own, rank = self.get(node.args[0]), node.args[0].meta["val"].dim()
        return own == rows is not None and own.dim < rank - len(node.args[1]) and not any(map(self.get, node.args[2:]))

    _rms_norm = _layer_norm

    def _group_norm(self, node, rows):
        return self._has_samples_first(node, node.args[0].meta["val"].dim(), rows) and rows.inner == self.get(node.args[0]).inner

    def _batch_norm(self, node, rows):
        is_training = get_argument(node, "training", "no_training" not in node.target._schema.name)
        return not is_training and self._group_norm(node, rows)

    def _instance_norm(self, node, rows):
        return get_argument(node, "running_mean") is None and self._group_norm(node, rows)

    def _matmul(self, node, rows):
        (left, own), (right, other) = self.list_operands(node)[-2:]
        ranks = left.meta["val"].dim(), right.meta["val"].dim()
        if rows is None or min(ranks) < 2:
            return False
        rank = node.meta["val"].dim()
        left_place = None if own is None else own.dim + rank - ranks[0]
        right_place = None if other is None else other.dim + rank - ranks[1]
        if right_place is not None and (right_place >= rank - 2 or left_place not in (None, right_place)):
            return False
        if left_place is not None and left_place == rank - 1:
            return False
        return {left_place, right_place} <= {None, rows.dim} and all(each is None or each.inner == rows.inner for each in (own, other))

    _bmm = _mm = _matmul

    def _addmm(self, node, rows):
        return self.get(node.args[0]) is None and self.get(node.args[2]) is None and self.get(node.args[1]) == rows is not None and rows.dim == 0

    def _scaled_dot_product_attention(self, node, rows):
        rank = node.args[0].meta["val"].dim()
        if rows is None or rows.dim >= rank - 2:
            return False
        for value, own in self.list_operands(node):
            if own is not None and (own.dim + rank - value.meta["val"].dim() != rows.dim or own.inner != rows.inner):
                return False
        return True

    def _expand(self, node, rows):
        own, value = self.get(node.args[0]), node.args[0].meta["val"]
        return own is None or rows is not None and own.dim + node.meta["val"].dim() - value.dim() == rows.dim and own.inner == rows.inner

    _expand_as = _broadcast_to = _expand

    def _permute(self, node, rows):
        own, rank = self.get(node.args[0]), node.meta["val"].dim()
        order = [int(dim) % rank for dim in get_argument(node, "dims")]
        return own is not None and rows == own._replace(dim=order.index(own.dim))

    def _transpose(self, node, rows):
        own, rank = self.get(node.args[0]), node.meta["val"].dim()
        first, second = (int(dim) % rank for dim in node.args[1:3])
        place = second if own and own.dim == first else first if own and own.dim == second else own and own.dim
        return own is not None and rows == own._replace(dim=place)

    def _t(self, node, rows):
        own = self.get(node.args[0])
        return own is not None and rows == own._replace(dim=1 - own.dim if node.meta["val"].dim() == 2 else own.dim)

    def _cat(self, node, rows):
        rank = node.meta["val"].dim()
        along = int(get_argument(node, "dim", 0)) % rank
        return rows is not None and rows.dim != along and all(own is None or own == rows for _, own in self.list_operands(node))

    def _stack(self, node, rows):
        rank = node.meta["val"].dim()
        along = int(get_argument(node, "dim", 0)) % rank
        return rows is not None and rows.dim != along and all(
            own is None or own._replace(dim=own.dim + (own.dim >= along)) == rows for _, own in self.list_operands(node))

    def _pad(self, node, rows):
        own, rank = self.get(node.args[0]), node.meta["val"].dim()
        return own == rows is not None and own.dim < rank - len(node.args[1]) // 2

    _constant_pad_nd = _pad

    def _index(self, node, rows):
        """Each sample's own row, of what has samples; or rows of a table."""
        own, given = self.get(node.args[0]), node.args[1]
        places = [place for place, index in enumerate(given) if index is not None]
        if rows is None or places != list(range(places[0], places[-1] + 1)) or own is not None and (own.dim not in places or own.inner != 1):
            return False
        if own is not None and given[own.dim] not in self.numbers or any(index.meta["val"].dtype == torch.bool for index in filter(None, given)):
            return False
        rank = max(given[place].meta["val"].dim() for place in places)
        return all(other is None or other._replace(dim=places[0] + other.dim + rank - given[place].meta["val"].dim()) == rows
                   for place in places for other in [self.get(given[place])])

    def _one_hot(self, node, rows):
        return self.get(node.args[0]) == rows

    def _slice_scatter(self, node, rows):
        """Elements of a sample are those of the same sample, or all samples' are replaced."""
        value, source = (argument.meta["val"] for argument in node.args[:2])
        along, step = int(get_argument(node, "dim", 0)) % value.dim(), get_argument(node, "step", 1)
        if rows is None or any(own not in (None, rows) for own in map(self.get, node.args[:2])):
            return False
        return rows.dim != along or value.shape == source.shape and step == 1

    def _select_scatter(self, node, rows):
        along = int(node.args[2]) % node.meta["val"].dim()
        own, source = self.get(node.args[0]), self.get(node.args[1])
        return rows is not None and rows.dim != along and own in (None, rows) and (
            source is None or source._replace(dim=source.dim + (source.dim >= along)) == rows)

    def _recurrent(self, node, rows):
        """Layers over a sequence, whose states have samples second; not over packed sequences."""
        if node.target._overloadname != "input":
            return False
        dim = 0 if get_argument(node, "batch_first") else 1
        states = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[1]]
        return (self.get(node.args[0]) == Rows(dim, 1) and node.args[0].meta["val"].dim() == 3
                and all(self.get(state) == Rows(1, 1) for state in states) and not any(map(self.get, node.args[2])))

    _lstm = _gru = _rnn_tanh = _rnn_relu = _recurrent


def _split(value: torch.Tensor, own: Rows, result: torch.Tensor, rows: Rows) -> Rows:
    """What is flattened along the samples' dimension of a reshaped tensor: in front of samples, and behind them."""
    behind = 1
    for size in result.shape[rows.dim + 1:]:
        behind *= size
    inner, rest = divmod(_count_piece(value, own), behind)
    return rows if rest or not inner or rows.inner % inner else Rows(rows.dim, inner, rows.inner // inner)


def _count_piece(value: torch.Tensor, rows: Rows) -> int:
    """Elements of a sample that lie in one piece."""
    count = rows.inner
    for size in value.shape[rows.dim + 1:]:
        count *= size
    return count


def find_rows(program: torch.export.ExportedProgram, other: torch.export.ExportedProgram, count: int, fewer: int) -> SampleRows:
    """What is known of the values of a program for `count` samples, by one that is alike for `fewer`.

    Raises `Mixed` where samples may meet otherwise than in a sum.
    """
    rules = _Rules()
    for node, twin in zip(program.graph.nodes, other.graph.nodes):
        if node.op == "output":
            if any(own is not None and own.outer > 1 for own in map(rules.get, pytree.tree_leaves(node.args))):
                raise Mixed("a result whose samples do not lie in one piece")
            continue
        left, right = node.meta.get("val"), twin.meta.get("val")
        if isinstance(left, (list, tuple)):
            rows = [_compare_shapes(a, b, count, fewer, node) for a, b in zip(left, right)]
        else:
            rows = _compare_shapes(left, right, count, fewer, node)
        if isinstance(rows, Rows) and node.op == "call_function":
            rows = rules.split(node, rows)
        rules.rows[node] = rows
        if node.op == "placeholder" and rows is not None and rows != Rows(0, 1):
            raise Mixed(f"input '{node.name}', whose samples do not lie along its first dimension")
        if node.op != "call_function":
            continue
        if any(own is not None for _, own in rules.list_operands(node)) or name_of(node) == "getitem":
            whole = next((each for each in rows if each is not None), None) if isinstance(rows, list) else rows
            if not rules.keeps(node, whole):
                raise Mixed(name_of(node))
            rules.note_numbers(node, rows)
        elif rows is not None and name_of(node) not in _SIZED:
            raise Mixed(name_of(node))
        elif rows is not None:
            rules.note_numbers(node, rows)
    return SampleRows(rules.rows, rules.sums)
