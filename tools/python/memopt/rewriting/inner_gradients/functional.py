# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.autograd.functional`, by the transforms of torch.func that are traced."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


__all__ = ["REPLACED"]


def _tuple(inputs: Any) -> tuple:
    return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)


def _places(inputs: Any) -> int | tuple[int, ...]:
    return 0 if isinstance(inputs, torch.Tensor) else tuple(range(len(inputs)))


def _give(results: Any, create_graph: bool) -> Any:
    return results if create_graph else pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, results)


def _ones(outputs: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.ones_like, outputs)


def _jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    return _give(torch.func.jacrev(func, _places(inputs))(*_tuple(inputs)), create_graph)


def _hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    return _give(torch.func.hessian(func, _places(inputs))(*_tuple(inputs)), create_graph)


def _one_or_all(inputs: Any, values: tuple) -> Any:
    return values[0] if isinstance(inputs, torch.Tensor) else tuple(values)


def _vjp(func, inputs, v=None, create_graph=False, strict=False):
    outputs, pull = torch.func.vjp(func, *_tuple(inputs))
    return _give((outputs, _one_or_all(inputs, pull(_ones(outputs) if v is None else v))), create_graph)


def _jvp(func, inputs, v=None, create_graph=False, strict=False):
    given = _tuple(inputs)
    return _give(torch.func.jvp(func, given, _tuple(_ones(given) if v is None else v)), create_graph)


def _hvp(func, inputs, v=None, create_graph=False, strict=False):
    """That of a symmetric matrix from either side."""
    def slope(*values):
        value, pull = torch.func.vjp(func, *values)
        return pull(torch.ones_like(value))
    given = _tuple(inputs)
    _, found = torch.func.vjp(slope, *given)
    return _give((func(*given), _one_or_all(inputs, found(_tuple(_ones(given) if v is None else v)))), create_graph)


_functional = torch.autograd.functional
REPLACED = [(_functional, "jacobian", _jacobian), (_functional, "hessian", _hessian), (_functional, "vjp", _vjp),
            (_functional, "jvp", _jvp), (_functional, "hvp", _hvp), (_functional, "vhp", _hvp)]
