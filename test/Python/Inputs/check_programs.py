# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_programs.py FOLDER [CASE...]: several programs over one state: shapes, evaluation, several optimizers, averages."""

import copy
import json

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import FOLDER, assert_near, get_bits, refuses, run_cases, step_in_pytorch


class Net(nn.Module):
    """Takes rows of any number and length."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, rows):
        return self.last(self.norm(F.relu(self.first(rows).mean(1))))


def make_net():
    torch.manual_seed(5)
    return Net()


def make_rows(seed, count=8, length=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, length, 4, generator=generator), torch.randint(3, (count,), generator=generator)


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.01, eps=1e-3)  # by which rounding of gradients that are nearly 0 stays small


def assert_same(model, other):
    for (name, mine), theirs in zip(model.state_dict().items(), other.state_dict().values()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6, msg=name)


def shapes():
    """Each batch takes the program of its shape; the arena is the largest one's."""
    model, other = make_net(), make_net()
    optimizer, examples = adam(other), [make_rows(0), make_rows(0, length=5)]
    step = memopt.compile(model, F.cross_entropy, examples[0], optimizer=adam(model), shapes=examples)
    assert list(step.programs) == ["train-8x2x4", "train-8x5x4"], step.programs
    peaks = [plan.peak_bytes["device"] for plan in step.programs.values()]
    assert peaks[0] < peaks[1] == step.plan.peak_bytes["device"]
    for seed, length in enumerate((2, 5, 5, 2)):
        batch = make_rows(seed, length=length)
        assert_near(step(batch), step_in_pytorch(other, optimizer, batch))
    before = get_bits(step.state_dict())
    refuses(memopt.BadInput, ["[8, 3, 4]", "[8, 2, 4]", "[8, 5, 4]", "new_shapes"], step, make_rows(0, length=3))
    assert get_bits(step.state_dict()) == before and step.steps == 4
    step.sync()
    assert_same(model, other)


def new_shapes():
    """A program is compiled when its first batch comes, as many as are allowed, and within the arena."""
    model, other = make_net(), make_net()
    optimizer = adam(other)
    step = memopt.compile(model, F.cross_entropy, make_rows(0, length=5), optimizer=adam(model), new_shapes="compile",
                          max_programs=2, device_memory="1MiB")
    arena = step.plan.peak_bytes
    for seed, length in enumerate((5, 2, 5, 2)):
        batch = make_rows(seed, length=length)
        assert_near(step(batch), step_in_pytorch(other, optimizer, batch))
    assert len(step.programs) == 2 and step.plan.peak_bytes == arena
    refuses(memopt.BadInput, ["max_programs allows 2"], step, make_rows(0, length=3))
    step = memopt.compile(model, F.cross_entropy, make_rows(0), optimizer=adam(model), new_shapes="compile", device_memory="1MiB")
    refuses(memopt.DoesNotFit, ["does not fit"], step, make_rows(0, count=64))
    step = memopt.compile(model, F.cross_entropy, make_rows(0), optimizer=adam(model), new_shapes="compile")
    step(make_rows(0))
    before = get_bits(step.state_dict())
    step.evaluate(make_rows(0, count=64))  # needs more than there was
    assert get_bits(step.state_dict()) == before


def smaller_batches():
    """Statistics and means are those of the samples that there are."""
    model, other = make_net(), make_net()
    optimizer = adam(other)
    step = memopt.compile(model, F.cross_entropy, make_rows(0), optimizer=adam(model), ragged="pad")
    for seed, count in enumerate((8, 3, 8, 3)):
        batch = make_rows(seed, count)
        assert_near(step(batch), step_in_pytorch(other, optimizer, batch))
    refuses(memopt.BadInput, ["[9, 2, 4]"], step, make_rows(0, 9))
    step.sync()
    assert_same(model, other)
    other.eval()
    assert_near(step.evaluate(make_rows(1, 5)), F.cross_entropy(other(make_rows(1, 5)[0]), make_rows(1, 5)[1]).item())
    torch.testing.assert_close(step.predict(make_rows(2, 4)[0]), other(make_rows(2, 4)[0]), rtol=1e-4, atol=1e-6)


class Apart(nn.Module):
    """One part of a model, under names of its own."""

    def __init__(self, first, last):
        super().__init__()
        self.a, self.b = first, last

    def forward(self, rows):
        return self.b(F.relu(self.a(rows[:, 0])))


def several_steps():
    """Tensors are one by identity, whatever modules call them; one optimizer has one state."""
    def make_parts(model):
        apart, both = Apart(model.first, model.last), torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        return {"whole": (model, both), "apart": (apart, torch.optim.Adam(model.last.parameters(), 0.01, eps=1e-6))}
    model, other = make_net(), make_net()
    parts, theirs = make_parts(model), make_parts(other)
    example = make_rows(0)
    steps = memopt.compile_steps({name: memopt.Training(part, F.cross_entropy, example, optimizer=optimizer)
                                  for name, (part, optimizer) in parts.items()})
    for seed, name in enumerate(("whole", "apart", "apart", "whole", "apart")):
        batch = make_rows(seed)
        assert_near(steps[name](batch), step_in_pytorch(theirs[name][0], theirs[name][1], batch))
    steps.sync()
    assert_same(model, other)
    assert steps.plan.peak_bytes["device"] == max(plan.peak_bytes["device"] for plan in steps.programs.values())
    state = steps.state_dict()
    assert (state["whole"]["step"], state["apart"]["step"]) == (2, 3)
    loss = steps["whole"](example)
    steps.load_state_dict(state)
    assert steps["whole"](example) == loss
    refuses(memopt.BadInput, ["there is no step 'other'"], steps.__getitem__, "other")


