# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FakeQuantize and the observers of torch.ao.quantization, which branch by what they have seen and by flags in buffers. While a
model is traced, others take their place that compute both sides and choose.

Bounds by channel have no elements before the first batch, and those of the channels behind it. A program's state has one size, so
what is found without elements gets its size, and values that no batch has been seen for, before the model is traced once more.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from ..errors import Refused

__all__ = ["list_replaced", "sized_buffers"]


# ----------------------------------------------------------------------------------------------------------
# Buffers without a size
# ----------------------------------------------------------------------------------------------------------

_active = threading.local()  # `buffers` of the thread that traces


class sized_buffers:
    """While entered, collects buffers that need another size; `apply` gives it to them."""

    def __init__(self):
        self._found: dict[tuple[int, str], tuple[torch.nn.Module, str, torch.Size, float]] = {}
        #: What they hold meanwhile, by module and name.
        self.values: dict[tuple[int, str], torch.Tensor] = {}

    def add(self, module: torch.nn.Module, name: str, shape: torch.Size, value: float) -> None:
        self._found[id(module), name] = module, name, shape, value

    def __enter__(self) -> sized_buffers:
        self._outer, _active.buffers = getattr(_active, "buffers", None), self
        return self

    def __exit__(self, *_) -> None:
        _active.buffers = self._outer

    def apply(self) -> bool:
        """Whether there were any."""
        self.values.clear()
        for module, name, shape, value in self._found.values():
            with torch.no_grad():
                getattr(module, name).resize_(shape).fill_(value)
        return bool(self._found)


def _look(module: torch.nn.Module, name: str) -> torch.Tensor:
    return _active.buffers.values.get((id(module), name), getattr(module, name)) if _active.buffers else getattr(module, name)


def _read(module: torch.nn.Module, name: str, shape: torch.Size, value: float) -> torch.Tensor:
    """A buffer, or what it is to hold."""
    buffer = _look(module, name)
    if buffer.shape == shape:
        return buffer
    _active.buffers.add(module, name, shape, value)
    return torch.full(shape, value, dtype=buffer.dtype)


