# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints of memopt-run as the state of a PyTorch model and its optimizer, and the other way round.

    state = memopt.read_checkpoint("run", model, optimizer)       # what memopt-run --save=run has written
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    ...                                                           # PyTorch goes on
    memopt.write_checkpoint("back", model, optimizer)             # for memopt-run --load=back

Reading needs the files alone, and the package safetensors: neither a package of memopt's nor its tools. Writing goes through
the runtime's library, which replaces a checkpoint as a whole or not at all, and leaves kept ones as they are.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from .errors import BadInput, Unavailable
from .optimizers import Counterpart, find_counterpart, make_torch_state, name_numbers, number_parameters
from .runtime import write_checkpoint_files
from .step_counts import OWN_COUNT, count_updates, find_own_counts, read_own_counts, share_count

__all__ = ["find_own_counts_of", "read_checkpoint", "write_checkpoint"]

_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
#: Of the scale of the loss, which PyTorch keeps in a torch.amp.GradScaler.
_SCALE, _SKIPPED = "loss_scale", "loss_scale.skipped_steps"


def _import_safetensors():
    try:
        import safetensors.torch
    except ImportError as error:
        raise Unavailable("checkpoints are safetensors files: pip install safetensors") from error
    return safetensors.torch


# ----------------------------------------------------------------------------------------------------------
# From memopt
# ----------------------------------------------------------------------------------------------------------

def _find(folder: pathlib.Path, name: str) -> pathlib.Path:
    """A file of a save that was stopped while its files moved lies one folder deeper."""
    saved = folder / ".saved" / name
    path = saved if saved.exists() else folder / name
    if not path.exists():
        raise BadInput(f"'{folder}' is no checkpoint of a training: it has no {name}")
    return path


def _resolve(folder: pathlib.Path) -> pathlib.Path:
    """The folder that pointer files lead to: each has the name of a folder beside it."""
    place = folder
    for _ in range(8):
        if place.is_dir():
            if any((place / hidden / name).exists() for hidden in ("", ".saved") for name in (_MODEL, _STATE)) \
                    or not (place / "latest").exists():
                return place
            place = place / "latest"
        elif not place.is_file():
            return place
        else:
            name = place.read_bytes()[:4097].rstrip().decode(errors="replace")
            if not name or len(name) > 4096 or name in (".", "..") or set("/\n\0") & set(name):
                raise BadInput(f"'{place}' is no checkpoint: expected a folder, or a file with the name of a folder beside it")
            place = place.parent / name
    raise BadInput(f"'{folder}': its pointer files lead in a circle")


