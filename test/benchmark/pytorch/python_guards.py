#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step in Python takes to see that model, loss and optimizer are those that it was compiled for.

    python_guards.py [--rounds 2000] [MODEL...]

Nothing is compiled: models are traced, and what a step compares before it runs is compared again and again; once by the
runtime's library in one call, once by Python alone, which is what happens where the library cannot. Prints how many modules
and parameters there are, and the least and the median of microseconds. Needs PyTorch, torchvision and transformers.
"""
from __future__ import annotations

import argparse
import statistics
import time
import types
from collections.abc import Callable

import torch
import torch.nn.functional as F

import paths  # noqa: F401
from memopt.watching import watch
from memopt.steps.inputs import OptimizerInputs, OptimizerState
from memopt.steps.prepared import Model
from memopt.watching.tensors import TensorInputs


def make_resnet18() -> tuple:
    import torchvision
    return torchvision.models.resnet18(num_classes=10), F.cross_entropy, (torch.randn(2, 3, 32, 32), torch.randint(10, (2,)))


def make_bert_small() -> tuple:
    import transformers
    config = transformers.BertConfig(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, vocab_size=100,
                                     attn_implementation="eager")
    tokens = torch.randint(100, (2, 16))
    return transformers.BertForSequenceClassification(config), None, {
        "input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.randint(2, (2,))}


def make_gpt2() -> tuple:
    import transformers
    config = transformers.GPT2Config(n_embd=48, n_layer=12, n_head=4, vocab_size=100, n_positions=64, bos_token_id=0, eos_token_id=0)
    tokens = torch.randint(100, (2, 16))
    return transformers.GPT2LMHeadModel(config), None, {"input_ids": tokens, "labels": tokens}


def make_look(prepared: Model) -> Callable[[], bool]:
    """What a step looks at, without the batch."""
    session = types.SimpleNamespace(manifest={"variables": []}, set_rate=lambda *_: None)
    numbers = OptimizerInputs(prepared.options, session)
    numbers.write()
    look = watch.Look([TensorInputs(prepared.list_read_alone()), TensorInputs(prepared.list_written(), is_whole=False),
                       OptimizerState(prepared.options.optimizer), prepared.archive.guards, prepared.options])
    return lambda: look.holds() and numbers.are_written()


def measure(look: Callable[[], bool], rounds: int) -> str:
    assert all(look() for _ in range(20))
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        look()
        seconds.append((time.perf_counter_ns() - begin) / 1e3)
    return f"{min(seconds):.1f}, {statistics.median(seconds):.1f}"


def main() -> None:
    makers = {name.removeprefix("make_"): make for name, make in globals().items() if name.startswith("make_") and name != "make_look"}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(makers)}; default: all")
    parser.add_argument("--rounds", type=int, default=2000)
    arguments = parser.parse_args()
    print("| model | modules | parameters | µs by the library | µs by Python |\n|---|---|---|---|---|")
    for name in arguments.models or makers:
        model, loss, batch = makers[name]()
        row, load = [], watch._load
        for is_by_library in (True, False):
            if not is_by_library:
                watch._load = lambda: None
            prepared = Model(model, loss, batch, torch.optim.AdamW(model.parameters()), None)
            row.append(measure(make_look(prepared), arguments.rounds))
        watch._load = load
        print(f"| {name} | {len(list(model.modules()))} | {len(list(model.parameters()))} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
