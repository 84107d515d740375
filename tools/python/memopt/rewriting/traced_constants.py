# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that follow from no data, while a model is traced: `torch.linspace(0, 1, 9)`, a tensor that is an attribute and no buffer, and
what is computed from these alone.

Python may ask for such a value, as solvers do on a grid of times: `if t1 >= times[j]`, `int(steps)`, `torch.arange(count.item())`. It gets
the number, as in PyTorch, and what it does with that is no branch and no size that depends on data.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ..internals import storage_of

__all__ = ["TracedConstants"]

#: Larger tensors are not computed beside the trace.
_MOST_ELEMENTS = 1 << 16
_PLAIN = (int, float, bool, complex, str, slice, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, type(None), type(...))
_MAKERS = {getattr(torch, name) for name in (
    "arange", "as_tensor", "eye", "full", "linspace", "logspace", "ones", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros")}
#: Makers that take a tensor's shape and type.
_MAKERS_LIKE = {torch.zeros_like, torch.ones_like, torch.full_like, torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full}
_TO_PYTHON = {torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__index__, torch.Tensor.__float__}


class TracedConstants:
    """Beside each traced tensor that follows from no data its value. Views of values are views, and written with the traced ones."""

    def __init__(self):
        self._values: dict[int, tuple[weakref.ref, torch.Tensor]] = {}  # by identity of the traced tensor
        self._versions: dict[int, int] = {}  # by storage of traced tensors: how often it was written when the values were right

    def clear(self) -> None:
        self._values.clear()
        self._versions.clear()

    def answer(self, function: Callable, args: Sequence) -> tuple[Any] | None:
        """What Python gets that asks for the number of a known tensor."""
        value = self._find(args[0]) if function in _TO_PYTHON and len(args) == 1 else None
        if value is None or (function is not torch.Tensor.tolist and value.numel() != 1):
            return None
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return (function(value),)

    def follow(self, function: Callable, args: Sequence, kwargs: Mapping, call: Callable[[], Any]) -> Any:
        """The result of a call of PyTorch, and its value with it where that is known."""
        if isinstance(function, torch._ops.OpOverload):  # of a trace of the trace
            return call()
        leaves, tree = pytree.tree_flatten((args, dict(kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        makes = function in _MAKERS if not tensors else function in _MAKERS_LIKE
        values = None if makes else [self._find(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        is_known = "empty" not in getattr(function, "__name__", "empty") and all(isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in leaves) and (
            makes or bool(tensors) and not any(value is None and leaf is not None for value, leaf in zip(values, leaves)))
        result = call()
        if is_known and (function is torch.Tensor.__setitem__ or any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(result))):
            self._note(function, *pytree.tree_unflatten(leaves if makes else values, tree), result, tensors)
        return result

    def _find(self, traced: Any) -> torch.Tensor | None:
        if _is_data(traced) and self._values.get(id(traced), (lambda: None,))[0]() is not traced:
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                self._values[id(traced)] = weakref.ref(traced), traced.clone()
            self._versions[storage_of(traced)] = traced._version
        reference, value = self._values.get(id(traced), (lambda: None, None))
        return value if reference() is traced and self._versions.get(storage_of(traced)) == traced._version else None

    def _note(self, function: Callable, args: Sequence, kwargs: Mapping, result: Any, given: Sequence[torch.Tensor]) -> None:
        traced = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if any(any(not isinstance(size, int) for size in leaf.shape) or leaf.numel() > _MOST_ELEMENTS or storage_of(leaf) is None
               for leaf in traced):
            return
        with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes(), torch.random.fork_rng(devices=[]):
            before = torch.random.get_rng_state()
            try:
                if function in _MAKERS_LIKE:
                    args, kwargs = pytree.tree_map_only(torch.Tensor, _stand_in, (args, kwargs))
                found = function(*args, **kwargs)
            except Exception:  # what works on traced tensors alone
                return
            if not torch.equal(before, torch.random.get_rng_state()):
                return
        values = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        if [(leaf.shape, leaf.dtype) for leaf in values] != [(leaf.shape, leaf.dtype) for leaf in traced]:
            return
        for leaf in given:
            if id(leaf) in self._values:  # written, where that is what the function does
                self._versions[storage_of(leaf)] = leaf._version
        for leaf, value in zip(traced, values):
            self._values[id(leaf)] = weakref.ref(leaf), value
            self._versions[storage_of(leaf)] = leaf._version


def _stand_in(traced: torch.Tensor) -> torch.Tensor:
    """Of the shape and type of a traced tensor, which has no elements."""
    return torch.empty(traced.shape, dtype=traced.dtype)


def _is_data(traced: Any) -> bool:
    """Whether it is a tensor of the model's that is no state: an attribute, or what the code has captured."""
    return (type(traced) is torch.Tensor and not torch._is_functional_tensor(traced) and not traced.requires_grad
            and traced.device.type == "cpu" and traced.layout is torch.strided and traced.numel() <= _MOST_ELEMENTS
            and storage_of(traced) is not None)
