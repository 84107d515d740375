# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_own_optimizers.py FOLDER [CASE...]: optimizers beside those of torch.optim that everybody has."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import assert_near, refuses, run_cases, step_in_pytorch


class Net(nn.Module):
    """Names and shapes that the optimizers treat apart."""

    def __init__(self):
        super().__init__()
        self.embed, self.q_proj, self.mlp = nn.Embedding(10, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 32)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 5)

    def forward(self, word):
        return self.head(self.norm(torch.tanh(self.mlp(self.q_proj(self.embed(word))))))


BATCHES = [(torch.randint(10, (8,)), torch.randint(5, (8,))) for _ in range(8)]


def compile_net(make):
    torch.manual_seed(0)
    model = Net()
    other = copy.deepcopy(model)
    optimizer = make(model)
    return memopt.compile(model, F.cross_entropy, BATCHES[0], optimizer=optimizer), model, optimizer, other, make(other)


def assert_same(make, tolerance=2e-5):
    """Compiled, then on in PyTorch from its state, then compiled again from there."""
    step, model, optimizer, other, other_optimizer = compile_net(make)
    for batch in BATCHES[:3]:
        assert_near(step(batch), step_in_pytorch(other, other_optimizer, batch), tolerance)
    step.sync()
    for batch in BATCHES[3:6]:
        assert_near(step_in_pytorch(model, optimizer, batch), step_in_pytorch(other, other_optimizer, batch), tolerance)
    step.reload()
    for batch in BATCHES[6:]:
        assert_near(step(batch), step_in_pytorch(other, other_optimizer, batch), tolerance)


def split(model, **more):
    rest = [parameter for parameter in model.parameters() if parameter is not model.embed.weight]
    return [{"params": rest}, {"params": [model.embed.weight], **more}]


def own():
    """Those of memopt.optim step as the option of their name."""
    assert_same(lambda model: memopt.optim.Lion(split(model, lr=1e-2, weight_decay=0.3), lr=1e-3, weight_decay=0.1))
    assert_same(lambda model: memopt.optim.SM3(split(model, lr=1e-2), lr=0.05))
    assert_same(lambda model: memopt.optim.AdamMini(model.named_parameters(), lr=1e-2, weight_decay=0.1, n_heads=4))
    assert_same(lambda model: memopt.optim.Muon(split(model, muon=False), lr=1e-2))
    assert_same(lambda model: memopt.optim.Muon(split(model, muon=False)[::-1], lr=1e-2, adjust_lr_fn="match_rms_adamw"))
    refuses(memopt.Refused, ["'embed.weight'", "muon=False"], compile_net, lambda model: memopt.optim.Muon(model.parameters()))
    refuses(memopt.BadInput, ["named_parameters"], compile_net, lambda model: memopt.optim.AdamMini(model.parameters()))
    assert_same(lambda model: memopt.optim.Apollo(split(model, lr=2e-3), lr=1e-3, rank=6, update_proj_gap=3, weight_decay=0.1))
    assert_same(lambda model: memopt.optim.ApolloMini(model.parameters(), lr=1e-3))


def torch_muon():
    """PyTorch's iteration rounds to bf16."""
    if not hasattr(torch.optim, "Muon"):
        return
    matrices = lambda model: [model.q_proj.weight, model.mlp.weight]
    assert_same(lambda model: torch.optim.Muon(matrices(model), lr=1e-2), tolerance=5e-3)
    refuses(memopt.Refused, ["ns_coefficients"], compile_net,
            lambda model: torch.optim.Muon(matrices(model), ns_coefficients=(3.0, -4.0, 2.0)))


class Inherited(torch.optim.AdamW):
    def __init__(self, parameters):
        super().__init__(parameters, lr=1e-2)


class Changed(torch.optim.AdamW):
    def step(self, closure=None):
        return super().step(closure)


class Wrapper(torch.optim.Optimizer):
    """As those of Accelerate and Lightning: the optimizer is inside."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()


def derived():
    """Subclasses that step as their base, and wrappers."""
    assert_same(lambda model: Inherited(model.parameters()))
    assert_same(lambda model: Wrapper(torch.optim.AdamW(model.parameters(), lr=1e-2)))
    refuses(memopt.Refused, ["Changed steps otherwise than AdamW"], compile_net, lambda model: Changed(model.parameters()))


run_cases([own, torch_muon, derived])
