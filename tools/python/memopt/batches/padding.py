# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches with fewer samples in the program of a full one (`ragged="pad"`).

Missing samples are copies of one that is there, so every operator gets values that it takes. That this changes nothing is
shown by the two traces, of the full batch and of the smaller one: they are alike, and samples meet in sums alone (rows.py).
Of a cross entropy the copies' targets are those that it ignores, and the program stays as it is. Other losses, sums and
means leave the copies out by a mask, an input more that the program has then, and divide by the number of samples there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .rows import Mixed, Rows, SampleRows, find_rows, get_argument, is_alike, name_of

__all__ = ["MASK", "Padding", "find_padding"]

#: The input that says which samples are copies.
MASK = "memopt_padding"
_ENTROPIES = ("cross_entropy_loss", "nll_loss_nd")
#: What a target may go through on its way to a loss: its entries stay as they are, or are left out.
_HARMLESS = {"view", "reshape", "_unsafe_view", "flatten", "squeeze", "unsqueeze", "clone", "contiguous", "detach", "_to_copy", "to",
             "slice", "select", "transpose", "permute", "_assert_tensor_metadata"}


def _takes_classes(node: torch.fx.Node) -> bool:
    """A cross entropy of classes, which leaves out those that it is to ignore."""
    return name_of(node) in _ENTROPIES and not node.args[1].meta["val"].is_floating_point()


def _counts_others(node: torch.fx.Node, ignored: int) -> bool:
    """A number of targets, without those of the class to ignore."""
    while node.op == "call_function" and (name_of(node) == "sum" or name_of(node) in _HARMLESS):
        node = node.args[0]
    return node.op == "call_function" and name_of(node) == "ne" and node.args[1] == ignored


def _leads_to_losses(node: torch.fx.Node, ignored: int) -> bool:
    """Whether a value is nothing but the target of cross entropies that ignore this class."""
    for user in node.users:
        name = name_of(user) if user.op == "call_function" else ""
        if name in _ENTROPIES and user.args[1] is node and node not in (user.args[0], get_argument(user, "weight")):
            if get_argument(user, "ignore_index", -100) != ignored or get_argument(user, "reduction", 1) == 0:
                return False
        elif name in ("pad", "constant_pad_nd") and get_argument(user, "value") == ignored:
            if not _leads_to_losses(user, ignored):
                return False
        elif name == "ne" and user.args[1] == ignored:
            continue  # copies are never counted
        elif name not in _HARMLESS or not _leads_to_losses(user, ignored):
            return False
    return True


