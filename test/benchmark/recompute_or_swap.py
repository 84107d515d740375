#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Full-size training steps within a budget: by recomputation alone, by swapping alone, and by both.

    recompute_or_swap.py FOLDER [--models a,b] [--budgets 50,30] [--links 1,4] [--bin BIN] [--timeout S] [--json FILE]

FOLDER is that of meta_models.py: archives without weights. Nothing is executed. memopt-plan solves each step's own planning
problem, whose values may also be stored on the host and fetched again, over a link for each direction. Budgets are percents of
the peak in the given order. A link of 4 takes four times as long as the step computes to move the bytes of that peak once:
so links are fast or slow for a step, whatever computes it. Overheads are what the plan takes longer than computing everything
once, in percent; `-` is a budget that was not met. The exit code is 1 where both together are worse than one of them.
"""
import argparse
import json
import pathlib
import re
import tempfile

import memopt_driver as driver
from make_transfer_instances import with_swaps
from memopt_driver import Failed, execute, tail
from meta_models import unpack

HEAD = ["model", "budget %", "link", "recompute + %", "swap + %", "both + %", "recomputed, swapped", "s, both"]


class Problem:
    """The planning problem of a step, as the compiler states it."""

    def __init__(self, path, tools, arguments, scratch):
        self.tools, self.arguments, self.scratch = tools, arguments, scratch
        kernels, file = scratch / "kernels.mlir", scratch / "problem.json"
        kernels.write_text(self.execute([tools.compile, path, "--optimizer=adamw", "--emit=kernels", "--quiet"]).output)
        self.execute([tools.compile.with_name("memopt-opt"), kernels, "-memopt-schedule", f"-memopt-rematerialize=problem={file}", "-o",
                      "/dev/null"])
        self.problem = json.loads(file.read_text())
        self.cost = sum(op["cost"] for op in self.problem["ops"])

    def execute(self, command):
        done = execute(command, timeout=self.arguments.timeout)
        if done.code not in (0, driver.DOES_NOT_FIT):
            raise Failed(f"{pathlib.Path(command[0]).name} ends with {done.code}: {tail(done.errors)}")
        return done

    def plan(self, problem, budget, *options):
        """Cost, or None where the budget is not met; and the rest of what is said."""
        file = self.scratch / "asked.json"
        file.write_text(json.dumps(problem))
        done = self.execute([self.tools.compile.with_name("memopt-plan"), "remat", file, f"--budget={budget}%", *options])
        return (int(re.search(r"^cost (\d+)", done.output, re.M)[1]) if done.code == 0 else None), done

    def peak(self):
        """Of the given order, of which a plan says what part it is."""
        done = self.plan(self.problem, 100)[1]
        found = re.search(r"^peak (\d+) bytes \(([\d.]+)%", done.output, re.M)
        return int(found[1]) / float(found[2]) * 100


def more(cost, base):
    return "-" if cost is None else f"{100 * (cost / base - 1):.2f}"


def rows_of(name, problem, budgets, links, failures):
    peak = problem.peak()
    for budget in budgets:
        alone = problem.plan(problem.problem, budget)[0]
        for link in links:
            swaps = with_swaps(problem.problem, rate=max(1e-9, peak / (link * problem.cost)), latency=10000)
            swapped = problem.plan(swaps, budget, "--no-recompute")[0]
            both, done = problem.plan(swaps, budget)
            best = min((cost for cost in (alone, swapped) if cost is not None), default=None)
            if best is not None and (both is None or both > best):
                failures.append(f"{name} at {budget} %, link {link}: both {both}, recomputation {alone}, swapping {swapped}")
            counts = re.search(r"recomputed (\d+), fetched \d+, swapped (\d+)", done.output)
            yield [name, str(budget), f"{link:g}", *(more(cost, problem.cost) for cost in (alone, swapped, both)),
                   f"{counts[1]}, {counts[2]}" if counts else "-", f"{done.seconds:.0f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", default="resnet50,vit_large,unet,gpt2_124m,gpt2_1p5b")
    parser.add_argument("--budgets", default="50,30")
    parser.add_argument("--links", default="1,4")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one command")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    tools = driver.Tools.find(arguments.bin, 1)
    entries = {entry["name"]: entry for entry in json.loads((arguments.folder / "index.json").read_text())}
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in arguments.models.split(","):
            try:
                problem = Problem(unpack(arguments.folder / entries[name]["file"], scratch), tools, arguments, scratch)
                for row in rows_of(name, problem, [int(budget) for budget in arguments.budgets.split(",")],
                                   [float(link) for link in arguments.links.split(",")], failures):
                    rows.append(row)
                    driver.show_progress(row)
            except Failed as failure:
                failures.append(f"{name}: {failure}")
    driver.report(HEAD, rows, failures, arguments.json)


main()
