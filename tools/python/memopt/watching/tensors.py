# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of a model that are a step's as well: what is written to them is passed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import nn

from .reads import ABSENT
from .stamps import stamp
from .watch import Backoff, Watch

__all__ = ["TensorInputs", "list_tensor_places"]

_NO_TENSOR = torch.empty(0)  # in the place of one that is gone


class TensorInputs:
    """Tensors of a module by their names in the program; whoever changes one changes the step's."""

    def __init__(self, tensors: Iterable[tuple[str, Mapping, str]], is_whole: bool = True):
        """`is_whole`: of small tensors all bytes are compared, whoever writes them."""
        self._is_whole = is_whole
        #: Names in the program, and where the tensors lie.
        self._names, self._dicts, self._keys = [], [], []
        for name, holder, key in tensors:
            self._names.append(name)
            self._dicts.append(holder)
            self._keys.append(key)
        self.mark()

    is_all = True  #: The watch sees all that `hold` does.

    def mark(self) -> None:
        """What the tensors hold now is known."""
        self._stamps = self._read()
        self.watch, self._looks = Watch(), Backoff()

    def hold(self) -> bool:
        """Whether nothing has changed."""
        if self.watch.holds():
            return True
        if self._read() != self._stamps:
            return False
        if self._looks.is_due():
            watch = Watch()
            found = [(holder, key, holder.get(key, ABSENT)) for holder, key in zip(self._dicts, self._keys)]
            if all(watch.add_entry(*entry) and (not torch.is_tensor(entry[2]) or watch.add_version(entry[2], self._is_whole)) for entry in found):
                watch.finish()
                self.watch = watch
        return True

    def _read(self) -> list[int]:
        found = [holder.get(key) for holder, key in zip(self._dicts, self._keys)]
        return stamp([_NO_TENSOR if tensor is None else tensor for tensor in found])

    def list_changes(self) -> list[tuple[str, torch.Tensor]]:
        """Name and tensor of what has changed since, without what is gone or is another parameter."""
        count, changes = len(self._names), []
        for number, (name, holder, key) in enumerate(zip(self._names, self._dicts, self._keys)):
            tensor, known = holder.get(key), self._stamps[number::count]
            is_other = isinstance(tensor, nn.Parameter) and id(tensor) != known[0]
            if tensor is not None and not is_other and stamp([tensor]) != known:
                changes.append((name, tensor))
        return changes

    def list_gone(self) -> list[str]:
        """The names of those in whose place there is nothing."""
        return [name for name, holder, key in zip(self._names, self._dicts, self._keys) if holder.get(key) is None]


def list_tensor_places(module: nn.Module, names: Callable[[str], bool]) -> Iterator[tuple[str, Mapping, str]]:
    """Names of the module's tensors that `names` accepts, with the dicts that hold them."""
    for path, inner in module.named_modules():
        for holder in (inner._parameters, inner._buffers):
            for key, tensor in holder.items():
                name = f"{path}.{key}" if path else key
                if tensor is not None and names(name) and not tensor.is_inference():
                    yield name, holder, key
