#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""random_graphs.py [--seeds=FIRST:END]: random compositions of ops hold what is promised of every step.

Each seed draws a graph in f64: elementwise ops, views of views, sums, products, softmax, convolutions and norms, on
values of all ranks, so that kernels, layouts and library calls meet in ways that nobody wrote down. Its step is
differentiated, and

- gradients agree with central differences of the loss;
- plain loops (--reference) give the same numbers but for the order of sums, and gradients of the same bits where no sum
  was drawn;
- with everything recomputed that can be (--activation-checkpointing), and at the smallest budget that the planner
  finds, losses and gradients are equal to the last bit, and used bytes are those predicted.

Each seed also draws a graph on samples, whose first dimension no op touches, and cuts it into micro-batches: losses and
gradients stay but for the order of sums, with recomputation too.

What is drawn has no kinks and no large slopes, so that difference quotients are good to TOLERANCE.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import sys
import tempfile

import numpy

import finite_differences
import gradient_cases
from gradient_cases import Case, array, tensor_type
from processes import run
from tensor_files import read_safetensors, write_safetensors

TOLERANCE = 1e-6
ELEMENTS = 96  # of any value, at most


def count(shape):
    return int(numpy.prod(shape, dtype=int))


class Graph:
    """Draws ops one after the other, each on values that are there."""

    def __init__(self, seed, kept=0):
        self.draws = numpy.random.default_rng([seed, kept])
        self.kept = kept  # dimensions in front that stay as they are
        self.lines, self.values, self.parameters, self.sums = [], [], [], False

    def pick(self, options):
        return options[self.draws.integers(len(options))]

    def dimension(self, shape):
        return int(self.draws.integers(self.kept, len(shape)))

    def any_value(self, accepts=lambda shape: True, free=0):
        """One with so many dimensions that may be touched. Late values more often: graphs grow deep. None when nothing
        fits."""
        fitting = [value for value in self.values if len(value[1]) >= self.kept + free and accepts(value[1])]
        return fitting[-1 - min(self.draws.geometric(0.4) - 1, len(fitting) - 1)] if fitting else None

    def add_parameter(self, shape):
        number = len(self.parameters)
        self.parameters.append(shape)
        self.values.append((f"$p{number}", shape))
        return self.values[-1]

    def emit(self, shape, text):
        name = f"%n{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.values.append((name, shape))

    # Elementwise

    def unary(self):
        name, shape = self.any_value()
        op = self.pick(["math.tanh", "math.sin", "math.cos", "math.erf", "math.atan", "memopt.sigmoid", "memopt.softplus"])
        self.emit(shape, f"{op} {name} : {tensor_type(shape)}")

    def binary(self):
        first, shape = self.any_value()
        second, _ = self.any_value(lambda other: other == shape)
        self.emit(shape, f"{self.pick(['arith.addf', 'arith.subf', 'arith.mulf'])} {first}, {second} : {tensor_type(shape)}")
        if self.draws.random() < 0.5:  # products of products grow
            self.emit(shape, f"math.tanh {self.values[-1][0]} : {tensor_type(shape)}")

    def quotient(self):
        name, shape = self.any_value()
        kind = tensor_type(shape)
        self.emit(shape, f"math.sin {name} : {kind}")
        divisor = self.values[-1][0]
        constant = f"%k{len(self.lines)}"
        self.lines.append(f"{constant} = arith.constant dense<2.5> : {kind}")
        self.emit(shape, f"arith.addf {divisor}, {constant} : {kind}")
        self.emit(shape, f"arith.divf {name}, {self.values[-1][0]} : {kind}")

    # Views

    def broadcast(self):
        name, shape = self.any_value(lambda shape: len(shape) < 4 and count(shape) * 2 <= ELEMENTS) or (None, ())
        if not name:
            return
        place, size = self.dimension(shape + (1,)), int(self.draws.integers(2, 4))
        if count(shape) * size > ELEMENTS:
            return
        result = shape[:place] + (size,) + shape[place:]
        dimensions = [dim for dim in range(len(result)) if dim != place]
        self.emit(result, f"memopt.broadcast {name} {{dimensions = {array(dimensions)}}} : ({tensor_type(shape)}) -> "
                          f"{tensor_type(result)}")

    def transpose(self):
        if found := self.any_value(free=2):
            name, shape = found
            moved = self.draws.permutation(len(shape) - self.kept)
            order = [*range(self.kept), *(int(dim) + self.kept for dim in moved)]
            result = tuple(shape[dim] for dim in order)
            self.emit(result, f"memopt.transpose {name} {{permutation = {array(order)}}} : ({tensor_type(shape)}) -> "
                              f"{tensor_type(result)}")

    def collapse(self):
        if found := self.any_value(free=2):
            name, shape = found
            at = self.dimension(shape[1:])
            groups = [[dim] for dim in range(at)] + [[at, at + 1]] + [[dim] for dim in range(at + 2, len(shape))]
            result = shape[:at] + (shape[at] * shape[at + 1],) + shape[at + 2:]
            self.emit(result, f"tensor.collapse_shape {name} {groups} : {tensor_type(shape)} into {tensor_type(result)}")

    def expand(self):
        splits = lambda size: [part for part in range(1, size + 1) if size % part == 0]
        if found := self.any_value(lambda shape: len(shape) < 4, free=1):
            name, shape = found
            at = self.dimension(shape)
            outer = self.pick(splits(shape[at]))
            result = shape[:at] + (outer, shape[at] // outer) + shape[at + 1:]
            groups = [[dim] for dim in range(at)] + [[at, at + 1]] + [[dim + 1] for dim in range(at + 1, len(shape))]
            self.emit(result, f"tensor.expand_shape {name} {groups} output_shape {list(result)} : {tensor_type(shape)} into "
                              f"{tensor_type(result)}")

    def slice(self):
        if found := self.any_value(free=1):
            name, shape = found
            at = self.dimension(shape)
            step = int(self.draws.integers(1, 3))
            begin = int(self.draws.integers(shape[at]))
            size = int(self.draws.integers(1, (shape[at] - begin - 1) // step + 2))
            result = shape[:at] + (size,) + shape[at + 1:]
            offsets, steps = [0] * len(shape), [1] * len(shape)
            offsets[at], steps[at] = begin, step
            self.emit(result, f"tensor.extract_slice {name}{offsets} {list(result)} {steps} : {tensor_type(shape)} to "
                              f"{tensor_type(result)}")

    def concat(self):
        if found := self.any_value(lambda shape: 2 * count(shape) <= ELEMENTS, free=1):
            first, shape = found
            second, _ = self.any_value(lambda other: other == shape)
            at = self.dimension(shape)
            result = shape[:at] + (2 * shape[at],) + shape[at + 1:]
            self.emit(result, f"tensor.concat dim({at}) {first}, {second} : ({tensor_type(shape)}, {tensor_type(shape)}) -> "
                              f"{tensor_type(result)}")

    def pad(self):
        if found := self.any_value(free=1):
            name, shape = found
            low, high = ([0] * self.kept + [int(size) for size in self.draws.integers(0, 2, len(shape) - self.kept)]
                         for _ in range(2))
            result = tuple(sum(sizes) for sizes in zip(shape, low, high))
            if count(result) <= ELEMENTS:
                self.emit(result, f"memopt.pad {name} {{low = {array(low)}, high = {array(high)}}} : ({tensor_type(shape)}) "
                                  f"-> {tensor_type(result)}")

    def reverse(self):
        if found := self.any_value(free=1):
            name, shape = found
            self.emit(shape, f"memopt.reverse {name} {{dimensions = {array([self.dimension(shape)])}}} : "
                             f"({tensor_type(shape)}) -> {tensor_type(shape)}")

    # What sums

    def reduce(self):
        if found := self.any_value(free=2):
            name, shape = found
            free = range(self.kept, len(shape))
            dropped = sorted(int(dim) for dim in self.draws.choice(free, self.draws.integers(1, len(free)), False))
            result = tuple(size for dim, size in enumerate(shape) if dim not in dropped)
            self.emit(result, f"memopt.reduce {name} {{kind = #memopt.reduce<add>, dimensions = {array(dropped)}}} : "
                              f"({tensor_type(shape)}) -> {tensor_type(result)}")
            self.emit(result, f"math.tanh {self.values[-1][0]} : {tensor_type(result)}")

    def softmax(self):
        if found := self.any_value(free=1):
            name, shape = found
            self.emit(shape, f"memopt.{self.pick(['softmax', 'log_softmax'])} {name} {{axis = {self.dimension(shape)} : i64}} : "
                             f"({tensor_type(shape)}) -> {tensor_type(shape)}")

    def use_parameter(self, shape):
        """A new one, as an operand."""
        return self.add_parameter(shape)[0]

    def matmul(self):
        if found := self.any_value(lambda shape: len(shape) == 2 and shape[0] < 13):
            name, shape = found
            columns = int(self.draws.integers(1, 5))
            other = self.use_parameter((shape[1], columns))
            result = (shape[0], columns)
            self.emit(result, f"memopt.matmul {name}, {other} : ({tensor_type(shape)}, {tensor_type((shape[1], columns))}) -> "
                              f"{tensor_type(result)}")
            self.emit(result, f"math.sin {self.values[-1][0]} : {tensor_type(result)}")

    def convolution(self):
        if found := self.any_value(lambda shape: len(shape) == 4):
            name, shape = found
            channels = int(self.draws.integers(1, 4))
            result = (shape[0], channels) + shape[2:]
            if count(result) > ELEMENTS:
                return
            taps = self.use_parameter((channels, shape[1], 3, 1))
            window = gradient_cases.window([1, 1], [1, 0], [1, 0], [1, 1])
            self.emit(result, f"memopt.convolution {name}, {taps} {{{window}, groups = 1 : i64}} : ({tensor_type(shape)}, "
                              f"{tensor_type((channels, shape[1], 3, 1))}) -> {tensor_type(result)}")
            self.emit(result, f"math.tanh {self.values[-1][0]} : {tensor_type(result)}")

    def batch_norm(self):
        if found := self.any_value(lambda shape: len(shape) > 1 and count(shape) >= 4 * shape[1]):
            name, shape = found
            channel = tensor_type((shape[1],))
            number = len(self.lines)
            self.lines.append(f"%n{number}, %mean{number}, %variance{number} = memopt.batch_norm {name} {{eps = 1.0e-1 : f64, axis = 1 : "
                              f"i64, operandSegmentSizes = array<i32: 1, 0, 0>}} : ({tensor_type(shape)}) -> "
                              f"({tensor_type(shape)}, {channel}, {channel})")
            self.values.append((f"%n{number}", shape))

    POINTWISE = ["unary", "binary", "quotient", "transpose", "collapse", "expand", "slice", "concat", "pad", "reverse"]
    SUMS = ["broadcast", "reduce", "softmax", "matmul", "convolution", "batch_norm"]

    def draw(self, ops):
        self.sums = self.draws.random() < 0.8
        for shape in [(2, 3), (3,), (2, 2, 4, 2)][:self.draws.integers(1, 4)]:
            self.add_parameter(shape)
        while len(self.lines) < ops:
            getattr(self, self.pick(self.POINTWISE + 2 * self.SUMS if self.sums else self.POINTWISE))()
        return self

    def to_case(self, name):
        """The last values are the results, whose weighted sum is the loss."""
        results = self.values[-2:]
        text = "\n  ".join(self.lines)
        for number, (value, shape) in enumerate(results):
            text += f"\n  %zero{number} = arith.constant dense<0.0> : {tensor_type(shape)}"
            text += f"\n  %r{number} = arith.addf {value}, %zero{number} : {tensor_type(shape)}"
        return Case(name, self.parameters, text, [shape for _, shape in results])


class SampleGraph(Graph):
    """One whose values have four samples in front, and whose parameters have none."""

    def __init__(self, seed):
        super().__init__(seed, kept=1)

    def use_parameter(self, shape):
        self.parameters.append(shape)
        return f"%v{len(self.parameters) - 1}"

    def draw(self, ops):
        """On data and on rows that a parameter is added to."""
        for number, shape in enumerate([(4, 3), (4, 2, 2, 2)][:self.draws.integers(1, 3)]):
            kind = tensor_type(shape)
            parameter = self.use_parameter(shape[1:])
            self.values.append((f"%x{number}", shape))
            self.lines.append(f"%rows{number} = memopt.broadcast {parameter} {{dimensions = {array(range(1, len(shape)))}}} : "
                              f"({tensor_type(shape[1:])}) -> {kind}")
            self.emit(shape, f"arith.addf %rows{number}, %x{number} : {kind}")
        while len(self.lines) < ops:
            getattr(self, self.pick([op for op in self.POINTWISE + self.SUMS if op != "batch_norm"]))()
        return self

    def to_text(self):
        """The step, whose loss sums the first and the last computed value over all samples, and two batches."""
        data = [value for value in self.values if value[0].startswith("%x")]
        text, reads = "", ""
        for number, sizes in enumerate(self.parameters):
            kind = tensor_type(sizes)
            initial = gradient_cases.dense(self.draws.uniform(-1, 1, sizes))
            text += (f"memopt.variable @p{number} : {kind} role <parameter> "
                     f'{{trainable, names = ["p{number}"], initial = {initial} : {kind}}}\n')
            reads += f"  %v{number} = memopt.read @p{number} : {kind}\n"
        arguments = ", ".join(f'{name}: {tensor_type(sizes)} {{memopt.name = "{name[1:]}", memopt.batch_dim = 0 : i64}}'
                              for name, sizes in data)
        text += f'func.func @train_step({arguments}) -> (tensor<f64> {{memopt.name = "loss", memopt.role = "loss"}}) {{\n'
        text += reads + "\n".join("  " + line for line in self.lines)
        for total, (value, sizes) in [("%first", self.values[1]), ("%last", self.values[-1])]:
            text += (f"\n  {total} = memopt.reduce {value} {{kind = #memopt.reduce<add>, dimensions = "
                     f"{array(range(len(sizes)))}}} : ({tensor_type(sizes)}) -> tensor<f64>")
        text += "\n  %loss = arith.addf %first, %last : tensor<f64>\n  return %loss : tensor<f64>\n}\n"
        batches = {f"step{step}.{name[1:]}": self.draws.uniform(-1, 1, sizes) for step in range(2) for name, sizes in data}
        return text, batches


class Steps:
    """The programs of one graph in one folder, and what they did."""

    def __init__(self, folder, tools, text, shapes):
        self.folder, self.tools, self.shapes = folder, tools, shapes
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "case.mlir").write_text(text)

    def compile(self, name, *options):
        command = [os.path.join(self.tools, "memopt-compile"), f"{self.folder}/case.mlir", "-o", f"{self.folder}/{name}.memopt",
                   "--optimizer=sgd", "--threads=1", *options]
        return run(*command, code=None)

    def run(self, name, *options, steps=2):
        done = self.compile(name, *options)
        if done.returncode:
            raise RuntimeError(f"{name}: memopt-compile exited {done.returncode}: {done.stderr.strip()[-400:]}")
        report, gradients = self.folder / f"{name}.json", self.folder / f"{name}.safetensors"
        run(os.path.join(self.tools, "memopt-run"), f"{self.folder}/{name}.memopt", f"--steps={steps}",
            f"--data={self.folder}/data.safetensors", "--lr=0", "--quiet", "--check-memory",
            f"--report={report}", f"--save-gradients={gradients}")
        found = json.loads(report.read_text())
        if found["used_peak_bytes"] != found["predicted_peak_bytes"]:
            raise RuntimeError(f"{name}: used {found['used_peak_bytes']}, predicted {found['predicted_peak_bytes']}")
        # A parameter that did not get into the loss has no gradient.
        zeros = {f"p{number}": numpy.zeros(shape) for number, shape in enumerate(self.shapes)}
        return found["losses"], zeros | read_safetensors(gradients)

    def smallest_budget(self):
        done = self.compile("none", "--device-memory=1")
        found = re.search(r"smallest budget[^0-9]*([0-9]+)", done.stderr)
        if done.returncode != 2 or not found:
            raise RuntimeError(f"expected exit 2 and the smallest budget, found {done.returncode}: {done.stderr[-400:]}")
        return found.group(1)


def largest_difference(first, second, with_losses=True):
    pairs = [(first[1][key], second[1][key]) for key in first[1]]
    if with_losses:
        pairs.append((numpy.array(first[0][:2]), numpy.array(second[0][:2])))
    return max(float(numpy.max(numpy.abs(a - b) / numpy.maximum(1, numpy.abs(a)))) for a, b in pairs)


def check_graph(seed, tools, folder):
    """What does not hold; empty when all does."""
    graph = Graph(seed).draw(ops=14)
    case = graph.to_case(f"seed{seed}")
    text, inputs = gradient_cases.build(case)
    steps = Steps(folder, tools, text, case.shapes)
    whole = steps.run("whole", steps=finite_differences.write_steps(folder / "data.safetensors", case, inputs))
    error, place = finite_differences.largest_error(case, *whole)
    if not error <= TOLERANCE:
        return f"error {error:.1e} at {place}"
    plain = steps.run("plain", "--reference")
    difference = largest_difference(plain, whole, with_losses=graph.sums)  # a loss is a sum
    if difference > (1e-10 if graph.sums else 0):
        return f"differs from plain loops by {difference:.1e}"
    for name, option in [("again", "--activation-checkpointing=segments:3"),
                         ("least", f"--device-memory={steps.smallest_budget()}")]:
        if largest_difference(whole, steps.run(name, option)) != 0:
            return f"{option} changes bits"
    return ""


def check_samples(seed, tools, folder):
    graph = SampleGraph(seed).draw(ops=12)
    text, batches = graph.to_text()
    steps = Steps(folder, tools, text, graph.parameters)
    write_safetensors(folder / "data.safetensors", batches)
    whole = steps.run("whole")
    for name, options in [("halves", ["--micro-batches=2"]), ("each", ["--micro-batches=4"]),
                          ("again", ["--micro-batches=2", "--activation-checkpointing=segments:2"])]:
        difference = largest_difference(whole, steps.run(name, *options))
        if difference > 1e-10:
            return f"{options} differs by {difference:.1e}"
    return ""


def check(seed, tools, keep):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(keep or scratch) / f"seed{seed}"
        try:
            return seed, check_graph(seed, tools, folder / "whole") or check_samples(seed, tools, folder / "samples")
        except (RuntimeError, KeyError) as problem:
            return seed, str(problem)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="", help="folder of memopt-compile and memopt-run; by default they are on PATH")
    parser.add_argument("--seeds", default="0:12", help="FIRST:END of the graphs to draw")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", help="folder to leave programs and data in")
    options = parser.parse_args()
    seeds = range(*map(int, options.seeds.split(":")))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for seed, problem in pool.map(lambda seed: check(seed, options.tools, options.keep), seeds):
            failed += bool(problem)
            if problem:
                print(f"FAIL seed {seed}: {problem}")
    print(f"{len(seeds) - failed} of {len(seeds)} random graphs hold")
    return 1 if failed or not seeds else 0


if __name__ == "__main__":
    sys.exit(main())
