#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trainers of other libraries with a compiled step, beside their own training: losses, bytes and seconds of 100 steps.

    integrations.py [transformers] [lightning] [mmengine] [accelerate] [--steps 100] [--json FILE]

Each library trains one model on the same batches, by itself and through memopt; `test/Python/Integrations` holds losses,
norms, rates and weights against each other with more settings. A library that is not installed is left out.

  peak      the library's own: the most bytes of PyTorch's allocator in training of three steps, with parameters, gradients
            and optimizer state; memopt: the arena, which holds all of these
  s a step  median and least between two steps' ends, all that the trainer does around a step included
  loss      the last step's, and the largest relative distance from the library's own of any step
  error     the largest relative distance of any step's loss from those of the library's own training in float64

Exit code 1 where memopt needs more bytes, or where its error is above three times the library's own and 1e-6.
"""
from __future__ import annotations

import argparse
import gc
import importlib.util
import logging
import os
import pathlib
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import paths  # noqa: F401
import memopt_driver as driver

import memopt

HEAD = ["library", "how", "peak MiB", "s a step, median", "least", "last loss", "distance", "error"]


class Notes:
    """What a run tells of itself: losses by step, when steps ended, and the arena of a compiled step."""

    def __init__(self):
        self.losses, self.ends, self.arena = [], [], None

    def add(self, loss, step=None):
        self.losses.append(float(loss))
        self.ends.append(time.perf_counter())
        if step is not None:
            self.arena = step.plan.peak_bytes["device"]

    def list_seconds(self):
        """Without the first steps, in which a step is compiled or an allocator fills its caches."""
        return [end - begin for begin, end in zip(self.ends[2:], self.ends[3:])]


def make_images(count, exact):
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(10, (count,), generator=generator)
    images = torch.randn(count, 3, 32, 32, generator=generator) + 0.3 * labels.view(-1, 1, 1, 1)
    return images.double() if exact else images, labels


def make_net(exact, width=32):
    torch.manual_seed(0)
    block = lambda a, b: [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    net = nn.Sequential(*block(3, width), *block(width, width), nn.MaxPool2d(2), *block(width, 2 * width), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(2 * width, 10))
    return net.double() if exact else net


def make_adam(model):
    return torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-6)


def run_transformers(steps, compiled, folder, exact=False):
    import transformers
    from memopt.integrations.transformers import Trainer
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=500, n_positions=64, n_embd=128, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
    model = model.double() if exact else model
    rows = torch.randint(500, (64, 64), generator=torch.Generator().manual_seed(1))
    notes = Notes()

    class Note(transformers.TrainerCallback):
        def on_log(self, arguments, state, control, logs=None, **kept):
            if "loss" in logs:
                notes.add(logs["loss"], getattr(trainer, "step", None))
    arguments = transformers.TrainingArguments(output_dir=folder, per_device_train_batch_size=8, learning_rate=1e-3, max_steps=steps, logging_steps=1,
                                               report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, seed=3)
    trainer = (Trainer if compiled else transformers.Trainer)(model=model, args=arguments, callbacks=[Note()],
                                                              train_dataset=[{"input_ids": row, "labels": row} for row in rows])
    return notes, model, trainer.train


def run_lightning(steps, compiled, folder, exact=False):
    import lightning
    from memopt.integrations.lightning import MemoptStrategy
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    notes = Notes()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_net(exact)

        def training_step(self, batch, number):
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return make_adam(self)

    class Note(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, number):
            notes.add(trainer.callback_metrics["train_loss"], getattr(trainer.strategy, "step", None) if compiled else None)
    module = Module()
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
                                enable_checkpointing=False, max_steps=steps, callbacks=[Note()], **({"strategy": MemoptStrategy()} if compiled else {}))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*make_images(64, exact)), batch_size=16)
    return notes, module, lambda: trainer.fit(module, loader)


def run_mmengine(steps, compiled, folder, exact=False):
    from mmengine.hooks import Hook
    from mmengine.model import BaseModel
    from mmengine.runner import Runner
    from memopt.integrations.mmengine import MemoptRunner
    notes = Notes()

    class Classifier(BaseModel):
        def __init__(self):
            super().__init__()
            self.net = make_net(exact)

        def forward(self, inputs, labels=None, mode="tensor"):
            output = self.net(inputs)
            return {"loss": F.cross_entropy(output, labels)} if mode == "loss" else output

    class Note(Hook):
        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            notes.add(outputs["loss"], getattr(runner, "step", None))
    images, labels = make_images(64, exact)
    loader = torch.utils.data.DataLoader([{"inputs": image, "labels": label} for image, label in zip(images, labels)], batch_size=16)
    model = Classifier()
    runner = (MemoptRunner if compiled else Runner)(
        model=model, work_dir=folder, train_dataloader=loader, train_cfg=dict(by_epoch=False, max_iters=steps), default_scope="mmengine",
        optim_wrapper=dict(optimizer=make_adam(model)), custom_hooks=[Note()], default_hooks=dict(checkpoint=None), log_level="ERROR",
        experiment_name=f"run{int(compiled)}{steps}{exact}")
    return notes, model, runner.train


def run_accelerate(steps, compiled, folder, exact=False):
    from accelerate import Accelerator
    accelerator, model, notes = Accelerator(cpu=True), make_net(exact), Notes()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*make_images(64, exact)), batch_size=16)
    optimizer, loader = accelerator.prepare(make_adam(model), loader)
    model = accelerator.prepare_model(model, evaluation_mode=compiled)

    def train():
        step = memopt.compile(model, F.cross_entropy, next(iter(loader)), optimizer=optimizer) if compiled else None
        while len(notes.losses) < steps:
            for rows, target in loader:
                if compiled:
                    loss = step((rows, target))
                else:
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(rows), target)
                    accelerator.backward(loss)
                    optimizer.step()
                notes.add(loss, step)
    return notes, model, train


LIBRARIES = {"transformers": run_transformers, "lightning": run_lightning, "mmengine": run_mmengine, "accelerate": run_accelerate}


def measure_peak(run, folder):
    """Of three steps of the library's own: the profiler sees each allocation and release."""
    _, model, train = run(3, False, folder)
    resident = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    gc.collect()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        train()
    events = [event for event in profile.kineto_results.events()
              if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU]
    alive = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return resident + peak


