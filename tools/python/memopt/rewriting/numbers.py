# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers of Python that follow from the data, `place = int(self.place)`: tensors of one element in the program.

    self.queue[:, place:place + 4] = keys.T
    self.place[0] = (place + 4) % self.queue.shape[1]

While the model is traced, a slice that begins at such a number and has a known length is what stands at a list of places, and an index to
write at is a tensor. What else depends on the number, arithmetic and operators that take a scalar, is rewritten here.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes
from torch.utils import _pytree as pytree

from ..errors import UNKNOWN_NUMBER, Refused
from .bounds import FEWEST

__all__ = ["Number", "PART_AT", "RULES", "as_truth", "calculate", "call", "fill", "find_length", "follows_from_data", "is_number",
           "is_truth_of_data", "list_cuts", "narrow", "select", "take_slice", "write"]

_library = torch.library.Library("memopt", "FRAGMENT")
#: What x has at these places, as a copy; `RULES` has it for the view that it is in PyTorch.
_library.define("part_at(Tensor x, int dim, Tensor places) -> Tensor")
_library.impl("part_at", lambda x, dim, places: x.index_select(dim, places), "CompositeExplicitAutograd")
torch.library.register_fake("memopt::part_at", lambda x, dim, places: x.index_select(dim, places), lib=_library)


def _keep_places(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    x, ctx.dim, places = inputs
    ctx.sizes = x.shape
    ctx.save_for_backward(places)


def _add_at(ctx: Any, gradient: torch.Tensor) -> tuple:
    return gradient.new_zeros(ctx.sizes).index_add(ctx.dim, ctx.saved_tensors[0], gradient), None, None


torch.library.register_autograd("memopt::part_at", _add_at, setup_context=_keep_places, lib=_library)
PART_AT = torch.ops.memopt.part_at.default

#: Operators that make a tensor of one number, and where that is among their arguments.
_FILLED = {"full": 1, "full_like": 1, "new_full": 2}
#: No size is as large.
_LARGE = 2 ** 40


def _choose_extreme(name: str) -> Callable:
    def choose(a, b):
        number, other = (a, b) if isinstance(a, torch.Tensor) else (b, a)
        return number.clamp(**{name: other})
    return choose


#: What takes tensors for numbers as it is.
_OF_PYTHON = {operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.neg, operator.pow,
              operator.and_, operator.or_, operator.ge, operator.le, operator.lt, operator.gt, operator.eq, operator.ne}
_FUNCTIONS = {**{function: function for function in _OF_PYTHON}, torch.sym_max: _choose_extreme("min"), torch.sym_min: _choose_extreme("max"),
              torch.sym_float: lambda x: x.to(torch.get_default_dtype()), torch.sym_ite: torch.where, torch.sym_not: torch.logical_not}


class Number:
    """A number, or a truth value, as a tensor of one element; `value` is what the program says that it is, as where it is the size of
    another tensor. Then `roots` are the numbers of the data that it follows from."""

    def __init__(self, tensor: torch.Tensor, roots: tuple[Number, ...] = ()):
        self.tensor, self.roots = tensor, roots or (self,)
        self.value: int | None = None
        #: How it was computed: equal where that was done alike.
        self.way: Any = None
        #: The most that it can be, and what has the same key has the same number.
        self.most: int | None = None
        self.key: Any = None
        #: Of a truth value: torch.export need not assert it, for it is proven, or was taken for granted while the model was traced.
        self.is_assumed = False

    def know(self, traced: Any, cuts: Mapping[Any, int]) -> None:
        """From the number of the trace that the program is of, and what such numbers cut."""
        if isinstance(traced, torch.SymInt):
            env = traced.node.shape_env
            known = env.simplify(traced.node.expr)
            self.value = int(known) if known.is_number else None
            if not known.is_number:
                upper = env.bound_sympy(known).upper
                limits = [self.most, int(upper) if upper.is_finite and upper < _LARGE else None, cuts.get(known)]
                self.most = min((limit for limit in limits if limit is not None), default=None)


def is_number(value: Any) -> bool:
    return isinstance(value, Number)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, Number):
        return value.tensor
    return value.tensor() if hasattr(value, "rows") else value


def calculate(target: Any, arguments: tuple) -> Number | None:
    """Arithmetic and comparisons of Python; None of what is neither."""
    if target not in _FUNCTIONS:
        return None
    roots = dict.fromkeys(root for value in arguments if isinstance(value, Number) for root in value.roots)
    result = Number(_FUNCTIONS[target](*map(_as_tensor, arguments)), tuple(roots))
    if target is operator.ge and is_number(arguments[0]) and arguments[0].key is not None and arguments[1] == FEWEST:
        result.is_assumed = True
    return result


