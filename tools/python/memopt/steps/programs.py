# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of a step: those that train on batches of one shape each, and those that evaluate them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..batches.padding import MASK, Padding
from ..runtime import Program
from ..watching.watch import Look
from .inputs import OptimizerInputs
from .prepared import Archive, Model

__all__ = ["EvaluationProgram", "Shapes", "TrainingProgram", "describe_shapes", "find_shapes", "list_shapes"]

#: The shapes of a program's inputs, by their names.
Shapes = dict[str, tuple[int, ...]]


def list_shapes(manifest: Mapping) -> Shapes:
    """Those of the batches that a program takes."""
    parts = manifest.get("micro_batches", 1)
    return {tensor["name"]: tuple(size * parts if place == tensor.get("batch_dim") else size
                                  for place, size in enumerate(tensor["shape"])) for tensor in manifest["inputs"]}


def find_shapes(arranged: Mapping[str, Any]) -> Shapes:
    """Those of a batch; entries that are no arrays have none."""
    return {name: tuple(map(int, value.shape)) for name, value in arranged.items() if hasattr(value, "shape")}


def describe_shapes(shapes: Shapes) -> str:
    """input [4, 16], target [4, 16]"""
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


class _ShapedProgram:
    def __init__(self, archive: Archive, program: Program):
        self.archive, self.program = archive, program
        self.shapes = {name: shape for name, shape in list_shapes(program.manifest).items() if name != MASK}
        self.loss = next((output["name"] for output in program.manifest["outputs"] if output["role"] == "loss"), None)

    def takes(self, shapes: Shapes) -> bool:
        """Whether it is the program of such batches; of entries that are left out nothing is known."""
        return all(shapes.get(name, shape) == shape for name, shape in self.shapes.items())

    def count_samples(self) -> int | None:
        return next((self.shapes[tensor["name"]][tensor["batch_dim"]] for tensor in self.program.manifest["inputs"]
                     if "batch_dim" in tensor and tensor["name"] in self.shapes), None)

    def has_fewer_samples(self, shapes: Shapes) -> bool:
        """Whether a batch of these shapes is one of this program's with some samples left out."""
        counts = set()
        for tensor in self.program.manifest["inputs"]:
            own, theirs = self.shapes.get(tensor["name"]), shapes.get(tensor["name"])
            if own is None or theirs is None:  # a mask; predictions need no targets
                continue
            if len(own) != len(theirs):
                return False
            differing = [place for place, (a, b) in enumerate(zip(own, theirs)) if a != b]
            if differing and differing != [tensor.get("batch_dim")]:
                return False
            if "batch_dim" in tensor:
                counts.add(theirs[tensor["batch_dim"]])
        return len(counts) == 1 and 0 < counts.pop() < (self.count_samples() or 0)

    def pads(self, arranged: Mapping[str, Any]) -> bool:
        """Whether it takes a batch with fewer samples, which changes nothing but the number that means divide by."""
        padding = self.archive.padding
        return (isinstance(padding, Padding) and self.has_fewer_samples(find_shapes(arranged))
                and padding.holds(padding.count_samples(arranged)))

    def arrange(self, arranged: Sequence[Mapping[str, Any]], fillers: Mapping[str, Any]) -> list[list[Any]]:
        """Batches in the order of the program's inputs."""
        names = [tensor["name"] for tensor in self.program.manifest["inputs"]]
        if isinstance(self.archive.padding, Padding):
            arranged = list(map(self.archive.padding.fill, arranged))
        return [[batch[name] if name in batch else fillers[name] for name in names] for batch in arranged]


class TrainingProgram(_ShapedProgram):
    """A training step for batches of one shape."""

    def __init__(self, prepared: Model, program: Program, count: int):
        super().__init__(prepared.archive, program)
        self.prepared = prepared
        self.count = count  #: of the batches that a step takes
        self.inputs = OptimizerInputs(prepared.options, program)
        self.look: Look | None = None  #: at all that the step was compiled for

    def takes_all(self, arranged: Sequence[Mapping[str, Any]], pads: bool = False, any_count: bool = False) -> bool:
        """Whether it is the program of a step on these batches; with `pads` some may have fewer samples."""
        return (any_count or len(arranged) == self.count) and all(
            self.takes(find_shapes(batch)) or pads and self.pads(batch) for batch in arranged)


class EvaluationProgram(_ShapedProgram):
    """The model in evaluation mode, for batches of one shape; `example` is one."""

    def __init__(self, archive: Archive, program: Program, example: Mapping[str, torch.Tensor], averaged: bool):
        super().__init__(archive, program)
        self.example, self.averaged = example, averaged
        self.outputs = [output for output in program.manifest["outputs"] if output["role"] != "loss"]
