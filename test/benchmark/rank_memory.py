#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a rank keeps of full-size models, by number of ranks and stage of ZeRO, beside the formula.

    rank_memory.py FOLDER [--models a,b] [--ranks 1,8,64,1024] [--stages 1,3] [--bin BIN] [--timeout S] [--json FILE]

FOLDER is that of meta_models.py: archives without weights. Nothing is executed; each figure is a plan's, with AdamW in f32.
State is what a rank keeps from step to step, parameters and moments: 4 P + 8 P / N bytes of P parameters on N ranks at the
stages 1 and 2, 12 P / N at stage 3 (Rajbhandari et al. 2020, ZeRO, figure 1, for f32). What it has more than that are rests of
division and the few tensors that are not cut; gradients and activations come on top in the peak.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, execute, tail
from meta_models import unpack

HEAD = ["model", "ranks", "stage", "state bytes of a rank", "formula", "more", "peak bytes of a rank", "s to compile"]


def formula(parameters, ranks, stage):
    return 12 * parameters / ranks if stage == 3 else 4 * parameters + 8 * parameters / ranks


def plan(path, ranks, stage, arguments, scratch):
    report = scratch / "report.json"
    report.unlink(missing_ok=True)
    done = execute([arguments.compiler, path, "--optimizer=adamw", f"--ranks={ranks}", f"--zero-stage={stage if ranks > 1 else 0}",
                    "--emit=planned", "--quiet", f"--report={report}"], timeout=arguments.timeout)
    if done.code:
        raise Failed(f"{path.stem} on {ranks} ranks, stage {stage}: exit {done.code}: {tail(done.errors)}")
    return json.loads(report.read_text()), done.seconds


def row_of(entry, path, ranks, stage, arguments, scratch):
    report, seconds = plan(path, ranks, stage, arguments, scratch)
    kinds = report["peak_bytes_by_kind"]
    state = kinds["parameter"] + kinds["optimizer_state"]
    expected = formula(entry["parameters"], ranks, stage)
    return [entry["name"], str(ranks), str(stage), f"{state:,}", f"{expected:,.0f}", f"{100 * (state / expected - 1):.2f} %",
            f"{report['predicted_peak_bytes']['device']:,}", f"{seconds:.1f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--models", help="default: all of the folder")
    parser.add_argument("--ranks", default="1,8,64,1024")
    parser.add_argument("--stages", default="1,3")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one command")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.compiler = driver.Tools.find(arguments.bin, 2).compile
    entries = {entry["name"]: entry for entry in json.loads((arguments.folder / "index.json").read_text())}
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in arguments.models.split(",") if arguments.models else entries:
            path = unpack(arguments.folder / entries[name]["file"], scratch)
            for ranks in map(int, arguments.ranks.split(",")):
                for stage in map(int, arguments.stages.split(",")) if ranks > 1 else (1,):
                    try:
                        rows.append(row_of(entries[name], path, ranks, stage, arguments, scratch))
                    except Failed as failure:
                        failures.append(str(failure))
                        continue
                    print(rows[-1], file=sys.stderr, flush=True)
    driver.report(HEAD, rows, failures, arguments.json)


if __name__ == "__main__":
    main()
