# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_accelerate.py FOLDER [CASE...]: the example of Accelerate, held against the loop that Accelerate's users write."""

import importlib.util
import pathlib

import torch
import torch.nn.functional as F
from accelerate import Accelerator

import memopt
from training import FOLDER, assert_near, run_cases

_path = pathlib.Path(memopt.__file__).parents[1] / "examples/accelerate_loop.py"
_spec = importlib.util.spec_from_file_location("accelerate_loop", _path)
example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)


def train_by_accelerate(steps):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=example.GROUP)
    model, optimizer, scheduler, loader = accelerator.prepare(*example.make_parts())
    losses, group = [], []
    while len(losses) < steps:
        for rows, target in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(rows), target)
                group.append(loss.item())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    losses.append(sum(group) / len(group))
                    group = []
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if len(losses) == steps:
                break
    return losses, model


def hundred_steps():
    """Losses and weights of 100 updates, of two batches each, with a schedule and clipping."""
    (theirs, their_model), (ours, model, step) = train_by_accelerate(100), example.train(100)
    assert len(theirs) == len(ours) == 100 and ours[-1] < ours[0] / 2
    for left, right in zip(ours, theirs):
        assert_near(left, right, 1e-4)
    for mine, other in zip(model.state_dict().values(), their_model.state_dict().values()):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def checkpoints():
    """Accelerate's state has the model, the optimizer and the schedule that the step has reached."""
    folder = str(FOLDER / "state")
    whole, _, _ = example.train(45)  # three epochs
    example.train(30, folder)
    rest, _, step = example.train(15, folder, begin=30)
    assert step.steps == 45
    for left, right in zip(rest, whole[30:]):
        assert_near(left, right, 1e-5)


run_cases([hundred_steps, checkpoints])