def read_by_diffusers(state, expected):
    """Their EMAModel has a list in the order of parameters."""
    try:
        from diffusers.training_utils import EMAModel
    except ImportError:
        return
    model = make_net()
    average = EMAModel(model.parameters(), decay=0.9)
    average.load_state_dict({**average.state_dict(), "optimization_step": int(state["average_updates"]),
                             "shadow_params": [state["average"][name] for name, _ in model.named_parameters()]})
    average.copy_to(model.parameters())
    for mine, value in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(mine, value, rtol=1e-4, atol=1e-6)


def what_is_used():
    """What a step was seen to use is what was predicted, for each program; the timeline of a step."""
    model = make_net()
    rows, target = make_rows(0)
    step = memopt.compile(model, F.cross_entropy, (rows, target), optimizer=adam(model), shapes=[(rows[:3], target[:3])], check_memory=True)
    step((rows, target))
    with step.trace(FOLDER / "step.json", steps=2):
        step((rows[:3], target[:3]))
    step.evaluate((rows, target))
    assert {name: plan.peak_bytes for name, plan in step.programs.items()} == step.used_bytes and len(step.used_bytes) == 3
    assert json.loads((FOLDER / "step.json").read_text())["traceEvents"]
    other = make_net()
    step = memopt.compile(other, F.cross_entropy, (rows, target), optimizer=adam(other))
    refuses(memopt.BadInput, ["check_memory=True"], lambda: step.used_bytes)


def averages():
    """PyTorch's AveragedModel, evaluated in the place of the weights."""
    model, other = make_net(), make_net()
    optimizer = adam(other)
    step = memopt.compile(model, F.cross_entropy, make_rows(0), optimizer=adam(model), ema_decay=0.9)
    average = torch.optim.swa_utils.AveragedModel(other, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for seed in range(5):
        step(make_rows(seed))
        step_in_pytorch(other, optimizer, make_rows(seed))
        average.update_parameters(other)
    state = step.state_dict()
    assert state["average_updates"] == 5
    for name, value in average.module.named_parameters():
        torch.testing.assert_close(state["average"][name], value.detach(), rtol=1e-4, atol=1e-6)
    read_by_diffusers(state, average.module)
    held = copy.deepcopy(other)
    held.load_state_dict({**other.state_dict(), **dict(average.module.named_parameters())})
    held.eval()
    assert_near(step.evaluate(make_rows(9), averaged=True), F.cross_entropy(held(make_rows(9)[0]), make_rows(9)[1]).item())
    plain = make_net()
    step = memopt.compile(plain, F.cross_entropy, make_rows(0), optimizer=adam(plain))
    refuses(memopt.BadInput, ["ema_decay"], step.evaluate, make_rows(0), averaged=True)


def uniform_averages():
    """SWA: the weights of steps 3, 5 and 7 count alike, and so do the buffers."""
    model, other = make_net(), make_net()
    optimizer = adam(other)
    step = memopt.compile(model, F.cross_entropy, make_rows(0), optimizer=adam(model), ema_uniform=True, ema_start=1, ema_every=2,
                          ema_use_buffers=True)
    average = torch.optim.swa_utils.AveragedModel(other, use_buffers=True)
    for count in range(1, 9):
        step(make_rows(count))
        step_in_pytorch(other, optimizer, make_rows(count))
        if count > 1 and (count - 1) % 2 == 0:
            average.update_parameters(other)
    state = step.state_dict()
    assert state["average_updates"] == average.n_averaged.item() == 3
    for name, value in average.module.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(state["average"][name], value, rtol=1e-4, atol=1e-6, msg=name)
    average.load_state_dict({"n_averaged": average.n_averaged, **{f"module.{name}": value for name, value in state["average"].items()}})
    average.eval()
    assert_near(step.evaluate(make_rows(9), averaged=True), F.cross_entropy(average(make_rows(9)[0]), make_rows(9)[1]).item())
    for wrong, words in (({"ema_uniform": True, "ema_decay": 0.9}, ["give one"]), ({"ema_start": 2}, ["ema_start=N", "ema_uniform"]),
                         ({"ema_uniform": True, "ema_warmup": True}, ["ema_warmup", "needs ema_decay=X"]),
                         ({"ema_use_buffers": True}, ["ema_uniform=True"])):
        refuses(memopt.BadInput, words, memopt.compile, model, F.cross_entropy, make_rows(0), optimizer=adam(model), **wrong)


def equal_names():
    """Models that call their parameters alike share nothing: values, buffers, state dicts."""
    ours, theirs = [make_net(), Net()], [make_net(), Net()]
    theirs[1].load_state_dict(ours[1].state_dict())
    optimizers, others = list(map(adam, ours)), list(map(adam, theirs))
    steps = memopt.compile_steps({name: memopt.Training(model, F.cross_entropy, make_rows(0), optimizer=optimizer)
                                  for name, model, optimizer in zip("ab", ours, optimizers)})
    for i in range(4):
        for name, model, optimizer in zip("ab", theirs, others):
            assert_near(steps[name](make_rows(i)), step_in_pytorch(model, optimizer, make_rows(i)))
    state = steps.state_dict()
    assert list(steps["b"].buffers) == list(steps["a"].buffers)
    steps.sync()
    for own, other, name in zip(ours, theirs, "ab"):
        for key, value in own.state_dict().items():
            torch.testing.assert_close(value, other.state_dict()[key], rtol=1e-4, atol=1e-5)
            assert torch.equal(state[name]["model"][key], value)
    losses = [steps[name](make_rows(5)) for name in "ab"]
    steps.load_state_dict(state)
    assert [steps[name](make_rows(5)) for name in "ab"] == losses


run_cases([shapes, new_shapes, smaller_batches, several_steps, equal_names, averages, what_is_used, uniform_averages])
