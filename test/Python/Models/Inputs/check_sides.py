#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches that the data decide: the program computes what the model does on either side, with its gradients."""

import copy
import sys
import warnings

import torch
import torch.nn.functional as F
from rewriting import Model

import memopt
from memopt import export

_SIDES = {}


def sides(checked=0):
    """A model of `x`, `place` and `keep`; of how many branches the program has one side, which it checks."""
    def register(function):
        _SIDES[function.__name__] = function, checked
        return function
    return register


def _batches():
    torch.manual_seed(1)
    for place in (torch.arange(8) % 3, torch.zeros(8), torch.full((8,), 2), torch.full((8,), 7)):
        for keep in (torch.ones(8), torch.zeros(8), torch.arange(8) % 2):
            yield {"x": torch.randn(8, 6), "place": place.long(), "keep": keep.bool()}


@sides()
def experts(self, x, place, keep):
    y, out = self.linear(x), torch.zeros(8, 5)
    for number in range(3):
        mask = place == number
        if mask.any():
            out[mask] += y[mask] * (number + 1)
    return out.square().sum() + y.mean()


@sides()
def experts_by_index(self, x, place, keep):
    """As Mixtral has them, of transformers."""
    chosen = F.one_hot(torch.stack([place % 3, (place + 1) % 3], 1), 3).permute(2, 1, 0)
    out, y = torch.zeros(8, 5), self.linear(x)
    for number in range(3):
        slot, rows = torch.where(chosen[number])
        if rows.numel() == 0:
            continue
        out.index_add_(0, rows, y[rows] * (slot[:, None] + number + 1.0))
    return (out + y).square().mean()


@sides()
def experts_that_are_hit(self, x, place, keep):
    """As Qwen's and Mixtral's experts have it, of transformers: a loop over those that have rows; more than sides are traced for."""
    chosen = F.one_hot(torch.stack([place % 3, (place + 1) % 13], 1), 13).permute(2, 1, 0)
    out, y = torch.zeros(8, 5), self.linear(x)
    scales = torch.arange(13)[:, None, None] + y.mean()
    for number in torch.greater(chosen.sum(dim=(-1, -2)), 0).nonzero():
        slot, rows = torch.where(chosen[number].squeeze(0))
        out.index_add_(0, rows, y[None, rows].reshape(-1, 5) * (slot[:, None] + scales[number].squeeze(0)))
    for number in (chosen[:2].sum((1, 2)) > 0).nonzero(as_tuple=True)[0]:
        _, rows = torch.where(chosen[number])
        out.index_add_(0, rows, y[rows] * scales[number])
    return (out + y).square().mean()


@sides()
def means_of_what_is_there(self, x, place, keep):
    """A loop over the classes that there are."""
    y, there = self.linear(x), F.one_hot(place % 4, 4).sum(0) > 0
    total = torch.zeros(5)
    for number in torch.nonzero(there):
        kind = number[0]
        total = total + y[place % 4 == kind].mean(0).exp() * (kind + 1)
    for number in torch.argwhere(keep[:2])[:, 0]:
        total = total + number
    return (total / there.sum()).square().sum()


@sides()
def region_behind(self, x, place, keep):
    """What is without a gradient behind the branches is the same region in all traces."""
    y = self.linear(x)
    out = torch.zeros_like(y)
    for part in range(3):
        (rows,) = torch.where((place == part).long())
        if rows.numel() > 0:
            out.index_add_(0, rows, y[rows].sin() * y[rows].mean(1, keepdim=True))
    with torch.no_grad():
        self.mean.mul_(0.9).add_(torch.sign(out.mean(0) - y.mean(0)) * 0.1)
    return (y + out).square().mean()


@sides()
def summed(self, x, place, keep):
    loss = self.linear(x).square().mean()
    if not keep.any():
        return loss
    return loss + F.mse_loss(self.linear(x)[keep], torch.ones_like(self.linear(x))[keep], reduction="sum") / 8


@sides()
def mean_of_some(self, x, place, keep):
    """A mean of no rows is no number, which the side that is not taken must not show."""
    y = self.linear(x)
    loss = y.square().mean()
    if keep.any():
        loss = loss + (y[keep] - 1).square().mean()
    return loss


@sides()
def other_side(self, x, place, keep):
    y = self.linear(x)
    if keep.sum() > 0:
        loss = F.smooth_l1_loss(y[keep], x[keep, :5])
    else:
        loss = y.sum() * 0.0
    return loss + 0.1 * y.square().sum()


