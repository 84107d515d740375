# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules and parameters that model and loss read without having them: a projection head or a learned temperature in the
closure of a loss function, say. They become part of the step, as modules of its wrapper.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .. import export
from ..errors import BadInput
from ..watching.reads import Place
from ..watching.step_reads import find_reads

__all__ = ["CapturingStep", "check_all_held", "wrap"]


class _Captured(nn.Module):
    """What is captured, by the names that it is captured under."""

    def __init__(self, known: nn.Module, places: Sequence[tuple[Place, object]]):
        super().__init__()
        # Kept from nn.Module, which would take the model for a part of this one.
        self.__dict__["_owners"] = {}
        self.__dict__["_places"] = []
        self._know(known)
        for place, value in places:
            if isinstance(value, nn.Module):
                self._add_module(place, value)
        for place, value in places:
            if isinstance(value, nn.Parameter):
                self._add_parameter(place, value)

    def _choose_name(self, place: Place) -> str:
        name = place.path.removeprefix("self.") if place.path != "self" else "captured"
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in name.split(".")[-1]).strip("_") or "captured"
        while hasattr(self, name):
            name += "_"
        return name

    def _add_module(self, place: Place, module: nn.Module) -> None:
        is_new = any(tensor not in self._owners for tensor in module.parameters()) or next(module.buffers(), None) is not None
        if module in self._owners or not is_new:
            return
        if not any(inner in self._owners for inner in module.modules()):
            self.add_module(self._choose_name(place), module)
            self._know(module)
            return
        # It has the model: its other parts are captured.
        for name, inner in module.named_children():
            self._add_module(Place(name, module._modules, name), inner)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                self._add_parameter(Place(name, module._parameters, name), parameter)

    def _add_parameter(self, place: Place, parameter: nn.Parameter) -> None:
        if parameter not in self._owners:
            name = self._choose_name(place)
            self.register_parameter(name, parameter)
            self._owners[parameter] = (self, name)
        self._places.append((place, *self._owners[parameter]))

    def _know(self, module: nn.Module) -> None:
        """Its parts need not be captured any more."""
        for inner in module.modules():
            self._owners.setdefault(inner, None)
            for name, parameter in inner._parameters.items():
                if parameter is not None:
                    self._owners.setdefault(parameter, (inner, name))

    @contextlib.contextmanager
    def placed(self) -> Iterator[None]:
        """While entered, the places of captured parameters hold those that this module has now, as tracing changes them."""
        before = [(place, place.get()) for place, *_ in self._places]
        for place, owner, name in self._places:
            place.set(getattr(owner, name))
        try:
            yield
        finally:
            for place, value in before:
                place.set(value)


class CapturingStep(export.TrainingStep):
    """A training step with what model and loss capture, behind `captured.`."""

    def __init__(self, *arguments, captured: _Captured, **keywords):
        super().__init__(*arguments, **keywords)
        self.captured = captured

    def forward(self, **batch: torch.Tensor):
        with self.captured.placed():
            return super().forward(**batch)

    def train(self, mode: bool = True):
        """Modules that are captured stay in evaluation mode if they are."""
        kept = [module for module in self.captured.modules() if not module.training]
        super().train(mode)
        for module in kept:
            module.training = False
        return self


def wrap(net: nn.Module, loss: Callable | None, targets: Sequence[str], *arguments: Any,
         captured: nn.Module | None = None) -> export.TrainingStep:
    """The `TrainingStep` of these arguments, with what model and loss capture; `captured` is what was found before."""
    plain = export.TrainingStep(net, loss, targets, *arguments)
    if captured is None:
        captured = _Captured(plain, list(find_reads(plain).list_places()))
    if not captured._modules and not captured._places:
        return plain
    return CapturingStep(net, loss, targets, *arguments, captured=captured)


def check_all_held(step: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Refuses parameters that the optimizer has and the step has not: a plain loop would train them."""
    held = set(step.parameters())
    found = []
    for number, group in enumerate(optimizer.param_groups):
        names = group.get("param_names") or [f"number {i} of group {number}, of shape {list(parameter.shape)}"
                                             for i, parameter in enumerate(group["params"])]
        found += [name for name, parameter in zip(names, group["params"]) if parameter not in held]
    if found:
        more = f" and {len(found) - 3} others" if len(found) > 3 else ""
        raise BadInput(f"the optimizer has parameters that neither the model nor the loss has: {'; '.join(found[:3])}{more}. Make "
                       "them a part of the model or of a loss module, or give the optimizer what this step trains alone")
