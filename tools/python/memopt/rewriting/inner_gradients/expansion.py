# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that a model takes itself, in its program.

The program up to such a node is run once more by PyTorch's autograd, and the operators that this makes take the place of the node.
So the program has no gradient left in it but operators, and those have gradients themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch._functorch import predispatch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from ...errors import Refused
from ...user_code.places import place_of_node
from .. import control_flow
from ..formulas import WITH_FORMULA
from ..numbers import PART_AT
from ..regions import find_original, is_other_name, list_names, list_written, list_written_inputs, looks_at
from .double_backward import DECOMPOSITIONS, FORWARDS, guard_quotients, write_statistics
from .formula_gradients import is_hook, run_formula, stop

__all__ = ["check_parts", "expand_gradients", "has_vmap", "list_reached", "make_numbers_tensors"]

_numbers = itertools.count()


def _run_node(module: torch.fx.GraphModule, node: torch.fx.Node, known: dict, samples: int | None) -> Any:
    if node.op == "get_attr":
        value = module
        for name in node.target.split("."):
            value = getattr(value, name)
        return value
    arguments = torch.fx.node.map_arg(node.args, known.__getitem__)
    keywords = torch.fx.node.map_arg(node.kwargs, known.__getitem__)
    if node.target is torch.ops.higher_order.wrap_with_set_grad_enabled:
        enabled, body, *given = arguments
        if not enabled:  # what it writes has no gradient of what it reads
            written = list_written_inputs(body)
            given = [stop(value) if isinstance(value, torch.Tensor) and place not in written else value for place, value in enumerate(given)]
        with torch.set_grad_enabled(enabled):
            value = _run_region(body, given, samples)
        return value if enabled else pytree.tree_map_only(torch.Tensor, stop, value)
    if node.target is torch.ops.higher_order.wrap_with_autocast:
        device, dtype, enabled, caches, body, *given = arguments
        with torch.autocast(device, dtype, enabled, caches):
            return _run_region(body, given, samples)
    if node.target in (torch.ops.aten.detach.default, torch.ops.aten.detach_.default):
        return stop(arguments[0])
    if node.target is WITH_FORMULA and torch.is_grad_enabled():
        return run_formula(node, known, lambda body, values: _run_region(body, values, samples))
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return _run_graphs(node.target, tuple(arguments), dict(keywords), samples)
    return FORWARDS.get(node.target, node.target)(*arguments, **keywords)


def _run_region(body: torch.fx.GraphModule, given: list, samples: int | None) -> Any:
    known: dict[torch.fx.Node, Any] = {}
    waiting = iter(given)
    for node in body.graph.nodes:
        if node.op == "output":
            return torch.fx.node.map_arg(node.args[0], known.__getitem__)
        known[node] = next(waiting) if node.op == "placeholder" else _run_node(body, node, known, samples)
    return None


class _Graphs:
    """What the rules of operators with graphs ask of the engine, which a program is given to later."""

    def __init__(self, samples: int | None):
        self.samples = samples

    def run(self, body: torch.fx.GraphModule, values: Any) -> Any:
        if any("_assert" in str(node.target) for node in body.graph.nodes):
            raise Refused("a gradient inside the step through a branch or a loop with a check in it is not supported; make the check outside")
        return _run_region(body, list(values), self.samples)

    @staticmethod
    def is_parameter(value: Any) -> bool:
        return False

    @staticmethod
    def is_plain(body: torch.fx.GraphModule, values: list) -> bool:
        return False

    @staticmethod
    @contextlib.contextmanager
    def taking(condition: torch.Tensor) -> Iterator[None]:
        yield


def _run_graphs(target: torch._ops.HigherOrderOperator, arguments: tuple, keywords: dict, samples: int | None) -> Any:
    """`torch.cond` and its kin, both sides of a branch and all turns of a loop."""
    name = f"higher_order::{target.name()}"
    if name not in control_flow.RULES or name == "higher_order::while_loop":
        raise Refused(f"a gradient inside the step through torch.{target.name()} is not supported; write it in Python, with a fixed number of "
                      "turns of which those behind the last change nothing, as in torch.where(goes_on, new, old)")
    return control_flow.RULES[name](_Graphs(samples), target, arguments, keywords)


