# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keeps what a model says about its gradients, which torch.export drops.

An exported program is a forward pass. Whoever differentiates it has to know where PyTorch would not have, and
where it would have done something else:

- Regions of `torch.no_grad()` are marked by stopped_gradients.py.
- Of a `torch.autograd.Function` only the forward ops are traced. While `watched_gradients` is entered,
  `Function.apply` writes the backward formula into the graph as well (rewriting/formulas.py).

- Of hooks on tensors only what they compute is traced (tensor_hooks.py).
- Other hooks and `backward` leave no trace that a compiler could follow. They are refused by name (`Refused`).

Only the thread that traces sees any of it: others may train meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .. import internals
from ..errors import Error, Refused
from ..rewriting import inner_gradients, integers, layers, observers, sizes
from ..rewriting.checks import REPLACED
from ..rewriting.formulas import Context, join, needs_gradient
from ..user_code.places import called_from
from ..watching.reads import unobserved
from . import inference
from .tensor_hooks import hook_gradient

__all__ = ["Refused", "check_module", "watched_gradients"]


# ----------------------------------------------------------------------------------------------------------
# torch.autograd.Function
# ----------------------------------------------------------------------------------------------------------

def _run_backward(function, context: Context, gradients: list, count: int) -> list:
    """One gradient for each argument of forward, None where there is none."""
    name = function.__qualname__
    formula = function.backward if function.backward is not torch.autograd.Function.backward else function.vjp
    try:
        given = inspect.unwrap(formula)(context, *gradients)
    except Error:
        raise
    except Exception as error:
        raise Refused(f"the backward of {name} cannot be traced: {type(error).__name__}: {error}") from error
    given = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(given) < count or any(extra is not None for extra in given[count:]):
        raise Refused(f"the backward of {name} gives {len(given)} gradients, expected {count}")
    return given[:count]


def _run_checkpoint(run, preserve, *args):
    """Recomputation is the compiler's business. A reentrant checkpoint has no gradients unless an argument has one."""
    outputs = run(*args)
    if any(needs_gradient(value) for value in args):
        return outputs
    return internals.map_tensors(torch.Tensor.detach, outputs)


