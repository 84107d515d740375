# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a PyTorch model and its loss as the .pt2 files that memopt compiles.

    import torch.nn.functional as F
    from memopt import export

    batch = {"image": torch.zeros(64, 1, 28, 28), "label": torch.zeros(64, dtype=torch.long)}
    export.export(model, F.cross_entropy, batch, targets=["label"], path="mine.pt2")

(or `import memopt_export`, with tools/export on the path) writes `mine.train.pt2`, one training step's forward pass with
dropout and batch statistics, and `mine.eval.pt2`, the same model in evaluation mode. Then

    memopt-run mine.train.pt2 --data=batches.safetensors --steps=100 --optimizer=adamw --lr=1e-3

trains it; the entries of `batch` name the program's inputs, so the file holds `step0.image`, `step0.label`,
`step1.image` and so on. Shapes are fixed by the example batch; its values do not matter.

What the model says about its gradients is kept: `torch.no_grad()`, `detach`, and the backward formulas of
`torch.autograd.Function`s (gradients.py). Hooks, autocast and parameters that forward writes are refused.

Needs PyTorch 2.9 or newer (older ones write weights as pickles, which memopt never executes). Everything that
torch.export can trace works, as far as memopt has the operators; it lists those it lacks, with their modules.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind

from .batches.layout import BatchLayout
from .batches.padding import MASK
from .errors import BadInput, Error, Refused
from .operators import list_sources
from .rewriting.checks import carried_checks
from .rewriting.composites import replace_synonyms
from .rewriting.engine import rewrite_program
from .rewriting.inner_gradients import check_parts, expand_gradients, has_vmap, make_numbers_tensors
from .rewriting.integers import AskedForInteger, replaced_integers
from .rewriting.layers import replaced_functions
from .rewriting.observers import sized_buffers
from .rewriting.regions import use_originals
from .rewriting.sides import TakenOtherwise, find_known_side, find_writing_branch, finish_sides, mark_updates, settle_sides
from .tracing import gradients
from .tracing.draws import decided_draws
from .tracing.freezing import followed_freezing
from .tracing.held_tensors import list_held_tensors, traced_tensors
from .tracing.hidden_writes import check_written_parameters, copy_written_inputs, keep_hidden_writes
from .tracing.kept_attributes import dropped_leftovers, kept_buffers, kept_containers, make_written_buffers, merge_buffers
from .tracing.recurrent import recurrent_layers
from .tracing.stopped_gradients import detach_behind, detached_regions, has_graphs, inline_branching_regions, keep_stopped_gradients
from .tracing.tensor_hooks import add_parameter_hooks, list_parameter_hooks, place_hooks
from .user_code.places import place_of_node
from .user_code.tracing_errors import find_cause, refuse_tracing_error
from .user_code.words import ProgramWords
from .watching.reads import begin_forward

__all__ = ["TrainingStep", "export", "export_program", "find_lines", "save"]


