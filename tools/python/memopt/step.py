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
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from . import captures, export, internals
from .batches import BatchLayout, explain_sizes
from .differences import find_draws, warn_of_differences
from .errors import BadInput, LossNotFinite
from .guards import Guards, TensorInputs, list_tensor_places
from .inputs import Buffers, OptimizerInputs
from .keywords import write_budget, write_options
from .optimizers import (OptimizerOptions, as_complex, name_input, number_parameters, read_optimizer_state, read_tensor, unwrap_optimizer,
                         write_optimizer_state, write_tensor)
from .packages import CompiledPackage, build_package
from .plan import Estimate, Frontier, Plan
from .reads import observed
from .runtime import Session
from .tools import run_compiler
from .transfer import move_state
from .words import ProgramWords

__all__ = ["Step", "compile", "estimate", "frontier"]

#: What evaluation has use for.
_EVALUATION_OPTIONS = {"precision", "run-threads", "target-features", "machine-profile", "threads", "reference",
                       "efficient-conv-bn-eval", "instrument", "cache"}


# ----------------------------------------------------------------------------------------------------------
# From a model to an archive
# ----------------------------------------------------------------------------------------------------------

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


class _Archive:
    """A module traced without its weights: the bytes of a .pt2, the names that the program reads and writes, what it was
    traced for, and the words for all that.

    Lines of the source are no part of the bytes: a comment that moves a model down compiles nothing anew.
    """

    def __init__(self, module: nn.Module, example: Mapping[str, torch.Tensor], training: bool):
        watch = observed(module.modules())
        program = export.export_program(module, example, training, watch)
        self.guards = Guards(module, watch.reads, training)
        self.draws = find_draws(program)
        self.written = set(program.graph_signature.buffers_to_mutate.values())
        read = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
        self.names = {spec.target for spec in program.graph_signature.input_specs if spec.target and spec.arg.name in read}
        self.words = ProgramWords(module, export.find_lines(program))
        self.checked = getattr(module, "checked", ())
        with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
            path = pathlib.Path(folder) / "step.pt2"
            export.save(program, path, weights=False, training=training, lines={})
            self.content = path.read_bytes()

    def build(self, words: Sequence[str]) -> CompiledPackage:
        with self.words.spoken():
            return build_package(self.content, words)