def _is_gradient(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is torch.ops.memopt.gradient_of.default


def _root(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose storage a node may have."""
    while node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        is_alias = schema is not None and any(result.alias_info is not None for result in schema.returns)
        if not (is_alias or node.target is operator.getitem) or not node.args or not isinstance(node.args[0], torch.fx.Node):
            break
        node = node.args[0]
    return node


def _list_written(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The roots of what a node writes to."""
    return list(map(_root, list_written(node)))


def list_reached(nodes: list[torch.fx.Node], before: list[torch.fx.Node], outputs: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """What is computed from them: by reading, or by a write to a tensor that is read later. Buffers keep no gradient of what is
    written to them."""
    found: set[torch.fx.Node] = set()
    written: set[torch.fx.Node] = set()
    sources = set(nodes)
    for node in before:
        # What a gradient is taken by it sees through the outputs.
        read = (*node.args[0], *node.args[2]) if _is_gradient(node) else node.all_input_nodes
        if any(value in sources or value in found or _root(value) in written for value in read):
            found.add(node)
            written.update(root for root in _list_written(node) if root.op != "placeholder")
    return found | {node for node in outputs if _root(node) in written}


def list_needed(before: list[torch.fx.Node], outputs: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """What outputs are computed from: by reading, or by a write to a tensor that is read later."""
    found, roots = set(outputs), set(map(_root, outputs))
    for node in reversed(before):
        if node in found or any(root in roots for root in _list_written(node)):
            found.update((node, *node.all_input_nodes))
            roots.update(map(_root, node.all_input_nodes))
    return found


def _choose_nodes(before: list[torch.fx.Node], between: set[torch.fx.Node]) -> tuple[list, list]:
    """The nodes that are run once more, which are those between and what they read that was written over since; and what is given
    to them."""
    places = {node: place for place, node in enumerate(before)}
    writes = [(place, root) for place, node in enumerate(before) for root in _list_written(node)]
    inside = {node for node in before if node in between}
    given: dict[torch.fx.Node, None] = {}
    waiting = list(inside)
    while waiting:
        for value in waiting.pop().all_input_nodes:
            if value in inside or value in given:
                continue
            is_tensor = isinstance(value.meta.get("val"), torch.Tensor)
            is_old = any(place > places[value] and root is _root(value) for place, root in writes)
            if value.op != "placeholder" and (not is_tensor or is_old):
                more = [value, *(node for node in before if is_old and _root(value) in _list_written(node))]
                waiting += [node for node in more if node not in inside]
                inside.update(more)
            else:
                given[value] = None
    return sorted(inside, key=places.__getitem__), list(given)


def _count_samples(program: torch.export.ExportedProgram) -> int | None:
    """The first size of all inputs, where they have one."""
    names = set(program.graph_signature.user_inputs)
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    sizes = {value.shape[0] if value.dim() else None for value in values if isinstance(value, torch.Tensor)}
    return sizes.pop() if len(sizes) == 1 else None


def _find_captured(inputs: list[torch.fx.Node], before: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """Tensors before their hooks, which PyTorch calls for a gradient by a tensor, unless it goes on from there to another of the inputs."""
    inputs = list(map(find_original, inputs))
    captured = []
    for node in inputs:
        own = node
        while own.target is operator.getitem and own.args[0].target is WITH_FORMULA and is_hook(own.args[0]):
            own = find_original(own.args[0].args[2][own.args[1]])
        goes_on = own is not node and own in list_reached([other for other in inputs if other is not node], before, [])
        captured.append(node if goes_on else own)
    return captured


def _copy_written(graph: torch.fx.Graph, marker: torch.fx.Node) -> None:
    """A gradient by a tensor that was written to is one by what it is then: a copy, which all that reads the tensor behind the last write
    reads in its place."""
    nodes = list(graph.nodes)
    for tensor in {_root(node) for node in marker.args[1] if _root(node).op == "call_function"}:
        writes = [place for place, node in enumerate(nodes[:nodes.index(marker)]) if tensor in _list_written(node)]
        if not writes:
            continue
        before, behind = nodes[:writes[-1] + 1], set(nodes[writes[-1] + 1:])
        with graph.inserting_after(before[-1]):
            last = graph.call_function(torch.ops.aten.clone.default, (tensor,))
        last.meta.update(tensor.meta)
        copies = {tensor: last}  # by the names that there are for the tensor
        for name in before:
            source = looks_at(name)
            if source in copies and is_other_name(name):
                copies[name] = copies[source]
            elif source in copies:
                with graph.inserting_after(last):
                    last = copies[name] = graph.node_copy(name, lambda value: copies.get(value, value))
        for name, other in copies.items():
            name.replace_all_uses_with(other, lambda user: user in behind)


def _check_formulas(marked: list[torch.fx.Node], reached: set[torch.fx.Node], before: list[torch.fx.Node], front: str) -> None:
    """Their results are as they were made."""
    written = {root for node in before for root in _list_written(node)}
    for node in marked:
        if node not in reached or any(_root(result) in written for result in (node, *node.users)):
            kind = "hook" if is_hook(node) else "torch.autograd.Function"
            raise Refused(f"{front}a gradient of a {kind} inside the step, whose result is written over, is not supported; write to a copy of it")


def _expand(program: torch.export.ExportedProgram, marker: torch.fx.Node, samples: int | None) -> None:
    """What lies between the inputs and the outputs is run by autograd; what that makes takes the place of both."""
    module, graph = program.graph_module, program.graph_module.graph
    _copy_written(graph, marker)
    outputs, inputs, seed_nodes = (list(part) for part in marker.args)
    place = place_of_node(marker)
    front = f"{place}: " if place else ""
    before = list(itertools.takewhile(lambda node: node is not marker, graph.nodes))
    inputs = _find_captured(inputs, before)
    reached = list_reached(inputs, before, outputs) & list_needed(before, outputs)
    starts = [node for node in dict.fromkeys(inputs) if node not in reached]
    run, given = _choose_nodes(before, reached)
    marked = [node for node in run if node.target is WITH_FORMULA]
    _check_formulas(marked, reached, before, front)
    given = list(dict.fromkeys([*starts, *(result for node in marked for result in node.users),
                                *(node for node in given if node not in starts),
                                *(node for node in outputs if node not in reached and node not in given)]))
    behind = _list_behind(marker)
    own = set(run) - set(given)  # views of what is given stay views of that
    kept = [node for node in run if node in reached and isinstance(node.meta.get("val"), torch.Tensor) and _root(node) in own
            and behind & node.users.keys()]
    fake = next(node.meta["val"].fake_mode for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor))

    def differentiate(values, seeds):
        # What is written to here is written to in the program already.
        known = {node: value.detach().clone() if isinstance(value, torch.Tensor) else value for node, value in zip(given, values)}
        with torch.enable_grad():
            for node in starts:
                known[node].requires_grad_()
            for node in run:
                known[node] = _run_node(module, node, known, samples)
                if node in inputs and not known[node].requires_grad:
                    known[node] = known[node].detach().requires_grad_()
            seeds = [known.get(node, value) for node, value in zip(seed_nodes, seeds)]
            pairs = [(known[node], seed) for node, seed in zip(outputs, seeds) if known[node].requires_grad]
            found = torch.autograd.grad([value for value, _ in pairs], [known[node] for node in inputs], [seed for _, seed in pairs],
                                        allow_unused=True) if pairs else [None] * len(inputs)
        found = [torch.zeros_like(known[node]) if gradient is None else gradient.clone() for node, gradient in zip(inputs, found)]
        return [*found, *(known[node] for node in kept)]
    with fake, sdpa_kernel(SDPBackend.MATH):  # fused attention has a backward pass that has no gradient
        made = make_fx(differentiate, decomposition_table=DECOMPOSITIONS)(
            [_forget(node.meta["val"]) for node in given], [torch.empty_like(_forget(node.meta["val"])) for node in outputs])
    write_statistics(made.graph)
    guard_quotients(made.graph)
    _name_detached(made.graph)
    known = dict(zip((node for node in made.graph.nodes if node.op == "placeholder"), [*given, *seed_nodes]))
    with graph.inserting_before(marker):
        for node in made.graph.nodes:
            if node.op == "get_attr":
                raise Refused(f"{front}a gradient inside the step needs constants that cannot be traced")
            if node.op == "call_function":
                known[node] = graph.node_copy(node, known.__getitem__)
                known[node].name = f"inner_gradient_{next(_numbers)}"
                for key in ("stack_trace", "nn_module_stack"):
                    if key in marker.meta:
                        known[node].meta[key] = marker.meta[key]
            elif node.op == "output":
                results = torch.fx.node.map_arg(node.args[0], known.__getitem__)
    for user in list(marker.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(results[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(marker)
    for node, value in zip(kept, results[len(inputs):]):  # so that draws are the same, and nothing is computed twice
        if node is not value:
            node.replace_all_uses_with(value, delete_user_cb=behind.__contains__)


def _list_behind(marker: torch.fx.Node) -> set[torch.fx.Node]:
    return set(itertools.dropwhile(lambda node: node is not marker, marker.graph.nodes)) - {marker}


def _name_detached(graph: torch.fx.Graph) -> None:
    """What autograd has detached it has not; what the model has stopped it has detached."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.op == "call_function" and node.target is torch.ops.memopt.stopped.default:
            node.target = torch.ops.aten.detach.default
    graph.eliminate_dead_code()


def _forget(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def has_vmap(program: torch.export.ExportedProgram) -> bool:
    """Whether operators on single samples, between the marks of torch.vmap, are among the nodes."""
    return any(getattr(node.target, "__module__", "") == predispatch.__name__ for node in program.graph_module.graph.nodes)


def check_parts(program: torch.export.ExportedProgram) -> None:
    """Before operators on single samples are written out all writes are, and parts at places that follow from the data are no views then."""
    parts: set[torch.fx.Node] = set()  # tensors of which there is one
    for node in program.graph.nodes:
        if any(list_names(written)[-1] in parts for written in list_written(node)):
            raise Refused(f"{place_of_node(node) or 'the model'}: a write to a part whose place follows from the data, or to what it is a part "
                          "of, is not supported in a model that calls torch.vmap; use index_copy, which gives another tensor")
        if node.target is PART_AT:
            parts.add(list_names(node)[-1])


def make_numbers_tensors(program: torch.export.ExportedProgram) -> None:
    """Under torch.vmap a number beside one number of each sample is cast as if it were a tensor; so it becomes one."""
    for node in program.graph_module.graph.nodes:
        if node.target is torch.ops.aten._to_copy.default and not isinstance(node.args[0], torch.fx.Node):
            node.target, node.args = torch.ops.aten.full.default, ([], node.args[0])
            node.kwargs = {key: value for key, value in node.kwargs.items() if key in ("dtype", "device")}
    program.graph_module.recompile()


def _writes(node: torch.fx.Node) -> bool:
    """Whether a node has to stay though nobody reads it."""
    if node.is_impure() or next(list_written(node), None) is not None:
        return True
    if node.op != "call_function":
        return False
    owner = node.graph.owning_module
    bodies = [getattr(owner, value.target) for value in node.all_input_nodes if value.op == "get_attr" and owner is not None]
    return any(isinstance(body, torch.fx.GraphModule) and any(map(_writes, body.graph.nodes)) for body in bodies)


def expand_gradients(program: torch.export.ExportedProgram) -> bool:
    """Writes out the gradients that a program takes, in place; whether there were any."""
    markers = [node for node in program.graph_module.graph.nodes if _is_gradient(node)]
    samples = _count_samples(program)
    for marker in markers:
        _expand(program, marker, samples)
    if markers:
        program.graph_module.graph.eliminate_dead_code(is_impure_node=_writes)
        program.graph_module.recompile()
    return bool(markers)
