# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model, its loss and its optimizer, traced for batches of one shape and ready to be compiled."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .. import export
from ..batches.layout import BatchLayout
from ..batches.padding import Padding, find_padding
from ..errors import BadInput
from ..keywords import write_options
from ..optimizers import OptimizerOptions, unwrap_optimizer
from ..packages import find_source_options
from ..tools import run_compiler
from ..tracing.gradients import check_optimizer
from ..user_code.words import ProgramWords
from ..watching.differences import DrawingSources, find_draws
from ..watching.guards import Guards, list_numbers
from ..watching.reads import observed
from ..watching.step_reads import find_reads
from ..watching.tensors import list_tensor_places
from . import captures

__all__ = ["Archive", "Model"]


@contextlib.contextmanager
def _trained_alone(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """While entered, what the optimizer does not have needs no gradient, as nothing would become of it."""
    own = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    if not own & set(module.parameters()):
        raise BadInput("the optimizer has no parameter of the model; make it from model.parameters()")
    captures.check_all_held(module, optimizer)
    others = [parameter for parameter in module.parameters() if parameter.requires_grad and parameter not in own]
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)


def _list_attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for path, inner in module.named_modules():
        front = path.partition(".")[2]
        yield from ((f"{front}.{key}" if front else key, value) for key, value in vars(inner).items())


class Archive:
    """A module traced without its weights: the bytes of a .pt2, the names that the program reads and writes, what it was
    traced for, and the words for all that. With `pads` it takes fewer samples than the example has, where that changes
    nothing; `padding` says how, or why it does not.

    Lines of the source are no part of the bytes: a comment that moves a model down compiles nothing anew.
    """

    def __init__(self, module: nn.Module, example: Mapping[str, torch.Tensor], training: bool, pads: bool = False):
        watch = observed(module.modules())
        places = list(find_reads(module).list_places())
        before = list_numbers(places)
        sources = DrawingSources([*((place.path, value) for place, value in places), *_list_attributes(module)])
        program = export.export_program(module, example, training, watch)
        #: Whose random numbers of Python, or of NumPy, the trace has drawn.
        self.drawn_once = sources.list_drawn()
        self.padding: Padding | str = "it was not asked for"
        if pads:
            self.padding = find_padding(program, example, lambda batch: export.export_program(module, batch, training))
            if isinstance(self.padding, Padding) and self.padding.has_mask:
                program = self.padding.make_masked()
        self.guards = Guards(module, watch, training, before)
        self.draws = find_draws(program)
        self.written = set(program.graph_signature.buffers_to_mutate.values())
        read = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
        self.names = {spec.target for spec in program.graph_signature.input_specs if spec.target and spec.arg.name in read}
        self.words = ProgramWords(module, export.find_lines(program))
        self.checked = getattr(module, "checked", ())
        #: Parameters that not each step updates, as the model reads them on one side of a branch alone.
        self.unsteady: Sequence[str] = list(getattr(module, "unsteady", ()))
        with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
            path = pathlib.Path(folder) / "step.pt2"
            export.save(program, path, weights=False, training=training, lines={})
            self.content = path.read_bytes()


