# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_writes.py FOLDER [CASE...]: what a loop writes to the model's parameters and statistics, or loads into its optimizer, counts
as in PyTorch, or is refused where the model is behind the step.
"""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import FOLDER, assert_near, refuses, run_cases

DATA = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2, 1, 1, 0])


def make(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    return model, torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)


def step_in_pytorch(model, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(DATA[0]), DATA[1])
    loss.backward()
    optimizer.step()
    return loss.item()


def load_other(model, optimizer):
    model.load_state_dict(make(7)[0].state_dict())


def scale(model, optimizer):
    with torch.no_grad():
        model[2].weight.mul_(0.5)


def clamp(model, optimizer):
    model[2].weight.data.fill_(0.1)


def replace_data(model, optimizer):
    model[2].weight.data = torch.full((3, 4), 0.1)


def reset_statistics(model, optimizer):
    model[1].reset_running_stats()


CHANGES = [load_other, scale, clamp, replace_data]


def compare(change, optimizer_too=True, before=2):
    """A change of a model that has the step's values."""
    ours, theirs = make(), make()
    step = memopt.compile(ours[0], F.cross_entropy, DATA, optimizer=ours[1])
    for i in range(before + 3):
        if i == before:
            step.sync(optimizer_too)
            change(*ours)
            change(*theirs)
        assert_near(step(DATA), step_in_pytorch(*theirs))
    step.sync()
    for left, right in zip(ours[0].state_dict().values(), theirs[0].state_dict().values()):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def in_step():
    """A model that has the step's values: what is written to it counts, the optimizer's state stays."""
    for change in (*CHANGES, reset_statistics):
        compare(change)
    compare(load_other, optimizer_too=False)
    compare(step_in_pytorch)  # a last batch, say
    compare(lambda model, _: [nn.init.normal_(parameter, 0, 0.1, generator=torch.Generator().manual_seed(3))
                              for parameter in model.parameters()], before=0)


def behind():
    """A model that is behind the step: values that others are written over are not the step's, so nothing is guessed."""
    for change in CHANGES:
        model, optimizer = make()
        step = memopt.compile(model, F.cross_entropy, DATA, optimizer=optimizer)
        step(DATA)
        change(model, optimizer)
        refuses(memopt.BadInput, ["has been written to", "step.reload()", "step.sync()"], step, DATA)
        step.reload()
        step(DATA)
    # Behind sync what was written is dropped; whatever writes the step's values changes nothing.
    model, optimizer = make()
    step = memopt.compile(model, F.cross_entropy, DATA, optimizer=optimizer)
    step(DATA)
    scale(model, optimizer)
    step.sync()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    step(DATA)
    step.sync(optimizer=False)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    load_other(model, optimizer)
    model.load_state_dict(kept)
    step(DATA)


def other_types():
    """A model of another type is another program."""
    model, optimizer = make()
    step = memopt.compile(model, F.cross_entropy, DATA, optimizer=optimizer)
    step(DATA)
    model.double()
    refuses(memopt.BadInput, ["float64"], step, DATA)


def states():
    """State that is loaded into the optimizer, or emptied after `sync`."""
    def load(model, optimizer):
        other = make(3)
        step_in_pytorch(*other)
        optimizer.load_state_dict(other[1].state_dict())
    compare(load)
    compare(lambda model, optimizer: optimizer.state.clear())


def statistics_in_forward():
    """Running statistics that forward reads behind their norm are numbers to the gradient."""
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, x):
            x = self.norm(self.first(x))
            return self.last(torch.tanh(x + self.norm.running_mean))
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Shifted())
    optimizers = [torch.optim.SGD(model.parameters(), 0.3, momentum=0.9) for model in models]
    step = memopt.compile(models[0], F.cross_entropy, DATA, optimizer=optimizers[0])
    for _ in range(4):
        assert_near(step(DATA), step_in_pytorch(models[1], optimizers[1]))


