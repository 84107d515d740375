# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What loaders and collators give, as named inputs of a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from .errors import BadInput

__all__ = ["BatchLayout"]


class BatchLayout:
    """Names and order of a batch's entries, taken from an example.

    `targets` are those that go to the loss: of a tuple the last by default.
    """

    def __init__(self, batch: Any, targets: Sequence[str] | None, has_loss: bool):
        self.names = self._name_entries(batch)
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
            return tuple(batch)
        if not isinstance(batch, (tuple, list)):
            raise BadInput(f"a batch is a tuple or a mapping of arrays, found {type(batch).__name__}")
        inputs = len(batch) - 1
        return (*(("input",) if inputs == 1 else tuple(f"input{i}" for i in range(inputs))), "target")

    def make_example(self, batch: Any) -> dict[str, torch.Tensor]:
        """The example's entries as tensors on the host."""
        return {name: torch.as_tensor(value).detach().cpu() for name, value in self.arrange(batch).items()}

    def arrange(self, batch: Any, optional: Collection[str] = ()) -> dict[str, Any]:
        """The entries of a batch by name. Raises `BadInput` unless they are the example's; `optional` ones may lack."""
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
