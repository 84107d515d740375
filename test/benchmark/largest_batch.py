#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The largest batch of full-size models within a budget, with each technique alone and with all of them.

    largest_batch.py FOLDER [--models a,b] [--techniques a,b] [--budgets 16,24,80] [--resolution 0.02] [--bin BIN]
                     [--timeout S] [--json FILE]

FOLDER is that of meta_models.py: archives without weights. Nothing is executed; each figure is a plan's. A batch fits where
the plan's bytes are within the budget, for recomputation those of the smallest plan that it finds. Bytes grow with the
batch nearly in proportion, so the search goes where a line through the last two plans says, and ends between a batch that
fits and one that does not, at most `--resolution` of it (or one sample) larger. Milliseconds a sample are predicted for the
batch that fits, with recomputation for the plan within the budget.
Accumulation is not in the table: micro-batches put no limit on the batch, once one sample fits.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, execute, tail
from meta_models import unpack

TECHNIQUES = {
    "none": [],
    "bf16": ["--precision=bf16"],
    "8-bit state": ["--optim-bits=8"],
    "activations in bf16": ["--activation-dtype=bf16"],
    "state on the host": ["--offload-optimizer=cpu"],
    "recomputation": [],
    "all": ["--precision=bf16", "--optim-bits=8", "--activation-dtype=bf16", "--offload-optimizer=cpu"],
    "all, in tiles": ["--precision=bf16", "--optim-bits=8", "--activation-dtype=bf16", "--offload-optimizer=cpu", "--tile=all:1024"],
}
RECOMPUTING = ("recomputation", "all", "all, in tiles")
LARGEST = 1 << 16


class Search:
    """The batches of one model with one technique."""

    def __init__(self, path, batch, technique, arguments, scratch):
        self.path, self.exported, self.technique = path, batch, technique
        self.arguments, self.scratch = arguments, scratch
        self.known, self.seconds = {}, {}  # of each batch that was planned

    def compile(self, batch, *options):
        report = self.scratch / "report.json"
        report.unlink(missing_ok=True)
        done = execute([self.arguments.compiler, self.path, "--optimizer=adamw", f"--batch={batch}", "--emit=planned", "--quiet",
                        f"--report={report}", *TECHNIQUES[self.technique], *options], timeout=self.arguments.timeout)
        if done.code not in (0, driver.DOES_NOT_FIT):
            raise Failed(f"{self.path.stem} {self.technique} batch {batch}: exit {done.code}: {tail(done.errors)}")
        return json.loads(report.read_text())

    def bytes_of(self, batch):
        if batch not in self.known:
            if self.technique in RECOMPUTING:
                self.known[batch] = self.compile(batch, "--device-memory=1")["smallest_budget_bytes"]["device"]
            else:
                plan = self.compile(batch)
                self.known[batch], self.seconds[batch] = plan["predicted_peak_bytes"]["device"], plan["predicted_seconds"]
            print(f"{self.path.stem} {self.technique} batch {batch}: {self.known[batch]} bytes", file=sys.stderr, flush=True)
        return self.known[batch]

    def guess(self, budget):
        """By the line through the two known batches that are nearest to the budget."""
        nearest = sorted(self.known, key=lambda batch: abs(self.known[batch] - budget))[:2]
        (a, x), (b, y) = ((batch, self.known[batch]) for batch in nearest)
        return int((budget - x) * (b - a) / (y - x) + a) if x != y else 2 * max(a, b)

    def find(self, budget):
        for batch in (self.exported, 2 * self.exported):
            self.bytes_of(batch)
        while True:
            fits = max((batch for batch, size in self.known.items() if size <= budget), default=0)
            misses = min((batch for batch, size in self.known.items() if size > budget), default=LARGEST)
            step = max(1, int(self.arguments.resolution * fits))
            if misses - fits <= step:
                return fits
            guess = self.guess(budget)
            # Just beyond what fits, one more plan may end the search.
            guess = guess if fits + step / 2 < guess else fits + step
            self.bytes_of(min(max(guess, fits + 1), misses - 1))

    def get_seconds(self, batch, budget):
        if self.technique in RECOMPUTING:
            return self.compile(batch, f"--device-memory={budget}")["predicted_seconds"] / batch
        return self.seconds[batch] / batch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--models", default="gpt2_124m,gpt2_1p5b,resnet50,vit_large,llama_8b")
    parser.add_argument("--techniques", default=",".join(TECHNIQUES))
    parser.add_argument("--budgets", default="16,24,80", help="GiB")
    parser.add_argument("--resolution", type=float, default=0.02, help="part of the batch; 0: to the last sample")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one command")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.compiler = driver.Tools.find(arguments.bin, 2).compile
    budgets = [int(number) << 30 for number in arguments.budgets.split(",")]
    entries = {entry["name"]: entry for entry in json.loads((arguments.folder / "index.json").read_text())}
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in arguments.models.split(","):
            path = unpack(arguments.folder / entries[name]["file"], scratch)
            for technique in arguments.techniques.split(","):
                search = Search(path, entries[name]["batch"], technique, arguments, scratch)
                row = {"model": name, "technique": technique, "largest": {}}
                try:
                    for budget in budgets:
                        batch = search.find(budget)
                        seconds = search.get_seconds(batch, budget) if batch else None
                        row["largest"][budget >> 30] = {"batch": batch, "seconds": seconds}
                except Failed as failure:
                    failures.append(str(failure))
                    continue
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
    driver.report(["model", "technique", *(f"{budget >> 30} GiB (ms a sample)" for budget in budgets)],
                  [[row["model"], row["technique"],
                    *(f"{cell['batch']} ({cell['seconds'] * 1e3:.1f})" if cell["batch"] else "none"
                      for cell in row["largest"].values())] for row in rows], failures, arguments.json, rows)


if __name__ == "__main__":
    main()
