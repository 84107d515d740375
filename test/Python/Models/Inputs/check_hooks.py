#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks on gradients of tensors and parameters, gradients of functions, parameters that forward writes, and those that a model holds
twice: three steps beside PyTorch's."""

import logging
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from memopt import export

logging.getLogger("torch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=memopt.NumbersWarning)
_KINDS = {}


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.inner, self.head, self.function = nn.Linear(6, 8), nn.Linear(8, 3), function
        self.register_buffer("mask", (torch.arange(48).reshape(8, 6) % 3 != 0).float())
        self.register_buffer("table", None)
        self.register_buffer("mean_weight", torch.zeros(8, 6))
        self.register_buffer("mean_bias", torch.zeros(8))

    def forward(self, x, y):
        return F.cross_entropy(self.function(self, x), y)


def kind(function, prepare=lambda model: None):
    """Gives the scores of a `Model`."""
    assert function.__name__ not in _KINDS
    _KINDS[function.__name__] = function, prepare
    return function


# Functions whose method `apply` was bound before: a gradient that is not that of forward

class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, steps):
        ctx.steps = steps
        result = (x * steps).round() / steps
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        result, = ctx.saved_tensors
        return gradient * (1 - result.square()) / ctx.steps, None


class _Coarse(_Rounded):
    """Has the forward of another."""

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.steps, None


class _Apart(torch.autograd.Function):
    """What is kept for the backward pass is said apart; one of two results has no gradient."""

    @staticmethod
    def forward(x, by=2.0):
        return x * by, x > 0

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        ctx.by = inputs[1]
        ctx.save_for_backward(outputs[1])
        ctx.mark_non_differentiable(outputs[1])

    @staticmethod
    def backward(ctx, gradient, _):
        positive, = ctx.saved_tensors
        return gradient * torch.where(positive, -ctx.by, 0.5), None


class _OfClass(torch.autograd.Function):
    by = 1

    @classmethod
    def forward(cls, ctx, x):
        return x * cls.by

    @classmethod
    def backward(cls, ctx, gradient):
        return gradient * cls.by * 3


class _Derived(_OfClass):
    by = 2

    @classmethod
    def forward(cls, ctx, x):
        return super().forward(ctx, x) * cls.by


_rounded, _coarse, _apart, _of_class, _derived = _Rounded.apply, _Coarse.apply, _Apart.apply, _OfClass.apply, _Derived.apply


@kind
def bound(self, x):
    return self.head(_derived(_of_class(_coarse(_rounded(torch.tanh(self.inner(x)), 4.0), 8.0))))


@kind
def bound_apart(self, x):
    h, positive = _apart(self.inner(x))
    return self.head(torch.where(positive, h, _apart(h, 0.5)[0]))


# Hooks in forward

@kind
def scaled(self, x):
    h = torch.tanh(self.inner(x))
    h.register_hook(lambda gradient: gradient * 0.5)
    return self.head(h)


@kind
def read_before(self, x):
    """The hook gets what comes through all readers, those before it too."""
    h = torch.tanh(self.inner(x))
    doubled = h * 2
    h.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    return self.head(doubled + h * h)


@kind
def several(self, x):
    """In their order; one reads what was computed behind the tensor, one writes over the gradient."""
    h = torch.tanh(self.inner(x))
    size = h.detach().norm()
    h.register_hook(lambda gradient: gradient / (gradient.norm() + size))
    h.register_hook(lambda gradient: gradient + 1e-3)

    def halve(gradient):
        gradient.mul_(0.5)
    h.register_hook(halve)
    return self.head(h)


@kind
def of_the_result(self, x):
    result = self.head(torch.tanh(self.inner(x)))
    if result.requires_grad:
        result.register_hook(lambda gradient: -gradient)
    return result


# Hooks on parameters

def _plain(name):
    def plain(self, x):
        return self.head(torch.tanh(self.inner(x)))
    plain.__name__ = name
    return plain


def _mask_gradients(model):
    model.inner.weight.register_hook(lambda gradient: gradient * model.mask)
    model.inner.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    model.head.bias.register_hook(lambda gradient: gradient * 0)


kind(_plain("of_parameters"), _mask_gradients)


# Writes

