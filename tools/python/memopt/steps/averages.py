# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The average of a step's weights, which the optimizer keeps as state (`ema_decay=`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch

from ..optimizers import read_tensor, write_tensor
from .workspace import State

__all__ = ["Averages", "BufferAverages"]


class Averages:
    """Averages of parameters in a session, by the parameters' names in the program."""

    def __init__(self, state: State):
        self._state = state
        own = {}
        for variable in state.manifest["variables"]:
            if variable["role"] == "optimizer_state" and variable.get("slot") in ("average", "average_updates"):
                own.setdefault(variable["of"], {})[variable["slot"]] = variable
        self._variables: dict[str, Mapping[str, Mapping]] = own

    def __bool__(self) -> bool:
        return bool(self._variables)

    @property
    def names(self) -> dict[str, str]:
        """By parameter, the variable that has its average."""
        return {name: slots["average"]["name"] for name, slots in self._variables.items()}

    @property
    def are_shared_out(self) -> bool:
        """Whether each rank has a part of them."""
        return any("whole_shape" in slots["average"] for slots in self._variables.values())

    @contextlib.contextmanager
    def in_place_of_weights(self) -> Iterator[None]:
        """While entered, parameters have their averages' values. On ranks that share averages out all enter it."""
        parameters = {variable["name"]: variable for variable in self._state.manifest["variables"] if variable["name"] in self._variables}
        weights = {name: read_tensor(self._state.read_variable, variable) for name, variable in parameters.items()}
        averages = self.read()
        try:
            for name, variable in parameters.items():
                write_tensor(self._state, variable, averages[name])
            yield
        finally:
            for name, variable in parameters.items():
                write_tensor(self._state, variable, weights[name])

    @property
    def updates(self) -> int:
        """How many values it holds."""
        counts = (slots["average_updates"] for slots in self._variables.values())
        return max((int(read_tensor(self._state.read_variable, count)) for count in counts), default=0)

    def read(self) -> dict[str, torch.Tensor]:
        return {name: read_tensor(self._state.read_variable, slots["average"]) for name, slots in self._variables.items()}

    def write(self, values: Mapping[str, torch.Tensor], updates: int) -> None:
        """Gives the averages of all parameters. Before the first update they are the parameters."""
        for name, slots in self._variables.items():
            write_tensor(self._state, slots["average"], values[name])
            write_tensor(self._state, slots["average_updates"], torch.tensor(float(updates), dtype=torch.float64))


class BufferAverages:
    """Averages of the buffers that steps write, beside those of the weights (`ema_use_buffers=True`). They are small, and are
    kept here. Whole numbers, such as counts of batches, are copied.
    """

    def __init__(self, state: State, averages: Averages, decay: float | None, warms_up: bool):
        """`decay` is None of a uniform average."""
        self._state, self._averages, self._decay, self._warms_up = state, averages, decay, warms_up
        self._variables = [variable for variable in state.manifest["variables"]
                           if variable["role"] == "buffer" and variable.get("restore") != "never"]
        self.values: dict[str, torch.Tensor] = {}
        self._updates = 0

    def _read(self) -> dict[str, torch.Tensor]:
        return {variable["name"]: read_tensor(self._state.read_variable, variable) for variable in self._variables}

    def begin(self, values: Mapping[str, torch.Tensor] | None = None) -> None:
        """With these averages, or with the buffers as they are."""
        self._updates = self._averages.updates
        own = self._read()
        self.values = {name: values[name].detach().to("cpu", value.dtype).reshape(value.shape).clone() if values and name in values else value
                       for name, value in own.items()}

    def update(self) -> None:
        """Behind a step, where that has moved the averages of the weights."""
        updates = self._averages.updates
        if updates == self._updates:
            return
        self._updates = updates
        decay = 1 - 1 / updates if self._decay is None else self._decay
        if self._warms_up:
            decay = min(decay, 1 - updates ** (-2 / 3))
        for name, value in self._read().items():
            is_copied = updates == 1 or not value.is_floating_point()
            self.values[name] = value if is_copied else self.values[name] * decay + value * (1 - decay)

    @contextlib.contextmanager
    def in_place_of_buffers(self) -> Iterator[None]:
        """While entered, buffers have their averages' values."""
        own = self._read()
        try:
            for variable in self._variables:
                write_tensor(self._state, variable, self.values[variable["name"]])
            yield
        finally:
            for variable in self._variables:
                write_tensor(self._state, variable, own[variable["name"]])
