# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_step_counts.py FOLDER [CASE...]: each parameter has had as many updates as in PyTorch, whenever it joins, is left out,
or comes back."""

import copy
import json

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import FOLDER, assert_near, refuses, run_cases


def make(seed=0):
    torch.manual_seed(seed)
    return nn.ModuleDict({"first": nn.Linear(6, 8), "last": nn.Linear(8, 4)})


class Loss(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers["last"](torch.tanh(self.layers["first"](x)))


def make_data(seed, samples=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 6, generator=generator), torch.randint(4, (samples,), generator=generator)


def eager(model, optimizer, *batches, limit=None):
    optimizer.zero_grad()
    losses = [F.cross_entropy(model(x), y) for x, y in batches]
    (sum(losses) / len(losses)).backward()
    if limit:
        nn.utils.clip_grad_norm_([parameter for group in optimizer.param_groups for parameter in group["params"]], limit)
    optimizer.step()
    return sum(loss.item() for loss in losses) / len(losses)


def compile_step(model, optimizer, **options):
    return memopt.compile(model, F.cross_entropy, make_data(0), optimizer=optimizer, **{"new_shapes": "compile", **options})


def list_counts(optimizer_state):
    return {index: int(entry["step"]) for index, entry in optimizer_state["state"].items() if "step" in entry}


def expect_same(step, model, optimizer):
    """State and parameters as PyTorch has them."""
    state = step.state_dict()
    held = enumerate(parameter for group in optimizer.param_groups for parameter in group["params"])
    theirs = list_counts({"state": {number: optimizer.state[parameter] for number, parameter in held if parameter in optimizer.state}})
    assert list_counts(state["optimizer"]) == theirs, (list_counts(state["optimizer"]), theirs)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(state["model"][name], value, rtol=2e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")


class Pair:
    """A loop in PyTorch and the compiled one, side by side."""

    def __init__(self, make_optimizer, **options):
        self.models = [Loss(make()) for _ in range(2)]
        self.optimizers = [make_optimizer(model) for model in self.models]
        self.step = compile_step(self.models[0], self.optimizers[0], **options)

    def change(self, function):
        for model, optimizer in zip(self.models, self.optimizers):
            function(model, optimizer)
            optimizer.zero_grad()

    def train(self, steps, count=1, **more):
        for seed in range(steps):
            batches = [make_data(10 * seed + k) for k in range(count)]
            assert_near(self.step(*batches), eager(self.models[1], self.optimizers[1], *batches, **more))
        expect_same(self.step, self.models[1], self.optimizers[1])


def last_alone(kind, **settings):
    return lambda model: kind(model.layers["last"].parameters(), **settings)


def everything(kind, **settings):
    return lambda model: kind([{"params": model.layers["last"].parameters()}, {"params": model.layers["first"].parameters(), "lr": 0.02}],
                              **settings)


def add_first(model, optimizer):
    optimizer.add_param_group({"params": list(model.layers["first"].parameters()), "lr": 0.02})


def groups_join():
    """At any step, with every optimizer whose update follows from the number of the step, or that counts it."""
    kinds = {"Adam": {}, "AdamW": {"amsgrad": True}, "NAdam": {}, "RAdam": {}, "Adamax": {}, "ASGD": {"t0": 2}, "Adafactor": {},
             "SGD": {"momentum": 0.9, "dampening": 0.5}, "Adagrad": {"lr_decay": 0.5}, "RMSprop": {}, "Adadelta": {}, "Rprop": {}}
    for name, settings in kinds.items():
        print(" ", name, flush=True)
        pair = Pair(last_alone(getattr(torch.optim, name), lr=0.05, **settings))
        pair.train(3)
        pair.change(add_first)
        pair.train(4)
    pair = Pair(last_alone(memopt.optim.Apollo, lr=0.05, rank=2))
    pair.train(2)
    pair.change(add_first)
    pair.train(2)


def groups_leave_and_come_back():
    """A group goes on where it was when it left, and so do those that join meanwhile."""
    kept = {}

    def leave(_, optimizer):
        kept[optimizer] = optimizer.param_groups.pop()

    def come_back(_, optimizer):
        optimizer.param_groups.append(kept[optimizer])
    pair = Pair(everything(torch.optim.AdamW, lr=0.05))
    pair.train(2)
    for _ in range(2):
        pair.change(leave)
        pair.train(3)
        pair.change(come_back)
        pair.train(2)
    # The one that has been there from the start leaves.
    pair.change(lambda _, optimizer: optimizer.param_groups.reverse())
    pair.change(leave)
    pair.train(2)
    pair.change(come_back)
    pair.train(2)


def layers_freeze_and_thaw():
    """Within one group, and with state that PyTorch has made before."""
    models = [Loss(make()) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.05) for model in models]
    for model, optimizer in zip(models, optimizers):
        for seed in range(3):
            eager(model, optimizer, make_data(seed))
        model.layers["first"].requires_grad_(False)
        optimizer.zero_grad()
        eager(model, optimizer, make_data(4))
    step = compile_step(models[0], optimizers[0])
    for phase in range(4):
        for seed in range(2):
            assert_near(step(make_data(seed)), eager(models[1], optimizers[1], make_data(seed)))
        expect_same(step, models[1], optimizers[1])
        for model, optimizer in zip(models, optimizers):
            model.layers["first"].requires_grad_(phase % 2 == 0)
            optimizer.zero_grad()
    step.sync()
    for model, optimizer in zip(models, optimizers):
        eager(model, optimizer, make_data(7))
    expect_same(step := compile_step(models[0], optimizers[0]), models[1], optimizers[1])


def train_beside(step, model, optimizer):
    """A step, and PyTorch with a copy of its model, on the same batches."""
    for seed in range(3):
        assert_near(step(make_data(seed)), eager(model, optimizer, make_data(seed)))
    expect_same(step, model, optimizer)


def an_uneven_optimizer_begins():
    """One that PyTorch has trained, whose parameters have had different numbers of updates; without any change to come."""
    models = [Loss(make()) for _ in range(2)]
    optimizers = [torch.optim.AdamW(model.layers["last"].parameters(), lr=0.05) for model in models]
    for model, optimizer in zip(models, optimizers):
        for seed in range(3):
            eager(model, optimizer, make_data(seed))
        add_first(model, optimizer)
    step = compile_step(models[0], optimizers[0], new_shapes="error")
    train_beside(step, models[1], optimizers[1])


def state_dicts():
    """Go into a step that has not met the change, which compiles again if it may, and back into PyTorch."""
    pair = Pair(last_alone(torch.optim.Adam, lr=0.05))
    pair.train(3)
    pair.change(add_first)
    pair.train(2)
    state = copy.deepcopy(pair.step.state_dict())
    fresh = [Loss(make(5)) for _ in range(2)]
    optimizers = [everything(torch.optim.Adam, lr=0.05)(model) for model in fresh]
    strict = compile_step(fresh[1], optimizers[1], new_shapes="error")
    refuses(memopt.BadInput, ["different numbers of updates", 'new_shapes="compile"'], strict.load_state_dict, state)
    step = compile_step(fresh[0], optimizers[0])
    step(make_data(3))
    step.load_state_dict(state)
    expect_same(step, pair.models[1], pair.optimizers[1])
    fresh[1].load_state_dict(state["model"])
    optimizers[1].load_state_dict(copy.deepcopy(state["optimizer"]))
    for seed in range(2):
        losses = [step(make_data(seed)), eager(pair.models[1], pair.optimizers[1], make_data(seed)), eager(fresh[1], optimizers[1], make_data(seed))]
        assert_near(losses[0], losses[1])
        assert_near(losses[2], losses[1])
    expect_same(step, pair.models[1], pair.optimizers[1])
    # The same through the optimizer, and a step that counts apart takes a state in which all are equal.
    step.optimizer.load_state_dict(state["optimizer"])
    step(make_data(0))
    counts = list_counts(step.state_dict()["optimizer"])
    assert counts == {0: 6, 1: 6, 2: 3, 3: 3}, counts
    even = Pair(everything(torch.optim.Adam, lr=0.05))
    even.train(4)
    step.load_state_dict(copy.deepcopy(even.step.state_dict()))
    for seed in range(2):
        assert_near(step(make_data(seed)), eager(even.models[1], even.optimizers[1], make_data(seed)))
    expect_same(step, even.models[1], even.optimizers[1])


def checkpoints():
    """Have the counts; those that lack them are of a run in which all were equal."""
    pair = Pair(last_alone(torch.optim.AdamW, lr=0.05))
    pair.train(3)
    pair.change(add_first)
    pair.train(2)
    pair.step.save(FOLDER / "run")
    fresh = [Loss(make(5)) for _ in range(2)]
    optimizers = [everything(torch.optim.AdamW, lr=0.05)(model) for model in fresh]
    strict = compile_step(fresh[1], optimizers[1], new_shapes="error")
    refuses(memopt.BadInput, ["different numbers of updates"], strict.load, FOLDER / "run")
    step = compile_step(fresh[0], optimizers[0])
    step.load(FOLDER / "run")
    expect_same(step, pair.models[1], pair.optimizers[1])
    read = memopt.read_checkpoint(FOLDER / "run", fresh[1], optimizers[1])
    fresh[1].load_state_dict(read["model"])
    optimizers[1].load_state_dict(read["optimizer"])
    assert list_counts(optimizers[1].state_dict()) == list_counts(pair.optimizers[1].state_dict())
    memopt.write_checkpoint(FOLDER / "written", fresh[1], optimizers[1])
    other = compile_step(fresh[1], optimizers[1])
    other.load(FOLDER / "written")
    for seed in range(2):
        loss = eager(pair.models[1], pair.optimizers[1], make_data(seed))
        assert_near(step(make_data(seed)), loss)
        assert_near(other(make_data(seed)), loss)
    expect_same(other, pair.models[1], pair.optimizers[1])
    # Without counts, into a step that has them.
    even = Pair(everything(torch.optim.AdamW, lr=0.05))
    even.train(4)
    even.step.save(FOLDER / "even")
    assert b"optimizer.step." not in (FOLDER / "even" / "optimizer.safetensors").read_bytes()
    step.load(FOLDER / "even")
    assert_near(step(make_data(1)), eager(even.models[1], even.optimizers[1], make_data(1)))
    expect_same(step, even.models[1], even.optimizers[1])
    # Counts that have become those of the rest are of no use.
    step.save(FOLDER / "equal")
    assert json.loads((FOLDER / "equal" / "state.json").read_text())["step"] == 5
    even.step.load(FOLDER / "equal")
    expect_same(even.step, even.models[1], even.optimizers[1])


class Cut(Loss):
    def forward(self, x):
        return self.layers["last"](torch.tanh(self.layers["first"](x)).detach())


def checkpoints_before_an_update():
    """What PyTorch has not updated as yet is in its checkpoint by a count alone; what no loss reaches needs none."""
    kinds = {"Adam": {"amsgrad": True}, "NAdam": {}, "Adagrad": {"initial_accumulator_value": 0.1}, "ASGD": {"t0": 2}, "Rprop": {},
             "SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.5}}
    for name, settings in [*kinds.items(), ("SGD", {"momentum": 0.9, "dampening": 0.5})]:
        kind, folder = getattr(torch.optim, name), FOLDER / f"before-{name}-{len(settings)}"
        model = Loss(make())
        optimizer = last_alone(kind, lr=0.05, **settings)(model)
        for seed in range(3):
            eager(model, optimizer, make_data(seed))
        add_first(model, optimizer)
        memopt.write_checkpoint(folder, model, optimizer)
        fresh = [Loss(make(5)) for _ in range(2)]
        optimizers = [everything(kind, lr=0.05, **settings)(other) for other in fresh]
        step = compile_step(fresh[0], optimizers[0])
        step.load(folder)
        read = memopt.read_checkpoint(folder, fresh[1], optimizers[1])
        assert list_counts(read["optimizer"]) == list_counts(optimizer.state_dict()), name
        train_beside(step, model, optimizer)
    cut, other = Cut(make()), Cut(make(5))
    optimizer = everything(torch.optim.Adam, lr=0.05)(cut)
    eager(cut, optimizer, make_data(1))
    memopt.write_checkpoint(FOLDER / "cut", cut, optimizer)
    step = compile_step(other, everything(torch.optim.Adam, lr=0.05)(other), new_shapes="error")
    step.load(FOLDER / "cut")
    train_beside(step, cut, optimizer)


def parts_clipping_and_shapes():
    """Counts are one for accumulation, for clipping, and for programs of several shapes."""
    pair = Pair(last_alone(torch.optim.Adam, lr=0.05), accumulative_counts=2, max_grad_norm=0.1)
    pair.train(2, count=2, limit=0.1)
    pair.change(add_first)
    pair.train(3, count=2, limit=0.1)

    pair = Pair(last_alone(torch.optim.Adam, lr=0.05), shapes=[make_data(0, 4)])
    for phase in range(2):
        for samples in (8, 4, 8, 4, 2):
            batch = make_data(samples, samples)
            assert_near(pair.step(batch), eager(pair.models[1], pair.optimizers[1], batch))
        expect_same(pair.step, pair.models[1], pair.optimizers[1])
        if phase == 0:
            pair.change(add_first)


def steps_left_out():
    """Steps whose gradients overflow are no updates, in no form of the state."""
    def loss(output, target):
        return 300 * F.cross_entropy(output, target)
    model = Loss(make())
    optimizer = last_alone(torch.optim.Adam, lr=0.01)(model)
    step = memopt.compile(model, loss, make_data(0), optimizer=optimizer, precision="fp16", new_shapes="compile")
    for seed in range(9):
        step(make_data(seed))
    state = copy.deepcopy(step.state_dict())
    updates = list_counts(state["optimizer"])[0]
    assert step.steps == state["step"] == 9 and 0 < updates < 9, (step.steps, updates)
    step.load_state_dict(state)
    add_first(model, optimizer)
    step(make_data(9))
    assert list(list_counts(step.state_dict()["optimizer"]).values()) == [updates + 1] * 2 + [1] * 2, step.state_dict()["optimizer"]
    step.sync()
    assert list_counts(optimizer.state_dict()) == list_counts(step.state_dict()["optimizer"])


def several_steps():
    """An optimizer of two steps, one of which trains less than the other."""
    models = [make() for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.05) for model in models]

    class Head(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            return self.layers["last"](x)
    hidden = torch.randn(8, 8), torch.randint(4, (8,))
    parts = [(Head(model), Loss(model)) for model in models]
    steps = memopt.compile_steps({"head": memopt.Training(parts[0][0], F.cross_entropy, hidden, optimizer=optimizers[0]),
                                  "all": memopt.Training(parts[0][1], F.cross_entropy, make_data(0), optimizer=optimizers[0])})
    for name in ("head", "head", "head", "all", "all", "head", "all"):
        batch = hidden if name == "head" else make_data(3)
        assert_near(steps[name](batch), eager(parts[1][name == "all"], optimizers[1], batch))
    counts = list_counts(steps["all"].state_dict()["optimizer"])
    assert counts == list_counts(optimizers[1].state_dict()), counts
    steps.sync()
    for ours, theirs in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


def what_no_loss_reaches():
    """A group may have parameters that the loss does not reach; they have no updates."""
    models = [Cut(make()) for _ in range(2)]
    optimizers = [everything(torch.optim.Adam, lr=0.05)(model) for model in models]
    for model, optimizer in zip(models, optimizers):
        eager(model, optimizer, make_data(1))
    step = compile_step(models[0], optimizers[0])
    train_beside(step, models[1], optimizers[1])


def packages_stay():
    """Without such a change nothing is compiled otherwise."""
    pair = Pair(everything(torch.optim.Adam, lr=0.05))
    pair.train(2)
    assert "optimizer.step." not in (pair.step.package / "manifest.json").read_text()


run_cases([groups_join, groups_leave_and_come_back, layers_freeze_and_thaw, an_uneven_optimizer_begins, state_dicts, checkpoints,
           checkpoints_before_an_update, parts_clipping_and_shapes, steps_left_out, several_steps, what_no_loss_reaches, packages_stay])
