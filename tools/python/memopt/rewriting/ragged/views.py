# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of rows in PyTorch that are copies here:

    h = x[mask]
    h[1:] *= 2
    h[0] = start

The rows of a slice stay in their places while fewer of them count, so what is written to it is written back into the rows that it is
of, and what is written to those is copied again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ...internals import storage_of

__all__ = ["CopiedViews"]


class _View(NamedTuple):
    copy: torch.Tensor
    source: torch.Tensor
    read: Callable[[], torch.Tensor]  #: What the view has now.
    write: Callable[[], torch.Tensor]  #: What the source has, once the copy is written back.


class CopiedViews:
    """Views that were copied, in the order of their making."""

    def __init__(self):
        self._views: list[_View] = []

    def add(self, copy: torch.Tensor, source: torch.Tensor, read: Callable[[], torch.Tensor], write: Callable[[], torch.Tensor]) -> None:
        self._views.append(_View(copy, source, read, write))

    def settle(self, written: int) -> list[int]:
        """After a write to a storage: all that lies there, too, is written. Returns the storages that were."""
        touched = [written]
        for view in reversed(self._views):
            if storage_of(view.copy) in touched and storage_of(view.source) not in touched:
                view.source.copy_(view.write())
                touched.append(storage_of(view.source))
        for view in self._views:
            if storage_of(view.source) in touched and storage_of(view.copy) not in touched:
                view.copy.copy_(view.read())
                touched.append(storage_of(view.copy))
        return touched
