# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch.export does to the attributes of modules that it should not.

Of buffers it sees what is written to them, and not that forward puts another tensor in their place: `self.hidden = h.detach()`; nor of
parameters without a gradient, `self.codes = nn.Parameter(average, requires_grad=False)`, which are state as buffers are. In the place of dicts, lists and tuples it leaves equal ones, so that others who have them no longer have the model's.
"""

from __future__ import annotations

import collections
import contextlib
import types
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind, OutputKind

from ..errors import Refused
from ..watching.reads import note_left

__all__ = ["dropped_leftovers", "kept_buffers", "kept_containers", "make_written_buffers", "merge_buffers"]


@contextlib.contextmanager
def kept_buffers(module: nn.Module) -> Iterator[None]:
    """What stands in the place of a buffer at the end, or of a parameter without a gradient, is written to what was there."""
    before = [(f"{path}.{key}", inner, kind, holder, key, tensor) for path, inner in module.named_modules()
              for kind, holder in (("buffer", inner._buffers), ("parameter", inner._parameters)) for key, tensor in holder.items()]
    yield
    for path, inner, kind, holder, key, old in before:
        new, name = holder.get(key), path.partition(".")[2]
        if new is old:
            continue
        holder[key] = old
        if old is None and kind == "buffer":  # no state, but a place for what forward has computed
            note_left(inner, key)
            continue
        if old is None or new is None or (new.shape, new.dtype) != (old.shape, old.dtype):
            raise Refused(f"forward puts {_describe(new)} in the place of the {kind} '{name}', which has "
                          f"{_describe(old)}: a step keeps {kind}s of one shape and type")
        if old.requires_grad:
            raise Refused(f"forward puts another tensor in the place of the {kind} '{name}', which is trained; only the optimizer writes "
                          "it. Make what forward keeps (a moving average, say) a buffer, or requires_grad=False")
        old.copy_(new.detach())


@contextlib.contextmanager
def dropped_leftovers(module: nn.Module) -> Iterator[None]:
    """Behind it modules do not have what forward has made for its later calls out of tensors of the trace, `if self.criterion is None:
    self.criterion = Criterion(self)`: forward makes it anew, in each trace and in PyTorch."""
    before = [(inner, holder, dict(holder)) for inner in module.modules() for holder in (vars(inner), inner._modules)]
    try:
        yield
    finally:
        for inner, holder, old in before:
            for key, value in list(holder.items()):
                if value is old.get(key) or isinstance(value, torch.Tensor) or not _has_traced(value):
                    continue
                note_left(inner, key)
                if key in old:
                    holder[key] = old[key]
                else:
                    del holder[key]


def merge_buffers(program: torch.export.ExportedProgram) -> None:
    """A buffer that has several names, as where another module holds the module that has it, is one input, in place: torch.export has one
    for each name, and no program where one is written."""
    graph, signature = program.graph, program.graph_signature
    nodes = {node.name: node for node in graph.find_nodes(op="placeholder")}
    same: dict[int, list] = {}
    for spec in signature.input_specs:
        if spec.kind == InputKind.BUFFER and spec.target in program.state_dict:
            same.setdefault(id(program.state_dict[spec.target]), []).append(spec)
    for first, *others in same.values():
        for spec in others:
            nodes[spec.arg.name].replace_all_uses_with(nodes[first.arg.name])
            graph.erase_node(nodes[spec.arg.name])
            signature.input_specs.remove(spec)
            del program.state_dict[spec.target]
    program.graph_module.recompile()


def _has_traced(value: object, depth: int = 4) -> bool:
    """Whether tensors of a trace are in it."""
    if isinstance(value, torch.Tensor):
        return isinstance(value, FakeTensor)
    if not depth or isinstance(value, (type, types.FunctionType, types.ModuleType)):
        return False
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, collections.deque)) else vars(
        value).values() if hasattr(value, "__dict__") else ()
    return any(_has_traced(part, depth - 1) for part in list(inside))


def make_written_buffers(program: torch.export.ExportedProgram) -> None:
    """Parameters without a gradient that forward writes are buffers of the program."""
    signature = program.graph_signature
    written = {spec.target for spec in signature.output_specs if spec.kind == OutputKind.PARAMETER_MUTATION
               and not program.state_dict[spec.target].requires_grad}
    for spec in signature.input_specs:
        if spec.kind == InputKind.PARAMETER and spec.target in written:
            spec.kind, spec.persistent = InputKind.BUFFER, True
    for spec in signature.output_specs:
        if spec.target in written:
            spec.kind = OutputKind.BUFFER_MUTATION


_CONTAINERS = dict, list, collections.deque
_OF_ALL = frozenset(vars(nn.Module()))


@contextlib.contextmanager
def kept_containers(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Behind it modules have the containers that they had, with what these had: a trace leaves tensors in lists."""
    before = [(vars(inner), key, value, value.copy() if isinstance(value, _CONTAINERS) else value) for inner in modules
              for key, value in vars(inner).items() if isinstance(value, (*_CONTAINERS, tuple)) and key not in _OF_ALL]
    try:
        yield
    finally:
        for holder, key, value, inside in before:
            holder[key] = value
            if isinstance(value, _CONTAINERS) and not _has_same(value, inside):
                value.clear()
                value.update(inside) if isinstance(value, dict) else value.extend(inside)


def _has_same(left: dict | list | collections.deque, right: dict | list | collections.deque) -> bool:
    """The same objects, not only equal ones."""
    parts = [[part for pair in one.items() for part in pair] if isinstance(one, dict) else list(one) for one in (left, right)]
    return list(map(id, parts[0])) == list(map(id, parts[1]))


def _describe(tensor: torch.Tensor | None) -> str:
    return "None" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
