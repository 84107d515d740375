# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_transformers.py FOLDER [CASE...]: memopt.integrations.transformers, held against the Trainer of transformers."""

import json
import os
import pathlib
import subprocess
import sys

import torch
import torch.nn.functional as F
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import memopt
from memopt.integrations.transformers import Trainer
from training import FOLDER, assert_near, refuses, run_cases

LENGTH, WORDS = 16, 61


def make_model():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
                                      attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))


def make_data(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        tokens = (torch.arange(LENGTH) * (number % 5 + 1) + torch.randint(WORDS, (1,), generator=generator)) % WORDS
        labels = tokens.clone()
        labels[: number % 7] = -100  # batches have other numbers of valid targets
        rows.append({"input_ids": tokens, "labels": labels})
    return rows


def make_arguments(name, **more):
    own = {"per_device_train_batch_size": 4, "learning_rate": 3e-3, "weight_decay": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 5,
           "logging_steps": 1, "report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "seed": 3}
    return TrainingArguments(output_dir=str(FOLDER / name), **{**own, **more})


def train_both(arguments, data, evaluated=None, model=make_model, **keywords):
    """Both trainers, after the same training."""
    trainers = []
    for kind in (transformers.Trainer, Trainer):
        trainer = kind(model=model(), args=make_arguments(kind.__module__.split(".")[0], **arguments), train_dataset=data,
                       eval_dataset=evaluated, **keywords)
        trainer.train()
        trainers.append(trainer)
    return trainers


def list_logs(trainer, key):
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def compare(theirs, ours, keys=("loss", "grad_norm", "learning_rate"), tolerance=2e-4):
    assert theirs.state.global_step == ours.state.global_step
    for key in keys:
        mine, other = list_logs(ours, key), list_logs(theirs, key)
        assert len(mine) == len(other) > 0, (key, len(mine), len(other))
        for left, right in zip(mine, other):
            assert_near(left, right, tolerance)
    for (name, mine), other in zip(ours.model.state_dict().items(), theirs.model.state_dict().values()):
        torch.testing.assert_close(mine, other, rtol=1e-2, atol=2e-4, msg=name)


def hundred_steps():
    """Losses, norms, rates and weights of 100 updates; the epochs end with a smaller batch."""
    theirs, ours = train_both({"max_steps": 100}, make_data(42))
    compare(theirs, ours)
    losses = list_logs(ours, "loss")
    assert len(losses) == 100 and losses[-1] < losses[0] - 1, losses
    assert ours.step is None  # its memory is free again


def accumulation_and_evaluation():
    """Groups of batches, the last of an epoch smaller; evaluation within the training; predictions for metrics."""
    metric = lambda output: {"right": float((output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions)
                                            .argmax(-1)[:, :-1][output.label_ids[:, 1:] >= 0].mean())}
    theirs, ours = train_both({"num_train_epochs": 4, "gradient_accumulation_steps": 3, "eval_strategy": "epoch", "max_grad_norm": 0.3,
                               "per_device_eval_batch_size": 4}, make_data(30), make_data(10, 2), compute_metrics=metric)
    compare(theirs, ours, ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_right"))
    assert len(list_logs(ours, "eval_loss")) == 4


def ends_of_epochs():
    """There callbacks find the weights that the Trainer of transformers would have."""
    class Weights(transformers.TrainerCallback):
        def on_epoch_end(self, arguments, state, control, model=None, **more):
            seen.append(model.lm_head.weight.detach().clone())
    seen: list = []
    train_both({"num_train_epochs": 3}, make_data(10), callbacks=[Weights])
    assert len(seen) == 6 and not torch.equal(seen[3], seen[5])
    for mine, other in zip(seen[3:], seen[:3]):
        torch.testing.assert_close(mine, other, rtol=1e-2, atol=2e-4)


def checkpoints():
    """A training that is resumed, by either trainer, goes on as one that was not interrupted."""
    data, arguments = make_data(32), {"max_steps": 20, "save_strategy": "steps", "save_steps": 8}
    theirs, ours = train_both(arguments, data)
    compare(theirs, ours)
    for kind, start in ((Trainer, "memopt"), (Trainer, "transformers"), (transformers.Trainer, "memopt")):
        trainer = kind(model=make_model(), args=make_arguments("resumed", **arguments), train_dataset=data)
        trainer.train(resume_from_checkpoint=str(FOLDER / start / "checkpoint-8"))
        assert trainer.state.global_step == 20
        for left, right in zip(list_logs(trainer, "loss")[-12:], list_logs(theirs, "loss")[-12:]):
            assert_near(left, right, 2e-4)


def best_model():
    """The best model is that of its checkpoint, not of the last step."""
    arguments = {"max_steps": 8, "save_strategy": "steps", "save_steps": 4, "eval_strategy": "steps", "eval_steps": 4,
                 "load_best_model_at_end": True, "learning_rate": 0.3, "warmup_steps": 0}
    _, ours = train_both(arguments, make_data(32), make_data(8, 2))
    saved = GPT2LMHeadModel.from_pretrained(ours.state.best_model_checkpoint)
    for mine, other in zip(ours.model.state_dict().values(), saved.state_dict().values()):
        assert torch.equal(mine, other)


def own_losses():
    """A loss function, a subclass's compute_loss, smoothed labels; recomputation of layers; a budget."""
    def loss_of(outputs, labels, num_items_in_batch=None):
        return F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
    theirs, ours = train_both({"max_steps": 6}, make_data(24), compute_loss_func=loss_of)
    compare(theirs, ours)
    theirs, ours = train_both({"max_steps": 6, "label_smoothing_factor": 0.1}, make_data(24))
    compare(theirs, ours)
    theirs, ours = train_both({"max_steps": 6, "gradient_checkpointing": True}, make_data(24))
    compare(theirs, ours)
    assert ours.model.is_gradient_checkpointing is False

    class Squared(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            loss = outputs.loss * outputs.loss
            return (loss, outputs) if return_outputs else loss
    trainer = Squared(model=make_model(), args=make_arguments("squared", max_steps=2), train_dataset=make_data(24),
                      memopt_options={"device_memory": "8MiB"})
    trainer.train()
    assert_near(list_logs(trainer, "loss")[0], list_logs(theirs, "loss")[0] ** 2, 0.2)


def ranks():
    """Two ranks, with state shared out among them, have the numbers of transformers' own."""
    runs = []
    for kind in ("transformers", "memopt"):
        script = pathlib.Path(__file__).with_name("train_transformers.py")
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), str(FOLDER), kind],
                       check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        runs.append(json.loads((FOLDER / f"{kind}.json").read_text()))
    keys = ("loss", "grad_norm", "learning_rate", "eval_loss")
    numbers = [[entry[key] for entry in run["log"] for key in keys if key in entry] + run["weights"] for run in runs]
    assert len(numbers[0]) == len(numbers[1]) > 38, numbers
    for left, right in zip(*numbers):
        assert_near(left, right, 2e-4)


def refusals():
    """Arguments without a counterpart are named."""
    def train(options=None, **arguments):
        Trainer(model=make_model(), args=make_arguments("refused", max_steps=1, **arguments), train_dataset=make_data(8),
                memopt_options=options).train()
    refuses(memopt.BadInput, ["neftune_noise_alpha"], train, neftune_noise_alpha=5.0)
    refuses(memopt.BadInput, ["torch_empty_cache_steps"], train, torch_empty_cache_steps=2)
    refuses(memopt.BadInput, ["auto_find_batch_size"], train, auto_find_batch_size=True)
    refuses(memopt.BadInput, ["ddp_find_unused_parameters"], train, ddp_find_unused_parameters=True)
    refuses(memopt.BadInput, ["ddp_broadcast_buffers"], train, ddp_broadcast_buffers=True)
    refuses(memopt.DoesNotFit, ["does not fit"], train, options={"device_memory": "100KiB"})

    class Halved(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, arguments, state, control, model=None, **more):
            for parameter in model.parameters():
                parameter.grad.mul_(0.5)

    class Masked(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            labels = torch.where(inputs["labels"] % 2 == 0, -100, inputs["labels"])
            return super().training_step(model, {**inputs, "labels": labels}, num_items_in_batch)
    own = lambda kind, **more: kind(model=make_model(), args=make_arguments("refused", max_steps=1), train_dataset=make_data(8), **more).train()
    refuses(memopt.BadInput, ["Halved.on_pre_optimizer_step would find no gradients"], own, Trainer, callbacks=[Halved()])
    refuses(memopt.BadInput, ["valid targets", "change labels in the data"], own, Masked)


run_cases([hundred_steps, accumulation_and_evaluation, ends_of_epochs, checkpoints, best_model, own_losses, ranks, refusals])