def behind_the_last_step():
    """What was written after the last step is in all that a step gives and keeps."""
    def save(step, _):
        step.save(FOLDER / "written")
        step.load(FOLDER / "written")
        return step.state_dict()["model"]

    def sync(step, model):
        step.sync()
        return model.state_dict()
    for read in (save, sync, lambda step, _: step.state_dict()["model"]):
        ours, theirs = make(), make()
        step = memopt.compile(ours[0], F.cross_entropy, DATA, optimizer=ours[1])
        step(DATA)
        step_in_pytorch(*theirs)
        step.sync()
        scale(*ours)
        scale(*theirs)
        theirs[0].eval()
        with torch.no_grad():
            assert_near(step.evaluate(DATA), F.cross_entropy(theirs[0](DATA[0]), DATA[1]).item())
        state = read(step, ours[0])
        for name, value in theirs[0].state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)


class Keeping(nn.Module):
    """A hidden state, which each call leaves for the next one; in a buffer or not."""

    def __init__(self, hidden, is_buffer=True):
        super().__init__()
        self.first, self.inner = nn.Linear(6, 3), nn.Linear(3, 3)
        if is_buffer:
            self.register_buffer("hidden", hidden)
        else:
            self.hidden = hidden

    def forward(self, x):
        x = self.first(x) if self.hidden is None else self.first(x) + self.inner(self.hidden)
        self.hidden = torch.tanh(x).detach()
        return x


def buffers_that_forward_replaces():
    """Are kept from step to step; a tensor elsewhere is not, and that is said."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Keeping(torch.zeros(5, 3)))
    optimizers = [torch.optim.SGD(model.parameters(), 0.3) for model in models]
    step = memopt.compile(models[0], F.cross_entropy, DATA, optimizer=optimizers[0])
    for _ in range(3):
        assert_near(step(DATA), step_in_pytorch(models[1], optimizers[1]))
    step.sync()
    torch.testing.assert_close(models[0].hidden, models[1].hidden, rtol=1e-4, atol=1e-5)
    wrong = Keeping(torch.zeros(1, 3))
    refuses(memopt.Refused, ["'hidden'", "float32[1, 3]"], memopt.compile, wrong, F.cross_entropy, DATA,
            optimizer=torch.optim.SGD(wrong.parameters(), 0.3))

    memory = {"last": None}

    def loss_fn(output, target):
        loss = F.cross_entropy(output, target)
        before, memory["last"] = memory["last"], loss.detach()
        return loss if before is None else loss / before
    for model, loss, said in ((Keeping(torch.zeros(5, 3), False), F.cross_entropy, "'hidden'"), (Keeping(None, False), F.cross_entropy, "'hidden'"),
                              (nn.Linear(6, 3), loss_fn, "memory['last']")):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            memopt.compile(model, loss, DATA, optimizer=torch.optim.SGD(model.parameters(), 0.3))
        assert any(said in str(entry.message) and "for its next call" in str(entry.message) for entry in found), found
    assert memory["last"] is None  # nothing of a trace stays

    class Passing(nn.Linear):
        """What forward leaves for the loss of the same step is none of that."""
        def forward(self, x):
            self.size = super().forward(x)
            return self.size
    passing = Passing(6, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", memopt.NumbersWarning)
        memopt.compile(passing, lambda output, target: F.cross_entropy(output, target) + passing.size.pow(2).mean(), DATA,
                       optimizer=torch.optim.SGD(passing.parameters(), 0.3))


def buffers_that_go():
    """Statistics of a norm that is to have none from now on."""
    def change(model, _):
        model[1].running_mean = model[1].running_var = model[1].num_batches_tracked = None
    ours, theirs = make(), make()
    step = memopt.compile(ours[0], F.cross_entropy, DATA, optimizer=ours[1], new_shapes="compile")
    for i in range(4):
        if i == 2:
            change(*ours)
            change(*theirs)
        assert_near(step(DATA), step_in_pytorch(*theirs))


def several_steps():
    """Steps over one state put it back in turn; none takes that for a change."""
    one = make()
    both = nn.Sequential(one[0], nn.Linear(3, 3))
    steps = memopt.compile_steps({
        "one": memopt.Training(one[0], F.cross_entropy, DATA, optimizer=one[1]),
        "both": memopt.Training(both, F.cross_entropy, DATA, optimizer=torch.optim.SGD(both[1].parameters(), 0.1))})
    for _ in range(2):
        for name in ("one", "both"):
            steps[name](DATA)
            steps.sync()


run_cases([in_step, behind, other_types, states, statistics_in_forward, behind_the_last_step,
           buffers_that_forward_replaces, buffers_that_go, several_steps])
