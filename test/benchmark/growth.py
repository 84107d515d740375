#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures how seconds and bytes of a compilation grow with a model.

    growth.py [KIND...] [--bin BIN] [--most SECONDS] [--doublings N] [--json FILE] [--list]

Each kind is a tiny model of which one thing is doubled again and again: operators in a chain, branches, rolls, turns of a recurrent
layer, parameters, ranks, micro-batches, operators in place. Archives are written here; PyTorch is not needed. Seconds are those of the processor,
of all threads together, without those of a model that has nothing in it. The exponent is log2 of the quotient of the last two:
1 is linear. Above 1.3 it is a defect, and the exit code 1; below 0.5 s it says nothing and is not judged.
"""
import argparse
import json
import math
import pathlib
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import execute, tail

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "Import" / "Inputs"))
from archive import Model  # noqa: E402

LIMIT, LEAST = 1.3, 0.5
KINDS = {}


def kind(first, doublings=4, options=lambda size: ["--optimizer=sgd"]):
    """Registers what builds a model of a size; `first` is the smallest."""
    def register(build):
        KINDS[build.__name__] = (build, first, doublings, options)
        return build
    return register


class Builder:
    """A model of f32 matrices of one shape, named as they come."""

    def __init__(self, shape=(8, 8)):
        self.model, self.shape, self.count = Model(), list(shape), 0
        self.x = self.model.input("x", "f32", self.shape)

    def op(self, target, shape=None, dtype="f32", module="", **inputs):
        self.count += 1
        return self.model.op("aten." + target, (f"v{self.count}", dtype, self.shape if shape is None else shape), module, **inputs)

    def add(self, a, b):
        return self.op("add.Tensor", self_=a, other=b)

    def scale(self, value, name="w"):
        return self.op("mul.Tensor", self_=value, other=self.model.parameter(name, self.shape))

    def finish(self, value):
        self.model.output(self.op("sum.default", [], self_=value))
        return self.model


def repeated(step, size):
    """A parameter, and the step so many times."""
    b = Builder()
    value = b.scale(b.x)
    for _ in range(size):
        value = step(b, value)
    return b.finish(value)


@kind(1, doublings=0)
def nothing(size):
    return repeated(None, 0)


@kind(625)
def chain(size):
    return repeated(lambda b, value: b.op("tanh.default", self_=value), size)


@kind(625)
def cheap_chain(size):
    return repeated(lambda b, value: b.op("add.Scalar", self_=value, other=1.0), size)


@kind(1000, options=lambda size: ["--mode=eval"])
def chain_evaluated(size):
    return repeated(lambda b, value: b.op("tanh.default", self_=value), size)


@kind(64)
def diamonds(size):
    return repeated(lambda b, value: b.add(b.op("tanh.default", self_=value), b.op("neg.default", self_=value)), size)


@kind(64)
def branches(size):
    b = Builder()
    parts = [b.op("tanh.default", self_=b.scale(b.x, f"w{number}")) for number in range(size)]
    joined = b.op("cat.default", [8 * size, 8], tensors=parts, dim=0)
    return b.finish(joined)


@kind(128, doublings=6)
def turns(size):
    """An LSTM over so many slices, whose last output has the loss."""
    b, rows, width = Builder(), 8, 64
    slices = b.model.input("slices", "f32", [size, rows, width])
    weights = [b.model.parameter(name, shape) for name, shape in (
        ("w_ih", [4 * width, width]), ("w_hh", [4 * width, width]), ("b_ih", [4 * width]), ("b_hh", [4 * width]))]
    start = b.model.op("aten.zeros.default", ("start", "f32", [1, rows, width]), size=[1, rows, width])
    results = [("outputs", "f32", [size, rows, width]), ("last_h", "f32", [1, rows, width]), ("last_c", "f32", [1, rows, width])]
    _, last, _ = b.model.op("aten.lstm.input", results, input_=slices, hx=[start, start], params=weights, has_biases=True, num_layers=1,
                            dropout=0.0, train=True, bidirectional=False, batch_first=False)
    return b.finish(last)


@kind(32)
def rolls(size):
    return repeated(lambda b, value: b.op("roll.default", self_=value, shifts=[1], dims=[0]), size)


@kind(32)
def rolls_between(size):
    return repeated(lambda b, value: b.op("tanh.default", self_=b.op("roll.default", self_=value, shifts=[1], dims=[0])), size)


@kind(32)
def joins(size):
    def step(b, value):
        rest = b.op("slice.Tensor", [7, 8], self_=value, dim=0, start=1, end=8)
        first = b.op("slice.Tensor", [1, 8], self_=value, dim=0, start=0, end=1)
        return b.op("cat.default", tensors=[rest, first], dim=0)
    return repeated(step, size)


@kind(250)
def flips(size):
    return repeated(lambda b, value: b.op("flip.default", self_=value, dims=[0]), size)


@kind(250)
def transposes(size):
    def step(b, value):
        return b.add(b.op("permute.default", self_=value, dims=[1, 0]), value)
    return repeated(step, size)


@kind(32)
def doubled_index(size):
    b = Builder()
    index = b.model.input("index", "i64", [8])
    for _ in range(size):
        twice = b.op("cat.default", [16], "i64", tensors=[index, index], dim=0)
        index = b.op("slice.Tensor", [8], "i64", self_=twice, dim=0, start=4, end=12)
    table = b.model.parameter("table", [16, 8])
    return b.finish(b.op("embedding.default", weight=table, indices=index))


@kind(250)
def index_chain(size):
    b = Builder()
    index = b.model.input("index", "i64", [8])
    for _ in range(size):
        index = b.op("remainder.Scalar", [8], "i64", self_=b.op("add.Tensor", [8], "i64", self_=index, other=index), other=16)
    table = b.model.parameter("table", [16, 8])
    return b.finish(b.op("embedding.default", weight=table, indices=index))


@kind(250)
def in_place(size):
    """Without derivatives: the operators are imported as they are."""
    b = Builder()
    value = b.op("mul.Scalar", self_=b.x, other=2.0)
    for _ in range(size):
        value = b.op("add_.Tensor", self_=value, other=b.x)
    return b.finish(b.scale(value))


def layers(size, samples=8):
    """Linear layers one behind another, each of a module of its own."""
    b = Builder((samples, 8))
    value = b.x
    for number in range(size):
        weight = b.model.parameter(f"body.layer{number}.weight", [8, 8])
        bias = b.model.parameter(f"body.layer{number}.bias", [8])
        value = b.op("linear.default", module=f"body.layer{number}", input=value, weight=weight, bias=bias)
    return b.finish(value)


@kind(625)
def parameters(size):
    return layers(size)


@kind(125, options=lambda size: ["--optimizer=adamw", "--offload-optimizer=cpu"])
def parameters_offloaded(size):
    return layers(size)


@kind(125, options=lambda size: ["--optimizer=adamw", "--micro-batches=4"])
def parameters_in_micro_batches(size):
    return layers(size)


@kind(125, options=lambda size: ["--optimizer=adamw", "--ranks=4", "--zero-stage=2"])
def parameters_on_ranks(size):
    return layers(size)


@kind(64, doublings=6, options=lambda size: ["--optimizer=sgd", f"--ranks={size}"])
def ranks(size):
    return layers(16)


@kind(64, doublings=6, options=lambda size: ["--optimizer=adamw", f"--ranks={size}", "--zero-stage=2"])
def ranks_with_shards(size):
    return layers(16)


@kind(64, doublings=6, options=lambda size: ["--optimizer=sgd", f"--ranks={size}"])
def ranks_with_statistics(size):
    return normalized()


@kind(64, options=lambda size: ["--optimizer=sgd", f"--micro-batches={size}"])
def micro_batches(size):
    return layers(16, samples=size)


@kind(64, options=lambda size: ["--optimizer=sgd", f"--accumulative-counts={size}"])
def accumulated_batches(size):
    return layers(16)


def normalized():
    """A batch norm that keeps running statistics."""
    b = Builder([8, 4, 4, 4])
    weight, bias = (b.model.parameter(name, [4]) for name in ("weight", "bias"))
    mean, variance = (b.model.buffer(name, [4], [1.0] * 4) for name in ("running_mean", "running_var"))
    value = b.op("batch_norm.default", input=b.x, weight=weight, bias=bias, running_mean=mean, running_var=variance,
                 training=True, momentum=0.1, eps=1e-5, cudnn_enabled=False)
    return b.finish(b.op("tanh.default", self_=value))


def measure(compiler, name, size, scratch, most):
    """(CPU seconds, peak bytes), or a text that says why not."""
    build, _, _, options = KINDS[name]
    path = scratch / "model.pt2"
    build(size).save(path)
    done = execute([compiler, path, "-o", scratch / "package", "--quiet", *options(size)], timeout=10 * most)
    if done.code < 0 and done.seconds >= 10 * most:
        return f"not done in {10 * most:g} s"
    if done.code:
        return f"exit {done.code}: {tail(done.errors, 1)}"
    return done.cpu_seconds, done.peak_rss


def grow(compiler, name, base, scratch, arguments):
    """A row of the table: sizes, what they took, and the exponent of the last doubling."""
    _, first, doublings, _ = KINDS[name]
    row = {"kind": name, "sizes": [], "seconds": [], "bytes": []}
    for step in range((arguments.doublings or doublings) + 1):
        found = measure(compiler, name, first << step, scratch, arguments.most)
        if isinstance(found, str):
            return {**row, "failure": f"{first << step}: {found}"}
        row["sizes"].append(first << step)
        row["seconds"].append(max(1e-3, found[0] - base))
        row["bytes"].append(found[1])
        if found[0] > arguments.most:
            break
    if len(row["seconds"]) > 1 and row["seconds"][-1] >= LEAST:
        row["exponent"] = math.log2(row["seconds"][-1] / row["seconds"][-2])
    return row


def text_of(row):
    seconds = " ".join(f"{value:.2f}" for value in row["seconds"])
    peak = driver.mib(row["bytes"][-1]) if row["bytes"] else "-"
    exponent = row.get("failure") or (f"{row['exponent']:.2f}" if "exponent" in row else "-")
    return [row["kind"], f"{row['sizes'][0]} to {row['sizes'][-1]}" if row["sizes"] else "-", seconds, peak, exponent]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="default: all")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--most", type=float, default=100, help="CPU seconds of one compilation after which no larger one is tried")
    parser.add_argument("--doublings", type=int, help="of the smallest size; default: as the kind says")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        return print("\n".join(name for name in KINDS if name != "nothing"))
    unknown = [name for name in arguments.kinds if name not in KINDS]
    if unknown:
        parser.error(f"there is no kind {', '.join(unknown)}; --list names them")
    compiler = driver.Tools.find(arguments.bin, 1).compile
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        base = measure(compiler, "nothing", 1, scratch, arguments.most)
        if isinstance(base, str):
            sys.exit(f"a model with nothing in it: {base}")
        print("| kind | sizes | CPU s, doubling by doubling | MiB | exponent |\n|---|---|---|---|---|")
        for name in arguments.kinds or [name for name in KINDS if name != "nothing"]:
            rows.append(grow(compiler, name, base[0], scratch, arguments))
            print("| " + " | ".join(text_of(rows[-1])) + " |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any("failure" in row or row.get("exponent", 0) > LIMIT for row in rows))


if __name__ == "__main__":
    main()
