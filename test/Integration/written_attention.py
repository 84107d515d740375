#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains attention in f64 as the processor's library call and as products and a softmax (--memopt-write-out-attention).

Three steps of SGD: losses, the first step's gradients and the final parameters agree to TOLERANCE, a thousand roundings
of f64. Needs memopt-opt, memopt-compile and memopt-run on PATH.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

from tensor_files import read_safetensors, write_safetensors

TOLERANCE = 1e-12
BATCH, QUERIES, SIZE = 2, 5, 4


@dataclasses.dataclass
class Case:
    name: str
    heads: int = 2
    groups: int = 2
    keys: int = 5
    causal: bool = False
    mask: str = ""  # the type of its elements
    mask_shape: tuple = ()
    dropout: float = 0.0


CASES = [
    Case("plain", keys=7),
    Case("causal", causal=True),
    Case("causal-of-fewer-keys", causal=True, keys=3),
    Case("grouped", heads=6, groups=2, keys=7),
    Case("one-head-of-keys", heads=3, groups=1, causal=True),
    Case("booleans-that-hide-a-row", mask="i1", mask_shape=(BATCH, 1, QUERIES, 5)),
    Case("booleans-and-causal", mask="i1", mask_shape=(1, 2, 1, 5), causal=True),
    Case("numbers", mask="f64", mask_shape=(1, 2, 1, 5)),
    Case("numbers-that-hide-a-row", mask="f64", mask_shape=(1, 1, QUERIES, 5)),
    Case("dropout", dropout=0.4, causal=True),
    Case("dropout-and-groups", heads=4, groups=2, dropout=0.3, keys=6),
]


def kind(shape, element="f64"):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


def dense(numbers):
    return f"dense<{numpy.asarray(numbers).tolist()}>".replace("True", "true").replace("False", "false")


def mask_constant(case):
    """Hides the first row of queries where the mask has rows; minus infinity hides, too."""
    rng = numpy.random.default_rng(5)
    if case.mask == "i1":
        mask = rng.uniform(size=case.mask_shape) < 0.6
        mask[..., 0] = True
    else:
        mask = rng.uniform(-1.0, 1.0, case.mask_shape)
    text = dense(mask)
    if case.mask_shape[-2] > 1:
        mask[:, :, 0] = False if case.mask == "i1" else -1234.5
        text = dense(mask).replace("-1234.5", "0xFFF0000000000000")
    return f"  %mask = arith.constant {text} : {kind(case.mask_shape, case.mask)}"


def variable(name, shape, rng):
    return (f'memopt.variable @{name} : {kind(shape)} role <parameter> {{trainable, names = ["{name}"], '
            f"initial = {dense(rng.uniform(-1.0, 1.0, shape))} : {kind(shape)}}}")


def write(case):
    """A step: query, key and value are parameters, to which the input is added."""
    rng = numpy.random.default_rng(3)
    shapes = {"q": (BATCH, case.heads, QUERIES, SIZE), "k": (BATCH, case.groups, case.keys, SIZE),
              "v": (BATCH, case.groups, case.keys, SIZE)}
    result, rows = shapes["q"], shapes["q"][:3]
    lines = ['module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {']
    lines += [variable(name, shape, rng) for name, shape in shapes.items()]
    lines += [f"memopt.variable @{name} : tensor<i64> role <hyperparameter>" for name in ("seed", "step")]
    lines += [f'func.func @train_step(%x: {kind(result)} {{memopt.name = "x"}})',
              '    -> (tensor<f64> {memopt.name = "loss", memopt.role = "loss"}) {']
    lines += [f"  %{name} = memopt.read @{name} : {kind(shape)}" for name, shape in shapes.items()]
    operands, types, segments = ["%q", "%k", "%v"], [kind(shape) for shape in shapes.values()], [1, 1, 1, 0, 0, 0, 0]
    if case.mask:
        lines.append(mask_constant(case))
        operands, types, segments[3] = operands + ["%mask"], types + [kind(case.mask_shape, case.mask)], 1
    if case.dropout:
        lines += [f"  %{name} = memopt.read @{name} : tensor<i64>" for name in ("seed", "step")]
        operands, types = operands + ["%seed", "%step"], types + ["tensor<i64>"] * 2
        segments[4:6] = 1, 1
    causal = "causal, " if case.causal else ""
    lines += [f"  %a, %lse = memopt.attention {', '.join(operands)} {{scale = 0.5 : f64, {causal}"
              f"dropout = {case.dropout} : f64, id = 3 : i64, operandSegmentSizes = array<i32: {str(segments)[1:-1]}>}}",
              f"      : ({', '.join(types)}) -> ({kind(result)}, {kind(rows)})",
              f"  %d = arith.subf %a, %x : {kind(result)}",
              f"  %s = arith.mulf %d, %d : {kind(result)}",
              "  %loss = memopt.reduce %s {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : "
              f"({kind(result)}) -> tensor<f64>",
              "  return %loss : tensor<f64>", "}", "}", ""]
    return "\n".join(lines)


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} exited {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def train(folder, name):
    """Losses, gradients and the final state of NAME.mlir."""
    run("memopt-compile", folder / f"{name}.mlir", "-o", folder / f"{name}.memopt", "--optimizer=sgd", "--threads=1")
    run("memopt-run", folder / f"{name}.memopt", f"--data={folder / 'data.safetensors'}", "--steps=3", "--lr=0.1", "--quiet",
        "--seed=7", f"--report={folder / 'report.json'}", f"--save={folder / name}",
        f"--save-gradients={folder / 'gradients.safetensors'}")
    tensors = {"losses": numpy.array(json.loads((folder / "report.json").read_text())["losses"])}
    for file in (folder / "gradients.safetensors", folder / name / "model.safetensors"):
        tensors |= {f"{file.stem} {key}": value for key, value in read_safetensors(file).items()}
    return tensors


def differences(call, written):
    if set(call) != set(written):
        yield f"tensors are {sorted(written)}, not {sorted(call)}"
    for name in set(call) & set(written):
        error = numpy.max(numpy.abs(written[name] - call[name])) / max(1.0, numpy.max(numpy.abs(call[name])))
        if not error <= TOLERANCE:
            yield f"{name} differs by {error:.1e}"


def main():
    failed = 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "call.mlir").write_text(write(case))
            shape = (BATCH, case.heads, QUERIES, SIZE)
            x = numpy.random.default_rng(1).uniform(-1.0, 1.0, shape)
            write_safetensors(folder / "data.safetensors", {f"step{step}.x": x * (1 + step) for step in range(3)})
            written = run("memopt-opt", folder / "call.mlir", "--memopt-write-out-attention")
            wrong = ["attention is not written out"] if "memopt.attention" in written else []
            (folder / "written.mlir").write_text(written)
            wrong += differences(train(folder, "call"), train(folder, "written"))
        failed += bool(wrong)
        print("\n".join(f"FAIL {case.name}: {text}" for text in wrong) or f"ok   {case.name}")
    print(f"{len(CASES) - failed} of {len(CASES)} kinds of attention train alike as calls and written out")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
