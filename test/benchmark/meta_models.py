#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans full-size models from their graphs alone and compares peaks and recomputation.

    meta_models.py FOLDER [--models a,b] [--points 12] [--bin BIN] [--blocks NAME=GLOB,...]... [--json FILE]

FOLDER/index.json lists archives without weights: `name`, `file` (.pt2 or .pt2.gz) and, where known, the largest sum of
live bytes in a step of eager PyTorch, `eager_peak_bytes`. Nothing is executed. Each model is planned

  memopt     without a budget, then as a frontier of `--points` budgets down to the smallest
  blocks     by hand, keeping the inputs of each block and recomputing inside: `--activation-checkpointing=BLOCKS`
  segments   by hand, Chen et al.'s sqrt(n): n equal pieces of the forward pass, for several n near the square root of
             the graph's nodes; of these the one with the lowest peak is shown

and all are priced by the same cost model. Overhead is against memopt without a budget. For plans by hand there is
also the overhead of memopt's own plan for as many bytes. Blocks are the outermost modules whose name ends
in a number, that have modules inside and that have a sibling like them (`net.layer1.0`, `net.layer1.1`, ...); --blocks
names others. Seconds are those of the whole command: import, fusion, search, layout.
"""
import argparse
import gzip
import json
import math
import pathlib
import shutil
import sys
import tempfile
import zipfile

import memopt_driver as driver
from memopt_driver import Failed, execute, percent, tail

HEAD = ["model", "plan", "peak GiB", "of eager", "overhead %", "memopt there %", "recomputed", "s"]


class DoesNotFit(Failed):
    """No plan within the bytes that were asked for."""


def module_paths(model):
    """All modules that the graph's nodes lie in."""
    with zipfile.ZipFile(model) as archive:
        name = next(name for name in archive.namelist() if name.endswith("models/model.json"))
        nodes = json.loads(archive.read(name))["graph_module"]["graph"]["nodes"]
    stacks = (node["metadata"].get("nn_module_stack", "") for node in nodes)
    return {item.split(",")[1] for stack in stacks for item in stack.split(";") if item.count(",") >= 2}


def find_blocks(paths):
    parents = {path[:i] for path in paths for i, letter in enumerate(path) if letter == "."}

    def is_block(path):
        parent, _, number = path.rpartition(".")
        alike = [p for p in parents if p.rpartition(".")[0] == parent and p.rpartition(".")[2].isdigit()]
        return number.isdigit() and path in parents and len(alike) >= 2

    blocks = [path for path in sorted(parents) if is_block(path)]
    return [path for path in blocks if not any(path.startswith(other + ".") for other in blocks)]


