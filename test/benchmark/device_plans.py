#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans full-size models for NVIDIA GPUs, from their graphs and the devices' descriptions alone.

    device_plans.py FOLDER --row NAME:BATCH[:OPTION,...]... [--devices h100,h200] [--shares 75%,50%] [--bin BIN]
                    [--json FILE]

FOLDER/index.json lists archives without weights (see meta_models.py). Each row is a model, its batch and options of
memopt-compile. It is planned for each device within all of its memory (`--device-memory`, which counts the driver's share
too), and within shares of the bytes that this takes. Seconds of a step are those that the device's rates predict.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import DOES_NOT_FIT, Failed, execute, tail
from meta_models import unpack

MEMORY = {"a100": 80, "h100": 80, "h200": 140, "b200": 180}  # GiB, less than they have
HEAD = ["model", "batch", "options", "device", "budget GiB", "peak GiB", "step ms", "recomputed", "CPU s"]


def plan(arguments, model, row, device, budget, scratch):
    report = scratch / "report.json"
    done = execute([arguments.compiler, model, "--target=cuda", f"--target-features={device}", "--emit=planned", "--quiet",
                    f"--batch={row['batch']}", *row["options"], f"--optimizer={arguments.optimizer}", f"--report={report}",
                    f"--device-memory={budget}"], timeout=arguments.timeout)
    if done.code not in (0, DOES_NOT_FIT):
        raise Failed(f"{row['model']} for {device} within {budget}: exit {done.code}: {tail(done.errors)}")
    found = {**row, "device": device, "budget": budget, "cpu": done.cpu_seconds, "fits": done.code == 0}
    if found["fits"]:
        written = json.loads(report.read_text())
        found |= {"bytes": written["predicted_peak_bytes"]["device"], "seconds": written["predicted_seconds"],
                  "recomputed": written["recomputed_instructions"]}
    return found


def text_of(row):
    gib = [f"{row['budget'] / 2**30:.1f}", f"{row['bytes'] / 2**30:.2f}" if row["fits"] else "does not fit"]
    rest = [f"{1e3 * row['seconds']:.1f}", str(row["recomputed"])] if row["fits"] else ["", ""]
    return [row["model"], str(row["batch"]), " ".join(row["options"]), row["device"], *gib, *rest, f"{row['cpu']:.1f}"]


def parse(text):
    name, batch, options = (text.split(":", 2) + [""])[:3]
    return {"model": name, "batch": int(batch), "options": [f"--{option}" for option in options.split(",") if option]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--row", action="append", type=parse, required=True, dest="rows")
    parser.add_argument("--devices", default="h100,h200")
    parser.add_argument("--shares", default="75%,50%")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one plan")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.compiler = driver.Tools.find(arguments.bin, 1).compile
    files = {entry["name"]: entry["file"] for entry in json.loads((arguments.folder / "index.json").read_text())}
    shares = [float(share.rstrip("%")) / 100 for share in arguments.shares.split(",") if share]
    found, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for row in arguments.rows:
            model = unpack(arguments.folder / files[row["model"]], pathlib.Path(scratch))
            for device in arguments.devices.split(","):
                budgets = [MEMORY[device] << 30]
                try:
                    while budgets:
                        found.append(plan(arguments, model, row, device, budgets.pop(0), pathlib.Path(scratch)))
                        print(text_of(found[-1]), file=sys.stderr, flush=True)
                        if found[-1]["budget"] == MEMORY[device] << 30 and found[-1]["fits"]:
                            # Of the device's memory, as its own share is counted in it.
                            budgets = [int(share * found[-1]["bytes"]) + (1 << 30) for share in shares]
                except Failed as failure:
                    failures.append(str(failure))
                    print(failure, file=sys.stderr, flush=True)
    driver.report(HEAD, [text_of(row) for row in found], failures, arguments.json, found)


if __name__ == "__main__":
    main()
