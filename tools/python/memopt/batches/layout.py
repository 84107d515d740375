# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What loaders and collators give, as named inputs of a step."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from ..errors import BadInput

__all__ = ["BatchLayout", "explain_sizes"]


def _list_parts(value: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container by name; None for what is an array."""
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, (tuple, list)) and any(isinstance(part, (torch.Tensor, Mapping, tuple)) or hasattr(part, "__dlpack__")
                                                for part in value):
        return [(str(place), part) for place, part in enumerate(value)]
    return None


def _flatten(name: str, value: Any, into: dict[str, Any]) -> None:
    parts = _list_parts(value)
    if parts is None:
        into[name] = value
        return
    for key, part in parts:
        _flatten(re.sub(r"\W", "_", f"{name}_{key}"), part, into)


def _restore(name: str, example: Any, flat: Mapping[str, Any]) -> Any:
    """The container of the example's form with the flat entries."""
    parts = _list_parts(example)
    if parts is None:
        return flat[name]
    values = [(key, _restore(re.sub(r"\W", "_", f"{name}_{key}"), part, flat)) for key, part in parts]
    return dict(values) if isinstance(example, Mapping) else [value for _, value in values]


def _make_tensor(name: str, value: Any) -> torch.Tensor:
    try:
        return torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        advice = "leave it out" if value is None else "a batch holds arrays and numbers, also in mappings and tuples"
        raise BadInput(f"the batch's '{name}' is {type(value).__name__}, which is no array; {advice}") from error


class BatchLayout:
    """Names and order of a batch's entries, taken from an example.

    `targets` are those that go to the loss: of a tuple the last by default. `names` are the batch's own entries; an entry
    that is a mapping or a tuple itself is flat in the program, as `inputs` by the names `entry_key`.
    """

    def __init__(self, batch: Any, targets: Sequence[str] | None, has_loss: bool):
        self.names = self._name_entries(batch)
        self._example = dict(batch) if isinstance(batch, Mapping) else dict(zip(self.names, batch))
        flat = [name for entry in self.names for name in self._flatten_entry(entry, self._example[entry])]
        twice = [name for name in flat if flat.count(name) > 1]
        if twice:
            raise BadInput(f"two entries of the batch have the name '{twice[0]}', once it is flat; rename one")
        if isinstance(targets, str):
            targets = [targets]
        unknown = [name for name in targets or () if name not in self.names]
        if unknown:
            raise BadInput(f"the batch has no '{unknown[0]}', its entries are {', '.join(self.names)}")
        if has_loss and targets is None and isinstance(batch, Mapping):
            raise BadInput("targets has to name the entries of the batch that go to loss_fn, of " + ", ".join(self.names))
        if not has_loss and targets:
            raise BadInput("targets go to a loss_fn, and there is none")
        self.targets = tuple(targets if targets is not None else self.names[-1:] if has_loss else ())

    @staticmethod
    def _name_entries(batch: Any) -> tuple[str, ...]:
        if isinstance(batch, Mapping):
            wrong = [key for key in batch if not isinstance(key, str) or not key.isidentifier()]
            if wrong:
                raise BadInput(f"the batch's entry {wrong[0]!r} goes to the model by keyword, and that is no name; rename it")
            return tuple(batch)
        if not isinstance(batch, (tuple, list)):
            raise BadInput(f"a batch is a tuple or a mapping of arrays, found {type(batch).__name__}")
        inputs = len(batch) - 1
        return (*(("input",) if inputs == 1 else tuple(f"input{i}" for i in range(inputs))), "target")

    @staticmethod
    def _flatten_entry(name: str, value: Any) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        _flatten(name, value, flat)
        return flat

    @property
    def is_nested(self) -> bool:
        return any(_list_parts(value) is not None for value in self._example.values())

    def make_example(self, batch: Any) -> dict[str, torch.Tensor]:
        """The example's inputs as tensors on the host."""
        return {name: _make_tensor(name, value) for name, value in self.arrange(batch).items()}

    def restore(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The batch's entries, in the example's form, from the program's inputs."""
        return {name: _restore(name, self._example[name], inputs) for name in self.names}

    def list_inputs(self, entries: Collection[str]) -> list[str]:
        """The inputs that entries become."""
        return [name for entry in entries for name in self._flatten_entry(entry, self._example[entry])]

    def arrange(self, batch: Any, optional: Collection[str] = ()) -> dict[str, Any]:
        """The inputs by name. Raises `BadInput` unless the entries are the example's; `optional` ones may lack."""
        flat: dict[str, Any] = {}
        for name, value in self._arrange_entries(batch, optional).items():
            _flatten(name, value, flat)
        for name, value in flat.items():
            if isinstance(value, (bool, int, float, list, tuple)):
                flat[name] = _make_tensor(name, value)
        return flat

    def _arrange_entries(self, batch: Any, optional: Collection[str]) -> dict[str, Any]:
        if isinstance(batch, Mapping):
            entries = dict(batch)
        elif isinstance(batch, (tuple, list)):
            names = self.names if len(batch) == len(self.names) else [name for name in self.names if name not in optional]
            if len(batch) != len(names):
                raise BadInput(f"the batch has {len(batch)} entries, expected {len(self.names)}: {', '.join(self.names)}")
            entries = dict(zip(names, batch))
        elif len(self.names) - len(optional) == 1:
            entries = {name: batch for name in self.names if name not in optional}
        else:
            raise BadInput(f"a batch is a tuple or a mapping of arrays, found {type(batch).__name__}")
        missing = [name for name in self.names if name not in entries and name not in optional]
        extra = [name for name in entries if name not in self.names]
        if missing or extra:
            raise BadInput(f"the batch has {', '.join(map(str, entries))}, expected {', '.join(self.names)}")
        return entries


def explain_sizes(inputs: Sequence[Mapping], parts: int, batch: Mapping[str, Any], trains: bool) -> str | None:
    """What to say of a batch that has another number of samples than the program's inputs, in `parts` parts; None where
    that is not what is wrong with it."""
    counts = set()
    for facts in inputs:
        shape, value = list(facts["shape"]), batch.get(facts["name"])
        found, dim = getattr(value, "shape", None), facts.get("batch_dim")
        if found is None or dim is None:
            continue
        expected = [size * parts if place == dim else size for place, size in enumerate(shape)]
        if len(found) != len(expected) or any(a != b for place, (a, b) in enumerate(zip(found, expected)) if place != dim):
            return None
        counts.add((int(found[dim]), expected[dim]))
    if len(counts) != 1:
        return None
    (found, expected), = counts
    if found == expected:
        return None
    has = f"the batch has {found} sample{'s' * (found != 1)}"
    if not trains:
        return (f"{has}, and evaluation runs in batches of {expected}, the batch size of the step; pad the "
                f"batch to {expected} samples and leave out what comes back for the padding")
    if found < expected:
        return (f"{has}, the step was compiled for {expected}; a loader's last batch is smaller unless it "
                "has drop_last=True: DataLoader(..., drop_last=True)")
    return f"{has}, the step was compiled for {expected}; compile it with batch_size={found}, or cut the batch"