class TrainingStep(nn.Module):
    """A model and its loss as one module: the batch in, `(loss, prediction)` out.

    The model gets the batch's entries in order, but for `targets`, which go to the loss: `loss(model(*inputs),
    *targets)` must give a scalar. Name no targets if the model computes its own loss; it is then called with the
    whole batch by keyword. Its loss is `.loss` or `["loss"]` of what it returns, or else the first floating-point scalar
    there, in tuples, mappings and dataclasses; its prediction is `.logits`, `["logits"]`, or the first other tensor. That
    is returned if asked for, for it need not be one that labels are compared with.

    `restore` makes the batch's entries of the inputs, where those are flat and these are not.

    The model's parameters keep their names behind `net.`; `export` drops that again.
    """

    def __init__(self, net: nn.Module, loss: Callable | None = None, targets: Sequence[str] = (),
                 return_prediction: bool | None = None, restore: Callable[[Mapping], Mapping] | None = None):
        super().__init__()
        if (loss is None) != (not targets):
            raise BadInput("a loss needs targets, and targets need a loss")
        self.net, self.loss, self.targets, self.restore = net, loss, tuple(targets), restore
        self.return_prediction = loss is not None if return_prediction is None else return_prediction
        self.checks: carried_checks | None = None  # while it is traced
        #: What was asserted when it was traced: "model.py:12: Expected ...".
        self.checked: tuple[str, ...] = ()
        #: What parameters and buffers were before, while it is traced.
        self.held_tensors: dict[int, tuple[torch.Tensor, str]] = {}
        #: Of the parameters, while it is traced.
        self.gradient_hooks: list[tuple[str, int, Callable]] = []
        #: Parameters that not each step updates, as one side of a branch alone read them when it was traced.
        self.unsteady: list[str] = []

    def forward(self, **batch: torch.Tensor):
        batch.pop(MASK, None)  # which the sums have, once it is traced
        begin_forward()
        with traced_tensors(self, self.held_tensors) if self.held_tensors else contextlib.nullcontext():
            add_parameter_hooks(self, self.gradient_hooks)
            with kept_buffers(self):
                return self._compute(batch)

    def _compute(self, batch: Mapping[str, torch.Tensor]):
        if self.restore is not None:
            batch = self.restore(batch)
        if self.loss is None:
            result = self.net(**batch)
            loss = find_loss(result, "the model")
        else:
            missing = [name for name in self.targets if name not in batch]
            if missing:
                raise BadInput(f"the batch has no {', '.join(missing)}")
            result = self.net(*(value for name, value in batch.items() if name not in self.targets))
            loss = find_loss(self.loss(result, *(batch[name] for name in self.targets)), "the loss")
        prediction = find_prediction(result, loss) if self.return_prediction else None
        loss = loss if self.checks is None else self.checks.apply(loss)
        return loss if prediction is None else (loss, prediction)


def _get(result: Any, name: str) -> Any:
    """An attribute or entry of what a model returns."""
    return result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)


