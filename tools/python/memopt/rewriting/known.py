# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that a program has from no input, parameter or buffer: `~torch.eye(n, dtype=torch.bool)` is the same in each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ..internals import storage_of

__all__ = ["KnownValues"]

_MOST_ELEMENTS = 1 << 22
_PLAIN = (int, float, bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


class KnownValues:
    """Of a traced value what it is, computed when it is asked for."""

    def __init__(self):
        self._makers: dict[int, tuple[torch.Tensor, Callable[[], torch.Tensor]]] = {}  # by identity of the traced value, which is kept

    def add(self, value: torch.Tensor, maker: Callable[[], torch.Tensor]) -> None:
        found: list[torch.Tensor] = []

        def make() -> torch.Tensor:
            if not found:
                found.append(maker())
            return found[0]
        self._makers[id(value)] = value, make

    def get(self, value: Any) -> torch.Tensor | None:
        _, make = self._makers.get(id(value), (None, None))
        return make() if make else None

    def get_number(self, value: Any) -> Any:
        """The number that a known tensor of one element has."""
        with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
            known = self.get(value)
            return None if known is None or known.numel() != 1 else known.item()

    def list_places(self, condition: Any, shape: Sequence[int] | None = None) -> list[list[int]] | None:
        """The coordinates where a known condition holds, a list for each dimension; of one that is broadcast to a shape those of that."""
        with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
            known = self.get(condition)
            known = known if known is None or shape is None else known.expand(shape)
            return None if known is None else [places.tolist() for places in known.nonzero().unbind(1)]

    def forget(self, storage: int) -> None:
        """Something that has this storage was written."""
        self._makers = {number: (value, make) for number, (value, make) in self._makers.items()
                        if storage_of(value) != storage}

    def prepare(self, target: Any, arguments: tuple, keywords: dict) -> Callable[[], Any] | None:
        """What computes an operator's result; None if that is not known. It is to be asked for before the operator runs."""
        leaves, tree = pytree.tree_flatten((arguments, dict(keywords)))
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or torch.Tag.nondeterministic_seeded in target.tags:
            return None
        makers = {place: self._makers.get(id(leaf), (None, None))[1] for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
        if not all(makers.values()) or any(not isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in leaves):
            return None
        is_mutable = target._schema.is_mutable

        def compute():
            with torch.no_grad(), _disable_current_modes():
                known = [makers[place]() if place in makers else leaf for place, leaf in enumerate(leaves)]
                if is_mutable:
                    known = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in known]
                arguments, keywords = pytree.tree_unflatten(known, tree)
                return target(*arguments, **keywords)
        return compute

    def note(self, compute: Callable[[], Any], result: Any) -> None:
        if isinstance(result, torch.Tensor) and all(isinstance(size, int) for size in result.shape) and result.numel() <= _MOST_ELEMENTS:
            self.add(result, compute)
