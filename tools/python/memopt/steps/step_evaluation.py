# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluation and prediction: programs over a step's own parameters, compiled with the first batch of a shape."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..batches.padding import Padding
from ..errors import BadInput
from ..optimizers import read_tensor
from .prepared import Archive
from .programs import EvaluationProgram, find_shapes
from .settings import BUILT_IN
from .workspace import Request, describe_shape

__all__ = ["StepEvaluation"]


class StepEvaluation:
    """The part of a `memopt.Step` that evaluates."""

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
                raise BadInput(BUILT_IN.format(change))
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
        self._take_written()
        arranged = self._prepared.layout.arrange(batch, optional)
        # A program that gathers averages beside the weights might not fit: they take the weights' place for so long.
        is_shared_out = averaged and self._averages.are_shared_out
        program = self._find_evaluation(arranged, averaged and not is_shared_out)
        with contextlib.ExitStack() as entered:
            if is_shared_out:
                entered.enter_context(self._averages.in_place_of_weights())
            if averaged and self._buffer_averages:
                entered.enter_context(self._buffer_averages.in_place_of_buffers())
            self._run_evaluation(program, arranged, optional)
        return program

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
        they are. On ranks that share out what it reads all call it, each with its own batch.
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
                           "ema_decay=0.999, or ema_uniform=True")