class Model:
    def __init__(self, entry, path, arguments, scratch):
        self.name, self.path, self.eager = entry["name"], path, entry.get("eager_peak_bytes")
        self.nodes = entry["graph"]["graph_nodes"]
        self.arguments, self.scratch = arguments, scratch
        self.rows = []

    def compile(self, *options):
        done = execute([self.arguments.compiler, self.path, f"--optimizer={self.arguments.optimizer}", *options],
                       timeout=self.arguments.timeout)
        if done.code:
            kind = DoesNotFit if done.code == driver.DOES_NOT_FIT else Failed
            raise kind(f"{self.name} {' '.join(options)}: exit {done.code}: {tail(done.errors)}")
        return done.seconds

    def plan(self, *options):
        report = self.scratch / "report.json"
        seconds = self.compile("--emit=planned", f"--report={report}", *options)
        facts = json.loads(report.read_text())
        return {"bytes": facts["predicted_peak_bytes"]["device"], "seconds": facts["predicted_seconds"],
                "recomputed": facts["recomputed_instructions"], "wall": seconds}

    def frontier(self, points):
        out = self.scratch / "frontier"
        wall = self.compile(f"--frontier={points}", f"--frontier-output={out}")
        return json.loads(out.with_suffix(".json").read_text())["points"], wall

    def add(self, what, plan, there=None, wall=None):
        row = {"model": self.name, "plan": what, "bytes": plan["bytes"], "eager": self.eager,
               "overhead": plan["seconds"] / self.free["seconds"] - 1, "there": there,
               "recomputed": plan["recomputed"], "wall": wall}
        self.rows.append(row)
        print(text_of(row), file=sys.stderr, flush=True)

    def overhead_within(self, budget):
        """Of memopt's own plan for `budget` bytes; infinite where it finds none."""
        try:
            return self.plan(f"--device-memory={budget}")["seconds"] / self.free["seconds"] - 1
        except DoesNotFit:
            return math.inf

    def by_hand(self):
        blocks = self.arguments.blocks.get(self.name) or find_blocks(module_paths(self.path))
        if blocks:
            plan = self.plan("--activation-checkpointing=" + ",".join(blocks))
            yield f"{len(blocks)} blocks by hand", plan
        root = math.sqrt(self.nodes)
        counts = sorted({max(2, round(root * factor)) for factor in self.arguments.segments})
        plans = [(count, self.plan(f"--activation-checkpointing=segments:{count}")) for count in counts]
        if plans:
            count, plan = min(plans, key=lambda item: item[1]["bytes"])
            yield f"{count} segments by hand", plan

    def run(self):
        self.free = self.plan()
        self.add("memopt, no budget", self.free, wall=self.free["wall"])
        points, wall = self.frontier(self.arguments.points)
        shown = [point for point in points if point["overhead"] > 0]
        for index, point in enumerate(reversed(shown)):
            self.add("memopt, budget", point, wall=wall if index + 1 == len(shown) else None)
        for what, plan in self.by_hand():
            self.add(what, plan, self.overhead_within(plan["bytes"]), plan["wall"])


def text_of(row):
    gib, there = 1 << 30, row["there"]
    return [row["model"], row["plan"], f"{row['bytes'] / gib:.3f}",
            f"{row['bytes'] / row['eager']:.3f}" if row["eager"] else "-", percent(row["overhead"]),
            "" if there is None else "no plan" if math.isinf(there) else percent(there), str(row["recomputed"]),
            "" if row["wall"] is None else f"{row['wall']:.1f}"]


def unpack(path, scratch):
    if path.suffix != ".gz":
        return path
    plain = scratch / path.stem
    with gzip.open(path) as packed, open(plain, "wb") as out:
        shutil.copyfileobj(packed, out)
    return plain


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--models", help="names, separated by commas; default: all")
    parser.add_argument("--points", type=int, default=12)
    parser.add_argument("--segments", default="0.5,1,2", help="factors of the square root of the number of nodes")
    parser.add_argument("--blocks", action="append", default=[], metavar="NAME=GLOB,...")
    parser.add_argument("--optimizer", default="adamw", help="eager peaks in index.json are of AdamW")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one command")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.compiler = driver.Tools.find(arguments.bin, 2).compile
    arguments.segments = [float(factor) for factor in arguments.segments.split(",") if factor]
    arguments.blocks = {name: globs.split(",") for name, _, globs in (item.partition("=") for item in arguments.blocks)}
    entries = json.loads((arguments.folder / "index.json").read_text())
    if arguments.models:
        wanted = arguments.models.split(",")
        entries = [entry for name in wanted for entry in entries if entry["name"] == name]
        if len(entries) != len(wanted):
            parser.error(f"{arguments.folder / 'index.json'} does not have all of {arguments.models}")
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for entry in entries:
            model = Model(entry, unpack(arguments.folder / entry["file"], pathlib.Path(scratch)), arguments,
                          pathlib.Path(scratch))
            try:
                model.run()
            except Failed as failure:
                failures.append(str(failure))
            rows += model.rows
    driver.report(HEAD, [text_of(row) for row in rows], failures, arguments.json, rows)


if __name__ == "__main__":
    main()
