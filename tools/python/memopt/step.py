# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model, its loss and its optimizer as one compiled step.

The model is exported without its weights, compiled (or found in the cache), and given its weights as they are. From
then on the step has the parameters; `Step.sync` puts them back into the model.
"""

from __future__ import annotations

import contextlib
import json
import logging
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from . import internals
from .averages import Averages, BufferAverages
from .batches import explain_sizes
from .differences import warn_of_differences
from .errors import BadInput, LossNotFinite
from .guards import TensorInputs
from .inputs import Buffers
from .keywords import write_options
from .optimizers import (as_complex, name_input, number_parameters, read_optimizer_state, read_tensor, write_optimizer_state,
                         write_tensor)
from .padding import Padding
from .plan import Estimate, Frontier, Plan
from .prepared import Archive, Model
from .programs import EvaluationProgram, Shapes, TrainingProgram, describe_shapes, find_shapes
from .runtime import find_rank
from .transfer import move_state
from .workspace import Counter, Request, State, Workspace, describe_shape

__all__ = ["Settings", "Step", "compile", "estimate", "frontier", "make_models"]

_log = logging.getLogger("memopt")

#: What evaluation has use for.
_EVALUATION_OPTIONS = {"precision", "run-threads", "target-features", "machine-profile", "threads", "reference",
                       "efficient-conv-bn-eval", "instrument", "cache"}


# ----------------------------------------------------------------------------------------------------------
# The step
# ----------------------------------------------------------------------------------------------------------

def _is_of_model(variable: Mapping) -> bool:
    return variable["role"] in ("parameter", "buffer")


def _write_model(session: State, tensors: Mapping[str, torch.Tensor]) -> None:
    """Gives parameters and buffers of a session their values, by any of their names."""
    for variable in filter(_is_of_model, session.manifest["variables"]):
        found = [tensors[name] for name in variable["names"] if name in tensors]
        if found and variable.get("restore") != "never":
            write_tensor(session, variable, found[0])


_BUILT_IN = ("{}; the program has that built in: compile the step again, or give new_shapes=\"compile\", which does so by "
             "itself")


class Settings(NamedTuple):
    """How a step is compiled, and what it does with batches of other shapes."""

    device_memory: int | str | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    threads: int = 0
    new_shapes: str = "error"
    max_programs: int | None = None
    ragged: str = "error"
    device: str = "cpu"

    def check(self) -> Settings:
        if self.new_shapes not in ("error", "compile"):
            raise BadInput(f"new_shapes is 'error' or 'compile', found {self.new_shapes!r}")
        if self.ragged not in ("error", "pad"):
            raise BadInput(f"ragged is 'error' or 'pad', found {self.ragged!r}")
        if self.device not in ("cpu", "cuda"):
            raise BadInput(f"device is 'cpu' or 'cuda', found {self.device!r}")
        if self.options.get("zero_stage") and find_rank()[1] == 1:
            raise BadInput("zero_stage= shares out among ranks, and this process is alone: start the script by "
                           "torchrun --nproc-per-node=N")
        if self.max_programs is not None and (not isinstance(self.max_programs, int) or self.max_programs < 1):
            raise BadInput(f"max_programs is a number of programs, found {self.max_programs!r}")
        return self


class Step:
    """A compiled training step with the model's parameters in it; `memopt.compile` makes it.

    Calling it trains on one batch and returns the loss. One thread at a time may use a step.
    """

    def __init__(self, models: Sequence[Model], settings: Settings):
        self._prepare(models, settings)
        self._compile(models)
        self.reload()

    def _prepare(self, models: Sequence[Model], settings: Settings) -> None:
        self._settings = settings.check()
        self._options = dict(settings.options)
        self._averages_buffers = bool(self._options.pop("ema_use_buffers", False))
        if self._averages_buffers and not self._options.get("ema_decay"):
            raise BadInput("ema_use_buffers=True averages buffers beside the weights, and needs ema_decay=0.999 or so")
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
        settings = self._settings
        workspace = Workspace(self._request(models), settings.threads, settings.device_memory, settings.device)
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
            self._buffer_averages = BufferAverages(state, self._averages, self._options["ema_decay"], bool(self._options.get("ema_warmup")))
        self._evaluations: list[EvaluationProgram] = []
        prepared = self._prepared
        by_name = {name: variable for variable in state.manifest["variables"] if _is_of_model(variable)
                   for name in variable["names"]}
        self._read_alone = TensorInputs((by_name[name]["name"], holder, key) for name, holder, key in prepared.list_read_alone()
                                        if name in by_name)
        #: The buffers that the step reads, by the model's names: `step.buffers["beta"] = 0.3`.
        self.buffers = Buffers(state, {name.removeprefix("net.").removeprefix("captured."): variable["name"]
                                       for name, variable in by_name.items() if variable["role"] == "buffer"},
                               self._write_tensor)
        draws = [] if self._options.get("dropout") in ("off", False) else prepared.archive.draws
        guards = prepared.archive.guards
        warn_of_differences(draws, guards.turned, guards.counters, workspace.remarks)

    @property
    def _prepared(self) -> Model:
        return self._programs[0].prepared

    @property
    def package(self) -> pathlib.Path:
        """The folder of the package, which memopt-run takes, too."""
        return self._workspace.package

    @property
    def was_cached(self) -> bool:
        """Whether it was compiled before."""
        return self._workspace.was_cached

    @property
    def plan(self) -> Plan:
        """That of the program that needs most memory, which is what the arena has."""
        return self._workspace.plan

    @property
    def programs(self) -> dict[str, Plan]:
        """The plans of all programs by their names: of steps, and of evaluations as far as they were needed."""
        return dict(self._workspace.plans)

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
        return self._compile_program(prepared, len(batches))

    def _compile_program(self, prepared: Model, count: int) -> TrainingProgram:
        fewer = f"-of-{count}" if count != self._count else ""
        name = self._workspace.choose_name(self._name_program(prepared.example) + fewer)
        padding = self._prepared.archive.padding
        why = f"; the samples are not padded: {padding}" if self._settings.ragged == "pad" and isinstance(padding, str) else ""
        _log.warning("compiling program %s for batches of %s%s", name, describe_shapes(find_shapes(prepared.example)), why)
        prepared.share_names(self._prepared.shared)
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
        variable = next(variable for variable in self._session.manifest["variables"] if variable["name"] == name)
        write_tensor(self._session, variable, tensor)

    # ------------------------------------------------------------------------------------------------------
    # What has changed since it was compiled
    # ------------------------------------------------------------------------------------------------------

    def _meet_changes(self, batches: Sequence[Any]) -> TrainingProgram:
        """Sees to it that the step is the one that model, loss and optimizer ask for now; the program of the batches."""
        if not self._read_alone.hold():
            self._take_tensors()
        program = self._find_program(batches)
        prepared = program.prepared
        if not (prepared.archive.guards.hold() and prepared.options.hold()):
            change = prepared.options.find_change() or prepared.archive.guards.find_change()
            if change is not None:
                self._compile_again(str(change))
                program = self._find_program(batches)
        if not program.inputs.are_written():
            refusal = program.prepared.options.find_change() or program.inputs.find_refusal()
            if refusal is not None:
                self._compile_again(refusal)
                program = self._find_program(batches)
            program.inputs.write()
        return program

    def _take_tensors(self) -> None:
        """What has been written to tensors of the model that the step only reads."""
        for name, tensor in self._read_alone.take_changes():
            self._write_tensor(name, tensor)

    def _compile_again(self, change: str) -> None:
        """All programs with all state, if that was allowed."""
        if not self._compiles_again:
            raise BadInput(_BUILT_IN.format(change))
        models = [program.prepared.make_again() for program in self._programs if program.count == self._count]
        workspace, state = self._open(models)
        try:
            workspace.session.initialize()
            _write_model(state, models[0].get_tensors())
            self._parked = move_state(self._session, self._prepared.options, state, models[0].options, self._parked)
        except BaseException:
            workspace.close()
            raise
        old, limit, buffers = self._workspace, self._max_grad_norm, self._buffer_averages
        self._adopt(models, workspace, state, workspace.session.programs)
        if self._buffer_averages and buffers:
            self._buffer_averages.begin(buffers.values)
        if limit is not None:
            self.max_grad_norm = limit
        old.close()

    @property
    def model(self) -> nn.Module:
        return self._prepared.module.net

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self._prepared.options.optimizer

    @property
    def batch_size(self) -> int | None:
        """The samples of a batch; None where the inputs have no dimension in common that counts them."""
        return self._programs[0].count_samples()

    @property
    def steps(self) -> int:
        """Steps done, those that the optimizer came with included."""
        return self._session.step

    @property
    def seconds(self) -> float:
        """How long the last step took, without the copy of its batch."""
        return self._last.program.step_seconds

    @property
    def gradient_norm(self) -> float | None:
        """The norm of all gradients of the last step, before clipping; None without `max_grad_norm`, whose value inf
        asks for nothing else."""
        program = self._last.program
        found = [variable for variable in program.manifest["variables"]
                 if variable["role"] == "gradient" and variable["name"] == "gradient_norm"]
        return read_tensor(program.read_variable, found[0]).item() if found else None

    @property
    def learning_rates(self) -> list[float]:
        """Those of the last step, by group of the optimizer."""
        return list(self._last.inputs.rates) or self._prepared.options.get_rates()

    @property
    def max_grad_norm(self) -> float | None:
        """The norm that gradients are scaled down to; writing it counts from the next step on. None without clipping."""
        return self._max_grad_norm if self._max_grad_norm is not None else self._options.get("max_grad_norm")

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        name = name_input("max_grad_norm", "lr")
        programs = [program.program for program in self._programs
                    if any(variable["name"] == name for variable in program.program.manifest["variables"])]
        if not programs:
            raise BadInput("the step was compiled without clipping; give compile a max_grad_norm above 0 that is not inf")
        if not value > 0:
            raise BadInput(f"max_grad_norm is a number above 0, found {value!r}")
        for program in programs:
            program.set_rate(name, float(value))
        self._max_grad_norm = value

    def __call__(self, *batches: Any) -> float:
        """Trains on a batch, with the rates that the optimizer's groups have now; on `accumulative_counts` batches
        where the step was compiled for several. Returns the loss.

        A loss that is not finite raises `LossNotFinite` and changes nothing.
        """
        program = self._meet_changes(batches)
        arranged = [program.prepared.layout.arrange(batch) for batch in batches]
        with program.archive.words.spoken():
            try:
                self._session.run(program.program, program.arrange(arranged, {}))
            except BadInput as error:
                self._explain(error, program, arranged)
                raise
        self._last = program
        if self._buffer_averages:
            self._buffer_averages.update()
        internals.mark_stepped(self.optimizer)
        return program.program.read_scalar(program.loss)

    def _explain(self, error: BadInput, program: TrainingProgram | EvaluationProgram, batches: Sequence[Mapping[str, Any]]) -> None:
        """Puts into words that a batch has another size; an evaluation is no step with a number."""
        trains, manifest = isinstance(program, TrainingProgram), program.program.manifest
        said = next(filter(None, (explain_sizes(manifest["inputs"], manifest.get("micro_batches", 1), batch, trains)
                                  for batch in batches)), None)
        front = f"step {error.step}: " if error.step else ""
        if said and "expected" in error.message:
            error.rephrase(lambda text: f"{front}{said}" if text == error.message else text)
        checked = program.archive.checked
        if checked and (isinstance(error, LossNotFinite) or " holds " in error.message):
            error.rephrase(lambda text: text if text == error.message else "\n".join(
                filter(None, (text, "a check that fails makes the loss nan, too; the model checks", *checked))))
        if not trains:
            error.rephrase(lambda text: text.removeprefix(front))
            error.step = 0

    # ------------------------------------------------------------------------------------------------------
    # Evaluation
    # ------------------------------------------------------------------------------------------------------

    def _find_evaluation(self, arranged: Mapping[str, Any], averaged: bool) -> EvaluationProgram:
        """The model in evaluation mode, compiled with the first batch of a shape, over the step's state."""
        shapes = find_shapes(arranged)
        for program in [program for program in self._evaluations if program.averaged == averaged and program.takes(shapes)]:
            if program.archive.guards.hold():
                return program
            change = program.archive.guards.find_change()
            if change is None:
                return program
            if not self._compiles_again:
                raise BadInput(_BUILT_IN.format(change))
            self._evaluations.remove(program)
        trained = next((program for program in self._programs if program.takes(shapes)), None)
        padded = self._find_padded_evaluation(arranged, averaged) if trained is None else None
        if padded is not None:
            return padded
        if trained is None and (self._compiles_again or self._is_ragged(shapes)) and not self._has_own_size:
            return self._add_evaluation(self._make_example(arranged), averaged)
        if trained is None and len(self._programs) > 1:
            raise self._refuse_shape(shapes, "evaluation takes the shapes of the steps", False)
        return self._add_evaluation((trained or self._programs[0]).prepared.example, averaged)

    def _find_padded_evaluation(self, arranged: Mapping[str, Any], averaged: bool) -> EvaluationProgram | None:
        """The evaluation of a step's shape, where it takes fewer samples as well."""
        shapes = find_shapes(arranged)
        if self._settings.ragged == "error" or self._has_own_size:
            return None
        found = next((program for program in self._evaluations if program.averaged == averaged and program.pads(arranged)
                      and program.archive.guards.hold()), None)
        for program in [] if found else self._programs[:self._announced]:
            if program.has_fewer_samples(shapes):
                archive = self._trace_evaluation(program.prepared.example)
                if isinstance(archive.padding, Padding) and archive.padding.holds(archive.padding.count_samples(arranged)):
                    return self._add_evaluation(program.prepared.example, averaged, archive)
        return found

    def _trace_evaluation(self, example: Mapping[str, torch.Tensor]) -> Archive:
        return Archive(self._prepared.make_evaluation(), example, training=False, pads=self._settings.ragged == "pad")

    def _make_example(self, arranged: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """A batch of another shape, whose targets may be left out: then they are the step's, as many as there are samples."""
        example, program = dict(self._prepared.example), self._programs[0]
        found = {name: torch.as_tensor(value).detach().cpu() for name, value in arranged.items()}
        dims = {tensor["name"]: tensor["batch_dim"] for tensor in program.program.manifest["inputs"] if "batch_dim" in tensor}
        samples = next((found[name].shape[dim] for name, dim in dims.items() if name in found), None)
        for name, value in example.items():
            if name not in found and name in dims and samples is not None and samples <= value.shape[dims[name]]:
                example[name] = value.narrow(dims[name], 0, samples)
        return {name: found.get(name, value) for name, value in example.items()}

    def _add_evaluation(self, example: Mapping[str, torch.Tensor], averaged: bool, archive: Archive | None = None) -> EvaluationProgram:
        known = next((program for program in self._evaluations if program.averaged == averaged
                      and program.takes(find_shapes(example)) and program.archive.guards.hold()), None)
        if known is not None:
            return known
        archive = archive or self._trace_evaluation(example)
        words = [*self._evaluation_words, *([f"--batch={self.batch_size}"] if self._has_own_size else [])]
        name = self._workspace.choose_name(self._name_evaluation(example, averaged))
        shared = self._prepared.shared
        if averaged:  # which the program reads in the place of parameters
            averages, own = self._averages.names, self._prepared.get_tensors()
            shared = {**shared, **{other: averages[shared.get(other, other)] for other in own if shared.get(other, other) in averages}}
        program = self._workspace.add(Request(name, archive, words, variables=shared))
        self._evaluations.append(EvaluationProgram(archive, program, example, averaged))
        return self._evaluations[-1]

    def _name_evaluation(self, example: Mapping[str, torch.Tensor], averaged: bool) -> str:
        return f"evaluate-{'averaged-' if averaged else ''}{describe_shape(example)}"

    def _evaluate(self, batch: Any, averaged: bool, optional: Sequence[str] = ()) -> EvaluationProgram:
        """Runs the evaluation of a batch."""
        if not self._read_alone.hold():
            self._take_tensors()
        self._check_whole()
        arranged = self._prepared.layout.arrange(batch, optional)
        # A program cannot read what is in parts on the ranks.
        is_shared_out = averaged and self._averages.are_shared_out
        program = self._find_evaluation(arranged, averaged and not is_shared_out)
        with contextlib.ExitStack() as entered:
            if is_shared_out:
                entered.enter_context(self._averages.in_place_of_weights())
            if averaged and self._buffer_averages:
                entered.enter_context(self._buffer_averages.in_place_of_buffers())
            self._run_evaluation(program, arranged, optional)
        return program

    def _check_whole(self) -> None:
        shared_out = next((variable for variable in self._session.manifest["variables"] if variable["role"] == "parameter"
                           and "whole_shape" in variable), None)
        if shared_out is not None:
            raise BadInput("with zero_stage=3 each rank has a part of the parameters, and evaluates nothing by itself: step.sync() on all "
                           "ranks and evaluate the model, or take zero_stage=2")

    def _run_evaluation(self, program: EvaluationProgram, arranged: Mapping[str, Any], optional: Sequence[str]) -> None:
        needed = self._prepared.layout.list_inputs(optional)
        fillers = {name: torch.zeros_like(program.example[name]).expand(program.shapes[name]).contiguous()
                   if program.example[name].shape == program.shapes[name]
                   else torch.zeros(program.shapes[name], dtype=program.example[name].dtype)
                   for name in needed if name in program.shapes}
        self._session.session.step = 0
        with program.archive.words.spoken():
            try:
                program.program.run_step(program.arrange([arranged], fillers))
            except BadInput as error:
                self._explain(error, program, [arranged])
                raise

    def evaluate(self, batch: Any, averaged: bool = False) -> float:
        """The loss of a batch in evaluation mode: no dropout, running statistics, nothing changes.

        The first call compiles the model once more, as a program of the same package: it reads the step's parameters where
        they are.
        """
        self._check_averaged(averaged)
        program = self._evaluate(batch, averaged)
        return program.program.read_scalar(program.loss)

    def predict(self, batch: Any, averaged: bool = False) -> torch.Tensor:
        """What the model returns for a batch in evaluation mode; its targets may be left out."""
        self._check_averaged(averaged)
        program = self._evaluate(batch, averaged, self._prepared.layout.targets)
        return self._read_prediction(program, batch)

    def evaluate_and_predict(self, batch: Any, averaged: bool = False) -> tuple[float, torch.Tensor]:
        """Both at once."""
        self._check_averaged(averaged)
        program = self._evaluate(batch, averaged)
        return program.program.read_scalar(program.loss), self._read_prediction(program, batch)

    def _read_prediction(self, program: EvaluationProgram, batch: Any) -> torch.Tensor:
        if not program.outputs:
            raise BadInput("the model returns no tensor but its loss; have it return its prediction as well")
        prediction, padding = read_tensor(program.program.read_output, program.outputs[0]), program.archive.padding
        if not isinstance(padding, Padding):
            return prediction
        return padding.cut(prediction, padding.count_samples(self._prepared.layout.arrange(batch, self._prepared.layout.targets)))

    def _check_averaged(self, averaged: bool) -> None:
        if averaged and not self._averages:
            raise BadInput("averaged=True evaluates an average of the weights, and the step keeps none; compile it with "
                           "ema_decay=0.999")

    # ------------------------------------------------------------------------------------------------------
    # State
    # ------------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Takes parameters, buffers and the optimizer's state from model and optimizer, as `compile` does."""
        self._session.session.initialize()
        self._take_over()

    def _take_over(self) -> None:
        self._read_alone.mark()
        _write_model(self._session, self._prepared.get_tensors())
        write_optimizer_state(self._prepared.options, self._session, self.optimizer.state)
        self._begin_average()

    def _begin_average(self) -> None:
        """Before its first update it is the model."""
        if self._averages:
            self._averages.write(self._prepared.get_tensors(), 0)
        if self._buffer_averages:
            self._buffer_averages.begin()

    def _read_variables(self, encoded: bool = True) -> Iterator[tuple[list[str], torch.Tensor]]:
        """The step's parameters and buffers, by their names; constants are as they were. What is frozen in codes comes
        widened, or is left out."""
        for variable in filter(_is_of_model, self._session.manifest["variables"]):
            if variable.get("restore") != "never" and (encoded or "encoding" not in variable):
                yield variable["names"], read_tensor(self._session.read_variable, variable)

    def _read_model(self) -> dict[str, torch.Tensor]:
        """All tensors of the model with the step's values, by all of their names in the program."""
        tensors = self._prepared.get_tensors()
        values = {id(tensors[name]): value for names, value in self._read_variables() for name in names if name in tensors}
        return {name: as_complex(values.get(id(tensor), tensor.detach()), tensor) for name, tensor in tensors.items()}

    def _read_optimizer(self) -> dict[nn.Parameter, dict[str, Any]]:
        """The optimizer's state in PyTorch's form, that of what is frozen for now included."""
        return {**self._parked, **read_optimizer_state(self._prepared.options, self._session)}

    def sync(self, optimizer: bool = True) -> None:
        """Puts parameters, buffers and, unless told otherwise, the optimizer's state back into model and optimizer.

        Parameters that `frozen_weights` keeps in few bits are left as the model has them.
        """
        state = self._read_optimizer() if optimizer else {}
        tensors = self._prepared.get_tensors()
        with torch.no_grad():
            for names, value in self._read_variables(encoded=False):
                for tensor in [tensors[name] for name in names if name in tensors][:1]:
                    tensor.copy_(as_complex(value, tensor).reshape(tensor.shape))
        self._read_alone.mark()
        for parameter, entry in state.items():
            self.optimizer.state[parameter] = entry

    def state_dict(self) -> dict[str, Any]:
        """Copies of all state, in PyTorch's forms: {"model": …, "optimizer": …, "step": N}.

        "model" goes into `model.load_state_dict`, "optimizer" into `optimizer.load_state_dict`. What a loss module has, or
        what model and loss capture and the step changes, is in "loss".
        """
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
        tensors, averages = self._prepared.get_tensors(), self._averages.read()
        if self._buffer_averages:
            averages = {**averages, **self._buffer_averages.values}
        values = {id(tensors[name]): value for name, value in averages.items()}
        state = {name: values.get(id(tensors.get(f"net.{name}")), value) for name, value in model.items()}
        return {"average": {name: value.clone() if torch.is_tensor(value) else value for name, value in state.items()},
                "average_updates": self._averages.updates}

    def _write_average(self, state: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        """A state without an average begins one with the model that it has."""
        if not self._averages:
            return
        given = {**tensors, **{f"net.{name}": value for name, value in state.get("average", {}).items()}}
        own = self._prepared.get_tensors()
        values = {id(tensor): given[name] for name, tensor in own.items() if name in given}
        self._averages.write({name: values.get(id(own[name]), own[name]) for name in self._averages.names}, state.get("average_updates", 0))
        if self._buffer_averages:
            self._buffer_averages.begin({name: values[id(tensor)] for name, tensor in own.items() if id(tensor) in values})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a `state_dict`, which changes neither model nor optimizer."""
        names = self._prepared.list_loss_names()
        tensors = {f"net.{name}": value for name, value in state["model"].items()}
        tensors.update((names[name], value) for name, value in state.get("loss", {}).items() if name in names)
        tensors.update([(self._prepared.shared[name], value) for name, value in tensors.items() if name in self._prepared.shared])
        lacking = [name for name, inner in names.items() if inner not in tensors]
        if lacking:
            raise BadInput(f"the state has no '{lacking[0]}' of the loss")
        for variable in filter(_is_of_model, self._session.manifest["variables"]):
            if variable.get("restore") is None and not tensors.keys() & set(variable["names"]) and any(name.startswith("net.") for name in variable["names"]):
                raise BadInput(f"the state has no '{variable['names'][0].removeprefix('net.')}'")
        # Codes of values that codes gave may differ by a last bit of their scales: the same ones stay.
        for names, value in self._read_variables():
            if all(name not in tensors or torch.equal(tensors[name], value) for name in names):
                tensors = {name: tensor for name, tensor in tensors.items() if name not in names}
        _write_model(self._session, tensors)
        entries = state["optimizer"]["state"]
        write_optimizer_state(self._prepared.options, self._session,
                              {parameter: entries[index] for index, parameter in number_parameters(self.optimizer) if index in entries})
        self._write_average(state, tensors)
        self._session.step = state["step"]

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes a checkpoint of memopt-run's, whole whatever happens meanwhile."""
        self._check_folder()
        with self._prepared.archive.words.spoken():
            self._session.save(folder)

    def load(self, folder: str | pathlib.Path) -> None:
        """Goes on from a checkpoint, of `save` or memopt-run's. Rates stay the optimizer's."""
        self._check_folder()
        with self._prepared.archive.words.spoken():
            self._session.load(folder)
        for program in self._programs:
            program.inputs.forget()

    def _check_folder(self) -> None:
        if self._buffer_averages:
            raise BadInput("a checkpoint folder has no averages of buffers (ema_use_buffers=True); keep step.state_dict() by torch.save")

    def close(self) -> None:
        """Frees the arenas and ends the threads, which otherwise happens with the last reference."""
        self._workspace.close()

    def __reduce__(self):
        raise BadInput("a memopt.Step has memory and threads of its own, and is neither copied nor pickled; take its state by "
                       "step.state_dict() or step.save(folder), and compile the step again")

    def __repr__(self) -> str:
        state = "closed" if self._session.is_closed else f"after {self.steps} steps"
        return f"<memopt.Step, {state}: {self.plan!r}>"


# ----------------------------------------------------------------------------------------------------------
# The functions
# ----------------------------------------------------------------------------------------------------------

def compile(model: nn.Module, loss_fn: Callable | None, batch: Any, optimizer: torch.optim.Optimizer | None = None, *,
            targets: Sequence[str] | None = None, device_memory: int | str | None = None, threads: int = 0,
            shapes: Sequence[Any] | None = None, new_shapes: str = "error", max_programs: int | None = None,
            ragged: str = "error", device: str = "cpu", **options: Any) -> Step:
    """Compiles the training step of a model on batches like `batch`.

    The batch is a tuple such as a DataLoader gives, or a mapping by name. Of a tuple the last entry goes to the loss,
    as `loss_fn(model(*inputs), target)`; `targets` names other entries (of a tuple: "input", or "input0", …, and
    "target"). With `loss_fn=None` the model gets the whole batch by keyword and returns its loss, as those of
    transformers do. Batches have the example's shapes, or one of those of the example batches in `shapes`: each shape is a
    program, and all have one state in one arena, which is as large as the largest program needs. `new_shapes="compile"`
    compiles a program when the first batch of another shape comes, within the arena where there is a budget; `max_programs`
    bounds them. `ragged="pad"` takes batches with fewer samples as well.

    `device_memory` is the budget, in bytes or as "8GiB"; `device` is "cpu" or "cuda"; `threads` bounds those of the run;
    in processes that torchrun has started each is a rank, with its own batches; other options are those of
    memopt-compile with underscores: `activation_checkpointing=["layer1.*"]`, `micro_batches=4`, `precision="bf16"`.

    A step does what model, loss and optimizer say when it is called. Where that is not what was compiled (another number
    that forward reads, another group of parameters, another shape of the batch), it raises `BadInput`, or with
    `new_shapes="compile"` compiles again and goes on with its state.

    Raises `DoesNotFit`, `Refused` for what cannot be exported as it trains, `BadInput` for what cannot be compiled.
    """
    settings = Settings(device_memory, options, threads, new_shapes, max_programs, ragged, device).check()
    return Step(make_models(Model(model, loss_fn, batch, optimizer, targets, ragged == "pad"), shapes), settings)


def make_models(first: Model, shapes: Sequence[Any] | None) -> list[Model]:
    """One for each shape of the example batches, that of the first example among them."""
    models = [first]
    for batch in shapes or ():
        example = first.layout.make_example(batch)
        if all(find_shapes(example) != find_shapes(model.example) for model in models):
            models.append(first.make_again(batch))
    return models


def frontier(model: nn.Module, loss_fn: Callable | None, batch: Any, optimizer: torch.optim.Optimizer | None = None, *,
             targets: Sequence[str] | None = None, points: int = 8, **options: Any) -> Frontier:
    """Predicted step time against bytes, at so many budgets from the smallest to the fastest plan's."""
    prepared = Model(model, loss_fn, batch, optimizer, targets)
    with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
        name = pathlib.Path(folder) / "frontier"
        text, _ = prepared.run_compiler([*prepared.get_words(options), f"--frontier={points}", f"--frontier-output={name}"])
        return Frontier(json.loads(name.with_suffix(".json").read_text()), text, name.with_suffix(".svg").read_text())


def estimate(model: nn.Module, loss_fn: Callable | None, batch: Any, optimizer: torch.optim.Optimizer | None = None, *,
             targets: Sequence[str] | None = None, **options: Any) -> Estimate:
    """Model state and activations by module, in seconds, without a plan."""
    prepared = Model(model, loss_fn, batch, optimizer, targets)
    text, report = prepared.run_compiler([*prepared.get_words(options), "--estimate"])
    return Estimate(report, text)
