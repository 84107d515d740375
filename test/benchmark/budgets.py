#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains models under byte budgets and holds every run to the unbudgeted one, bit for bit.

    budgets.py FOLDER... [--bin BIN] [--points 6] [--steps 5] [--optimizer sgd] [--json FILE]

A FOLDER has model.pt2 and inputs.safetensors (step0.INPUT, ...), and may have fixture.json with the optimizer's
hyperparameters under its name (`sgd`: lr, momentum, weight_decay; `adamw`: lr, betas, eps, weight_decay). Each
model is compiled without a budget and for `--points` budgets, evenly from the peak of that plan down to the
smallest that the compiler names when it refuses one byte. Every package then trains `--steps` steps under
`--check-memory` from the same weights and data:

  bytes   used = predicted <= budget, and nothing allocated during steps
  bits    losses, gradients of the first step, all tensors of the checkpoint (parameters, running statistics,
          optimizer state) are those of the unbudgeted run

Then it is timed without `--check-memory`: `--rounds` rounds through all budgets, so that noise spreads; a time is
the median of all steps but the first of each round, an overhead the median of the rounds' own ratios to the
unbudgeted plan. Predicted times are the cost model's. One Markdown table is printed; the exit code is 1 when
anything differs.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import traceback

import memopt_driver as driver
from memopt_driver import Failed, median, mib, milliseconds, percent

HEAD = ["model", "budget MiB", "used MiB", "of peak %", "recomputed", "predicted ms", "+ %", "measured ms", "+ %",
        "bytes", "bits"]


