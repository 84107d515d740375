#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports ATen operators and compares the values with definitions written in numpy.

lowering_numbers.py holds the dialect's ops to their definitions; here the path from a node of an archive is
included: which arguments mean what, results of every kind, negative dimensions and indices. All cases of a family
are nodes of one model whose results are new values of buffers; one run saves them. Gradients of what rows are
made of are checked by finite_differences.py, those at the edges of what operators take by cases with `slopes`,
whose results are summed into the loss.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import algebra_cases
import counting_cases
import import_cases
import layer_cases
import spelling_cases
from import_cases import Constant
from tensor_files import read_safetensors, write_safetensors

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "Import" / "Inputs"))
from archive import Model, Value  # noqa: E402

GROUPS = {"operators": import_cases.FAMILIES, "spellings": spelling_cases.FAMILIES, "layers": layer_cases.FAMILIES,
          "algebra": algebra_cases.FAMILIES, "counting": counting_cases.FAMILIES}
FAMILIES = {name: family for group in GROUPS.values() for name, family in group.items()}
DTYPES = {"f4": "f32", "f8": "f64", "i8": "i64", "i4": "i32", "u1": "u8", "b1": "bool"}


def dtype_of(values):
    return DTYPES[values.dtype.str[1:]]


class Family:
    """One model of many nodes."""

    def __init__(self, cases):
        self.model, self.data, self.expected, self.slopes = Model(), {}, {}, {}
        weight = self.model.parameter("weight", [])
        self.totals = []
        for number, case in enumerate(cases):
            self.add(number, case)
        for name in self.expected:
            self.model.mutation(name, Value(name + "_value"))
        loss = self.model.op("aten.mul.Tensor", ("loss", "f32", []), self_=weight, other=weight)
        for number, total in enumerate(self.totals):
            loss = self.model.op("aten.add.Tensor", (f"loss{number}", "f32", []), self_=loss, other=total)
        self.model.output(loss)

    def value(self, name, argument):
        if isinstance(argument, Constant):
            return self.model.buffer(name, list(argument.values.shape), argument.values.reshape(-1).tolist(),
                                     dtype_of(argument.values), persistent=False)
        if isinstance(argument, np.ndarray):
            self.data[f"step0.{name}"] = argument
            return self.model.input(name, dtype_of(argument), list(argument.shape))
        if isinstance(argument, list) and any(isinstance(a, (np.ndarray, Constant)) for a in argument):
            return [self.value(f"{name}_{number}", a) for number, a in enumerate(argument)]
        return argument

    def add(self, number, case):
        inputs = {}
        for key, argument in case.arguments.items():
            name = f"in{number}_{key.rstrip('_')}"
            if key in case.slopes:
                inputs[key] = self.model.parameter(name, list(argument.shape), numbers=argument.reshape(-1).tolist())
                self.slopes[name] = (case, case.slopes[key])
            else:
                inputs[key] = self.value(name, argument)
        results = []
        for place, expected in enumerate(case.expected):
            name = f"case{number}_{place}"
            if expected is None:
                results.append((name, "i64", [1]))
                continue
            results.append((name + "_value", dtype_of(expected), list(expected.shape)))
            zeros = [False if expected.dtype == bool else 0] * expected.size
            self.model.buffer(name, list(expected.shape), zeros, dtype_of(expected))
            self.expected[name] = (case, expected)
        values = self.model.op(case.row, results[0] if len(results) == 1 else results, **inputs)
        if case.slopes:
            first = values if len(results) == 1 else values[0]
            self.totals.append(self.model.op("aten.sum.default", (f"total{number}", "f32", []), self_=first))

    def run(self, tools, folder, *options):
        """What one step leaves in the buffers, and its gradients. Raises CalledProcessError."""
        self.model.save(folder / "model.pt2")
        write_safetensors(folder / "data.safetensors", self.data or {"step0.unused": np.zeros(1, "f4")})
        command = [os.path.join(tools, "memopt-run"), folder / "model.pt2", "-o", folder / "model.memopt", "--threads=1",
                   f"--data={folder / 'data.safetensors'}", "--steps=1", "--quiet", "--stop-on-nan=off", f"--save={folder / 'saved'}",
                   f"--save-gradients={folder / 'gradients.safetensors'}"]
        subprocess.run(list(map(str, [*command, *options])), check=True, capture_output=True, text=True, timeout=600)
        return read_safetensors(folder / "saved" / "model.safetensors"), read_safetensors(folder / "gradients.safetensors")

    def check(self, tools, folder, *options):
        """What differs, one line each."""
        try:
            saved, gradients = self.run(tools, folder, *options)
        except subprocess.CalledProcessError as error:
            return [error.stderr.strip()[-2000:]]
        wrong = [difference(name, *about, saved[name]) for name, about in self.expected.items()]
        # A parameter without influence has no gradient.
        wrong += [difference(name, *about, gradients.get(name, np.zeros_like(about[1]))) for name, about in self.slopes.items()]
        return list(filter(None, wrong))


def difference(name, case, expected, found):
    if expected.dtype.kind == "f":
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        wrong = ~np.isclose(found, expected, rtol=case.tolerance, atol=case.tolerance * scale, equal_nan=True)
    else:
        wrong = found != expected
    if not wrong.any():
        return None
    place = tuple(map(int, np.argwhere(wrong)[0]))
    return (f"{case.name} ({case.target}), {name} at {place}: expected {expected[place]}, found "
            f"{found[place]}; {int(wrong.sum())} of {wrong.size} differ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(GROUPS),
                        help="of " + ", ".join(FAMILIES) + "; or groups of them: " + ", ".join(GROUPS))
    parser.add_argument("--tools", default="", help="folder of memopt-run; by default it is on PATH")
    parser.add_argument("--device", help="description of the device to compile for and run on")
    options = parser.parse_args()
    device = ["--device=cuda", "--target=cuda", f"--target-features={options.device}"] if options.device else []
    families = [family for name in options.families for family in GROUPS.get(name, [name])]
    count = failed = 0
    for name in families:
        cases = list(FAMILIES[name](np.random.default_rng(7)))
        count += len(cases)
        with tempfile.TemporaryDirectory() as folder:
            for problem in Family(cases).check(options.tools, pathlib.Path(folder), *device):
                failed += 1
                print(f"FAIL {name}: {problem}")
    print(f"{count} operators in {len(families)} families, {failed} wrong results")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
