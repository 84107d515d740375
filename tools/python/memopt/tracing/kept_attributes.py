# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch.export does to the attributes of modules that it should not.

Of buffers it sees what is written to them, and not that forward puts another tensor in their place: `self.hidden = h.detach()`.
In the place of dicts, lists and tuples it leaves equal ones, so that others who have them no longer have the model's.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from ..errors import Refused

__all__ = ["kept_buffers", "kept_containers"]


@contextlib.contextmanager
def kept_buffers(module: nn.Module) -> Iterator[None]:
    """What stands in the place of a buffer at the end is written to the buffer that was there."""
    before = [(f"{path}.{key}", inner._buffers, key, tensor) for path, inner in module.named_modules()
              for key, tensor in inner._buffers.items()]
    yield
    for name, holder, key, old in before:
        new = holder.get(key)
        if new is old:
            continue
        if old is None or new is None or (new.shape, new.dtype) != (old.shape, old.dtype):
            raise Refused(f"forward puts {_describe(new)} in the place of the buffer '{name.partition('.')[2]}', which has "
                          f"{_describe(old)}: a step keeps buffers of one shape and type")
        old.copy_(new.detach())
        holder[key] = old


_CONTAINERS = dict, list, collections.deque
_OF_ALL = frozenset(vars(nn.Module()))


@contextlib.contextmanager
def kept_containers(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Behind it modules have the containers that they had, with what these had: a trace leaves tensors in lists."""
    before = [(vars(inner), key, value, value.copy() if isinstance(value, _CONTAINERS) else value) for inner in modules
              for key, value in vars(inner).items() if isinstance(value, (*_CONTAINERS, tuple)) and key not in _OF_ALL]
    try:
        yield
    finally:
        for holder, key, value, inside in before:
            holder[key] = value
            if isinstance(value, _CONTAINERS) and not _has_same(value, inside):
                value.clear()
                value.update(inside) if isinstance(value, dict) else value.extend(inside)


def _has_same(left: dict | list | collections.deque, right: dict | list | collections.deque) -> bool:
    """The same objects, not only equal ones."""
    parts = [[part for pair in one.items() for part in pair] if isinstance(one, dict) else list(one) for one in (left, right)]
    return list(map(id, parts[0])) == list(map(id, parts[1]))


def _describe(tensor: torch.Tensor | None) -> str:
    return "None" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
