# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.inference_mode()` in forward, of which torch.export keeps nothing: what is computed there would have gradients."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

__all__ = ["inference_without_gradients"]


@contextlib.contextmanager
def inference_without_gradients() -> Iterator[None]:
    """While entered, a region in inference mode is one without gradients in this thread, of which torch.export keeps the borders. What
    inference mode forbids beyond that, PyTorch has refused in the model's own steps."""
    mode, thread = torch.inference_mode, threading.get_ident()
    enter, leave = mode.__enter__, mode.__exit__
    regions: dict[int, torch.set_grad_enabled] = {}

    def enter_region(region: torch.inference_mode) -> None:
        if threading.get_ident() != thread:
            return enter(region)
        regions[id(region)] = torch.set_grad_enabled(not region.mode)
        regions[id(region)].__enter__()

    def leave_region(region: torch.inference_mode, *error: object) -> None:
        known = regions.pop(id(region), None)
        return leave(region, *error) if known is None else known.__exit__(*error)
    mode.__enter__, mode.__exit__ = enter_region, leave_region
    try:
        yield
    finally:
        mode.__enter__, mode.__exit__ = enter, leave
