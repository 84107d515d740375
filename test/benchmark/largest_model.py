#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The largest of a folder's models that trains on one device, a host and a disk, by where its state lies.

    largest_model.py FOLDER --models a,b [--states WORD] [--device 80GiB] [--host 128GiB] [--disk 1000000000000] [--bin BIN] [--timeout S]
                     [--json FILE]

FOLDER is that of meta_models.py: archives without weights, with `parameters` in index.json. Nothing is executed. For each way
to place state the models are tried from the largest whose state alone has room, with AdamW, and the first that is planned
within all three budgets is shown. The plan without a budget of the device is taken where it fits, for it is the fastest.
Seconds are the processor's, of the command that made the plan. `next` is the model after that and what its state alone would take.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, execute, tail
from meta_models import unpack

HEAD = ["state", "model", "billion parameters", "device GB", "host GB", "disk GB", "CPU s to plan", "next"]
UNITS = {"GiB": 1 << 30, "GB": 10 ** 9}
NARROW = ["--precision=bf16", "--optim-bits=16"]
# Where all of it lies, in bytes a parameter: itself and two moments.
TIERS = {"on the device, f32": ("device", 12, []), "on the device, bf16": ("device", 8, NARROW),
         "on the host, f32": ("host", 12, ["--offload-optimizer=cpu"]),
         "on the host, bf16": ("host", 8, ["--offload-optimizer=cpu", *NARROW]),
         "on disk, f32": ("disk", 12, ["--offload-optimizer=nvme", "--offload-param=nvme"]),
         "on disk, bf16": ("disk", 8, ["--offload-optimizer=nvme", "--offload-param=nvme", *NARROW])}


def parse_bytes(text):
    for unit, size in UNITS.items():
        if text.endswith(unit):
            return int(text[:-len(unit)]) * size
    return int(text)


class Search:
    def __init__(self, arguments, scratch):
        self.arguments, self.scratch = arguments, scratch
        self.compiler = driver.Tools.find(arguments.bin, 2).compile
        self.room = {space: parse_bytes(getattr(arguments, space)) for space in ("device", "host", "disk")}

    def plan(self, path, space, options):
        """Bytes by space and seconds; None where it does not fit."""
        report = self.scratch / "report.json"
        command = [self.compiler, path, "--optimizer=adamw", "--emit=planned", "--quiet", f"--report={report}", *options]
        if space != "device":
            command.append(f"--host-memory={self.room['host']}")
        if space == "disk":
            command.append(f"--disk={self.scratch}:{self.room['disk']}")
        for budget in ([], [f"--device-memory={self.room['device']}"]):
            done = execute([*command, *budget], timeout=self.arguments.timeout)
            if done.code == driver.DOES_NOT_FIT:
                return None
            if done.code:
                raise Failed(f"{path.stem}: exit {done.code}: {tail(done.errors)}")
            used = json.loads(report.read_text())["predicted_peak_bytes"]
            if all(used[name] <= self.room[name] for name in self.room):
                return used, done.cpu_seconds
        return None

    def row(self, tier, models):
        space, each, options = TIERS[tier]
        following = "-"
        for entry in sorted(models, key=lambda entry: -entry["parameters"]):
            found = None
            if each * entry["parameters"] <= self.room[space]:
                found = self.plan(unpack(self.arguments.folder / entry["file"], self.scratch), space, options)
            if found:
                used, seconds = found
                return [tier, entry["name"], f"{entry['parameters'] / 1e9:.1f}",
                        *(f"{used[name] / 1e9:.1f}" for name in ("device", "host", "disk")), f"{seconds:.0f}", following]
            following = f"{entry['name']}: {each * entry['parameters'] / 1e9:,.0f} GB"
        return [tier, *["-"] * (len(HEAD) - 2), following]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", required=True)
    parser.add_argument("--states", default="", help="only those with this in their names, such as `disk`")
    parser.add_argument("--device", default="80GiB")
    parser.add_argument("--host", default="128GiB")
    parser.add_argument("--disk", default="1000GB")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one command")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    models = [entry for entry in json.loads((arguments.folder / "index.json").read_text()) if entry["name"] in names]
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        search = Search(arguments, pathlib.Path(scratch))
        for tier in (tier for tier in TIERS if arguments.states in tier):
            try:
                rows.append(search.row(tier, models))
                print(rows[-1], file=sys.stderr, flush=True)
            except Failed as failure:
                failures.append(f"{tier}: {failure}")
    driver.report(HEAD, rows, failures, arguments.json)


main()