def read_tensors(path):
    """Name -> (dtype, shape, bytes) of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], tuple(entry["shape"]),
                   data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def optimizer_options(folder, optimizer):
    """The fixture's hyperparameters as options; PyTorch's defaults where it names none."""
    about = folder / "fixture.json"
    values = json.loads(about.read_text()).get(optimizer, {}) if about.exists() else {}
    options = [f"--optimizer={optimizer}"]
    for key, value in values.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else value
        options.append(f"--{key.replace('_', '-')}={text}")
    return options


class Point:
    """One budget of one model: its package, what it computed, and its times."""

    def __init__(self, package):
        self.package = package
        self.arena = package.arena()
        self.predicted = package.predicted_seconds()
        self.report = None
        self.tensors = {}
        self.rounds = []  # for each round, the seconds of its steps

    def seconds(self):
        return median([second for steps in self.rounds for second in steps]) if self.rounds else None

    def overhead(self, base):
        if not self.rounds:
            return None
        return median([median(mine) / median(theirs) for mine, theirs in zip(self.rounds, base.rounds)]) - 1


class Model:
    def __init__(self, folder, tools, arguments, work):
        self.folder, self.tools, self.arguments, self.work = folder, tools, arguments, work
        self.failures = []
        self.base, self.points = None, []

    def check(self, good, text):
        if not good:
            self.failures.append(text)
        return good

    def compile(self):
        options = optimizer_options(self.folder, self.arguments.optimizer) + self.arguments.option
        model = self.folder / "model.pt2"
        self.base = Point(self.tools.build(model, self.work / "base.memopt", options))
        smallest = self.tools.smallest_budget(model, self.work / "refused.memopt", options)
        budgets = driver.spread(self.base.arena, smallest, self.arguments.points)
        self.check(smallest < self.base.arena, f"no budget below {self.base.arena} bytes, the peak without one")
        for budget in dict.fromkeys(budgets):
            try:
                self.points.append(Point(self.tools.build(model, self.work / f"{budget}.memopt", options, budget)))
            except Failed as failure:
                self.check(False, f"budget {budget}: {failure}")

    def run_options(self, steps):
        return [f"--data={self.folder / 'inputs.safetensors'}", f"--steps={steps}", "--seed=1"]

    def train(self, point):
        out = point.package.path.with_suffix(".out")
        out.mkdir()
        options = self.run_options(self.arguments.steps) + [
            "--check-memory", f"--save={out / 'checkpoint'}", f"--save-gradients={out / 'gradients.safetensors'}"]
        point.report = self.tools.train(point.package, options, out / "report.json")
        files = [out / "gradients.safetensors", *sorted((out / "checkpoint").glob("*.safetensors"))]
        point.tensors = {f"{file.stem} {name}": tensor for file in files for name, tensor in read_tensors(file).items()}

    def same_bytes(self, point):
        """Used = predicted <= budget, in every space, and no allocation."""
        predicted, used = point.report["predicted_peak_bytes"], point.report.get("used_peak_bytes")
        name = f"budget {point.package.budget}"
        good = self.check(used == predicted, f"{name}: predicted {predicted}, used {used}")
        good &= self.check(predicted["device"] == point.arena, f"{name}: predicts {predicted}, arena {point.arena}")
        good &= self.check(point.package.budget is None or point.arena <= point.package.budget,
                           f"{name}: the arena has {point.arena} bytes")
        allocations = point.report["hot_path_allocations"]
        return good & self.check(allocations == 0, f"{name}: {allocations} allocations during steps")

    def same_bits(self, point):
        name = f"budget {point.package.budget}"
        good = self.check(len(point.report["losses"]) == self.arguments.steps, f"{name}: losses {point.report['losses']}")
        good &= self.check(point.report["losses"] == self.base.report["losses"],
                           f"{name}: losses {point.report['losses']}, not {self.base.report['losses']}")
        good &= self.check(point.tensors.keys() == self.base.tensors.keys(), f"{name}: other tensors are saved")
        differing = [key for key, tensor in self.base.tensors.items() if point.tensors.get(key) != tensor]
        return good & self.check(not differing, f"{name}: {len(differing)} tensors differ, such as {differing[:3]}")

    def time(self):
        every = [self.base, *self.points]
        for turn in range(self.arguments.rounds):
            for point in every[turn % len(every):] + every[:turn % len(every)]:
                report = self.tools.train(point.package, self.run_options(self.arguments.timed_steps),
                                          self.work / "timed.json")
                point.rounds.append(report["step_seconds"][1:])

    def rows(self):
        for point in [self.base, *self.points]:
            if point.report is None:
                continue
            base = self.base
            predicted = point.predicted / base.predicted - 1 if point.predicted and base.predicted else None
            yield [self.folder.name, "none" if point is base else mib(point.package.budget),
                   mib(point.report["used_peak_bytes"]["device"]), percent(point.arena / base.arena),
                   str(point.package.recomputed()), milliseconds(point.predicted),
                   percent(predicted), milliseconds(point.seconds()), percent(point.overhead(base)),
                   "equal" if self.same_bytes(point) else "DIFFER", "equal" if self.same_bits(point) else "DIFFER"]

    def measure(self):
        try:
            self.compile()
            for point in [self.base, *self.points]:
                self.train(point)
            if self.arguments.rounds:
                self.time()
        except Failed as failure:
            self.check(False, str(failure))
        return list(self.rows()) if self.base and self.base.report else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, help="model folders")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of the tools; else PATH, else build/develop/bin")
    parser.add_argument("--option", action="append", default=[], help="for memopt-compile, such as a machine profile")
    parser.add_argument("--points", type=int, default=6, help="budgets for each model, both ends among them")
    parser.add_argument("--steps", type=int, default=5, help="steps that are compared")
    parser.add_argument("--timed-steps", type=int, default=15, help="steps of a timed run; the first does not count")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each budget; 0: none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="sgd")
    parser.add_argument("--json", type=pathlib.Path, help="writes the rows there too")
    arguments = parser.parse_args()
    if arguments.points < 2 or arguments.steps < 1 or arguments.timed_steps < 2 or arguments.rounds < 0:
        parser.error("--points and --timed-steps want 2 or more, --steps 1 or more, --rounds 0 or more")
    rows, failures = [], []
    for folder in arguments.folders:
        with tempfile.TemporaryDirectory() as work:
            try:
                model = Model(folder, driver.Tools.find(arguments.bin, arguments.threads), arguments, pathlib.Path(work))
                rows += model.measure()
                failures += [f"{folder.name}: {text}" for text in model.failures]
            except Exception as error:  # a model that breaks the script has not passed
                failures.append(f"{folder.name}: {type(error).__name__}: {error}")
                traceback.print_exc()
        print(f"{folder.name}: done", file=sys.stderr, flush=True)
    driver.report(HEAD, rows, failures, arguments.json)


if __name__ == "__main__":
    main()
