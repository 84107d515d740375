# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over one state: a package, the session that it runs in, and what is added to it while it does.

The arena of the session holds the state once, and above it what the program at work makes; it is as large as the largest
program needs.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from ..errors import BadInput
from ..keywords import write_budget
from ..packages import Program as Source
from ..packages import build_package, find_device
from ..plan import Plan
from ..runtime import Program, Session, find_rank
from .prepared import Archive
from .settings import Settings

__all__ = ["Counter", "Request", "State", "Workspace", "describe_shape"]


class Request(NamedTuple):
    """A program to compile."""

    name: str
    archive: Archive
    words: Sequence[str]  #: options of memopt-compile
    optimizer: str = ""  #: whose state it has
    variables: Mapping[str, str] = MappingProxyType({})  #: what its variables are called among all programs

    def get_source(self) -> Source:
        return Source(self.name, self.archive.content, self.words, self.optimizer, self.variables)


class Counter:
    """The steps that an optimizer has made, whichever programs made them."""

    def __init__(self):
        self.value = 0


class State:
    """What a step has of a session: the variables of its model, those of its optimizer, and its count of steps."""

    def __init__(self, session: Session, counter: Counter, names: Sequence[str] | None = None, optimizer: str = ""):
        self.session, self.counter = session, counter
        own = None if names is None else set(names)
        front = f"optimizer@{optimizer}." if optimizer else "optimizer."

        def is_own(variable: Mapping) -> bool:
            if variable["role"] == "optimizer_state":
                return variable["name"].startswith(front)
            return own is None or variable["role"] not in ("parameter", "buffer") or not own.isdisjoint(variable["names"])
        self.manifest = {**session.manifest, "variables": [v for v in session.manifest["variables"] if is_own(v)]}

    @property
    def changes(self) -> int:
        """How often steps, or state that was loaded, have changed what the session has, whoever's steps they were."""
        return self.session.changes

    def note_change(self) -> None:
        self.session.changes += 1

    @property
    def step(self) -> int:
        return self.counter.value

    @step.setter
    def step(self, value: int) -> None:
        self.counter.value = value

    @property
    def is_closed(self) -> bool:
        return self.session.is_closed

    def read_variable(self, name: str, address: int) -> None:
        self.session.read_variable(name, address)

    def write(self, variable: str, value: Any) -> None:
        self.session.write(variable, value)

    def run(self, program: Program, batches: Sequence[Sequence[Any]]) -> None:
        """A step of the training."""
        self.session.step = self.counter.value
        self.note_change()
        try:
            program.run_step(batches)
        finally:
            self.counter.value = self.session.step

    def save(self, folder: str | pathlib.Path) -> None:
        self.session.step = self.counter.value
        self.session.save(folder)

    def load(self, folder: str | pathlib.Path) -> None:
        self.note_change()
        self.session.load(folder)
        self.counter.value = self.session.step


def describe_shape(batch: Mapping[str, torch.Tensor]) -> str:
    """A name for batches of this shape: that of the first entry that has one."""
    shape = next((tuple(value.shape) for value in batch.values() if value.dim()), ())
    return "x".join(map(str, shape)) or "scalar"


class Workspace:
    """A package of several programs at work."""

    def __init__(self, requests: Sequence[Request], settings: Settings):
        device, device_memory = settings.device, settings.device_memory
        _, ranks = find_rank()
        self._target = ["--target=cuda"] if device == "cuda" else []
        if self._target and not any(word.startswith("--target-features") for request in requests for word in request.words):
            self._target.append(f"--target-features={find_device()}")
        own = [*write_budget(device_memory), *([f"--ranks={ranks}"] if ranks > 1 else []), *self._target]
        self._requests = [request._replace(words=[*request.words, *own]) for request in requests]
        compiled = self._build(self._requests)
        # Ranks share memory of one size.
        self._has_budget, self._ranks = device_memory is not None or ranks > 1, ranks
        self._is_checked = settings.check_memory
        #: The folder of the package, which memopt-run takes, too; and whether it was compiled before.
        self.package, self.was_cached = compiled.path, compiled.was_cached
        self.remarks = compiled.report.get("remarks", ())
        self.session = Session(compiled.path, threads=settings.threads, device=device, joins_ranks=ranks > 1,
                               check_memory=settings.check_memory, disk_folder=settings.disk_folder,
                               rank_seconds=settings.rank_timeout or 0)
        #: By name of a program.
        self.plans: dict[str, Plan] = {}
        for request, program, report in zip(self._requests, self.session.programs, compiled.report["programs"]):
            self._add_plan(request, program, report)

    @staticmethod
    def _build(requests: Sequence[Request], state: pathlib.Path | None = None):
        with requests[0].archive.words.spoken():
            return build_package([request.get_source() for request in requests], state)

    def _add_plan(self, request: Request, program: Program, report: Mapping) -> None:
        self.plans[program.name] = Plan(program.manifest, report, request.archive.words.translate)

    def get_used_bytes(self) -> dict[str, dict[str, int]]:
        """By program and space, what each was seen to use."""
        if not self._is_checked:
            raise BadInput("what a step uses is observed with check_memory=True, a keyword of memopt.compile")
        return {program.name: program.used_bytes for program in self.session.programs}

    @property
    def plan(self) -> Plan:
        """That of the program that needs most; its peak is that of all."""
        return Plan.join(list(self.plans.values()))

    def choose_name(self, name: str) -> str:
        """One that no program has."""
        number, chosen = 1, name
        while chosen in self.plans:
            number += 1
            chosen = f"{name}-{number}"
        return chosen

    def add(self, request: Request) -> Program:
        """Compiles one more program, within the arena where that was to keep to a budget."""
        budget = write_budget(self._count_announced()) if self._has_budget else []
        ranks = [f"--ranks={self._ranks}"] if self._ranks > 1 and "--mode=eval" not in request.words else []
        request = request._replace(words=[*request.words, *budget, *ranks, *self._target])
        compiled = self._build([request], self.package)
        program = self.session.add(compiled.path)
        self._add_plan(request, program, compiled.report["programs"][0])
        return program

    def _count_announced(self) -> int:
        """What the arena has, as a budget: of a GPU that covers its context as well."""
        target = self.session.manifest["target"]
        return self.plan.peak_bytes["device"] + (target.get("overhead_bytes", 0) if isinstance(target, Mapping) else 0)

    def close(self) -> None:
        self.session.close()


def check_program_name(name: str) -> str:
    """Programs and optimizers are named in files, and in messages."""
    if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum():
        raise BadInput(f"a step's name has letters, digits, - and _, found {name!r}")
    return name
