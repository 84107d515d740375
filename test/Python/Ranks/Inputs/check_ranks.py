# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_ranks.py FOLDER [CASE...], started by torchrun: a step on ranks, held against PyTorch with all samples at once."""

import copy
import json
import os
import signal
import subprocess
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import memopt
from training import FOLDER, assert_near, get_bits, refuses, run_cases, step_in_pytorch

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


def adam(model):
    return torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-4)


def make_batch(seed, rank, count=8):
    """Ranks have other numbers of valid targets."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    target = torch.randint(3, (count,), generator=generator)
    target[:3 * rank] = -100
    return torch.randn(count, 6, generator=generator), target


def join(seed, counts):
    return [torch.cat(column) for column in zip(*(make_batch(seed, rank, count) for rank, count in enumerate(counts)))]


def stages():
    """The losses, weights and averages of one process; smaller batches; state whole on each; going on bit for bit."""
    finals, numbers = [], []
    for stage in (0, 1, 2, 3):
        model, other = make_net(), make_net()
        optimizer = adam(other)
        average = torch.optim.swa_utils.AveragedModel(other, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8))
        step = memopt.compile(model, F.cross_entropy, make_batch(0, RANK), optimizer=adam(model), zero_stage=stage, ema_decay=0.8,
                              ragged="pad", device_memory="1MiB")
        for seed, counts in enumerate(([8, 8], [8, 7], [8, 8])):
            assert_near(step(make_batch(seed, RANK, counts[RANK])), step_in_pytorch(other, optimizer, join(seed, counts)))
            average.update_parameters(other)
        state = copy.deepcopy(step.state_dict())
        for name, value in average.module.state_dict().items():
            torch.testing.assert_close(state["average"][name], value, rtol=1e-4, atol=1e-5, msg=name)
        batch = make_batch(9, RANK)
        numbers.append((step.evaluate(batch), step.evaluate(batch, averaged=True), get_bits({"": step.predict(batch[0])})))
        assert_near(numbers[-1][0], F.cross_entropy(other(batch[0]), batch[1]).item())
        assert_near(numbers[-1][1], F.cross_entropy(average(batch[0]), batch[1]).item())
        torch.testing.assert_close(step.predict(batch[0]), other(batch[0]), rtol=1e-4, atol=1e-5)
        assert len({plan.bytes_by_kind["variables"] for plan in step.programs.values()}) == 1  # no second copy
        assert get_bits(step.state_dict()) == get_bits(state)
        step.save(FOLDER / f"saved{stage}")
        first, bits = step(make_batch(5, RANK)), get_bits(step.state_dict())
        step.load_state_dict(state)
        assert step(make_batch(5, RANK)) == first and get_bits(step.state_dict()) == bits
        step.load(FOLDER / f"saved{stage}")
        assert step(make_batch(5, RANK)) == first and get_bits(step.state_dict()) == bits
        step_in_pytorch(other, optimizer, join(5, [8, 8]))
        step.sync()
        for mine, theirs in zip(model.state_dict().values(), other.state_dict().values()):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
        finals.append((step.plan.peak_bytes["device"], get_bits(model.state_dict())))
        step.close()
    assert all(bits == finals[0][1] for _, bits in finals)  # what lies where changes no bit
    assert all(found == numbers[0] for found in numbers)
    # In a step as small as this one the place that a part in flight needs is more than stage 3 saves.
    assert finals[1][0] < finals[0][0] and finals[3][0] <= finals[1][0] + 64, [bytes_ for bytes_, _ in finals]


def bits_of_memopt_run():
    """Losses, parameters and optimizer state are those of memopt-run on as many ranks, with dropout and clipping."""
    for stage in (0, 1, 3):
        model = make_net().insert(2, nn.Dropout(0.2))
        step = memopt.compile(model, F.cross_entropy, make_batch(0, RANK), optimizer=adam(model), zero_stage=stage, max_grad_norm=0.5)
        first, last, run = (FOLDER / f"{name}{stage}" for name in ("first", "last", "run"))
        step.save(first)
        losses = [step(make_batch(seed, RANK)) for seed in range(4)]
        step.save(last)
        if RANK == 0:
            batches = [make_batch(seed, rank) for seed in range(4) for rank in range(RANKS)]
            save_file({f"step{i}.{name}": value for i, batch in enumerate(batches) for name, value in zip(("input", "target"), batch)},
                      FOLDER / "batches.safetensors")
            alone = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
            subprocess.run(["memopt-run", step.package, f"--ranks={RANKS}", f"--load={first}", f"--data={FOLDER}/batches.safetensors", "--steps=4",
                            "--quiet", f"--save={run}", f"--report={run}.json"], check=True, stdout=subprocess.DEVNULL, env=alone)
            assert losses == json.loads(run.with_suffix(".json").read_text())["losses"]
            for name in ("model.safetensors", "optimizer.safetensors"):
                assert (last / name).read_bytes() == (run / name).read_bytes(), (stage, name)
        step.close()


def several_steps():
    """Two optimizers over one state, each shared out; of parameters that are, too."""
    def make_parts(model):
        return {"all": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), "head": adam(model[3])}
    for stage in (1, 3):
        model, other = make_net(), make_net()
        parts, theirs = make_parts(model), make_parts(other)
        steps = memopt.compile_steps({name: memopt.Training(model, F.cross_entropy, make_batch(0, RANK), optimizer=optimizer)
                                      for name, optimizer in parts.items()}, zero_stage=stage)
        for seed, name in enumerate(("head", "all", "all", "head")):
            assert_near(steps[name](make_batch(seed, RANK)), step_in_pytorch(other, theirs[name], join(seed, [8, 8])))
        steps.sync()
        for mine, value in zip(model.state_dict().values(), other.state_dict().values()):
            torch.testing.assert_close(mine, value, rtol=1e-3, atol=1e-5)


class Adapted(nn.Module):
    """A frozen matrix, which codes keep, beside what is trained."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(64, 96), nn.Linear(64, 4, bias=False), nn.Linear(4, 96, bias=False)
        self.head = nn.Linear(96, 3)
        self.base.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.tanh(self.base(x) + self.up(self.down(x))))


