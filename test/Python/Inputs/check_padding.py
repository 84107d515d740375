# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_padding.py FOLDER [CASE...]: ragged="pad", held against PyTorch with the smaller batches."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import assert_near, refuses, run_cases

CLASSES = torch.tensor([1.0, 2.0, 0.5])


def make_net():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def make_batch(seed, count, has_classes):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 6, generator=generator)
    return rows, torch.randint(3, (count,), generator=generator) if has_classes else torch.randn(count, 3, generator=generator)


def adam(parameters):
    return torch.optim.Adam(parameters, 0.01, eps=1e-6)


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.5)  # Adam makes steps of the rounding of slopes that are 0, as those of a key's bias


def train_both(loss_fn, has_classes, make=make_net, groups=None, make_optimizer=adam, **options):
    """Trains on batches of several sizes, in PyTorch too, and compares; the step."""
    model, other = make(), make()
    optimizer = make_optimizer(other.parameters())
    groups = groups or [[8], [3], [8], [1], [5]]
    batches = [[make_batch(10 * number + place, count, has_classes) for place, count in enumerate(group)]
               for number, group in enumerate(groups)]
    step = memopt.compile(model, loss_fn, make_batch(0, 8, has_classes), optimizer=make_optimizer(model.parameters()), ragged="pad",
                          **options)
    for group in batches:
        whole = [torch.cat(column) for column in zip(*group)]
        optimizer.zero_grad()
        loss = loss_fn(other(whole[0]), whole[1])
        loss.backward()
        optimizer.step()
        assert_near(step(*group), loss.item())
    step.sync()
    for (name, mine), theirs in zip(model.state_dict().items(), other.state_dict().values()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6, msg=name)
    return step


def classes():
    """Targets that a cross entropy ignores: the program is that of full batches."""
    plain = memopt.compile(net := make_net(), F.cross_entropy, make_batch(0, 8, True),
                           optimizer=torch.optim.Adam(net.parameters(), 0.01, eps=1e-6))
    for loss_fn in (F.cross_entropy, lambda out, target: F.cross_entropy(out, target, weight=CLASSES, label_smoothing=0.2),
                    lambda out, target: F.cross_entropy(out, target, ignore_index=1, reduction="sum")):
        step = train_both(loss_fn, True)
        assert list(step.programs) == ["train-8x6"], step.programs
        if loss_fn is F.cross_entropy:
            assert step.package == plain.package


def other_losses():
    """Losses, sums and means that a mask leaves copies out of."""
    for loss_fn in (F.mse_loss, lambda out, target: F.l1_loss(out, target) + 0.5 * F.mse_loss(out, target, reduction="sum"),
                    lambda out, target: F.cross_entropy(out, target.softmax(1)),
                    lambda out, target: ((out - out.mean(0)) * target).square().sum(1).mean() + out.exp().mean(1).sum()):
        assert list(train_both(loss_fn, False).programs) == ["train-8x6"]
    mixed = lambda out, target: F.cross_entropy(out, target) + 0.1 * out.square().mean()
    assert list(train_both(mixed, True).programs) == ["train-8x6"]


def groups_of_batches():
    """Fewer batches than a step accumulates, some of them smaller; micro-batches."""
    step = train_both(F.cross_entropy, True, groups=[[8, 8], [8, 3], [5]], accumulative_counts=2)
    assert list(step.programs) == ["train-8x6", "train-8x6-of-1"], step.programs
    train_both(F.mse_loss, False, groups=[[8, 8], [8, 3], [5]], accumulative_counts=2)
    assert list(train_both(F.mse_loss, False, micro_batches=2).programs) == ["train-8x6"]


