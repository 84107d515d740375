#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles graphs that are long, or that have very many ways through few operators: each in seconds.

    long_graphs.py MEMOPT-OPT

How seconds grow is measured by test/benchmark/growth.py, whose models these are. Here a compilation must end at all: what
visits ways where it could visit operators takes years for these, and what recurses along a chain runs out of stack.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmark"))
import growth  # noqa: E402

SECONDS = 100
SIZES = {"chain_evaluated": 6000, "cheap_chain": 1500, "rolls": 64, "rolls_between": 64, "joins": 64, "diamonds": 64,
         "flips": 1500, "doubled_index": 64, "index_chain": 6000, "in_place": 6000, "parameters_in_micro_batches": 150}


def run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"not done in {SECONDS} s"
    return "" if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()[-300:]}"


def compile_model(name, size, folder):
    build, _, _, options = growth.KINDS[name]
    build(size).save(folder / "model.pt2")
    return run(["memopt-compile", folder / "model.pt2", "-o", folder / "package", "--quiet", *options(size)])


def check_pieces(folder):
    """A long chain is cut: machine code of one kernel takes more than in proportion, and of equal kernels is made once."""
    growth.KINDS["chain"][0](480).save(folder / "model.pt2")
    done = subprocess.run(["memopt-compile", folder / "model.pt2", "--emit=kernels", "--optimizer=sgd"], capture_output=True, text=True)
    most = max(piece.count("math.tanh") for piece in done.stdout.split("memopt.kernel"))
    return "" if done.returncode == 0 and 0 < most <= 24 else f"exit {done.returncode}, a kernel of {most} functions"


def counted(depth):
    """A loss that is divided by a number of samples, squared again and again."""
    backward = "{memopt.phase = #memopt.phase<backward>}"
    lines = ["memopt.variable @w : tensor<8x5xf32> role <parameter> {trainable}",
             "func.func @step(%x: tensor<4x8xf32>, %t: tensor<4xi64>) -> tensor<f32> {",
             "  %w = memopt.read @w : tensor<8x5xf32>",
             "  %y = memopt.matmul %x, %w : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>",
             "  %total, %count, %max, %sum = memopt.cross_entropy %y, %t : (tensor<4x5xf32>, tensor<4xi64>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)",
             "  %n0 = memopt.count %x {dimensions = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<f32>"]
    lines += [f"  %n{i + 1} = arith.mulf %n{i}, %n{i} : tensor<f32>" for i in range(depth)]
    lines += [f"  %loss = arith.divf %total, %n{depth} : tensor<f32>", "  memopt.commit %loss : tensor<f32>",
              "  %one = arith.constant dense<1.0> : tensor<f32>", f"  %scale = arith.divf %one, %n{depth} {backward} : tensor<f32>",
              f"  %dy = memopt.cross_entropy_backward %y, %t, %max, %sum, %scale {backward} : (tensor<4x5xf32>, tensor<4xi64>, tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4x5xf32>",
              "  %dw = memopt.matmul %x, %dy {transpose_a, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>, tensor<4x5xf32>) -> tensor<8x5xf32>",
              f"  memopt.gradient %dw, @w {backward} : tensor<8x5xf32>", "  return %loss : tensor<f32>", "}"]
    return "\n".join(lines) + "\n"


def kept(count):
    """Values that a backward pass reads, each as large as a tensor may be: together beyond 64 bits."""
    tensor, backward = "tensor<281474976710656xf64>", "{memopt.phase = #memopt.phase<backward>}"
    lines = [f"func.func @step(%x: {tensor}) -> tensor<f64> {{"]
    lines += [f"  %a{i} = math.tanh %{f'a{i - 1}' if i else 'x'} : {tensor}" for i in range(count)]
    lines += [f"  %b{i} = arith.mulf %{f'b{i - 1}' if i else 'x'}, %a{count - 1 - i} {backward} : {tensor}" for i in range(count)]
    lines += [f"  %s = memopt.reduce %b{count - 1} {{dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>}} : ({tensor}) -> tensor<f64>",
              "  return %s : tensor<f64>", "}"]
    return "\n".join(lines) + "\n"


def divided(count):
    """Places where a divisor is checked, more than a report tells apart."""
    tensor = "tensor<4xi64>"
    lines = [f"func.func @step(%a: {tensor}, %q0: {tensor}) -> {tensor} {{"]
    lines += [f"  %q{i + 1} = arith.remsi %a, %q{i} : {tensor}" for i in range(count)]
    return "\n".join([*lines, f"  return %q{count} : {tensor}", "}"]) + "\n"


def check_divided(opt, folder):
    wrong = transform(opt, "divided", divided(66000), ["-memopt-check-indices"], folder)
    sites = [int(site) for site in re.findall(r"site = (\d+)", (folder / "out.mlir").read_text())] if not wrong else []
    return wrong or ("" if len(sites) == 66000 and max(sites) == 65534 else f"{len(sites)} checks, the last site is {max(sites)}")


def transform(opt, name, text, flags, folder):
    (folder / f"{name}.mlir").write_text(text)
    return run([opt, folder / f"{name}.mlir", *flags, "-o", folder / "out.mlir"])


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        cases = {name: lambda name=name, size=size: compile_model(name, size, folder) for name, size in SIZES.items()}
        cases["counted"] = lambda: transform(sys.argv[1], "counted", counted(60), ["-memopt-split-batch=batches=2"], folder)
        cases["kept"] = lambda: transform(sys.argv[1], "kept", kept(512), ["-memopt-recompute-elementwise"], folder)
        cases["divided"] = lambda: check_divided(sys.argv[1], folder)
        cases["pieces"] = lambda: check_pieces(folder)
        for name, check in cases.items():
            wrong = check()
            failures += bool(wrong)
            print(f"FAIL {name}: {wrong}" if wrong else f"ok {name}", flush=True)
    print(f"{len(cases)} graphs, {failures} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
