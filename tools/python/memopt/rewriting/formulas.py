# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values with a gradient of their own: the backward formula stands in the graph as well, between two marks.

    y = ...                                                  what forward computes
    g = torch.ops.memopt.incoming_gradient(y, 0)
    d = ...                                                  what backward computes from g
    z, = torch.ops.memopt.custom_gradient([y], [g], [x], [d])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..errors import Refused
from ..internals import is_real, map_tensors

__all__ = ["Context", "INCOMING", "WITH_FORMULA", "fit", "join", "needs_gradient", "with_formula"]

_library = torch.library.Library("memopt", "FRAGMENT")
_library.define("incoming_gradient(Tensor value, int result) -> Tensor")
_library.define("custom_gradient(Tensor[] values, Tensor[] gradients, Tensor[] inputs, Tensor[] input_gradients) -> Tensor[]")
_library.impl("incoming_gradient", lambda value, result: torch.zeros_like(value), "CompositeExplicitAutograd")
_library.impl("custom_gradient", lambda values, gradients, inputs, input_gradients: [value.clone() for value in values],
              "CompositeExplicitAutograd")
INCOMING, WITH_FORMULA = torch.ops.memopt.incoming_gradient.default, torch.ops.memopt.custom_gradient.default


class Context:
    """What forward, setup_context and backward of a Function see as `ctx`."""

    def __init__(self, name: str, needs_input_grad: tuple):
        self._name, self.needs_input_grad, self.saved_tensors, self._constant = name, needs_input_grad, (), ()

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_non_differentiable(self, *tensors):
        self._constant = tensors

    def set_materialize_grads(self, value):
        pass

    def mark_dirty(self, *tensors):
        raise Refused(f"{self._name} writes over its input (mark_dirty), which is not supported; return a new tensor")


def needs_gradient(value) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def fit(gradient: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """What autograd does with a gradient that was broadcast, or computed in another type."""
    if gradient.shape != value.shape:
        gradient = gradient.sum_to_size(value.shape)
    return gradient if gradient.dtype == value.dtype else gradient.to(value.dtype)


def join(args: tuple, outputs, context: Context, formula: Callable[[list], list]):
    """The outputs, marked with what `formula` gives for gradients of them."""
    several = isinstance(outputs, (tuple, list))
    outputs = list(outputs) if several else [outputs]
    active = [i for i, value in enumerate(outputs)
              if is_real(value) and not any(value is constant for constant in context._constant)]
    incoming = [torch.ops.memopt.incoming_gradient(outputs[i], n) for n, i in enumerate(active)]
    gradients = [None if not isinstance(value, torch.Tensor) else torch.zeros_like(value) for value in outputs]
    for i, gradient in zip(active, incoming):
        gradients[i] = gradient
    pairs = [(value, gradient) for value, gradient in zip(args, formula(gradients)) if needs_gradient(value) and gradient is not None]
    inputs = [value for value, _ in pairs]
    input_gradients = [fit(gradient, value) for value, gradient in pairs]
    marked = torch.ops.memopt.custom_gradient([outputs[i] for i in active], incoming, inputs, input_gradients)
    for i, value in enumerate(outputs):
        if isinstance(value, torch.Tensor):
            outputs[i] = marked[active.index(i)] if i in active else value.detach()
    return tuple(outputs) if several else outputs[0]


def with_formula(name: str, args: Sequence, run: Callable, keep: Callable | None, backward: Callable | None):
    """What `run(*args)` gives, with a gradient of its own: `keep(ctx, args, output)` saves what `backward(ctx, *gradients)` needs,
    which gives one gradient for each of `args`. Without it, none comes through."""
    args = tuple(args)
    context = Context(name, tuple(needs_gradient(value) for value in args))
    with torch.no_grad():
        outputs = run(*args)
    if backward is None or not any(context.needs_input_grad):
        return map_tensors(torch.Tensor.detach, outputs)
    # What forward made has no history here, but it has a gradient.
    outputs = map_tensors(torch.Tensor.detach, outputs)
    if keep is not None:
        keep(context, args, outputs)

    def formula(gradients: list) -> list:
        with torch.no_grad():
            given = backward(context, *gradients)
        given = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(given) != len(args):
            raise Refused(f"the gradient of {name} has {len(given)} parts, expected {len(args)}")
        return given
    return join(args, outputs, context, formula)