@sides()
def counted(self, x, place, keep):
    """A mean over as many branches as were taken."""
    y = self.linear(x)
    total, terms = torch.zeros(()), torch.full((), 1e-3)
    for number in range(2):
        mask = place == number
        if mask.any():
            total = total + y[mask].square().mean()
            terms = terms + mask.any().float()
    return y.square().mean() + total / terms


@sides()
def hardest(self, x, place, keep):
    """Online hard examples: those above a limit, or the highest where these are few."""
    each = self.linear(x).square().mean(1)
    hard = each[(each > 0.3) & keep]
    if hard.numel() < 3:
        hard, _ = each.topk(3)
    return hard.mean()


@sides()
def few(self, x, place, keep):
    """The mean of rows stands on the other side, where it is no number of none."""
    y = self.linear(x)
    if keep.sum() == 0:
        return y.square().mean()
    if (place == 2).sum() < 2:
        y = y * 2
    elif y[place == 2].shape[0] > 6:
        y = y + y[place == 2].mean(0)
    return (y[keep].std() - 1).square() + y.mean()


@sides()
def by_value(self, x, place, keep):
    y = self.linear(x)
    if y.sum() > 0:
        y = y * 2
    else:
        y = y.tanh()
    if (y.abs() > 1.5).any():
        y = y.clamp(-1.5, 1.5)
    return y.square().mean()


@sides()
def several(self, x, place, keep):
    y = self.linear(x)
    if (place == 0).all():
        y = y.exp()
    elif (place == 2).all():
        y = y * 3
    elif keep.all():
        return (y - 1).square().mean()
    else:
        y = y.abs() + 0.1
    return y.square().mean()


@sides()
def nested(self, x, place, keep):
    y = self.linear(x)
    out = y * 0.5
    if keep.any():
        out = out + 1
        first = keep & (place == 0)
        if first.any():
            out[first] = out[first] * y[first].mean()
    return out.square().mean()


@sides()
def chained(self, x, place, keep):
    """What one branch has changed is read in the next."""
    y = self.linear(x)
    for number in range(2):
        if (place == number).any():
            y = y + y[place == number].mean(0)
    return y.square().mean()


@sides()
def buffered(self, x, place, keep):
    y = self.linear(x)
    if keep.any():
        self.seen.add_(1)
        self.mean.copy_(0.9 * self.mean + 0.1 * y[keep].mean(0).detach())
    return (y - self.mean).square().mean() + 0 * self.seen


@sides()
def by_zeros_of_a_shape(self, x, place, keep):
    """What has the data's shape follows from no data."""
    y = self.linear(x)
    z = torch.zeros_like(y)
    z[0] = 1
    if z.mean() > 0:
        y = y * 2
    if y.new_zeros(3).any():
        y = y + 1
    return y.square().sum()


@sides()
def other_shapes(self, x, place, keep):
    """The sides differ in a shape, and what they end in does not."""
    parts = [self.linear(x)]
    if keep.any():
        parts.append(self.linear(x) * 2)
    return torch.stack(parts).square().mean()


@sides(checked=1)
def shapes_written(self, x, place, keep):
    """The sides differ in the shape of what is written; the program has one."""
    y = self.linear(x)
    parts = torch.zeros(8, 5) if keep.any() else torch.zeros(1, 5)
    parts.add_(y[:len(parts)])
    return (parts * y).square().mean()


@sides(checked=1)
def listed(self, x, place, keep):
    """Of no losses there is no mean: PyTorch has an error, and the first trace takes the other side."""
    y, losses = self.linear(x), []
    for number in range(2):
        if (place == number).sum() == 0:
            continue
        losses.append(y[place == number].square().sum())
    return sum(losses) / len(losses)


@sides()
def twice_by_one_condition(self, x, place, keep):
    """The second side needs what the first has made."""
    y, some = self.linear(x), keep.any()
    if some:
        scale = keep.sum() + 1
    y = y.tanh()
    if some:
        y = y * scale
    return y.square().sum()


@sides()
def by_what_is_known(self, x, place, keep):
    """A condition that follows from no data is no branch: its other side, which PyTorch cannot run, is never traced."""
    weights = torch.ones(4, 3)
    weights[0] = 2
    y = self.linear(x)
    if (weights > 3).any():
        chosen = weights.sum()
        y = y.view(3, 3)
    if weights.sum() == 15:
        y = y + 1
    if (weights > 3).any():
        y = y * chosen
    return y.square().mean() if keep.any() else y.sum()


