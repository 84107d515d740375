# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_hosts.py FOLDER NAME, started by torchrun or mpirun: steps on ranks of several hosts. FOLDER/NAME gets the checkpoints, the losses of
each rank, and what each says when the last one is killed."""

import json
import os
import signal
import sys

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from memopt.runtime import find_rank
from training import FOLDER, get_bits, refuses

RANK, RANKS = find_rank()
OWN = FOLDER / sys.argv[2]


def compile_step(stage):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 96), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(96), nn.Linear(96, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-4)
    return memopt.compile(model, F.cross_entropy, make_batch(0), optimizer=optimizer, zero_stage=stage, max_grad_norm=0.5)


def make_batch(seed):
    generator = torch.Generator().manual_seed(100 * seed + RANK)
    target = torch.randint(3, (8,), generator=generator)
    target[:RANK] = -100
    return torch.randn(8, 40, generator=generator), target


def train():
    """What ranks of one host get as well, and two sessions at once."""
    losses = []
    for stage in (0, 3):
        step, other = compile_step(stage), compile_step(stage)
        losses += [step(make_batch(seed)) for seed in range(3)]
        step.save(OWN / f"saved{stage}")
        losses.append(step(make_batch(3)))
        other.load(OWN / f"saved{stage}")
        assert other(make_batch(3)) == losses[-1] and get_bits(other.state_dict()) == get_bits(step.state_dict())
        step.save(OWN / f"last{stage}")
        rows, target = make_batch(4)
        words = [f"rank {RANKS - 1}: "] if RANK != RANKS - 1 else ["expected"]
        refuses(memopt.BadInput, words, step, (rows, target + 7 * (RANK == RANKS - 1)))
        losses.append(step((rows, target)))
        step.close(), other.close()
    (OWN / f"losses{RANK}").write_text(json.dumps(losses))


def close_early():
    """Who leaves while others take steps is named."""
    step = compile_step(0)
    step(make_batch(0))
    if RANK == RANKS - 1:
        step.close()
    else:
        refuses(memopt.Unavailable, [f"waits for rank {RANKS - 1}, which has closed its session"], step, make_batch(1))
        step.close()


def lose():
    step = compile_step(3)
    step(make_batch(0))
    if RANK == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        step(make_batch(1))
    except memopt.Error as error:
        (OWN / f"lost{RANK}").write_text(str(error))
        raise


OWN.mkdir(parents=True, exist_ok=True)
train()
close_early()
if os.environ.get("LOCAL_WORLD_SIZE") != str(RANKS):
    lose()
