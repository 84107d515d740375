#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks every gradient rule against central differences, by running the generated code.

Each case of gradient_cases.py is compiled in f64 and run once with learning rate 0. The first step gives
the gradients (--save-gradients) at the parameters' values; the steps after it move one element of one
parameter up and down by H through the inputs d0, d1, ..., and report the loss there.

The difference quotient of a smooth loss errs by about H^2 plus the rounding of the loss over H: with
H = 1e-5 both are near 1e-10, so that TOLERANCE leaves two orders of magnitude to spare.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import sys
import tempfile

import numpy

import gradient_cases
from processes import Failed, run
from tensor_files import read_safetensors, write_safetensors

H = 1e-5
TOLERANCE = 1e-7


def write_steps(path, case, inputs):
    """One batch for each place at which the loss is wanted: the parameters themselves first."""
    batches = {f"step0.{name}": values for name, values in inputs.items()}
    step = 1
    for number, shape in enumerate(case.shapes):
        for element in range(int(numpy.prod(shape))):
            for sign in (1, -1):
                moved = numpy.zeros(shape)
                moved.flat[element] = sign * H
                for name, values in inputs.items():
                    batches[f"step{step}.{name}"] = moved if name == f"d{number}" else values
                step += 1
    write_safetensors(path, batches)
    return step


def largest_error(case, losses, gradients):
    """The largest error over all parameters, relative to gradients above 1 and to 1 below, and where it is."""
    worst, place, step = 0.0, "", 1
    for number, shape in enumerate(case.shapes):
        count = int(numpy.prod(shape))
        pairs = numpy.array(losses[step:step + 2 * count], dtype=numpy.float64).reshape(count, 2)
        step += 2 * count
        expected = (pairs[:, 0] - pairs[:, 1]) / (2 * H)
        found = gradients[f"p{number}"].reshape(-1)
        errors = numpy.abs(found - expected) / numpy.maximum(1.0, numpy.abs(expected))
        errors = numpy.where(numpy.isfinite(errors), errors, numpy.inf)
        index = int(errors.argmax())
        if errors[index] > worst:
            worst = errors[index]
            place = f"p{number}[{index}]: gradient {found[index]:.12g}, difference quotient {expected[index]:.12g}"
    return worst, place


def check(case, tools, compile_options, keep):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(keep or scratch) / case.name
        folder.mkdir(parents=True, exist_ok=True)
        text, inputs = gradient_cases.build(case)
        (folder / "case.mlir").write_text(text)
        steps = write_steps(folder / "data.safetensors", case, inputs)
        try:
            run(os.path.join(tools, "memopt-compile"), f"{folder}/case.mlir", "-o", f"{folder}/case.memopt", "--optimizer=sgd",
                *compile_options)
            run(os.path.join(tools, "memopt-run"), f"{folder}/case.memopt", f"--data={folder}/data.safetensors", f"--steps={steps}",
                "--lr=0", "--quiet", f"--report={folder}/report.json", f"--save-gradients={folder}/gradients.safetensors")
            losses = json.loads((folder / "report.json").read_text())["losses"]
            error, place = largest_error(case, losses, read_safetensors(folder / "gradients.safetensors"))
        except (Failed, KeyError) as problem:
            return case.name, numpy.inf, str(problem)
        return case.name, error, place


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="", help="folder of memopt-compile and memopt-run; by default they are on PATH")
    parser.add_argument("--cases", default="*", help="glob over the names of the cases to check")
    parser.add_argument("--libraries", action="store_true", help="call libraries where they know f64, not reference loops")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", help="folder to leave programs and data in")
    parser.add_argument("--verbose", action="store_true", help="a line for each case")
    options = parser.parse_args()
    compile_options = ["--threads=1"] + ([] if options.libraries else ["--reference"])
    cases = [case for case in gradient_cases.all_cases() if fnmatch.fnmatch(case.name, options.cases)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, error, place in pool.map(
                lambda case: check(case, options.tools, compile_options, options.keep), cases):
            good = error <= TOLERANCE
            failed += not good
            if options.verbose or not good:
                print(f"{'ok  ' if good else 'FAIL'} {name}: error {error:.1e}{'' if good else ' at ' + place}")
    print(f"{len(cases) - failed} of {len(cases)} gradient rules agree with finite differences")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
