# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the side of a branch changes where the branch is not taken because a mask chooses nothing: nothing, if all that leaves it is
written by that mask, or is a sum over the rows that it chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental import symbolic_shapes
from torch.utils import _pytree as pytree

from ..intervals import BETWEEN
from ..regions import argument_of, is_other_name, list_written, looks_at
from .amounts import Amounts, is_amount
from .edges import WHEN

__all__ = ["Nothing", "VIEWS", "find_base", "find_root", "find_source", "find_whole", "name_of"]


def name_of(node: Any) -> str:
    """ "index_add", of index_add and index_add_; empty if it is no operator of aten."""
    target = node.target if isinstance(node, torch.fx.Node) and node.op == "call_function" else None
    schema = getattr(target, "_schema", None)
    name = schema.name.removeprefix("aten::") if schema is not None and schema.name.startswith("aten::") else ""
    return name if name.endswith("__") else name.removesuffix("_")


VIEWS = {"view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "t", "permute", "select", "slice", "expand", "unflatten",
          "swapaxes", "movedim", "narrow", "diagonal", "alias", "detach", "view_as", "expand_as", "contiguous"}
#: Of nothing but zeros they make zeros.
_KEEP_ZERO = {*VIEWS, "clone", "to", "_to_copy", "type_as", "neg", "sum", "abs", "relu", "mean", "index", "index_select", "gather"}
#: Sums over what is multiplied: of nothing they are zero.
_PRODUCTS = {"mm", "matmul", "bmm", "einsum", "dot", "linear"}
_ONE_OF_EACH = {"sum", "nansum", "count_nonzero"}
_LOSSES = {"cross_entropy_loss", "nll_loss", "nll_loss_nd", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
           "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss", "poisson_nll_loss"}
_EITHER = ("logical_or", "bitwise_or", "__or__")
_COMPARISONS = {"gt", "ge", "lt", "le", "eq", "ne"}
#: Of what is false everywhere they make what is false everywhere.
_KEEP_FALSE = {*VIEWS, "any", "clone", "to", "_to_copy", "max", "amax", "sum", "count_nonzero", "index", "index_select", "gather"}
_INDEX_AT = {"index_add": 2, "index_copy": 2, "index_reduce": 2, "scatter": 2, "scatter_add": 2, "scatter_reduce": 2}


def _find_viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a view looks at, or a part of one in several parts."""
    if name_of(node) in VIEWS or node.target is WHEN:
        return node.args[0]
    return None if is_other_name(node) else looks_at(node)


def _find_written(node: torch.fx.Node) -> torch.fx.Node | None:
    """What the result of a write is another name for."""
    return looks_at(node) if is_other_name(node) else None


def find_root(node: torch.fx.Node) -> torch.fx.Node:
    """What a view looks at."""
    while (source := _find_viewed(node)) is not None:
        node = source
    return node


def find_whole(node: torch.fx.Node) -> torch.fx.Node:
    """What results of writes are other names for."""
    while (written := _find_written(node)) is not None:
        node = written
    return node


def find_source(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a view looks at, or the result of a write was written to."""
    return _find_viewed(node) or _find_written(node)


def find_base(node: torch.fx.Node) -> torch.fx.Node:
    """The tensor that a node is a name for."""
    while (source := find_source(node)) is not None:
        node = source
    return node


def _symbols_of(node: torch.fx.Node) -> set[sympy.Symbol]:
    value = node.meta.get("val")
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in symbolic_shapes.free_unbacked_symbols(size)}


