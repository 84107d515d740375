#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains each kind of convolution before an evaluated batch norm in f64, with --efficient-conv-bn-eval and without.

Two steps of SGD: losses, the first step's gradients and the final parameters of both programs agree to TOLERANCE, a
thousand roundings of f64, and both use the bytes that were predicted. Gradients of the form without the option are held
against finite differences elsewhere. Needs memopt-compile and memopt-run on PATH. `--print CASE` prints one step's text.
"""

import dataclasses
import json
import pathlib
import sys
import tempfile

import numpy

import gradient_cases
from processes import run
from tensor_files import read_safetensors, write_safetensors

TOLERANCE = 1e-12


@dataclasses.dataclass
class Case:
    name: str
    x: tuple
    filter: tuple
    result: tuple
    op: str
    attributes: str
    bias: bool = False
    affine: str = "parameter"  # or "buffer", or "" for none
    filter_role: str = "parameter"


def window(rank, groups=1, stride=1, padding=0, dilation=1):
    repeat = lambda number: gradient_cases.array([number] * rank)
    return (f"{{strides = {repeat(stride)}, padding_low = {repeat(padding)}, padding_high = {repeat(padding)}, "
            f"dilations = {repeat(dilation)}, groups = {groups} : i64}}")


FORWARD, TRANSPOSED = "memopt.convolution", "memopt.convolution_backward_data"
CASES = [
    Case("conv1d_bias", (2, 3, 9), (4, 3, 3), (2, 4, 7), FORWARD, window(1), bias=True),
    Case("conv2d", (2, 3, 8, 8), (6, 3, 3, 3), (2, 6, 8, 8), FORWARD, window(2, padding=1)),
    Case("conv3d_bias", (2, 2, 4, 4, 4), (3, 2, 2, 2, 2), (2, 3, 3, 3, 3), FORWARD, window(3), bias=True),
    Case("grouped", (2, 4, 9, 9), (6, 2, 3, 3), (2, 6, 4, 4), FORWARD, window(2, 2, stride=2, padding=1, dilation=2), bias=True),
    Case("depthwise", (2, 4, 8, 8), (4, 1, 3, 3), (2, 4, 6, 6), FORWARD, window(2, 4)),
    Case("transposed", (2, 4, 3, 3), (4, 5, 2, 2), (2, 5, 6, 6), TRANSPOSED, window(2, stride=2)),
    Case("transposed_groups", (2, 4, 3, 3), (4, 3, 2, 2), (2, 6, 6, 6), TRANSPOSED, window(2, 2, stride=2), bias=True),
    Case("linear", (4, 3), (5, 3), (4, 5), "memopt.matmul", "{transpose_b}", bias=True),
    Case("linear_untransposed", (4, 3), (3, 5), (4, 5), "memopt.matmul", "", bias=True),
    Case("no_affine", (2, 3, 8, 8), (6, 3, 3, 3), (2, 6, 6, 6), FORWARD, window(2), affine=""),
    Case("frozen_affine", (2, 3, 8, 8), (6, 3, 3, 3), (2, 6, 6, 6), FORWARD, window(2), affine="buffer", bias=True),
    Case("frozen_filter", (2, 3, 8, 8), (6, 3, 3, 3), (2, 6, 6, 6), FORWARD, window(2), filter_role="buffer"),
]


class Module:
    """The text of one step: a convolution, a norm by running statistics, and a loss that is not linear in it."""

    def __init__(self, case):
        self.case, self.variables, self.body = case, [], []
        self.generator = numpy.random.default_rng(len(case.name))

    def variable(self, name, shape, role, low=-1.0):
        kind = gradient_cases.tensor_type(shape)
        values = gradient_cases.dense(self.generator.uniform(low, 1.5, shape))
        trainable = "trainable, " if role == "parameter" else ""
        self.variables.append(f'memopt.variable @{name} : {kind} role <{role}> {{{trainable}names = ["{name}"], '
                              f"initial = {values} : {kind}}}")
        self.body.append(f"  %{name} = memopt.read @{name} : {kind}")

    def add(self, name, text, shape, module=""):
        location = f' loc("{module}")' if module else ""
        self.body.append(f"  %{name} = {text} : {gradient_cases.tensor_type(shape)}{location}")

    def broadcast(self, name):
        source, target = (gradient_cases.tensor_type(shape) for shape in ((self.case.result[1],), self.case.result))
        self.body.append(f"  %wide_{name} = memopt.broadcast %{name} {{dimensions = array<i64: 1>}} : ({source}) -> {target}")
        return f"%wide_{name}"

    def convolve(self):
        case = self.case
        types = [gradient_cases.tensor_type(shape) for shape in (case.x, case.filter, case.result)]
        self.variable("filter", case.filter, case.filter_role)
        self.body.append(f"  %y = {case.op} %x, %filter {case.attributes} : ({types[0]}, {types[1]}) -> {types[2]} loc(\"conv\")")
        if not case.bias:
            return "%y"
        self.variable("bias", case.result[1:2], "parameter")
        self.add("biased", f"arith.addf %y, {self.broadcast('bias')}", case.result)
        return "%biased"

    def normalize(self, value):
        case, channels = self.case, self.case.result[1:2]
        self.variable("mean", channels, "buffer")
        self.variable("variance", channels, "buffer", low=0.5)
        self.add("eps", "arith.constant dense<1.0e-05>", channels)
        self.add("moved", "arith.addf %variance, %eps", channels)
        self.add("factor" if not case.affine else "root", "math.rsqrt %moved", channels)
        if case.affine:
            self.variable("gamma", channels, case.affine)
            self.variable("beta", channels, case.affine)
            self.add("factor", "arith.mulf %root, %gamma", channels)
        self.add("centre", "arith.mulf %mean, %factor", channels)
        self.add("shift", "arith.subf %beta, %centre" if case.affine else "arith.negf %centre", channels)
        self.add("scaled", f"arith.mulf {value}, {self.broadcast('factor')}", case.result)
        self.add("z", f"arith.addf %scaled, {self.broadcast('shift')}", case.result, "bn")

    def text(self):
        kind, result = (gradient_cases.tensor_type(shape) for shape in (self.case.x, self.case.result))
        self.normalize(self.convolve())
        self.add("bent", "math.tanh %z", self.case.result)
        everything = gradient_cases.array(range(len(self.case.result)))
        self.body.append(f"  %loss = memopt.reduce %bent {{kind = #memopt.reduce<add>, dimensions = {everything}}} : "
                         f"({result}) -> tensor<f64>")
        return "\n".join(self.variables + [
            f'func.func @train_step(%x: {kind} {{memopt.name = "x"}})',
            '    -> (tensor<f64> {memopt.name = "loss", memopt.role = "loss"}) {',
            *self.body, "  return %loss : tensor<f64>", "}", ""])


def train(folder, name, options):
    """The report, the gradients and the final state of one program."""
    package = folder / f"{name}.memopt"
    for command in (["memopt-compile", folder / "step.mlir", "-o", package, "--optimizer=sgd", "--threads=1", *options],
                    ["memopt-run", package, f"--data={folder / 'data.safetensors'}", "--steps=2", "--lr=0.1", "--quiet",
                     "--check-memory", f"--report={folder / 'report.json'}", f"--save={folder / name}",
                     f"--save-gradients={folder / 'gradients.safetensors'}"]):
        run(*command)
    return (json.loads((folder / "report.json").read_text()),
            read_safetensors(folder / "gradients.safetensors"),
            read_safetensors(folder / name / "model.safetensors"))


def differences(plain, fused):
    """What is wrong with the second program, in words."""
    if fused[0].get("efficient_conv_bn_eval") != {"fused": ["bn"], "refused": {}}:
        yield f"the report says {fused[0].get('efficient_conv_bn_eval')}"
    for report, _, _ in (plain, fused):
        if report["used_peak_bytes"] != report["predicted_peak_bytes"]:
            yield f"used {report['used_peak_bytes']}, predicted {report['predicted_peak_bytes']}"
    pairs = {"losses": (numpy.array(plain[0]["losses"]), numpy.array(fused[0]["losses"]))}
    for kind, ours, theirs in (("gradient", plain[1], fused[1]), ("final", plain[2], fused[2])):
        if set(ours) != set(theirs):
            yield f"{kind}s are {sorted(theirs)}, not {sorted(ours)}"
        pairs |= {f"{kind} {name}": (ours[name], theirs[name]) for name in set(ours) & set(theirs)}
    for name, (expected, found) in pairs.items():
        error = numpy.max(numpy.abs(found - expected)) / max(1.0, numpy.max(numpy.abs(expected)))
        if not error <= TOLERANCE:
            yield f"{name} differs by {error:.1e}"


def main():
    if sys.argv[1:2] == ["--print"]:
        print(next(Module(case).text() for case in CASES if case.name == sys.argv[2]))
        return 0
    failed = 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "step.mlir").write_text(Module(case).text())
            x = numpy.random.default_rng(1).uniform(-1.0, 1.0, case.x)
            write_safetensors(folder / "data.safetensors", {"step0.x": x, "step1.x": 0.5 - x})
            wrong = list(differences(train(folder, "plain", []), train(folder, "fused", ["--efficient-conv-bn-eval=bn"])))
        failed += bool(wrong)
        print("\n".join(f"FAIL {case.name}: {text}" for text in wrong) or f"ok   {case.name}")
    print(f"{len(CASES) - failed} of {len(CASES)} kinds of convolution train alike fused and apart")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