def _list_tensors(result: Any) -> Iterator[torch.Tensor]:
    if torch.is_tensor(result):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from _list_tensors(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from _list_tensors(value)
    elif dataclasses.is_dataclass(result):
        for field in dataclasses.fields(result):
            yield from _list_tensors(getattr(result, field.name))


def find_loss(result: Any, giver: str) -> torch.Tensor:
    """The loss in what a model or a loss function returns."""
    named = _get(result, "loss") if not torch.is_tensor(result) else None
    tensors = [named] if torch.is_tensor(named) else list(_list_tensors(result))
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.dim() == 0:
            return tensor
    for tensor in tensors[:1]:
        if tensor.is_floating_point() and tensor.numel() == 1:
            return tensor.reshape(())
    given = ", ".join(f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for tensor in tensors[:8])
    raise Refused(f"{giver} gives {given or type(result).__name__}, expected a floating-point scalar, the loss; "
                  + ("return it from forward, give the entries that it needs (labels), or give a loss_fn" if giver == "the model"
                     else "reduce it, as by .mean()"))


def find_prediction(result: Any, loss: torch.Tensor) -> torch.Tensor | None:
    """What a model returns beside its loss."""
    logits = None if torch.is_tensor(result) else _get(result, "logits")
    if torch.is_tensor(logits):
        return logits
    return next((tensor for tensor in _list_tensors(result) if tensor is not loss), None)


def set_mode(step: nn.Module, training: bool) -> None:
    """Evaluation is for all modules. Training is for those that are in training mode, so that a backbone which was put
    in evaluation by hand stays so; if even the model is not, as after loading, nobody chose, and all are.
    """
    model = step.net if isinstance(step, TrainingStep) else step
    if not training or not model.training:
        step.train(training)


@contextlib.contextmanager
def without_cache(step: nn.Module) -> Iterator[None]:
    """Models of transformers keep keys and values for text that is to follow, by default even in training; while
    entered they do not.
    """
    configs = {id(module.config): module.config for module in step.modules() if getattr(module, "config", None) is not None}
    caching = [config for config in configs.values() if getattr(config, "use_cache", False) is True]
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True


def export_program(step: nn.Module, batch: Mapping[str, torch.Tensor], training: bool,
                   watch: contextlib.AbstractContextManager | None = None) -> torch.export.ExportedProgram:
    """Traces one step at the functional level, which keeps layers whole; the module's mode is put back after. `watch` is
    entered around the calls of forward alone.

    Raises `Refused` for what cannot be traced, or would not train as the module does.
    """
    with ProgramWords(step).spoken(), known_tensors(step, training):
        gradients.check_module(step)
        was_training = [(module, module.training) for module in step.modules()]
        set_mode(step, training)
        try:
            kept = kept_containers(module for module in step.modules() if not isinstance(module, TrainingStep))
            with kept, recurrent_layers():
                return _trace(step, batch, watch or contextlib.nullcontext())
        except Error:
            raise
        except Exception as error:
            raise refuse_tracing_error(error) from error
        finally:
            for module, mode in was_training:
                module.training = mode


@contextlib.contextmanager
def checks_of(step: nn.Module) -> Iterator[carried_checks | None]:
    """While entered, what the model asserts becomes part of the loss, which a wrapper knows; other modules keep it."""
    if not isinstance(step, TrainingStep):
        yield None
        return
    with carried_checks() as step.checks:  # what is traced twice is listed once
        try:
            yield step.checks
        finally:
            step.checked, step.checks = tuple(dict.fromkeys(step.checks.texts)), None


@contextlib.contextmanager
def known_tensors(step: nn.Module, training: bool) -> Iterator[None]:
    """While entered, a wrapper knows the tensors of its modules by identity, and calls the hooks on gradients of parameters."""
    hooks = list_parameter_hooks(step) if training else []
    if not isinstance(step, TrainingStep):
        if hooks:
            raise Refused(f"'{hooks[0][0]}' has a hook on its gradient, which tracing does not run; wrap the model in a TrainingStep")
        yield
        return
    step.gradient_hooks, step.held_tensors = hooks, list_held_tensors(step)
    try:
        yield
    finally:
        step.gradient_hooks, step.held_tensors = [], {}


def _trace(step: nn.Module, batch: Mapping[str, torch.Tensor],
           watch: contextlib.AbstractContextManager) -> torch.export.ExportedProgram:
    with gradients.watched_gradients(), without_cache(step), decided_draws(), checks_of(step) as checks, replaced_functions(), \
            replaced_integers() as integers, watch:
        def trace() -> torch.export.ExportedProgram:
            while True:
                try:
                    with followed_freezing(), dropped_leftovers(step):
                        program = torch.export.export(step, (), dict(batch), strict=False)
                    return inline_branching_regions(program)
                except Exception as error:
                    asked = find_cause(error, AskedForInteger)
                    if asked is None or not integers.add(asked):
                        raise
                    if checks is not None:
                        checks.begin(checks.takes_other)

        first_error: Exception | None = None

        def begin() -> torch.export.ExportedProgram:
            """With one side of all branches, or with the other where PyTorch has an error for the first: `sum(losses) / len(losses)`
            of no losses, say. What memopt refuses, a loop that ends nowhere among it, is no such error."""
            nonlocal first_error
            try:
                return trace()
            except Exception as error:
                first_error = error
                if checks is None or find_cause(error, Refused) is not None or not checks.turn():
                    raise
                try:
                    return trace()
                except Exception:
                    raise error from None

        with sized_buffers() as sizes:
            program = begin()
        if sizes.apply():
            program = trace()
        regions = contextlib.nullcontext
        if has_graphs(program):
            regions = detached_regions
            with regions():
                program = trace()
        if checks is not None:
            program, step.unsteady = _settle_sides(program, checks, trace, regions, first_error)
    _check_objects(program)
    merge_buffers(program)
    copy_written_inputs(program)
    detach_behind(program)
    keep_hidden_writes(program)
    place_hooks(program)
    replace_synonyms(program)
    use_originals(program)
    if has_vmap(program):
        check_parts(program)
        keep_stopped_gradients(program)
        program = program.run_decompositions({})
        make_numbers_tensors(program)
    expand_gradients(program)
    texts: list[str] | None = None if checks is None else []
    program = rewrite_program(program, batch, texts)
    if texts:
        step.checked = tuple(dict.fromkeys((*step.checked, *texts)))
    use_originals(program)
    make_written_buffers(program)
    check_written_parameters(program)
    keep_stopped_gradients(program)
    program = _decompose(program)
    make_written_buffers(program)
    _drop_aliases(program)
    _check_layouts(program)
    check_written_parameters(program)
    return program


def _decompose(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Parts of operators may lie in memory in another order than the operators' own results; then a view of those is a copy of these."""
    try:
        return program.run_decompositions({})
    except ValueError as error:
        if "Cannot view a tensor" not in str(error):
            raise
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
    program.graph_module.recompile()
    return program.run_decompositions({})


def _settle_sides(program: torch.export.ExportedProgram, checks: carried_checks, trace: Callable[[], torch.export.ExportedProgram],
                  regions: Callable[[], contextlib.AbstractContextManager],
                  first_error: Exception | None) -> tuple[torch.export.ExportedProgram, list[str]]:
    """With both sides of the model's branches; a branch of which there is one is checked. `first_error` is that of the side which was
    traced before this one. Returns as well which parameters not each step updates."""
    def retrace(takes_other: Callable[[int], bool]) -> torch.export.ExportedProgram:
        checks.begin(takes_other)
        try:
            with regions():
                return trace()
        finally:
            checks.begin()

    def settle() -> dict[int, Exception | None]:
        nonlocal program, places, texts
        while True:
            places, texts = checks.list_places(), list(checks.texts)
            try:
                return settle_sides(program, retrace, turned)
            except TakenOtherwise as found:
                numbers = set(found.numbers)
            turned.update(numbers)
            checks.turned |= numbers
            try:
                program = retrace(lambda number: False)
            except Exception:  # that side cannot be traced with all others
                checks.turned -= numbers
                program = retrace(lambda number: False)

    turned: set[int] = set()

    places: list[str] = []
    texts: list[str] = []
    while (found := find_known_side(program)) is not None:  # the numbers of those before it stay
        number, holds = found
        checks.known[number] = holds == checks.is_first(number)
        program = retrace(lambda number: False)
    while (writing := find_writing_branch(program)) is not None and writing[0] not in checks.avoided:
        checks.avoid(writing[0], [name.removeprefix("net.") for name in writing[1]])
        program = retrace(lambda number: False)
    one_sided = settle()
    if one_sided and checks.has_joint and not checks.joins:
        checks.joins = True  # sides that need what one before them has
        program = retrace(lambda number: False)
        one_sided = settle()
    checks.texts = texts
    errors = {number: error or first_error for number, error in one_sided.items()}
    checks.explain_branches(list(one_sided), places, {number: error.message if isinstance(error, Error) else
                                                      refuse_tracing_error(error).message for number, error in errors.items() if error})
    unsteady = mark_updates(program)
    finish_sides(program, one_sided)
    return program, unsteady


def _check_objects(program: torch.export.ExportedProgram) -> None:
    """Refuses what is no tensor: a generator above all, as in `torch.randn(n, generator=g)`. What a step draws follows from its own seed."""
    names = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.kind == InputKind.CUSTOM_OBJ}
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name not in names:
            continue
        place = next(filter(None, map(place_of_node, node.users)), "the model")
        kind = type(program.constants.get(names[node.name])).__name__
        advice = "leave out generator=, as draws of a step follow from the step's seed" if kind == "Generator" else "compute with tensors alone"
        raise Refused(f"{place}: an operator takes a {kind}, which a step cannot keep; {advice}")


def _check_layouts(program: torch.export.ExportedProgram) -> None:
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            place = place_of_node(node)
            raise Refused(f"{f'{place}: ' if place else ''}sparse tensors are not supported; use dense ones, or index_add with the "
                          "indices and values")


def _drop_aliases(program: torch.export.ExportedProgram) -> None:
    """A slice of all is an alias, as a detached tensor is at other levels; here that has kept its name."""
    for node in list(program.graph.nodes):
        if node.target is torch.ops.aten.alias.default and program.graph.output_node() not in node.users:
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)