@kind
def masked(self, x):
    self.inner.weight.data *= self.mask
    return self.head(torch.tanh(self.inner(x)))


@kind
def within_a_norm(self, x):
    with torch.no_grad():
        self.inner.weight.copy_(torch.renorm(self.inner.weight, 2, 0, 0.5))
    return self.head(torch.tanh(self.inner(x)))


@kind
def in_place(self, x):
    """What is read is what the region gives back."""
    with torch.no_grad():
        self.inner.weight.div_(self.inner.weight.norm(dim=1, keepdim=True))
    return self.head(torch.tanh(self.inner(x)))


@kind
def a_part(self, x):
    with torch.no_grad():
        self.inner.weight[0] = 0
    self.head.weight.data[:, 1].clamp_(-0.1, 0.1)
    return self.head(torch.tanh(self.inner(x)))


@kind
def replaced(self, x):
    self.inner.weight.data = self.inner.weight.data * self.mask
    return self.head(torch.tanh(self.inner(x)))


@kind
def twice(self, x):
    """Read before, between and behind, by names from before the first write."""
    rows, h = self.inner.weight.t(), self.inner(x)
    self.inner.weight.data.mul_(0.9)
    h = h + x @ rows
    self.inner.weight.data.add_(0.01)
    return self.head(torch.tanh(h + self.inner(x)))


@kind
def parts_of_a_list(self, x):
    """Rows and halves, one of which is read behind the write."""
    with torch.no_grad():
        for row in self.inner.weight.unbind():
            row.div_(row.norm().clamp(min=0.5))
        first, second = self.head.weight.chunk(2, dim=1)
        first.mul_(0.5)
    left, right = self.inner.weight.data.split(4)
    right.clamp_(-0.1, 0.1)
    return self.head(torch.tanh(self.inner(x)) + left.sum())


@kind
def by_name(self, x):
    """The tensor that is written is no first argument."""
    torch.mul(self.inner.weight.data, self.mask, out=self.inner.weight.data)
    with torch.no_grad():
        torch.clamp(self.head.weight, -0.2, 0.2, out=self.head.weight)
    return self.head(torch.tanh(self.inner(x)))


@kind
def in_lists(self, x):
    weights = [self.inner.weight, self.head.weight]
    with torch.no_grad():
        torch._foreach_mul_(weights, 0.9)
        torch._foreach_maximum_(weights, [torch.full_like(weight, -0.1) for weight in weights])
        lengths = torch._foreach_norm(weights)
    return self.head(torch.tanh(self.inner(x))) * lengths[0]


@kind
def average_in_lists(self, x):
    with torch.no_grad():
        torch._foreach_lerp_([self.mean_weight, self.mean_bias], [self.inner.weight, self.inner.bias], 0.1)
    return self.head(torch.tanh(self.inner(x)) - torch.tanh(F.linear(x, self.mean_weight, self.mean_bias)))


def written_and_hooked(self, x):
    self.inner.weight.data *= self.mask
    return self.head(torch.tanh(self.inner(x)))


kind(written_and_hooked, _mask_gradients)


# A buffer that has nothing

@kind
def left_empty(self, x):
    if self.table is None or self.table.shape[0] != x.shape[1]:
        self.register_buffer("table", torch.arange(x.shape[1]) * self.mask[0] * 0.1)
    return self.head(torch.tanh(self.inner(x + self.table)))


class _Labels(tuple):
    """Whose length is of another kind, as that of e3nn's irreducible representations."""

    def __len__(self):
        raise NotImplementedError


def _empty(model):
    model.labels = _Labels((1, 2))
    model.register_buffer("weight", torch.zeros(0))


def without_elements(self, x):
    """A buffer that keeps nothing, and an attribute without a length."""
    return self.head(torch.tanh(self.inner(x))) * (1 + self.weight.numel())


kind(without_elements, _empty)


# Parameters that the model has twice

def _hold(model):
    model.held, model.named = [model.inner.weight, model.head.weight], {"bias": model.head.bias}


def held_in_containers(self, x):
    scale = 1 + 0.1 * sum(weight.square().sum() for weight in self.held) + torch.linalg.norm(self.named["bias"])
    return self.head(torch.tanh(self.inner(x))) * scale


kind(held_in_containers, _hold)


