# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The state of a step in another program of the same model, compiled as things are now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from ..errors import BadInput
from ..optimizers import OptimizerOptions, find_slots, read_optimizer_state, read_tensor, write_tensor
from ..runtime import Session

__all__ = ["move_state"]

_PASSING = ("hyperparameter", "gradient", "index_fault", "frozen_scale")


def _list_state(session: Session) -> dict[str, Mapping]:
    return {variable["name"]: variable for variable in session.manifest["variables"]
            if variable["role"] not in _PASSING and variable.get("restore") != "never"}


def _find_key(variable: Mapping, options: OptimizerOptions) -> Any:
    """What a variable is of: the same parameter may have another name now, and another one the name."""
    name = variable.get("of", variable["name"])
    parameter = next((options.parameters[own] for own in (name, *variable.get("names", ())) if own in options.parameters), None)
    return (variable["name"].replace(name, "", 1), id(parameter)) if parameter is not None else variable["name"]


def _begins_at_any_step(options: OptimizerOptions) -> bool:
    """Whether state that begins later than the rest needs no count of its own."""
    group, name = options.optimizer.param_groups[0], options.counterpart.name
    return (name in ("rmsprop", "adadelta") or name == "sgd" and group["dampening"] == 0
            or name == "adagrad" and group["lr_decay"] == 0)


def _enter(options: OptimizerOptions, session: Session, entering: set[str], steps: int,
           parked: Mapping[torch.nn.Parameter, Mapping[str, Any]]) -> None:
    """State that the program before did not have: that of what was frozen, or of nothing."""
    for parameter, keys in find_slots(options, session).items():
        if not any(variable["name"] in entering for variable in keys.values()):
            continue
        entry = parked.get(parameter, {})
        if steps and int(entry.get("step", 0)) != steps and not _begins_at_any_step(options):
            raise BadInput(f"'{options.names[parameter].partition('.')[2]}' has made {int(entry.get('step', 0))} steps of "
                           f"{type(options.optimizer).__name__}, the others {steps}, and a compiled step has one number for all: "
                           "begin with a new optimizer, and compile the step again")
        for key, variable in keys.items():
            if entry.get(key) is not None:
                write_tensor(session, variable, entry[key])


def move_state(old: Session, old_options: OptimizerOptions, new: Session, options: OptimizerOptions,
               parked: Mapping[torch.nn.Parameter, dict[str, Any]],
               constants: Collection[str]) -> dict[torch.nn.Parameter, dict[str, Any]]:
    """Gives `new`, which has first values, all that `old` has; `parked` is the optimizer's state of what `old` does not train.

    `constants` are those of `new`: they have the values of when it was traced.

    Returns the state of what `new` does not train, in PyTorch's form.
    """
    before = {_find_key(variable, old_options): variable for variable in _list_state(old).values()}
    after = {_find_key(variable, options): variable for name, variable in _list_state(new).items() if name not in constants}
    for name, variable in after.items():
        twin = before.get(name)
        # Codes are made of the model's values, which have been written.
        if twin and "encoding" not in variable and (twin["dtype"], twin["shape"]) == (variable["dtype"], variable["shape"]):
            write_tensor(new, variable, read_tensor(old.read_variable, twin))
    kept = dict(parked)
    if any(variable["role"] == "optimizer_state" and name not in after for name, variable in before.items()):
        kept.update(read_optimizer_state(old_options, old))
    entering = {variable["name"] for name, variable in after.items()
                if variable["role"] == "optimizer_state" and name not in before}
    if entering:
        _enter(options, new, entering, old.step, kept)
    new.step = old.step
    trained = {parameter for parameter in options.names if parameter.requires_grad} & set(options.held)
    return {parameter: entry for parameter, entry in kept.items() if parameter not in trained}