def _expect(engine: Any, condition: Number, text: str) -> None:
    """What torch.export asserts of numbers that follow from the data becomes a check of the step."""
    if condition.is_assumed:
        return
    if all(root.value is not None for root in condition.roots):
        for root in condition.roots:
            engine.expect(root.tensor == root.value, f"a number that follows from the data has to be {root.value}, for the sizes of other "
                          "tensors fix it", root)
        return
    found = re.search(r"expression (.*) on node", text)
    said = re.sub(r"\b[uz]f?\d+\b", "n", found[1]) if found else text
    for function, sign in (("Mod", "%"), ("Eq", "="), ("Ne", "!=")):
        said = re.sub(rf"\b{function}\(([^,()]*), ([^,()]*)\)", rf"\1 {sign} \2", said)
    engine.expect(condition.tensor, f"expected {said}, where n follows from the data", condition)


def list_cuts(graph: torch.fx.Graph) -> dict[Any, int]:
    """By the symbols of numbers that slices end at, as in `x[:, :longest]`: how long what is cut is, at least."""
    cuts: dict[Any, int] = {}
    for node in graph.nodes:
        if node.target is torch.ops.aten.slice.Tensor and len(node.args) > 3 and isinstance(node.args[3], torch.fx.Node):
            size, end = node.args[0].meta["val"].shape[node.args[1]], node.args[3].meta["val"]
            if isinstance(size, int) and isinstance(end, torch.SymInt):
                symbol = end.node.shape_env.simplify(end.node.expr)
                cuts[symbol] = min(size, cuts.get(symbol, size))
    return cuts


def _item(engine, target, arguments, keywords):
    x = arguments[0]
    if not isinstance(x, torch.Tensor):
        return target(x)
    number = Number(x.detach().reshape(()).clone())  # which a later write to a buffer leaves as it is
    bounds = engine.bounds.get(x)
    number.most, number.key = None if bounds is None else bounds[1], ("number", engine.key_of(x))
    number.way = number.key
    return number


def _scalar_tensor(value: Number, keywords: dict) -> torch.Tensor:
    return value.tensor.to(keywords.get("dtype") or torch.get_default_dtype())


def _expect_where(engine: Any, condition: Number, taken: torch.Tensor, text: str) -> None:
    with engine.taking(taken):
        _expect(engine, condition, text)


_ASSERTS = {"_assert_scalar": _expect, "memopt::expected": _expect_where}


def fill(engine: Any, target: Any, arguments: tuple, keywords: dict) -> Any:
    """A tensor of one number, as of a zero that the number is written over; None of other operators."""
    place = _FILLED.get(getattr(target, "_opname", ""))
    if place is None or not is_number(arguments[place]):
        return None
    value = arguments[place].tensor
    zero = 0.0 if value.is_floating_point() else 0  # which has the same type
    whole = engine.call(target, (*arguments[:place], zero), keywords)
    return engine.call(torch.ops.aten.copy.default, (whole, value), {})


def call(engine: Any, target: Any, arguments: tuple, keywords: dict) -> Any:
    """An operator with numbers among its arguments."""
    if target is operator.getitem and isinstance(arguments[0], (tuple, list)):  # what a region without gradients gives
        return target(*arguments)
    result = calculate(target, arguments)
    if result is not None:
        result.way = target.__name__, *map(engine.key_of_number, arguments)
        return result
    name = target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else ""
    if name in _ASSERTS:
        return _ASSERTS[name](engine, *arguments)
    if name == "scalar_tensor":
        return _scalar_tensor(arguments[0], keywords)
    if name == "select" and isinstance(arguments[0], torch.Tensor) and isinstance(arguments[2], Number) and isinstance(arguments[1], int):
        x, dim, place = arguments
        place = torch.where(place.tensor < 0, place.tensor + x.shape[dim], place.tensor)
        return _look_at(engine, x, dim, place.reshape(1), lambda part: part.squeeze(dim), lambda row: row.unsqueeze(dim))
    if name == "roll" and isinstance(arguments[0], torch.Tensor) and len(arguments) == 3 and len(arguments[1]) == len(arguments[2]) == 1:
        x, (shift,), (dim,) = arguments
        return x.index_select(dim, (torch.arange(x.shape[dim]) - shift.tensor).remainder(x.shape[dim]))
    numbers = [value for value in pytree.tree_leaves((arguments, keywords)) if isinstance(value, Number)]
    if name in ("fill", "fill_"):
        x, value = arguments[0], _as_tensor(arguments[1])
        return engine.call(torch.ops.aten.copy_.default if name == "fill_" else torch.ops.aten.copy.default, (x, value), {})
    if torch.Tag.pointwise in getattr(target, "tags", ()):
        overloads = getattr(torch.ops.aten, name)
        arguments = tuple(map(_as_tensor, arguments))
        tensors = "Tensor" if "Tensor" in overloads.overloads() else "default"
        return engine.call(getattr(overloads, tensors), arguments, keywords)
    if all(number.value is not None for number in numbers):
        arguments, keywords = pytree.tree_map_only(Number, lambda number: number.value, (arguments, keywords), is_leaf=is_number)
        return engine.call(target, arguments, keywords)
    raise Refused(UNKNOWN_NUMBER)


