# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_mmengine.py FOLDER [CASE...]: memopt.integrations.mmengine, held against MMEngine's own Runner."""

import os

os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # MMEngine's own checkpoints hold more than tensors

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import HOOKS, METRICS, MODELS
from mmengine.runner import Runner
from torch import nn

import memopt
from memopt.integrations.mmengine import MemoptRunner
from training import FOLDER, assert_near, refuses, run_cases


@MODELS.register_module()
class Classifier(BaseModel):
    """Two blocks and a head; its norms keep their statistics, as detectors' do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        block = lambda channels: nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.first, self.second, self.head = block(3), block(8), nn.Linear(8, 3)
        for norm in (self.first[1], self.second[1]):
            norm.running_var.fill_(0.5)
            norm.running_mean.fill_(0.1)

    def train(self, mode=True):
        super().train(mode)
        for norm in (self.first[1], self.second[1]):
            norm.eval()
        return self

    def forward(self, inputs, labels=None, mode="tensor"):
        output = self.head(self.second(self.first(inputs)).mean((2, 3)))
        if mode == "loss":
            return {"loss_classes": F.cross_entropy(output, labels), "loss_size": 0.01 * output.square().mean()}
        return [(output, labels)]


@METRICS.register_module()
class Loss(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results += [F.cross_entropy(*pair).item() for pair in data_samples]

    def compute_metrics(self, results):
        return {"loss": sum(results) / len(results)}


@HOOKS.register_module()
class Notes(Hook):
    def before_train(self, runner):
        self.losses, self.norms, self.rates, self.validations = [], [], [], []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.losses.append(outputs["loss"].item() if outputs else None)
        self.rates.append(runner.optim_wrapper.optimizer.param_groups[0]["lr"])
        if "train/grad_norm" in runner.message_hub.log_scalars:
            self.norms.append(runner.message_hub.get_scalar("train/grad_norm").current())

    def after_val_epoch(self, runner, metrics=None):
        self.validations.append(metrics["loss"])


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(3, (count,), generator=generator)
        self.inputs = torch.randn(count, 3, 8, 8, generator=generator) + self.labels.view(-1, 1, 1, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return {"inputs": self.inputs[place], "labels": self.labels[place]}


def run(kind, name, count=40, steps=None, wrapper=(), **more):
    torch.manual_seed(1)
    loader = lambda size, seed: dict(batch_size=4, num_workers=0, sampler=dict(type="DefaultSampler", shuffle=False),
                                     dataset=Pictures(size, seed), collate_fn=dict(type="default_collate"))
    loop = dict(by_epoch=False, max_iters=steps, val_interval=20) if steps else dict(by_epoch=True, max_epochs=2)
    cfg = Config(dict(experiment_name=f"{name}{id(more)}"))
    cfg.update(more)
    runner = kind(model=dict(type="Classifier"), work_dir=str(FOLDER / name), train_dataloader=loader(count, 1), train_cfg=loop,
                  val_dataloader=loader(8, 2), val_cfg=dict(), val_evaluator=dict(type="Loss"), default_scope="mmengine",
                  optim_wrapper=dict(optimizer=dict(type="AdamW", lr=0.003, weight_decay=0.1, eps=1e-5), **dict(wrapper)),
                  param_scheduler=dict(type="LinearLR", start_factor=0.1, by_epoch=False, end=20), custom_hooks=[dict(type="Notes")],
                  default_hooks=dict(checkpoint=dict(type="CheckpointHook", interval=20, by_epoch=False)), log_level="ERROR", cfg=cfg,
                  experiment_name=cfg.experiment_name, **({"resume": True} if more.get("resumed") else {}))
    runner.train()
    return runner, next(hook for hook in runner.hooks if isinstance(hook, Notes))


def compare(theirs, ours):
    (their_runner, their_notes), (runner, notes) = theirs, ours
    assert len(notes.losses) == len(their_notes.losses)
    for left, right in zip(notes.losses, their_notes.losses):
        if left is not None:
            assert_near(left, right, 1e-4)
    for left, right in zip(notes.rates + notes.validations + notes.norms, their_notes.rates + their_notes.validations + their_notes.norms):
        assert_near(left, right, 1e-4)
    for (name, mine), other in zip(runner.model.state_dict().items(), their_runner.model.state_dict().values()):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4, msg=name)


def hundred_steps():
    """Losses, norms, rates, validations and weights of 100 steps; groups by kind of parameter; clipping."""
    wrapper = dict(clip_grad=dict(max_norm=0.5), paramwise_cfg=dict(norm_decay_mult=0.0, bias_lr_mult=2.0))
    runs = [run(kind, name, steps=100, wrapper=wrapper) for kind, name in ((Runner, "theirs"), (MemoptRunner, "ours"))]
    compare(*runs)
    losses, notes = runs[1][1].losses, runs[1][1]
    assert len(losses) == len(notes.norms) == 100 and len(notes.validations) == 5 and losses[-1] < losses[0] - 0.2
    assert runs[1][0].step is None and "train_step" not in runs[1][0].model.__dict__


def accumulation_and_words():
    """Recomputation, fused norms, and groups of batches, the last of which is incomplete."""
    words = dict(activation_checkpointing=["second"], efficient_conv_bn_eval=["first"])  # theirs would not train what runs first again
    packages = []

    class Watched(MemoptRunner):
        def call_hook(self, name, **keywords):
            if name == "after_train":
                packages.append(self.step)
                manifest = self.step._workspace.session.manifest
                packages.append((manifest["efficient_conv_bn_eval"]["fused"], [entry["name"] for entry in manifest["instructions"] if entry.get("clone")]))
            super().call_hook(name, **keywords)
    theirs, ours = run(Runner, "theirs2", count=12, steps=11, wrapper=dict(accumulative_counts=3), **words), None
    ours = run(Watched, "ours2", count=12, steps=11, wrapper=dict(accumulative_counts=3), **words)
    assert sum(loss is not None for loss in ours[1].losses) == 4
    for (name, mine), other in zip(ours[0].model.state_dict().items(), theirs[0].model.state_dict().values()):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4, msg=name)
    fused, recomputed = packages[1]
    assert len(fused) == 1 and "first" in fused[0], fused
    assert recomputed
    assert ours[0].cfg.activation_checkpointing == ["second"]


def resuming():
    """A checkpoint of either goes on in the other."""
    theirs = run(Runner, "whole", steps=40)
    for first, second in ((Runner, MemoptRunner), (MemoptRunner, Runner), (MemoptRunner, MemoptRunner)):
        name = f"{first.__name__}{second.__name__}"
        run(first, name, steps=20)
        runner, notes = run(second, name, steps=40, resumed=True)
        assert runner.iter == 40 and len(notes.losses) == 20
        for left, right in zip(notes.losses, theirs[1].losses[20:]):
            assert_near(left, right, 1e-4)


def refusals():
    refuses(memopt.BadInput, ["clip_grad", "value"], run, MemoptRunner, "r1", steps=1, wrapper=dict(clip_grad=dict(type="value", clip_value=1.0)))
    refuses(memopt.BadInput, ["norm_type"], run, MemoptRunner, "r2", steps=1, wrapper=dict(clip_grad=dict(max_norm=1.0, norm_type=1)))
    refuses(memopt.BadInput, ["compile="], run, MemoptRunner, "r3", steps=1, compile=True)
    refuses(memopt.DoesNotFit, ["does not fit"], run, MemoptRunner, "r4", steps=1, memopt=dict(device_memory="2KiB"))


run_cases([hundred_steps, accumulation_and_words, resuming, refusals])
