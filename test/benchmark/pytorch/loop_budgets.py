#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a recurrent layer's steps take under budgets, beside Revolve's bound.

    loop_budgets.py [--steps 1024] [--rows 16] [--inputs 64] [--width 128] [--budgets 5] [--bin BIN] [--json FILE]

An LSTM over `--steps` steps, whose last output has a loss, is planned for budgets from that of the fastest plan down to
the smallest that the refusal of one byte names; nothing is executed. Forward steps are those of the plan's loops, each
counted as often as it runs. Revolve (Griewank and Walther, ACM TOMS 799, 2000) reverses n steps with s snapshots of the state by

  r n - C(s + r, r - 1) advances, r the least with C(s + r, r) >= n,

and one more run of each step, whose values the backward step then reads. Its snapshots here are what the budget has room for
beside what every plan holds (inputs, parameters with their gradients and optimizer state) and the values of a single step.
It is a bound for plans that keep states alone: with bytes to spare, a plan that keeps all values of some steps runs fewer.
"""
from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import tempfile

import paths  # noqa: F401
import torch
from torch import nn

import memopt_driver as driver
from memopt import export
from token_models import Recurrent

FLOAT = 4  # bytes
GATES = 4
HEAD = ["budget MB", "bytes MB", "predicted ms", "+ %", "forward steps", "by n", "snapshots", "Revolve's steps", "by n", "CPU s"]


def revolve_steps(steps: int, snapshots: int) -> int:
    """Forward steps that reverse `steps` steps with room for `snapshots` states, the first one's among them."""
    repeats = 1
    while math.comb(snapshots + repeats, repeats) < steps:
        repeats += 1
    return repeats * steps - math.comb(snapshots + repeats, repeats - 1) + steps


def held_bytes(model: nn.Module, arguments) -> tuple[int, int]:
    """What every plan holds, and a single state. Of a step: input products, gates, their gradients, and the state's."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    state = 2 * arguments.rows * arguments.width
    values = 3 * GATES * arguments.rows * arguments.width + state
    inputs = arguments.rows * arguments.steps * arguments.inputs
    return FLOAT * (4 * parameters + inputs + values), FLOAT * state


def forward_steps(planned: str) -> int:
    """Loops of the backward pass go in reverse."""
    return sum(int(count) for count, reverse in re.findall(r"memopt\.scan count\((\d+)\)( reverse)?", planned) if not reverse)


def plan(arguments, path, budget):
    report = path.with_suffix(".json")
    options = [f"--device-memory={budget}"] if budget else []
    done = driver.execute([arguments.tools.compile, path, "--optimizer=adamw", "--run-threads=1", "--emit=planned", f"--report={report}",
                           *options])
    if done.code:
        raise driver.Failed(f"{budget} bytes: exit {done.code}: {driver.tail(done.errors)}")
    written = json.loads(report.read_text())
    return {"bytes": written["predicted_peak_bytes"]["device"], "seconds": written["predicted_seconds"],
            "steps": forward_steps(done.output), "cpu": done.cpu_seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("steps", 1024), ("rows", 16), ("inputs", 64), ("width", 128), ("budgets", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.tools = driver.Tools.find(arguments.bin, 1)
    model = Recurrent(nn.LSTM, arguments.inputs, arguments.width, 10)
    batch = {"x": torch.randn(arguments.rows, arguments.steps, arguments.inputs), "label": torch.randint(10, (arguments.rows,))}
    held, state = held_bytes(model, arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.pt2"
        export.save(export.export_program(model, batch, training=True), path)
        fastest = plan(arguments, path, None)
        smallest = arguments.tools.smallest_budget(path, path.with_suffix(".memopt"), ["--optimizer=adamw"])
        for budget in driver.spread(fastest["bytes"], smallest, arguments.budgets):
            found = plan(arguments, path, budget)
            snapshots = min(arguments.steps, (budget - held) // state)
            bound = revolve_steps(arguments.steps, snapshots) if snapshots > 0 else None
            rows.append([f"{budget / 1e6:.2f}", f"{found['bytes'] / 1e6:.2f}", f"{found['seconds'] * 1e3:.1f}",
                         driver.percent(found["seconds"] / fastest["seconds"] - 1), str(found["steps"]),
                         f"{found['steps'] / arguments.steps:.2f}", str(snapshots), str(bound or "-"),
                         f"{bound / arguments.steps:.2f}" if bound else "-", f"{found['cpu']:.1f}"])
    driver.report(HEAD, rows, [], arguments.json)


if __name__ == "__main__":
    main()
