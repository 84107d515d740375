# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The average of a step's weights, which the optimizer keeps as state (`ema_decay=`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .optimizers import read_tensor, write_tensor
from .workspace import State

__all__ = ["Averages"]


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
