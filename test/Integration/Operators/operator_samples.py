#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds recorded operator samples (record_operators.py) against what memopt computes.

    operator_samples.py [--tools FOLDER] samples.zip --part K/N     every N-th archive from the K-th on
    operator_samples.py [--tools FOLDER] samples.zip --rows         whether each row of the importer's table has a sample or a case

With e = |PyTorch in its type - PyTorch in float64| and u the unit of float32, an element may be 3 max(e) + 16 u scale + 16 u
off either of PyTorch's, scale being the tensor's largest value; NaN and infinities must be where PyTorch has them, integers
and booleans exact.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

from draw_numbers import draws
from import_numbers import FAMILIES
from tensor_files import read_safetensors

UNIT = 2.0 ** -23

# Rows that are no operators of PyTorch's: what tools/python/memopt/tracing/gradients.py writes for a torch.autograd.Function,
# rewriting/sides/updates.py for a parameter that a branch leaves out, and rewriting/complex_values for complex matrices. Their import
# is checked by test/Import/operators.test, their gradients by gradient_cases.py, updates by insert-optimizer-unsteady.mlir, and
# complex matrices by test/Python/Models/complex-algebra.test.
ELSEWHERE = {"memopt.custom_gradient.default", "memopt.incoming_gradient.default", "memopt.linear_algebra.default",
             "memopt.updated_where.default", "memopt.with_gradient_of.default"}


def run(tools, archive, folder):
    """What one step leaves in the buffers, and its gradients, by the names of record_operators.py. Raises CalledProcessError."""
    (folder / "m.pt2").write_bytes(archive)
    for command in ([os.path.join(tools, "memopt-compile"), folder / "m.pt2", "-o", folder / "m.memopt", "--run-threads=1"],
                    [os.path.join(tools, "memopt-run"), folder / "m.memopt", "--steps=1", "--stop-on-nan=off", "--quiet",
                     f"--save={folder / 'state'}", f"--save-gradients={folder / 'g.safetensors'}"]):
        subprocess.run(command, check=True, capture_output=True, text=True)
    found = read_safetensors(folder / "state" / "model.safetensors")
    for name, gradient in read_safetensors(folder / "g.safetensors").items():
        found[re.sub(r"^((?:net\.)?s\d+)\.", r"\1.gradient ", name)] = gradient
    return found


def agrees(ours, single, double):
    if ours.shape != single.shape or single.dtype.kind != "f":
        return ours.shape == single.shape and np.array_equal(ours, single)
    o, s, d = (x.astype("f8") for x in (ours, single, double))
    with np.errstate(all="ignore"):
        own = np.where(np.isfinite(s) & np.isfinite(d), np.abs(s - d), 0)
        scale = np.max(np.where(np.isfinite(d), np.abs(d), 0), initial=0)
        allowed = 3 * np.max(own, initial=0) + 16 * UNIT * (scale + 1)
        good = (o == s) | (np.isnan(o) & np.isnan(s)) | (np.abs(o - d) <= allowed) | (np.abs(o - s) <= allowed)
    return bool(np.all(good))


def compare(found, expected):
    """What differs, one line each."""
    differ = []
    for name, single in expected.items():
        if name.endswith("/double"):
            continue
        ours = found.get(name)
        if ours is None and " " in name and not np.any(single):  # a parameter without influence has no gradient
            continue
        if ours is None or not agrees(ours, single, expected[name + "/double"]):
            differ.append(f"{name}: expected {single.ravel()[:4]}, found {'nothing' if ours is None else ours.ravel()[:4]}")
    return differ


def check_part(arguments, samples):
    part, parts = map(int, arguments.part.split("/"))
    packs = sorted(int(re.findall(r"\d+", name)[0]) for name in samples.namelist() if name.endswith(".pt2"))
    differ, tensors = [], 0
    for number in packs[part - 1::parts]:
        with np.load(samples.open(f"pack-{number}.npz")) as recorded, tempfile.TemporaryDirectory() as folder:
            expected = dict(recorded)
            try:
                found = run(arguments.tools, samples.read(f"pack-{number}.pt2"), pathlib.Path(folder))
            except subprocess.CalledProcessError as error:
                sys.exit(f"pack-{number}: exit {error.returncode}: {error.stderr.strip()}")
            tensors += len(expected) // 2
            differ += [f"pack-{number}: {line}" for line in compare(found, expected)]
    print("\n".join(differ))
    print(f"{tensors - len(differ)} of {tensors} tensors as PyTorch has them")
    return bool(differ) or not tensors


def check_rows(arguments, samples):
    listed = subprocess.run([os.path.join(arguments.tools, "memopt-import-test"), "--rows"], check=True, capture_output=True, text=True)
    table, recorded = set(listed.stdout.split()), set(json.loads(samples.read("rows.json")))
    defined = {case.row for family in FAMILIES.values() for case in family(np.random.default_rng(0))}
    drawn = {case.row for case in draws()}
    problems = [f"neither a sample nor a case: {name}" for name in sorted(table - recorded - defined - drawn - ELSEWHERE)]
    problems += [f"no row any more: {name}" for name in sorted((recorded | defined | drawn | ELSEWHERE) - table)]
    print("\n".join(problems))
    print(f"{len(table)} rows: {len(recorded)} recorded, {len(defined - recorded)} more defined by import_numbers.py, "
          f"{len(drawn - recorded - defined)} by draw_numbers.py, {len(ELSEWHERE)} checked elsewhere; {len(problems)} problems")
    return bool(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples")
    parser.add_argument("--tools", default="", help="folder of the tools; by default they are on PATH")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--part")
    mode.add_argument("--rows", action="store_true")
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.samples) as samples:
        sys.exit((check_rows if arguments.rows else check_part)(arguments, samples))


if __name__ == "__main__":
    main()
