# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CTC loss, by the forward recursion of Graves and others, in logarithms. Labels that a mask has chosen out of padded ones, as
transformers gives them, are padded again once the program is written anew.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .ragged import NotRagged, Ragged
from .ragged.values import compact

__all__ = ["RULES", "trace_ctc_loss"]

_NEVER = -1e30  # the logarithm of what cannot be, which is added to without becoming NaN


def _lengths(value: Any) -> torch.Tensor:
    return value.to(torch.int64) if isinstance(value, torch.Tensor) else torch.tensor(list(value), dtype=torch.int64)


def _shift(alpha: torch.Tensor, by: int) -> torch.Tensor:
    return F.pad(alpha[:, :-by], [by, 0], value=_NEVER)


def _pad(targets: torch.Tensor, labels: torch.Tensor, most: int) -> torch.Tensor:
    """Labels that stand one behind the other, as rows."""
    starts = labels.cumsum(0) - labels
    return targets[(starts[:, None] + torch.arange(most)).clamp(max=targets.shape[0] - 1)]


def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    """Over all frames and labels that the shapes allow."""
    is_single = log_probs.dim() == 2
    frames, labels = _lengths(input_lengths).reshape(-1), _lengths(target_lengths).reshape(-1)
    log_probs = log_probs.unsqueeze(1) if is_single else log_probs
    count, samples, _ = log_probs.shape
    if targets.dim() == 1:  # one behind the other
        targets = _pad(targets, labels, targets.shape[0])
    size = targets.shape[1]
    inside = torch.arange(size) < labels[:, None]
    targets = torch.where(inside, targets.to(torch.int64), torch.full((), blank, dtype=torch.int64))
    states = torch.full((samples, size + 1, 2), blank, dtype=torch.int64)
    states = torch.stack([states[..., 0], F.pad(targets, [0, 1], value=blank)], -1).flatten(1)[:, :-1]  # blanks around each
    skips = (states != blank) & (states != F.pad(states[:, :-2], [2, 0], value=blank))
    each = log_probs.transpose(0, 1).gather(2, states[:, None].expand(samples, count, 2 * size + 1))
    first = torch.arange(2 * size + 1) <= torch.where(labels > 0, 1, 0)[:, None]
    never = torch.full((), _NEVER, dtype=log_probs.dtype)
    alpha = torch.where(first, each[:, 0], never)
    for t in range(1, count):
        ways = torch.stack([alpha, _shift(alpha, 1), torch.where(skips, _shift(alpha, 2), never)])
        alpha = torch.where((t < frames)[:, None], each[:, t] + torch.logsumexp(ways, 0), alpha)
    last = alpha.gather(1, (2 * labels)[:, None])
    before = torch.where((labels > 0)[:, None], alpha.gather(1, (2 * labels - 1).clamp(min=0)[:, None]), never)
    total = -torch.logsumexp(torch.cat([last, before], 1), 1)
    limit = torch.zeros((), dtype=total.dtype) if zero_infinity else torch.full((), float("inf"), dtype=total.dtype)
    total = torch.where(total > -_NEVER / 2, limit, total)
    if reduction == 1:
        return (total / labels.clamp(min=1).to(total.dtype)).mean()
    return total.sum() if reduction == 2 else total.squeeze(0) if is_single else total


# ----------------------------------------------------------------------------------------------------------
# Labels by a mask
# ----------------------------------------------------------------------------------------------------------

_library = torch.library.Library("memopt", "FRAGMENT")
_library.define("ctc_loss(Tensor log_probs, Tensor targets, Tensor frames, Tensor labels, int blank, int reduction, bool zero_infinity) "
                "-> Tensor")
_library.impl("ctc_loss", lambda log_probs, targets, frames, labels, blank, reduction, zero_infinity: log_probs.new_zeros(
    [log_probs.shape[1]] if reduction == 0 else []), "CompositeExplicitAutograd")


def trace_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    """The loss, or a node that becomes it where the number of labels depends on the data."""
    reduction = {"none": 0, "mean": 1, "sum": 2}.get(reduction, reduction)
    if all(isinstance(size, int) for size in targets.shape):
        return _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    return torch.ops.memopt.ctc_loss(log_probs, targets, _lengths(input_lengths).reshape(-1), _lengths(target_lengths).reshape(-1),
                                     blank, reduction, zero_infinity)


def _rule(engine, target, arguments, keywords):
    log_probs, targets, frames, labels, blank, reduction, zero_infinity = arguments
    if not isinstance(targets, Ragged) or targets.full.dim() != 1 or any(isinstance(value, Ragged) for value in (log_probs, frames, labels)):
        raise NotRagged("with labels in another form than one behind the other")
    shape = engine.mask_shapes.get(targets.key, (targets.bound,))
    most = shape[-1] if len(shape) > 1 and shape[-1] * labels.shape[0] == targets.bound else targets.bound
    loss = _ctc_loss(log_probs, _pad(compact(targets), labels, most), frames, labels, blank, reduction, zero_infinity)
    fits = (labels <= most).all() & (labels.sum() <= targets.count())
    return torch.where(fits, loss, torch.full((), float("nan"), dtype=loss.dtype))


RULES = {"memopt::ctc_loss": _rule}