class Padding:
    """How a program for `count` samples takes fewer."""

    def __init__(self, program: torch.export.ExportedProgram, known: SampleRows, count: int, example: Mapping[str, torch.Tensor],
                 trace: Callable[[Mapping[str, torch.Tensor]], torch.export.ExportedProgram]):
        self.count, self._program, self._known, self._trace = count, program, known, trace
        places = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        self._inputs = [name for name in example if name in places and known.rows[places[name]] is not None]
        self._example = dict(example)
        self._alike: dict[int, bool] = {count: True}
        self._fills = self._find_fills(places)
        self.has_mask = self._fills is None

    def _find_fills(self, places: Mapping[str, torch.fx.Node]) -> dict[str, int] | None:
        """What targets of copies are, where that leaves them out of all that adds up."""
        losses = list(filter(_takes_classes, self._known.sums))
        ignored = {get_argument(node, "ignore_index", -100) for node in losses}
        if len(ignored) != 1:
            return None
        value, = ignored
        if not all(node in losses or name_of(node) == "sum" and _counts_others(node, value) for node in self._known.sums):
            return None
        found = {name: value for name in self._inputs if places[name].users and not places[name].meta["val"].is_floating_point()
                 and self._holds(value, places[name].meta["val"].dtype) and _leads_to_losses(places[name], value)}
        reached = {node for name in found for node in self._follow(places[name])}
        return found if all(node in reached for node in self._known.sums) else None

    @staticmethod
    def _holds(value: int, dtype: torch.dtype) -> bool:
        return dtype != torch.bool and torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max

    def _follow(self, node: torch.fx.Node) -> set[torch.fx.Node]:
        found = set(node.users)
        for user in node.users:
            found |= self._follow(user)
        return found

    def holds(self, fewer: int) -> bool:
        """Whether the program for so many samples would be the same but for sizes."""
        if fewer not in self._alike:
            rows = {name: value[:fewer] if name in self._inputs else value for name, value in self._example.items()}
            try:
                other = self._trace(rows)
                find_rows(self._program, other, self.count, fewer)
                self._alike[fewer] = is_alike(self._program, other)
            except Exception:  # a size that the model does not take is refused with its own program
                self._alike[fewer] = False
        return self._alike[fewer]

    def fill(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of the program, of a batch that may be smaller."""
        there = next((int(batch[name].shape[0]) for name in self._inputs if name in batch), self.count)
        filled = dict(batch)
        if there < self.count:
            for name in self._inputs:
                if name in batch:
                    filled[name] = self._fill(name, batch[name], there)
        if self.has_mask:
            filled[MASK] = torch.arange(self.count) >= there
        return filled

    def _fill(self, name: str, value: Any, there: int) -> torch.Tensor:
        tensor = torch.as_tensor(value).detach().cpu()
        more = (self.count - there, *tensor.shape[1:])
        if self._fills and name in self._fills:
            return torch.cat([tensor, tensor.new_full(more, self._fills[name])])
        return torch.cat([tensor, tensor[:1].expand(more)])

    def cut(self, value: torch.Tensor, there: int) -> torch.Tensor:
        """Of the program's prediction, its last output, the samples that there are."""
        output = next(node for node in self._program.graph.nodes if node.op == "output")
        rows = self._known.rows.get(output.args[0][-1])
        return value if rows is None or there == self.count else value.narrow(rows.dim, 0, there * rows.inner)

    def count_samples(self, batch: Mapping[str, Any]) -> int:
        return next((int(batch[name].shape[0]) for name in self._inputs if name in batch), self.count)

    def make_masked(self) -> torch.export.ExportedProgram:
        """The program with the mask among its inputs, and copies left out of all that adds up."""
        program = self._trace({**self._example, MASK: torch.zeros(self.count, dtype=torch.bool)})
        sums = {node.name for node in self._known.sums}
        rows = {node.name: own for node, own in self._known.rows.items()}
        masks = _Masks(program, self.count)
        for node in [node for node in program.graph.nodes if node.op == "call_function" and node.name in sums]:
            masks.leave_out(node, rows)
        program.graph_module.recompile()
        return program


class _Masks:
    """Leaves copies out of the sums of a program, in place."""

    def __init__(self, program: torch.export.ExportedProgram, count: int):
        self._graph, self._count, self._signature = program.graph, count, program.graph_signature
        self._mask = next(node for node in self._graph.nodes if node.op == "placeholder" and node.name == MASK)
        self._number: torch.fx.Node | None = None

    def _call(self, like: torch.fx.Node, target: Any, *arguments: Any, **keywords: Any) -> torch.fx.Node:
        node = self._graph.call_function(target, arguments, keywords)
        mode = self._mask.meta["val"].fake_mode
        with mode:
            node.meta["val"] = target(*torch.fx.node.map_arg(arguments, lambda n: n.meta["val"]),
                                      **torch.fx.node.map_arg(keywords, lambda n: n.meta["val"]))
        for key in ("nn_module_stack", "stack_trace", "torch_fn"):
            if key in like.meta:
                node.meta[key] = like.meta[key]
        return node

    def _make_mask(self, like: torch.fx.Node, rows: Rows, rank: int) -> torch.fx.Node:
        """The mask for a value of so many dimensions."""
        aten, mask = torch.ops.aten, self._mask
        if rows.inner > 1:
            mask = self._call(like, aten.unsqueeze.default, mask, 1)
            mask = self._call(like, aten.expand.default, mask, [self._count, rows.inner])
        return self._call(like, aten.reshape.default, mask, [1] * rows.dim + [self._count * rows.inner] + [1] * (rank - rows.dim - 1))

    def _count_entries(self, like: torch.fx.Node, each: int, dtype: torch.dtype) -> torch.fx.Node:
        """How many entries the samples have that are there, `each` of them."""
        aten = torch.ops.aten
        valid = self._call(like, aten.logical_not.default, self._mask)
        number = self._call(like, aten.sum.default, self._call(like, aten._to_copy.default, valid, dtype=dtype))
        return self._call(like, aten.mul.Tensor, number, each) if each != 1 else number

    def leave_out(self, node: torch.fx.Node, rows: Mapping[str, Rows]) -> None:
        aten, name = torch.ops.aten, name_of(node)
        with self._graph.inserting_before(node):
            if _takes_classes(node):
                target = node.args[1]
                mask = self._make_mask(node, rows[target.name], target.meta["val"].dim())
                masked = self._call(node, aten.masked_fill.Scalar, target, mask, get_argument(node, "ignore_index", -100))
                node.update_arg(1, masked)
                return
            if name in ("sum", "mean"):
                value, dims, keeps = node.args[0], get_argument(node, "dim"), bool(get_argument(node, "keepdim", False))
                own, is_mean, dtype = rows[node.args[0].name], name == "mean", get_argument(node, "dtype")
            else:
                value, own, dims, keeps, dtype = self._reduce_nothing(node), rows[node.args[0].name], None, False, None
                is_mean = get_argument(node, "reduction", 1) == 1
            shape = value.meta["val"].shape
            dims = [int(dim) % len(shape) for dim in dims] if dims else list(range(len(shape)))
            mask = self._make_mask(node, own, len(shape))
            value = self._call(node, aten.masked_fill.Scalar, value, mask, 0)
            result = self._call(node, aten.sum.dim_IntList, value, dims, keeps, **({"dtype": dtype} if dtype else {}))
            if is_mean:
                each = 1
                for dim in dims:
                    each *= shape[dim] // (self._count if dim == own.dim else 1)
                result = self._call(node, aten.div.Tensor, result, self._count_entries(node, each, result.meta["val"].dtype))
        node.replace_all_uses_with(result)
        for spec in self._signature.output_specs:
            if getattr(spec.arg, "name", None) == node.name:
                spec.arg.name = result.name
        self._graph.erase_node(node)

    def _reduce_nothing(self, node: torch.fx.Node) -> torch.fx.Node:
        """The loss of each entry."""
        arguments, keywords = list(node.args), dict(node.kwargs)
        place = next(i for i, argument in enumerate(node.target._schema.arguments) if argument.name == "reduction")
        if place < len(arguments):
            arguments[place] = 0
        else:
            defaults = [argument.default_value for argument in node.target._schema.arguments[len(arguments):place]]
            if any(argument.name in keywords for argument in node.target._schema.arguments[:place]):
                keywords["reduction"] = 0
            else:
                arguments += [*defaults, 0]
        return self._call(node, node.target, *arguments, **keywords)


def find_padding(program: torch.export.ExportedProgram, example: Mapping[str, torch.Tensor],
                 trace: Callable[[Mapping[str, torch.Tensor]], torch.export.ExportedProgram]) -> Padding | str:
    """How the program takes batches with fewer samples, or why it cannot."""
    counts = {int(value.shape[0]) for value in example.values() if value.dim()}
    if len(counts) != 1 or (count := counts.pop()) < 2:
        return "its inputs have no first dimension in common that counts samples"
    rows = {name: value[:-1] if value.dim() else value for name, value in example.items()}
    try:
        other = trace(rows)
    except Exception as error:
        return f"the model does not take {count - 1} samples: {error}"
    if not is_alike(program, other):
        return "what it computes depends on the number of samples"
    try:
        return Padding(program, find_rows(program, other, count, count - 1), count, example, trace)
    except Mixed as mixed:
        return f"it has {mixed}, which may mix samples"
