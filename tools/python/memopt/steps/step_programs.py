# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of a step: one for each shape of its batches, and what is compiled while it trains."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..errors import BadInput
from ..internals import is_autocast_on
from ..keywords import write_options
from ..optimizers import UNEVEN, as_complex, describe_value, read_tensor, write_optimizer_state, write_tensor
from ..watching.differences import Differences
from ..watching.tensors import TensorInputs
from ..watching.watch import Look
from .averages import Averages, BufferAverages
from .inputs import Buffers, OptimizerState
from .prepared import Model
from .programs import EvaluationProgram, Shapes, TrainingProgram, describe_shapes, find_shapes
from .settings import BUILT_IN, Settings
from .step_state import is_of_model, write_model
from .transfer import find_moved_counts, move_state
from .workspace import Counter, Request, State, Workspace, describe_shape

__all__ = ["StepPrograms"]

def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


_log = logging.getLogger("memopt")

#: What evaluation has use for.
_EVALUATION_OPTIONS = {"precision", "run-threads", "target-features", "machine-profile", "threads", "reference",
                       "efficient-conv-bn-eval", "instrument", "cache"}

class StepPrograms:
    """The part of a `memopt.Step` that has its programs."""

    def _prepare(self, models: Sequence[Model], settings: Settings) -> None:
        self._settings = settings.check()
        self._options = dict(settings.options)
        self._averages_buffers = bool(self._options.pop("ema_use_buffers", False))
        if self._averages_buffers and not (self._options.get("ema_decay") or self._options.get("ema_uniform")):
            raise BadInput("ema_use_buffers=True averages buffers beside the weights, and needs ema_decay=0.999 or so, or "
                           "ema_uniform=True")
        self._compiles_again = settings.new_shapes == "compile"
        self._evaluation_words = ["--mode=eval", *write_options(self._options, _EVALUATION_OPTIONS)]
        self._has_own_size = self._options.get("batch_size") is not None
        #: Batches of a step.
        self._count = self._options.get("accumulative_counts") or self._options.get("gradient_accumulation_steps") or 1
        if self._has_own_size and len(models) > 1:
            raise BadInput("batch_size is for one example; of several shapes each has its own number of samples")
        if settings.max_programs is not None and len(models) > settings.max_programs:
            raise BadInput(f"there are {len(models)} shapes, and max_programs is {settings.max_programs}")
        self._parked: dict[nn.Parameter, dict[str, Any]] = {}  # state of what is frozen for now
        self._max_grad_norm: float | None = None
        self._workspace: Workspace | None = None

    # ------------------------------------------------------------------------------------------------------
    # Programs
    # ------------------------------------------------------------------------------------------------------

    def _request(self, models: Sequence[Model]) -> list[Request]:
        """What the compiler is asked for."""
        names: list[str] = []
        for model in models:
            name = self._name_program(model.example)
            names.append(name if name not in names else f"{name}-{len(names) + 1}")
        return [Request(name, model.archive, model.get_words(self._options), self._get_owner(), model.shared)
                for name, model in zip(names, models)]

    def _open(self, models: Sequence[Model]) -> tuple[Workspace, State]:
        """Compiles the step; its variables have no values as yet."""
        workspace = Workspace(self._request(models), self._settings)
        return workspace, State(workspace.session, Counter())

    def _compile(self, models: Sequence[Model]) -> None:
        workspace, state = self._open(models)
        self._adopt(models, workspace, state, workspace.session.programs)

    def _adopt(self, models: Sequence[Model], workspace: Workspace, state: State, programs: Sequence[Any]) -> None:
        self._workspace, self._session = workspace, state
        with models[0].archive.words.spoken():
            models[0].options.check_program(state.manifest)
        self._programs = [TrainingProgram(model, program, self._count) for model, program in zip(models, programs)]
        self._announced = len(self._programs)
        self._last = self._programs[0]
        self._averages = Averages(state)
        self._buffer_averages: BufferAverages | None = None
        if self._averages_buffers:
            self._buffer_averages = BufferAverages(state, self._averages, self._options.get("ema_decay") or None,
                                                   bool(self._options.get("ema_warmup")))
        self._evaluations: list[EvaluationProgram] = []
        prepared = self._prepared
        by_name = {name: variable for variable in state.manifest["variables"] if is_of_model(variable)
                   for name in variable["names"]}
        self._read_alone = TensorInputs((by_name[name]["name"], holder, key) for name, holder, key in prepared.list_read_alone()
                                        if name in by_name)
        self._trained = TensorInputs(((by_name[name]["name"], holder, key) for name, holder, key in prepared.list_written()
                                     if name in by_name and "encoding" not in by_name[name]), is_whole=False)
        self._state = OptimizerState(self.optimizer)
        #: Of the session, when the model had what it has.
        self._model_changes = -1
        #: The buffers that the step reads, by the model's names: `step.buffers["beta"] = 0.3`.
        own = {called: name for name, called in prepared.called.items()}
        self.buffers = Buffers(state, {own.get(name, name).removeprefix("net.").removeprefix("captured."): variable["name"]
                                       for name, variable in by_name.items() if variable["role"] == "buffer"},
                               self._write_tensor)
        self._find_differences(workspace.remarks).warn()

    def _find_differences(self, remarks: Sequence[str]) -> Differences:
        guards, archive = self._prepared.archive.guards, self._prepared.archive
        is_clipped = self._options.get("max_grad_norm") not in (None, 0, math.inf, "inf")
        return Differences(draws=[] if self._options.get("dropout") in ("off", False) else archive.draws, turned=guards.turned,
                           counters=guards.counters, kept=guards.kept, iterators=guards.iterators, drawn_once=archive.drawn_once,
                           unclipped=self._list_unclipped() if is_clipped else (), remarks=remarks)

    def _list_unclipped(self) -> list[str]:
        """Parameters whose gradients a loop may count to the norm, and the step does not."""
        return self._prepared.list_unheld()

    @property
    def _prepared(self) -> Model:
        return self._programs[0].prepared

    def _find_program(self, batches: Sequence[Any]) -> TrainingProgram:
        """The program of the batches' shapes and number, compiled now if that is wanted."""
        if not batches or (len(self._programs) == 1 and not self._compiles_again and self._settings.ragged == "error"):
            return self._programs[0]  # the runtime says what is wrong
        arranged = [self._prepared.layout.arrange(batch) for batch in batches]
        if self._last.takes_all(arranged):
            return self._last
        found = next((program for program in self._programs if program.takes_all(arranged)), None) or self._find_padded(arranged)
        if found is None and (self._has_own_size or len(batches) > self._count):
            return self._programs[0]
        return found or self._add_program(batches, arranged)

    def _find_padded(self, arranged: Sequence[Mapping[str, Any]], any_count: bool = False) -> TrainingProgram | None:
        """The smallest program that takes batches with fewer samples than its own."""
        if self._settings.ragged == "error":
            return None
        return min((program for program in self._programs if program.takes_all(arranged, pads=True, any_count=any_count)),
                   key=lambda program: program.count_samples() or 0, default=None)

    def _is_ragged(self, shapes: Shapes) -> bool:
        return self._settings.ragged == "pad" and any(program.has_fewer_samples(shapes) for program in self._programs[:self._announced])

    def _refuse_shape(self, shapes: Shapes, why: str, trains: bool) -> BadInput:
        names = self._programs[0].shapes
        there = "; ".join(dict.fromkeys(describe_shapes(program.shapes) for program in self._programs))
        found = describe_shapes({name: shape for name, shape in shapes.items() if name in names})
        front = f"step {self.steps + 1}: " if trains else ""
        return BadInput(f"{front}the batch has {found}, and there are programs for {there}; {why}")

    def _add_program(self, batches: Sequence[Any], arranged: Sequence[Mapping[str, Any]]) -> TrainingProgram:
        """Compiles a program for another shape, or for fewer batches, which has the state that there is."""
        known = (next((program for program in self._programs if program.takes_all(arranged, any_count=True)), None)
                 or self._find_padded(arranged, any_count=True))
        shapes = find_shapes(arranged[0])
        is_ragged = self._settings.ragged == "pad" if known else self._is_ragged(shapes)
        if not (self._compiles_again or is_ragged):
            if known:
                return known  # the runtime says how many batches a step takes
            raise self._refuse_shape(shapes, "give compile this one as well, shapes=[batch, ...], or new_shapes=\"compile\", which "
                                     "compiles a program when its first batch comes", True)
        other = next((find_shapes(batch) for batch in arranged if find_shapes(batch) != shapes), None)
        if known is None and other is not None:
            raise self._refuse_shape(other, f"the batches of a step are of one shape, and the first has {describe_shapes(shapes)}", True)
        limit = self._settings.max_programs
        if limit is not None and len(self._programs) >= limit and not is_ragged:
            raise self._refuse_shape(shapes, f"max_programs allows {limit}", True)
        prepared = known.prepared if known else self._prepared.make_again(batches[0])
        if not prepared.options.own_counts <= self._prepared.options.own_counts:
            self._compile_again(UNEVEN, prepared.options.own_counts)
        return self._compile_program(prepared, len(batches))

    def _compile_program(self, prepared: Model, count: int) -> TrainingProgram:
        fewer = f"-of-{count}" if count != self._count else ""
        name = self._workspace.choose_name(self._name_program(prepared.example) + fewer)
        padding = self._prepared.archive.padding
        why = f"; the samples are not padded: {padding}" if self._settings.ragged == "pad" and isinstance(padding, str) else ""
        _log.warning("compiling program %s for batches of %s%s", name, describe_shapes(find_shapes(prepared.example)), why)
        prepared.share_names(self._prepared.shared, self._prepared.called)
        options = {**self._options, "accumulative_counts": count} if fewer else self._options
        if fewer:
            options.pop("gradient_accumulation_steps", None)
        program = self._workspace.add(self._request([prepared])[0]._replace(name=name, words=prepared.get_words(options)))
        self._programs.append(TrainingProgram(prepared, program, count))
        if self._max_grad_norm is not None:
            self.max_grad_norm = self._max_grad_norm
        return self._programs[-1]

    def _name_program(self, example: Mapping[str, torch.Tensor]) -> str:
        return f"train-{describe_shape(example)}"

    def _get_owner(self) -> str:
        """Whose the optimizer's state is, among several steps."""
        return ""

    def _write_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Gives a variable of the step a value."""
        write_tensor(self._session, self._find_variable(name), tensor)

    # ------------------------------------------------------------------------------------------------------
    # What has changed since it was compiled
    # ------------------------------------------------------------------------------------------------------

    def _meet_changes(self, batches: Sequence[Any]) -> TrainingProgram:
        """Sees to it that the step is the one that model, loss and optimizer ask for now; the program of the batches."""
        if is_autocast_on():
            raise BadInput("autocast is on, and a compiled step has the types that it was compiled with: call it outside of "
                           "torch.autocast, and compile it with precision=\"bf16\" or \"fp16\"")
        program = self._find_program(batches)
        if program.look is None:
            program.look = Look([self._read_alone, self._trained, self._state, program.archive.guards, program.prepared.options])
        if not program.look.holds():
            program = self._meet_own_changes(batches)
        if not program.inputs.are_written():
            refusal = program.prepared.options.find_change() or program.inputs.find_refusal()
            if refusal is not None:
                self._compile_again(refusal)
                program = self._find_program(batches)
            program.inputs.write()
        return program

    def _meet_own_changes(self, batches: Sequence[Any]) -> TrainingProgram:
        """Those of model, loss and optimizer."""
        if not self._read_alone.hold():
            self._take_tensors()
        if not self._trained.hold():
            self._take_trained()
        if not self._state.hold():
            self._take_state()
        program = self._find_program(batches)
        prepared = program.prepared
        if not (prepared.archive.guards.hold() and prepared.options.hold()):
            change = prepared.options.find_change() or prepared.archive.guards.find_change()
            if change is not None:
                self._compile_again(str(change))
                program = self._find_program(batches)
        return program

    def _find_variable(self, name: str) -> Mapping:
        return next(variable for variable in self._session.manifest["variables"] if variable["name"] == name)

    def _take_written(self) -> None:
        """What has been written to the model since it had the step's values; if the step is further, its own count."""
        if not self._read_alone.hold():
            self._take_tensors()
        if self._model_changes == self._session.changes and not self._trained.hold():
            self._take_trained()

    def _take_tensors(self) -> None:
        """What has been written to tensors of the model that the step only reads."""
        if self._meet_gone(self._read_alone.list_gone()):
            return
        for name, tensor in self._read_alone.list_changes():
            variable = self._find_variable(name)
            shape, _ = describe_value(variable)
            if tensor.numel() != math.prod(shape) and not tensor.is_complex():
                self._compile_again(f"'{name.partition('.')[2]}' has the shape {list(tensor.shape)}, the step was compiled for "
                                    f"{list(shape)}")
                return
            self._write_tensor(name, tensor)
        self._read_alone.mark()

    def _meet_gone(self, names: Sequence[str]) -> bool:
        """Compiles again without tensors that the model no longer has."""
        if names:
            self._compile_again(f"'{names[0].partition('.')[2]}' has become None, the step was compiled for a tensor")
        return bool(names)

    def _take_trained(self) -> None:
        """What has been written to parameters and buffers that the step writes, too: it counts if they had the step's values."""
        # Of parameters the guards know.
        if self._meet_gone([name for name in self._trained.list_gone() if self._find_variable(name)["role"] == "buffer"]):
            return
        is_same = self._model_changes == self._session.changes
        for name, tensor in self._trained.list_changes():
            variable = self._find_variable(name)
            value = as_complex(read_tensor(self._session.read_variable, variable), tensor)
            said = f"'{name.partition('.')[2]}'"
            if tensor.dtype != value.dtype or tensor.shape != value.shape and tensor.numel() != value.numel():
                self._compile_again(f"{said} has become {_describe(tensor)}, the step was compiled for {_describe(value)}")
                return
            if torch.equal(tensor.detach().cpu().reshape(value.shape), value):
                continue
            if not is_same:
                raise BadInput(f"{said} has been written to, while the step had trained it further than the model has it: call "
                               "step.reload() to go on from the model's values; or step.sync() before they are written, which "
                               "gives the model the step's, or after that to drop what was written")
            self._write_tensor(name, tensor)
        self._trained.mark()
        if is_same and self._state.was_written():  # the optimizer has made steps in PyTorch
            self._take_state()

    def _take_state(self) -> None:
        """Another state that was loaded into the optimizer."""
        state = self.optimizer.state
        self._parked = {parameter: entry for parameter, entry in self._parked.items() if parameter not in state}
        if any(state.values()):
            self._adapt_counts(state)
            write_optimizer_state(self._prepared.options, self._session, state)
        else:
            self._reset_state()
        self._state.mark()

    def _adapt_counts(self, state: Mapping[nn.Parameter, Mapping[str, Any]]) -> None:
        """Compiles again where the programs count updates together that this state counts apart."""
        options = self._prepared.options
        if not options.has_counts_for(state):
            self._compile_again(UNEVEN, options.find_own_counts(state))

    def _reset_state(self) -> None:
        """As an optimizer has it before its first step; averages stay."""
        values = {name: tensor for names, tensor in self._read_variables() for name in names}
        averages, updates = (self._averages.read(), self._averages.updates) if self._averages else ({}, 0)
        self._session.session.initialize()
        write_model(self._session, values)
        if averages:
            self._averages.write(averages, updates)
        self._session.step = 0

    def _list_parked(self) -> dict[nn.Parameter, dict[str, Any]]:
        """State of what is not trained now, as of the optimizer before the step had it."""
        trained = set(self._prepared.options.trained)
        return {parameter: entry for parameter, entry in {**self.optimizer.state, **self._parked}.items() if entry and parameter not in trained}

    def _compile_again(self, change: str, own_counts: Collection[nn.Parameter] | None = None) -> None:
        """All programs with all state, if that was allowed; with these parameters' own counts of updates, or those that follow."""
        if not self._compiles_again:
            raise BadInput(BUILT_IN.format(change))
        if own_counts is None:
            own_counts = find_moved_counts(self._prepared.options, self._session, self._list_parked())
        models = [program.prepared.make_again(own_counts=own_counts) for program in self._programs if program.count == self._count]
        workspace, state = self._open(models)
        try:
            workspace.session.initialize()
            tensors = models[0].get_tensors()
            write_model(state, tensors)
            constants = {variable["name"] for variable in state.manifest["variables"]
                         if variable["role"] == "buffer" and tensors.keys().isdisjoint(variable["names"])}
            self._parked = move_state(self._session, self._prepared.options, state, models[0].options, self._list_parked(), constants)
        except BaseException:
            workspace.close()
            raise
        old, limit, buffers = self._workspace, self._max_grad_norm, self._buffer_averages
        is_same = self._model_changes == self._session.changes
        self._adopt(models, workspace, state, workspace.session.programs)
        if self._buffer_averages and buffers:
            self._buffer_averages.begin(buffers.values)
        if limit is not None:
            self.max_grad_norm = limit
        if is_same:
            self._model_changes = self._session.changes
        old.close()
