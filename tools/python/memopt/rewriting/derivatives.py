# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that a model takes itself: `torch.autograd.grad` and `torch.func.grad` in forward or in the loss.

While the model is traced, such a call is one node, `memopt.gradient_of`. Then the program up to it is run once more by PyTorch's
autograd, and the operators that this makes take the place of the node. So the program has no gradient left in it but operators,
and those have gradients themselves.
"""

from __future__ import annotations

import itertools
import operator
import sys
from typing import Any

import torch
from torch._functorch import predispatch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from ..errors import Refused
from ..user_code.places import find_caller, is_hidden, place_of_node
from .double_backward import DECOMPOSITIONS, FORWARDS, write_statistics
from .regions import REGIONS, body_of, find_original, list_written

__all__ = ["REPLACED", "expand_gradients", "has_vmap", "make_numbers_tensors"]

_functorch = torch._C._functorch
_library = torch.library.Library("memopt", "FRAGMENT")
_library.define("gradient_of(Tensor[] outputs, Tensor[] inputs, Tensor[] seeds) -> Tensor[]")
_library.impl("gradient_of", lambda outputs, inputs, seeds: [torch.zeros_like(value) for value in inputs], "CompositeExplicitAutograd")


def _differentiate_batch(info, in_dims, outputs, inputs, seeds):
    """Under torch.vmap samples know nothing of each other, so that the gradient of all of them is that of each."""
    output_dims, input_dims, seed_dims = in_dims
    if any(dim is None for dim in input_dims):
        raise Refused("under torch.vmap inside the step, a gradient by what all samples share is not supported; give torch.func.grad "
                      "the shared tensor as an argument")
    pairs = [(output, dim, seed, seed_dim) for output, dim, seed, seed_dim in zip(outputs, output_dims, seeds, seed_dims)
             if dim is not None]  # others do not depend on the samples
    seeds = [seed.movedim(seed_dim, dim) if seed_dim is not None else seed.unsqueeze(dim).expand(output.shape)
             for output, dim, seed, seed_dim in pairs]
    return torch.ops.memopt.gradient_of([output for output, *_ in pairs], list(inputs), seeds), list(input_dims)


torch.library.register_vmap("memopt::gradient_of", _differentiate_batch, lib=_library)
#: A value without a gradient; autograd detaches what it saves, which is no word of the model's.
_library.define("stopped(Tensor value) -> Tensor")
_library.impl("stopped", lambda value: value.clone(), "CompositeExplicitAutograd")


# ----------------------------------------------------------------------------------------------------------
# While the model is traced
# ----------------------------------------------------------------------------------------------------------

def _list(value: Any) -> list:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _differentiate(outputs: list, inputs: list, seeds: list, create_graph: bool) -> list[torch.Tensor]:
    seeds = [torch.ones_like(value) if seed is None else seed.expand_as(value) for value, seed in zip(outputs, seeds)]
    found = torch.ops.memopt.gradient_of(outputs, inputs, seeds)
    return found if create_graph else [value.detach() for value in found]


def _called_by_torch() -> bool:
    frame = find_caller(sys._getframe(2))
    return frame is None or is_hidden(frame.f_code.co_filename)


def _grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
          is_grads_batched=False, materialize_grads=False):
    """torch.autograd.grad; what the outputs do not depend on has the gradient zero."""
    if _called_by_torch():
        return _grad.original(outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched,
                              materialize_grads)
    outputs, inputs = _list(outputs), _list(inputs)
    seeds = _list(grad_outputs) if grad_outputs is not None else [None] * len(outputs)
    if is_grads_batched:
        count = next(seed.shape[0] for seed in seeds if seed is not None)
        rows = [_differentiate(outputs, inputs, [seed if seed is None else seed[number] for seed in seeds], create_graph)
                for number in range(count)]
        return tuple(torch.stack(parts) for parts in zip(*rows))
    return tuple(_differentiate(outputs, inputs, seeds, create_graph))


_grad.original = torch.autograd.grad


def _copy(value: torch.Tensor) -> torch.Tensor:
    """Under torch.vmap, one for each sample."""
    levels, inner = set(), value
    while _functorch.is_batchedtensor(inner):
        levels.add(_functorch.maybe_get_level(inner))
        inner = _functorch.get_unwrapped(inner)
    value = value.clone()
    for layer in _functorch.get_interpreter_stack() or ():
        if layer.key() == _functorch.TransformType.Vmap and layer.level() not in levels:
            count = _functorch.CVmapInterpreterPtr(layer).batchSize()
            value = predispatch._add_batch_dim(value.expand(count, *value.shape), 0, layer.level())
    return value


def _take(values: tuple, argnums: Any) -> list[int]:
    """Where the arguments are that are differentiated by."""
    places = [argnums] if isinstance(argnums, int) else list(argnums)
    places = [place % len(values) for place in places]
    return places


def _value_and_gradient(func, argnums, has_aux, args, kwargs):
    """What torch.func.grad_and_value gives."""
    places, args = _take(args, argnums), list(args)
    for place in places:
        args[place] = pytree.tree_map_only(torch.Tensor, lambda value: _copy(value) if value.is_floating_point() else value, args[place])
    given = func(*args, **kwargs)
    value, aux = given if has_aux else (given, None)
    leaves, spec = pytree.tree_flatten([args[place] for place in places])
    found = pytree.tree_unflatten(_differentiate([value], leaves, [None], True), spec)
    return (found[0] if isinstance(argnums, int) else tuple(found)), ((value, aux) if has_aux else value), aux


def _grad_impl(func, argnums, has_aux, args, kwargs):
    found, _, aux = _value_and_gradient(func, argnums, has_aux, args, kwargs)
    return (found, aux) if has_aux else found


def _grad_and_value_impl(func, argnums, has_aux, args, kwargs):
    found, value, _ = _value_and_gradient(func, argnums, has_aux, args, kwargs)
    return found, value


def _vjp(func, *primals, argnums=None, has_aux=False):
    """torch.func.vjp: outputs, and a function of their gradients."""
    places = list(range(len(primals))) if argnums is None else _take(primals, argnums)
    args = list(primals)
    for place in places:
        args[place] = pytree.tree_map_only(torch.Tensor, _copy, args[place])
    given = func(*args)
    value, aux = given if has_aux else (given, None)
    leaves, spec = pytree.tree_flatten([args[place] for place in places])
    outputs, _ = pytree.tree_flatten(value)

    def pull(*gradients, **_):
        gradients = gradients[0] if len(gradients) == 1 else gradients
        seeds, _ = pytree.tree_flatten(gradients)
        found = pytree.tree_unflatten(_differentiate(outputs, leaves, seeds, True), spec)
        return found[0] if isinstance(argnums, int) else tuple(found)
    return (value, pull, aux) if has_aux else (value, pull)


def _jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """torch.func.jacrev, a gradient for each element of each result."""
    def jacobian(*args, **kwargs):
        value, pull, *aux = _vjp(lambda *given: func(*given, **kwargs), *args, argnums=argnums, has_aux=has_aux)
        outputs, outputs_spec = pytree.tree_flatten(value)
        found = []
        for place, output in enumerate(outputs):
            size, rows = output.numel(), []
            for number in range(size):
                seed = torch.nn.functional.one_hot(torch.tensor(number), size).to(output.dtype).reshape(output.shape)
                rows.append(pull(pytree.tree_unflatten([seed if other == place else torch.zeros_like(outputs[other])
                                                        for other in range(len(outputs))], outputs_spec)))
            flat = [pytree.tree_flatten(row)[0] for row in rows]
            joined = [torch.stack(parts).reshape([*output.shape, *parts[0].shape]) for parts in zip(*flat)]
            found.append(pytree.tree_unflatten(joined, pytree.tree_flatten(rows[0])[1]))
        result = pytree.tree_unflatten(found, outputs_spec)
        return (result, aux[0]) if has_aux else result
    return jacobian


def _jvp(func, primals, tangents, argnums=None, *, strict=False, has_aux=False):
    """torch.func.jvp: the gradient of a gradient by its seed."""
    value, pull, *aux = _vjp(func, *primals, argnums=argnums, has_aux=has_aux)
    outputs, spec = pytree.tree_flatten(value)
    dummies = [torch.zeros_like(output).clone() for output in outputs]
    found = pull(pytree.tree_unflatten(dummies, spec))
    tangents = tangents if isinstance(tangents, (tuple, list)) else (tangents,)
    leaves, seeds = pytree.tree_flatten(found)[0], pytree.tree_flatten(tuple(tangents))[0]
    return value, pytree.tree_unflatten(_differentiate(leaves, dummies, seeds, True), spec), *aux


def _jacfwd(func, argnums=0, has_aux=False, *, chunk_size=None, randomness="error"):
    return _jacrev(func, argnums, has_aux=has_aux)


def _hessian(func, argnums=0):
    return _jacrev(_jacrev(func, argnums), argnums)


def _loop(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """The torch.vmap in which PyTorch's own jacrev and jacfwd, which a module has imported by name, take one seed after the other."""
    def run(*args):
        leaves, spec = pytree.tree_flatten(args)
        results = [func(*pytree.tree_unflatten(list(parts), spec)) for parts in zip(*(leaf.unbind(0) for leaf in leaves))]
        flat = [pytree.tree_flatten(result)[0] for result in results]
        return pytree.tree_unflatten([torch.stack(parts) for parts in zip(*flat)], pytree.tree_flatten(results[0])[1])
    return run