class Nothing:
    """What is known in a program while the condition of one branch is false, or true where the body is the other side's; `others` are
    branches whose conditions are false, too."""

    def __init__(self, program: torch.export.ExportedProgram, marker: torch.fx.Node, body: Sequence[torch.fx.Node], is_other: bool = False,
                 others: Sequence[torch.fx.Node] = ()):
        self.body, self.marker = set(body), marker
        self._body = list(body)
        self._nodes = list(program.graph.nodes)
        self._keys: dict[torch.fx.Node, Any] = {}
        self._written = {find_root(written) for node in self._nodes for written in list_written(node)}
        self._zero: dict[torch.fx.Node, bool] = {}
        self.mask: torch.fx.Node | None = None
        self._false: set[Any] = set()
        self._empty: set[sympy.Symbol] = set()
        self.amounts = Amounts(lambda node: None if self.is_written(node) else self.key_of(node))
        for branch in (marker, *others):
            (self._take_true if is_other else self._take)(branch.args[0])
            self.amounts.learn(branch.args[0], is_other)
        self._follow()

    def is_written(self, node: torch.fx.Node) -> bool:
        """Whether anything writes to it, or to what it looks at."""
        return find_root(node) in self._written

    # What the condition says

    def _take(self, node: torch.fx.Node) -> None:
        """`node` is false, or nothing but zeros."""
        self._false.add(self.key_of(node))
        name = name_of(node)
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype is torch.bool:
            self.mask = node if value.dim() else self.mask
        if name in ("any", "clone", "to", "_to_copy", "view", "reshape", "squeeze", "unsqueeze", "flatten", "detach", "alias", "lift_fresh",
                    "contiguous"):
            self._take(node.args[0])
        elif name in ("sum", "count_nonzero", "max", "amax") and node.args[0].meta["val"].dtype is torch.bool:
            self._take(node.args[0])
        elif name in _EITHER:
            self._take(node.args[0])
            self._take(node.args[1])
        elif name in ("gt", "ne", "ge") and not isinstance(node.args[1], torch.fx.Node) and \
                (node.args[1] == 0 and name in ("gt", "ne") or node.args[1] == 1 and name == "ge"):
            self._take_count(node.args[0])
        elif name in _COMPARISONS and node.args[0].meta["val"].dtype is not torch.bool:
            self._take_count(node.args[0], is_zero=False)

    def _take_true(self, node: torch.fx.Node) -> None:
        """`node` is true."""
        name = name_of(node)
        if name in ("clone", "to", "_to_copy", "view", "reshape", "squeeze", "unsqueeze", "flatten", "detach", "alias", "lift_fresh", "contiguous") \
                or name == "ne" and not isinstance(node.args[1], torch.fx.Node) and node.args[1] == 0 \
                and node.args[0].meta["val"].dtype is torch.bool:
            self._take_true(node.args[0])
        elif name in ("logical_not", "bitwise_not"):
            self._take(node.args[0])
        elif name in _COMPARISONS and not isinstance(node.args[1], torch.fx.Node) and node.args[0].meta["val"].dtype is not torch.bool:
            self._take_count(node.args[0], is_zero=(name, node.args[1]) in (("eq", 0), ("le", 0), ("lt", 1)))

    def _take_count(self, node: torch.fx.Node, is_zero: bool = True) -> None:
        """What counts is zero, or few."""
        if not is_zero:
            self._take_few(node)
        elif name_of(node) == "scalar_tensor" and isinstance(node.args[0], torch.fx.Node):
            self._empty |= {symbol for symbol in _symbols_of(node.args[0]) if node.args[0].meta["val"].node.expr == symbol}
            mask = self._find_mask(self._empty)
            if mask is not None:
                self._take(mask)
        elif name_of(node) in VIEWS and name_of(find_root(node)) in ("any", *_EITHER):
            self._take(find_root(node))
        elif name_of(node) in ("sum", "count_nonzero", "clone", "to", "_to_copy", "detach", "any"):
            inner = node.args[0].meta.get("val")
            if isinstance(inner, torch.Tensor) and (inner.dtype is torch.bool or name_of(node) not in ("sum", "count_nonzero")):
                self._take(node.args[0]) if inner.dtype is torch.bool else self._take_count(node.args[0])
            elif name_of(node) == "sum":  # (x > 0).long().sum()
                self._take_count(node.args[0])

    def _find_mask(self, counts: set[sympy.Symbol]) -> torch.fx.Node | None:
        """What chooses so many rows."""
        maker = next((other for other in self._nodes if name_of(other) in ("nonzero", "where", "index", "masked_select", "nonzero_numpy")
                      and any(_symbols_of(part) & counts for part in (other, *other.users))), None)
        if maker is not None and name_of(maker) in ("nonzero", "where", "nonzero_numpy") and len(maker.args) == 1:
            return maker.args[0]
        masks = [index for index in maker.args[1] if index is not None and index.meta["val"].dtype is torch.bool] \
            if maker is not None and name_of(maker) == "index" else []
        return masks[0] if len(masks) == 1 else None

    def _take_few(self, node: torch.fx.Node) -> None:
        """A mask chooses few rows, of which there may be none."""
        name = name_of(node)
        inner = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if name == "scalar_tensor" and inner is not None:
            self.mask = self._find_mask(_symbols_of(inner))
        elif name in ("sum", "count_nonzero") and inner is not None and inner.meta["val"].dtype is torch.bool:
            self.mask = inner
        elif name in ("sum", "clone", "to", "_to_copy", "detach") and inner is not None:
            self._take_few(inner)

    def _follow(self) -> None:
        for node in self._nodes:
            name = name_of(node)
            if name in _KEEP_FALSE and isinstance(node.args[0], torch.fx.Node) and self._is_false(node.args[0]) or \
                    name in ("logical_and", "bitwise_and", "__and__", "mul") and any(
                        isinstance(part, torch.fx.Node) and self._is_false(part) for part in node.args):
                self._false.add(self.key_of(node))
            makes = name in ("nonzero", "nonzero_numpy") or name == "where" and len(node.args) == 1
            mask = node.args[0] if makes else node.args[1] if name == "masked_select" else None
            if name == "index":
                mask = next((index for index in node.args[1] if index is not None and self._is_false(index)
                             and index.meta["val"].dtype is torch.bool), None)
            if node.target is BETWEEN and self.amounts.are_equal(*node.args[:2]):
                self._false.add(self.key_of(node))
            if isinstance(node.meta.get("val"), torch.SymInt) and node.meta["val"].node.expr.is_Symbol and self.amounts.is_zero(node):
                self._empty |= _symbols_of(node)
            cuts_nothing = name == "slice" and len(node.args) == 4 and all(map(is_amount, node.args[2:])) and self.amounts.are_equal(*node.args[2:])
            if cuts_nothing or isinstance(mask, torch.fx.Node) and self._is_false(mask):
                for part in (node, *node.users):
                    self._empty |= _symbols_of(part) - {symbol for argument in node.all_input_nodes for symbol in _symbols_of(argument)}

    def key_of(self, node: Any) -> Any:
        """Equal for what is computed alike, of what is written to nowhere."""
        if not isinstance(node, torch.fx.Node):
            return repr(node)
        if node not in self._keys:
            schema = getattr(node.target, "_schema", None)
            leaves, tree = pytree.tree_flatten((node.args, dict(node.kwargs)))
            takes_written = any(isinstance(leaf, torch.fx.Node) and self.is_written(leaf) for leaf in (node, *leaves))
            if schema is None or schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags or takes_written:
                self._keys[node] = node
            else:
                key = (node.target, str(tree), *map(self.key_of, leaves))
                self._keys[node] = self._keys.setdefault(key, node)
        return self._keys[node]

    def list_equal(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        return [other for other in self._nodes if self.key_of(other) is self.key_of(node)]

    def follows_from_mask(self, node: torch.fx.Node) -> bool:
        """Whether it is the mask, the rows that it chooses, or what says which these are."""
        if self.mask is None:
            return False
        if self.key_of(node) is self.key_of(self.mask):
            return True
        own = [argument for argument in node.all_input_nodes if self.follows_from_mask(argument)] if node not in self.body else []
        schema = getattr(node.target, "_schema", None)
        return bool(own) and not (schema is not None and schema.is_mutable) and node.op == "call_function" and (
            bool(_symbols_of(node)) or self._is_false(node) or name_of(node) in ("nonzero", "nonzero_numpy", "where")
            or any(_symbols_of(user) for user in node.users))

    # What follows

    def _is_false(self, node: torch.fx.Node) -> bool:
        return self.key_of(node) in self._false

    def is_empty(self, node: Any) -> bool:
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if not isinstance(value, torch.Tensor) or not self._empty:
            return False
        sizes = [size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size) for size in value.shape]
        return any(size.subs({symbol: 0 for symbol in self._empty}) == 0 for size in sizes)

    def is_none(self, node: torch.fx.Node) -> bool:
        """Whether it is a number of rows of which there are none."""
        value = node.meta.get("val")
        return isinstance(value, torch.SymInt) and value.node.expr in self._empty

    def is_zero(self, node: Any) -> bool:
        """Whether it has nothing but zeros."""
        if not isinstance(node, torch.fx.Node):
            return isinstance(node, (int, float)) and node == 0
        if node not in self._zero:
            self._zero[node] = False
            self._zero[node] = self._find_zero(node)
        return self._zero[node]

    def _find_zero(self, node: torch.fx.Node) -> bool:
        if self._is_false(node):
            return True
        name = name_of(node)
        if name in ("zeros", "zeros_like", "new_zeros") and find_root(node) not in self._written:
            return True
        if name in _ONE_OF_EACH and self.is_empty(node.args[0]) and not self.is_empty(node):
            return True
        if name in _PRODUCTS and not self.is_empty(node) and name != "linear" and any(
                self.is_empty(part) for part in pytree.tree_leaves(node.args)):
            return True
        if name in _LOSSES and self.is_empty(node.args[0]):
            reduction = next((argument_of(node, place, "reduction") for place, parameter in enumerate(node.target._schema.arguments)
                              if parameter.name == "reduction"), 1)
            return reduction == 2
        if name == "mul":
            return any(map(self.is_zero, node.args[:2]))
        if name in ("add", "sub"):
            return all(map(self.is_zero, node.args[:2]))
        if name == "div":
            return self.is_zero(node.args[0]) and self._is_positive(node.args[1])
        if name in _KEEP_ZERO and node.args and isinstance(node.args[0], torch.fx.Node) and not self.is_empty(node.args[0]):
            return self.is_zero(node.args[0])
        return False

    @staticmethod
    def _is_positive(value: Any) -> bool:
        """Whether it is never zero."""
        if not isinstance(value, torch.fx.Node):
            return isinstance(value, (int, float)) and value != 0
        limit = argument_of(value, 1, "min") if name_of(value) in ("clamp", "clamp_min") else None
        return isinstance(limit, (int, float)) and limit > 0

    def find_kept(self, node: torch.fx.Node) -> int | None:
        """The place of the argument that a node of the side is equal to."""
        name = name_of(node)
        first = node.args[0] if node.args else None
        if name in ("add", "sub") and isinstance(first, torch.fx.Node) and self.is_zero(node.args[1]):
            place = 0
        elif name == "add" and self.is_zero(first) and isinstance(node.args[1], torch.fx.Node):
            place = 1
        elif self._writes_nothing(node) is True or name in ("clone", "alias"):
            place = 0
        elif name == "where" and len(node.args) == 3 and self._is_false(node.args[0]):
            place = 2
        else:
            return None
        are_tensors = all(isinstance(other.meta.get("val"), torch.Tensor) for other in (node.args[place], first))
        return place if are_tensors else None

    def value_before(self, node: torch.fx.Node) -> torch.fx.Node | None:
        """The value from outside the side that this one is equal to."""
        while node in self.body:
            place = self.find_kept(node)
            if place is None:
                return None
            node = node.args[place]
        return node

    def list_kept(self) -> dict[torch.fx.Node, int]:
        """The nodes of the side that are equal to a value from outside, each with the place of the argument that it is equal to."""
        kept = {node: self.find_kept(node) for node in self._body if self.value_before(node) is not None}
        return {node: place for node, place in kept.items() if place is not None}

    def _writes_nothing(self, node: torch.fx.Node) -> bool | None:
        """Whether a write, in place or not, leaves all as it is; None of what is no write."""
        name = name_of(node)
        if name == "index_put":
            return any(index is not None and (self._is_false(index) and index.meta["val"].dtype is torch.bool or self.is_empty(index))
                       for index in node.args[1])
        if name in _INDEX_AT:
            return self.is_empty(argument_of(node, _INDEX_AT[name], "index"))
        if name in ("masked_fill", "masked_scatter"):
            return self._is_false(node.args[1])
        if name in ("add", "sub") and next(list_written(node), None) is not None:
            return self.is_zero(node.args[1])
        if name == "copy":
            return self.is_empty(node.args[0]) or isinstance(node.args[1], torch.fx.Node) and self.value_before(node.args[1]) is node.args[0]
        return None

    def writes_nothing(self) -> bool:
        """Whether what the side writes to tensors from outside leaves them as they are."""
        return all(find_root(written) in self.body or self._writes_nothing(node) is True
                   for node in self._body for written in list_written(node))
