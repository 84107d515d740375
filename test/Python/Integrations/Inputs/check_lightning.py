# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_lightning.py FOLDER [CASE...]: memopt.integrations.lightning, held against Lightning's own training."""

import logging
import warnings

import lightning
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler, LambdaCallback, ModelCheckpoint, ModelPruning
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import memopt
from memopt.integrations.lightning import MemoptStrategy
from training import FOLDER, assert_near, refuses, run_cases

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message=".*does not have many workers.*")


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))

    def training_step(self, batch, batch_idx):
        rows, target = batch
        loss = F.cross_entropy(self.net(rows), target)
        self.log("train_loss", loss, on_step=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 0.01, eps=1e-6)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=200)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Notes(Callback):
    def __init__(self):
        self.losses, self.steps, self.validations = [], [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if not self.steps or self.steps[-1] != trainer.global_step:
            self.steps.append(trainer.global_step)
            self.losses.append((float(trainer.callback_metrics["train_loss"]), trainer.optimizers[0].param_groups[0]["lr"]))

    def on_validation_end(self, trainer, module):
        self.validations.append(float(trainer.callback_metrics["val_loss"]))


def make_loader(count=80, size=8, seed=1):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 6, generator=generator)
    return DataLoader(TensorDataset(rows, (rows[:, 0] > 0).long() + (rows[:, 1] > 1).long()), batch_size=size)


def fit(strategy, module=None, loader=None, validation=None, notes=None, ckpt_path=None, callbacks=(), **options):
    notes, module = notes or Notes(), module or Module()
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
                                default_root_dir=str(FOLDER), callbacks=[notes, *callbacks], **({"strategy": strategy} if strategy else {}),
                                **{"enable_checkpointing": False, **options})
    trainer.fit(module, loader or make_loader(), validation, ckpt_path=ckpt_path)
    return module, notes, trainer


def compare(theirs, ours):
    (their_module, their_notes, their_trainer), (module, notes, trainer) = theirs, ours
    assert trainer.global_step == their_trainer.global_step and notes.steps == their_notes.steps
    for left, right in zip(notes.losses + [(v, v) for v in notes.validations], their_notes.losses + [(v, v) for v in their_notes.validations]):
        assert_near(left[0], right[0], 1e-4)
        assert_near(left[1], right[1], 1e-4)
    for (name, mine), other in zip(module.state_dict().items(), their_module.state_dict().values()):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4, msg=name)


def hundred_steps():
    """Losses, rates and weights of 100 steps, with validation between them; the epochs end with a smaller batch."""
    options = {"max_steps": 100, "loader": make_loader(76), "validation": make_loader(20, seed=2)}
    theirs, ours = fit(None, **options), fit(MemoptStrategy(device_memory="1MiB"), **options)
    assert len(ours[1].losses) == 100 and ours[1].losses[-1][0] < ours[1].losses[0][0] / 2
    compare(theirs, ours)


def accumulation_and_clipping():
    """Groups of batches: the last of an epoch is incomplete, and Lightning divides it as the others."""
    class PlainLoss(Module):
        def training_step(self, batch, batch_idx):
            return F.cross_entropy(self.net(batch[0]), batch[1])
    for kind in (PlainLoss,):
        runs = []
        for strategy in (None, MemoptStrategy()):
            module = kind()
            trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
                                        enable_checkpointing=False, max_epochs=3, accumulate_grad_batches=4, gradient_clip_val=0.1,
                                        **({"strategy": strategy} if strategy else {}))
            trainer.fit(module, make_loader(80))
            runs.append((module, trainer.global_step))
        assert runs[0][1] == runs[1][1] == 9
        for mine, other in zip(runs[1][0].state_dict().values(), runs[0][0].state_dict().values()):
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def checkpoints():
    """Checkpoints are Lightning's: either goes on from the other's."""
    paths = []
    for strategy, name in ((None, "theirs"), (MemoptStrategy(), "ours")):
        keep = ModelCheckpoint(dirpath=str(FOLDER / name), every_n_train_steps=15, save_top_k=-1, filename="{step}")
        paths.append((fit(strategy, max_steps=30, callbacks=[keep], enable_checkpointing=True), str(FOLDER / name / "step=15.ckpt")))
    compare(paths[0][0], paths[1][0])
    theirs = fit(None, max_steps=30, ckpt_path=paths[0][1])
    for strategy, (_, path) in ((MemoptStrategy(), paths[0]), (MemoptStrategy(), paths[1]), (None, paths[1])):
        compare(theirs, fit(strategy, max_steps=30, ckpt_path=path))


