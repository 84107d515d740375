#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes through views, most of them at places that follow from the data, and what takes gradients away: three steps beside PyTorch's in
float64."""

import torch
from torch import nn

import memopt

_KINDS = []


def kind(function):
    """Computes the loss of a `Model`."""
    _KINDS.append(function)
    return function


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.inner, self.head = function, nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("queue", torch.zeros(3, 8))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        return self.function(self, x)

    def compare(self, y):
        """The loss, by what is in the queue; the next turn is another."""
        loss = (self.head(y) - self.queue.sum(0)).square().mean()
        with torch.no_grad():
            self.count += 1
        return loss


# Views of a buffer that begin at a number of the data

@kind
def narrowed(self, x):
    y, place = self.inner(x), int(self.count % 2)
    with torch.no_grad():
        self.queue.narrow(0, place, 2).mul_(0.5).add_(y[:2])
    return self.compare(y)


@kind
def sliced(self, x):
    y, place = self.inner(x), int(self.count) % 2
    with torch.no_grad():
        self.queue[place:place + 2].copy_(y[:2])
    return self.compare(y)


@kind
def selected(self, x):
    y, place = self.inner(x), self.count.item() % 3
    with torch.no_grad():
        self.queue[place].copy_(y[0])
        self.queue[place] += 0.5
    return self.compare(y)


@kind
def viewed_again(self, x):
    """A view of a view, and what the first shows of the writes to the whole."""
    y, place = self.inner(x), int(self.count) % 3
    with torch.no_grad():
        row = self.queue[place]
        row.view(2, 4)[1].fill_(0.5)
        self.queue.add_(0.25)
        row[0] = 2 * row[1]
    return self.compare(y)


@kind
def at_a_tensor(self, x):
    y = self.inner(x)
    with torch.no_grad():
        self.queue[self.count % 3] = y.mean(0)
        self.queue[:, self.count] = 1.0
    return self.compare(y)


@kind
def through_data(self, x):
    y = self.inner(x)
    left, right = self.queue.data.chunk(2, 1)
    right.copy_(y[:3, :4].detach())
    with torch.no_grad():
        for place, row in enumerate(self.queue.unbind()):
            row.mul_(0.9).add_(y[place], alpha=0.1)
    return self.compare(y)


@kind
def by_name(self, x):
    y = self.inner(x)
    with torch.no_grad():
        torch.add(self.queue * 0.9, y[:3] * 0.1, out=self.queue)
    return self.compare(y)


# Views of values with gradients

@kind
def of_a_value(self, x):
    y, place = self.inner(x), int(self.count) % 3
    z = y.clone()
    z[place] = self.head(x)[0]
    z[place, 1:3] *= 2
    z.select(0, place).add_(1)
    return self.compare(z)


@kind
def between_numbers(self, x):
    z = self.inner(x).clone()
    start, length = (x[:, 0] > 0).sum().item(), (x[:, 1] > 0).sum().item()
    z[start:start + length].mul_(2)
    return self.compare(z)


@kind
def by_a_mask(self, x):
    """A choice by a mask is no view."""
    z, mask = self.inner(x).clone(), x[:, 0] > 0
    z[mask].mul_(100)
    z[mask] += 1
    return self.compare(z)


@kind
def at_tensors(self, x):
    """Numbers in tensors, which may count from the end."""
    z, last = self.inner(x).clone(), self.count - 1
    z[self.count % 3] += z[2]
    z[..., last].mul_(2)
    z[1:, self.count].add_(1)
    z[z.mean(1).argmax()].tanh_()
    return self.compare(z) + z[last].mean()


@kind
def of_a_copy(self, x):
    """`contiguous` has made one of the transposed tensor, and none of the tensor."""
    z = self.inner(x).clone()
    copied, same = z.t().contiguous().t(), z.contiguous()
    z[0].mul_(2)
    copied[1].add_(1)
    return self.compare(z * copied + same)


# Writes that autograd does not see

@kind
def seen_by_all_names(self, x):
    """What has the names of the tensor from before reads what was written."""
    z = self.inner(x).clone()
    part, same = z[:3], z.expand(6, 8)
    z.detach().mul_(0.5)
    z.t().detach()[0].add_(1)
    return self.compare(same) + part.square().mean()


@kind
def without_gradients(self, x):
    z = self.inner(x).clone()
    part = z[1:]
    with torch.no_grad():
        z[:, 0] = 0
        part.clamp_(-0.5, 0.5)
        taken = z[2]
        norm = z.norm()
    return self.compare(z / (1 + norm) + taken) + part.mean()


@kind
def read_beside_regions(self, x):
    """A region of the program that reads the same tensor."""
    z = self.inner(x)
    z.detach().mul_(z.sum().sigmoid())
    self.queue[0].lerp_(z.detach()[0], 0.1)
    with torch.no_grad():
        self.head(z)
    return self.compare(z)


@kind
def written_later(self, x):
    """What was computed without a gradient has one behind a write of what has one."""
    with torch.no_grad():
        z = self.head(x)
    z.view(-1).mul_(self.inner(x).sum().sigmoid())
    return self.compare(z)


@kind
def of_the_batch(self, x):
    """The step writes to a copy."""
    x.clamp_(-1, 1)
    with torch.no_grad():
        x[0] = 0
    return self.compare(self.inner(x))


# On sides of branches

@kind
def at_a_number_there(self, x):
    """The side that is not traced at first asks for a number."""
    y = self.inner(x).clone()
    if (y > 0).sum() > 240:
        pass
    else:
        y[int(self.count) % 3].fill_(0.3)
    return self.compare(y)



@kind
def on_a_side(self, x):
    """One side alone reads y there."""
    y = self.inner(x)
    with torch.no_grad():
        if x.mean() > 0:
            self.queue[0].copy_(y[0])
            self.count += 1
    return self.compare(y)


@kind
def parts_on_sides(self, x):
    y = self.inner(x).clone()
    if x.mean() > 0:
        y[1:3].mul_(2)
        y.t()[0].zero_()
    else:
        left, right = y.chunk(2, 1)
        y = torch.cat([right, left], 1)
    return self.compare(y)


@kind
def given_back_beside_a_branch(self, x):
    """`float` gives back y, which later readers have with its gradient."""
    y = self.inner(x)
    with torch.no_grad():
        if x.mean() > 0:
            self.count += 1
        scale = y.float().abs().mean()
    return self.compare(y * scale)


@kind
def written_where_detached(self, x):
    """Each `detach` has the gradients of what is written by it alone; all have its values."""
    y = self.inner(x).clone()
    first, second = y.detach(), y[:3].detach()
    first[0] = self.head(x)[0]
    second[1] = self.head(x)[2]
    first.mul_(0.5)
    with torch.no_grad():
        y[3] = 0.1
    return self.compare(y) + first.square().mean() + second.square().mean()


@kind
def computed_beside(self, x):
    """What a mask chooses under no_grad, of what is read behind it."""
    y = self.inner(x) * 2
    with torch.no_grad():
        torch.masked_select(y, y > 0.5).sum()
    return self.compare(y)


@kind
def on_an_inner_side(self, x):
    y = self.inner(x)
    if x.mean() > 0:
        if self.count % 2 == 0:
            self.count += 1
    return self.compare(y)


# No gradients

@kind
def detached_in_a_region(self, x):
    y = self.inner(x).clone()
    with torch.no_grad():
        y.detach_()
    return self.compare(y)


@kind
def written_when_detached(self, x):
    y = self.inner(x).clone()
    before = y * 2
    y.detach_()
    y.diagonal().add_(self.head(x)[:, 0])
    return self.compare(y) + before.mean()


@kind
def detached_in_place(self, x):
    """Readers from before have a gradient."""
    y = torch.tanh(self.inner(x))
    before = y * 2
    y.detach_()
    return self.compare(y) + before.mean()


@kind
def in_inference_mode(self, x):
    with torch.inference_mode():
        target = self.head(x)
    return (self.inner(x) - target.clone()).square().mean()


def make(function, dtype, kind=Model):
    torch.manual_seed(0)
    model = kind(function).to(dtype)
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def check(function, batches=None, kind=Model):
    torch.manual_seed(1)
    batches = batches or [torch.randn(6, 8) for _ in range(3)]
    model, optimizer = make(function, torch.float64, kind)
    losses = []
    for x in batches:
        optimizer.zero_grad()
        loss = model(x.double())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    ours, optimizer = make(function, torch.float32, kind)
    step = memopt.compile(ours, None, {"x": batches[0]}, optimizer=optimizer)
    before = [x.clone() for x in batches]
    found = [step({"x": x}) for x in batches]
    assert all(map(torch.equal, before, batches)), function.__name__
    step.sync()
    text = lambda text: f"{function.__name__}: {text}"
    torch.testing.assert_close(torch.tensor(found).double(), torch.tensor(losses).double(), rtol=2e-6, atol=2e-6, msg=text)
    state = model.state_dict()
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value.double(), state[key].double(), rtol=1e-5, atol=1e-6, msg=text)
    print(f"ok {function.__name__}")


class Updater(nn.Module):
    """Holds the model whose buffers it writes, as callbacks and averages of weights do."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.no_grad():
            self.model.queue.mul_(0.9).add_(x[:3], alpha=0.1)


