# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several steps over one state: a generator's and a critic's, a warm-up's and that of everything.

    steps = memopt.compile_steps({"critic": memopt.Training(critic_loss, None, batch, optimizer=a),
                                  "actor": memopt.Training(actor_loss, None, other, optimizer=b)})
    steps["critic"](batch)

Parameters are shared by identity, whatever a module calls them; each optimizer trains what it has. An optimizer that
stands in two steps has one state and one count of steps; two optimizers over one parameter have a state each.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .errors import BadInput
from .plan import Plan
from .step import Step, make_models
from .step_counts import count_updates, find_own_counts
from .steps.prepared import Model
from .steps.settings import Settings
from .steps.workspace import Counter, Request, State, Workspace, check_program_name, describe_shape

__all__ = ["Steps", "Training", "compile_steps"]


class Training:
    """One of several steps: what `memopt.compile` takes, but for what is said of all."""

    def __init__(self, module: nn.Module, loss_fn: Callable | None, batch: Any, optimizer: torch.optim.Optimizer | None = None, *,
                 targets: Sequence[str] | None = None, shapes: Sequence[Any] | None = None, **options: Any):
        for name in ("device_memory", "threads", "new_shapes", "max_programs", "ragged", "device", "check_memory", "disk_folder",
                     "rank_timeout"):
            if name in options:
                raise BadInput(f"{name}= is said of all steps: give it to memopt.compile_steps")
        self.module, self.loss_fn, self.batch, self.optimizer = module, loss_fn, batch, optimizer
        self.targets, self.shapes, self.options = targets, shapes, options

    def make_models(self, pads: bool) -> list[Model]:
        return make_models(Model(self.module, self.loss_fn, self.batch, self.optimizer, self.targets, pads), self.shapes)


class _SharedStep(Step):
    """A step whose package and session are those of others as well."""

    def __init__(self, name: str, models: Sequence[Model], settings: Settings, owner: str):
        self._name, self._owner = name, owner
        self._prepare(models, settings)

    def join(self, models: Sequence[Model], workspace: Workspace, counter: Counter) -> None:
        names = {name for model in models for name in model.get_shared_tensors()}
        state = State(workspace.session, counter, names, self._owner)
        mine = {request.name for request in self._request(models)}
        self._adopt(models, workspace, state, [program for program in workspace.session.programs if program.name in mine])

    def _name_program(self, example: Mapping[str, torch.Tensor]) -> str:
        return f"{self._name}-{describe_shape(example)}"

    def _request(self, models: Sequence[Model]) -> list[Request]:
        requests = super()._request(models)
        return [requests[0]._replace(name=self._name)] if len(models) == 1 else requests

    def _get_owner(self) -> str:
        return self._owner

    def _list_unclipped(self) -> list[str]:
        return []  # They are other steps': who trains by turns clips what each optimizer has.

    def _name_evaluation(self, example: Mapping[str, torch.Tensor], averaged: bool) -> str:
        return f"{super()._name_evaluation(example, averaged)}-{self._name}"

    def _compile_again(self, change: str, own_counts: Collection[nn.Parameter] | None = None) -> None:
        raise BadInput(f"step '{self._name}': {change}; the program has that built in: make the steps again, with "
                       "memopt.compile_steps")

    def _reset_state(self) -> None:
        raise BadInput(f"step '{self._name}': the optimizer's state has been emptied, and steps that share a session cannot begin "
                       "it anew: make the steps again, with memopt.compile_steps")

    def reload(self) -> None:
        self._take_over()

    def save(self, folder: str | pathlib.Path) -> None:
        raise BadInput("a checkpoint folder has one optimizer's state; save steps.state_dict() with torch.save")

    def load(self, folder: str | pathlib.Path) -> None:
        raise BadInput("a checkpoint folder has one optimizer's state; give steps.load_state_dict what steps.state_dict() gave")

    def close(self) -> None:
        raise BadInput("the steps have one session: steps.close() ends it")


def _share_names(models: Mapping[str, Sequence[Model]]) -> None:
    """Gives each tensor one name in all steps, and each name one tensor."""
    names: dict[int, str] = {}  # of tensors
    taken: dict[str, int] = {}
    kept = []  # as long as their ids count
    for step, own in models.items():
        shared: dict[str, str] = {}
        called: dict[str, str] = {}
        for name, tensor in own[0].get_tensors().items():
            kept.append(tensor)
            known = names.get(id(tensor))
            if known is None:
                known = name if taken.setdefault(name, id(tensor)) == id(tensor) else f"{name}@{step}"
                taken[known] = id(tensor)
                names[id(tensor)] = known
            called[name] = known
            if known != name and name in own[0].archive.names:
                shared[name] = known
        for model in own:
            model.share_names(shared, called)


