# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of PyTorch that torch.export cannot trace as they are: packed sequences, batch norms with momentum=None, the CTC loss
(ctc.py), covariances and least squares (plain/statistics.py), linear_cross_entropy in chunks. While a model is traced, others take their place.

A packed sequence is its rows chosen from the padded batch by a mask of the lengths. Its layers run over all steps of the padded
batch. Results behind the ends are not used. The states are those at the ends: hidden values are results there, and the cells of an LSTM
stay as they are behind them.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..errors import Refused
from . import plain
from .ctc import trace_ctc_loss
from .sizes import Sizes

__all__ = ["REPLACED", "replaced_functions"]


# ----------------------------------------------------------------------------------------------------------
# Packed sequences
# ----------------------------------------------------------------------------------------------------------

_LAYERS = "lstm", "gru", "rnn_tanh", "rnn_relu"

# Added to a gate it leaves 1 of its sigmoid, and subtracted 0, in every floating-point type.
_WIDE_OPEN = 3e4


class _Lengths:
    """Where the sequences of a padded batch end: `mask` is [T, B], what is given and taken [T, B, ...]."""

    def __init__(self, mask: torch.Tensor):
        turns = torch.arange(mask.shape[0])[:, None]
        self.mask = mask
        self._last = mask.sum(0, keepdim=True) - 1
        self._backward = torch.where(mask, self._last - turns, turns)

    @staticmethod
    def _take(x, turns):
        return torch.gather(x, 0, turns[:, :, None].expand(*turns.shape, x.shape[2]))

    def reverse(self, x):
        """Each sequence from its end to its begin."""
        return self._take(x, self._backward)

    def take_last(self, x):
        """[1, B, C] of the last step of each sequence."""
        return self._take(x, self._last)


def _hold_cells(x, mask, weight):
    """An input and its weight in an LSTM with one more column: behind the ends it shuts the gates to the cells and keeps their values."""
    size = weight.shape[0] // 4
    gates = torch.cat([torch.full((size, 1), value, dtype=weight.dtype) for value in (-_WIDE_OPEN, _WIDE_OPEN, 0.0, 0.0)])
    return torch.cat([x, (~mask)[:, :, None].to(x.dtype)], 2), torch.cat([weight, gates], 1)


def _run_direction(name, x, lengths, weights, state, has_biases, is_backward):
    """All steps of one layer in one direction: results, of any value behind the ends, and the state at each end."""
    if is_backward:
        x = lengths.reverse(x)
    first, *others = weights
    initial = [part[None] for part in state]
    if name == "lstm":
        x, first = _hold_cells(x, lengths.mask, first)
    run, given = getattr(torch._VF, name), initial if name == "lstm" else initial[0]
    found, _, *cells = run(x, given, [first, *others], has_biases, 1, 0.0, False, False, False)
    return lengths.reverse(found) if is_backward else found, (lengths.take_last(found), *cells)


class replaced_functions(TorchFunctionMode):
    """While entered, functions of packed sequences, the CTC loss, covariances and least squares are computed by other operators."""

    def __init__(self):
        super().__init__()
        self._masks: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by identity of the batch sizes, which are kept
        self._sizes = Sizes()

    def __enter__(self):
        self._sizes.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        self._sizes.__exit__(*error)
        return super().__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = self._call(function, args, kwargs or {})
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor):
                self._sizes.note(value)
        return result

    def _call(self, function, args, kwargs):
        name = getattr(function, "__name__", "")
        if function in plain.FUNCTIONS and args:
            return plain.FUNCTIONS[function](*args, **kwargs)
        if name == "linear_cross_entropy":  # its chunks are those of memopt-tile-tokens
            return function(*args, **{**kwargs, "options": None})
        if name == "ctc_loss":
            return trace_ctc_loss(*args, **kwargs)
        if name == "_pack_padded_sequence":
            return self._pack(*args, **kwargs)
        if name == "_pad_packed_sequence":
            return self._pad(*args, **kwargs)
        if name in _LAYERS and len(args) == 9 and self._find(args[1]) is not None:
            return self._run(name, *args)
        if function is torch.Tensor.__getitem__ and isinstance(args[1], int) and args[1] == 0 and self._find(args[0]) is not None:
            return self._find(args[0]).shape[1]  # every sequence has a first step
        return function(*args, **kwargs)

    def _find(self, sizes: Any) -> torch.Tensor | None:
        return self._masks.get(id(sizes), (None, None))[1]

    def _pack(self, x, lengths, batch_first):
        x = x.transpose(0, 1) if batch_first else x
        torch._assert_async((lengths > 0).all(), "lengths of packed sequences must be above 0")
        torch._assert_async((lengths <= x.shape[0]).all(), "lengths of packed sequences must not exceed the padded batch")
        torch._assert_async((lengths[1:] <= lengths[:-1]).all(), "lengths of packed sequences must fall, or enforce_sorted be False")
        mask = torch.arange(x.shape[0])[:, None] < lengths
        sizes = mask.sum(1)
        self._masks[id(sizes)] = sizes, mask
        return x[mask], sizes

    @staticmethod
    def _spread(data, mask, value=0.0):
        whole = torch.full((*mask.shape, *data.shape[1:]), value, dtype=data.dtype)
        return torch.index_put(whole, [mask], data)

    def _pad(self, data, sizes, batch_first, padding_value=0.0, total_length=None):
        mask = self._find(sizes)
        if mask is None:
            raise Refused("a packed sequence whose batch_sizes pack_padded_sequence has not made is not supported")
        lengths = mask.sum(0)
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "pad_packed_sequence":
            frame = frame.f_back
        if frame is None or frame.f_locals.get("total_length") is None:
            torch._assert_async((lengths.max() == mask.shape[0]).reshape(()), "the longest sequence must fill the padded batch, or "
                                "pad_packed_sequence be given its total_length")
        whole = self._spread(data, mask, padding_value)
        more = (total_length or 0) - mask.shape[0]
        if more > 0:
            whole = torch.cat([whole, torch.full((more, *whole.shape[1:]), padding_value, dtype=whole.dtype)])
        return (whole.transpose(0, 1) if batch_first else whole), lengths

    def _run(self, name, data, sizes, hx, weights, has_biases, layers, dropout, training, bidirectional):
        mask = self._find(sizes)
        lengths = _Lengths(mask)
        states = list(hx) if isinstance(hx, (tuple, list)) else [hx]
        directions = 1 + bidirectional
        per = len(weights) // (layers * directions)
        x, last = self._spread(data, mask), []
        for layer in range(layers):
            found = []
            for number in range(layer * directions, (layer + 1) * directions):
                results, state = _run_direction(name, x, lengths, weights[number * per:(number + 1) * per],
                                                [part[number] for part in states], has_biases, number % directions == 1)
                found.append(results)
                last.append(state)
            x = torch.cat(found, -1) if directions > 1 else found[0]
            if dropout and training and layer + 1 < layers:
                x = F.dropout(x, dropout)
        return (x[mask], *(torch.cat(parts) for parts in zip(*last)))