class Held(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.model = Model(function)
        self.norm, self.instance = nn.BatchNorm1d(8), nn.InstanceNorm1d(6, track_running_stats=True)
        self.updater = Updater(self.model)
        self.other_norm = self.norm

    def forward(self, x):
        self.updater(x)
        return self.model(self.norm(x)) + self.updater.model.queue.mean() + self.other_norm(x).square().mean()


@kind
def behind_the_end(self, x):
    y = self.inner(x) * 2
    y[6:].mul_(2)
    y.unsqueeze(0)[1:].add_(1)
    return self.compare(y)


@kind
def copied_to_what_is_left_out(self, x):
    """What forward has written stays where a step leaves the parameter out."""
    y = self.inner(x)
    self.inner.weight.detach().copy_(self.inner.weight.data * 0.9 + self.head.weight.data * 0.1)
    if self.count % 2 == 0:
        y = x + 1
    return self.compare(y)


class Normed(Model):
    def __init__(self, function):
        super().__init__(function)
        self.norm, self.instance = nn.BatchNorm1d(8), nn.InstanceNorm1d(6, track_running_stats=True)


def normed_on_sides(self, x):
    """Running statistics move where a side is taken, also where nobody reads what the norm gives."""
    y = self.inner(x)
    if self.count % 2 == 0:
        y = self.norm(y)
    if y.mean() > 0:
        self.norm(y * 2)
        self.instance(y[None])
        y = y.cos()
    return self.compare(y)


def check_one_sided():
    """Sides that the program cannot have beside the other: a batch that goes there is refused."""
    def exchanged(self, x):
        y, z = self.inner(x), self.head(x)
        if x.mean() > 0:
            y, z = z, y
        return self.compare(y) + z.square().mean()

    def written_by_another_name(self, x):
        y = self.inner(x)
        name = y.view(-1)
        if x.mean() > 0:
            y = y * 2
        name.mul_(2)
        return self.compare(y)
    for function in (exchanged, written_by_another_name):
        check(function, [torch.randn(6, 8).abs() for _ in range(3)])
        model, optimizer = make(function, torch.float32)
        step = memopt.compile(model, None, {"x": torch.rand(6, 8)}, optimizer=optimizer)
        try:
            step({"x": -torch.rand(6, 8)})
        except memopt.LossNotFinite as error:
            assert "a branch goes to the side" in str(error), error
        else:
            raise AssertionError(f"{function.__name__} took both sides")


def check_refusal():
    def of_a_length(self, x):
        z = self.inner(x).clone()
        z[:(x[:, 0] > 0).sum().item()].mul_(2)
        return self.compare(z)

    def detached_on_a_side(self, x):
        y = self.inner(x)
        if x.mean() > 0:
            y.detach_()
        return self.compare(y)
    def of_single_samples(self, x):
        y = self.inner(x) * 2
        row = y[self.count % 3]
        row.copy_(row.flip(0).clone())
        return self.compare(torch.vmap(lambda a, b: a * b.sum())(y, y))
    for function, words in ((of_single_samples, "in a model that calls torch.vmap"), (of_a_length, "an operator in place on a slice x[:n]"), (detached_on_a_side, "write x = x.detach()")):
        model, optimizer = make(function, torch.float32)
        try:
            memopt.compile(model, None, {"x": torch.randn(6, 8)}, optimizer=optimizer)
        except memopt.Refused as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{function.__name__} was not refused")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for function in _KINDS:
        check(function)
    check(by_name, kind=Held)
    check(normed_on_sides, kind=Normed)
    check_one_sided()
    check_refusal()
