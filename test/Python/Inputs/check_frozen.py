# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_frozen.py FOLDER [CASE...]: parameters that no optimizer has, in few bits."""

import copy
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import FOLDER, assert_near, get_bits, refuses, run_cases


class Adapted(nn.Module):
    """A frozen table and a frozen layer with an adapter, and a head."""

    def __init__(self):
        super().__init__()
        self.table, self.base = nn.Embedding(80, 64), nn.Linear(64, 96)
        self.down, self.up, self.head = nn.Linear(64, 4, bias=False), nn.Linear(4, 96, bias=False), nn.Linear(96, 10)
        for parameter in (*self.table.parameters(), *self.base.parameters()):
            parameter.requires_grad_(False)

    def forward(self, word):
        x = self.table(word)
        return self.head(torch.tanh(self.base(x) + self.up(self.down(x))))


class Named(nn.Module):
    """Another module that has the model under a name."""

    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, word):
        return self.inner(word)


torch.manual_seed(0)
BATCHES = [(torch.randint(80, (16,)), torch.randint(10, (16,))) for _ in range(4)]


def compile_adapted(model, **options):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return memopt.compile(model, F.cross_entropy, BATCHES[0], optimizer=torch.optim.SGD(trained, lr=0.5, momentum=0.9), **options)


def train_in_pytorch(model, steps=4):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5, momentum=0.9)
    losses = []
    for word, target in BATCHES[:steps]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(word), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def widened():
    """Losses are those of a model with the values of state_dict; sync leaves the model's own."""
    for options in ({"frozen_weights": "bf16"}, {"frozen_weights": "int8"}, {"frozen_weights": "nf4"},
                    {"frozen_weights": "nf4", "frozen_scales": "int8"}, {"frozen_weights": "nf4", "micro_batches": 2}):
        model = Adapted()
        before, step = copy.deepcopy(model.state_dict()), compile_adapted(model, **options)
        other = Adapted()
        other.load_state_dict(step.state_dict()["model"])
        assert not torch.equal(other.base.weight, model.base.weight) and not torch.equal(other.table.weight, model.table.weight)
        assert (other.base.weight - model.base.weight).abs().max() < 0.16 * model.base.weight.abs().max()
        assert torch.equal(other.base.bias, model.base.bias) == (options["frozen_weights"] != "bf16")
        assert step.plan.bytes_by_kind["frozen"] < 0.6 * 4 * (80 * 64 + 64 * 96)
        for ours, theirs in zip([step(batch) for batch in BATCHES], train_in_pytorch(other)):
            assert_near(ours, theirs)
        evaluates(step, other)
        step.sync()
        assert torch.equal(model.base.weight, before["base.weight"]) and not torch.equal(model.up.weight, before["up.weight"])


def evaluates(step, other):
    """Programs over the step's codes give the numbers of a model with their values, in no more variables."""
    before = step.plan.bytes_by_kind
    word, target = BATCHES[1]
    with torch.no_grad():
        assert_near(step.evaluate(BATCHES[1]), F.cross_entropy(other(word), target).item())
        torch.testing.assert_close(step.predict((word,)), other(word), rtol=1e-4, atol=1e-5)
    for name, plan in step.programs.items():
        assert plan.bytes_by_kind["variables"] == before["variables"], name
        assert plan.bytes_by_kind["frozen"] == before["frozen"], name


def programs():
    """More shapes over the same codes, compiled with the first and when they come; two steps that name the base otherwise."""
    model = Adapted()
    step = compile_adapted(model, frozen_weights="nf4", shapes=[tuple(part[:8] for part in BATCHES[0])], new_shapes="compile")
    other = Adapted()
    other.load_state_dict(step.state_dict()["model"])
    optimizer = torch.optim.SGD([p for p in other.parameters() if p.requires_grad], lr=0.5, momentum=0.9)
    for rows in (16, 8, 4, 16):
        word, target = (part[:rows] for part in BATCHES[1])
        optimizer.zero_grad()
        loss = F.cross_entropy(other(word), target)
        loss.backward()
        optimizer.step()
        assert_near(step((word, target)), loss.item())
        assert_near(step.evaluate((word, target)), F.cross_entropy(other(word), target).item())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def train(module, parameters):
        return memopt.Training(module, F.cross_entropy, BATCHES[0], optimizer=torch.optim.SGD(parameters, lr=0.5))
    steps = memopt.compile_steps({"plain": train(model, trained), "named": train(Named(model), trained)}, frozen_weights="nf4")
    other = Adapted()
    other.load_state_dict({name.removeprefix("inner."): value for name, value in steps.state_dict()["named"]["model"].items()})
    optimizer = torch.optim.SGD([p for p in other.parameters() if p.requires_grad], lr=0.5)
    for name, (word, target) in zip(("plain", "named", "plain"), BATCHES):
        optimizer.zero_grad()
        loss = F.cross_entropy(other(word), target)
        loss.backward()
        optimizer.step()
        assert_near(steps[name]((word, target)), loss.item())
        assert_near(steps["named"].evaluate((word, target)), F.cross_entropy(other(word), target).item())
    # What one trains the other cannot keep in few bits.
    refuses(memopt.BadInput, ["'down.weight'", "tensor<4x64xf32> kept in bf16"], memopt.compile_steps,
            {"head": train(model, model.head.parameters()), "all": train(model, trained)}, frozen_weights="bf16")


def goes_on():
    """From a state and from a checkpoint, with the same bits; beside another base a checkpoint is refused."""
    for kind in ("int8", "nf4"):
        model = Adapted()
        step, again, third = (compile_adapted(copy.deepcopy(model), frozen_weights=kind) for _ in range(3))
        for batch in BATCHES[:2]:
            step(batch)
        again.load_state_dict(step.state_dict())
        step.save(FOLDER / kind)
        third.load(FOLDER / kind)
        losses = [step(batch) for batch in BATCHES[2:]]
        for other in (again, third):
            assert [other(batch) for batch in BATCHES[2:]] == losses
            assert get_bits(other.state_dict()) == get_bits(step.state_dict())
        state = memopt.read_checkpoint(FOLDER / kind, model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5, momentum=0.9))
        assert torch.equal(state["model"]["base.weight"], model.base.weight)
        refuses(memopt.Error, ["another base"], compile_adapted(Adapted(), frozen_weights=kind).load, FOLDER / kind)


def narrow_activations():
    """Kept activations in 8 bits: a warning, the same bits from run to run, and nearly the same losses."""
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
    batches = [(torch.randn(64, 64), torch.randint(10, (64,))) for _ in range(3)]

    def train(**options):
        own = copy.deepcopy(model)
        step = memopt.compile(own, F.cross_entropy, batches[0], optimizer=torch.optim.SGD(own.parameters(), lr=0.1), **options)
        return [step(batch) for batch in batches]

    plain = train()
    for kind in ("int8", "fp8"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            losses = train(activation_dtype=kind)
        assert any(w.category is memopt.NumbersWarning and f"activations in {kind}" in str(w.message) for w in caught), caught
        assert losses == train(activation_dtype=kind) and losses != plain
        for ours, theirs in zip(losses, plain):
            assert_near(ours, theirs, 1e-2)


run_cases([widened, programs, goes_on, narrow_activations])
