#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does training in less memory end at the same loss?

    same_loss.py --train SOURCE --eval SOURCE [--model MODEL.pt2 --eval-model MODEL.pt2] [--ways "a;b"] [--seeds 3]
                 [--steps 300] [--work FOLDER] [--bin BIN] [--json FILE]

Trains a model in each way with each seed, which draws first values and the order of samples, and evaluates it on other
data. SOURCE is what memopt-run takes as --data, such as bytes:genesis.txt; without --model it is a byte-level language model. `apart` is the distance of a way's mean loss from that of the first way, in standard
deviations of the difference as the seeds of both show them: below 2 or so it is noise. Rates are those that were best
for each optimizer among a few on other seeds; schedule, clipping and number of steps are the same for all.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, execute, mib, tail

MODELS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "export" / "models"
ADAMW = ["--optimizer=adamw", "--lr=2e-3"]
WAYS = {
    "f32, AdamW": ADAMW,
    "bf16": [*ADAMW, "--precision=bf16"],
    "bf16 without master weights": [*ADAMW, "--precision=bf16", "--master-weights=none"],
    "activations in bf16": [*ADAMW, "--activation-dtype=bf16"],
    "activations in int8": [*ADAMW, "--activation-dtype=int8"],
    "activations in fp8": [*ADAMW, "--activation-dtype=fp8"],
    "AdamW in 8 bits": [*ADAMW, "--optim-bits=8"],
    "Lion": ["--optimizer=lion", "--lr=7e-4", "--betas=0.95,0.98"],
    "Adafactor": ["--optimizer=adafactor", "--lr=2e-2"],
}


class Way:
    """One way to train, with all seeds."""

    def __init__(self, name, arguments, work):
        self.name, self.arguments = name, arguments
        self.folder = work / name.replace(" ", "_").replace(",", "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.losses, self.evaluated, self.bytes = [], [], None

    def execute(self, *command):
        done = execute([self.arguments.tools.run, *command, "--quiet"], self.arguments.tools.threads)
        if done.code:
            raise Failed(f"{self.name}: memopt-run ends with {done.code}: {tail(done.errors)}")

    def train(self, seed):
        report, state = self.folder / "report.json", self.folder / "state"
        self.execute(self.arguments.model, "-o", self.folder / "train.memopt", *WAYS[self.name], "--max-grad-norm=1",
                     "--lr-schedule=cosine", "--warmup-steps=20", "--init=random", f"--seed={seed}",
                     f"--steps={self.arguments.steps}", f"--data={self.arguments.train}", "--check-memory",
                     f"--save={state}", f"--report={report}")
        trained = json.loads(report.read_text())
        if trained["used_peak_bytes"] != trained["predicted_peak_bytes"]:
            raise Failed(f"{self.name}: used {trained['used_peak_bytes']}, predicted {trained['predicted_peak_bytes']}")
        self.bytes = trained["used_peak_bytes"]["device"]
        self.losses.append(statistics.mean(trained["losses"][-self.arguments.steps // 10:]))
        self.execute(self.arguments.eval_model, "-o", self.arguments.work / "eval.memopt", "--mode=eval", f"--load={state}",
                     f"--data={self.arguments.eval}", f"--report={report}")
        self.evaluated.append(statistics.mean(json.loads(report.read_text())["losses"]))
        print(f"{self.name} seed {seed}: {self.losses[-1]:.4f} {self.evaluated[-1]:.4f}", file=sys.stderr, flush=True)


def compare(way, first):
    """Of the losses on the other data."""
    error = math.hypot(*(statistics.stdev(one.evaluated) / math.sqrt(len(one.evaluated)) for one in (way, first)))
    return (statistics.mean(way.evaluated) - statistics.mean(first.evaluated)) / error


def describe(losses):
    return f"{statistics.mean(losses):.4f} ± {statistics.stdev(losses):.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", metavar="SOURCE", required=True)
    parser.add_argument("--eval", metavar="SOURCE", required=True)
    parser.add_argument("--model", type=pathlib.Path, default=MODELS / "bytegpt.train.pt2")
    parser.add_argument("--eval-model", type=pathlib.Path, default=MODELS / "bytegpt.eval.pt2")
    parser.add_argument("--ways", default=";".join(WAYS), help="joined by semicolons; the first is compared with")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=pathlib.Path, help="folder that keeps packages; else a temporary one")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of the tools; default: on PATH, or this source tree's build")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.tools = driver.Tools.find(arguments.bin, arguments.threads)
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        arguments.work = arguments.work or pathlib.Path(scratch)
        ways = [Way(name, arguments, arguments.work) for name in arguments.ways.split(";")]
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            for way in ways:
                try:
                    way.train(seed)
                except Failed as failure:
                    failures.append(str(failure))
    ways = [way for way in ways if len(way.evaluated) > 1]
    driver.report(["way", "device MiB", f"training loss at {arguments.steps}", "loss on the other data", "apart"],
                  [[way.name, mib(way.bytes), describe(way.losses), describe(way.evaluated),
                    "" if way is ways[0] else f"{compare(way, ways[0]):+.1f}"] for way in ways], failures, arguments.json)


if __name__ == "__main__":
    main()
