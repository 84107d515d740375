#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of 16-bit vectors on an emulated device's tensor cores, held against the processor's in f64.

    matrix_attention.py numbers DEVICE.json    results and gradients, within three units in the last place
    matrix_attention.py races DEVICE.json      no race in 16 orders; each wait and barrier that is left out is found in all

Parameters have 16-bit values, so that both compute from the same numbers. The loss is the sum of the results times
weights: the gradient of the weights is the result, and that of the result the weights. Needs memopt-compile, memopt-run
and memopt-emulate on PATH, and for races LLVM's llvm-dis and llvm-as.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy

from attention_steps import run
from tensor_files import read_safetensors, write_safetensors

SEEDS, LEFT_OUT_SEEDS = 16, 4


@dataclasses.dataclass
class Case:
    name: str
    head: int = 64
    value: int = 0  # that of head where it is 0
    heads: int = 2
    groups: int = 2
    queries: int = 64
    keys: int = 64
    causal: bool = False
    mask: str = ""  # "bits" or "numbers"
    mask_heads: int = 1
    trained: bool = False  # the mask is a parameter
    dropout: float = 0.0
    scale: float = 0.125
    narrow: str = "bf16"
    singles: int = 0  # kernels that multiply single numbers


CASES = [
    Case("plain"),
    Case("half", narrow="f16", causal=True),
    Case("ragged", queries=75, keys=147, heads=1, groups=1),
    Case("ragged-and-causal", queries=150, keys=131, causal=True, heads=1, groups=1),
    Case("more-keys-than-queries", queries=40, keys=200, causal=True, heads=1, groups=1),
    Case("wide", head=128, queries=70, keys=90, causal=True, heads=1, groups=1),
    Case("shared-heads", heads=6, groups=2, queries=35, keys=50, causal=True),
    Case("narrow-heads", head=16, queries=20, keys=33),
    Case("eighty", head=80, queries=33, keys=70),
    Case("two-widths", head=32, value=96, queries=33, keys=40, narrow="f16"),
    Case("widest", head=256, value=256, queries=40, keys=33, heads=1, groups=1, singles=1),
    Case("one-query", queries=1, keys=70),
    Case("bits", mask="bits", queries=70, keys=75),
    Case("bits-and-causal", mask="bits", mask_heads=2, queries=40, keys=50, causal=True),
    Case("numbers", mask="numbers", queries=70, keys=75),
    Case("numbers-of-heads", mask="numbers", mask_heads=2, queries=40, keys=51, narrow="f16"),
    Case("trained-mask", mask="numbers", trained=True, queries=20, keys=30, singles=1),
    Case("dropout", dropout=0.3, queries=70, keys=76, causal=True),
    Case("dropout-and-shared-heads", dropout=0.6, heads=4, groups=2, queries=33, keys=20, narrow="f16"),
    Case("dropout-of-odd-lines", dropout=0.3, queries=35, keys=43),
    Case("negative-scale", scale=-0.2, queries=35, keys=43),
    Case("odd-heads", head=24, queries=20, keys=30, singles=3),
]


def narrow(numbers, kind):
    """The nearest numbers of 16 bits."""
    wide = numpy.asarray(numbers, numpy.float32)
    if kind == "f16":
        return wide.astype(numpy.float16).astype(numpy.float32)
    bits = wide.view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)


def kind(shape, element):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


def dense(numbers):
    return f"dense<{numpy.asarray(numbers).tolist()}>".replace("True", "true").replace("False", "false")


