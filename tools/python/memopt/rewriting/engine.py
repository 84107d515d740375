# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program node by node, through rules, while torch.export watches."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import traceback as fx_traceback
from torch.utils import _pytree as pytree

from ..errors import Error, Refused
from ..internals import storage_of
from ..user_code.places import place_of_node
from . import (complex_values, composites, control_flow, ctc, custom_operators, gamma_draws, intervals, numbers, plain, quantization,
               ragged, solver_checks)
from .bounds import ValueBounds
from .checks import add_check
from .complex_values import fourier
from .known import KnownValues

__all__ = ["Engine", "rewrite_program"]

def _as_rule(function: Callable) -> Callable:
    return lambda engine, target, arguments, keywords: function(*arguments, **keywords)


#: Rules by the name of an operator, "library::name": (engine, target, arguments, keywords) -> value.
_RULES: dict[str, Callable] = {**control_flow.RULES, **solver_checks.RULES, **quantization.RULES, **ragged.RULES, **ctc.RULES,
                               **plain.RULES, **gamma_draws.RULES, **intervals.RULES, **numbers.RULES, **composites.RULES,
                               **{f"aten::{name}": _as_rule(window) for name, window in fourier.WINDOWS.items()}}
_MOST_ROUNDS = 4
_CASTS = {"aten::to", "aten::_to_copy", "aten::type_as"}
_COPIES = {"aten::lift_fresh_copy", "aten::detach", "aten::detach_", "aten::clone"}
#: The operators that a program is rewritten for; rows by a mask are seen by their sizes.
_CAUSES = {*(_RULES.keys() - ragged.RULES.keys() - control_flow.REGIONS), *(f"aten::{name}" for name in fourier.RULES)}
#: What has one rule, for real tensors of known sizes.
_OF_REAL = {*quantization.RULES, *plain.RULES}
#: Rules for values of a kind: (the kind's test, the rule).
_KINDS = ((ragged.is_ragged, ragged.call), (complex_values.has_complex, complex_values.call))


def name_of(target: Any) -> str:
    """ "aten::add", of any overload; the functions of Python have names of their own."""
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order::{target.name()}"
    return getattr(target, "__name__", str(target))


def _has_own_sizes(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and any(not isinstance(size, int) for size in value.shape)


def _needs(node: torch.fx.Node) -> bool:
    values = pytree.tree_leaves(node.meta.get("val"))
    if any(isinstance(value, torch.Tensor) and value.is_complex() or _has_own_sizes(value) for value in values):
        return True
    if node.op != "call_function":
        return False
    return name_of(node.target) in _CAUSES or _puts_by_mask(node) or custom_operators.has_formula(node.target)


def _puts_by_mask(node: torch.fx.Node) -> bool:
    """`x[mask] = rows`, of so many rows as the mask has to choose."""
    if name_of(node.target) not in ("aten::index_put", "aten::index_put_") or node.args[2].meta["val"].numel() == 1:
        return False
    return any(index is not None and index.meta["val"].dtype is torch.bool for index in node.args[1])


def needs_rewriting(program: torch.export.ExportedProgram) -> bool:
    return any(_needs(node) for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)
               for node in part.graph.nodes)


# ----------------------------------------------------------------------------------------------------------
# One run
# ----------------------------------------------------------------------------------------------------------