def what_is_logged():
    """The loss under its names; what else is logged is named."""
    class Logging(Module):
        def training_step(self, batch, batch_idx):
            output = self.net(batch[0])
            loss = F.cross_entropy(output, batch[1])
            self.log("train_loss", loss)
            self.log_dict({"right": (output.argmax(1) == batch[1]).float().mean()})
            return {"loss": loss}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit(MemoptStrategy(), Logging(), max_steps=2)
    assert sum("'right'" in str(each.message) for each in found) == 1 and not any("'train_loss'" in str(each.message) for each in found)
    seen = []

    class Evaluating(Module):
        def validation_step(self, batch, batch_idx):
            seen.append((self.trainer.strategy.evaluate(batch), F.cross_entropy(self.net(batch[0]), batch[1]).item()))
            self.log("val_loss", seen[-1][0])
    fit(MemoptStrategy(), Evaluating(), max_steps=10, validation=make_loader(20, seed=2), num_sanity_val_steps=0)
    assert len(seen) == 3
    for mine, other in seen:
        assert_near(mine, other)


def counters():
    """Numbers that change from step to step are built in, which a warning says; a log of them is none of the loss."""
    class Counting(Module):
        def training_step(self, batch, batch_idx):
            return F.cross_entropy(self.net(batch[0]), batch[1]) * (1 + self.current_epoch) + 0 * batch_idx

    class Passing(Module):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx)
    for kind, expected in ((Counting, {"batch_idx", "current_epoch"}), (Passing, set())):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            fit(MemoptStrategy(), kind(), max_steps=1, notes=Callback())
        said = [str(each.message) for each in found if issubclass(each.category, memopt.NumbersWarning)]
        assert {text.split()[2].rstrip(",") for text in said if text.startswith("training_step reads")} == expected, said


def ends_of_epochs():
    """There callbacks find the weights that Lightning would have."""
    class Weights(Callback):
        def __init__(self):
            self.seen = []

        def on_train_epoch_end(self, trainer, module):
            self.seen.append(module.net[0].weight.detach().clone())
    seen = []
    for strategy in (None, MemoptStrategy()):
        weights = Weights()
        fit(strategy, loader=make_loader(28), max_epochs=3, callbacks=[weights])
        assert len(weights.seen) == 3 and not torch.equal(weights.seen[0], weights.seen[2])
        seen.append(weights.seen)
    for mine, other in zip(*seen):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def refusals():
    class Clipping(Module):
        def on_before_optimizer_step(self, optimizer):
            pass
    refuses(memopt.BadInput, ["on_before_optimizer_step"], fit, MemoptStrategy(), Clipping(), max_steps=1)
    looks = LambdaCallback(on_after_backward=lambda trainer, module: None)
    refuses(memopt.BadInput, ["LambdaCallback.on_after_backward would find no gradients"], fit, MemoptStrategy(), max_steps=1, callbacks=[looks])
    fit(MemoptStrategy(), max_steps=1, callbacks=[LambdaCallback(on_train_batch_end=lambda *found: None)])
    for option in ({"devices": 2}, {"num_nodes": 2}, {"detect_anomaly": True}):
        refuses(memopt.BadInput, [f"{next(iter(option))}="], fit, MemoptStrategy(), max_steps=1, **option)
    refuses(memopt.BadInput, ["gradient_clip_algorithm"], fit, MemoptStrategy(), max_steps=1, gradient_clip_val=1.0,
            gradient_clip_algorithm="value")
    refuses(memopt.BadInput, ["precision='64-true'"], fit, MemoptStrategy(), max_steps=1, precision="64-true")
    refuses(memopt.BadInput, ["GradientAccumulationScheduler"], fit, MemoptStrategy(), max_steps=1,
            callbacks=[GradientAccumulationScheduler({0: 2})])
    refuses(memopt.BadInput, ["ModelPruning"], fit, MemoptStrategy(), max_steps=1, callbacks=[ModelPruning("l1_unstructured", amount=0.3)])

    class Manual(Module):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
    refuses(memopt.BadInput, ["automatic_optimization"], fit, MemoptStrategy(), Manual(), max_steps=1)
    refuses(memopt.DoesNotFit, ["does not fit"], fit, MemoptStrategy(device_memory="2KiB"), max_steps=1)


run_cases([hundred_steps, accumulation_and_clipping, checkpoints, what_is_logged, counters, ends_of_epochs, refusals])