# ----------------------------------------------------------------------------------------------------------
# Batch norm
# ----------------------------------------------------------------------------------------------------------

def _batch_norm(self, x):
    """A running average of all batches, whose weight is one over their number."""
    if self.momentum is not None or not self.training or not self.track_running_stats:
        return _batch_norm.original(self, x)
    self._check_input_dim(x)
    with torch.no_grad():
        self.num_batches_tracked.add_(1)
        weight = 1 / self.num_batches_tracked.to(self.running_mean.dtype)
        variance, mean = torch.var_mean(x, [dim for dim in range(x.dim()) if dim != 1], correction=1)
        self.running_mean.copy_(self.running_mean + weight * (mean - self.running_mean))
        self.running_var.copy_(self.running_var + weight * (variance - self.running_var))
    return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


_batch_norm.original = torch.nn.modules.batchnorm._BatchNorm.forward


def _instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    """Its operator does not say that it writes running statistics, so where nobody reads its result torch.export drops it."""
    if use_input_stats and running_mean is not None and running_var is not None:
        with torch.no_grad():
            variance, mean = torch.var_mean(input, list(range(2, input.dim())), correction=1)
            for running, found in ((running_mean, mean), (running_var, variance)):
                running.copy_((1 - momentum) * running + momentum * found.mean(0))
        running_mean = running_var = None
    return _instance_norm.original(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


_instance_norm.original = F.instance_norm


# ----------------------------------------------------------------------------------------------------------
# Adaptive softmax
# ----------------------------------------------------------------------------------------------------------

def _adaptive_softmax(self, input_, target_):
    """Each cluster for all rows, of which its own are taken: PyTorch's counts them, and branches on that."""
    x, target = (input_, target_) if target_.dim() else (input_.unsqueeze(0), target_.unsqueeze(0))
    torch._assert_async(((target >= 0) & (target < self.n_classes)).all(), f"Target values should be in [0, {self.n_classes - 1}]")
    places, found = target.clamp(0, self.shortlist_size - 1), torch.zeros_like(x[:, 0])
    for number, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
        own = (target >= low) & (target < high)
        within = F.log_softmax(self.tail[number](x), dim=1).gather(1, (target - low).clamp(0, high - low - 1).unsqueeze(1)).squeeze(1)
        found = torch.where(own, within, found)
        places = torch.where(own, self.shortlist_size + number, places)
    found = found + F.log_softmax(self.head(x), dim=1).gather(1, places.unsqueeze(1)).squeeze(1)
    loss = (-found).mean()
    return torch.nn.modules.adaptive._ASMoutput(found if target_.dim() else found.squeeze(0), loss)


#: What is replaced while a step is traced: owner, name and the other function.
REPLACED = [(torch.nn.modules.batchnorm._BatchNorm, "forward", _batch_norm), (F, "instance_norm", _instance_norm),
            (torch.nn.AdaptiveLogSoftmaxWithLoss, "forward", _adaptive_softmax)]