class Model:
    """A model with its loss and optimizer, ready to be compiled."""

    def __init__(self, model: nn.Module, loss_fn: Callable | None, batch: Any, optimizer: torch.optim.Optimizer | None,
                 targets: Sequence[str] | None, pads: bool = False, own_counts: Collection[nn.Parameter] | None = None):
        if optimizer is None:
            raise BadInput("a training step needs an optimizer, such as optimizer=torch.optim.SGD(model.parameters(), lr=0.1)")
        if not isinstance(model, nn.Module):
            raise BadInput(f"the model is {type(model).__name__}, expected a torch.nn.Module")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise BadInput(f"optimizer={optimizer!r}: expected an optimizer of torch.optim or memopt.optim, made from "
                           "model.parameters()")
        if any(map(nn.parameter.is_lazy, [*model.parameters(), *model.buffers()])):
            raise BadInput("parameters of the model have no shape as yet (LazyLinear, say): call it on a batch first, then make the "
                           "optimizer")
        optimizer = unwrap_optimizer(optimizer)
        check_optimizer(optimizer)
        self._made_from = (model, loss_fn, batch, optimizer, targets, pads)
        self.layout = BatchLayout(batch, targets, has_loss=loss_fn is not None)
        self.example = self.layout.make_example(batch)
        self.module = self._wrap(model, loss_fn, return_prediction=False)
        with _trained_alone(self.module, optimizer):
            self.archive = Archive(self.module, self.example, training=True, pads=pads)
        parameters = dict(self.module.named_parameters(remove_duplicate=False))
        unsteady = [parameters[name] for name in self.archive.unsteady]
        self.options = OptimizerOptions(optimizer, parameters, self.archive.names, own_counts, unsteady)
        #: Own names of variables, and what they are called where several steps share them.
        self.shared: dict[str, str] = {}
        self.called: dict[str, str] = {}  #: the same for all of the module's names

    def make_again(self, batch: Any = None, own_counts: Collection[nn.Parameter] | None = None) -> Model:
        """As things are now, for batches of another shape if one is given, and with these parameters' own counts of updates."""
        model, loss_fn, example, optimizer, targets, pads = self._made_from
        return Model(model, loss_fn, example if batch is None else batch, optimizer, targets, pads,
                     self.options.own_counts if own_counts is None else own_counts)

    def make_evaluation(self) -> nn.Module:
        """The module that returns predictions as well."""
        return self._wrap(self.module.net, self.module.loss, True, getattr(self.module, "captured", None))

    def _wrap(self, model: nn.Module, loss_fn: Callable | None, return_prediction: bool, captured: nn.Module | None = None):
        restore = self.layout.restore if self.layout.is_nested else None
        return captures.wrap(model, loss_fn, self.layout.targets, return_prediction, restore, captured=captured)

    def list_read_alone(self) -> Iterator[tuple[str, Mapping, str]]:
        """Tensors that the program reads and never writes."""
        trained = {id(parameter) for group in self.options.optimizer.param_groups for parameter in group["params"]
                   if parameter.requires_grad}
        for name, holder, key in list_tensor_places(self.module, self.archive.names.__contains__):
            if name not in self.archive.written and id(holder[key]) not in trained:
                yield self.shared.get(name, name), holder, key

    def list_loss_names(self) -> dict[str, str]:
        """Of state that is no part of the model: names for users, and in the program."""
        own = set(map(id, self.module.net.state_dict(keep_vars=True).values()))
        names = {}
        if isinstance(self.module.loss, nn.Module):
            names = {name: f"loss.{name}" for name, tensor in self.module.loss.state_dict(keep_vars=True).items()
                     if torch.is_tensor(tensor) and id(tensor) not in own}
        trained = {id(parameter) for group in self.options.optimizer.param_groups for parameter in group["params"]}
        if hasattr(self.module, "captured"):
            for name, tensor in self.module.captured.state_dict(keep_vars=True).items():
                if id(tensor) in trained or f"captured.{name}" in self.archive.written:
                    names.setdefault(name, f"captured.{name}")
        return names

    def list_unheld(self) -> list[str]:
        """Parameters that the program reads, that need a gradient, and that the optimizer does not have."""
        held = set(self.options.held)
        return [name.partition(".")[2] for name, parameter in self.module.named_parameters()
                if name in self.archive.names and parameter.requires_grad and parameter not in held]

    def list_written(self) -> Iterator[tuple[str, Mapping, str]]:
        """Parameters and buffers that the program writes."""
        alone = {(id(holder), key) for _, holder, key in self.list_read_alone()}
        for name, holder, key in list_tensor_places(self.module, self.archive.names.__contains__):
            if (id(holder), key) not in alone:
                yield self.shared.get(name, name), holder, key

    def get_words(self, options: Mapping[str, Any]) -> list[str]:
        return self.options.get_words() + write_options(options)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by all of their names in the module."""
        return {**dict(self.module.named_parameters(remove_duplicate=False)), **dict(self.module.named_buffers(remove_duplicate=False))}

    def get_shared_tensors(self) -> dict[str, torch.Tensor]:
        """The same by the names that they have in the session. Another step's tensor may have a name of the module's."""
        return {self.called.get(name, name): tensor for name, tensor in self.get_tensors().items()}

    def share_names(self, shared: Mapping[str, str], called: Mapping[str, str]) -> None:
        """Calls variables by the names that they have among several steps; `called` has those that the program does not read, too."""
        self.shared, self.called = dict(shared), dict(called)
        self.options.parameters = {**self.options.parameters, **{shared[name]: parameter for name, parameter
                                                                 in self.options.parameters.items() if name in shared}}

    def run_compiler(self, words: Sequence[str]) -> tuple[str, dict]:
        with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
            path = pathlib.Path(folder) / "step.pt2"
            path.write_bytes(self.archive.content)
            with self.archive.words.spoken():
                return run_compiler([str(path), *words, *find_source_options(self.archive.content)])
