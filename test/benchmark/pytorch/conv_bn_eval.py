#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What --efficient-conv-bn-eval=all saves on torchvision's models with frozen statistics.

    conv_bn_eval.py resnet50 mobilenet_v2 ... --work FOLDER [--batch 64] [--timed-batch 8] [--bin BIN] [--json FILE]

Each model is in evaluation mode, so that batch norms use their running statistics, and all of its parameters are
trained with SGD. Planned with and without the option for `--batch` images of 224 x 224, and, where --timed-batch is not
0, run for that many: with random weights, packages in turn, medians of their steps. Needs PyTorch and torchvision for
the export alone; what FOLDER has is not exported again.
"""
import argparse
import json
import pathlib
import sys

import paths  # noqa: F401
import memopt_driver as driver
from memopt_driver import Failed

FUSED = "--efficient-conv-bn-eval=all"
HEAD = ["model", "norms fused", "left", "peak MiB", "fused MiB", "saved %", "batch", "peak MiB", "fused MiB", "saved %",
        "step s", "fused s", "speed"]


def export(name, batch, path):
    """Writes one model without weights; runs in a process of its own."""
    import torch
    import torch.nn.functional as F
    import torchvision
    import memopt_export
    step = memopt_export.TrainingStep(torchvision.models.get_model(name, weights=None), F.cross_entropy, ["label"],
                                      return_prediction=False)
    example = {"image": torch.zeros(batch, 3, 224, 224), "label": torch.zeros(batch, dtype=torch.long)}
    memopt_export.save(memopt_export.export_program(step, example, training=False), path, weights=False)


def write_batch(path, batch):
    """One batch of noise in the safetensors format; its values do not matter."""
    import numpy
    image = numpy.random.default_rng(1).standard_normal((batch, 3, 224, 224), dtype="f4")
    label = numpy.arange(batch, dtype="i8") * 37 % 1000
    header = {"step0.image": {"dtype": "F32", "shape": image.shape, "data_offsets": [0, image.nbytes]},
              "step0.label": {"dtype": "I64", "shape": label.shape,
                              "data_offsets": [image.nbytes, image.nbytes + label.nbytes]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + image.tobytes() + label.tobytes())


class Model:
    def __init__(self, name, options):
        self.name, self.options = name, options
        self.tools = driver.Tools.find(options.bin, options.threads)
        self.options.work.mkdir(parents=True, exist_ok=True)

    def exported(self, batch):
        path = self.options.work / f"{self.name}.b{batch}.pt2"
        if not path.exists():
            done = driver.execute([self.options.python, __file__, self.name, "--work", self.options.work,
                                   "--export", str(batch)])
            if done.code:
                raise Failed(f"export ends with {done.code}: {driver.tail(done.errors)}")
        return path

    def plan(self, batch, options):
        """The plan's report; nothing is generated."""
        path = self.options.work / "plan.json"
        done = driver.execute([self.tools.compile, self.exported(batch), "--emit=planned", f"--report={path}",
                               f"--run-threads={self.options.threads}", *self.options.option, *options])
        if done.code:
            raise Failed(f"memopt-compile ends with {done.code}: {driver.tail(done.errors)}")
        return json.loads(path.read_text())

    def time(self):
        """Median seconds of a step and arenas, without the option and with it."""
        batch, data = self.options.timed_batch, self.options.work / f"data.b{self.options.timed_batch}.safetensors"
        if not data.exists():
            write_batch(data, batch)
        packages = [self.tools.build(self.exported(batch), self.options.work / f"{self.name}.{kind}.memopt",
                                     [*self.options.option, *extra])
                    for kind, extra in (("plain", []), ("fused", [FUSED]))]
        seconds = [[], []]
        for turn in range(self.options.rounds):
            for package, found in list(zip(packages, seconds))[:: 1 if turn % 2 else -1]:
                report = self.tools.train(package, [f"--data={data}", f"--steps={self.options.steps + 1}", "--lr=0",
                                                    "--init=random", "--stop-on-nan=off"],
                                          self.options.work / "report.json")
                found += report["step_seconds"][1:]  # libraries make up their minds in the first
        return [driver.median(found) for found in seconds], [package.arena() for package in packages]

    def row(self):
        reports = [self.plan(self.options.batch, extra) for extra in ([], [FUSED])]
        peaks = [report["predicted_peak_bytes"]["device"] for report in reports]
        fusion = reports[1]["efficient_conv_bn_eval"]
        row = [self.name, str(len(fusion["fused"])), str(len(fusion["refused"])), *compare(peaks)]
        if not self.options.timed_batch:
            return row + ["-"] * (len(HEAD) - len(row))
        seconds, arenas = self.time()
        return row + [str(self.options.timed_batch), *compare(arenas), *(f"{s:.3f}" for s in seconds),
                      f"{seconds[0] / seconds[1]:.2f}"]


def compare(sizes):
    plain, fused = sizes
    return [driver.mib(plain), driver.mib(fused), f"{100 * (1 - fused / plain):.1f}"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names that torchvision.models.get_model knows")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder that keeps models and packages")
    parser.add_argument("--batch", type=int, default=64, help="images of the plan")
    parser.add_argument("--timed-batch", type=int, default=8, help="images of the steps that run; 0: run none")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of the tools; else PATH, else build/develop/bin")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    parser.add_argument("--option", action="append", default=[], help="for memopt-compile, such as a budget")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each process")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="writes the rows there too")
    parser.add_argument("--export", type=int, help=argparse.SUPPRESS)  # what this script tells its own process
    return parser.parse_args()


def main():
    options = parse()
    if options.export:
        return export(options.models[0], options.export, options.work / f"{options.models[0]}.b{options.export}.pt2")
    rows, failures = [], []
    for name in options.models:
        try:
            rows.append(Model(name, options).row())
            print(" ".join(rows[-1]), file=sys.stderr, flush=True)
        except Failed as failure:
            failures.append(f"{name}: {failure}")
    driver.report(HEAD, rows, failures, options.json)


if __name__ == "__main__":
    main()
