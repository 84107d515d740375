# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of torch.library.custom_op: what they compute, and the gradient that is registered with them."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..errors import Error, Refused
from .formulas import with_formula

__all__ = ["call", "has_formula"]


def _find(target: Any):
    if not isinstance(target, torch._ops.OpOverload):
        return None
    return torch._library.custom_ops.OPDEFS.get(target._schema.name)


def has_formula(target: Any) -> bool:
    return _find(target) is not None


def _multiply_groups(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Each row by the matrix of its group; a group ends where the next begins."""
    group = (torch.arange(x.shape[0])[:, None] >= ends).sum(1)
    nothing = torch.zeros((), dtype=x.dtype)
    return functools.reduce(torch.add, (torch.where((group == number)[:, None], x @ matrix, nothing)
                                        for number, matrix in enumerate(weight.unbind())))


#: Operators of libraries whose own code loops over numbers in tensors.
_KNOWN = {"transformers::grouped_mm_fallback": _multiply_groups}


def call(target: Any, arguments: tuple, keywords: dict) -> Any:
    """The operator written out."""
    definition = _find(target)
    schema = target._schema
    if schema.name in _KNOWN:
        return _KNOWN[schema.name](*arguments, **keywords)
    if schema.is_mutable:
        raise Refused(f"{schema.name} writes over its arguments (mutates_args), which is not supported; return new tensors")
    given = dict(zip((argument.name for argument in schema.arguments), arguments)) | keywords
    values = [given.get(argument.name, argument.default_value) for argument in schema.arguments]
    run = definition._backend_fns.get("cpu") or definition._init_fn
    setup = definition._setup_context_fn
    keep = None if setup is None else lambda context, inputs, output: setup(ctx=context, inputs=inputs, output=output)
    try:
        return with_formula(schema.name, values, run, keep, definition._backward_fn)
    except Error:
        raise
    except Exception as error:
        raise Refused(f"{schema.name} or its gradient cannot be traced: {type(error).__name__}: {error}; write them in PyTorch's "
                      "operators") from error
