# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_plain_loops.py FOLDER [CASE...]: programs as somebody writes them who does not know memopt, beside PyTorch."""

import copy
import os
import subprocess

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributions import Categorical
from torch.nn.utils.parametrizations import orthogonal
from torch.utils.data import DataLoader, TensorDataset

import memopt
from memopt import export
from memopt.tools import find_tool
from training import FOLDER, assert_near, refuses, run_cases


def make_batch(seed, size=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 16, generator=generator), torch.randint(4, (size,), generator=generator)


def compare(model, make_optimizer):
    """Three steps beside PyTorch's, and the whole state behind them."""
    other = copy.deepcopy(model)
    optimizer, step = make_optimizer(other), memopt.compile(model, F.cross_entropy, make_batch(0), optimizer=make_optimizer(model))
    for seed in range(3):
        x, target = make_batch(seed)
        optimizer.zero_grad()
        loss = F.cross_entropy(other(x), target)
        loss.backward()
        optimizer.step()
        assert_near(step((x, target)), loss.item())
    state = step.state_dict()["model"]
    for name, value in other.state_dict().items():
        torch.testing.assert_close(state[name].to(value.dtype), value, rtol=1e-4, atol=1e-5)


def make_sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1)


def layers():
    """A batch norm that averages all batches, and an orthogonal weight."""
    compare(nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4, momentum=None)), make_sgd)
    compare(nn.Sequential(orthogonal(nn.Linear(16, 16)), nn.Linear(16, 4)), make_sgd)


def a_lazy_model():
    """Has no parameters until it was called."""
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(4))
    refuses(memopt.BadInput, ["call it on a batch first"], memopt.compile, model, F.cross_entropy, make_batch(0), optimizer=make_sgd(model))
    model(make_batch(0)[0])
    compare(model, make_sgd)


def named_parameters():
    compare(nn.Linear(16, 4), lambda model: torch.optim.AdamW(model.named_parameters(), 1e-3))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actions = nn.Linear(8, 4)

    def forward(self, seen, action, before, advantage):
        chosen = Categorical(logits=self.actions(seen))
        ratio = (chosen.log_prob(action) - before).exp()
        return -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() - 0.01 * chosen.entropy().mean()


def a_clipped_policy():
    """A distribution checks its arguments unless it is told not to."""
    model = Policy()
    batch = {"seen": torch.randn(32, 8), "action": torch.randint(4, (32,)), "before": -torch.rand(32), "advantage": torch.randn(32)}
    expected = model(**batch).item()
    step = memopt.compile(model, None, batch, optimizer=torch.optim.Adam(model.parameters()))
    assert_near(step(batch), expected)


def the_last_batch_is_smaller():
    data = TensorDataset(*make_batch(0, size=40))
    loader = DataLoader(data, 16)
    model = nn.Linear(16, 4)
    step = memopt.compile(model, F.cross_entropy, next(iter(loader)), optimizer=make_sgd(model))
    batches = list(loader)
    for batch in batches[:-1]:
        step(batch)
    refuses(memopt.BadInput, ["8 samples", "drop_last=True"], step, batches[-1])


def a_run_trains_for_pytorch():
    """The model of which an archive was made takes what memopt-run saves, by its own names."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    x, target = make_batch(0)
    export.export(model, F.cross_entropy, {"image": x, "label": target}, targets=["label"], path=str(FOLDER / "mine.pt2"))
    save_file({"image": x, "label": target}, FOLDER / "samples.safetensors")
    subprocess.run([find_tool("memopt-run"), FOLDER / "mine.train.pt2", "--epochs=1", f"--data={FOLDER}/samples.safetensors", "--lr=0.1",
                    f"--save={FOLDER}/mine", "--quiet"], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "MEMOPT_CACHE": "off"})
    before = copy.deepcopy(model.state_dict())
    model.load_state_dict(load_file(FOLDER / "mine/model.safetensors"))
    assert not torch.equal(before["1.weight"], model.state_dict()["1.weight"])


run_cases([layers, a_lazy_model, named_parameters, a_clipped_policy, the_last_batch_is_smaller, a_run_trains_for_pytorch])
