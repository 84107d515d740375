# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loop of Accelerate: its loader, optimizer, schedule, trackers and checkpoints around a compiled step.

    python accelerate_loop.py [STEPS]
    torchrun --nproc-per-node=2 accelerate_loop.py [STEPS]

What changes in such a loop: a step on the group's batches takes the place of forward, backward, clipping and
`optimizer.step()`, and `step.sync()` stands before what reads the model. The model is prepared as for evaluation, for the
ranks meet in the step.
"""

import sys

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import memopt

GROUP = 2  # batches of an update


def make_parts():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-6)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(240, 8, generator=generator)
    data = TensorDataset(rows, (rows[:, 0] > 0).long() + 2 * (rows[:, 1] > 0).long())
    return model, optimizer, scheduler, DataLoader(data, batch_size=8)


def train(steps, folder=None, begin=0):
    """Losses of so many updates; the state goes to a folder, or comes from there."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=GROUP)
    model, optimizer, scheduler, loader = make_parts()
    optimizer, scheduler, loader = accelerator.prepare(optimizer, scheduler, loader)
    model = accelerator.prepare_model(model, evaluation_mode=True)
    if begin:
        accelerator.load_state(folder)
    step = memopt.compile(model, F.cross_entropy, next(iter(loader)), optimizer=optimizer, max_grad_norm=1.0,
                          accumulative_counts=accelerator.gradient_accumulation_steps, ragged="pad")
    losses, group = [], []
    while len(losses) < steps:
        for batch in loader:
            with accelerator.accumulate(model):
                group.append(batch)
                if accelerator.sync_gradients:
                    losses.append(step(*group))
                    group = []
                    accelerator.log({"loss": losses[-1], "grad_norm": step.gradient_norm}, step=len(losses))
                scheduler.step()
            if len(losses) == steps:
                break
    step.sync()
    if folder and not begin:
        accelerator.save_state(folder)
    return losses, model, step


if __name__ == "__main__":
    losses, model, step = train(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
    if Accelerator(cpu=True).is_main_process:
        print(f"loss {losses[0]:.4f} to {losses[-1]:.4f} in {len(losses)} steps, {step.plan.peak_bytes['device']} bytes")