def _read_state(folder: pathlib.Path) -> dict:
    path = _find(folder, _STATE)
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        version = (state["format"], state["version"])
        state["step"] = int(state["step"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"'{path}' is no state of a training: {error}") from error
    if version != ("memopt-checkpoint", 1):
        raise BadInput(f"'{path}' holds '{version[0]}' version {version[1]}, expected 'memopt-checkpoint' version 1")
    return state


def _list_fronts(names: Iterable[str]) -> list[str]:
    """What may stand before the model's names: nothing, or the name of a module that holds the model."""
    return ["", *sorted({name.partition(".")[0] + "." for name in names})]


def _read_model(folder: pathlib.Path, model: nn.Module, has_base: bool = False) -> dict[str, torch.Tensor]:
    """With a base, frozen parameters that the file leaves out are the model's own."""
    path = _find(folder, _MODEL)
    tensors = _import_safetensors().load_file(path)
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    wanted = {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}
    front = max(_list_fronts(tensors), key=lambda front: sum(front + name in tensors for name in wanted))
    for name, value in wanted.items():
        found = tensors.get(front + name)
        if found is None and has_base and name in frozen:
            tensors[front + name] = found = value
        if found is None or found.shape != value.shape:
            raise BadInput(f"'{path}' has '{front}{name}' as {list(found.shape)}, the model as {list(value.shape)}"
                           if found is not None else f"'{path}' lacks '{front}{name}', which the model has")
    return {name: tensors[front + name] for name in wanted}


def _read_slots(path: pathlib.Path, counterpart: Counterpart, model: nn.Module,
                tensors: Mapping[str, torch.Tensor]) -> dict[nn.Parameter, dict[str, torch.Tensor]]:
    """By parameter, its state by torch.optim's keys."""
    places: dict[str, tuple[str, str]] = {}
    for name, tensor in tensors.items():
        if name.partition(".")[0] == _SCALE:
            continue
        front = next((f"optimizer.{slot}." for slot in counterpart.keys if name.startswith(f"optimizer.{slot}.")), None)
        if front is None or not (tensor.is_floating_point() or front == f"optimizer.{OWN_COUNT}."):
            raise BadInput(f"'{path}' has '{name}', a form of {counterpart.name}'s state that torch.optim does not have: "
                           "state in 8 bits (--optim-bits=8) stays in memopt")
        places[name] = (counterpart.keys[front.split(".")[1]], name.removeprefix(front))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    fronts = _list_fronts(parameter for _, parameter in places.values())
    front = max(fronts, key=lambda front: sum(parameter.startswith(front) and parameter.removeprefix(front) in parameters
                                              for _, parameter in places.values()))
    slots: dict[nn.Parameter, dict[str, torch.Tensor]] = {}
    for name, (key, parameter) in places.items():
        owner = parameters.get(parameter.removeprefix(front)) if parameter.startswith(front) else None
        if owner is None:
            raise BadInput(f"'{path}' has '{name}', but the model has no parameter '{parameter.removeprefix(front)}'")
        slots.setdefault(owner, {})[key] = tensors[name]
    return slots


def read_checkpoint(folder: str | os.PathLike, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state in a checkpoint of memopt-run, `Step.save` or `write_checkpoint`, as `Step.state_dict` gives it:
    {"model": …, "optimizer": …, "step": N}, for `model.load_state_dict` and `optimizer.load_state_dict`.

    `model` is the one that was exported, and `optimizer` of the kind that was compiled; neither is changed. Settings
    and rates are the optimizer's own. Refused: a checkpoint of another optimizer, one that torch.optim does not have,
    and state in 8 bits. State in 16 bits comes back in the parameter's type. The scale of the loss is left out.
    """
    folder, counterpart = _resolve(pathlib.Path(folder)), find_counterpart(optimizer)
    state = _read_state(folder)
    if state.get("optimizer") != counterpart.name:
        raise BadInput(f"'{folder}' has the state of '{state.get('optimizer')}', the optimizer given is "
                       f"{type(optimizer).__name__}: '{counterpart.name}'")
    path = _find(folder, _OPTIMIZER)
    tensors = _import_safetensors().load_file(path)
    slots = _read_slots(path, counterpart, model, tensors)
    steps = state["step"] - int(tensors.get(_SKIPPED, torch.tensor(0)))
    made = make_torch_state(optimizer, counterpart, slots, steps)
    result = optimizer.state_dict()
    result["state"] = {index: made[parameter] for index, parameter in number_parameters(optimizer) if parameter in made}
    return {"model": _read_model(folder, model, "base" in state), "optimizer": result, "step": state["step"]}


def find_own_counts_of(folder: str | os.PathLike, parameters: Mapping[str, nn.Parameter]) -> set[nn.Parameter]:
    """The parameters that have had another number of updates in a checkpoint than others; of a folder that is none, nothing."""
    try:
        folder = _resolve(pathlib.Path(folder))
        return set(read_own_counts(_find(folder, _OPTIMIZER), _read_state(folder)["step"], parameters))
    except (BadInput, OSError, ValueError, KeyError, IndexError, TypeError):
        return set()  # the runtime says what is wrong


# ----------------------------------------------------------------------------------------------------------
# To memopt
# ----------------------------------------------------------------------------------------------------------

def _describe_run(counterpart: Counterpart, optimizer: torch.optim.Optimizer, steps: int) -> dict:
    """A run that begins its data anew, at the rate that the optimizer has."""
    schedule = {"kind": "constant", "rate": float(optimizer.param_groups[0]["lr"]), "min_rate": 0.0, "warmup_steps": 0,
                "total_steps": 0, "step_size": 1, "gamma": 0.1}
    return {"format": "memopt-checkpoint", "version": 1, "step": steps, "data_position": 0, "seed": 0,
            "optimizer": counterpart.name, "schedule": schedule, "numbers": name_numbers(optimizer)}


def _get_state_type(counterpart: Counterpart, key: str, parameter: nn.Parameter) -> torch.dtype:
    """Of state in memopt, where --optim-bits does not say otherwise."""
    return torch.float64 if key in counterpart.numbers or parameter.dtype == torch.float64 else torch.float32


def write_checkpoint(folder: str | os.PathLike, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Writes the state of model and optimizer as a checkpoint, from which `memopt-run --load` and `Step.load` go on.

    Names are the model's own. The data begins anew, and the rate is that of the optimizer's first group. The rates of
    further groups are not written: `memopt-run` refuses to go on with them, `Step.load` takes them from its optimizer.
    Parameters that have had fewer updates than others have a count of their own in it (`--param-group=NAME:step-count=own`),
    those that have had none nothing else.
    Refused: an optimizer without a counterpart, one that has made no step, and a folder that a run saves to now. A failure, a
    full disk say, leaves the checkpoint that was there.
    """
    folder, counterpart = pathlib.Path(folder), find_counterpart(optimizer)
    names = {parameter: name for name, parameter in reversed(list(model.named_parameters(remove_duplicate=False)))}
    # Some optimizers begin with the state of what has never had a gradient.
    state = {parameter: entry for parameter, entry in optimizer.state.items()
             if parameter in names and entry and int(entry.get("step", 1))}
    if not state and counterpart.counts_steps:
        raise BadInput("the optimizer has made no step with the model: there is no state to write; begin with "
                       "memopt-run --weights=FILE")
    new = [parameter for _, parameter in number_parameters(optimizer)
           if parameter in names and parameter.requires_grad and parameter not in state] if state else []
    counts = count_updates(state, [*state, *new])
    # Of what has had no update there is a count alone: one that differs where it matters how many there were.
    own = find_own_counts(counts) if counterpart.counts_updates(optimizer) else frozenset()
    noted = {parameter: counts[parameter] if parameter in own else share_count(counts) for parameter in (*own, *new)}
    tensors = {f"optimizer.{slot}.{names[parameter]}": entry[key].to(_get_state_type(counterpart, key, parameter))
               for parameter, entry in state.items() for slot, key in counterpart.state.items()
               if torch.is_tensor(entry.get(key))}
    tensors.update({f"optimizer.{OWN_COUNT}.{names[parameter]}": torch.tensor(count) for parameter, count in noted.items()})
    run = _describe_run(counterpart, optimizer, share_count(counts))
    folder.parent.mkdir(parents=True, exist_ok=True)
    on_host = lambda tensors: {name: value.detach().cpu() for name, value in tensors.items() if torch.is_tensor(value)}
    write_checkpoint_files(folder, on_host(model.state_dict()), on_host(tensors), json.dumps(run))
