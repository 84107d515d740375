#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far are steps from what the machine could do, by kind of instruction.

    limits.py FOLDER... --profile FILE.json [--bin BIN] [--option OPTION] [--isa native|avx2|avx512] [--threads N]
        [--steps N] [--worst 3]

A FOLDER has model.pt2 and inputs.safetensors (step0.INPUT, ...), as pytorch_side_by_side.py leaves them. Each model is
compiled without a budget and run with a timeline. The limit of an instruction is what its FLOPs take at the profile's
rate of matrix products, or what its bytes (operands and results, each once) take at the profile's bandwidth of memory,
whichever is longer. `--calibrate` of memopt-compile writes the profile; with --isa=avx2 it should be one of a machine, or
of a calibration, that is held to AVX2 as well.

One row for each kind of instruction: how many, their seconds (the median over the steps but the first), those of their
limits, the part of the step's time that they spend beyond, and the instructions that spend most. Values in caches move
faster than the limit says: small models can be below it, and so can convolutions in tiles, which multiply less than their
FLOPs say. Needs the standard library only.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import memopt_driver as driver
from cost_model import read_timeline
from memopt_driver import Failed, milliseconds

HEAD = ["model", "kind", "instructions", "ms", "limit ms", "of limit", "beyond, % of the step",
        "most beyond: ms / limit"]


def limit_of(entry, profile):
    return max(entry["flops"] / profile["matmul_operations_per_second"],
               entry["bytes_moved"] / profile["memory_bytes_per_second"])


def row(model, kind, part, step, worst=0):
    """Of `part`, a list of (entry, seconds, limit)."""
    seconds, limit = sum(entry[1] for entry in part), sum(entry[2] for entry in part)
    beyond = sorted(part, key=lambda entry: entry[2] - entry[1])[:worst]
    return [model, kind, str(len(part)), milliseconds(seconds), milliseconds(limit),
            f"{seconds / limit:.2f}" if limit else "-", f"{100 * (seconds - limit) / step:.1f}",
            ", ".join(f"{entry['name']} ({entry['module']}) {milliseconds(took)} / {milliseconds(least)}"
                      for entry, took, least in beyond)]


def measure(tools, folder, profile, options):
    """The rows of one model."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        package = tools.build(folder / "model.pt2", scratch / "model.memopt",
                              [f"--machine-profile={options.profile}", *options.option])
        trace = scratch / "trace.json"
        tools.train(package, [f"--data={folder / 'inputs.safetensors'}", "--shuffle=off", f"--steps={options.steps}",
                              f"--trace={trace}"], scratch / "report.json")
        instructions = package.manifest()["instructions"]
        measured = read_timeline(trace, len(instructions))
    parts = [(entry, seconds, limit_of(entry, profile)) for entry, seconds in zip(instructions, measured)]
    step, kinds = sum(measured), {}
    for part in parts:
        kinds.setdefault(part[0]["name"].rsplit(".", 1)[0], []).append(part)
    table = [row(folder.name, "**all**", parts, step)]
    for kind, part in sorted(kinds.items(), key=lambda item: -sum(entry[1] for entry in item[1])):
        table.append(row(folder.name, kind, part, step, options.worst))
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--profile", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--option", action="append", default=["--optimizer=adamw"], help="for memopt-compile")
    parser.add_argument("--isa", choices=driver.ISAS, default="native", help="instructions that memopt is held to")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--worst", type=int, default=3)
    options = parser.parse_args()
    options.option += driver.hold_to(options.isa)
    tools, profile = driver.Tools.find(options.bin, options.threads), json.loads(options.profile.read_text())["rates"]
    table = [line for folder in options.folders for line in measure(tools, folder, profile, options)]
    print(driver.markdown(HEAD, table))


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"limits.py: {error}")
