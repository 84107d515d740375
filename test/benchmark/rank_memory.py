#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a rank keeps of full-size models, by number of ranks and stage of ZeRO, beside the formula.

    rank_memory.py FOLDER [--models a,b] [--ranks 1,8,64,1024] [--planned MODEL:RANKS:STAGE,...] [--bin BIN] [--json FILE]

FOLDER is that of meta_models.py: archives without weights. Nothing is executed. State is read off the compiled step, where
each variable has the shape of a rank's part: parameters, both moments of AdamW, and the gradients that accumulation keeps,
all in f32. Of P parameters on N ranks that is 16 P bytes at stage 0, 8 P + 8 P / N at 1, 4 P + 12 P / N at 2 and 16 P / N at
3 (Rajbhandari et al. 2020, ZeRO, figure 1, whose 16 bytes are cut elsewhere). A rank has more by what division leaves over and
by the few tensors that are not cut. Cells are MB (10^6 bytes) and what is more than the formula, in percent.

With --planned the planner runs as well, and parameters and moments must lie in the plan's arena with as many bytes; what more
the peak has are gradients, activations and gathered parameters.
"""
import argparse
import json
import math
import pathlib
import re
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, execute, tail
from meta_models import unpack

VARIABLE = re.compile(r'memopt\.variable @(?:"[^"]*"|\S+) : tensor<([^>]*)> role <(\w+)>(.*)')
WHOLE = re.compile(r"shape = \[([\d, ]*)\]")
IN_UNIT = re.compile(r"[{ ]unit = @")  # its bytes are those of a joined variable
BITS = re.compile(r"\d+$")


def elements_and_bytes(shape):
    """Of "4x3xf32"."""
    *sizes, dtype = shape.split("x")
    elements = math.prod(map(int, sizes))
    return elements, elements * ((int(BITS.search(dtype)[0]) + 7) // 8)


class State:
    """Bytes of a rank's variables in a compiled step."""

    def __init__(self, text):
        self.parameters = self.moments = self.trained = self.trained_part = 0
        for shape, role, rest in VARIABLE.findall(text):
            elements, size = elements_and_bytes(shape)
            if IN_UNIT.search(rest):
                elements = size = 0
            if role == "parameter":
                self.parameters += size
                if "trainable" in rest and " joined" not in rest and "{joined" not in rest:
                    whole = WHOLE.search(rest)
                    self.trained += math.prod(map(int, whole[1].split(","))) if whole else elements
            elif role == "optimizer_state":
                self.moments += size
                if 'slot = "exp_avg"' in rest:  # cut as the parameter's update is
                    self.trained_part += elements

    def total(self, stage):
        return self.parameters + self.moments + 4 * (self.trained_part if stage >= 2 else self.trained)


def formula(parameters, ranks, stage):
    whole, part = ((16, 0), (8, 8), (4, 12), (0, 16))[stage]
    return whole * parameters + part * parameters / ranks


class Compiler:
    def __init__(self, tool, timeout):
        self.tool, self.timeout = tool, timeout

    def emit(self, what, path, ranks, stage, *options):
        done = execute([self.tool, path, "--optimizer=adamw", f"--ranks={ranks}", f"--emit={what}", "--quiet", *options,
                        *([f"--zero-stage={stage}"] if ranks > 1 else [])], timeout=self.timeout)
        if done.code:
            raise Failed(f"{path.stem} on {ranks} ranks, stage {stage}: exit {done.code}: {tail(done.errors)}")
        return done.output

    def state(self, path, ranks, stage):
        return State(self.emit("joint", path, ranks, stage))

    def planned_state(self, path, ranks, stage, scratch):
        report = scratch / "report.json"
        self.emit("planned", path, ranks, stage, f"--report={report}")
        facts = json.loads(report.read_text())
        kinds = facts["peak_bytes_by_kind"]
        return kinds["parameter"] + kinds["optimizer_state"], facts["predicted_peak_bytes"]["device"]


def rows_of(name, path, ranks, compiler):
    counts = {}
    for stage in range(4):
        cells = []
        for count in ranks:
            cut = (0, 1, 1, 3)[stage] if count > 1 else 0  # stages 1 and 2 cut the same variables
            key = (count if cut else 1, cut)
            if key not in counts:
                counts[key] = compiler.state(path, *key)
            state = counts[key]
            size, expected = state.total(stage if count > 1 else 0), formula(state.trained, count, stage)
            cells.append(f"{size / 1e6:,.1f} ({100 * (size / expected - 1):+.2f})")
        yield [name, f"{counts[1, 0].trained / 1e6:,.1f}", str(stage), *cells]


def check_plans(wanted, paths, compiler, scratch, failures):
    rows = []
    for model, ranks, stage in (item.split(":") for item in wanted.split(",")):
        state = compiler.state(paths[model], int(ranks), int(stage))
        planned, peak = compiler.planned_state(paths[model], int(ranks), int(stage), scratch)
        expected = state.parameters + state.moments
        if planned != expected:
            failures.append(f"{model} on {ranks} ranks, stage {stage}: the plan holds {planned} bytes of state, its variables "
                            f"{expected}")
        rows.append([model, ranks, stage, f"{expected:,}", f"{planned:,}", f"{peak:,}"])
    print(driver.markdown(["model", "ranks", "stage", "bytes of parameters and moments", "in the plan", "its peak"], rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--models", help="default: all of the folder")
    parser.add_argument("--ranks", default="1,8,64,1024")
    parser.add_argument("--planned", metavar="MODEL:RANKS:STAGE,...")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one command")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    compiler = Compiler(driver.Tools.find(arguments.bin, 2).compile, arguments.timeout)
    entries = {entry["name"]: entry for entry in json.loads((arguments.folder / "index.json").read_text())}
    ranks = [int(count) for count in arguments.ranks.split(",")]
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        names = arguments.models.split(",") if arguments.models else entries
        paths = {name: unpack(arguments.folder / entries[name]["file"], scratch) for name in names}
        for name in names:
            try:
                for row in rows_of(name, paths[name], ranks, compiler):
                    rows.append(row)
                    driver.show_progress(row)
            except Failed as failure:
                failures.append(str(failure))
        if arguments.planned:
            check_plans(arguments.planned, paths, compiler, scratch, failures)
    head = ["model", "million parameters", "stage", *(f"{count} rank{'s' * (count > 1)}" for count in ranks)]
    driver.report(head, rows, failures, arguments.json)


if __name__ == "__main__":
    main()
