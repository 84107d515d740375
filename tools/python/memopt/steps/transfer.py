# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The state of a step in another program of the same model, compiled as things are now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from ..optimizers import OptimizerOptions, check_lack, find_slots, read_optimizer_state, read_tensor, write_tensor
from ..runtime import Session
from ..step_counts import count_updates, find_own_counts, get_shared_count

__all__ = ["find_moved_counts", "move_state"]

_PASSING = ("hyperparameter", "gradient", "index_fault", "frozen_scale")


def _list_state(session: Session) -> dict[str, Mapping]:
    return {variable["name"]: variable for variable in session.manifest["variables"]
            if variable["role"] not in _PASSING and variable.get("restore") != "never"}


def _find_key(variable: Mapping, options: OptimizerOptions) -> Any:
    """What a variable is of: the same parameter may have another name now, and another one the name."""
    name = variable.get("of", variable["name"])
    parameter = next((options.parameters[own] for own in (name, *variable.get("names", ())) if own in options.parameters), None)
    return (variable["name"].replace(name, "", 1), id(parameter)) if parameter is not None else variable["name"]


def _count_updates(options: OptimizerOptions, session: Session, parameters: Collection[torch.nn.Parameter],
                   parked: Mapping[torch.nn.Parameter, Mapping[str, Any]]) -> dict[torch.nn.Parameter, int]:
    """By a session, and for what it does not train by the state that is kept of that."""
    trained, shared = set(options.trained), get_shared_count(session)
    counts = {parameter: shared if parameter in trained else count for parameter, count in count_updates(parked, parameters).items()}
    for parameter, keys in find_slots(options, session).items():
        if "step" in keys and parameter in counts:
            counts[parameter] = int(read_tensor(session.read_variable, keys["step"]))
    return counts


def find_moved_counts(options: OptimizerOptions, session: Session,
                      parked: Mapping[torch.nn.Parameter, Mapping[str, Any]]) -> frozenset[torch.nn.Parameter]:
    """The parameters that need a count of their own when the state of a session moves to a program that is compiled now."""
    if not options.counts_updates:
        return frozenset()
    trained = [parameter for group in options.optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]
    return find_own_counts(_count_updates(options, session, trained, parked), get_shared_count(session))


def _enter(options: OptimizerOptions, session: Session, entering: set[str], counts: Mapping[torch.nn.Parameter, int],
           parked: Mapping[torch.nn.Parameter, Mapping[str, Any]]) -> None:
    """State that the program before did not have: that of what was frozen, or of nothing, and counts of their own."""
    for parameter, keys in find_slots(options, session).items():
        entry = parked.get(parameter, {})
        for key, variable in keys.items():
            if variable["name"] not in entering:
                continue
            if key == "step":
                write_tensor(session, variable, torch.tensor(counts[parameter]))
            elif entry.get(key) is not None:
                write_tensor(session, variable, entry[key])
            else:
                check_lack(options, parameter, key, counts[parameter])


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
    trained = set(options.trained)
    if entering:
        _enter(options, new, entering, _count_updates(old_options, old, trained, kept), kept)
    new.step = old.step
    return {parameter: entry for parameter, entry in kept.items() if parameter not in trained}
