# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.inference_mode()` in forward, of which torch.export keeps nothing: what is computed there would have gradients.

While a step is traced, such a region is one without gradients, of which torch.export keeps the borders. What inference mode forbids beyond
that, PyTorch has refused in the model's own steps.
"""

from __future__ import annotations

import torch

__all__ = ["REPLACED"]


def _enter(region: torch.inference_mode) -> None:
    region._gradients = torch.set_grad_enabled(not region.mode)
    region._gradients.__enter__()


def _leave(region: torch.inference_mode, *error: object) -> None:
    region._gradients.__exit__(*error)


#: What means something else while a step is traced.
REPLACED = ((torch.inference_mode, "__enter__", _enter), (torch.inference_mode, "__exit__", _leave))
