# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a loop gives to a compiled step besides batches: the numbers of the optimizer's groups, and buffers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from ..errors import BadInput
from ..optimizers import OptimizerOptions, read_tensor
from ..runtime import Session
from ..watching.reads import is_fixed
from ..watching.watch import Backoff, Watch

__all__ = ["Buffers", "OptimizerInputs", "OptimizerState"]


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
        self._watch, self._looks = Watch(), Backoff()
        self.rates: list[float] = []  #: of the last step, by group

    def are_written(self) -> bool:
        """Whether the session has the numbers that the groups have now."""
        if self._has_tensors:
            return False
        if self._watch.holds():
            return True
        values = list(map(self._options.read_settings, self._options.optimizer.param_groups))
        if values != self._written:
            return False
        if self._looks.is_due():
            self._watch = self._look(values)
        return True

    def _look(self, values: Sequence[tuple]) -> Watch:
        """At the groups' numbers, which are those that were written."""
        watch, optimizer = Watch(), self._options.optimizer
        groups = optimizer.param_groups
        has_groups = watch.add_entry(vars(optimizer), "param_groups", groups) and watch.add_items(groups)
        if has_groups and all(is_fixed(value) and watch.add_entry(group, key, value) for group, own in zip(groups, values)
               for key, value in zip(self._options.setting_keys, own)):
            watch.finish()
        return watch

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
        self._watch = Watch()
        # Lists may change in place.
        self._written = [tuple(tuple(value) if isinstance(value, list) else value for value in group) for group in values]
        self.rates = [float(group[0]) for group in values]


class OptimizerState:
    """Whether `optimizer.state` is what it was: the same tensors of the same parameters. What is written to these is told by
    `was_written` alone."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self._optimizer = optimizer
        self.mark()

    is_all = True  #: The watch sees all that `hold` does.

    def mark(self) -> None:
        """What there is now is known."""
        self._known, self._versions = self._list(), self._list_versions()
        self.watch, self._looks = Watch(), Backoff()

    def was_written(self) -> bool:
        return self._list_versions() != self._versions

    def _list_versions(self) -> list[int]:
        return [value._version for entry in self._optimizer.state.values() for value in entry.values() if torch.is_tensor(value)]

    def _list(self) -> list[tuple]:
        return [(parameter, [*entry.items()]) for parameter, entry in self._optimizer.state.items()]

    def hold(self) -> bool:
        if self.watch.holds():
            return True
        now = self._list()
        if len(now) != len(self._known) or not all(map(_is_same_entry, now, self._known)):
            return False
        if self._looks.is_due():
            watch, state = Watch(), self._optimizer.state
            if watch.add_entry(vars(self._optimizer), "state", state) and all(map(watch.add_version_of, (state, *state.values()))):
                watch.finish()
                self.watch = watch
        return True


def _is_same_entry(now: tuple, before: tuple) -> bool:
    (parameter, values), (known, old) = now, before
    return (parameter is known and len(values) == len(old)
            and all(key == other and value is last for (key, value), (other, last) in zip(values, old)))


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