def _write(module: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    buffer = getattr(module, name)
    if buffer.shape == value.shape:
        buffer.copy_(value)
    else:
        _active.buffers.values[id(module), name] = value


# ----------------------------------------------------------------------------------------------------------
# Observers
# ----------------------------------------------------------------------------------------------------------

def _read_bounds(self, shape: torch.Size) -> tuple[torch.Tensor, torch.Tensor]:
    return _read(self, "min_val", shape, math.inf), _read(self, "max_val", shape, -math.inf)


def _is_unseen(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return (low == math.inf) & (high == -math.inf)


def _average(self, low: torch.Tensor, high: torch.Tensor) -> None:
    """Moves the bounds towards those of a batch, the first of which they take."""
    old = _read_bounds(self, low.shape)
    is_first = _is_unseen(*old)
    is_first = is_first if is_first.dim() == 0 else is_first.all()
    for name, before, now in zip(("min_val", "max_val"), old, (low, high)):
        _write(self, name, torch.where(is_first, now, before + self.averaging_constant * (now - before)))


def _widen(self, low: torch.Tensor, high: torch.Tensor) -> None:
    old = _read_bounds(self, low.shape)
    _write(self, "min_val", torch.minimum(low, old[0]))
    _write(self, "max_val", torch.maximum(high, old[1]))


def _find_bounds(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.amin(), x.amax()


def _find_bounds_by_channel(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    others = [dim for dim in range(x.dim()) if dim != self.ch_axis % x.dim()]
    return (x.amin(others), x.amax(others)) if others else (x, x)


def _observe(find: Callable, update: Callable) -> Callable:
    def forward(self, x):
        if x.numel():
            update(self, *find(self, x.detach().to(self.min_val.dtype)))
        return x
    return forward


def _choose_levels(self, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and offset of the levels between the bounds; 1 and 0 as long as nothing was seen."""
    low, high = (value if value.numel() else _look(self, name) for name, value in (("min_val", low), ("max_val", high)))
    levels = float(self.quant_max - self.quant_min)
    below, above = torch.minimum(low, torch.zeros_like(low)), torch.maximum(high, torch.zeros_like(high))
    offset = torch.zeros(low.shape, dtype=torch.int64)
    if self.qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric):
        scale = torch.maximum(torch.maximum(-below, above) / (levels / 2), self.eps)
        if self.dtype in (torch.quint8, torch.uint8):
            offset = offset + ((self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128)
        elif self.dtype == torch.uint16:
            offset = offset + 2 ** 15
    elif self.qscheme == torch.per_channel_affine_float_qparams:
        scale = (high - low) / levels
        scale = torch.where(scale > self.eps, scale, torch.ones_like(scale))
        offset = -low / scale
    else:
        scale = torch.maximum((above - below) / levels, self.eps)
        offset = (self.quant_min - torch.round(below / scale)).clamp(self.quant_min, self.quant_max)
        offset = torch.where(scale < math.inf, offset, torch.zeros_like(offset)).to(torch.int64)
    unseen = _is_unseen(low, high)
    scale = torch.where(unseen, torch.ones_like(scale), scale)
    offset = torch.where(unseen, torch.zeros_like(offset), offset)
    return (scale, offset) if low.dim() else (scale.reshape(1), offset.reshape(1))


def _refuse_histogram(self, x):
    raise Refused("HistogramObserver searches a histogram of what it sees, which a compiled step cannot; use "
                  "MovingAverageMinMaxObserver, or observe before and switch the observer off")


# ----------------------------------------------------------------------------------------------------------
# FakeQuantize
# ----------------------------------------------------------------------------------------------------------

def _run_observer(self, x: torch.Tensor, is_on: torch.Tensor) -> None:
    """Observes, and puts back what the observer had where it is off."""
    observer = self.activation_post_process
    before = {name: buffer.clone() for name, buffer in observer.named_buffers()}
    observer(x.detach())
    for name, buffer in observer.named_buffers():
        if name in before and before[name].shape == buffer.shape:
            buffer.copy_(torch.where(is_on, buffer, before[name]))


def _update_levels(self, is_on: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = []
    for name, new, initial in (("scale", scale, 1.0), ("zero_point", offset, 0)):
        old = _read(self, name, new.shape, initial)
        value = torch.where(is_on, new.to(old.dtype), old)
        _write(self, name, value)
        found.append(value)
    return found[0], found[1]


def _fake_quantize(self, x):
    observer = self.activation_post_process
    is_on = self.observer_enabled[0] == 1
    _run_observer(self, x, is_on)
    scale, offset = _update_levels(self, is_on, *self.calculate_qparams())
    rounded = _round(self, x, scale, offset, observer)
    return torch.where(self.fake_quant_enabled[0] == 1, rounded, x)


def _round(self, x, scale, offset, observer):
    if self.is_per_channel:
        return torch.fake_quantize_per_channel_affine(x, scale, offset, self.ch_axis, observer.quant_min, observer.quant_max)
    return torch.fake_quantize_per_tensor_affine(x, scale, offset, observer.quant_min, observer.quant_max)


_SMALLEST_SCALE = 6.1e-5


def _choose_levels_fused(low, high, least: int, most: int, is_symmetric: bool):
    """As the fused operator chooses them, in float64."""
    low, high = low.double(), high.double()
    if is_symmetric:
        half = (most - least) // 2
        size = torch.maximum((low / -(half + 1)).abs(), (high / half).abs())
        spans = (low < 0) & (high > 0)
        low = torch.where(spans, (size * -(half + 1)).float().double(), low)
        high = torch.where(spans, (size * half).float().double(), high)
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = (high - low) / (most - least)
    scale = torch.where((scale.float() == 0) | (1 / scale.float()).isinf(), torch.full_like(scale, 0.1), scale)
    is_small = scale < _SMALLEST_SCALE
    factor = _SMALLEST_SCALE / scale
    reach = _SMALLEST_SCALE * (most - least)
    low, high = (torch.where(is_small, torch.where(high == 0, -reach, torch.where(low == 0, low, low * factor)), low),
                 torch.where(is_small, torch.where(low == 0, reach, torch.where(high == 0, high, high * factor)), high))
    scale = torch.where(is_small, torch.full_like(scale, _SMALLEST_SCALE), scale)
    from_low, from_high = least - low / scale, most - high / scale
    offset = torch.where(abs(least) + (low / scale).abs() < abs(most) + (high / scale).abs(), from_low, from_high)
    if is_symmetric:
        offset = torch.where((low < 0) & (high > 0), torch.full_like(offset, (least + most) / 2), offset)
    return scale.float(), offset.clamp(least, most).round()


def _fake_quantize_fused(self, x):
    observer = self.activation_post_process
    is_on = self.observer_enabled[0] == 1
    _run_observer(self, x, is_on)
    bounds = [_look(observer, name).reshape(-1) for name in ("min_val", "max_val")]
    scale, offset = _choose_levels_fused(*bounds, observer.quant_min, observer.quant_max, self.is_symmetric_quant)
    scale, offset = _update_levels(self, is_on, scale, offset)
    return torch.where(self.fake_quant_enabled[0] == 1, _round(self, x, scale, offset, observer), x)


_OBSERVERS = {
    "MinMaxObserver": {"forward": _observe(_find_bounds, _widen)},
    "MovingAverageMinMaxObserver": {"forward": _observe(_find_bounds, _average)},
    "PerChannelMinMaxObserver": {"forward": _observe(_find_bounds_by_channel, _widen)},
    "MovingAveragePerChannelMinMaxObserver": {"forward": _observe(_find_bounds_by_channel, _average)},
    "HistogramObserver": {"forward": _refuse_histogram},
    "UniformQuantizationObserverBase": {"_calculate_qparams": _choose_levels},
}
_QUANTIZERS = {"FakeQuantize": {"forward": _fake_quantize}, "FusedMovingAvgObsFakeQuantize": {"forward": _fake_quantize_fused}}


def list_replaced() -> list[tuple[Any, str, Callable]]:
    """What is replaced while a step is traced, if the model can have any of it: owner, name and the other function."""
    found = []
    for module, kinds in (("torch.ao.quantization.observer", _OBSERVERS), ("torch.ao.quantization.fake_quantize", _QUANTIZERS)):
        owners = vars(sys.modules[module]) if module in sys.modules else {}
        found += [(owners[kind], name, function) for kind, functions in kinds.items() if kind in owners
                  for name, function in functions.items() if name in vars(owners[kind])]
    return found