def _apply(function, *args, **kwargs):
    """Function.apply, traced: forward, the backward formula, and the mark that joins them."""
    if function.__module__ == "torch.utils.checkpoint":
        return _run_checkpoint(*args)
    if function.__module__.split(".")[0] == "torch":
        return _apply.original.__get__(None, function)(*args, **kwargs)
    if _has_setup(function):
        bound = inspect.signature(function.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
    if kwargs:
        raise Refused(f"{function.__qualname__} is applied with keywords, which is not supported")
    context = Context(function.__qualname__, tuple(needs_gradient(value) for value in args))
    with _running(function):
        if _has_setup(function):
            outputs = function.forward(*args)
            function.setup_context(context, args, outputs)
        else:
            outputs = function.forward(context, *args)
    return join(args, outputs, context,
                 lambda gradients: _run_backward(function, context, gradients, len(args)))


_apply.original = torch.autograd.Function.__dict__["apply"]


# A method that was bound before, `sparsemax = Sparsemax.apply`, is PyTorch's own, which calls forward and setup_context.

_runs = threading.local()  # `functions`: those whose forward `_apply` runs


@contextlib.contextmanager
def _running(function):
    outer = getattr(_runs, "functions", ())
    _runs.functions = (*outer, function)
    try:
        yield
    finally:
        _runs.functions = outer


def _has_setup(function) -> bool:
    return function.setup_context is not torch.autograd.Function.setup_context


def _forward_bound(function, forward, *args, **kwargs):
    """Called by PyTorch's own method, which has no gradients enabled, `_apply` of the same; by others, forward."""
    has_setup = _has_setup(function)
    is_applied = not torch.is_grad_enabled() if has_setup else bool(args) and isinstance(args[0], function._backward_cls)
    if not is_applied or function in getattr(_runs, "functions", ()):
        return forward(*args, **kwargs)
    return _apply(function, *(args if has_setup else args[1:]), **kwargs)


def _set_up_bound(function, setup, context, *args, **kwargs):
    """There is nothing to keep for a backward pass that PyTorch would run."""
    return None if isinstance(context, function._backward_cls) else setup(context, *args, **kwargs)


def _list_functions(base: type) -> Iterator[type]:
    for function in base.__subclasses__():
        if function.__module__.split(".")[0] != "torch":
            yield function
        yield from _list_functions(function)


def _call_of_class(replacement, method, function, *args, **kwargs):
    return replacement(function, functools.partial(method, function), *args, **kwargs)


def _list_bound() -> list[tuple]:
    """For each function of others: owner, name and replacement."""
    found: list[tuple] = []
    for function in dict.fromkeys(_list_functions(torch.autograd.Function)):
        for name, replacement in (("forward", _forward_bound), ("setup_context", _set_up_bound))[:1 + _has_setup(function)]:
            original = getattr(function, name)
            call = functools.partial(replacement, function, original)
            if getattr(original, "__self__", None) is function:  # a method of the class, which a derived one may call
                call = functools.partial(_call_of_class, replacement, original.__func__)
            found.append((function, name, call))
    return found


def _refuse(what: str, instead: str):
    def refuse(*args, **kwargs):
        raise Refused(f"{called_from()}: {what} inside the step is not supported; {instead}")
    return refuse


_NO_HOOK = "register_hook changes a gradient; what is done with whole gradients is done by options, such as max_grad_norm"
_NO_GRADIENT = "the loss is differentiated by the step; a gradient that forward needs is torch.autograd.grad(..., create_graph=True)"

def _call_with_graphs(operator, *args, **kwargs):
    """torch.cond and its like: where there are no gradients, none come through."""
    results = _call_with_graphs.original(operator, *args, **kwargs)
    return results if torch.is_grad_enabled() else internals.map_tensors(torch.Tensor.detach, results)


_call_with_graphs.original = torch._ops.HigherOrderOperator.__call__


def _compile(model=None, **keywords):
    """torch.compile: torch.cond and its like have Dynamo make their graphs."""
    compiled = _compile.original(model, **keywords)
    if not getattr(model, "__module__", "").startswith("torch._higher_order_ops"):
        return compiled

    def call(*args, **kwargs):
        with unobserved(filter(callable, torch.utils._pytree.tree_leaves((args, kwargs)))):
            return compiled(*args, **kwargs)
    return call


_compile.original = torch.compile
#: What means something else while a step is traced.
_REPLACED = [*REPLACED, *inner_gradients.REPLACED, *integers.REPLACED, *inference.REPLACED, *layers.REPLACED, *sizes.REPLACED,
             (torch._ops.HigherOrderOperator, "__call__", _call_with_graphs), (torch, "compile", _compile),
             (torch.autograd.Function, "apply", _apply), (torch.Tensor, "register_hook", hook_gradient),
             *((owner, name, _refuse(f"{owner.__name__}.{name}", instead)) for owner, name, instead in (
                 (torch.Tensor, "register_post_accumulate_grad_hook", _NO_HOOK),
                 (torch.Tensor, "backward", _NO_GRADIENT),
                 (torch.autograd, "backward", _NO_GRADIENT)))]


class _Replacements:
    """PyTorch's functions, each with another one that the threads see which have entered."""

    def __init__(self):
        self._entered, self._lock, self._count = threading.local(), threading.Lock(), 0
        self._originals: dict[tuple, Any] = {}  # by owner and name
        self._inherited: set[tuple] = set()  # those that the owner has from a base

    def _choose(self, owner, name, replacement):
        original = self._originals[owner, name]
        if getattr(getattr(owner, name), "__self__", None) is owner:  # a method of the class
            return classmethod(lambda cls, *args, **kwargs: replacement(cls, *args, **kwargs) if self._is_entered()
                               else original.__get__(None, cls)(*args, **kwargs))

        def call(*args, **kwargs):
            return (replacement if self._is_entered() else original)(*args, **kwargs)
        if inspect.isfunction(getattr(owner, name)):
            call.__wrapped__ = getattr(owner, name)  # which has the signature
        return call

    def _is_entered(self) -> bool:
        return getattr(self._entered, "value", False)

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            for owner, name, replacement in (*_REPLACED, *observers.list_replaced(), *_list_bound()):
                if (owner, name) not in self._originals:
                    self._originals[owner, name] = inspect.getattr_static(owner, name)
                    self._inherited.update(() if name in vars(owner) else {(owner, name)})
                    setattr(owner, name, self._choose(owner, name, replacement))
        self._entered.value = True

    def __exit__(self, *_) -> None:
        self._entered.value = False
        with self._lock:
            self._count -= 1
            if self._count == 0:
                for (owner, name), original in self._originals.items():
                    if (owner, name) in self._inherited:
                        delattr(owner, name)
                    else:
                        setattr(owner, name, original)
                self._originals.clear()
                self._inherited.clear()


_replacements = _Replacements()


@contextlib.contextmanager
def watched_gradients():
    """While entered, tracing keeps backward formulas and refuses what would be lost."""
    with _replacements:
        yield


# ----------------------------------------------------------------------------------------------------------
# Refusals
# ----------------------------------------------------------------------------------------------------------

def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Refuses hooks that `step()` calls, which a compiled step does not have."""
    if internals.has_step_hooks(optimizer):
        raise Refused("a compiled step does not run hooks: the optimizer has some around its step (register_step_pre_hook, "
                      "register_step_post_hook); do what they do around step(batch)")


def check_module(step: nn.Module) -> None:
    """Refuses hooks, which tracing does not run, and autocast, which it would bake in."""
    found = []
    for name, parameter in step.named_parameters():
        if internals.has_accumulation_hooks(parameter):
            found.append(f"a hook behind the accumulation of the gradient of '{name}'")
    for name, module in step.named_modules():
        if internals.has_backward_hooks(module):
            found.append(f"a backward hook on module '{name}'")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        found.append("autocast is on")
    if found:
        raise Refused("a compiled step does not run hooks, nor does it know autocast: " + "; ".join(found))