def held_in_graphs(self, x):
    h = torch.cond(x.mean() > 0, lambda x: torch.tanh(x @ self.held[0].T), lambda x: x[:, :1] * self.held[0].sum(1), (x,))
    return self.head(h + self.inner(x))


kind(held_in_graphs, _hold)


def make(name):
    torch.manual_seed(0)
    function, prepare = _KINDS[name]
    model = Model(function)
    prepare(model)
    return model, [{"x": torch.randn(8, 6), "y": torch.randint(3, (8,))} for _ in range(3)]


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def train_eager(name):
    model, batches = make(name)
    optimizer, losses = adam(model), []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def train(name, **options):
    model, batches = make(name)
    step = memopt.compile(model, None, batches[0], optimizer=adam(model), **options)
    return [step(batch) for batch in batches], step.state_dict()["model"], step, model


def check(name):
    losses, state = train_eager(name)
    found, ours, _, _ = train(name)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(losses), rtol=2e-6, atol=2e-6, msg=lambda text: f"{name}: {text}")
    for key, value in ours.items():
        torch.testing.assert_close(value, state[key], rtol=1e-5, atol=1e-6, msg=lambda text: f"{name}, {key}: {text}")
    print(f"ok {name}")


def check_micro_batches():
    """Hooks that scale do so in each part; a write is made once."""
    for name in ("scaled", "within_a_norm"):
        whole, parts = train(name)[:2], train(name, micro_batches=2)[:2]
        torch.testing.assert_close(torch.tensor(parts[0]), torch.tensor(whole[0]), rtol=1e-5, atol=1e-6)
        for key, value in whole[1].items():
            torch.testing.assert_close(parts[1][key], value, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}, {key}: {text}")


def refuses(words, run, kinds=memopt.Error):
    try:
        run()
    except kinds as refusal:
        assert all(word in str(refusal) for word in words), refusal
    else:
        raise AssertionError(f"not refused: {words}")


def check_synchronized():
    """What `sync` writes to the model is no change of what its containers hold."""
    losses, _ = train_eager("held_in_containers")
    model, batches = make("held_in_containers")
    step, found = memopt.compile(model, None, batches[0], optimizer=adam(model)), []
    for batch in batches:
        found.append(step(batch))
        step.sync()
    torch.testing.assert_close(torch.tensor(found), torch.tensor(losses), rtol=2e-6, atol=2e-6)


def check_changes():
    """A hook that goes, and one that reads another number, are seen."""
    for change in (lambda model, handle: handle.remove(), lambda model, handle: model.scale.update(by=3.0)):
        torch.manual_seed(0)
        model = Model(lambda self, x: self.head(torch.tanh(self.inner(x))))
        scale = model.scale = {"by": 2.0}
        handle = model.inner.weight.register_hook(lambda gradient: gradient * scale["by"])
        batch = {"x": torch.randn(8, 6), "y": torch.randint(3, (8,))}
        step = memopt.compile(model, None, batch, optimizer=adam(model))
        step(batch)
        change(model, handle)
        refuses(["compiled"], lambda: step(batch))


def check_refusals():
    def giving_none(self, x):
        h = self.inner(x)
        h.register_hook(lambda gradient: None)
        return self.head(h)

    def under_no_grad(self, x):
        h = self.inner(x)
        with torch.no_grad():
            h.register_hook(lambda gradient: gradient * 2)
        return self.head(h)

    def taken_away(self, x):
        h = self.inner(x)
        h.register_hook(lambda gradient: gradient * 2).remove()
        return self.head(h)

    def by_the_batch(self, x):
        self.inner.weight.data.mul_(x.std())
        return self.head(self.inner(x))
    for function, words in ((giving_none, "gives none in its place"), (under_no_grad, "inside of torch.no_grad()"),
                            (taken_away, "takes a hook on a gradient away"), (by_the_batch, "writes the parameter inner.weight by what the batch")):
        model = Model(function)
        batch = {"x": torch.randn(8, 6), "y": torch.randint(3, (8,))}
        refuses([words], lambda: export.export_program(export.TrainingStep(model), batch, training=True), memopt.Refused)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in _KINDS:
        check(name)
    check_micro_batches()
    check_synchronized()
    check_changes()
    check_refusals()
