# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Trainer of transformers over a compiled step.

    from memopt.integrations.transformers import Trainer

    trainer = Trainer(model, args, train_dataset=data, memopt_options={"device_memory": "2GiB"})
    trainer.train()

Loop, schedule, logs, callbacks, checkpoints and resuming are theirs. Forward, backward, clipping and update are the step's:
it runs with the last batch of each update, when it has all of them, and their `optimizer.step()` finds no gradients. So
the parameters of the model are behind until they are wanted: in checkpoints, at the end of epochs, and by `trainer.sync()`.
Evaluations within the training are programs of the step; others are theirs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..errors import BadInput
from ..runtime import find_rank
from ..step import Step, compile
from .held import HeldStep

__all__ = ["Trainer"]

#: Arguments that a compiled step has no counterpart for: the value that changes nothing, and what to do.
_REFUSED = {
    "torch_compile": (False, "the step is compiled by memopt"),
    "deepspeed": (None, "give memopt_options={'zero_stage': 1} and its like"),
    "auto_find_batch_size": (False, "memopt.compile(..., batch_size='max') says what fits before the first step"),
    "neftune_noise_alpha": (None, "leave it out"),
    "torch_empty_cache_steps": (None, "a step allocates nothing; leave it out"),
    "use_liger_kernel": (False, "the compiler tiles large heads by itself; leave it out"),
    "parallelism_config": (None, "ranks are data-parallel; leave it out"),
    "tf32": (None, "give memopt_options={'matmul_precision': 'high'}, or 'highest'"),
    **{name: (None, "ranks meet in the step, and DistributedDataParallel is not used; leave it out")
       for name in ("ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph")},
}
#: What callbacks do between the backward pass and the next step, with gradients that the step does not leave behind.
_EVENTS = ("on_pre_optimizer_step", "on_optimizer_step")


class _WithLoss(nn.Module):
    """A model with the loss that the Trainer computes of it: the model's own, a loss function's, or a subclass's."""

    def __init__(self, model: nn.Module, compute: Callable[[nn.Module, dict], tuple[torch.Tensor, Any]]):
        super().__init__()
        self.model = model
        self.__dict__["compute"] = compute

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        loss, outputs = self.__dict__["compute"](self.model, inputs)
        logits = outputs.get("logits") if isinstance(outputs, Mapping) else outputs[-1] if isinstance(outputs, tuple) else None
        return {"loss": loss} if logits is None else {"loss": loss, "logits": logits}


class _EndOfEpoch(transformers.TrainerCallback):
    """Other callbacks look at weights between epochs."""

    def __init__(self, trainer: Trainer):
        self._trainer = trainer

    def on_epoch_end(self, *arguments: Any, **keywords: Any) -> None:
        self._trainer.sync(optimizer=False)


