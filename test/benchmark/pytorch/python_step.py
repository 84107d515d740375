#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step costs through Python beside memopt-run: the same package on the same batches, in turn.

    python_step.py [--rounds 5] [--steps 10] [--threads N] [--width 384] [--layers 6] [--batch 8]

A vision transformer is compiled once. In each round memopt-run makes `--steps` steps, and then a loop in this process
makes as many; both begin with the same checkpoint. Steps of memopt-run are timed by its report, without reading data;
those of Python by the clock around `step(batch)`, with everything that happens there. Prints medians and least of all but
each round's first step, and fails where losses, parameters or state have other bits. On a machine that does other work,
too, the least are what to compare.

Needs PyTorch and torchvision; test/Python/training-state.test holds the bits without timing anything.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torchvision.models import VisionTransformer

import paths  # noqa: F401
import memopt
from memopt.tools import find_compiler


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rounds", 5), ("steps", 10), ("threads", 0), ("width", 384), ("layers", 6), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def make_model(arguments: argparse.Namespace) -> torch.nn.Module:
    torch.manual_seed(0)
    return VisionTransformer(image_size=64, patch_size=8, num_layers=arguments.layers, num_heads=6,
                             hidden_dim=arguments.width, mlp_dim=4 * arguments.width, num_classes=100)


def run_tool(arguments: argparse.Namespace, step: memopt.Step, folder: pathlib.Path) -> dict:
    subprocess.run([find_compiler().parent / "memopt-run", step.package, f"--load={folder}/begin", f"--data={folder}/batches.safetensors",
                    f"--steps={arguments.steps}", "--quiet", f"--save={folder}/run", f"--report={folder}/report.json"],
                   check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "report.json").read_text())


def run_loop(step: memopt.Step, batches: list, folder: pathlib.Path) -> tuple[list[float], list[float], list[float]]:
    """Losses, seconds by the clock, and seconds of the program alone."""
    step.load(folder / "begin")
    losses, walls, programs = [], [], []
    for batch in batches:
        begin = time.perf_counter()
        losses.append(step(batch))
        walls.append(time.perf_counter() - begin)
        programs.append(step.seconds)
    step.save(folder / "loop")
    return losses, walls, programs


def main() -> None:
    arguments = parse_arguments()
    model = make_model(arguments)
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(arguments.batch, 3, 64, 64, generator=generator),
                torch.randint(100, (arguments.batch,), generator=generator)) for _ in range(arguments.steps)]
    step = memopt.compile(model, F.cross_entropy, batches[0], optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
                          threads=arguments.threads, run_threads=arguments.threads or None)
    tool, loop, program = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        step.save(folder / "begin")
        save_file({f"step{i}.{key}": value for i, batch in enumerate(batches) for key, value in zip(("input", "target"), batch)},
                  folder / "batches.safetensors")
        for _ in range(arguments.rounds):
            report = run_tool(arguments, step, folder)
            losses, walls, programs = run_loop(step, batches, folder)
            tool += report["step_seconds"][1:]
            loop += walls[1:]
            program += programs[1:]
            same = losses == report["losses"] and all((folder / "run" / file).read_bytes() == (folder / "loop" / file).read_bytes()
                                                      for file in ("model.safetensors", "optimizer.safetensors"))
            assert same, "the bits differ"
    medians = {"memopt-run": tool, "Python, step(batch)": loop, "Python, the program in it": program}
    for label, seconds in medians.items():
        print(f"{label:26} {1e3 * statistics.median(seconds):9.3f} ms, from {1e3 * min(seconds):.3f} to {1e3 * max(seconds):.3f}")
    ratios = [100 * (choose(loop) / choose(tool) - 1) for choose in (statistics.median, min)]
    print(f"Python takes {ratios[0]:+.1f} % by the median, {ratios[1]:+.1f} % by the least; losses and state have the same bits")


if __name__ == "__main__":
    main()
