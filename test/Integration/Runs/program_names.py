#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a model whose buffers are named as variables of the program's own: it learns as under any other names.

The step has all of these variables: a learning rate of a group, a seed, the number of the first sample of a micro-batch, the norm of
all gradients. Losses of a few steps, and what a checkpoint holds under the model's names, must be equal to the bit.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "Import" / "Inputs"))
from archive import Model  # noqa: E402
from processes import run  # noqa: E402
from tensor_files import read_entries, write_safetensors  # noqa: E402

NAMES = ["lr", "lr.1", "step", "seed", "sample_offset", "gradient_norm", "loss_scale", "optimizer.exp_avg.w", "loop.w", "sum.w",
         "exchange", "next_samples", "index_fault", "hyperparameter.momentum", "train_step"]
OPTIONS = ["--optimizer=adamw", "--lr=0.01", "--max-grad-norm=1", "--micro-batches=2", "--param-group=w:lr=0.02"]
SAMPLES, WIDTH, STEPS = 4, 8, 3


def build(names, path):
    model, shape = Model(), [SAMPLES, WIDTH]
    value = model.input("x", "f32", shape)
    for number, name in enumerate(names):
        buffer = model.buffer(name, [WIDTH], [1 + 0.01 * number] * WIDTH)
        value = model.op("aten.mul.Tensor", (f"y{number}", "f32", shape), self_=value, other=buffer)
    value = model.op("aten.mul.Tensor", ("yw", "f32", shape), self_=value, other=model.parameter("w", [WIDTH]))
    value = model.op("aten.add.Tensor", ("yb", "f32", shape), self_=value, other=model.parameter("b", [WIDTH]))
    value = model.op("aten.dropout.default", ("kept", "f32", shape), input=value, p=0.5, train=True)
    value = model.op("aten.tanh.default", ("bent", "f32", shape), self_=value)
    model.output(model.op("aten.mean.default", ("loss", "f32", []), self_=value))
    model.save(path)


def write_batches(path):
    numbers = np.array([0.1 * (i % 23) - 1 for i in range(STEPS * SAMPLES * WIDTH)], "f4").reshape(STEPS, SAMPLES, WIDTH)
    write_safetensors(path, {f"step{step}.x": batch for step, batch in enumerate(numbers)})


def train(names, folder):
    """(losses, the checkpoint's tensors in the order of `names`)"""
    folder.mkdir()
    build(names, folder / "model.pt2")
    write_batches(folder / "x.safetensors")
    for command in (["memopt-compile", "model.pt2", "-o", "p.memopt", "--quiet", *OPTIONS],
                    ["memopt-run", "p.memopt", "--data=x.safetensors", f"--steps={STEPS}", "--quiet", "--save=saved", "--report=report.json"],
                    ["memopt-run", "p.memopt", "--data=x.safetensors", "--steps=1", "--quiet", "--load=saved"]):
        run(*command, cwd=folder)
    tensors = read_entries(folder / "saved" / "model.safetensors")
    return json.loads((folder / "report.json").read_text())["losses"], [tensors[name] for name in [*names, "w", "b"]]


def main():
    with tempfile.TemporaryDirectory() as scratch:
        ours = train(NAMES, pathlib.Path(scratch) / "ours")
        plain = train([f"buffer{number}" for number in range(len(NAMES))], pathlib.Path(scratch) / "plain")
    if ours != plain or len(set(ours[0])) != STEPS:
        sys.exit(f"losses {ours[0]}, under other names {plain[0]}")
    print(f"{len(NAMES)} names, equal")


if __name__ == "__main__":
    main()
