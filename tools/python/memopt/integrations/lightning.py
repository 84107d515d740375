# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A strategy of Lightning that trains by a compiled step.

    from memopt.integrations.lightning import MemoptStrategy

    trainer = lightning.Trainer(strategy=MemoptStrategy(device_memory="2GiB"), accelerator="cpu", max_epochs=3)
    trainer.fit(module, loader)

Loops, schedules, `global_step`, callbacks and checkpoints are Lightning's, in automatic optimization. The module's
`training_step` is traced, with its backward pass, clipping and update behind it: the step runs with the last batch of each
update, and the optimizer's own `step` finds no gradients. So parameters of the module are behind until they are wanted: in
checkpoints, in validation, at the end of epochs, and by `strategy.sync()`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, callbacks
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn

from ..errors import BadInput, NumbersWarning
from ..export import find_loss
from ..runtime import find_rank
from ..step import Step, compile
from .held import HeldStep

__all__ = ["MemoptStrategy"]

_PRECISIONS = {"32-true": None, "bf16-mixed": "bf16", "16-mixed": "fp16"}
#: Hooks of callbacks and modules, and those of modules alone, that would find no gradients, or another update than theirs.
_EVENTS = ("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad")
_HOOKS = (*_EVENTS, "backward", "configure_gradient_clipping", "optimizer_step", "optimizer_zero_grad")
_AVERAGE = "changes what a compiled step has built in; an average of the weights is MemoptStrategy(ema_decay=0.999)"
#: Callbacks that change what is updated, or read what each step would leave, and why they are refused.
_CALLBACKS = {"StochasticWeightAveraging": _AVERAGE, "WeightAveraging": _AVERAGE,
              "GradientAccumulationScheduler": "changes how many batches an update has, which a compiled step has built in",
              "ModelPruning": "reads the weights that the last forward pass has left in modules; prune between two trainings"}


class _Log:
    """What a training step did while it was traced: what `log` got, by name whether it was the loss, and the keywords; and the
    counters that it read, which are built in."""

    def __init__(self):
        self.entries: dict[str, tuple[bool, dict]] = {}
        self.counters: set[str] = set()


#: Of a LightningModule, numbers that change from step to step.
_COUNTERS = ("global_step", "current_epoch")


class _Number(int):
    """The number of a batch, 0, which notes when something is computed of it."""

    counters: set[str]

    @classmethod
    def make(cls, counters: set[str]) -> _Number:
        number = cls(0)
        number.counters = counters
        return number

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: tuple = (), kwargs: Mapping | None = None) -> Any:
        return function(*(+value if isinstance(value, cls) else value for value in args), **(kwargs or {}))


def _note_use(name: str) -> Any:
    def compute(self: _Number, *others: Any) -> Any:
        self.counters.add("batch_idx")
        return getattr(int, name)(self, *others)
    return compute


for _name in ("pos neg abs bool float int index add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow eq ne "
              "lt le gt ge").split():
    setattr(_Number, f"__{_name}__", _note_use(f"__{_name}__"))


