# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State of a step in PyTorch's forms and in checkpoints, and back."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..checkpoints import find_own_counts_of
from ..errors import BadInput
from ..optimizers import UNEVEN, as_complex, number_parameters, read_optimizer_state, read_tensor, write_optimizer_state, write_tensor
from .workspace import State

__all__ = ["StepState", "is_of_model", "write_model"]


def is_of_model(variable: Mapping) -> bool:
    return variable["role"] in ("parameter", "buffer")


def write_model(session: State, tensors: Mapping[str, torch.Tensor]) -> None:
    """Gives parameters and buffers of a session their values, by any of their names."""
    for variable in filter(is_of_model, session.manifest["variables"]):
        found = [tensors[name] for name in variable["names"] if name in tensors]
        if found and variable.get("restore") != "never":
            write_tensor(session, variable, found[0])


class StepState:
    """The part of a `memopt.Step` that reads and writes its state."""

    def reload(self) -> None:
        """Takes parameters, buffers and the optimizer's state from model and optimizer, as `compile` does."""
        self._session.session.initialize()
        self._take_over()

    def _take_over(self) -> None:
        self._note_same()
        write_model(self._session, self._prepared.get_shared_tensors())
        write_optimizer_state(self._prepared.options, self._session, self.optimizer.state)
        self._begin_average()

    def _note_same(self) -> None:
        """Model and optimizer have what the step has."""
        self._note_same_model()
        self._state.mark()

    def _note_same_model(self) -> None:
        self._read_alone.mark()
        self._trained.mark()
        self._model_changes = self._session.changes

    def _begin_average(self) -> None:
        """Before its first update it is the model."""
        if self._averages:
            self._averages.write(self._prepared.get_shared_tensors(), 0)
        if self._buffer_averages:
            self._buffer_averages.begin()

    def _read_variables(self, encoded: bool = True) -> Iterator[tuple[list[str], torch.Tensor]]:
        """The step's parameters and buffers, by their names; constants are as they were. What is frozen in codes comes
        widened, or is left out."""
        for variable in filter(is_of_model, self._session.manifest["variables"]):
            if variable.get("restore") != "never" and (encoded or "encoding" not in variable):
                yield variable["names"], read_tensor(self._session.read_variable, variable)

    def _read_model(self) -> dict[str, torch.Tensor]:
        """All tensors of the model with the step's values, by all of their names in the module."""
        tensors = self._prepared.get_shared_tensors()
        values = {id(tensors[name]): value for names, value in self._read_variables() for name in names if name in tensors}
        return {name: as_complex(values.get(id(tensor), tensor.detach()), tensor)
                for name, tensor in self._prepared.get_tensors().items()}

    def _read_optimizer(self) -> dict[nn.Parameter, dict[str, Any]]:
        """The optimizer's state in PyTorch's form, that of what is frozen for now included."""
        return {**self._list_parked(), **read_optimizer_state(self._prepared.options, self._session)}

    def sync(self, optimizer: bool = True) -> None:
        """Puts parameters, buffers and, unless told otherwise, the optimizer's state back into model and optimizer.

        Parameters that `frozen_weights` keeps in few bits are left as the model has them.
        """
        self._take_written()
        state = self._read_optimizer() if optimizer else {}
        tensors = self._prepared.get_shared_tensors()
        with torch.no_grad():
            for names, value in self._read_variables(encoded=False):
                for tensor in [tensors[name] for name in names if name in tensors][:1]:
                    tensor.copy_(as_complex(value, tensor).reshape(tensor.shape))
        for parameter, entry in state.items():
            self.optimizer.state[parameter] = entry
        if optimizer:
            self._note_same()
        else:
            self._note_same_model()

    def state_dict(self) -> dict[str, Any]:
        """Copies of all state, in PyTorch's forms: {"model": …, "optimizer": …, "step": N}.

        "model" goes into `model.load_state_dict`, "optimizer" into `optimizer.load_state_dict`. What a loss module has, or
        what model and loss capture and the step changes, is in "loss".
        """
        self._take_written()
        values = self._read_model()
        model = {name: values[f"net.{name}"].clone() if torch.is_tensor(value) else value
                 for name, value in self.model.state_dict().items()}
        optimizer = self.optimizer.state_dict()
        state = self._read_optimizer()
        optimizer["state"] = {index: state[parameter] for index, parameter in number_parameters(self.optimizer) if parameter in state}
        loss = {name: values[inner].clone() for name, inner in self._prepared.list_loss_names().items()}
        return {"model": model, "optimizer": optimizer, "step": self.steps, **({"loss": loss} if loss else {}),
                **self._read_average(model)}

    def _read_average(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """The model with averages in the place of weights, by its names, and their count; nothing without an average."""
        if not self._averages:
            return {}
        tensors, averages = self._prepared.get_shared_tensors(), self._averages.read()
        if self._buffer_averages:
            averages = {**averages, **self._buffer_averages.values}
        values, tensors = {id(tensors[name]): value for name, value in averages.items()}, self._prepared.get_tensors()
        state = {name: values.get(id(tensors.get(f"net.{name}")), value) for name, value in model.items()}
        return {"average": {name: value.clone() if torch.is_tensor(value) else value for name, value in state.items()},
                "average_updates": self._averages.updates}

    def _write_average(self, state: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        """A state without an average begins one with the model that it has."""
        if not self._averages:
            return
        given = {**tensors, **{f"net.{name}": value for name, value in state.get("average", {}).items()}}
        own = self._prepared.get_shared_tensors()
        values = {id(tensor): given[name] for name, tensor in self._prepared.get_tensors().items() if name in given}
        self._averages.write({name: values.get(id(own[name]), own[name]) for name in self._averages.names}, state.get("average_updates", 0))
        if self._buffer_averages:
            self._buffer_averages.begin({name: values[id(tensor)] for name, tensor in own.items() if id(tensor) in values})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a `state_dict`, which changes neither model nor optimizer."""
        entries = {parameter: state["optimizer"]["state"][index] for index, parameter in number_parameters(self.optimizer)
                   if index in state["optimizer"]["state"]}
        if entries:
            self._adapt_counts(entries)
        names, called = self._prepared.list_loss_names(), self._prepared.called
        own = {f"net.{name}": value for name, value in state["model"].items()}
        own.update((names[name], value) for name, value in state.get("loss", {}).items() if name in names)
        lacking = [name for name, inner in names.items() if inner not in own]
        if lacking:
            raise BadInput(f"the state has no '{lacking[0]}' of the loss")
        tensors = {called.get(name, name): value for name, value in own.items()}
        for variable in filter(is_of_model, self._session.manifest["variables"]):
            if variable.get("restore") is None and not tensors.keys() & set(variable["names"]) and any(name.startswith("net.") for name in variable["names"]):
                raise BadInput(f"the state has no '{variable['names'][0].removeprefix('net.')}'")
        # Codes of values that codes gave may differ by a last bit of their scales: the same ones stay.
        for names, value in self._read_variables():
            if all(name not in tensors or torch.equal(tensors[name], value) for name in names):
                tensors = {name: tensor for name, tensor in tensors.items() if name not in names}
        write_model(self._session, tensors)
        write_optimizer_state(self._prepared.options, self._session, entries, state["step"])
        trained = set(self._prepared.options.trained)
        self._parked = {parameter: entries.get(parameter, {}) for _, parameter in number_parameters(self.optimizer) if parameter not in trained}
        self._write_average(state, own)
        self._session.note_change()

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes a checkpoint of memopt-run's, whole whatever happens meanwhile."""
        self._check_folder()
        self._take_written()
        if not self._last.inputs.are_written():
            self._last.inputs.write()  # the rates are part of the checkpoint
        with self._prepared.archive.words.spoken():
            self._session.save(folder)

    def load(self, folder: str | pathlib.Path) -> None:
        """Goes on from a checkpoint, of `save` or memopt-run's. Rates stay the optimizer's."""
        self._check_folder()
        options = self._prepared.options
        stateful = {variable.get("of") for variable in self._session.manifest["variables"] if variable["role"] == "optimizer_state"}
        trained = {options.parameters[name] for name in stateful if name in options.parameters}
        own = find_own_counts_of(folder, {name: parameter for name, parameter in options.parameters.items() if parameter in trained})
        if not own <= options.own_counts:
            self._compile_again(UNEVEN, own)
        with self._prepared.archive.words.spoken():
            self._session.load(folder)
        for program in self._programs:
            program.inputs.forget()

    def _check_folder(self) -> None:
        if self._buffer_averages:
            raise BadInput("a checkpoint folder has no averages of buffers (ema_use_buffers=True); keep step.state_dict() by torch.save")