def frozen_codes():
    """Ranks that share out parameters keep codes whole; losses, those of evaluations too, are those of a model with their values."""
    def make():
        torch.manual_seed(1)
        return Adapted()

    def make_rows(seed, rank):
        generator = torch.Generator().manual_seed(10 * seed + rank)
        return torch.randn(48, 64, generator=generator), torch.randint(3, (48,), generator=generator)

    def adam_of_trained(model):
        return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2, eps=1e-4)

    for stage, code in ((0, "int8"), (3, "int8"), (3, "nf4"), (3, "bf16")):
        model, other = make(), make()
        step = memopt.compile(model, F.cross_entropy, make_rows(0, RANK), optimizer=adam_of_trained(model), zero_stage=stage,
                              frozen_weights=code)
        other.load_state_dict(step.state_dict()["model"])
        optimizer = adam_of_trained(other)
        for seed in range(3):
            loss = step(make_rows(seed, RANK))
            whole = [torch.cat(parts) for parts in zip(*(make_rows(seed, rank) for rank in range(RANKS)))]
            assert_near(loss, step_in_pytorch(other, optimizer, whole))
        rows, target = make_rows(7, RANK)
        assert_near(step.evaluate((rows, target)), F.cross_entropy(other(rows), target).item())
        step.close()


def losses_that_are_not_finite():
    """All ranks see it, and nothing has changed."""
    model = make_net()
    step = memopt.compile(model, F.cross_entropy, make_batch(0, RANK), optimizer=adam(model), zero_stage=1)
    before = get_bits(step.state_dict())
    rows, target = make_batch(1, RANK)
    refuses(memopt.LossNotFinite, [], step, (rows * (float("nan") if RANK == 1 else 1.0), target))
    assert get_bits(step.state_dict()) == before
    step(make_batch(2, RANK))


def a_bad_batch_of_one_rank():
    """All ranks leave the step, and say whose it was; they save what was before, and go on."""
    for stage in (0, 2, 3):
        model, plain = make_net(), make_net()
        step, other = (memopt.compile(net, F.cross_entropy, make_batch(0, RANK), optimizer=adam(net), zero_stage=stage)
                       for net in (model, plain))
        step(make_batch(1, RANK)), other(make_batch(1, RANK))
        before = get_bits(step.state_dict())
        rows, target = make_batch(2, RANK)
        for bad in ((rows, target + 7), (rows[:, :3], target)):
            words = ["rank 1: "] if RANK == 0 else ["expected"]
            refuses(memopt.BadInput, words, step, bad if RANK == 1 else (rows, target))
            assert get_bits(step.state_dict()) == before and step.steps == 1
        step.save(FOLDER / f"refused{stage}")
        assert step((rows, target)) == other((rows, target)) and get_bits(step.state_dict()) == get_bits(other.state_dict())
        step.load(FOLDER / f"refused{stage}")
        assert get_bits(step.state_dict()) == before
        step.close(), other.close()


def one_that_closes():
    """The other is told so at once, whether it waits already or not."""
    model = make_net()
    step = memopt.compile(model, F.cross_entropy, make_batch(0, RANK), optimizer=adam(model), rank_timeout=200)
    step(make_batch(0, RANK))
    begun = time.monotonic()
    if RANK == 0:
        time.sleep(0.5)
    else:
        refuses(memopt.Unavailable, ["waits for rank 0, which has closed its session"], step, make_batch(1, RANK))
        assert time.monotonic() - begun < 20
    step.close()


def one_that_is_stopped():
    """The other gives up when it is told to, and what goes on late learns of that."""
    refuses(memopt.BadInput, ["rank_timeout"], memopt.compile, make_net(), F.cross_entropy, make_batch(0, RANK), rank_timeout=0)
    model = make_net()
    step = memopt.compile(model, F.cross_entropy, make_batch(0, RANK), optimizer=adam(model), rank_timeout=2)
    step(make_batch(0, RANK))
    begun = time.monotonic()
    if RANK == 1:
        subprocess.Popen(["sh", "-c", f"sleep 8; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    refuses(memopt.Unavailable, ["rank 0: " if RANK == 1 else "", "waited 2 s for rank 1; rank_timeout=SECONDS gives it longer"],
            step, make_batch(1, RANK))
    assert RANK == 1 or time.monotonic() - begun < 7
    step.close()


run_cases([stages, bits_of_memopt_run, several_steps, frozen_codes, losses_that_are_not_finite, a_bad_batch_of_one_rank,
           one_that_closes, one_that_is_stopped])
