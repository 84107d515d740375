# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a loop gives to a compiled step besides batches: the numbers of the optimizer's groups, and buffers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

from .errors import BadInput
from .optimizers import OptimizerOptions, read_tensor
from .runtime import Session

__all__ = ["Buffers", "OptimizerInputs"]


class OptimizerInputs:
    """Writes learning rates, momenta, betas and weight decays of the groups into a session, where they have changed."""

    def __init__(self, options: OptimizerOptions, session: Session):
        self._options, self._session = options, session
        self._variables = options.list_inputs(session.manifest)
        self.forget()

    def forget(self) -> None:
        """The session may have other numbers than those that were written."""
        self._written: list[tuple] = []
        self._has_tensors = False  # which may have another value without being another
        self.rates: list[float] = []  #: of the last step, by group

    def are_written(self) -> bool:
        """Whether the session has the numbers that the groups have now."""
        return not self._has_tensors and list(map(self._options.read_settings, self._options.optimizer.param_groups)) == self._written

    def find_refusal(self) -> str | None:
        """A number that cannot take effect in this program, as a sentence."""
        for number, group in enumerate(self._options.optimizer.param_groups):
            for key, value in zip(self._options.input_keys, self._options.read_settings(group)):
                if (found := self._options.check_input(number, key, value)) is not None:
                    return found
        return None

    def write(self) -> None:
        """Gives the session the numbers of the groups."""
        values = list(map(self._options.read_settings, self._options.optimizer.param_groups))
        old = self._written if not self._has_tensors and self._written else [(None,) * len(group) for group in values]
        for variables, group, before in zip(self._variables, values, old):
            for names, value, known in zip(variables, group, before):
                if value is not known:
                    for name, part in zip(names, value if isinstance(value, (tuple, list)) else (value,)):
                        self._session.set_rate(name, float(part))
        self._has_tensors = any(torch.is_tensor(part) for group in values for value in group
                                for part in (value if isinstance(value, (tuple, list)) else (value,)))
        # Lists may change in place.
        self._written = [tuple(tuple(value) if isinstance(value, list) else value for value in group) for group in values]
        self.rates = [float(group[0]) for group in values]


class Buffers(MutableMapping):
    """The buffers that a step reads, by the model's names; those of a loss module behind `loss.`.

    Reading gives a copy. Writing a number or a tensor changes this buffer alone, from the next step on.
    """

    def __init__(self, session: Session, names: Mapping[str, str], changed: Callable[[str, torch.Tensor], None]):
        self._session, self._names, self._changed = session, names, changed
        self._variables = {variable["name"]: variable for variable in session.manifest["variables"]}

    def _find(self, name: str) -> Mapping:
        if name not in self._names:
            there = ", ".join(f"'{other}'" for other in self._names) or "none"
            raise BadInput(f"the step reads no buffer '{name}'; its buffers: {there}")
        return self._variables[self._names[name]]

    def __getitem__(self, name: str) -> torch.Tensor:
        return read_tensor(self._session.read_variable, self._find(name))

    def __setitem__(self, name: str, value: Any) -> None:
        variable = self._find(name)
        tensor = torch.as_tensor(value)
        if tensor.dim() and list(tensor.shape) != variable["shape"]:
            raise BadInput(f"buffer '{name}' has the shape {variable['shape']}, found {list(tensor.shape)}")
        self._changed(variable["name"], tensor.detach().expand(variable["shape"]).contiguous())

    def __delitem__(self, name: str) -> None:
        raise BadInput("a step keeps its buffers")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
