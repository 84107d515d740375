# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_cuda.py FOLDER [CASE...]: device="cuda" from Python, on the emulated device."""

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import FOLDER, assert_near, get_bits, refuses, run_cases


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


def make_batch(seed, count=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 8, generator=generator), torch.randint(3, (count,), generator=generator)


def adam(model):
    return torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-6)


def train_eagerly(model, optimizer, batch):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch[0]), batch[1])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def programs():
    """Shapes, smaller batches, evaluation, averages and state, all on the device."""
    model, other = make_net(), make_net()
    optimizer = adam(other)
    step = memopt.compile(model, F.cross_entropy, make_batch(0), optimizer=adam(model), device="cuda", ragged="pad", ema_decay=0.9,
                          shapes=[make_batch(0, 4)], max_grad_norm=1.0, device_memory="16MiB")
    assert step.plan.peak_bytes["device"] and step._workspace.session.manifest["target"] != "cpu"
    assert sorted(path.name for path in step.package.iterdir() if "kernels." in path.name or "program.so" in path.name) == ["kernels.bc", "program.so"]
    average = torch.optim.swa_utils.AveragedModel(other, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for seed, count in enumerate((8, 4, 8, 3, 8)):
        assert_near(step(make_batch(seed, count)), train_eagerly(other, optimizer, make_batch(seed, count)))
        average.update_parameters(other)
    batch = make_batch(9)
    assert_near(step.evaluate(batch), F.cross_entropy(other(batch[0]), batch[1]).item())
    assert_near(step.evaluate(batch, averaged=True), F.cross_entropy(average(batch[0]), batch[1]).item())
    torch.testing.assert_close(step.predict(batch[0]), other(batch[0]), rtol=1e-4, atol=1e-5)
    assert list(step.programs) == ["train-8x8", "train-4x8", "evaluate-8x8", "evaluate-averaged-8x8"]
    state = step.state_dict()
    step.sync()
    for mine, theirs in zip(model.state_dict().values(), other.state_dict().values()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    loss = step(batch)
    step.load_state_dict(state)
    assert step(batch) == loss
    step.save(FOLDER / "saved")
    loss, bits = step(make_batch(10)), get_bits(step.state_dict())
    step.load(FOLDER / "saved")
    assert step(make_batch(10)) == loss and get_bits(step.state_dict()) == bits


def several_steps():
    """Two optimizers over one state on the device."""
    runs = []
    for device in ("cpu", "cuda"):
        model = make_net()
        steps = memopt.compile_steps({"head": memopt.Training(model, F.cross_entropy, make_batch(0), optimizer=adam(model[3])),
                                      "all": memopt.Training(model, F.cross_entropy, make_batch(0), optimizer=torch.optim.SGD(model.parameters(), 0.1))},
                                     device=device)
        losses = [steps[name](make_batch(seed)) for seed, name in enumerate(("head", "all", "head", "head", "all"))]
        steps.sync()
        runs.append((losses, model))
    for left, right in zip(runs[0][0], runs[1][0]):
        assert_near(left, right)
    for left, right in zip(runs[0][1].state_dict().values(), runs[1][1].state_dict().values()):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def refusals():
    model = make_net()
    refuses(memopt.DoesNotFit, ["does not fit"], memopt.compile, model, F.cross_entropy, make_batch(0), optimizer=adam(model), device="cuda",
            device_memory="2KiB")
    refuses(memopt.BadInput, ["'tpu'"], memopt.compile, model, F.cross_entropy, make_batch(0), optimizer=adam(model), device="tpu")


run_cases([programs, several_steps, refusals])
