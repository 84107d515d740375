# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that are written anew, and what their checks share: they run in PyTorch beside the models, and in compiled steps."""

import logging

import torch
from torch import nn

import memopt
from memopt import export

logging.getLogger("torch").setLevel(logging.ERROR)


class _Copy(torch.autograd.Function):
    """Autograd lacks it, for programs before their decompositions have none."""

    @staticmethod
    def forward(ctx, into, value):
        return value.expand_as(into).to(into.dtype).clone()

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient


library = torch.library.Library("aten", "IMPL")
library.impl("copy", lambda into, value, non_blocking=False: _Copy.apply(into, value), "Autograd")


class Model(nn.Module):
    """A linear layer and what a case makes of it."""

    def __init__(self, function, inside, outside, **parameters):
        super().__init__()
        self.linear, self.function = nn.Linear(inside, outside), function
        for name, value in parameters.items():
            setattr(self, name, value if isinstance(value, nn.Module) else nn.Parameter(value))

    def forward(self, **batch):
        return self.function(self, **batch)


_cases = {}


def case(inside=6, outside=5, **parameters):
    def register(function):
        assert function.__name__ not in _cases, f"two cases {function.__name__}"
        _cases[function.__name__] = (function, inside, outside, parameters)
        return function
    return register


def _call(module, batch):
    return module(**{key: value.clone() for key, value in batch.items()})


def check(name):
    torch.manual_seed(0)
    function, inside, outside, parameters = _cases[name]
    model = Model(function, inside, outside, **{key: make() for key, make in parameters.items()})
    batch = {"x": torch.randn(12, inside), "t": torch.randint(-2, outside, (12,)), "keep": torch.rand(12) < 0.5}
    batch = {key: value for key, value in batch.items() if key in function.__code__.co_varnames}
    program = export.export_program(export.TrainingStep(model), batch, training=True)
    module = program.module()
    for label in (-1, 2) if "t" in batch else ():  # no sample has a label, or all have
        other = {**batch, "t": torch.full_like(batch["t"], label)}
        torch.testing.assert_close(_call(module, other), _call(model, other), rtol=1e-5, atol=1e-6, equal_nan=True,
                                   msg=lambda text: f"{name}, all labels {label}: {text}")
    expected, found = _call(model, batch), _call(module, batch)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, msg=lambda text: f"{name}: {text}")
    mine = dict(module.named_parameters())
    for key, parameter in model.named_parameters():
        wanted = torch.autograd.grad(expected, parameter, retain_graph=True, allow_unused=True)[0]
        got = torch.autograd.grad(found, mine[f"net.{key}"], retain_graph=True, allow_unused=True)[0]
        if wanted is not None:
            wanted = torch.view_as_real(wanted) if wanted.is_complex() else wanted
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}, gradient of {key}: {text}")
    sizes = [size for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor) for size in node.meta["val"].shape]
    assert all(isinstance(size, int) for size in sizes), f"{name}: {sizes}"
    print(f"ok {name}")


def compare_step(name, make):
    """A step beside PyTorch's, in the parameters behind it."""
    losses, results = [], []
    for compiled in (False, True):
        torch.manual_seed(0)
        model, batch = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if compiled:
            step = memopt.compile(model, None, batch, optimizer=optimizer)
            losses.append(step(batch))
            results.append(step.state_dict()["model"])
        else:
            loss = model(**batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            results.append(model.state_dict())
    assert abs(losses[0] - losses[1]) < 1e-5 * abs(losses[0]), (name, losses)
    for key, value in results[0].items():
        torch.testing.assert_close(results[1][key], value, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}, {key}: {text}")
    print(f"ok {name}")


def check_all():
    torch.set_num_threads(1)
    for name in _cases:
        check(name)
