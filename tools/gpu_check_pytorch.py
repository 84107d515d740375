#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains an exported model eagerly with PyTorch, by SGD as memopt's default has it: the other side of gpu_check.py.

    gpu_check_pytorch.py FOLDER --steps=N [--device=cuda]

Prints one line of JSON: losses, seconds of each step, the allocator's peak, PyTorch's version. The loss is the first
output that is one floating-point number.
"""
import argparse
import json
import pathlib
import time

import torch
from safetensors.torch import load_file


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    trainable = options.folder / "model.training_ir.pt2"  # as exported for training; buffers change in place there
    program = torch.export.load(trainable if trainable.exists() else options.folder / "model.pt2")
    names = program.graph_signature.user_inputs
    module = program.module().to(options.device)
    batches = load_file(options.folder / "inputs.safetensors", device=options.device)
    there = 1 + max(int(name.split(".", 1)[0].removeprefix("step")) for name in batches)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    losses, seconds = [], []
    for step in range(options.steps):
        wait()
        begin = time.perf_counter()
        outputs = module(*(batches[f"step{step % there}.{name}"] for name in names))
        loss = next(value for value in (outputs if isinstance(outputs, (tuple, list)) else [outputs])
                    if value.is_floating_point() and value.dim() == 0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        wait()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else 0
    print(json.dumps({"version": torch.__version__, "losses": losses, "step_seconds": seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