_transforms = torch._functorch.eager_transforms
_REWRITTEN = {"grad_impl": _grad_impl, "grad_and_value_impl": _grad_and_value_impl, "_vjp_with_argnums": _vjp, "_jvp_with_argnums": _jvp,
              "vmap": _loop, "jacrev": _jacrev, "jacfwd": _jacfwd}
#: What is replaced while a step is traced: owner, name and the other function.
REPLACED = [(torch.autograd, "grad", _grad), *((_transforms, name, function) for name, function in _REWRITTEN.items()
                                               if hasattr(_transforms, name)),
            (torch.func, "vjp", lambda func, *primals, has_aux=False: _vjp(func, *primals, has_aux=has_aux)),
            (torch.func, "jacrev", _jacrev), (torch.func, "jacfwd", _jacfwd), (torch.func, "hessian", _hessian),
            (torch.func, "jvp", _jvp)]


# ----------------------------------------------------------------------------------------------------------
# In the program
# ----------------------------------------------------------------------------------------------------------

_numbers = itertools.count()


def _is_gradient(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is torch.ops.memopt.gradient_of.default


def _stop(value: torch.Tensor) -> torch.Tensor:
    return torch.ops.memopt.stopped(value.detach())


def _run_node(module: torch.fx.GraphModule, node: torch.fx.Node, known: dict) -> Any:
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
            written = list_written(body)
            given = [_stop(value) if isinstance(value, torch.Tensor) and place not in written else value for place, value in enumerate(given)]
        with torch.set_grad_enabled(enabled):
            value = _run_region(body, given)
        return value if enabled else pytree.tree_map_only(torch.Tensor, _stop, value)
    if node.target is torch.ops.higher_order.wrap_with_autocast:
        device, dtype, enabled, caches, body, *given = arguments
        with torch.autocast(device, dtype, enabled, caches):
            return _run_region(body, given)
    if node.target in (torch.ops.aten.detach.default, torch.ops.aten.detach_.default):
        return _stop(arguments[0])
    return FORWARDS.get(node.target, node.target)(*arguments, **keywords)


def _run_region(body: torch.fx.GraphModule, given: list) -> Any:
    known: dict[torch.fx.Node, Any] = {}
    waiting = iter(given)
    for node in body.graph.nodes:
        if node.op == "output":
            return torch.fx.node.map_arg(node.args[0], known.__getitem__)
        known[node] = next(waiting) if node.op == "placeholder" else _run_node(body, node, known)
    return None


def _is_in_place(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    return schema is not None and schema.is_mutable


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
    if node.target in REGIONS:
        return [_root(node.args[REGIONS[node.target] + place]) for place in sorted(list_written(body_of(node)))]
    return [_root(node)] if _is_in_place(node) else []


def _reach(nodes: list[torch.fx.Node], before: list[torch.fx.Node], outputs: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """What is computed from them: by reading, or by a write to a tensor that is read later. Buffers keep no gradient of what is
    written to them."""
    found: set[torch.fx.Node] = set()
    written: set[torch.fx.Node] = set()
    sources = set(nodes)
    for node in before:
        if any(value in sources or value in found or _root(value) in written for value in node.all_input_nodes):
            found.add(node)
            written.update(root for root in _list_written(node) if root.op != "placeholder")
    return found | {node for node in outputs if _root(node) in written}


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


def _expand(program: torch.export.ExportedProgram, marker: torch.fx.Node) -> None:
    """What lies between the inputs and the outputs is run by autograd; what that makes takes the place of both."""
    module, graph = program.graph_module, program.graph_module.graph
    outputs, inputs, seed_nodes = (list(part) for part in marker.args)
    inputs = [find_original(node) for node in inputs]
    place = place_of_node(marker)
    front = f"{place}: " if place else ""
    before = list(itertools.takewhile(lambda node: node is not marker, graph.nodes))
    reached = _reach(inputs, before, outputs)
    starts = [node for node in dict.fromkeys(inputs) if node not in reached]
    run, given = _choose_nodes(before, reached)
    if any(node.target is torch.ops.memopt.custom_gradient.default for node in run):
        raise Refused(f"{front}a gradient of a torch.autograd.Function inside the step is not supported, as its own formula has "
                      "none; write it in PyTorch's operators")
    given = list(dict.fromkeys([*starts, *(node for node in given if node not in starts),
                                *(node for node in outputs if node not in reached and node not in given)]))
    behind = _list_behind(marker)
    kept = [node for node in run if node in reached and isinstance(node.meta.get("val"), torch.Tensor) and behind & node.users.keys()]
    fake = next(node.meta["val"].fake_mode for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor))

    def differentiate(values, seeds):
        # What is written to here is written to in the program already.
        known = {node: value.detach().clone() if isinstance(value, torch.Tensor) else value for node, value in zip(given, values)}
        with torch.enable_grad():
            for node in starts:
                known[node].requires_grad_()
            for node in run:
                known[node] = _run_node(module, node, known)
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


def make_numbers_tensors(program: torch.export.ExportedProgram) -> None:
    """Under torch.vmap a number beside one number of each sample is cast as if it were a tensor; so it becomes one."""
    for node in program.graph_module.graph.nodes:
        if node.target is torch.ops.aten._to_copy.default and not isinstance(node.args[0], torch.fx.Node):
            node.target, node.args = torch.ops.aten.full.default, ([], node.args[0])
            node.kwargs = {key: value for key, value in node.kwargs.items() if key in ("dtype", "device")}
    program.graph_module.recompile()


def _writes(node: torch.fx.Node) -> bool:
    """Whether a node has to stay though nobody reads it. Schemas of norms do not say that they write running statistics, and a region
    writes what its body writes."""
    if node.is_impure():
        return True
    if node.op != "call_function":
        return False
    if node.target in (torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default):
        return node.args[3] is not None and node.args[5] is not False
    owner = node.graph.owning_module
    bodies = [getattr(owner, value.target) for value in node.all_input_nodes if value.op == "get_attr" and owner is not None]
    return any(isinstance(body, torch.fx.GraphModule) and any(map(_writes, body.graph.nodes)) for body in bodies)


def _write_running(node: torch.fx.Node) -> None:
    """What an instance norm that nobody reads leaves: its schema does not say that it writes, so PyTorch would drop it."""
    x, running_mean, running_var, momentum = node.args[0], node.args[3], node.args[4], node.args[6]
    dims = list(range(2, x.meta["val"].dim()))
    graph, aten = node.graph, torch.ops.aten
    with graph.inserting_before(node):
        both = graph.call_function(aten.var_mean.correction, (graph.call_function(aten.detach.default, (x,)), dims), {"correction": 1})
        for place, running in enumerate((running_var, running_mean)):
            found = graph.call_function(aten.mean.dim, (graph.call_function(operator.getitem, (both, place)), [0]))
            kept = graph.call_function(aten.mul.Scalar, (running, 1 - momentum))
            new = graph.call_function(aten.add.Tensor, (kept, found), {"alpha": momentum})
            graph.call_function(aten.copy_.default, (running, new))
    graph.erase_node(node)


def expand_gradients(program: torch.export.ExportedProgram) -> bool:
    """Writes out the gradients that a program takes, in place; whether there were any."""
    markers = [node for node in program.graph_module.graph.nodes if _is_gradient(node)]
    for marker in markers:
        _expand(program, marker)
    if markers:
        program.graph_module.graph.eliminate_dead_code(is_impure_node=_writes)
        for node in list(program.graph_module.graph.nodes):
            if node.target is torch.ops.aten.instance_norm.default and not node.users and _writes(node):
                _write_running(node)
        program.graph_module.recompile()
    return bool(markers)
