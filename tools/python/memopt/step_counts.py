# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many updates each parameter has had.

A program numbers updates as the run's steps, which is right for parameters that were in each. Those that joined later, or
were left out for a time, have a count of their own, which is state of the program as PyTorch's `step` is state of the
optimizer.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch

__all__ = ["OWN_COUNT", "count_updates", "find_own_counts", "get_shared_count", "read_own_counts", "set_shared_count", "share_count"]

#: The slot of a count of its own.
OWN_COUNT = "step"
_SKIPPED = "loss_scale.skipped_steps"
_NAME = f"optimizer.{OWN_COUNT}."

Counts = Mapping[torch.nn.Parameter, int]


def _count(entry: Mapping[str, Any]) -> int:
    """Where none is counted, state means that there was an update."""
    return int(entry["step"]) if "step" in entry else int(any(value is not None for value in entry.values()))


def count_updates(state: Mapping[torch.nn.Parameter, Mapping[str, Any]],
                  parameters: Iterable[torch.nn.Parameter]) -> dict[torch.nn.Parameter, int]:
    """By `optimizer.state`."""
    return {parameter: _count(state.get(parameter, {})) for parameter in parameters}


def share_count(counts: Counts) -> int:
    """The one that a program has for all parameters without a count of their own."""
    return max(counts.values(), default=0)


def find_own_counts(counts: Counts, shared: int | None = None) -> frozenset[torch.nn.Parameter]:
    """The parameters that need a count of their own."""
    shared = share_count(counts) if shared is None else shared
    return frozenset(parameter for parameter, count in counts.items() if count != shared)


# ----------------------------------------------------------------------------------------------------------
# Of a session
# ----------------------------------------------------------------------------------------------------------

def _find_skipped(session: Any) -> Mapping | None:
    return next((variable for variable in session.manifest["variables"] if variable["name"] == _SKIPPED), None)


def get_shared_count(session: Any) -> int:
    """Steps without those that were left out as gradients overflowed."""
    skipped = torch.zeros((), dtype=torch.int64)
    if _find_skipped(session):
        session.read_variable(_SKIPPED, skipped.data_ptr())
    return session.step - int(skipped)


def set_shared_count(session: Any, count: int, step: int | None = None, is_counted: bool = True) -> None:
    """Behind `step`, if that is known: the steps between were left out, or the optimizer's state counts none (`is_counted`)."""
    skipped = _find_skipped(session)
    if step is None or (is_counted and not skipped):
        step = count
    session.step = max(step, count)
    if skipped:
        session.write(_SKIPPED, torch.tensor(session.step - count))


# ----------------------------------------------------------------------------------------------------------
# Of a checkpoint
# ----------------------------------------------------------------------------------------------------------

def read_own_counts(path: str | pathlib.Path, steps: int, parameters: Mapping[str, torch.nn.Parameter]) -> dict[torch.nn.Parameter, int]:
    """Those in the file with an optimizer's state that are not the run's, where `steps` were made; `parameters` are by their
    names in a program."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()

        def read(name: str) -> int:
            file.seek(start + header[name]["data_offsets"][0])
            return int.from_bytes(file.read(8), "little")
        shared = steps - (read(_SKIPPED) if _SKIPPED in header else 0)
        counts = {name.removeprefix(_NAME): read(name) for name in header if name.startswith(_NAME)}
    found = {name: next((own for own in (name, f"net.{name}") if own in parameters), None) for name in counts}
    return {parameters[own]: counts[name] for name, own in found.items() if own is not None and counts[name] != shared}
