#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""technique_pairs.py MODEL.pt2: trains a model of Inputs/techniques with every pair of techniques, and with all of them.

In each of these programs used bytes are predicted ones, to the byte, and every technique takes part: a budget is kept,
recomputation happens, state has codes, numbers that it rounds or sums otherwise are others. Held against programs with
fewer techniques:

  budget, checkpointing, release     leave all bits: a program with one of them has those of the program without it
  fusion, accumulation               alone change no more than the order of sums (ALONE)
  bf16, 8-bit state                  alone round within bounds (ALONE)
  any of the last four together      are at most four times as far from the program with none as each alone is, added up,
                                     and the widest of the bounds

Three steps of AdamW. Updates wait for the norm of all gradients, which clips nothing, unless they are released.
Distances are root mean squares over a tensor. Needs memopt-compile and memopt-run on PATH.
"""
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from tensor_files import read_safetensors, write_safetensors

MODULES = {"convolutions": "net.body", "transformer": "net.layers.*"}
EXACT = ("budget", "checkpointing", "release")
# What a tensor may differ by for each technique alone, as a part of its largest number.
ALONE = {"fusion": 2e-6, "accumulation": 2e-6, "bf16": 2e-2, "8-bit": 1e-3}
TECHNIQUES = (*ALONE, *EXACT)
BASE = frozenset()


def get_options(model, techniques):
    options = {"fusion": ["--efficient-conv-bn-eval=all"], "accumulation": ["--micro-batches=2"], "bf16": ["--precision=bf16"],
               "8-bit": ["--optim-bits=8", "--min-8bit-size=1024"],
               "checkpointing": [f"--activation-checkpointing={MODULES[model]}"]}
    chosen = [option for name in TECHNIQUES if name in techniques for option in options.get(name, [])]
    return chosen if "release" in techniques else [*chosen, "--max-grad-norm=1000000"]


def make_data(model, path):
    generator = np.random.default_rng(3)
    data = {}
    for step in range(3):
        if model == "convolutions":
            data[f"step{step}.image"] = generator.standard_normal((8, 3, 8, 8)).astype("f4")
            data[f"step{step}.label"] = generator.integers(0, 10, 8)
        else:
            data[f"step{step}.tokens"] = generator.integers(0, 48, (8, 12))
            targets = generator.integers(0, 48, (8, 12))
            targets[generator.random((8, 12)) < 0.3] = -100  # ignored, not as often in each micro-batch
            data[f"step{step}.targets"] = targets
    write_safetensors(path, data)


class Matrix:
    def __init__(self, path, folder):
        self.path, self.model, self.folder, self.runs = path, path.stem, folder, {}
        self.data = folder / "data.safetensors"
        make_data(self.model, self.data)

    def compile(self, package, options):
        report = self.folder / "compile.json"
        command = ["memopt-compile", self.path, "-o", package, "--optimizer=adamw", "--eps=0.1", "--threads=1", "--quiet",
                   f"--report={report}", *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode not in (0, 2):
            raise RuntimeError(f"memopt-compile exited {done.returncode}: {done.stderr.strip()[-400:]}")
        return json.loads(report.read_text())

    def find_budget(self, techniques):
        """Half of what can be saved, so that something has to be run again."""
        options = get_options(self.model, techniques)
        smallest = self.compile(self.folder / "none.memopt", [*options, "--device-memory=1"])["smallest_budget_bytes"]["device"]
        return (smallest + self.train(techniques - {"budget"})["bytes"]) // 2

    def train(self, techniques):
        if techniques not in self.runs:
            self.runs[techniques] = self.run(techniques)
        return self.runs[techniques]

    def run(self, techniques):
        budget = self.find_budget(techniques) if "budget" in techniques else None
        options = [] if budget is None else [f"--device-memory={budget}"]
        package = self.folder / "step.memopt"
        plan = self.compile(package, [*options, *get_options(self.model, techniques)])
        names = [self.folder / name for name in ("run.json", "saved", "gradients.safetensors")]
        command = ["memopt-run", package, f"--data={self.data}", "--steps=3", "--lr=0.01", "--quiet", "--check-memory",
                   f"--report={names[0]}", f"--save={names[1]}", f"--save-gradients={names[2]}"]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        report = json.loads(names[0].read_text())
        self.check_report(techniques, plan, report, budget)
        tensors = {"gradient " + name: value for name, value in read_safetensors(names[2]).items()}
        tensors |= read_safetensors(names[1] / "model.safetensors")
        optimizer = read_safetensors(names[1] / "optimizer.safetensors")
        assert any(value.dtype.itemsize == 1 for value in optimizer.values()) == ("8-bit" in techniques), techniques
        tensors["losses"] = np.array(report["losses"])
        return {"bytes": report["used_peak_bytes"]["device"], "tensors": tensors}

    @staticmethod
    def check_report(techniques, plan, report, budget):
        assert report["used_peak_bytes"] == report["predicted_peak_bytes"], report
        assert report["hot_path_allocations"] == 0, report
        used = report["used_peak_bytes"]["device"]
        assert budget is None or used <= budget, f"{used} bytes within {budget}"
        if techniques & {"budget", "checkpointing"}:
            assert plan["recomputed_instructions"] > 0, plan
        assert bool(report.get("efficient_conv_bn_eval", {}).get("fused")) == ("fusion" in techniques), report

    def check_bits(self, one, other):
        """Of two programs that differ by techniques that leave all bits."""
        first, second = self.train(one)["tensors"], self.train(other)["tensors"]
        for name, value in first.items():
            assert value.tobytes() == second[name].tobytes(), f"{name} differs by {distance(value, second[name]):.3g}"

    def check_distance(self, techniques):
        """From the program without any."""
        base, ours = self.train(BASE)["tensors"], self.train(techniques)["tensors"]
        alone = [self.train(frozenset([name]))["tensors"] for name in techniques]
        differs = False
        for name, value in base.items():
            largest = float(np.abs(value).max()) if value.dtype.kind == "f" and value.size else 0.0
            if len(techniques) == 1:
                allowed = ALONE[min(techniques)] * largest
            else:
                bound = max(ALONE[technique] for technique in techniques)
                allowed = 4 * sum(distance(value, other[name]) for other in alone) + bound * largest
            found = distance(value, ours[name])
            differs |= found > 0
            assert found <= allowed, f"{name}: distance {found:.3g}, allowed {allowed:.3g}"
        assert differs, "the numbers are those without any technique"

    def check(self, techniques):
        bits = techniques & set(EXACT)
        if bits:
            self.check_bits(techniques, techniques - bits)
        if techniques - bits:
            self.check_distance(techniques - bits)


def distance(one, other):
    return float(np.sqrt(np.mean(np.square(one.astype("f8") - other.astype("f8"))))) if one.size else 0.0


def main():
    failures, pairs = 0, list(map(frozenset, itertools.combinations(TECHNIQUES, 2)))
    with tempfile.TemporaryDirectory() as folder:
        matrix = Matrix(pathlib.Path(sys.argv[1]), pathlib.Path(folder))
        for techniques in (*(frozenset([name]) for name in TECHNIQUES), *pairs, frozenset(TECHNIQUES)):
            title = " × ".join(name for name in TECHNIQUES if name in techniques)
            try:
                matrix.check(techniques)
            except (AssertionError, RuntimeError, subprocess.CalledProcessError) as error:
                failures += 1
                print(f"FAIL {title}: {error}", file=sys.stderr)
            else:
                print(f"{title}: {matrix.train(techniques)['bytes']} bytes of {matrix.train(BASE)['bytes']}")
    print(f"{matrix.model}: {len(pairs)} pairs, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