def _look_at(engine: Any, x: torch.Tensor, dim: int, places: torch.Tensor, squeeze: Callable = lambda part: part,
             unsqueeze: Callable = lambda part: part) -> torch.Tensor:
    """A view in PyTorch, which is a copy here: what is written to one of the two is written to the other."""
    dim %= x.dim()

    def read() -> torch.Tensor:
        return squeeze(x.index_select(dim, places))

    part = read()
    engine.views.add(part, x, read, lambda: x.index_copy(dim, places, unsqueeze(part)))
    return part


def _part_at(engine: Any, target: Any, arguments: tuple, keywords: dict) -> torch.Tensor:
    return _look_at(engine, *arguments)


#: What makes numbers; what is asserted of sizes that the program has is proven.
RULES = {"memopt::part_at": _part_at, "aten::item": _item, "aten::_local_scalar_dense": _item,
         **dict.fromkeys(("aten::_assert_scalar", "memopt::expected"), lambda engine, target, arguments, keywords: None)}


# ----------------------------------------------------------------------------------------------------------
# While a model is traced
# ----------------------------------------------------------------------------------------------------------

def follows_from_data(value: Any) -> bool:
    return isinstance(value, torch.SymInt) and bool(symbolic_shapes.free_unbacked_symbols(value))


def is_truth_of_data(value: Any) -> bool:
    return isinstance(value, torch.SymBool) and bool(symbolic_shapes.free_unbacked_symbols(value))


def as_truth(condition: torch.SymBool) -> torch.Tensor:
    return torch.scalar_tensor(torch.sym_ite(condition, 1, 0), dtype=torch.int64) != 0


def find_length(part: slice) -> int | None:
    """Of a slice that begins at a number which follows from the data, where that is known."""
    if not follows_from_data(part.start) or part.stop is None or part.step not in (None, 1):
        return None
    length = part.stop - part.start
    return length if isinstance(length, int) else length.node.maybe_as_int()


def _list_places(first: Any, length: int) -> torch.Tensor:
    return torch.arange(length) + torch.scalar_tensor(first, dtype=torch.int64)


def write(function: Any, x: torch.Tensor, index: Any, value: Any) -> None:
    """`x[..., place:place + 4] = value` and `x[place] = value`, where the place follows from the data. Numbers and slices beside it are
    taken first, for they would be others beside a tensor; the rest is left to PyTorch."""
    parts = list(index) if isinstance(index, tuple) else [index]
    lengths = [1 if follows_from_data(part) else find_length(part) if isinstance(part, slice) else None for part in parts]
    others = [part for part, length in zip(parts, lengths) if length is None]
    if len(parts) - len(others) != 1 or not all(part is Ellipsis or isinstance(part, slice) or type(part) is int for part in others):
        return function(x, index, value)
    if any(part is not Ellipsis and part != slice(None) for part in others):
        x = x[tuple(part if length is None else slice(None) for part, length in zip(parts, lengths))]
        left = [(part, length) for part, length in zip(parts, lengths) if type(part) is not int]
        parts = [part if length is not None or part is Ellipsis else slice(None) for part, length in left]
        lengths = [length for _, length in left]
    place = next(place for place, length in enumerate(lengths) if length is not None)
    part = parts[place]
    behind = len(parts) - place - 1 if any(other is Ellipsis for other in parts[:place]) else x.dim() - place - 1
    if not isinstance(part, slice) and isinstance(value, torch.Tensor) and value.dim() > behind:
        value = value.unsqueeze(value.dim() - behind)
    parts[place] = _list_places(part.start if isinstance(part, slice) else part, lengths[place])
    return function(x, tuple(parts), value)


def select(function: Any, x: torch.Tensor, dim: int, index: Any) -> torch.Tensor:
    """`select`, as PyTorch takes `x[place]` with one number in a tensor, at a place that follows from the data and may count from the end:
    a view that may be written to, which PyTorch's trace has not of such a place."""
    if not follows_from_data(index) or symbolic_shapes.statically_known_true(index >= 0) or not isinstance(x.shape[dim], int):
        return function(x, dim, index)
    return narrow(torch.narrow, x, dim, index, 1).squeeze(dim)


def take_slice(function: Any, x: torch.Tensor, dim: int = 0, start: Any = None, stop: Any = None, step: Any = 1) -> torch.Tensor:
    """A slice that begins at a number which follows from the data, and has a known length."""
    length = find_length(slice(start, stop, step))
    return function(x, dim, start, stop, step) if length is None else PART_AT(x, dim, _list_places(start, length))


def narrow(function: Any, x: torch.Tensor, dim: int, start: Any, length: int) -> torch.Tensor:
    """`narrow` from a place in a tensor, or from a number that follows from the data."""
    if not isinstance(start, torch.Tensor) and not follows_from_data(start) or not isinstance(length, int):
        return function(x, dim, start, length)
    first = start.reshape(()) if isinstance(start, torch.Tensor) else torch.scalar_tensor(start, dtype=torch.int64)
    return PART_AT(x, dim, torch.arange(length) + torch.where(first < 0, first + x.shape[dim], first))
