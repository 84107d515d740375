# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows and places that follow from the data: medians of rows, writes at numbers of rows, slices between two places, gradients inside
the loss over rows."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from memopt import export
from rewriting import case, check_all


@case()
def quantiles(self, x, keep):
    y = self.linear(x)
    rows = y[keep]
    kinds = ("linear", "lower", "higher", "midpoint", "nearest")
    total = sum((place + 1) * rows[:, place].quantile(0.3 + 0.1 * place, interpolation=kind) for place, kind in enumerate(kinds))
    total = total + rows.quantile(torch.tensor([0.25, 0.8]), dim=0, keepdim=True).square().sum() + rows.quantile(0.5, dim=1).exp().sum()
    ties = rows[:, 0].relu()  # half of them are zero
    return total + 3 * rows[:, 1].median() + 2 * ties.median() + rows.sum()


@case()
def filled_at_rows(self, x, t):
    """As YOLOX assigns anchors: as many for each box as its overlaps say."""
    y = self.linear(x).t()
    matched = torch.zeros(5, 12, dtype=torch.uint8)
    counts = y.detach().sigmoid().sum(1).int().clamp(1, 4)
    for box in range(5):
        _, places = y[box].detach().topk(counts[box].item(), largest=False)
        matched[box][places] = 1
    several = matched.sum(0) > 1
    if several.sum() > 0:
        best = y[:, several].detach().argmin(0)
        matched[:, several] *= 0
        matched[best, several] = 1
    chosen = matched.sum(0) > 0
    labels = torch.where(t >= 0)[0]
    filled = y.index_fill(1, labels, 2.0).index_fill(0, torch.arange(2), 0.5)
    return y.t()[chosen].exp().sum() / chosen.sum() + filled.square().sum()


@case()
def slices_between_places(self, x, t):
    """As VITS takes segments: where a slice begins and ends are both tensors."""
    y = self.linear(x).reshape(3, 4, 5)
    first = t.clamp(0, 1)
    taken = torch.zeros(3, 2, 3)
    for sample in range(3):
        begin = first[sample]
        end = begin + 3
        taken[sample] = y[sample, 1:3, begin:end]
        last = (end - 1).item()
        taken[sample, 0, begin:end - 1] = 1.5
        y = y + y[:, :, last:last + 1]
    begin = first[3].clone()
    end = begin + 2
    begin += 1  # the place is another one now, the end is not
    return taken.square().sum() + y.exp().sum() * 0.01 + (y[0, 0, end - 2] - y[0, 0, begin]).square()


@case()
def rolled(self, x, t):
    """As Autoformer shifts by the delays that correlate most."""
    y = self.linear(x)
    first = t.abs().argmax()
    return (torch.roll(y, -int(first), 0) * x[:, :5]).sum() + (torch.roll(y, int(first) + 7, -1) * x[:, 1:]).exp().sum()


@case(scale=lambda: torch.ones(1))
def penalty_by_rows(self, x, t):
    """Invariant risk: the gradient of each environment's loss, over the rows of a mask."""
    y = self.linear(x)
    total = 0
    for environment in (t < 0, t >= 0):
        for reduction in ("mean", "sum"):
            loss = F.cross_entropy(y[environment] * self.scale, (t[environment] + 2) % 5, reduction=reduction)
            total = total + loss + torch.autograd.grad(loss, self.scale, create_graph=True)[0].square().sum()
    return total


class Pointed(nn.Module):
    """A place in a buffer, read inside of regions without gradients and outside, before it is written over and behind that."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 8)
        self.register_buffer("place", torch.tensor([2]))
        self.register_buffer("queue", torch.randn(8, 12))

    def forward(self, x):
        y = self.linear(x)
        with torch.no_grad():
            inside = int(self.place)
            first = self.place[0]
            known = self.queue[:, first:first + 3].sum()
        before = int(self.place)
        self.queue[:, before:before + 2] = y[:2].T.detach()
        self.place[0] = (before + 2) % 8
        return (y @ self.queue[:, before:before + 3]).sum() * int(self.place) + inside * y.sum() * known


def check_written_places():
    torch.manual_seed(0)
    model, batch = Pointed(), {"x": torch.randn(3, 6)}
    run = export.export_program(export.TrainingStep(copy.deepcopy(model)), batch, training=True).module()
    for _ in range(5):
        torch.testing.assert_close(run(**batch), model(**batch), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dict(run.named_buffers())["net.queue"], model.queue)
    print("ok written_places")


if __name__ == "__main__":
    check_all()
    check_written_places()
