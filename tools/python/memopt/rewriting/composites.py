# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that are made of others: on lists of tensors, copies, and second names of pointwise ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp.decompositions import _chunk_cat
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..errors import Refused
from .complex_values.pairs import Pair

__all__ = ["RULES", "list_parts", "replace_synonyms"]


def _at_least(rank: int) -> Callable:
    def one(x):
        if isinstance(x, Pair):
            return Pair(*map(one, x))
        if rank == 3 and 0 < x.dim() < 3:
            return x[None, :, None] if x.dim() == 1 else x[:, :, None]
        return x.reshape([1] * (rank - x.dim()) + list(x.shape)) if x.dim() < rank else x

    def rule(engine, target, arguments, keywords):
        x = arguments[0]
        return [one(part) for part in x] if isinstance(x, (list, tuple)) else one(x)
    return rule


# ----------------------------------------------------------------------------------------------------------
# What PyTorch makes of them
# ----------------------------------------------------------------------------------------------------------

class _Seen(TorchDispatchMode):
    """The operators that run."""

    def __init__(self):
        super().__init__()
        self.targets: list[torch._ops.OpOverload] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.targets.append(function)
        return function(*args, **kwargs or {})


def _is_composite(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "aten" \
        and torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")


def list_parts(target: Any, arguments: tuple, keywords: dict) -> list[torch._ops.OpOverload]:
    """The operators that one is made of, for arguments as these; none of one that is not made of others."""
    if not _is_composite(target):
        return []
    with _disable_current_modes(), torch.no_grad():
        given, named = pytree.tree_map_only(
            torch.Tensor, lambda value: torch.empty([size if isinstance(size, int) else 2 for size in value.shape], dtype=value.dtype,
                                                    device="meta"), (arguments, keywords))
        try:
            with _Seen() as seen:
                target(*given, **named)
        except Exception:  # it asks for values, say
            return []
    return seen.targets


def _take_alike(target: torch._ops.OpOverload, other: torch._ops.OpOverload) -> bool:
    first, second = ([(str(argument.type), argument.default_value if argument.has_default_value() else None)
                      for argument in operator._schema.arguments] for operator in (target, other))
    return target is not other and first == second


def replace_synonyms(program: torch.export.ExportedProgram) -> None:
    """`torch.arctan2` is `atan2`, and `torch.greater` is `gt`, in place."""
    found: dict[torch._ops.OpOverload, torch._ops.OpOverload] = {}

    def find(node: torch.fx.Node) -> torch._ops.OpOverload:
        given = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda argument: argument.meta.get("val"))
        if not all(value is None or isinstance(value, (torch.Tensor, bool, int, float, str)) for part in given for value in
                   (part.values() if isinstance(part, dict) else part)):
            return node.target
        parts = list_parts(node.target, *given)
        is_synonym = len(parts) == 1 and torch.Tag.pointwise in parts[0].tags and _take_alike(node.target, parts[0])
        return parts[0] if is_synonym else node.target

    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if node.op == "call_function" and _is_composite(node.target):
                node.target = found.get(node.target) or found.setdefault(node.target, find(node))
        if isinstance(part, torch.fx.GraphModule):
            part.recompile()


# ----------------------------------------------------------------------------------------------------------
# Numbers apart
# ----------------------------------------------------------------------------------------------------------

def _power_of_two(exponent: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Exactly, of integers up to 511: a product of what their bits stand for."""
    count, result = exponent.abs(), torch.ones((), dtype=dtype)
    for bit in range(9 if dtype == torch.float64 else 7):
        result = result * torch.where(count.bitwise_and(1 << bit) != 0, torch.tensor(2.0 ** (1 << bit), dtype=dtype), 1.0)
    return torch.where(exponent < 0, 1 / result, result)


def _frexp(x):
    """x = mantissa * 2^exponent, with a mantissa of 1/2 and more. The logarithm may be one off."""
    size = x.detach().abs()
    is_number = (size > 0) & size.isfinite()
    size = torch.where(is_number, size, 1.0)
    exponent = size.log2().floor().to(torch.int32) + 1
    half = exponent // 2  # the power of the whole may be no number
    scale, other = _power_of_two(-half, x.dtype), _power_of_two(half - exponent, x.dtype)
    found = size * scale * other
    off = (found >= 1).to(torch.int32) - (found < 0.5).to(torch.int32)
    mantissa = x * scale * other * torch.where(off > 0, 0.5, torch.where(off < 0, 2.0, 1.0)).to(x.dtype)
    return torch.where(is_number, mantissa, x), torch.where(is_number, exponent + off, 0)


def _resize_as(x, template, *, memory_format=None):
    if x.numel() != template.numel():
        raise Refused(f"resize_as of {list(x.shape)} to {list(template.shape)} is not supported, as the memory behind a tensor is none of a "
                      "step's; tensors of as many elements are")
    return x.reshape(template.shape)


def _as_rule(function: Callable) -> Callable:
    return lambda engine, target, arguments, keywords: function(*arguments, **keywords)


RULES = {**{f"aten::atleast_{rank}d": _at_least(rank) for rank in (1, 2, 3)},
         **{f"aten::{name}": _as_rule(function) for name, function in {
             "frexp": _frexp, "resize_as": _resize_as, "resize_as_": _resize_as, "_chunk_cat": _chunk_cat}.items()},
         "aten::alias_copy": lambda engine, target, arguments, keywords: engine.call(torch.ops.aten.clone.default, (arguments[0],), {})}