class Trainer(HeldStep, transformers.Trainer):
    """transformers.Trainer with a compiled step.

    `memopt_options` are keywords of `memopt.compile`: `device_memory`, `shapes`, `micro_batches`, `zero_stage` and others.
    Without `shapes` or `new_shapes` among them a program is compiled for each shape that comes; a smaller last batch is
    padded where that changes nothing.
    """

    def __init__(self, *arguments: Any, memopt_options: Mapping[str, Any] | None = None, **keywords: Any):
        super().__init__(*arguments, **keywords)
        self._options = dict(memopt_options or {})
        self.callback_handler.callbacks.insert(0, _EndOfEpoch(self))
        self._hold()

    # ------------------------------------------------------------------------------------------------------
    # The step
    # ------------------------------------------------------------------------------------------------------

    def _check_arguments(self) -> None:
        for name, (neutral, instead) in _REFUSED.items():
            if getattr(self.args, name, neutral) != neutral:
                raise BadInput(f"TrainingArguments({name}={getattr(self.args, name)!r}): {instead}")
        for callback in self.callback_handler.callbacks:
            for event in _EVENTS:
                if getattr(type(callback), event) is not getattr(transformers.TrainerCallback, event):
                    raise BadInput(f"{type(callback).__name__}.{event} would find no gradients: backward, clipping and update are one "
                                   "step; use on_step_begin or on_step_end")
        if self.args.ddp_find_unused_parameters:
            raise BadInput("TrainingArguments(ddp_find_unused_parameters=True): ranks meet in the step, which knows what is used; leave it out")
        if self.args.fsdp:
            raise BadInput(f"TrainingArguments(fsdp={self.args.fsdp!r}): give memopt_options={{'zero_stage': 3}}")
        if self.args.n_gpu > 1:
            raise BadInput("several GPUs are several ranks: start the script by torchrun --nproc-per-node=N")
        _, ranks = find_rank()
        if ranks > 1 and not self.args.average_tokens_across_devices:
            raise BadInput("TrainingArguments(average_tokens_across_devices=False): a step divides by the valid targets of all ranks")

    def _translate(self) -> dict[str, Any]:
        """The arguments as options of memopt.compile."""
        arguments = self.args
        options: dict[str, Any] = {"max_grad_norm": arguments.max_grad_norm if arguments.max_grad_norm > 0 else math.inf}
        if arguments.gradient_accumulation_steps > 1:
            options["accumulative_counts"] = arguments.gradient_accumulation_steps
        if arguments.bf16 or arguments.fp16:
            options["precision"] = "bf16" if arguments.bf16 else "fp16"
        if arguments.device.type == "cuda":
            options["device"] = "cuda"
        if "shapes" not in self._options:
            options["new_shapes"] = "compile"
        if self._checkpointed:
            options["activation_checkpointing"] = self._checkpointed
        return {**options, "ragged": "pad", **self._options}

    def _compute(self, model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
        """The Trainer's loss, which a step takes for what it is: a sum divided by a number of targets. Over several
        batches and ranks both are added up, so no factor for these is wanted."""
        with self._alone():
            number = self._get_num_items_in_batch([inputs], torch.device("cpu"))
            return self.compute_loss(model, dict(inputs), return_outputs=True, num_items_in_batch=number)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While entered, the Trainer counts what this rank has."""
        own, self.args.average_tokens_across_devices = self.args.average_tokens_across_devices, False
        try:
            yield
        finally:
            self.args.average_tokens_across_devices = own

    def _check_count(self, batches: list[dict[str, torch.Tensor]], counted: Any) -> None:
        """Refuses targets that a subclass has changed since the Trainer counted those that the loss is divided by."""
        if counted is None or self.args.world_size > 1:
            return
        own = self._get_num_items_in_batch(batches, torch.device("cpu"))
        if own is not None and int(own) != int(counted):
            raise BadInput(f"the batches of this update have {int(own)} valid targets, and the Trainer has counted {int(counted)}: change "
                           "labels in the data or in the collator, not in training_step")

    def _weigh(self, inputs: Mapping[str, Any]) -> float:
        """The factor of this rank's evaluation in the mean over ranks."""
        if self.args.world_size == 1:
            return 1.0
        whole = self._get_num_items_in_batch([inputs], self.args.device)
        with self._alone():
            own = self._get_num_items_in_batch([inputs], self.args.device)
        return 1.0 if whole is None else float(own) * self.args.world_size / float(whole)

    def _find_checkpointed(self, model: nn.Module) -> list[str]:
        """The modules that gradient checkpointing runs a second time, which the step does by itself."""
        layers = [name for name, module in model.named_modules() if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing]
        if layers:
            model.gradient_checkpointing_disable()
        return layers

    def _compile(self, batch: Mapping[str, torch.Tensor]) -> Step:
        self._check_arguments()
        model = self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
        self._checkpointed = [f"model.{name}" for name in self._find_checkpointed(model)]
        return compile(_WithLoss(model, self._compute).train(), None, batch, optimizer=self.optimizer, **self._translate())

    def _take(self, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """A batch as the step takes it: tensors on the host."""
        return {name: value.cpu() if torch.is_tensor(value) else value for name, value in inputs.items() if value is not None}

    def training_step(self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """The loss of the update with its last batch, and 0 with those before: the Trainer adds them up."""
        self._pending.append(self._take(inputs))
        if not self.accelerator.gradient_state.sync_gradients:
            return torch.zeros((), device=self.args.device)
        batches = self._take_pending()
        self._check_count(batches, num_items_in_batch)
        if self.step is None:
            self.step = self._compile(batches[0])
        return torch.tensor(self.step(*batches), device=self.args.device)

    def _clip_grad_norm(self, model: nn.Module) -> float | None:
        return self.step.gradient_norm  # the step clips

    def _get_grad_norm(self, model: nn.Module, grad_norm: float | None = None) -> float | None:
        return self.step.gradient_norm if grad_norm is None else grad_norm

    def sync(self, optimizer: bool = True) -> None:
        """Puts what the step has reached into model and optimizer. On ranks all call it."""
        if self.step is not None:
            self.step.sync(optimizer)

    # ------------------------------------------------------------------------------------------------------
    # Around it
    # ------------------------------------------------------------------------------------------------------

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        return model  # ranks meet in the step

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self.sync(optimizer=not self.args.save_only_model)
        super()._save_checkpoint(model, trial)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not _internal_call:
            self.sync(optimizer=False)
        super().save_model(output_dir, _internal_call)

    def _finalize_training(self, *arguments: Any) -> Any:
        self._end()  # callbacks find what was reached
        return super()._finalize_training(*arguments)

    def _load_best_model(self) -> None:
        self._end()  # it comes into the place of what was reached
        super()._load_best_model()

    def train(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            return super().train(*arguments, **keywords)
        finally:  # after an error, too, the model has what was reached
            self._end()

    def prediction_step(self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool,
                        ignore_keys: list[str] | None = None) -> tuple[Any, Any, Any]:
        has_labels = bool(self.label_names) and all(inputs.get(name) is not None for name in self.label_names)
        if self.step is None or not has_labels:
            self.sync(optimizer=False)
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        weight = self._weigh(inputs)
        if prediction_loss_only:
            return torch.tensor(weight * self.step.evaluate(self._take(inputs)), device=self.args.device), None, None
        loss, logits = self.step.evaluate_and_predict(self._take(inputs))
        labels = tuple(inputs[name].detach() for name in self.label_names)
        return torch.tensor(weight * loss, device=self.args.device), logits.to(self.args.device), labels[0] if len(labels) == 1 else labels
