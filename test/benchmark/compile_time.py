#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures how long packages of full-size models take to compile, by stage.

    compile_time.py FOLDER [--models a,b] [--budget 75%] [--budget-of NAME=BYTES]... [--bin BIN] [--json FILE]

FOLDER/index.json lists archives without weights (see meta_models.py). Each is compiled into a package twice: without a
budget, and within a share of the bytes that this takes, or within `--budget-of` that model. Seconds are those of the
processor, of all threads together; on a busy machine wall time says little. The stages are those of `--time-report`.
"""
import argparse
import json
import pathlib
import re
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, execute, tail
from meta_models import unpack

STAGES = ["import", "graph", "joint", "kernels", "schedule", "plan", "code"]
HEAD = ["model", "instructions", "budget MiB", "peak MiB", "predicted s", "CPU s", "wall s", *STAGES]


def stages_of(report):
    """CPU seconds of each stage in the text of --time-report, whose columns are user, system, both and wall."""
    rows = re.findall(r"^((?:\s+[\d.]+ \(\s*[\d.]+%\))+)\s+(\w+):", report, re.MULTILINE)
    return {name: float(re.findall(r"([\d.]+) \(", columns)[2]) for columns, name in rows}


def measure(arguments, model, package, budget):
    command = [arguments.compiler, model, "-o", package, f"--optimizer={arguments.optimizer}", "--time-report",
               f"--threads={arguments.threads}", f"--run-threads={arguments.threads}"]
    done = execute(command + ([f"--device-memory={budget}"] if budget else []), timeout=arguments.timeout)
    if done.code:
        raise Failed(f"{model} within {budget}: exit {done.code}: {tail(done.errors)}")
    written = driver.Package(package, budget, done.seconds)
    return {"budget": budget, "bytes": written.arena(), "predicted": written.predicted_seconds(),
            "instructions": len(written.manifest()["instructions"]), "cpu": done.cpu_seconds, "wall": done.seconds,
            "stages": stages_of(done.output + done.errors)}


def text_of(row):
    return [row["model"], str(row["instructions"]), driver.mib(row["budget"]), driver.mib(row["bytes"]),
            f"{row['predicted']:.3f}", f"{row['cpu']:.1f}", f"{row['wall']:.1f}",
            *(f"{row['stages'].get(stage, 0):.1f}" for stage in STAGES)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--models", help="names, separated by commas; default: all")
    parser.add_argument("--budget", default="75%", help="of the bytes without a budget")
    parser.add_argument("--budget-of", action="append", default=[], metavar="NAME=BYTES")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one command")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.compiler = driver.Tools.find(arguments.bin, arguments.threads).compile
    share = float(arguments.budget.rstrip("%")) / 100
    budgets = {name: int(size) for name, _, size in (item.partition("=") for item in arguments.budget_of)}
    entries = json.loads((arguments.folder / "index.json").read_text())
    wanted = arguments.models.split(",") if arguments.models else [entry["name"] for entry in entries]
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for entry in sorted((entry for entry in entries if entry["name"] in wanted),
                            key=lambda entry: wanted.index(entry["name"])):
            model = unpack(arguments.folder / entry["file"], pathlib.Path(scratch))
            package = pathlib.Path(scratch) / "package"
            try:
                for is_free in (True, False):
                    budget = None if is_free else budgets.get(entry["name"], int(share * rows[-1]["bytes"]))
                    rows.append({"model": entry["name"], **measure(arguments, model, package, budget)})
                    print(text_of(rows[-1]), file=sys.stderr, flush=True)
            except Failed as failure:
                failures.append(str(failure))
    driver.report(HEAD, [text_of(row) for row in rows], failures, arguments.json, rows)


if __name__ == "__main__":
    main()
