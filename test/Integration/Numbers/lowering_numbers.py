#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs ops through the compiler and compares the values with definitions written in numpy.

Gradient checks (finite_differences.py) see only that forward and backward agree. Here the forward values
themselves are held to their definition, with emphasis on what a formula hides: padding that must not win,
NaN that must, ties, the bits of random masks, ignored targets, weights and smoothing of losses.

Each case is a step whose results are written to buffers @out0, @out1, ...; one run saves them.
"""

import argparse
import itertools
import os
import pathlib
import sys
import tempfile

import numpy as np

from irregular_cases import irregular_cases
from processes import Failed, run
from tensor_files import read_safetensors, write_safetensors

ELEMENTS = {np.dtype("f4"): "f32", np.dtype("f8"): "f64", np.dtype("i8"): "i64", np.dtype("i4"): "i32", np.dtype("i1"): "i8", np.dtype("u1"): "u8",
            np.dtype("?"): "i1"}


def tensor_type(values):
    return "tensor<" + "".join(f"{size}x" for size in values.shape) + ELEMENTS[values.dtype] + ">"


class Case:
    """`text` computes %r0, %r1, ... from %a0, %a1, ...; $a0 and $r0 stand for their types."""

    def __init__(self, name, inputs, text, expected, tolerance=2e-6):
        self.name, self.inputs, self.text, self.expected, self.tolerance = name, inputs, text, expected, tolerance

    def build(self):
        text = self.text
        for prefix, values in (("a", self.inputs), ("r", self.expected)):
            for number, value in enumerate(values):
                text = text.replace(f"${prefix}{number}", tensor_type(value))
        lines = ["memopt.variable @weight : tensor<f32> role <parameter> {trainable, names = [\"weight\"], initial = dense<1.0> : tensor<f32>}"]
        for number, value in enumerate(self.expected):
            lines.append(f"memopt.variable @out{number} : {tensor_type(value)} role <buffer> "
                         f"{{names = [\"out{number}\"], init_value = 0.0 : f64}}")
        arguments = ", ".join(f"%a{number}: {tensor_type(value)} {{memopt.name = \"a{number}\"}}"
                              for number, value in enumerate(self.inputs))
        lines.append(f"func.func @train_step({arguments}) -> (tensor<f32> {{memopt.name = \"loss\", memopt.role = \"loss\"}}) {{")
        lines.append(text)
        for number, value in enumerate(self.expected):
            lines.append(f"memopt.write %r{number}, @out{number} : {tensor_type(value)}")
        lines += ["%weight = memopt.read @weight : tensor<f32>", "%loss = arith.mulf %weight, %weight : tensor<f32>",
                  "return %loss : tensor<f32>", "}"]
        return "module {\n" + "\n".join(lines) + "\n}\n"


# ----------------------------------------------------------------------------------------------------
# Definitions
# ----------------------------------------------------------------------------------------------------

def random_word(number, step, identity, seed):
    """Four neighbours share a counter of Philox4x32-10."""
    counter = [number >> 2 & 0xFFFFFFFF, number >> 34, step & 0xFFFFFFFF, identity]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(second >> 32) ^ counter[1] ^ keys[0], second & 0xFFFFFFFF,
                   (first >> 32) ^ counter[3] ^ keys[1], first & 0xFFFFFFFF]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter[number % 4]


def random_words(shape, step, identity, seed, first=0, strides=None):
    """Those of a tensor's elements; of a part's, by the strides of the whole."""
    strides = strides or [int(np.prod(shape[i + 1:])) for i in range(len(shape))]
    numbers = first + sum(i * stride for i, stride in zip(np.indices(shape), strides))
    return np.vectorize(lambda number: random_word(int(number), step, identity, seed), otypes=["u8"])(numbers)


def windows(size, out, kernel, stride, low, dilation):
    """For each output position the list of (tap, index) that lie inside."""
    return [[(t, o * stride - low + t * dilation) for t in range(kernel) if 0 <= o * stride - low + t * dilation < size]
            for o in range(out)]


def pool(x, kernel, stride, low, high, dilation, combine):
    out = [(x.shape[2 + i] + low[i] + high[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    places = [windows(x.shape[2 + i], out[i], kernel[i], stride[i], low[i], dilation[i]) for i in range(2)]
    results = None
    for n, c, i, j in np.ndindex(x.shape[0], x.shape[1], *out):
        taps = [(th * kernel[1] + tw, x[n, c, h, w]) for th, h in places[0][i] for tw, w in places[1][j]]
        values = combine(taps)
        if results is None:
            results = [np.zeros((x.shape[0], x.shape[1], *out), dtype) for dtype in ("f4", "i1")]
        for result, value in zip(results, values):
            result[n, c, i, j] = value
    return results


def largest(taps):
    best = taps[0]
    for tap, value in taps[1:]:
        if not np.isnan(best[1]) and (value > best[1] or np.isnan(value)):
            best = (tap, value)
    return best[1], best[0]


def bilinear(x, size, align):
    def weights(source, target):
        matrix = np.zeros((target, source))
        for i in range(target):
            place = i * (source - 1) / (target - 1) if align else max((i + 0.5) * source / target - 0.5, 0)
            low = min(int(place), source - 1)
            matrix[i, low] += 1 - (place - low)
            matrix[i, min(low + 1, source - 1)] += place - low
        return matrix
    return np.einsum("ih,jw,nchw->ncij", weights(x.shape[2], size[0]), weights(x.shape[3], size[1]), x)


def cross_entropy(logits, targets, weights, smoothing, ignore):
    maxima = logits.max(1)
    shifted = logits - maxima[:, None]
    log_sum = np.log(np.exp(shifted).sum(1))
    minus = log_sum[:, None] - shifted
    total = count = 0.0
    for row, target in zip(minus, targets):
        if target == ignore:
            continue
        total += (1 - smoothing) * weights[target] * row[target] + smoothing / len(row) * (weights * row).sum()
        count += weights[target]
    return total, count, maxima, log_sum


# ----------------------------------------------------------------------------------------------------
# Cases
# ----------------------------------------------------------------------------------------------------

def all_cases():
    random = np.random.default_rng(7)

    def values(*shape):
        return random.standard_normal(shape).astype("f4")

    seed, step = np.array(0x123456789ABCDEF, "i8"), np.array(5, "i8")
    for shape, probability in (((4, 33), 0.25), ((7,), 0.0), ((70,), 0.9)):
        bits = random_words(shape, 5, 3, int(seed))
        yield Case(f"dropout_mask_{probability}", [seed, step],
                   f"%r0 = memopt.dropout_mask %a0, %a1 {{probability = {probability} : f64, id = 3 : i64}} : ($a0, $a1) -> $r0",
                   [bits >= probability * 2**32])
    # Parts of a batch, which begin with a counter or inside of one, and rows of whole counters or not.
    for first, strides, shape in ((4, (72, 1), (3, 72)), (7, (72, 1), (3, 72)), (70, (35, 1), (2, 35)), (2**34 - 64, (1, 80), (80, 2))):
        bits = random_words(shape, 5, 3, int(seed), first, strides)
        yield Case(f"dropout_mask_from_{first}", [seed, step, np.array(first, "i8")],
                   f"%r0 = memopt.dropout_mask %a0, %a1, %a2 {{probability = 0.5 : f64, id = 3 : i64, "
                   f"strides = array<i64: {strides[0]}, {strides[1]}>}} : ($a0, $a1, $a2) -> $r0", [bits >= 2**31])

    x = np.round(values(2, 3, 7, 8) * 2) / 2  # halves: many ties
    x[0, 0, 2, 3] = x[0, 0, 2, 4] = np.nan
    x[1, 2] = -np.inf
    for kernel, stride, low, high, dilation in (((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), ((2, 3), (1, 2), (0, 1), (1, 1), (2, 1))):
        window = (f"kernel = array<i64: {kernel[0]}, {kernel[1]}>, strides = array<i64: {stride[0]}, {stride[1]}>, "
                  f"padding_low = array<i64: {low[0]}, {low[1]}>, padding_high = array<i64: {high[0]}, {high[1]}>")
        dilations = f"dilations = array<i64: {dilation[0]}, {dilation[1]}>"
        best, taps = pool(x, kernel, stride, low, high, dilation, largest)
        yield Case(f"max_pool_{kernel[0]}{kernel[1]}", [x],
                   f"%r0, %r1 = memopt.max_pool %a0 {{{window}, {dilations}}} : ($a0) -> ($r0, $r1)", [best, taps])
        if dilation == (1, 1):
            size = kernel[0] * kernel[1]
            y = values(2, 3, 7, 8)
            for name, attribute, divide in (("inside", "", lambda t: sum(v for _, v in t) / len(t)),
                                            ("padded", ", count_padding", lambda t: sum(v for _, v in t) / size),
                                            ("divisor", ", divisor = 5 : i64", lambda t: sum(v for _, v in t) / 5)):
                mean = pool(y, kernel, stride, low, high, dilation, lambda t: (divide(t), 0))[0]
                yield Case(f"avg_pool_{name}", [y], f"%r0 = memopt.avg_pool %a0 {{{window}{attribute}}} : ($a0) -> $r0", [mean])

    x = values(2, 3, 5, 6)
    for align in (False, True):
        scales = [(5 - 1) / (9 - 1), (6 - 1) / (8 - 1)] if align else [5 / 9, 6 / 8]
        yield Case(f"bilinear_{'aligned' if align else 'centres'}", [x],
                   f"%r0 = memopt.interpolate %a0 {{scales = array<f64: {scales[0]!r}, {scales[1]!r}>, mode = #memopt.resampling<linear>"
                   f"{', align_corners' if align else ''}}} : ($a0) -> $r0", [bilinear(x, (9, 8), align).astype("f4")])
    rows, columns = [int(i * 5 / 10) for i in range(10)], [int(i * 6 / 3) for i in range(3)]
    yield Case("nearest", [x], "%r0 = memopt.interpolate %a0 {scales = array<f64: 0.5, 2.0>, mode = #memopt.resampling<nearest>} : ($a0) -> $r0",
               [x[:, :, rows][:, :, :, columns]])

    x, scale, offset = values(16, 6, 9, 10) + 3, values(6), values(6)
    mean, variance = x.mean((0, 2, 3), dtype="f8"), x.var((0, 2, 3), dtype="f8")
    channel = (None, slice(None), None, None)
    normal = ((x - mean[channel]) / np.sqrt(variance[channel] + 1e-5) * scale[channel] + offset[channel])
    for axis, order in ((1, (0, 1, 2, 3)), (3, (0, 2, 3, 1))):
        yield Case(f"batch_norm_axis{axis}", [x.transpose(order).copy(), scale, offset],
                   f"%r0, %r1, %r2 = memopt.batch_norm %a0, %a1, %a2 {{eps = 1.0e-5 : f64, axis = {axis} : i64, "
                   "operandSegmentSizes = array<i32: 1, 1, 1>} : ($a0, $a1, $a2) -> ($r0, $r1, $r2)",
                   [normal.transpose(order).astype("f4").copy(), mean.astype("f4"), variance.astype("f4")])

    x, scale, offset = values(5, 7, 33), values(33), values(33)
    mean, inverse = x.mean(2, dtype="f8"), 1 / np.sqrt(x.var(2, dtype="f8") + 1e-5)
    normal = (x - mean[..., None]) * inverse[..., None] * scale + offset
    yield Case("layer_norm", [x, scale, offset],
               "%r0, %r1, %r2 = memopt.layer_norm %a0, %a1, %a2 {begin = 2 : i64, eps = 1.0e-5 : f64, "
               "operandSegmentSizes = array<i32: 1, 1, 1>} : ($a0, $a1, $a2) -> ($r0, $r1, $r2)",
               [normal.astype("f4"), mean.astype("f4"), inverse.astype("f4")])
    norm = x / np.sqrt((x.astype("f8")**2).mean(2, keepdims=True) + 1e-6) * scale
    yield Case("rms_norm", [x, scale], "%r0 = memopt.rms_norm %a0, %a1 {begin = 2 : i64, eps = 1.0e-6 : f64} : ($a0, $a1) -> $r0",
               [norm.astype("f4")])
    for axis in (0, 2):
        power = np.exp(x - x.max(axis, keepdims=True))
        yield Case(f"softmax_axis{axis}", [x], f"%r0 = memopt.softmax %a0 {{axis = {axis} : i64}} : ($a0) -> $r0",
                   [(power / power.sum(axis, keepdims=True)).astype("f4")])

    logits, weights = values(40, 11) * 4, random.uniform(0.5, 2, 11).astype("f4")
    targets = random.integers(0, 11, 40)
    targets[::7] = -100
    for weighted, smoothing in itertools.product((False, True), (0.0, 0.1)):
        total, count, maxima, log_sum = cross_entropy(logits.astype("f8"), targets, weights if weighted else np.ones(11), smoothing, -100)
        operands, types = ("%a0, %a1, %a2", "$a0, $a1, $a2") if weighted else ("%a0, %a1", "$a0, $a1")
        yield Case(f"cross_entropy_{weighted}_{smoothing}", [logits, targets] + ([weights] if weighted else []),
                   f"%r0, %r1, %r2, %r3 = memopt.cross_entropy {operands} {{label_smoothing = {smoothing} : f64}} : ({types}) -> ($r0, $r1, $r2, $r3)",
                   [np.array(total, "f4"), np.array(count, "f4"), maxima.astype("f4"), log_sum.astype("f4")])

    # Small losses of large logits: neither they nor the gradient are rounded at the size of the logits.
    logits, targets = values(40, 11), random.integers(0, 11, 40)
    logits[np.arange(40), targets] += 16
    total, count, maxima, log_sum = cross_entropy(logits.astype("f8"), targets, np.ones(11), 0, -100)
    gradient = np.exp(logits.astype("f8") - maxima[:, None] - log_sum[:, None])
    gradient[np.arange(40), targets] -= 1
    yield Case("cross_entropy_confident", [logits, targets, np.array(1, "f4")],
               "%r0, %n, %m, %s = memopt.cross_entropy %a0, %a1 : ($a0, $a1) -> ($a2, $a2, tensor<40xf32>, tensor<40xf32>)\n"
               "%r1 = memopt.cross_entropy_backward %a0, %a1, %m, %s, %a2 : ($a0, $a1, tensor<40xf32>, tensor<40xf32>, $a2) -> $r1",
               [np.array(total, "f4"), gradient.astype("f4")], 3e-5)

    x = values(96, 70)
    for name, dimensions in (("rows", (1,)), ("columns", (0,)), ("all", (0, 1))):
        yield Case(f"sum_{name}", [x], "%r0 = memopt.reduce %a0 {kind = #memopt.reduce<add>, dimensions = array<i64: "
                   f"{', '.join(map(str, dimensions))}>}} : ($a0) -> $r0", [x.sum(dimensions, dtype="f8").astype("f4")], 1e-5)
    x = x.copy()
    x[3, 5] = np.nan
    yield Case("max_keeps_nan", [x], "%r0 = memopt.reduce %a0 {kind = #memopt.reduce<max>, dimensions = array<i64: 1>} : ($a0) -> $r0",
               [x.max(1)])
    x = np.array([-200, -1, 0, 1, 30, 200, np.nan], "f4")
    with np.errstate(over="ignore", invalid="ignore"):
        yield Case("activations", [x], "%r0 = memopt.relu %a0 : $a0\n%r1 = memopt.sigmoid %a0 : $a0\n%r2 = memopt.softplus %a0 : $a0",
                   [np.where(x <= 0, np.float32(0), x), (1 / (1 + np.exp(-x.astype("f8")))).astype("f4"),
                    np.logaddexp(0, x.astype("f8")).astype("f4")])
    for fields in irregular_cases(random, random_words):
        yield Case(*fields)
    table, rows = values(9, 20), random.integers(0, 9, (3, 4))
    yield Case("embedding", [table, rows], "%r0 = memopt.embedding %a0, %a1 : ($a0, $a1) -> $r0", [table[rows]])


# ----------------------------------------------------------------------------------------------------
# Running
# ----------------------------------------------------------------------------------------------------

def check(case, tools, folder):
    folder.mkdir(parents=True)
    (folder / "case.mlir").write_text(case.build())
    inputs = case.inputs or [np.zeros(1, "f4")]
    write_safetensors(folder / "data.safetensors", {f"step0.a{number}": value for number, value in enumerate(inputs)})
    run(os.path.join(tools, "memopt-compile"), f"{folder}/case.mlir", "-o", f"{folder}/case.memopt", "--threads=1")
    run(os.path.join(tools, "memopt-run"), f"{folder}/case.memopt", f"--data={folder}/data.safetensors", "--steps=1", "--quiet",
        "--init=random", "--stop-on-nan=off", f"--save={folder}/saved")
    saved = read_safetensors(folder / "saved" / "model.safetensors")
    for number, expected in enumerate(case.expected):
        found = saved[f"out{number}"]
        if expected.dtype.kind != "f":
            wrong = found.astype("i8") != expected.astype("i8")
        else:
            scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
            wrong = ~(np.isclose(found, expected, rtol=case.tolerance, atol=case.tolerance * scale, equal_nan=True))
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            return f"result {number} at {place}: expected {expected[place]}, found {found[place]}; {int(wrong.sum())} differ"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="", help="folder of memopt-compile and memopt-run; by default they are on PATH")
    parser.add_argument("--keep", help="folder to leave programs and data in")
    options = parser.parse_args()
    failed = count = 0
    with tempfile.TemporaryDirectory() as scratch:
        for case in all_cases():
            count += 1
            try:
                problem = check(case, options.tools, pathlib.Path(options.keep or scratch) / case.name)
            except (Failed, KeyError, OSError) as error:
                problem = str(error)
            if problem:
                failed += 1
                print(f"FAIL {case.name}: {problem}")
    print(f"{count - failed} of {count} lowerings agree with their definitions")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