def find_lines(program: torch.export.ExportedProgram) -> dict[str, str]:
    """The user's file and line of each node."""
    places = ((node.name, place_of_node(node)) for node in program.graph.nodes if node.op == "call_function")
    return {name: place for name, place in places if place}


def _shorten(place: str) -> str:
    """A place without the folders of this machine: below the working folder, or by the last two names."""
    own, separator, library = place.partition(" (")
    path = pathlib.Path(own)
    short = path.relative_to(os.getcwd()) if path.is_relative_to(os.getcwd()) else os.path.join(*path.parts[-2:])
    return f"{short}{separator}{library}"


def save(program: torch.export.ExportedProgram, path: str | pathlib.Path, weights: bool = True,
         training: bool = True, lines: Mapping[str, str] | None = None) -> None:
    """Writes the archive without what memopt has no use for: example inputs, folders of this machine, and an identity that
    differs each time. Of each node the line of the model's source stays, for messages; `lines` has others, by the nodes'
    names.

    With `weights=False` tensors keep their shapes and lose their bytes; `memopt-run --init=random` supplies them. A
    program that was traced in evaluation mode is marked, so that evaluating it runs it as it was written:
    `F.dropout(x, training=True)` drops.
    """
    if lines is None:
        lines = {name: _shorten(place) for name, place in find_lines(program).items()}
    for node in program.graph_module.graph.nodes:
        for key in ("stack_trace", "from_node", "source_fn_stack"):
            node.meta.pop(key, None)
        if node.name in lines:
            node.meta["stack_trace"] = lines[node.name]
    path = pathlib.Path(path)
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder) / path.name
        try:
            torch.export.save(program, whole)
        except Exception as error:  # what a schema has no form for
            raise refuse_tracing_error(error) from error
        with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
            for name in source.namelist():
                if "/data/sample_inputs/" in name or name.endswith("/.data/serialization_id"):
                    continue
                dropped = not weights and "/data/weights/weight_" in name
                out.writestr(zipfile.ZipInfo(name), b"" if dropped else source.read(name))
            root = next(name for name in source.namelist() if name.endswith("archive_format")).removesuffix("archive_format")
            if not training:
                out.writestr(zipfile.ZipInfo(f"{root}extra/memopt_mode"), b"eval")
            for name, text in list_sources(program.graph.nodes).items():
                out.writestr(zipfile.ZipInfo(f"{root}extra/memopt_operators/{name}"), text)


