#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds the cost model's predictions against measured steps, instruction by instruction.

    cost_model.py FOLDER... [--bin BIN] [--calibrate | --profile FILE.json] [--isa native|avx2|avx512] [--threads N] [--steps N]
        [--worst 3]

A FOLDER has model.pt2 and inputs.safetensors (step0.INPUT, ...). Each model is compiled without a budget, run with
a timeline, and every instruction's time (the median over the steps but the first) compared with what was predicted.
--calibrate measures the machine first, which takes half a minute; without it and --profile the shipped profile
counts. One row for each model: predicted and measured milliseconds of a step, Spearman's rank correlation of the
instructions, and the median of |predicted / measured - 1|. One row for each kind in it follows, with the worst
instructions named by what they cost the prediction. Needs the standard library only.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, milliseconds


def ranks(values):
    """From 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result, first = [0.0] * len(values), 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for position in range(first, last + 1):
            result[order[position]] = (first + last) / 2 + 1
        first = last + 1
    return result


def correlation(a, b):
    """Spearman's: Pearson's of the ranks."""
    a, b = ranks(a), ranks(b)
    mean_a, mean_b = statistics.fmean(a), statistics.fmean(b)
    product = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b))
    scale = (sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)) ** 0.5
    return product / scale if scale else 1.0


def read_timeline(path, instructions):
    """Seconds of each instruction: the median of all steps but the first."""
    events = [event["dur"] * 1e-6 for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    if not events or len(events) % instructions:
        raise Failed(f"{path}: {len(events)} events, expected a multiple of {instructions}")
    steps = [events[at:at + instructions] for at in range(0, len(events), instructions)]
    steps = steps[1:] or steps
    return [statistics.median(times) for times in zip(*steps)]


class Comparison:
    """Predicted and measured seconds of some instructions."""

    def __init__(self, rows):
        self.rows = [(name, predicted, max(measured, 1e-9)) for name, predicted, measured in rows]
        self.predicted = sum(row[1] for row in rows)
        self.measured = sum(row[2] for row in rows)

    def cells(self, worst=0):
        error = statistics.median(abs(predicted / measured - 1) for _, predicted, measured in self.rows)
        rank = correlation([row[1] for row in self.rows], [row[2] for row in self.rows])
        culprits = sorted(self.rows, key=lambda row: -abs(row[1] - row[2]))[:worst]
        return [str(len(self.rows)), milliseconds(self.predicted), milliseconds(self.measured),
                f"{self.predicted / self.measured:.2f}" if self.measured else "-", f"{rank:.2f}", f"{100 * error:.0f}",
                ", ".join(f"{name} {predicted * 1e6:.0f}/{measured * 1e6:.0f}" for name, predicted, measured in culprits)]


def compare(tools, folder, options, steps, worst):
    """The rows of one model."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        package = tools.build(folder / "model.pt2", scratch / "model.memopt", options)
        trace = scratch / "trace.json"
        tools.train(package, [f"--data={folder / 'inputs.safetensors'}", f"--steps={steps}", f"--trace={trace}"],
                    scratch / "report.json")
        instructions = package.manifest()["instructions"]
        measured = read_timeline(trace, len(instructions))
    rows = [(f"{entry['name']} ({entry['module']})", entry["predicted_seconds"], seconds)
            for entry, seconds in zip(instructions, measured)]
    kinds = {}
    for entry, row in zip(instructions, rows):
        kinds.setdefault(entry["name"].rsplit(".", 1)[0], []).append(row)
    table = [[folder.name, "**all**", *Comparison(rows).cells()]]
    for kind, part in sorted(kinds.items(), key=lambda item: -sum(row[2] for row in item[1])):
        table.append([folder.name, kind, *Comparison(part).cells(worst)])
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=21)
    parser.add_argument("--worst", type=int, default=3)
    parser.add_argument("--profile", type=pathlib.Path)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--isa", choices=driver.ISAS, default="native", help="instructions that memopt is held to")
    arguments = parser.parse_args()
    held = driver.hold_to(arguments.isa)
    with tempfile.TemporaryDirectory() as scratch:
        tools = driver.Tools.find(arguments.bin, arguments.threads)
        profile = arguments.profile
        if arguments.calibrate:
            profile = pathlib.Path(scratch) / "profile.json"
            done = driver.execute([tools.compile, f"--calibrate={profile}", f"--run-threads={arguments.threads}", *held],
                                  arguments.threads)
            if done.code:
                raise Failed(f"--calibrate ends with {done.code}: {driver.tail(done.errors)}")
            print(done.output)
        options = held + ([f"--machine-profile={profile}"] if profile else [])
        table = []
        for folder in arguments.folders:
            table += compare(tools, folder, options, arguments.steps, arguments.worst)
    print(driver.markdown(["model", "kind", "instructions", "predicted ms", "measured ms", "ratio", "rank correlation",
                           "error %", "worst: predicted/measured us"], table))


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"cost_model.py: {error}")
