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


# On sides of branches

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


# No gradients

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


def make(function, dtype):
    torch.manual_seed(0)
    model = Model(function).to(dtype)
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def check(function):
    torch.manual_seed(1)
    batches = [torch.randn(6, 8) for _ in range(3)]
    model, optimizer = make(function, torch.float64)
    losses = []
    for x in batches:
        optimizer.zero_grad()
        loss = model(x.double())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    ours, optimizer = make(function, torch.float32)
    step = memopt.compile(ours, None, {"x": batches[0]}, optimizer=optimizer)
    found = [step({"x": x}) for x in batches]
    step.sync()
    text = lambda text: f"{function.__name__}: {text}"
    torch.testing.assert_close(torch.tensor(found).double(), torch.tensor(losses).double(), rtol=2e-6, atol=2e-6, msg=text)
    state = model.state_dict()
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value.double(), state[key].double(), rtol=1e-5, atol=1e-6, msg=text)
    print(f"ok {function.__name__}")


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
    for function, words in ((of_a_length, "an operator in place on a slice x[:n]"), (detached_on_a_side, "write x = x.detach()")):
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
    check_refusal()