def write(case, element, rounds):
    """Tokens lie in front of heads in memory, as a projection leaves them."""
    rng = numpy.random.default_rng(3)
    width = case.value or case.head
    shapes = {"q": (2, case.queries, case.heads, case.head), "k": (2, case.keys, case.groups, case.head),
              "v": (2, case.keys, case.groups, width)}
    result = (2, case.heads, case.queries, width)
    lines = ['module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {']

    def add_variable(name, numbers):
        type = kind(numbers.shape, element)
        lines.append(f'memopt.variable @{name} : {type} role <parameter> {{trainable, names = ["{name}"], '
                     f"initial = {dense(numbers)} : {type}}}")

    for name, shape in shapes.items():
        add_variable(name, narrow(rng.normal(size=shape), case.narrow))
    add_variable("w", narrow(rng.normal(size=result), case.narrow))
    mask_shape = (1, case.mask_heads, case.queries, case.keys)
    numbers = rng.normal(size=mask_shape).astype(numpy.float32)
    bits = rng.uniform(size=mask_shape) < 0.6
    bits[:, :, 3 % case.queries] = False
    numbers[:, :, 5 % case.queries, : case.keys // 2] = numpy.finfo(numpy.float32).min
    if case.trained:
        add_variable("mask", numbers)
    lines += [f"memopt.variable @{name} : tensor<i64> role <hyperparameter>" for name in ("seed", "step")]
    lines += [f'func.func @train_step(%x: {kind((1,), element)} {{memopt.name = "x"}}) -> '
              f'({kind((), element)} {{memopt.name = "loss", memopt.role = "loss"}}) {{']
    operands, types, segments = [], [], [1, 1, 1, 0, 0, 0, 0]
    for name, shape in shapes.items():
        of, wide = kind(shape, element), element
        lines.append(f"  %{name} = memopt.read @{name} : {of}")
        value = f"%{name}"
        if rounds:
            lines.append(f"  %{name}_16 = arith.truncf {value} : {of} to {kind(shape, case.narrow)}")
            value, wide = f"%{name}_16", case.narrow
        heads = kind((shape[0], shape[2], shape[1], shape[3]), wide)
        lines.append(f"  %{name}_heads = memopt.transpose {value} {{permutation = array<i64: 0, 2, 1, 3>}} : "
                     f"({kind(shape, wide)}) -> {heads}")
        operands.append(f"%{name}_heads")
        types.append(heads)
    if case.mask:
        segments[3] = 1
        of = kind(mask_shape, "i1" if case.mask == "bits" else element)
        lines.append(f"  %mask = memopt.read @mask : {of}" if case.trained else
                     f"  %mask = arith.constant {dense(bits if case.mask == 'bits' else numbers)} : {of}")
        operands.append("%mask")
        types.append(of)
    if case.dropout:
        segments[4:6] = 1, 1
        for name in ("seed", "step"):
            lines.append(f"  %{name} = memopt.read @{name} : tensor<i64>")
            operands.append("%" + name)
            types.append("tensor<i64>")
    out = kind(result, case.narrow if rounds else element)
    lines += [f"  %out, %lse = memopt.attention {', '.join(operands)} {{scale = {case.scale} : f64, "
              f"{'causal, ' * case.causal}dropout = {case.dropout} : f64, id = 3 : i64, "
              f"operandSegmentSizes = array<i32: {str(segments)[1:-1]}>}} : ({', '.join(types)}) -> "
              f"({out}, {kind(result[:3], element)})",
              f"  %wide = arith.extf %out : {out} to {kind(result, element)}" if rounds else "",
              f"  %w = memopt.read @w : {kind(result, element)}",
              f"  %p = arith.mulf {'%wide' if rounds else '%out'}, %w : {kind(result, element)}",
              "  %sum = memopt.reduce %p {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : "
              f"({kind(result, element)}) -> {kind((), element)}",
              "  %more = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : "
              f"({kind((1,), element)}) -> {kind((), element)}",
              f"  %loss = arith.addf %sum, %more : {kind((), element)}",
              f"  return %loss : {kind((), element)}", "}", "}", ""]
    return "\n".join(lines)


def build(case, folder, device):
    """The device's package."""
    (folder / "device.mlir").write_text(write(case, "f32", rounds=True))
    run("memopt-compile", folder / "device.mlir", "-o", folder / "device.memopt", "--optimizer=sgd", "--threads=1",
        "--target=cuda", f"--target-features={device}")
    return folder / "device.memopt"


def step(folder, package):
    kind = numpy.float32 if package.stem == "device" else numpy.float64
    write_safetensors(folder / "data.safetensors", {"step0.x": numpy.zeros(1, kind)})
    return ["memopt-run", package, f"--data={folder / 'data.safetensors'}", "--steps=1", "--lr=0.1", "--quiet",
            "--seed=7", f"--save-gradients={folder / 'gradients.safetensors'}"]


def get_ulps(found, expected, kind, is_difference):
    """The largest error, in units in the last place of the largest number of the same vector; of the tensor where
    numbers are sums of differences, which cancel where a query sees few keys, of what was rounded."""
    unit = 2.0 ** (-10 if kind == "f16" else -7)
    largest = numpy.max(numpy.abs(expected), axis=None if is_difference else -1, keepdims=True)
    scale = numpy.maximum(2.0 ** numpy.floor(numpy.log2(numpy.maximum(largest, 1e-30))) * unit, 2.0**-24)
    return float(numpy.max(numpy.abs(found - expected) / scale))


def compare(case, device):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "processor.mlir").write_text(write(case, "f64", rounds=False))
        package = build(case, folder, device)
        run("memopt-compile", folder / "processor.mlir", "-o", folder / "processor.memopt", "--optimizer=sgd",
            "--threads=1")
        run(*step(folder, folder / "processor.memopt"))
        expected = read_safetensors(folder / "gradients.safetensors")
        run("memopt-emulate", *step(folder, package), "--device=cuda", "--check-memory")
        found = read_safetensors(folder / "gradients.safetensors")
        # What attention leaves to single numbers has its own tile of scores, and no matrices.
        text = subprocess.run(["llvm-dis", package / "kernels.bc", "-o", "-"], capture_output=True, text=True, check=True).stdout
        kernels = re.findall(r"^define [^\n]*@(memopt_attention\w+)\((.*?)^}", text, re.MULTILINE | re.DOTALL)
        singles = [name for name, body in kernels if "@llvm.nvvm.mma." not in body]
        if len(singles) != case.singles:
            yield f"multiplies single numbers in {singles or 'no kernel'}, expected {case.singles}"
        errors = {}
        for name in sorted(expected):
            errors[name] = get_ulps(found[name], expected[name], case.narrow, name in ("q", "k", "mask"))
            if not errors[name] <= 3:
                yield f"gradient of {name} is off by {errors[name]:.2f} units in the last place"
        print(f"     {case.name}: " + ", ".join(f"{name} {error:.2f}" for name, error in errors.items()), file=sys.stderr)


