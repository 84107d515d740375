#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""run_commands.py SOURCE FOLDER: runs what README.md and the pages print of memopt-compile and memopt-run, as it is printed.

The commands find a shipped model under the names that they use, and data of its shapes. What follows a `$ ` line is what the
command prints, with `...` for what is left out. Usage lines and placeholders such as PROBLEM.json are none.
"""
import gzip
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys

import numpy as np
from tensor_files import write_safetensors

# Commands that are not run here, by a part of them, and why not.
ELSEWHERE = {
    "--calibrate": "measures for half a minute; machine-profile.test has its options",
    "--machine-profile=here.json": "of a calibration",
    "--device=cuda": "needs a device",
    "--emit=ptx": "needs a part of NVIDIA's toolkit; cuda-package.test has it",
    "--target-features=device.json": "of a device; emulator/device.test has it",
    "backbone,neck": "modules of another model; conv-bn-eval.test has such",
    "--explain=techniques": "plans many times; techniques.test has it",
    "gan.memopt": "of two models over one state; programs.test has such",
    "lora.pt2": "of a model with frozen weights; frozen-weights.test has such",
    "critic.pt2": "of two models over one state; programs.test has such",
    "--programs=": "of a file that memopt.compile writes",
    "--dim=": "of a model with symbolic dimensions; programs.test has such",
    "--ranks=1024": "of another model; plan-ranks.test has it",
}
SAMPLES = 128


def prepare(source, folder):
    models = source / "tools" / "export" / "models"
    for name, model in (("model.pt2", "mlp.train.pt2"), ("MODEL.pt2", "mlp.train.pt2"), ("mine.train.pt2", "mlp.train.pt2"),
                        ("mine.eval.pt2", "mlp.eval.pt2"), ("resnet18.train.pt2", "resnet18.train.pt2")):
        shutil.copy(models / model, folder / name)
    subprocess.run(["memopt-compile", "model.pt2", "-o", "mlp.memopt", "--quiet"], cwd=folder, check=True)  # the walkthrough's
    draw = random.Random(0)
    images = np.array([draw.randrange(256) for _ in range(SAMPLES * 784)], "u1").reshape(SAMPLES, 1, 28, 28)
    labels = np.array([draw.randrange(10) for _ in range(SAMPLES)], "i8")
    for name in ("train", "test"):
        write_safetensors(folder / f"{name}.safetensors", {"image": images, "label": labels})
    for name in ("train", "t10k"):
        with gzip.open(folder / f"{name}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">IIII", 0x803, SAMPLES, 28, 28) + images.tobytes())
        with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">II", 0x801, SAMPLES) + labels.astype("u1").tobytes())


def find_commands(text):
    """Commands, and for those behind `$ ` the lines that follow."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = re.match(r"    (\$ )?(memopt-(?:compile|run) .*)", line)
        if not match or re.match(r"    memopt-\w+: ", line):
            continue
        command = match[2]
        while command.endswith("\\"):
            number += 1
            command = command[:-1] + lines[number].strip()
        printed = []
        while match[1] and lines[number + 1].startswith("    "):
            number += 1
            printed.append(lines[number].strip())
        if not re.search(r" \| | \[|\b(?!MODEL\.)[A-Z]{3,}\b(?!_)(?![/}])", command.replace("$HOME", "")):
            yield command.partition("  #")[0], printed


def run(command, printed, folder):
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, env={**os.environ, "HOME": str(folder)})
    output, at = done.stderr + done.stdout, 0
    for part in (part.strip() for line in printed for part in line.split("...") if part.strip()):
        found = output.find(part, at)
        assert found >= 0, f"{command}: '{part}' is not printed, but\n{output}"
        at = found + len(part)
    if not printed:
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{output}"


def main():
    source, folder = map(pathlib.Path, sys.argv[1:])
    prepare(source, folder)
    left, count = set(ELSEWHERE), 0
    for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
        for command, printed in find_commands(page.read_text(encoding="utf-8")):
            reasons = [part for part in ELSEWHERE if part in command]
            left -= set(reasons)
            if not reasons:
                print(f"{page.name}: {command}", flush=True)
                run(command, printed, folder)
                count += 1
    assert not left, f"no page prints {left} any more"
    assert count > 10, "the commands are not found"


main()