def find_distance(losses, others):
    assert len(losses) == len(others), (len(losses), len(others))
    return max(abs(loss - other) / abs(other) for loss, other in zip(losses, others))


def measure(name, options, failures):
    with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
        os.environ["MEMOPT_CACHE"] = folder + "/cache"
        found = []
        for compiled, exact in ((False, False), (True, False), (False, True)):
            notes, _, train = LIBRARIES[name](options.steps, compiled, folder, exact)
            train()
            found.append(notes)
        exact_losses = found.pop().losses
        peaks = [measure_peak(LIBRARIES[name], folder), found[1].arena]
    distance = find_distance(found[1].losses, found[0].losses)
    errors = [find_distance(notes.losses, exact_losses) for notes in found]
    if not errors[1] <= 3 * errors[0] + 1e-6:
        failures.append(f"{name}: losses are {errors[1]:.1e} from those in float64, its own {errors[0]:.1e}")
    if peaks[1] is None or not peaks[1] < peaks[0]:
        failures.append(f"{name}: memopt needs {peaks[1]} bytes, {name} alone {peaks[0]}")
    for how, notes, peak, error in zip(("its own", "memopt"), found, peaks, errors):
        seconds = notes.list_seconds()
        yield [name, how, driver.mib(peak), f"{statistics.median(seconds):.4f}", f"{min(seconds):.4f}", f"{notes.losses[-1]:.6f}",
               f"{distance:.0e}" if how == "memopt" else "-", f"{error:.1e}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", choices=[*LIBRARIES, []], default=list(LIBRARIES))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=pathlib.Path, help="writes the rows there too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    rows, failures = [], []
    for name in options.libraries:
        if importlib.util.find_spec(name):
            rows += measure(name, options, failures)
        else:
            print(f"{name} is not installed", file=sys.stderr)
    driver.report(HEAD, rows, failures, options.json)


if __name__ == "__main__":
    main()