def _share_counts(models: Sequence[Model]) -> None:
    """Parameters have a count of their own in all programs that train them, or in none; those that some of an optimizer's steps
    leave out have one."""
    for optimizer in {id(model.options.optimizer): model.options.optimizer for model in models}.values():
        own = [model.options for model in models if model.options.optimizer is optimizer]
        trained = [set(options.trained) for options in own]
        every = set().union(*trained)
        counts = own[0].counts_updates and find_own_counts(count_updates(optimizer.state, every)) | (every - every.intersection(*trained))
        unsteady = frozenset().union(*(options.unsteady for options in own))
        for options in own:
            options.own_counts = unsteady.union(counts or ())


class Steps(Mapping):
    """Compiled steps by their names, over one state in one arena; `memopt.compile_steps` makes them."""

    def __init__(self, trainings: Mapping[str, Training], settings: Settings):
        if not trainings:
            raise BadInput("there are no steps; give a mapping of names to memopt.Training")
        for name, training in trainings.items():
            check_program_name(name)
            if not isinstance(training, Training):
                raise BadInput(f"step '{name}' is {type(training).__name__}, expected a memopt.Training")
        models = {name: training.make_models(settings.ragged == "pad") for name, training in trainings.items()}
        _share_names(models)
        owners = self._find_owners(models)
        _share_counts([model for own in models.values() for model in own])
        self._steps: dict[str, _SharedStep] = {}
        for name, own in models.items():
            options = {**settings.options, **trainings[name].options}
            self._steps[name] = _SharedStep(name, own, settings._replace(options=options), owners[name])
        requests = [request for name, step in self._steps.items() for request in step._request(models[name])]
        self._workspace = Workspace(requests, settings)
        self._workspace.session.initialize()
        counters: dict[str, Counter] = {}
        for name, step in self._steps.items():
            step.join(models[name], self._workspace, counters.setdefault(owners[name], Counter()))
            step.reload()

    @staticmethod
    def _find_owners(models: Mapping[str, Sequence[Model]]) -> dict[str, str]:
        """By step, the name of its optimizer's state; none where there is one optimizer."""
        first: dict[int, str] = {}
        owners = {name: first.setdefault(id(own[0].options.optimizer), name) for name, own in models.items()}
        return owners if len(first) > 1 else dict.fromkeys(owners, "")

    def __getitem__(self, name: str) -> Step:
        if name not in self._steps:
            raise BadInput(f"there is no step '{name}', only {', '.join(self._steps)}")
        return self._steps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def plan(self) -> Plan:
        """That of the program that needs most memory, which is what the arena has."""
        return self._workspace.plan

    @property
    def programs(self) -> dict[str, Plan]:
        """The plans of all programs by their names."""
        return dict(self._workspace.plans)

    @property
    def used_bytes(self) -> dict[str, dict[str, int]]:
        """By program and space, what each was seen to use; of steps that were compiled with `check_memory=True`."""
        return self._workspace.get_used_bytes()

    @property
    def package(self) -> pathlib.Path:
        """The folder of the package, which memopt-run takes, too."""
        return self._workspace.package

    def sync(self, optimizer: bool = True) -> None:
        """Puts all state back into models and optimizers."""
        for step in self._steps.values():
            step.sync(optimizer)

    def reload(self) -> None:
        """Takes all state from models and optimizers."""
        for step in self._steps.values():
            step.reload()

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """By step {"model", "optimizer", "step"}; what steps share is in each."""
        return {name: step.state_dict() for name, step in self._steps.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Goes on from a `state_dict`."""
        lacking = [name for name in self._steps if name not in state]
        if lacking:
            raise BadInput(f"the state has no step '{lacking[0]}'")
        for name, step in self._steps.items():
            step.load_state_dict(state[name])

    def close(self) -> None:
        """Frees the arena and ends the threads."""
        self._workspace.close()

    def __reduce__(self):
        raise BadInput("memopt.Steps have memory and threads of their own, and are neither copied nor pickled; take their state by "
                       "steps.state_dict()")

    def __repr__(self) -> str:
        return f"<memopt.Steps {', '.join(self._steps)}: {self.plan!r}>"


def compile_steps(trainings: Mapping[str, Training], *, device_memory: int | str | None = None, threads: int = 0,
                  new_shapes: str = "error", max_programs: int | None = None, ragged: str = "error", device: str = "cpu",
                  check_memory: bool = False, disk_folder: str | os.PathLike | None = None,
                  rank_timeout: float | None = None, **options: Any) -> Steps:
    """Compiles several steps over one state.

    A `Training` has what `memopt.compile` takes: module, loss_fn, example batch, optimizer, and options of its own.
    `device_memory` is the budget of all: the arena holds the state and the largest of the programs. Other options count
    for all steps.
    """
    return Steps(trainings, Settings(device_memory, options, threads, new_shapes, max_programs, ragged, device, check_memory,
                                     disk_folder, rank_timeout).check())
