#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps in which PyTorch has no gradient for some parameters, as the sides of branches that read them are not taken: these parameters and
all of their state stay as they are, as with `zero_grad()` and a step of PyTorch's optimizer."""

import copy
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from memopt import export

_KINDS = []


def kind(function):
    """Computes the loss of a `Model`."""
    _KINDS.append(function)
    return function


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.inner, self.gate, self.head = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 6)) for _ in range(4))

    def choose(self, x):
        h = torch.tanh(self.inner(x))
        weights, chosen = self.gate(h).softmax(-1).max(-1)
        return h, weights[:, None], chosen

    def forward(self, x, y):
        return F.cross_entropy(self.head(self.function(self, x)), y)


@kind
def by_mask(self, x):
    h, weights, chosen = self.choose(x)
    out = torch.zeros_like(h)
    for number, expert in enumerate(self.experts):
        mask = chosen == number
        if mask.any():
            out[mask] += weights[mask] * expert(h[mask])
    return out


@kind
def by_rows(self, x):
    h, weights, chosen = self.choose(x)
    out = h.clone()
    for number, expert in enumerate(self.experts):
        rows = (chosen == number).nonzero().flatten()
        if rows.numel() == 0:
            continue
        out = out.index_add(0, rows, expert(h[rows]) * weights[rows])
    return out


@kind
def by_counts(self, x):
    """Rows in the order of their experts, of which those without rows are left out."""
    h, weights, chosen = self.choose(x)
    chosen = chosen.repeat(3)
    order = chosen.argsort(stable=True)
    rows, pieces, start = h[order % len(h)], [], 0
    for number, count in enumerate(chosen.bincount(minlength=4).cpu().numpy()):
        end = start + count
        if count == 0:
            continue
        pieces.append(self.experts[number](rows[start:end]))
        start = end
    pieces = torch.cat(pieces)
    out = torch.empty_like(pieces)
    out[order] = pieces
    return out.view(3, *h.shape).mean(0) * weights


@kind
def by_two_sides(self, x):
    """Values of both sides, computed before the branch; what is read on both sides is updated always."""
    h, weights, chosen = self.choose(x)
    h = h * weights
    before = self.experts[0](h)
    if chosen.float().mean() > 1.5:
        h = before
    else:
        h = self.experts[1](h)
    return h


@kind
def by_nested_sides(self, x):
    h, weights, chosen = self.choose(x)
    h = h * weights
    count = (chosen == chosen[0]).sum()
    if count > 2:
        h = h + self.experts[0](h).mean()
    elif count > 1:
        h = h * self.experts[1](h).mean()
    if chosen[0] == 1:
        h = h - self.experts[1](h).mean()
    return h


@kind
def by_steps(self, x):
    """The second is used where the first is."""
    h, weights, chosen = self.choose(x)
    h = h * weights
    if (chosen == chosen[0]).sum() > 2:
        h = self.experts[0](h).relu()
        if h.sum() > 0.5:
            h = self.experts[1](h)
    return h + x


@kind
def without_gradient(self, x):
    """What is read without a gradient on the other side has none there."""
    h, weights, chosen = self.choose(x)
    h = h * weights
    if (chosen == chosen[0]).sum() > 2:
        return h + self.experts[0](h)
    with torch.no_grad():
        scale = self.experts[0](h).abs().mean()
    return h * scale


def _batches(dtype, count=8):
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        yield {"x": 2 * torch.randn(4, 6, generator=generator, dtype=dtype), "y": torch.randint(0, 3, (4,), generator=generator)}


def _compare_states(own, reference):
    assert own.keys() == reference.keys(), (own.keys(), reference.keys())
    for number, entry in reference.items():
        for key, value in entry.items():
            if value is not None:
                a, b = (torch.as_tensor(tensor, dtype=torch.float64) for tensor in (own[number][key], value))
                assert torch.allclose(a, b, rtol=1e-6, atol=1e-9), (number, key, a, b)


def check(function, make, **options):
    torch.manual_seed(3)
    model = Model(function).double()
    reference = copy.deepcopy(model)
    optimizer, other = make(model.parameters()), make(reference.parameters())
    batches = list(_batches(torch.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("error", memopt.NumbersWarning)
        step = memopt.compile(model, None, batches[0], optimizer=optimizer, **options)
    left_out = 0
    for number, batch in enumerate(batches):
        other.zero_grad()
        loss = reference(**batch)
        loss.backward()
        left_out += sum(parameter.grad is None for parameter in reference.experts.parameters())
        if "max_grad_norm" in options:
            nn.utils.clip_grad_norm_(reference.parameters(), options["max_grad_norm"])
        other.step()
        assert abs(float(step(batch)) - loss.item()) < 1e-7, (function, number)
        if number == 3:  # state goes to PyTorch and back
            step.sync()
            _compare_states(optimizer.state_dict()["state"], other.state_dict()["state"])
            optimizer.load_state_dict(copy.deepcopy(other.state_dict()))
    assert 0 < left_out < 16 * len(batches), (function, left_out)
    step.sync()
    for own, expected in zip(model.parameters(), reference.parameters()):
        assert torch.allclose(own, expected, rtol=1e-6, atol=1e-8), (function, options, (own - expected).abs().max())
    _compare_states(optimizer.state_dict()["state"], other.state_dict()["state"])
    print("ok", function.__name__, type(optimizer).__name__, options)


def check_exported():
    """The exported program has the model's gradients in PyTorch, too."""
    torch.manual_seed(3)
    model, batch = Model(by_rows), next(_batches(torch.float32))
    module = export.export_program(export.TrainingStep(model), batch, training=True).module()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of operators without a gradient
        module(**batch).backward()
    model(**batch).backward()
    for key, parameter in module.named_parameters():
        expected = model.get_parameter(key.removeprefix("net.")).grad
        torch.testing.assert_close(parameter.grad, torch.zeros_like(parameter) if expected is None else expected)
    print("ok exported")


def _adamw(parameters):
    return torch.optim.AdamW(parameters, 1e-2, weight_decay=0.1)


_OPTIMIZERS = [
    lambda parameters: torch.optim.SGD(parameters, 1e-2, weight_decay=0.1),
    lambda parameters: torch.optim.SGD(parameters, 1e-2, momentum=0.9, dampening=0.5),
    lambda parameters: torch.optim.RMSprop(parameters, 1e-3, momentum=0.9, centered=True),
    lambda parameters: torch.optim.NAdam(parameters, 1e-2),
    lambda parameters: torch.optim.Adafactor(parameters, 1e-2),
    lambda parameters: memopt.optim.Lion(parameters, 1e-3),
]

if __name__ == "__main__":
    torch.set_num_threads(1)
    check_exported()
    for function in _KINDS:
        check(function, _adamw)
    for make in _OPTIMIZERS:
        check(by_rows, make)
    check(by_mask, _adamw, micro_batches=2)
    check(by_rows, _adamw, micro_batches=4)
    check(by_mask, _adamw, max_grad_norm=0.5)
    check(by_rows, _adamw, offload_optimizer="cpu")
