# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Warnings of numbers that a compiled step has otherwise than the loop in PyTorch."""

from __future__ import annotations

import pickle
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import NumbersWarning
from ..user_code.places import is_own

__all__ = ["Differences", "DrawingSources", "find_draws"]

#: Remarks of the compiler that speak of other numbers.
_REMARKS = re.compile(r"takes statistics of each of|keeps \d+ activations in (?!f32)")
#: Of ops that draw only if they are told to: the arguments with the probability and with the mode.
_PROBABILITIES = {"native_dropout": (1, 2), "dropout": (1, 2), "feature_dropout": (1, 2), "alpha_dropout": (1, 2),
                  "scaled_dot_product_attention": (4, None), "_scaled_dot_product_flash_attention_for_cpu": (3, None),
                  "lstm": (5, 6), "gru": (5, 6), "rnn_tanh": (5, 6), "rnn_relu": (5, 6)}


def _draws(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target.overloadpacket.__name__
    if name not in _PROBABILITIES:
        return torch.Tag.nondeterministic_seeded in node.target.tags

    def get(place: int):
        argument = node.target._schema.arguments[place]
        return node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
    probability, mode = _PROBABILITIES[name]
    return bool(get(probability)) and (mode is None or get(mode) is not False)


def find_draws(program: torch.export.ExportedProgram) -> list[str]:
    """The ops of a program that draw random numbers."""
    return sorted({node.target.overloadpacket.__name__.removeprefix("native_") for node in program.graph.nodes if _draws(node)})


class DrawingSources:
    """The generators of Python and NumPy that a whole process shares, and those among values that a step reads, by their paths."""

    def __init__(self, values: Iterable[tuple[str, Any]] = ()):
        self._own = {path: value for path, value in values if _find_state(value) is not None}
        self._states = self._read()

    def _read(self) -> dict[str, bytes]:
        states = {"random": pickle.dumps(random.getstate())}
        numpy = sys.modules.get("numpy")  # who has not loaded it has not drawn
        if numpy is not None:
            states["numpy.random"] = pickle.dumps(numpy.random.get_state())
        return {**states, **{path: pickle.dumps(_find_state(value)()) for path, value in self._own.items()}}

    def list_drawn(self) -> list[str]:
        """Those that have gone on."""
        return [name for name, state in self._read().items() if self._states.get(name, state) != state]


def _find_state(value: Any) -> Callable[[], Any] | None:
    """What reads the state of a generator; None where it is none."""
    if isinstance(value, random.Random):
        return value.getstate
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return value.get_state
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return lambda: value.bit_generator.state
    return (lambda: bytes(value.get_state())) if isinstance(value, torch.Generator) else None


@dataclass(frozen=True)
class Differences:
    """What was seen of a step, its model and the compiler's remarks; warn() tells of what changes numbers."""

    #: Ops that draw random numbers.
    draws: Sequence[str] = ()
    #: Modules that the model has in evaluation mode, and the step in training mode.
    turned: Sequence[str] = ()
    #: Numbers, tensors and iterators that forward changes for its next call, by their paths.
    counters: Sequence[str] = ()
    kept: Sequence[str] = ()
    iterators: Sequence[str] = ()
    #: Generators that forward has drawn from.
    drawn_once: Sequence[str] = ()
    #: Parameters with a gradient that no optimizer has, where gradients are clipped.
    unclipped: Sequence[str] = ()
    remarks: Sequence[str] = ()

    def warn(self) -> None:
        """One `NumbersWarning` for each reason, at the user's line."""
        for text in dict.fromkeys(_describe(self)):
            warnings.warn(text, NumbersWarning, stacklevel=_count_own_frames())


def _describe(found: Differences) -> Iterator[str]:
    if found.draws:
        yield (f"the step draws random numbers ({', '.join(found.draws)}) by counter: they have PyTorch's distribution, not its values")
    if found.turned:
        yield ("the model is in evaluation mode (eval()), the step is compiled in training mode, with dropout and statistics of "
               "batches; call model.train() first, or put single modules in evaluation mode")
    for counter in found.counters:
        yield f"forward changes the number {counter}; the step has the value that it was compiled with in each step"
    for tensor in found.kept:
        yield (f"forward leaves a tensor in {tensor} for its next call; the step has what was there when it was compiled in each step: "
               "make it a buffer (register_buffer), which a step keeps. Without a difference is a cache of what neither batches nor "
               "parameters change")
    for iterator in found.iterators:
        yield (f"forward takes values from the iterator {iterator}; the step has those that it took when it was compiled in each "
               "step: give them with the batch, or as a number that the loop sets")
    for source in found.drawn_once:
        yield (f"forward draws from {source}; the step has the numbers that it drew when it was compiled in each step: draw with "
               "torch.rand instead")
    if found.unclipped:
        others = f" and {len(found.unclipped) - 1} more" if len(found.unclipped) > 1 else ""
        yield (f"max_grad_norm is for the norm of the gradients of what the optimizer has. '{found.unclipped[0]}'{others} is not in the "
               "optimizer and needs a gradient, which clip_grad_norm_(model.parameters()) counts, and adds to from step to step "
               "where only optimizer.zero_grad() is called: requires_grad_(False) makes both the same")
    for remark in found.remarks:
        if _REMARKS.search(remark):
            yield re.sub(r"^.*?remark: ", "", remark)


def _count_own_frames() -> int:
    """The level of the user's frame, as seen by the caller."""
    frame, count = sys._getframe(1), 0
    while frame is not None and is_own(frame.f_code.co_filename):
        frame, count = frame.f_back, count + 1
    return count + 1
