# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the code of a step's model and loss reads: where `Reads` begins."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ..internals import get_gradient_hooks
from .reads import Reads, has_few, is_of_user

__all__ = ["find_reads"]

#: Modules whose classes read nothing of the user's.
_OWN_AND_TORCH = ("torch.nn.", __name__.partition(".")[0] + ".")


def find_reads(step: nn.Module) -> Reads:
    """What the code of a step's model and loss reads."""
    modules = [module for root in step.children() for module in root.modules()]
    kinds = {type(module) for module in modules}
    loss = getattr(step, "loss", None)
    functions = [loss] if loss is not None and not isinstance(loss, nn.Module) else []
    held = [value for module in modules for value in vars(module).values()]
    kinds |= set(_list_kinds(held, 3))
    functions += [value for value in held if isinstance(value, types.FunctionType)]
    functions += [hook for parameter in step.parameters() for hook in get_gradient_hooks(parameter).values()]
    return Reads(functions, [kind for kind in kinds if not kind.__module__.startswith(_OWN_AND_TORCH)])


def _list_kinds(values: Iterable[Any], levels: int) -> Iterator[type]:
    """The user's classes of objects that modules have as attributes, and of what is inside of these."""
    for value in values:
        if isinstance(value, (list, tuple, dict)) and has_few(value, 64) and levels:
            yield from _list_kinds(value.values() if isinstance(value, dict) else value, levels - 1)
        elif is_of_user(type(value)) and not isinstance(value, (nn.Module, torch.Tensor)):
            yield type(value)
            if levels:
                yield from _list_kinds(getattr(value, "__dict__", {}).values(), levels - 1)