@sides()
def both_write(self, x, place, keep):
    """Each side writes to buffers, to other parts of the same and in other ways."""
    y = self.linear(x)
    if keep.any():
        self.seen.add_(1)
        self.mean[0] = y.detach().sum()
    else:
        self.seen.sub_(2)
        self.mean[1] = x.mean()
    return (y * (1 + self.seen)).square().mean() + y.sum() * self.mean.sum()


@sides()
def within_another(self, x, place, keep):
    """Inner branches write to the same tensors as those around them, and what is behind writes to them, too."""
    y = self.linear(x)
    out = torch.zeros_like(y)
    if keep.any():
        out[0] = y[1].sin()
        self.seen.add_(1)
        if place.max() > 1:
            out.add_(y * 2)
            self.seen.mul_(3)
        else:
            out[1] = y[0]
            self.mean[2] = y.detach().sum()
        self.mean.add_(self.seen)
    out.mul_(2)
    self.seen.add_(place.sum())
    return (y + out).square().mean() * (1 + self.seen) + y.sum() * self.mean.sum()


@sides()
def written_behind(self, x, place, keep):
    """A copy on one side, and the tensor itself on the other."""
    y = self.linear(x)
    out = torch.ones_like(y)
    rows = out
    if keep.any():
        rows = out.clone()
    rows.add_(y)
    return (rows * out).square().mean()


@sides()
def without_gradients(self, x, place, keep):
    """Branches inside of a region without gradients."""
    y = self.linear(x)
    with torch.no_grad():
        scale = y.abs().mean()
        if place.max() > 2:
            scale = scale * 2
            self.mean.mul_(0.5).add_(y.mean(0))
        else:
            self.seen += scale
    return (y * scale).square().mean() + self.mean.sum()


@sides(checked=1)
def queue_with_an_end(self, x, place, keep):
    """What does not fit behind the last rows is left out, and the queue begins anew."""
    y = self.linear(x)
    old = self.queue.clone()
    with torch.no_grad():
        start = int(self.end)
        if start + len(y) >= len(self.queue):
            self.queue[start:] = y[:len(self.queue) - start]
            self.end[:] = 0
        else:
            self.queue[start:start + len(y)] = y
            self.end[:] = start + len(y)
    return (y @ old.T).square().mean() + y.mean()


@sides()
def by_a_number(self, x, place, keep):
    """A flag that is an integer, and tensors that may be equal."""
    y = self.linear(x)
    if not self.end.item():
        y = y * 2
        self.end.fill_(1)
    if torch.equal(place, place.flip(0)):
        y = y + 1
    return y.square().mean()


@sides()
def solver(self, x, place, keep):
    """Turns, sizes and branches by times that follow from no data are those of Python."""
    times = torch.linspace(0, 1, 3)
    assert (times[1:] > times[:-1]).all()
    steps = torch.ceil((times[-1] - times[0]) / 0.25 + 1).item()
    grid = torch.arange(0, steps) * 0.25
    grid[-1] = times[-1]
    y, found, next_time = self.linear(x), [], 1
    for begin, end in zip(grid[:-1], grid[1:]):
        y = y + (end - begin) * torch.tanh(y)
        while next_time < len(times) and end >= times[next_time]:
            found.append(y)
            next_time += 1
    return torch.stack(found).square().mean() * len(found)


@sides()
def values_from_before(self, x, place, keep):
    """A side that gives what was there before: behind it that has two names, of which one is chosen."""
    y = self.linear(x)
    most = y if place.max() > 5 else y * 0.5
    if keep.all():
        least = y
    else:
        least = torch.minimum(y, most - 0.1)
    return (y - most).exp().sum() + (y - least).square().mean() + (most * least).sum()


@sides()
def stabilized(self, x, place, keep):
    """As the states of an sLSTM are, of xLSTM: what they begin with follows from no data, what they go on with does."""
    size, total, most = torch.zeros(8, 5), 0, torch.zeros(8, 5)
    for number in range(4):
        y = self.linear(x + number)
        most = y if torch.all(size == 0) else torch.max(y, most - 0.1)
        size = (size * 0.5 + torch.exp(y - most)) * keep[:, None]
        total = total + size * (number + 1)
    return total.square().mean()


@sides()
def known_attributes(self, x, place, keep):
    """Tensors that are attributes and no state, and draws that give one number, follow from no data."""
    columns = [x[:, number] * 2 if is_wide else x[:, number] for number, is_wide in enumerate(self.wide)]
    size = [self.count.item()][int(torch.empty(1).uniform_(0.0, 1.0).item())]
    return self.linear(torch.stack(columns, 1))[:, torch.randint(2, 3, (1,)).item():size].square().mean()


