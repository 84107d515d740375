# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model, its steps in PyTorch and compiled, and what the checks of training share."""

import os
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

import memopt

FOLDER = pathlib.Path(sys.argv[1])
os.environ["MEMOPT_CACHE"] = str(FOLDER / "cache")


class Net(nn.Module):
    """Convolution, batch norm, and a matrix that is used twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.inner = nn.Linear(144, 16)
        self.table = nn.Embedding(10, 16)
        self.head = nn.Linear(16, 10)
        self.head.weight = self.table.weight
        self.unused = nn.Linear(16, 10)

    def forward(self, image, word):
        x = F.relu(self.norm(self.conv(image))).flatten(1)
        return self.head(torch.tanh(self.inner(x) + self.table(word)))


def make_model(seed=0):
    torch.manual_seed(seed)
    return Net()


def make_batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(8, 1, 8, 8, generator=generator), torch.randint(10, (8,), generator=generator),
            torch.randint(10, (8,), generator=generator))


def step_in_pytorch(model, optimizer, batch):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(*batch[:-1]), batch[-1])
    loss.backward()
    optimizer.step()
    return loss.item()


def compile_step(model, optimizer, **options):
    return memopt.compile(model, F.cross_entropy, make_batch(0), optimizer=optimizer, **options)


def refuses(kind, parts, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        assert all(part in str(error) for part in parts), str(error)
        return error
    raise AssertionError(f"nothing is refused, expected {parts}")


def assert_near(left, right, tolerance=2e-5):
    assert abs(left - right) <= tolerance * max(1, abs(right)), (left, right)


def get_bits(state):
    """All tensors of a state dict, in order, as bytes."""
    if torch.is_tensor(state):
        return [state.detach().contiguous().numpy().tobytes()]
    if isinstance(state, dict):
        return [bits for key in state for bits in get_bits(state[key])]
    return [bits for entry in state for bits in get_bits(entry)] if isinstance(state, (list, tuple)) else [state]


def run_cases(cases):
    """Those that the command line names, or all."""
    for case in cases:
        if len(sys.argv) == 2 or case.__name__ in sys.argv[2:]:
            print(case.__name__, flush=True)
            case()