class _TrainingStep(nn.Module):
    """A module's training step as a loss of a batch, times `scale`: Lightning divides an incomplete group of batches by the
    size of a complete one."""

    def __init__(self, module: LightningModule, arguments: tuple, is_scaled: bool):
        super().__init__()
        self.module = module
        self.__dict__["arguments"] = arguments
        self.__dict__["logged"] = _Log()  # tracing restores attributes, but not what these hold
        if is_scaled:
            self.register_buffer("scale", torch.ones(()))

    @contextlib.contextmanager
    def _noted(self) -> Iterator[dict[str, tuple[Any, dict]]]:
        """While entered, what the module logs is noted."""
        logged: dict[str, tuple[Any, dict]] = {}
        module = self.module

        def log(name: str, value: Any, *arguments: Any, **keywords: Any) -> None:
            logged[name] = (value, {**dict(zip(("prog_bar", "logger", "on_step", "on_epoch"), arguments)), **keywords})

        def log_dict(values: Mapping[str, Any], *arguments: Any, **keywords: Any) -> None:
            for name, value in values.items():
                log(name, value, *arguments, **keywords)
        counters, properties = self.__dict__["logged"].counters, {name: vars(LightningModule)[name] for name in _COUNTERS}

        def note(name: str) -> property:
            def read(other: LightningModule) -> int:
                if other is module:
                    counters.add(name)
                return properties[name].fget(other)
            return property(read)
        module.__dict__.update(log=log, log_dict=log_dict)
        for name in _COUNTERS:
            setattr(LightningModule, name, note(name))
        try:
            yield logged
        finally:
            del module.__dict__["log"], module.__dict__["log_dict"]
            for name, original in properties.items():
                setattr(LightningModule, name, original)

    def forward(self, batch: Any) -> torch.Tensor:
        counters = self.__dict__["logged"].counters
        arguments = [_Number.make(counters) if isinstance(value, int) else value for value in self.__dict__["arguments"]]
        with self._noted() as logged:
            loss = find_loss(self.module.training_step(batch, *arguments), "training_step")
        if self.training:
            self.__dict__["logged"].entries = {name: (value is loss, keywords) for name, (value, keywords) in logged.items()}
        return loss * self.scale if hasattr(self, "scale") else loss


