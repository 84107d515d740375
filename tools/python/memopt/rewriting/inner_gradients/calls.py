# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that a model takes itself, while it is traced: such a call is one node, `memopt.gradient_of`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._functorch import predispatch
from torch.fx.experimental import proxy_tensor
from torch.utils import _pytree as pytree

from ...errors import Refused
from ...user_code.places import find_caller, is_hidden
from ..regions import find_original
from .expansion import list_reached

__all__ = ["REPLACED"]

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
    return frame is None or is_hidden(frame.f_code.co_filename) and frame.f_code.co_filename != "<string>"  # `python -c`


def _list_nodes(values: list) -> tuple[torch.fx.Graph | None, list[torch.fx.Node]]:
    """The trace, and the nodes of these; under torch.vmap they have none."""
    mode = proxy_tensor.get_proxy_mode()
    slots = [proxy_tensor.get_proxy_slot(value, mode.tracer, None) for value in values] if mode is not None else []
    if not slots or any(slot is None for slot in slots):
        return None, []
    return mode.tracer.graph, [slot.proxy.node for slot in slots]


def _is_unused(outputs: list, value: torch.Tensor) -> bool:
    """Whether the outputs are not computed from an input, but by ways that have no gradient."""
    graph, nodes = _list_nodes([value, *outputs])
    if graph is None:
        return False
    with proxy_tensor.disable_proxy_modes_tracing():
        nodes[0] = find_original(nodes[0])
    enabled, before = True, []
    for node in graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            enabled = node.args[0]
        elif enabled and node.target not in (torch.ops.aten.detach.default, torch.ops.aten.detach_.default):
            before.append(node)
    return not list_reached(nodes[:1], before, nodes[1:]).union(nodes[:1]).intersection(nodes[1:])


def _grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
          is_grads_batched=False, materialize_grads=False):
    """torch.autograd.grad; what the outputs do not depend on has the gradient zero, or none where that is allowed."""
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
    found = _differentiate(outputs, inputs, seeds, create_graph)
    if allow_unused and not materialize_grads:
        return tuple(None if _is_unused(outputs, value) else gradient for value, gradient in zip(inputs, found))
    return tuple(found)


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
