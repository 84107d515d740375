# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traces of recurrent layers: shapes from the first turn.

A recurrent layer is one operator in a program. To find the shapes of its results PyTorch runs the operator's decomposition on tensors
without values, turn by turn, several times in a trace: a minute for two layers of a few thousand turns. All turns have the same shapes.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator

import torch
from torch._decomp import decompositions
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

__all__ = ["recurrent_layers"]

# Of layers on padded sequences; each gives what all turns gave, and the last hidden values. A release of PyTorch may lack one.
_LAYERS = "one_layer_rnn", "one_layer_lstm"


def _on_first_turn(layer: Callable) -> Callable:
    """`layer`, with the first turn's results for all turns where nobody reads numbers and nothing is recorded."""
    def run(inputs: torch.Tensor, *arguments: object, **keywords: object) -> tuple:
        turns = inputs.shape[0]
        if not isinstance(inputs, FakeTensor) or get_proxy_mode() is not None or not isinstance(turns, int) or turns < 2:
            return layer(inputs, *arguments, **keywords)
        results, hidden = layer(inputs[:1], *arguments, **keywords)
        return results.repeat(turns, *(1 for _ in results.shape[1:])), hidden
    return run


@contextlib.contextmanager
def recurrent_layers() -> Iterator[None]:
    """While entered, PyTorch finds the shapes of recurrent layers from their first turn, and does not warn of the list in which these
    layers keep their weights, which are parameters all the same."""
    originals = {name: getattr(decompositions, name) for name in _LAYERS if hasattr(decompositions, name)}
    for name, layer in originals.items():
        setattr(decompositions, name, _on_first_turn(layer))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"The tensor attributes? (\S+\._flat_weights\[\d+\](, )?)+ (was|were) assigned")
            yield
    finally:
        for name, layer in originals.items():
            setattr(decompositions, name, layer)