class _Model:
    """A model with its loss and optimizer, ready to be compiled."""

    def __init__(self, model: nn.Module, loss_fn: Callable | None, batch: Any, optimizer: torch.optim.Optimizer | None,
                 targets: Sequence[str] | None):
        if optimizer is None:
            raise BadInput("a training step needs an optimizer, such as optimizer=torch.optim.SGD(model.parameters(), lr=0.1)")
        if not isinstance(model, nn.Module):
            raise BadInput(f"the model is {type(model).__name__}, expected a torch.nn.Module")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise BadInput(f"optimizer={optimizer!r}: expected an optimizer of torch.optim or memopt.optim, made from "
                           "model.parameters()")
        optimizer = unwrap_optimizer(optimizer)
        self._made_from = (model, loss_fn, batch, optimizer, targets)
        self.layout = BatchLayout(batch, targets, has_loss=loss_fn is not None)
        self.example = self.layout.make_example(batch)
        self.module = self._wrap(model, loss_fn, return_prediction=False)
        with _trained_alone(self.module, optimizer):
            self.archive = _Archive(self.module, self.example, training=True)
        parameters = dict(self.module.named_parameters(remove_duplicate=False))
        self.options = OptimizerOptions(optimizer, parameters, self.archive.names)

    def make_again(self, batch: Any = None) -> _Model:
        """As things are now, for batches of another shape if one is given."""
        model, loss_fn, example, optimizer, targets = self._made_from
        return _Model(model, loss_fn, example if batch is None else batch, optimizer, targets)

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
                yield name, holder, key

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

    def get_words(self, device_memory: int | str | None, options: Mapping[str, Any]) -> list[str]:
        return self.options.get_words() + write_options(options) + write_budget(device_memory)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by all of their names in the program."""
        return {**dict(self.module.named_parameters(remove_duplicate=False)),
                **dict(self.module.named_buffers(remove_duplicate=False))}

    def run_compiler(self, words: Sequence[str]) -> tuple[str, dict]:
        with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
            path = pathlib.Path(folder) / "step.pt2"
            path.write_bytes(self.archive.content)
            with self.archive.words.spoken():
                return run_compiler([str(path), *words])


# ----------------------------------------------------------------------------------------------------------
# The step
# ----------------------------------------------------------------------------------------------------------

def _is_of_model(variable: Mapping) -> bool:
    return variable["role"] in ("parameter", "buffer")


def _write_model(session: Session, tensors: Mapping[str, torch.Tensor]) -> None:
    """Gives parameters and buffers of a session their values, by any of their names."""
    for variable in filter(_is_of_model, session.manifest["variables"]):
        found = [tensors[name] for name in variable["names"] if name in tensors]
        if found and variable.get("restore") != "never":
            write_tensor(session, variable, found[0])


_BUILT_IN = ("{}; the program has that built in: compile the step again, or give new_shapes=\"compile\", which does so by "
             "itself")


class Step:
    """A compiled training step with the model's parameters in it; `memopt.compile` makes it.

    Calling it trains on one batch and returns the loss. One thread at a time may use a step.
    """

    def __init__(self, prepared: _Model, device_memory: int | str | None, options: Mapping[str, Any], threads: int,
                 new_shapes: str = "error"):
        if new_shapes not in ("error", "compile"):
            raise BadInput(f"new_shapes is 'error' or 'compile', found {new_shapes!r}")
        self._device_memory, self._options, self._threads = device_memory, dict(options), threads
        self._compiles_again = new_shapes == "compile"
        self._evaluation_words = ["--mode=eval", *write_options(options, _EVALUATION_OPTIONS)]
        self._has_own_size = options.get("batch_size") is not None
        self._evaluation: Session | None = None
        self._evaluation_archive: _Archive | None = None
        self._parked: dict[nn.Parameter, dict[str, Any]] = {}  # state of what is frozen for now
        self._max_grad_norm: float | None = None
        self._adopt(prepared, *self._open(prepared))
        self.reload()

    def _open(self, prepared: _Model) -> tuple[CompiledPackage, Session]:
        """Compiles the step; its variables have no values as yet."""
        compiled = prepared.archive.build(prepared.get_words(self._device_memory, self._options))
        session = Session(compiled.path, threads=self._threads)
        with prepared.archive.words.spoken():
            prepared.options.check_program(session.manifest)
        return compiled, session

    def _adopt(self, prepared: _Model, compiled: CompiledPackage, session: Session) -> None:
        self._prepared, self._session = prepared, session
        #: The folder of the package, which memopt-run takes, too; and whether it was compiled before.
        self.package, self.was_cached = compiled.path, compiled.was_cached
        self.plan = Plan(session.manifest, compiled.report, prepared.archive.words.translate)
        self._loss = next(output["name"] for output in session.manifest["outputs"] if output["role"] == "loss")
        self._inputs = OptimizerInputs(prepared.options, session)
        by_name = {name: variable for variable in session.manifest["variables"] if _is_of_model(variable)
                   for name in variable["names"]}
        self._read_alone = TensorInputs((by_name[name]["name"], holder, key) for name, holder, key in prepared.list_read_alone()
                                        if name in by_name)
        #: The buffers that the step reads, by the model's names: `step.buffers["beta"] = 0.3`.
        self.buffers = Buffers(session, {name.removeprefix("net.").removeprefix("captured."): variable["name"]
                                         for name, variable in by_name.items() if variable["role"] == "buffer"},
                               self._write_tensor)
        self._forget_evaluation()
        self._written: dict[str, torch.Tensor] = {}  # constants that somebody has written to, by name
        draws = [] if self._options.get("dropout") in ("off", False) else prepared.archive.draws
        guards = prepared.archive.guards
        warn_of_differences(draws, guards.turned, guards.counters, compiled.report.get("remarks", ()))

    def _write_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Gives a variable of the step a value, and the evaluation with its next use."""
        variable = next(variable for variable in self._session.manifest["variables"] if variable["name"] == name)
        write_tensor(self._session, variable, tensor)
        if variable.get("restore") == "never":
            self._written[name] = tensor.detach().clone()
        self._is_evaluation_old = True

    def _forget_evaluation(self) -> None:
        if self._evaluation is not None:
            self._evaluation.close()
        self._evaluation = None
        self._is_evaluation_old = True

    # ------------------------------------------------------------------------------------------------------
    # What has changed since it was compiled
    # ------------------------------------------------------------------------------------------------------

    def _meet_changes(self, batches: Sequence[Any]) -> None:
        """Sees to it that the step is the one that model, loss and optimizer ask for now."""
        if not self._read_alone.hold():
            self._take_tensors()
        prepared = self._prepared
        if not (prepared.archive.guards.hold() and prepared.options.hold()):
            change = prepared.options.find_change() or prepared.archive.guards.find_change()
            if change is not None:
                self._compile_again(str(change))
        if not self._inputs.are_written():
            refusal = prepared.options.find_change() or self._inputs.find_refusal()
            if refusal is not None:
                self._compile_again(refusal)
            self._inputs.write()
        if self._compiles_again and not self._has_own_size and batches and not self._has_shapes(batches[0]):
            self._compile_again("the batch has other shapes", batches[0])
            self._inputs.write()

    def _take_tensors(self) -> None:
        """What has been written to tensors of the model that the step only reads."""
        for name, tensor in self._read_alone.take_changes():
            self._write_tensor(name, tensor)

    def _has_shapes(self, batch: Any) -> bool:
        arranged, example = self._prepared.layout.arrange(batch), self._prepared.example
        return all(not hasattr(value, "shape") or tuple(value.shape) == tuple(example[name].shape)
                   for name, value in arranged.items())

    def _compile_again(self, change: str, batch: Any = None) -> None:
        """With all state, if that was allowed."""
        if not self._compiles_again:
            raise BadInput(_BUILT_IN.format(change))
        prepared = self._prepared.make_again(batch)
        compiled, session = self._open(prepared)
        try:
            session.initialize()
            _write_model(session, prepared.get_tensors())
            self._parked = move_state(self._session, self._prepared.options, session, prepared.options, self._parked)
        except BaseException:
            session.close()
            raise
        old, limit = self._session, self._max_grad_norm
        self._adopt(prepared, compiled, session)
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
        return next((tensor["shape"][tensor["batch_dim"]] * self._session.manifest.get("micro_batches", 1)
                     for tensor in self._session.manifest["inputs"] if "batch_dim" in tensor), None)

    @property
    def steps(self) -> int:
        """Steps done, those that the optimizer came with included."""
        return self._session.step

    @property
    def seconds(self) -> float:
        """How long the last step took, without the copy of its batch."""
        return self._session.step_seconds

    @property
    def gradient_norm(self) -> float | None:
        """The norm of all gradients of the last step, before clipping; None without `max_grad_norm`, whose value inf
        asks for nothing else."""
        found = [variable for variable in self._session.manifest["variables"]
                 if variable["role"] == "gradient" and variable["name"] == "gradient_norm"]
        return read_tensor(self._session.read_variable, found[0]).item() if found else None

    @property
    def learning_rates(self) -> list[float]:
        """Those of the last step, by group of the optimizer."""
        return list(self._inputs.rates) or self._prepared.options.get_rates()

    @property
    def max_grad_norm(self) -> float | None:
        """The norm that gradients are scaled down to; writing it counts from the next step on. None without clipping."""
        return self._max_grad_norm if self._max_grad_norm is not None else self._options.get("max_grad_norm")

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        name = name_input("max_grad_norm", "lr")
        if not any(variable["name"] == name for variable in self._session.manifest["variables"]):
            raise BadInput("the step was compiled without clipping; give compile a max_grad_norm above 0 that is not inf")
        if not value > 0:
            raise BadInput(f"max_grad_norm is a number above 0, found {value!r}")
        self._session.set_rate(name, float(value))
        self._max_grad_norm = value

    def __call__(self, *batches: Any) -> float:
        """Trains on a batch, with the rates that the optimizer's groups have now; on `accumulative_counts` batches
        where the step was compiled for several. Returns the loss.

        A loss that is not finite raises `LossNotFinite` and changes nothing.
        """
        self._meet_changes(batches)
        self._run(self._session, batches)
        self._is_evaluation_old = True
        internals.mark_stepped(self.optimizer)
        return self._session.read_scalar(self._loss)

    def _run(self, session: Session, batches: Sequence[Any], fillers: Mapping[str, Any] = MappingProxyType({})) -> None:
        names = [tensor["name"] for tensor in session.manifest["inputs"]]
        optional = self._prepared.layout.targets if fillers else ()
        arranged = [self._prepared.layout.arrange(batch, optional) for batch in batches]
        archive = self._prepared.archive if session is self._session else self._evaluation_archive
        try:
            with archive.words.spoken():
                session.run_step([[batch[name] if name in batch else fillers[name] for name in names] for batch in arranged])
        except BadInput as error:
            self._explain(error, session, arranged)
            raise

    def _explain(self, error: BadInput, session: Session, batches: Sequence[Mapping[str, Any]]) -> None:
        """Puts into words that a batch has another size; an evaluation is no step with a number."""
        trains, manifest = session is self._session, session.manifest
        said = next(filter(None, (explain_sizes(manifest["inputs"], manifest.get("micro_batches", 1), batch, trains)
                                  for batch in batches)), None)
        front = f"step {error.step}: " if error.step else ""
        if said and "expected" in error.message:
            error.rephrase(lambda text: f"{front}{said}" if text == error.message else text)
        checked = (self._prepared.archive if trains else self._evaluation_archive).checked
        if checked and (isinstance(error, LossNotFinite) or " holds " in error.message):
            error.rephrase(lambda text: text if text == error.message else "\n".join(
                filter(None, (text, "a check that fails makes the loss nan, too; the model checks", *checked))))
        if not trains:
            error.rephrase(lambda text: text.removeprefix(front))
            error.step = 0

    # ------------------------------------------------------------------------------------------------------
    # Evaluation
    # ------------------------------------------------------------------------------------------------------

    def _get_evaluation(self) -> Session:
        """The model in evaluation mode, compiled with the first use, with the step's present values."""
        if self._evaluation is not None and not self._evaluation_archive.guards.hold():
            change = self._evaluation_archive.guards.find_change()
            if change is not None and not self._compiles_again:
                raise BadInput(_BUILT_IN.format(change))
            self._forget_evaluation()
        if self._evaluation is None:
            prepared = self._prepared
            archive = self._evaluation_archive = _Archive(prepared.make_evaluation(), prepared.example, training=False)
            words = [*self._evaluation_words, *([f"--batch={self.batch_size}"] if self._has_own_size else [])]
            self._evaluation = Session(archive.build(words).path, threads=self._threads)
            self._evaluation.initialize()
            self._is_evaluation_old = True
        self._take_tensors()
        if self._is_evaluation_old:
            _write_model(self._evaluation, self._read_model())
            for variable in filter(_is_of_model, self._evaluation.manifest["variables"]):
                if variable["name"] in self._written:
                    write_tensor(self._evaluation, variable, self._written[variable["name"]])
            self._is_evaluation_old = False
        self._evaluation.step = 0
        return self._evaluation

    def evaluate(self, batch: Any) -> float:
        """The loss of a batch in evaluation mode: no dropout, running statistics, nothing changes.

        The first call compiles the model once more; its arena lies beside the step's.
        """
        session = self._get_evaluation()
        self._run(session, [batch])
        return session.read_scalar(next(output["name"] for output in session.manifest["outputs"] if output["role"] == "loss"))

    def predict(self, batch: Any) -> torch.Tensor:
        """What the model returns for a batch in evaluation mode; its targets may be left out."""
        session = self._get_evaluation()
        outputs = [output for output in session.manifest["outputs"] if output["role"] != "loss"]
        if not outputs:
            raise BadInput("the model returns no tensor but its loss; have it return its prediction as well")
        needed = self._prepared.layout.list_inputs(self._prepared.layout.targets)
        targets = {tensor["name"]: torch.zeros(tensor["shape"], dtype=self._prepared.example[tensor["name"]].dtype)
                   for tensor in session.manifest["inputs"] if tensor["name"] in needed}
        self._run(session, [batch], fillers=targets)
        return read_tensor(session.read_output, outputs[0])

    # ------------------------------------------------------------------------------------------------------
    # State
    # ------------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Takes parameters, buffers and the optimizer's state from model and optimizer, as `compile` does."""
        self._session.initialize()
        self._read_alone.mark()
        _write_model(self._session, self._prepared.get_tensors())
        write_optimizer_state(self._prepared.options, self._session, self.optimizer.state)
        self._is_evaluation_old = True

    def _read_variables(self) -> Iterator[tuple[list[str], torch.Tensor]]:
        """The step's parameters and buffers, by their names; constants are as they were."""
        for variable in filter(_is_of_model, self._session.manifest["variables"]):
            if variable.get("restore") != "never":
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
        """Puts parameters, buffers and, unless told otherwise, the optimizer's state back into model and optimizer."""
        state = self._read_optimizer() if optimizer else {}
        tensors = self._prepared.get_tensors()
        with torch.no_grad():
            for names, value in self._read_variables():
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
        return {"model": model, "optimizer": optimizer, "step": self.steps, **({"loss": loss} if loss else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a `state_dict`, which changes neither model nor optimizer."""
        names = self._prepared.list_loss_names()
        tensors = {f"net.{name}": value for name, value in state["model"].items()}
        tensors.update((names[name], value) for name, value in state.get("loss", {}).items() if name in names)
        lacking = [name for name, inner in names.items() if inner not in tensors]
        if lacking:
            raise BadInput(f"the state has no '{lacking[0]}' of the loss")
        for variable in filter(_is_of_model, self._session.manifest["variables"]):
            if variable.get("restore") is None and not tensors.keys() & set(variable["names"]) and any(name.startswith("net.") for name in variable["names"]):
                raise BadInput(f"the state has no '{variable['names'][0].removeprefix('net.')}'")
        _write_model(self._session, tensors)
        entries = state["optimizer"]["state"]
        write_optimizer_state(self._prepared.options, self._session,
                              {parameter: entries[index] for index, parameter in number_parameters(self.optimizer) if index in entries})
        self._session.step = state["step"]
        self._is_evaluation_old = True

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes a checkpoint of memopt-run's, whole whatever happens meanwhile."""
        with self._prepared.archive.words.spoken():
            self._session.save(folder)

    def load(self, folder: str | pathlib.Path) -> None:
        """Goes on from a checkpoint, of `save` or memopt-run's. Rates stay the optimizer's."""
        with self._prepared.archive.words.spoken():
            self._session.load(folder)
        self._inputs.forget()
        self._is_evaluation_old = True

    def close(self) -> None:
        """Frees the arenas and ends the threads, which otherwise happens with the last reference."""
        for session in (self._session, self._evaluation):
            if session is not None:
                session.close()

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
            new_shapes: str = "error", **options: Any) -> Step:
    """Compiles the training step of a model on batches like `batch`.

    The batch is a tuple such as a DataLoader gives, or a mapping by name. Of a tuple the last entry goes to the loss,
    as `loss_fn(model(*inputs), target)`; `targets` names other entries (of a tuple: "input", or "input0", …, and
    "target"). With `loss_fn=None` the model gets the whole batch by keyword and returns its loss, as those of
    transformers do. Batches need the example's shapes: let loaders drop the last one.

    `device_memory` is the budget, in bytes or as "8GiB"; `threads` bounds those of the run; other options are those of
    memopt-compile with underscores: `activation_checkpointing=["layer1.*"]`, `micro_batches=4`, `precision="bf16"`.

    A step does what model, loss and optimizer say when it is called. Where that is not what was compiled (another number
    that forward reads, another group of parameters, another shape of the batch), it raises `BadInput`, or with
    `new_shapes="compile"` compiles again and goes on with its state.

    Raises `DoesNotFit`, `Refused` for what cannot be exported as it trains, `BadInput` for what cannot be compiled.
    """
    prepared = _Model(model, loss_fn, batch, optimizer, targets)
    return Step(prepared, device_memory, options, threads, new_shapes)


def frontier(model: nn.Module, loss_fn: Callable | None, batch: Any, optimizer: torch.optim.Optimizer | None = None, *,
             targets: Sequence[str] | None = None, points: int = 8, **options: Any) -> Frontier:
    """Predicted step time against bytes, at so many budgets from the smallest to the fastest plan's."""
    prepared = _Model(model, loss_fn, batch, optimizer, targets)
    with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
        name = pathlib.Path(folder) / "frontier"
        text, _ = prepared.run_compiler([*prepared.get_words(None, options), f"--frontier={points}", f"--frontier-output={name}"])
        return Frontier(json.loads(name.with_suffix(".json").read_text()), text, name.with_suffix(".svg").read_text())


def estimate(model: nn.Module, loss_fn: Callable | None, batch: Any, optimizer: torch.optim.Optimizer | None = None, *,
             targets: Sequence[str] | None = None, **options: Any) -> Estimate:
    """Model state and activations by module, in seconds, without a plan."""
    prepared = _Model(model, loss_fn, batch, optimizer, targets)
    text, report = prepared.run_compiler([*prepared.get_words(None, options), "--estimate"])
    return Estimate(report, text)