def use_own_names(program: torch.export.ExportedProgram) -> None:
    """Takes the wrapper's `net.` off all names, in place, so that parameters and modules have those of the model. They stay
    where the loss has parts of its own that are called as some of the model are.
    """
    def rename(name: str) -> str:
        return "" if name == "net" else name.removeprefix("net.")

    signature = program.graph_signature
    specs = [spec for spec in (*signature.input_specs, *signature.output_specs)
             if spec.target is not None and spec.kind != OutputKind.USER_INPUT_MUTATION]
    names = {spec.target for spec in specs} | {*program.state_dict, *program.constants}
    if len({rename(name) for name in names}) != len(names):
        return
    for spec in specs:
        spec.target = rename(spec.target)
    for tensors in (program.state_dict, program.constants):
        entries = [(rename(name), value) for name, value in tensors.items()]
        tensors.clear()
        tensors.update(entries)
    for node in program.graph.nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:
            node.meta["nn_module_stack"] = {key: (rename(path), kind) for key, (path, kind) in stack.items()}


def export(model: nn.Module, loss: Callable | None, batch: Mapping[str, torch.Tensor], path: str | pathlib.Path,
           targets: Sequence[str] = (), weights: bool = True) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes PATH.train.pt2 and PATH.eval.pt2 (a suffix .pt2 of `path` is dropped) and returns both paths.

    Names in them are the model's own, so what memopt-run saves goes into `model.load_state_dict`.
    """
    layout = BatchLayout(batch, targets or None, has_loss=loss is not None)
    example = layout.make_example(batch)
    step = TrainingStep(model, loss, layout.targets, restore=layout.restore if layout.is_nested else None)
    stem = pathlib.Path(path)
    stem = stem.with_suffix("") if stem.suffix == ".pt2" else stem
    paths = []
    for mode in ("train", "eval"):
        paths.append(stem.with_name(f"{stem.name}.{mode}.pt2"))
        program = export_program(step, example, training=mode == "train")
        use_own_names(program)
        save(program, paths[-1], weights, training=mode == "train")
    return paths[0], paths[1]
