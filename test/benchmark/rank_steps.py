#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a model on ranks of one host in each stage of ZeRO, beside one rank that takes their batches in turn.

    rank_steps.py MODEL.pt2 --data FILE [--ranks 2] [--stages 0,1,2,3] [--bin BIN] [--options "--optimizer=adamw"] [--steps 3]
                  [--json FILE]

Weights are random. Bytes are those that every rank used (`--check-memory`), which must be the predicted ones; losses must be
those of the one rank to the last bit. Seconds of a step are the median of all but the first, of the same run. The exit code is
1 when a run differs.
"""
import argparse
import pathlib
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, median, mib

HEAD = ["ranks", "stage", "MiB on each rank", "s a step", "of one rank's"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--stages", default="0,1,2,3")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--options", default="--optimizer=adamw")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    tools = driver.Tools.find(arguments.bin, arguments.threads)
    runs = [(1, "-", [f"--accumulative-counts={arguments.ranks}"])]
    runs += [(arguments.ranks, stage, [f"--ranks={arguments.ranks}", f"--zero-stage={stage}"]) for stage in arguments.stages.split(",")]
    rows, failures, plain = [], [], None
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for ranks, stage, options in runs:
            try:
                package = tools.build(arguments.model, folder / "model.memopt", [*arguments.options.split(), *options])
                report = tools.train(package, [f"--data={arguments.data}", "--init=random", "--seed=1", f"--steps={arguments.steps}",
                                               "--check-memory", *([f"--ranks={ranks}"] if ranks > 1 else [])], folder / "report.json")
            except Failed as failure:
                failures.append(f"{ranks} ranks, stage {stage}: {failure}")
                continue
            seconds = median(report["step_seconds"][1:])
            plain = plain or (report["losses"], seconds)
            for rank in report.get("per_rank", [report]):
                if rank["used_peak_bytes"] != rank["predicted_peak_bytes"]:
                    failures.append(f"{ranks} ranks, stage {stage}: used {rank['used_peak_bytes']}, predicted {rank['predicted_peak_bytes']}")
            if report["losses"] != plain[0]:
                failures.append(f"{ranks} ranks, stage {stage}: losses {report['losses']}, expected {plain[0]}")
            rows.append([str(ranks), stage, mib(report["used_peak_bytes"]["device"]), f"{seconds:.2f}", f"{seconds / plain[1]:.2f}"])
            print(rows[-1], flush=True)
    driver.report(HEAD, rows, failures, arguments.json)


main()
