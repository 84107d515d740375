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
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from . import internals
from .batches.layout import explain_sizes
from .errors import BadInput, LossNotFinite
from .optimizers import name_input, read_tensor
from .plan import Estimate, Frontier, Plan
from .steps.prepared import Model
from .steps.programs import EvaluationProgram, TrainingProgram, find_shapes
from .steps.settings import Settings
from .steps.step_evaluation import StepEvaluation
from .steps.step_programs import StepPrograms
from .steps.step_state import StepState

__all__ = ["Step", "compile", "estimate", "frontier", "make_models"]


class Step(StepPrograms, StepEvaluation, StepState):
    """A compiled training step with the model's parameters in it; `memopt.compile` makes it.

    Calling it trains on one batch and returns the loss. One thread at a time may use a step.
    """

    def __init__(self, models: Sequence[Model], settings: Settings):
        self._prepare(models, settings)
        self._compile(models)
        self.reload()

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

    @property
    def used_bytes(self) -> dict[str, dict[str, int]]:
        """By program and space, what each was seen to use; of a step that was compiled with `check_memory=True`."""
        return self._workspace.get_used_bytes()

    @contextlib.contextmanager
    def trace(self, path: str | os.PathLike, steps: int = 1) -> Iterator[None]:
        """While entered, records the timeline of training steps, at most so many, and writes it for Perfetto at the end: that
        of the program whose step was the last."""
        programs = list(self._programs)
        for program in programs:
            program.program.begin_trace(steps)
        try:
            yield
        finally:  # the timeline is wanted most when something went wrong
            for program in programs:
                program.program.write_trace(path if program is self._last else None)

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
            ragged: str = "error", device: str = "cpu", check_memory: bool = False, disk_folder: str | os.PathLike | None = None,
            rank_timeout: float | None = None, **options: Any) -> Step:
    """Compiles the training step of a model on batches like `batch`.

    The batch is a tuple such as a DataLoader gives, or a mapping by name. Of a tuple the last entry goes to the loss,
    as `loss_fn(model(*inputs), target)`; `targets` names other entries (of a tuple: "input", or "input0", …, and
    "target"). With `loss_fn=None` the model gets the whole batch by keyword and returns its loss, as those of
    transformers do. Batches have the example's shapes, or one of those of the example batches in `shapes`: each shape is a
    program, and all have one state in one arena, which is as large as the largest program needs. `new_shapes="compile"`
    compiles a program when the first batch of another shape comes, within the arena where there is a budget; `max_programs`
    bounds them. `ragged="pad"` takes batches with fewer samples as well.

    `device_memory` is the budget, in bytes or as "8GiB"; `device` is "cpu" or "cuda"; `threads` bounds those of the run;
    `check_memory=True` lets `Step.used_bytes` say what was used; `disk_folder` is where the file of what lies on disk is made;
    in processes that torchrun has started each is a rank, with its own batches, and waits for the others for `rank_timeout`
    seconds at most (300 where nothing is said); other options are those of
    memopt-compile with underscores: `activation_checkpointing=["layer1.*"]`, `micro_batches=4`, `precision="bf16"`.

    A step does what model, loss and optimizer say when it is called. Where that is not what was compiled (another number
    that forward reads, another group of parameters, another shape of the batch), it raises `BadInput`, or with
    `new_shapes="compile"` compiles again and goes on with its state.

    Raises `DoesNotFit`, `Refused` for what cannot be exported as it trains, `BadInput` for what cannot be compiled.
    """
    settings = Settings(device_memory, options, threads, new_shapes, max_programs, ragged, device, check_memory, disk_folder,
                        rank_timeout).check()
    return Step(make_models(Model(model, loss_fn, batch, optimizer, targets, ragged == "pad"), shapes), settings)


def make_models(first: Model, shapes: Sequence[Any] | None) -> list[Model]:
    """One for each shape of the example batches, that of the first example among them."""
    models = [first]
    for batch in shapes or ():
        example = first.layout.make_example(batch)
        if all(find_shapes(example) != find_shapes(model.example) for model in models):
            models.append(first.make_again(batch))
    counts = frozenset().union(*(model.options.own_counts for model in models))
    for model in models:
        model.options.own_counts = counts
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