def own_programs():
    """What mixes samples, or counts them in Python, gets a program for each size, and a line says why."""
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.first, self.norm, self.last = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)

        def forward(self, rows):
            return self.last(self.norm(self.first(rows)))
    counted = lambda out, target: (out - target).square().sum() / out.shape[0]
    similar = lambda out, target: F.cross_entropy(out @ target.T, torch.arange(out.shape[0]))
    for loss_fn, has_classes, make, reason in ((F.cross_entropy, True, Normed, "batch_norm"), (counted, False, make_net, "number of samples"),
                                               (similar, False, make_net, "matmul")):
        step = train_both(loss_fn, has_classes, make, [[8], [3], [8]])
        assert list(step.programs) == ["train-8x6", "train-3x6"], step.programs
        assert reason in step._programs[0].archive.padding, step._programs[0].archive.padding


class Sequences(nn.Module):
    """A layer over three positions of two numbers, which may count samples second, or flatten positions and samples together."""

    def __init__(self, make, batch_first):
        super().__init__()
        torch.manual_seed(6)
        self.layer, self.batch_first, self.last = make(), batch_first, nn.Linear(4, 3)
        self.first = nn.Linear(2, 4)

    def forward(self, rows):
        x = self.first(rows.unflatten(1, (3, 2)))
        x = self.layer(x if self.batch_first else x.transpose(0, 1))
        x = x[0] if isinstance(x, tuple) else x
        return self.last(x if self.batch_first else x.transpose(0, 1)).mean(1)


def sequences():
    """Recurrent layers and attention take samples second, or between positions and features."""
    def encoder(batch_first):
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=batch_first), 2, enable_nested_tensor=False)
    for batch_first in (True, False):
        for make in (lambda: nn.LSTM(4, 4, 2, batch_first=batch_first), lambda: nn.GRU(4, 2, bidirectional=True, batch_first=batch_first),
                     lambda: nn.RNN(4, 4, batch_first=batch_first), lambda: encoder(batch_first)):
            step = train_both(F.cross_entropy, True, lambda: Sequences(make, batch_first), [[8], [3], [8]], sgd)
            assert list(step.programs) == ["train-8x6"], step.programs
    # Between positions and features samples cannot be left out of a sum, or cut off a prediction.
    flat = lambda out, target: F.mse_loss(out.unflatten(1, (3, 1)).transpose(0, 1).flatten(0, 1), target.T.reshape(-1, 1))
    assert list(train_both(flat, False, groups=[[8], [3]]).programs) == ["train-8x6", "train-3x6"]


def what_does_not_fit():
    """More samples, or other sizes, are no smaller batch."""
    model = make_net()
    step = memopt.compile(model, F.cross_entropy, make_batch(0, 8, True), optimizer=torch.optim.SGD(model.parameters(), 0.1), ragged="pad")
    refuses(memopt.BadInput, ["[9, 6]"], step, make_batch(0, 9, True))
    refuses(memopt.BadInput, ["[3, 5]"], step, (torch.randn(3, 5), torch.randint(3, (3,))))
    refuses(memopt.LossNotFinite, [], step, (torch.randn(2, 6), torch.full((2,), -100)))


def evaluation():
    """Running statistics keep samples apart, so one program evaluates all sizes, of the average as well."""
    def make():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    model = make()
    step = memopt.compile(model, F.mse_loss, make_batch(0, 8, False), optimizer=torch.optim.SGD(model.parameters(), 0.1), ragged="pad",
                          ema_decay=0.5)
    for seed in range(3):
        step(make_batch(seed, 8, False))
    step.sync()
    average = copy.deepcopy(model)
    average.load_state_dict(step.state_dict()["average"])
    for count in (3, 8, 1):
        batch = make_batch(9, count, False)
        for averaged, other in ((False, model), (True, average)):
            other.eval()
            assert_near(step.evaluate(batch, averaged=averaged), F.mse_loss(other(batch[0]), batch[1]).item())
            torch.testing.assert_close(step.predict(batch[:1], averaged=averaged), other(batch[0]), rtol=1e-4, atol=1e-6)
    assert list(step.programs) == ["train-8x6", "evaluate-8x6", "evaluate-averaged-8x6"], step.programs


run_cases([classes, other_losses, groups_of_batches, own_programs, sequences, what_does_not_fit, evaluation])
