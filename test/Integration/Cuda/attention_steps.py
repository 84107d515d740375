# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training steps of nothing but attention, and how far two runs of one are apart."""

import dataclasses
import json

import numpy

from processes import run
from tensor_files import read_safetensors, write_safetensors

BATCH, QUERIES = 2, 5


@dataclasses.dataclass
class Case:
    name: str
    heads: int = 2
    groups: int = 2
    queries: int = QUERIES
    keys: int = 5
    size: int = 4  # features of a vector
    causal: bool = False
    mask: str = ""  # "bits" or "numbers"
    mask_shape: tuple = ()
    trained: bool = False  # the mask is a parameter
    dropout: float = 0.0
    element: str = "f64"
    narrow: str = ""  # the type that vectors are rounded to
    calls: int = 1  # whose results are added up; they differ in what they drop


CASES = [
    Case("plain", keys=7),
    Case("causal", causal=True),
    Case("causal-of-fewer-keys", causal=True, keys=3),
    Case("grouped", heads=6, groups=2, keys=7),
    Case("one-head-of-keys", heads=3, groups=1, causal=True),
    Case("booleans-that-hide-a-row", mask="bits", mask_shape=(BATCH, 1, QUERIES, 5)),
    Case("booleans-and-causal", mask="bits", mask_shape=(1, 2, 1, 5), causal=True),
    Case("numbers", mask="numbers", mask_shape=(1, 2, 1, 5)),
    Case("numbers-that-hide-a-row", mask="numbers", mask_shape=(1, 1, QUERIES, 5)),
    Case("dropout", dropout=0.4, causal=True),
    Case("dropout-and-groups", heads=4, groups=2, dropout=0.3, keys=6),
]


def kind(shape, element):
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


def dense(numbers):
    return f"dense<{numpy.asarray(numbers).tolist()}>".replace("True", "true").replace("False", "false")


def mask_constant(case):
    """Hides the first row of queries where the mask has rows; minus infinity hides, too."""
    rng = numpy.random.default_rng(5)
    if case.mask == "bits":
        mask = rng.uniform(size=case.mask_shape) < 0.6
        mask[..., 0] = True
    else:
        mask = rng.uniform(-1.0, 1.0, case.mask_shape)
    text = dense(mask)
    if case.mask_shape[-2] > 1:
        mask[:, :, 0] = False if case.mask == "bits" else -1234.5
        text = dense(mask).replace("-1234.5", "0xFFF0000000000000" if case.element == "f64" else "0xFF800000")
    return f"  %mask = arith.constant {text} : {kind(case.mask_shape, mask_element(case))}"


def mask_element(case):
    return "i1" if case.mask == "bits" else case.element


def variable(name, shape, element, rng):
    return (f'memopt.variable @{name} : {kind(shape, element)} role <parameter> {{trainable, names = ["{name}"], '
            f"initial = {dense(rng.uniform(-1.0, 1.0, shape))} : {kind(shape, element)}}}")


def result_shape(case):
    return (BATCH, case.heads, case.queries, case.size)


def write(case):
    """A step: query, key and value are parameters, and the loss is the distance of the result from the input."""
    rng = numpy.random.default_rng(3)
    keys = (BATCH, case.groups, case.keys, case.size)
    shapes = {"q": result_shape(case), "k": keys, "v": keys}
    if case.trained:
        shapes["mask"] = case.mask_shape
    types = {name: kind(shape, case.element) for name, shape in shapes.items()}
    result, rows, scalar = types["q"], kind(result_shape(case)[:3], case.element), kind((), case.element)
    lines = ['module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {']
    lines += [variable(name, shape, case.element, rng) for name, shape in shapes.items()]
    lines += [f"memopt.variable @{name} : tensor<i64> role <hyperparameter>" for name in ("seed", "step")]
    lines += [f'func.func @train_step(%x: {result} {{memopt.name = "x"}})',
              f'    -> ({scalar} {{memopt.name = "loss", memopt.role = "loss"}}) {{']
    lines += [f"  %{name} = memopt.read @{name} : {type}" for name, type in types.items()]
    segments = [1, 1, 1, 0, 0, 0, 0]
    if case.mask:
        segments[3] = 1
        if not case.trained:
            lines.append(mask_constant(case))
            types["mask"] = kind(case.mask_shape, mask_element(case))
    if case.dropout:
        lines += [f"  %{name} = memopt.read @{name} : tensor<i64>" for name in ("seed", "step")]
        types |= {"seed": "tensor<i64>", "step": "tensor<i64>"}
        segments[4:6] = 1, 1
    names, out, wide = {name: "%" + name for name in types}, result, f"%sum{case.calls - 1}"
    if case.narrow:
        for name in ("q", "k", "v"):
            narrow = types[name].replace(case.element, case.narrow)
            lines.append(f"  %{name}_narrow = arith.truncf %{name} : {types[name]} to {narrow}")
            names[name], types[name] = f"%{name}_narrow", narrow
        out, wide = types["q"], "%a"
    causal = "causal, " if case.causal else ""
    for call in range(case.calls):
        made = f"%out{call}" if call else "%sum0"
        lines += [f"  {made}, %lse{call} = memopt.attention {', '.join(names.values())} {{scale = 0.5 : f64, {causal}"
                  f"dropout = {case.dropout} : f64, id = {3 + call} : i64, "
                  f"operandSegmentSizes = array<i32: {str(segments)[1:-1]}>}}",
                  f"      : ({', '.join(types.values())}) -> ({out}, {rows})",
                  f"  %sum{call} = arith.addf %sum{call - 1}, {made} : {out}" if call else ""]
    lines += [f"  %a = arith.extf %sum0 : {out} to {result}" if case.narrow else "",
              f"  %d = arith.subf {wide}, %x : {result}",
              f"  %s = arith.mulf %d, %d : {result}",
              "  %loss = memopt.reduce %s {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : "
              f"({result}) -> {scalar}",
              f"  return %loss : {scalar}", "}", "}", ""]
    return "\n".join(lines)


def write_inputs(case, file):
    x = numpy.random.default_rng(1).uniform(-1.0, 1.0, result_shape(case))
    numbers = x.astype(numpy.float32 if case.element == "f32" else numpy.float64)
    write_safetensors(file, {f"step{step}.x": numbers * (1 + step) for step in range(3)})


def train(model, folder, compile_options=(), before=(), run_options=(), lr=0.1):
    """Losses, gradients of the first step and final state, with the run's report."""
    package = folder / f"{model.stem}.memopt"
    run("memopt-compile", model, "-o", package, "--optimizer=sgd", "--threads=1", *compile_options)
    run(*before, "memopt-run", package, f"--data={folder / 'data.safetensors'}", "--steps=3", f"--lr={lr}", "--quiet",
        "--seed=7", f"--report={folder / 'report.json'}", f"--save={folder / model.stem}",
        f"--save-gradients={folder / 'gradients.safetensors'}", *run_options)
    report = json.loads((folder / "report.json").read_text())
    tensors = {"losses": numpy.array(report["losses"])}
    for file in (folder / "gradients.safetensors", folder / model.stem / "model.safetensors"):
        tensors |= {f"{file.stem} {key}": value for key, value in read_safetensors(file).items()}
    return tensors, report


def differences(expected, found, tolerance):
    if set(expected) != set(found):
        yield f"tensors are {sorted(found)}, not {sorted(expected)}"
    for name in set(expected) & set(found):
        error = numpy.max(numpy.abs(found[name] - expected[name])) / max(1.0, numpy.max(numpy.abs(expected[name])))
        if not error <= tolerance:
            yield f"{name} differs by {error:.1e}"