class MemoptStrategy(HeldStep, SingleDeviceStrategy):
    """Options are keywords of `memopt.compile`. Without `shapes` or `new_shapes` among them a program is compiled for each
    shape that comes; a smaller last batch is padded where that changes nothing."""

    strategy_name = "memopt"

    def __init__(self, **options: Any):
        super().__init__(device="cpu")
        self._options = {"ragged": "pad", **({} if "shapes" in options else {"new_shapes": "compile"}), **options}
        self._hold()

    # ------------------------------------------------------------------------------------------------------
    # The step
    # ------------------------------------------------------------------------------------------------------

    def _check(self, trainer: Trainer, module: LightningModule) -> None:
        if find_rank()[1] > 1:
            raise BadInput("MemoptStrategy trains in one process; on ranks write the loop yourself, with memopt.compile")
        if not module.automatic_optimization:
            raise BadInput("the module has automatic_optimization=False, and its training_step updates by itself: there compile "
                           "steps by memopt.compile or memopt.compile_steps and call them")
        if len(self.optimizers) != 1:
            raise BadInput(f"the module has {len(self.optimizers)} optimizers, a compiled step has one")
        for owner, kind, hooks in ((module, LightningModule, _HOOKS), *((callback, callbacks.Callback, _EVENTS) for callback in trainer.callbacks)):
            for hook in hooks:
                if is_overridden(hook, owner, kind):
                    raise BadInput(f"{type(owner).__name__}.{hook} would find no gradients: backward, clipping and update are one step")
        self._check_trainer(trainer)
        for name, reason in _CALLBACKS.items():
            kind = getattr(callbacks, name, None)  # newer versions of Lightning have more
            if kind is not None and any(isinstance(callback, kind) for callback in trainer.callbacks):
                raise BadInput(f"the callback {name} {reason}")
        if trainer.precision not in _PRECISIONS:
            raise BadInput(f"precision={trainer.precision!r}: a compiled step has {', '.join(map(repr, _PRECISIONS))}")
        if trainer.gradient_clip_val and str(trainer.gradient_clip_algorithm or "norm").rpartition(".")[2].lower() != "norm":
            raise BadInput(f"gradient_clip_algorithm={trainer.gradient_clip_algorithm!r}: a compiled step clips by the norm")

    def _check_trainer(self, trainer: Trainer) -> None:
        """Arguments that Lightning leaves to strategies, or to a backward pass."""
        connector = trainer._accelerator_connector
        for name, given in (("devices", connector._devices_flag), ("num_nodes", connector._num_nodes_flag)):
            count = len(given) if isinstance(given, (list, tuple)) else given
            if str(count).isdigit() and int(count) > 1:
                raise BadInput(f"{name}={given!r}: MemoptStrategy trains in one process; on ranks write the loop yourself, with memopt.compile")
        if trainer._detect_anomaly:
            raise BadInput("detect_anomaly=True watches a backward pass in PyTorch; a compiled step raises LossNotFinite by itself, and names "
                           "the first operation that is not finite")

    def on_train_start(self) -> None:
        self._check(self.lightning_module.trainer, self.lightning_module)
        super().on_train_start()

    def _compile(self, trainer: Trainer, batch: Any, arguments: tuple) -> Step:
        module = self.lightning_module
        self._count = trainer.accumulate_grad_batches
        options: dict[str, Any] = {"max_grad_norm": trainer.gradient_clip_val or None, "precision": _PRECISIONS[trainer.precision],
                                   "accumulative_counts": self._count if self._count > 1 else None}
        own = _TrainingStep(module, arguments, self._count > 1)
        own.train()
        step = compile(own, None, {"batch": batch}, optimizer=self.optimizers[0], **{**options, **self._options})
        entries = own.__dict__["logged"].entries
        self._logged = [(name, keywords) for name, (is_loss, keywords) in entries.items() if is_loss]
        for name in (name for name, (is_loss, _) in entries.items() if not is_loss):
            rank_zero_warn(f"training_step logs '{name}', which a compiled step does not compute; only what is the loss itself is "
                           "logged. Log it in validation_step")
        for name in sorted(own.__dict__["logged"].counters):
            rank_zero_warn(f"training_step reads {name}, and the compiled step has it built in as it is at the first update. If the loss "
                           "depends on it, register a buffer and write it in on_train_batch_start", category=NumbersWarning)
        return step

    def training_step(self, batch: Any, *arguments: Any, **keywords: Any) -> torch.Tensor:
        """The loss of the update with its last batch, and 0 with those before."""
        trainer = self.lightning_module.trainer
        self._pending.append(batch)
        if trainer.fit_loop._should_accumulate():
            return torch.zeros(())
        batches = self._take_pending()
        if self.step is None:
            self.step = self._compile(trainer, batch, arguments)
        if trainer.accumulate_grad_batches != self._count:
            raise BadInput(f"accumulate_grad_batches has become {trainer.accumulate_grad_batches}, the step was compiled for {self._count}")
        scale = len(batches) / self._count
        if self._count > 1:
            self.step.buffers["scale"] = scale
        loss = torch.tensor(self.step(*({"batch": each} for each in batches)) / scale)
        self._is_behind = True
        if trainer.is_last_batch:  # callbacks look at weights between epochs
            self.sync()
        for name, more in self._logged:
            self.lightning_module.log(name, loss, **more)
        return loss

    def backward(self, closure_loss: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
        return closure_loss  # the step has done that

    def evaluate(self, batch: Any) -> float:
        """The loss of `training_step` in evaluation mode, by a program over the step's own parameters."""
        if self.step is None:
            raise BadInput("there is no step yet: it is compiled with the first batch that trains")
        if self._count > 1:
            self.step.buffers["scale"] = 1.0
        return self.step.evaluate({"batch": batch})

    # ------------------------------------------------------------------------------------------------------
    # Where weights and state are wanted
    # ------------------------------------------------------------------------------------------------------

    def validation_step(self, *arguments: Any, **keywords: Any) -> Any:
        self.sync()
        return super().validation_step(*arguments, **keywords)

    def test_step(self, *arguments: Any, **keywords: Any) -> Any:
        self.sync()
        return super().test_step(*arguments, **keywords)

    def predict_step(self, *arguments: Any, **keywords: Any) -> Any:
        self.sync()
        return super().predict_step(*arguments, **keywords)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        self.sync()
        return super().lightning_module_state_dict()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        self.sync()
        return super().optimizer_state(optimizer)

    def on_train_end(self) -> None:
        self._end()
        super().on_train_end()

    def teardown(self) -> None:
        self._end()
        super().teardown()