class Engine:
    """Calls the nodes of graphs. Values that were made alike have the same key, until one of them is written to."""

    def __init__(self, samples: int | None = None):
        #: How many samples the batch has, if all that it has agrees in that.
        self.samples = samples
        self._numbers: dict[Any, int] = {}
        self._keys: dict[int, tuple[Any, int]] = {}  # by identity; the values are kept, so that no other takes their place
        self._fresh = itertools.count(-1, -1)
        self._constants: dict[int, tuple[Any, torch.Tensor]] = {}  # by identity: what the program has as data
        self._parameters: dict[int, Any] = {}  # by identity
        self._expanded: dict[int, Any] = {}  # by identity: what is the same all along its last dimension
        self.known = KnownValues()
        self.views = ragged.CopiedViews()
        self.bounds = ValueBounds()
        self._most: dict[Any, int] = {}  # by the symbol of a number: how long what it cuts is
        #: By the key of rows, the shape of the mask that chose them.
        self.mask_shapes: dict[Any, torch.Size] = {}
        self._intervals: dict[Any, intervals.Interval] = {}
        #: What has to hold, with what is said where it does not.
        self.checks: list[tuple[torch.Tensor, str]] = []
        self._checked: dict[Any, Any] = {}  # by what it is of, which is kept
        self._taken: torch.Tensor | None = None  # whether what runs is computed for its values
        self._place: str | None = None

    # Checks

    @contextlib.contextmanager
    def taking(self, condition: torch.Tensor) -> Iterator[None]:
        """While entered, what has to hold has to where the condition does."""
        before = self._taken
        self._taken = condition if before is None else before & condition
        try:
            yield
        finally:
            self._taken = before

    def expect(self, condition: torch.Tensor, text: str, of: Any) -> None:
        """A check of the step; the same text of the same value is one."""
        key = id(of), text, id(self._taken)
        if key not in self._checked:
            self._checked[key] = of, self._taken
            condition = condition.detach().reshape(())
            self.checks.append((condition if self._taken is None else condition | ~self._taken, f"{self._place or 'the model'}: {text}"))

    # Keys

    def key_of(self, value: Any) -> Any:
        if isinstance(value, ragged.Ragged):
            return "ragged", self.key_of(value.full), value.key
        if ragged.is_grid(value):
            return "grid", self.key_of(value.full), *((axis.dim, axis.key) for axis in value.axes)
        if isinstance(value, torch.Tensor):
            if id(value) not in self._keys:
                self._keys[id(value)] = value, next(self._fresh)
            return self._keys[id(value)][1]
        if isinstance(value, (tuple, list)):
            return tuple(map(self.key_of, value))
        return str(type(value)), str(value)

    def key_of_number(self, value: Any) -> Any:
        """Equal for equal numbers of Python that were computed alike."""
        if isinstance(value, numbers.Number):
            return value.value if value.value is not None else value.way if value.way is not None else self.key_of(value.tensor)
        return value if isinstance(value, int) else self.key_of(value)

    def know_mask(self, mask: torch.Tensor, interval: intervals.Interval) -> None:
        """Rows by this mask are those of an interval."""
        self._keys[id(mask)] = mask, self.intern("between", *interval)
        self.know_interval(self.intern("mask", self.key_of(mask)), interval)

    def know_interval(self, key: Any, interval: intervals.Interval) -> Any:
        """Rows with this key are those of an interval; returns the key."""
        self._intervals[key] = interval
        return key

    def find_interval(self, key: Any) -> intervals.Interval | None:
        """From where to where rows with this key are cut."""
        return self._intervals.get(key)

    def intern(self, *parts: Any) -> int:
        return self._numbers.setdefault(parts, len(self._numbers))

    def _note(self, target: Any, arguments: tuple, keywords: Mapping, result: Any) -> None:
        schema = getattr(target, "_schema", None)
        if schema is None:
            return
        if schema.is_mutable:
            for place, argument in enumerate(schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._forget(arguments[place] if place < len(arguments) else keywords.get(argument.name))
            return
        if torch.Tag.nondeterministic_seeded in target.tags:
            return
        self._note_expanded(target, arguments, result)
        self.bounds.note(target, arguments, dict(keywords), result)
        for place, value in enumerate(result if isinstance(result, (tuple, list)) else [result]):
            if isinstance(value, torch.Tensor) and id(value) not in self._keys:
                key = (str(target), place, self.key_of(arguments), self.key_of(tuple(sorted(keywords.items()))))
                self._keys[id(value)] = value, self.intern(key)

    def _forget(self, written: Any) -> None:
        if isinstance(written, ragged.Ragged):
            written.shape = written.axis = None
        if isinstance(written, (ragged.Ragged, ragged.Grid)):
            written = written.full
        if complex_values.is_complex(written) or isinstance(written, (tuple, list)):
            for part in written:
                self._forget(part)
        if isinstance(written, torch.Tensor) and (own := storage_of(written)) is not None:
            for storage in self.views.settle(own):
                self._forget_storage(storage)

    def _forget_storage(self, storage: int) -> None:
        self.known.forget(storage)
        self.bounds.forget(storage)
        for number, (value, _) in list(self._keys.items()):
            if storage_of(value) == storage:
                self._keys[number] = value, next(self._fresh)
                self._expanded.pop(number, None)

    def constant_of(self, value: Any) -> torch.Tensor | None:
        """The data behind a value that the program has as a constant."""
        return self._constants.get(id(value), (None, None))[1]

    def know_constant(self, value: Any, data: torch.Tensor) -> None:
        self._constants[id(value)] = value, data
        self.known.add(value, lambda: data)

    def is_parameter(self, value: Any) -> bool:
        return id(value) in self._parameters

    def know_parameter(self, value: Any) -> None:
        self._parameters[id(value)] = value

    def _note_expanded(self, target: Any, arguments: tuple, result: Any) -> None:
        if not isinstance(result, torch.Tensor) or not result.dim() or result.shape[-1] == 1:
            return
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        made = name_of(target) in ("aten::expand", "aten::expand_as", "aten::broadcast_to") and tensors and tensors[0].dim() \
            and tensors[0].shape[-1] == 1
        kept = (torch.Tag.pointwise in target.tags or name_of(target) in _COPIES or name_of(target) in _CASTS) and tensors and all(
            not value.dim() or value.shape[-1] == 1 or self.is_expanded(value) for value in tensors)
        if made or kept:
            self._expanded[id(result)] = result

    def is_expanded(self, value: Any) -> bool:
        """Whether it is known to be the same all along its last dimension."""
        return id(value) in self._expanded

    # Nodes

    def run(self, module: torch.fx.GraphModule, values: list) -> Any:
        """The results of a graph; `values` are those of its placeholders, in order."""
        known: dict[torch.fx.Node, Any] = {}
        waiting = iter(values)
        self._most.update(numbers.list_cuts(module.graph))
        for node in module.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(waiting)
            elif node.op == "get_attr":
                known[node] = self._get(module, node.target)
            elif node.op == "output":
                return torch.fx.node.map_arg(node.args[0], known.__getitem__)
            else:
                arguments = torch.fx.node.map_arg(node.args, known.__getitem__)
                keywords = torch.fx.node.map_arg(node.kwargs, known.__getitem__)
                with fx_traceback.set_current_meta(node):
                    known[node] = self._call_node(node, tuple(arguments), dict(keywords))
        return None

    @staticmethod
    def _get(module: nn.Module, path: str) -> Any:
        for name in path.split("."):
            module = getattr(module, name)
        return module

    def is_plain(self, module: torch.fx.GraphModule, values: list) -> bool:
        """Whether a graph of these values is one of tensors to which only PyTorch's own operators are done, none of which draws numbers
        or depends on more of its operands than their sizes."""
        barred = {torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
        targets = [node.target for node in module.graph.nodes if node.op not in ("placeholder", "output")]
        return (all(isinstance(value, torch.Tensor) and not value.is_complex() for value in values)
                and not any(is_of_kind(value) for is_of_kind, _ in _KINDS for value in values)
                and all(isinstance(target, torch._ops.OpOverload) and target.namespace == "aten" and name_of(target) not in _RULES
                        and not barred.intersection(target.tags) and not target._schema.is_mutable
                        and "complex" not in name_of(target) for target in targets))

    def _call_node(self, node: torch.fx.Node, arguments: tuple, keywords: dict) -> Any:
        place = self._place = place_of_node(node)
        front = f"{place}: " if place else ""
        compute = self.known.prepare(node.target, arguments, keywords)
        try:
            result = self.call(node.target, arguments, keywords)
            if isinstance(result, numbers.Number):
                result.know(node.meta.get("val"), self._most)
            if isinstance(result, ragged.Ragged):
                result = self._settle_size(node.meta.get("val"), result)
        except Error as error:
            said = error.message
            error.rephrase(lambda text: f"{front}{text}" if text == said and not re.match(r"\S+:\d+", text) else text)
            raise
        except ragged.NotRagged as error:
            raise Refused(f"{front}{name_of(node.target).replace('::', '.')} of rows that were chosen by a "
                          f"mask{f' ({error})' if str(error) else ''} is not supported, as their number depends on the data; keep "
                          "all elements and weight them with a mask, as in torch.where(mask, x, 0).sum() / mask.sum()") from error
        self._note(node.target, arguments, keywords, result)
        if compute is not None:
            self.known.note(compute, result)
        if name_of(node.target) in _COPIES and self.constant_of(arguments[0]) is not None:
            self.know_constant(result, self.constant_of(arguments[0]))
        return result

    def _settle_size(self, traced: Any, rows: ragged.Ragged) -> ragged.Ragged | torch.Tensor:
        """Rows that were put together, and whose number the trace knows from the sizes of other tensors, are all that there are. Of others
        it may be told a number: a loop over the rows that a mask holds has a turn for each row."""
        size = traced.shape[rows.dim] if isinstance(traced, torch.Tensor) and traced.dim() == rows.full.dim() else None
        if not isinstance(size, torch.SymInt) or not isinstance(size.node._expr, sympy.Add):
            return rows
        env = size.node.shape_env
        known = env.simplify(size.node.expr)
        if not known.is_number and env._maybe_evaluate_static(sympy.Eq(size.node.expr, rows.bound)) == True:  # noqa: E712, of sympy's
            known = sympy.Integer(rows.bound)
        return ragged.find_whole(self, rows, int(known)) if known.is_number and int(known) <= rows.bound else rows

    def call(self, target: Any, arguments: tuple, keywords: dict) -> Any:
        """One operator on values of any kind."""
        name, leaves = name_of(target), pytree.tree_leaves((arguments, keywords))
        if name in control_flow.REGIONS:
            return _RULES[name](self, target, arguments, keywords)
        if any(map(numbers.is_number, leaves)):
            filled = numbers.fill(self, target, arguments, keywords)
            if filled is not None:
                return filled
            if name in intervals.RULES:
                return _RULES[name](self, target, arguments, keywords)
            if ragged.takes_tensors(name, arguments):
                return ragged.call(self, target, *pytree.tree_map_only(
                    numbers.Number, lambda number: number.tensor if number.value is None else number.value, (arguments, keywords),
                    is_leaf=numbers.is_number))
            if not ragged.takes_counts(name) or not all(number.value is not None or number.most is not None
                                                        for number in leaves if isinstance(number, numbers.Number)):
                return numbers.call(self, target, arguments, keywords)
            arguments, keywords = pytree.tree_map_only(
                numbers.Number, lambda number: ragged.as_count(self, number, name == "aten::slice") if number.value is None else number.value,
                (arguments, keywords), is_leaf=numbers.is_number)
            leaves = pytree.tree_leaves((arguments, keywords))
        if any(map(ragged.is_grid, leaves)):
            ragged.widen_parts(target, leaves)
            return ragged.call_grids(self, target, arguments, keywords)
        has_rows, has_complex = (any(map(is_of_kind, leaves)) for is_of_kind, _ in _KINDS)
        if has_rows and has_complex:
            raise ragged.NotRagged("among complex numbers")
        if has_rows:
            ragged.widen_parts(target, leaves)
        rule = _RULES.get(name)
        if has_complex and name in ragged.RULES:
            return complex_values.call(self, target, arguments, keywords)
        if rule is not None:
            if has_complex and name in _OF_REAL:
                complex_values.refuse(name)
            if has_rows and name in _OF_REAL:
                return ragged.call(self, target, arguments, keywords)
            return rule(self, target, arguments, keywords)
        for is_of_kind, call in _KINDS:
            if any(map(is_of_kind, leaves)):
                return call(self, target, arguments, keywords)
        if complex_values.makes_complex(target, arguments, keywords):
            return complex_values.call(self, target, arguments, keywords)
        if custom_operators.has_formula(target):
            return custom_operators.call(target, arguments, keywords)
        result = target(*arguments, **keywords)
        if any(isinstance(value, torch.Tensor) and value.is_complex() for value in pytree.tree_leaves(result)):
            complex_values.refuse(name_of(target))
        return result


# ----------------------------------------------------------------------------------------------------------
# The new program
# ----------------------------------------------------------------------------------------------------------

class _Anew(nn.Module):
    """A program's state and its run, as a module; complex tensors of state have a last dimension of two."""

    def __init__(self, program: torch.export.ExportedProgram, texts: list[str] | None):
        super().__init__()
        self.__dict__["_program"], self.__dict__["_texts"] = program, texts
        made: dict[int, torch.Tensor] = {}
        # Names of their own: torch.export has its names for the constants that this run makes.
        self.__dict__["_kept"] = {spec.target: f"kept_{place}" for place, spec in enumerate(program.graph_signature.input_specs)
                                  if spec.kind == InputKind.CONSTANT_TENSOR}
        for spec in program.graph_signature.input_specs:
            if spec.kind == InputKind.USER_INPUT or spec.target is None:
                continue
            held = program.state_dict if spec.target in program.state_dict else program.constants
            tensor = held[spec.target]
            if isinstance(tensor, torch.Tensor) and tensor.is_complex():
                real = torch.view_as_real(tensor.detach().resolve_conj())
                tensor = made.setdefault(id(tensor), nn.Parameter(real, tensor.requires_grad)
                                         if isinstance(tensor, nn.Parameter) else real)
            self._place(spec, tensor)

    def _place(self, spec: Any, tensor: Any) -> None:
        *path, name = self._kept.get(spec.target, spec.target).split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]
        if spec.kind == InputKind.PARAMETER:
            owner.register_parameter(name, tensor)
        elif spec.kind == InputKind.BUFFER:
            owner.register_buffer(name, tensor, persistent=bool(spec.persistent))
        else:
            setattr(owner, name, tensor)

    def _list_values(self, engine: Engine, batch: Mapping[str, torch.Tensor]) -> Iterator[Any]:
        inputs = iter(batch.values())
        for spec in self._program.graph_signature.input_specs:
            if spec.kind == InputKind.USER_INPUT:
                yield next(inputs)
                continue
            if spec.kind == InputKind.TOKEN:
                yield None
                continue
            value = Engine._get(self, self._kept.get(spec.target, spec.target))
            held = self._program.state_dict if spec.target in self._program.state_dict else self._program.constants
            if spec.kind == InputKind.CONSTANT_TENSOR:
                engine.know_constant(value, held[spec.target])
            if spec.kind == InputKind.PARAMETER:
                engine.know_parameter(value)
            yield complex_values.as_pair(value) if held[spec.target].is_complex() else value

    def _check(self, engine: Engine, loss: torch.Tensor) -> torch.Tensor:
        """The loss with what has to hold."""
        self._texts += [text for _, text in engine.checks if text not in self._texts]
        return functools.reduce(add_check, [condition for condition, _ in engine.checks], loss)

    @staticmethod
    def _finish(value: Any) -> Any:
        if isinstance(value, numbers.Number):
            return value.tensor
        if isinstance(value, (ragged.Ragged, ragged.Grid)):
            raise Refused("the step returns rows that were chosen by a mask, whose number depends on the data; return all, and the mask")
        return value.tensor() if isinstance(value, ragged.Count) else complex_values.finish(value)

    def forward(self, **batch: torch.Tensor):
        sizes = {value.shape[0] if value.dim() else None for value in batch.values()}
        engine = Engine(sizes.pop() if len(sizes) == 1 else None)
        results = engine.run(self._program.graph_module, list(self._list_values(engine, batch)))
        given = []
        for spec, value in zip(self._program.graph_signature.output_specs, results):
            if spec.kind == OutputKind.USER_OUTPUT:
                given.append(self._finish(value) if given or self._texts is None else self._check(engine, self._finish(value)))
            elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
                complex_values.write(Engine._get(self, spec.target), value)
        return given[0] if len(given) == 1 else tuple(given)


def rewrite_program(program: torch.export.ExportedProgram, batch: Mapping[str, torch.Tensor],
                    texts: list[str] | None = None) -> torch.export.ExportedProgram:
    """The program in the operators that memopt has; the program itself where it is that already. What torch.export asserts of numbers
    becomes part of the loss, its first result, and is added to `texts`; without these it is dropped.
    """
    for _ in range(_MOST_ROUNDS):  # what a custom operator is made of, say, may need rules itself
        if not needs_rewriting(program):
            break
        with fx_traceback.preserve_node_meta():
            program = torch.export.export(_Anew(program, texts), (), dict(batch), strict=False)
    return program