@sides()
def region_of_autocast(self, x, place, keep):
    """Which changes nothing, as it is not enabled."""
    with torch.autocast("cuda", enabled=False):
        y = self.linear(x)
        with torch.no_grad():
            if keep.any():
                self.seen += 1
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            if place.max() > 5:
                y = y * self.linear(x).tanh()
    return y.square().mean() * self.seen.clamp(min=1)


class Sided(Model):
    def __init__(self, function):
        super().__init__(function, 6, 5)
        self.wide, self.count = torch.tensor([True, False, False, True, True, False]), torch.tensor(4)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("queue", torch.ones(20, 5))
        self.register_buffer("end", torch.zeros(1, dtype=torch.int64))


def check(name):
    function, checked = _SIDES[name]
    torch.manual_seed(0)
    for batch in _batches():
        model = Sided(function)
        step = export.TrainingStep(copy.deepcopy(model))  # whose buffers are the program's
        program = export.export_program(step, batch, training=True)
        assert len(step.checked) == checked, (name, step.checked)
        module = program.module()
        for other in [batch, *_batches()]:
            try:
                expected = model(**{key: value.clone() for key, value in other.items()})
            except ZeroDivisionError:
                expected = None
            found = module(**{key: value.clone() for key, value in other.items()})
            if expected is None or checked and found.isnan():
                assert found.isnan() and other is not batch, (name, found)
                continue
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, msg=lambda text: f"{name}: {text}")
            mine = dict(module.named_parameters())
            wanted = torch.autograd.grad(expected, list(model.parameters()))
            got = torch.autograd.grad(found, [mine[f"net.{key}"] for key, _ in model.named_parameters()])
            for a, b in zip(got, wanted):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}, {other}: {text}")
            for key, value in model.named_buffers():
                torch.testing.assert_close(dict(module.named_buffers())[f"net.{key}"], value, msg=lambda text: f"{name}, {key}: {text}")
        break  # one traced program for all batches
    print(f"ok {name}")


def check_missing():
    """What is in the way of a side that the program does not have is said when the model is exported, and by a step that goes there."""
    def apart(self, x, place, keep):
        y = self.linear(x)
        if keep.any():
            y = y * torch.from_numpy(y.detach().numpy()).sum()
        return y.sum()
    step = export.TrainingStep(Sided(apart))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        export.export_program(step, next(_batches()), training=True)
    texts = [*step.checked, *(str(warning.message) for warning in said if warning.category is memopt.NumbersWarning)]
    assert len(texts) == 2 and all("cannot be compiled (" in text and "NumPy" in text for text in texts), texts
    print("ok missing")


def check_size():
    """Writes of one branch after the other to one tensor are there once each, not once for each way to them."""
    torch.manual_seed(0)
    program = export.export_program(export.TrainingStep(Sided(_SIDES["region_behind"][0])), next(_batches()), training=True)
    count = sum("sin." in str(node.target) for node in program.graph.nodes)
    assert count == 3, count
    print("ok size")


def check_first_values():
    """Parameters that get their values from the first batch: the step has the side without that, and says so."""
    def begin(self, x):
        with torch.no_grad():
            self.linear.bias.data.copy_(-x.mean(0)[:5])
            self.linear.weight.data.mul_(0.5)
        self.seen.fill_(1)

    def by_flag(self, x, place, keep):
        if not self.seen:
            begin(self, x)
        return self.linear(x).square().mean()

    def by_comparison(self, x, place, keep):
        if self.seen < 0.5:
            begin(self, x)
        return self.linear(x).square().mean()
    batch = next(_batches())
    for function in (by_flag, by_comparison):
        model = Sided(function)
        for is_ready in (False, True):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                step = memopt.compile(model, None, batch, optimizer=torch.optim.SGD(model.parameters(), 0.1))
            assert any("linear.bias" in str(warning.message) and "let a batch through the model in PyTorch" in str(warning.message)
                       for warning in said), function
            if is_ready:
                expected = model(**batch).item()
                assert abs(step(batch) - expected) < 1e-5 * abs(expected), function
                continue
            try:
                step(batch)
                raise AssertionError(function)
            except memopt.LossNotFinite as error:
                assert "let a batch through the model in PyTorch" in f"{error}{error.details}", error
            model(**batch)
    print("ok first_values")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or _SIDES:
        check(name)
    check_missing()
    check_size()
    check_first_values()
