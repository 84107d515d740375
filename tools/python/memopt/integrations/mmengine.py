# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MMEngine's Runner with a compiled step.

    from memopt.integrations.mmengine import MemoptRunner

    runner = MemoptRunner.from_cfg(cfg)          # or runner_type = "MemoptRunner" in the configuration
    runner.train()

Loops, hooks, schedules and checkpoints are MMEngine's; `model.train_step` is the compiled step. What the configuration says
is translated: `optim_wrapper` with its `accumulative_counts`, `clip_grad` and `paramwise_cfg`, `activation_checkpointing`,
`efficient_conv_bn_eval`; `memopt = dict(device_memory="2GiB")` has keywords of `memopt.compile`. The model's parameters are
behind until they are wanted: in checkpoints, in validation, and at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.hooks import EMAHook
from mmengine.model import BaseModel, is_model_wrapper
from mmengine.optim import OptimWrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import nn

from ..errors import BadInput
from ..runtime import find_rank
from ..step import Step, compile
from .held import HeldStep

__all__ = ["MemoptRunner"]

#: Keys of the configuration that train_step would obey, and that become options of the step.
_WORDS = ("activation_checkpointing", "efficient_conv_bn_eval")
#: When hooks look at weights.
_LOOKS = {"before_val", "before_test", "before_val_epoch", "before_save_checkpoint", "after_train_epoch", "after_train", "after_run"}


class _Losses(nn.Module):
    """A model of MMEngine as the loss of its data, which its preprocessor has made."""

    def __init__(self, model: BaseModel):
        super().__init__()
        self.model = model

    def forward(self, data: Any) -> torch.Tensor:
        loss, _ = self.model.parse_losses(self.model._run_forward(data, mode="loss"))
        return loss


def _to_host(value: Any) -> Any:
    if torch.is_tensor(value):
        return value.cpu()
    if isinstance(value, Mapping):
        return {key: _to_host(part) for key, part in value.items()}
    return [_to_host(part) for part in value] if isinstance(value, (list, tuple)) else value


class _TrainStep(HeldStep):
    """What stands in the place of `model.train_step`."""

    def __init__(self, runner: MemoptRunner, model: BaseModel, wrapper: OptimWrapper, options: Mapping[str, Any]):
        self._runner, self._model, self._wrapper, self._options = runner, model, wrapper, options
        self._hold()

    def __call__(self, data: Any, optim_wrapper: OptimWrapper) -> dict[str, torch.Tensor]:
        """The loss of an update with its last batch; nothing with those before. Of several losses it is their sum."""
        self._pending.append({"data": _to_host(self._model.data_preprocessor(data, True))})
        optim_wrapper._inner_count += 1
        if not optim_wrapper.should_update():
            return {}
        batches = self._take_pending()
        if self.step is None:
            self.step = compile(_Losses(self._model).train(self._model.training), None, batches[0], optimizer=optim_wrapper.optimizer,
                                **self._options)
        loss = torch.tensor(self.step(*batches))
        self._is_behind = True
        if hasattr(optim_wrapper, "_global_step"):  # by which MMEngine's schedules see that it has stepped
            optim_wrapper._global_step += 1
        if self.step.gradient_norm is not None:
            optim_wrapper.message_hub.update_scalar("train/grad_norm", self.step.gradient_norm)
        return {"loss": loss}


@RUNNERS.register_module()
class MemoptRunner(Runner):
    """MMEngine's Runner, whose `model.train_step` is a compiled step."""

    _train_step: _TrainStep | None = None

    @property
    def step(self) -> Step | None:
        """The compiled step; None outside of `train`, and before its first update."""
        return self._train_step and self._train_step.step

    def _get_model(self) -> BaseModel:
        return self.model.module if is_model_wrapper(self.model) else self.model

    def _check(self) -> None:
        model, wrapper = self._get_model(), self.optim_wrapper
        if find_rank()[1] > 1:
            raise BadInput("MemoptRunner trains in one process; on ranks write the loop yourself, with memopt.compile")
        if type(model).train_step is not BaseModel.train_step:
            raise BadInput(f"{type(model).__name__}.train_step updates by itself; write that loop with memopt.compile_steps")
        if type(wrapper) is not OptimWrapper:
            raise BadInput(f"optim_wrapper of type {type(wrapper).__name__}: a compiled step has OptimWrapper; mixed precision is "
                           "memopt=dict(precision='bf16')")
        if self.cfg.get("compile"):
            raise BadInput("compile= in the configuration: the step is compiled by memopt; leave it out")
        if any(isinstance(hook, EMAHook) for hook in self.hooks):
            raise BadInput("EMAHook reads the model's weights after each step, which the step has; an average is "
                           "memopt=dict(ema_decay=0.999)")

    def _translate(self, words: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The configuration as options of memopt.compile."""
        wrapper, own = self.optim_wrapper, dict(self.cfg.get("memopt") or {})
        options: dict[str, Any] = {} if "shapes" in own else {"new_shapes": "compile"}
        if wrapper._accumulative_counts > 1:
            options["accumulative_counts"] = wrapper._accumulative_counts
        clip = dict(wrapper.clip_grad_kwargs or {})
        if clip:
            limit, kind = clip.pop("max_norm", None), clip.pop("norm_type", 2)
            if wrapper.grad_name != "grad_norm" or limit is None or kind != 2 or any(clip.values()):
                raise BadInput(f"clip_grad={dict(wrapper.clip_grad_kwargs)} of type {wrapper.grad_name.removeprefix('grad_')}: a compiled "
                               "step clips by the norm, clip_grad=dict(max_norm=X)")
            options["max_grad_norm"] = limit
        for name, modules in words.items():
            options[name] = [f"model.{module}" for module in ([modules] if isinstance(modules, str) else modules)]
        return {**options, "ragged": "pad", **own}

    # ------------------------------------------------------------------------------------------------------
    # What the Runner does otherwise
    # ------------------------------------------------------------------------------------------------------

    def train(self) -> nn.Module:
        # They would wrap the model's forward, which the step does by itself.
        self._words = {name: self.cfg[name] for name in _WORDS if self.cfg.get(name) is not None}
        for name in self._words:
            self.cfg[name] = None
        model = self._get_model()
        try:
            return super().train()
        finally:
            self.cfg.update(self._words)
            if self._train_step is not None:
                self._train_step._end()
                self._train_step = None
                del model.__dict__["train_step"]

    def _maybe_compile(self, target: str) -> None:
        """Called when model and optimizer are as they will train."""
        if target != "train_step":
            return super()._maybe_compile(target)
        self._check()
        self._train_step = _TrainStep(self, self._get_model(), self.optim_wrapper, self._translate(self._words))
        self._get_model().__dict__["train_step"] = self._train_step

    def call_hook(self, fn_name: str, **keywords: Any) -> None:
        if self._train_step is not None and fn_name in _LOOKS:
            self._train_step.sync()
        super().call_hook(fn_name, **keywords)

    def save_checkpoint(self, *arguments: Any, **keywords: Any) -> None:
        if self._train_step is not None:
            self._train_step.sync()
        super().save_checkpoint(*arguments, **keywords)