def check_numbers(device, names):
    cases = [case for case in CASES if not names or case.name in names]
    failed = 0
    for case in cases:
        wrong = list(compare(case, device))
        failed += bool(wrong)
        print("\n".join(f"FAIL {case.name}: {text}" for text in wrong) or f"ok   {case.name}", flush=True)
    print(f"{len(cases) - failed} of {len(cases)} kinds of attention are within three units in the last place")
    return failed != 0


WAITS = re.compile(r"^.*@llvm\.nvvm\.(cp\.async\.wait\.group|barrier\.cta\.sync).*$", re.MULTILINE)
RACES = Case("races", head=16, queries=100, keys=100, heads=1, groups=1, causal=True)


def count_races(package, folder, seeds):
    """Orders in which there is a race."""
    done = subprocess.run(["memopt-emulate", f"--seeds={seeds}", *map(str, step(folder, package)), "--device=cuda"],
                          capture_output=True, text=True, check=False)
    return len(re.findall(r"error: \d+ races with seed", done.stderr)), done


def check_races(device):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        package = build(RACES, folder, device)
        racing, done = count_races(package, folder, SEEDS)
        wrong = racing or done.returncode
        print(f"{racing} of {SEEDS} orders race" if not done.returncode or racing else f"FAIL {done.stderr[-500:]}")
        text = subprocess.run(["llvm-dis", package / "kernels.bc", "-o", "-"], capture_output=True, text=True, check=True).stdout
        kernels = re.finditer(r"^define [^\n]*@(memopt_attention\w+)\(.*?^}", text, re.MULTILINE | re.DOTALL)
        left_out = [(kernel[1], kernel.start() + found.start(), kernel.start() + found.end(), found[1])
                    for kernel in kernels for found in WAITS.finditer(kernel[0])]
        for name, begin, end, what in left_out:
            subprocess.run(["llvm-as", "-", "-o", package / "kernels.bc"], input=text[:begin] + text[end:], text=True, check=True)
            racing, _ = count_races(package, folder, LEFT_OUT_SEEDS)
            wrong = wrong or racing != LEFT_OUT_SEEDS
            print(f"{name} without a {what}: {racing} of {LEFT_OUT_SEEDS} orders race", flush=True)
        print(f"{len(left_out)} waits and barriers were left out")
        return bool(wrong)


def main():
    if sys.argv[1] == "numbers":
        return check_numbers(sys.argv[2], sys.argv[3:])
    return check_races(sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())
