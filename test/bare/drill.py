# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""drill.py FOLDER VERSION STARTED: what an installed memopt does on a machine with nothing but Python.

FOLDER has mlp.train.pt2, and fixtures of this release. Compiles, trains ten steps on one rank and on two, goes on from a
checkpoint, and runs a package in Python. STARTED is the time at which the installation began: prints the seconds from there
to the first step."""

import array
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import time

import memopt

folder, version, started = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
os.chdir(folder)
ROWS, STEPS = 64, 10
#: Of the steps behind the checkpoint too: `--steps` counts those of a run.
HALF = STEPS // 2


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def train(name, steps, *options):
    run("memopt-run", "mlp.train.pt2", "--optimizer=adamw", "--data=data.safetensors", f"--steps={steps}", "--quiet",
        "--check-memory", f"--report={name}.json", *options)
    report = json.loads(pathlib.Path(f"{name}.json").read_text())
    for part in report.get("per_rank", [report]):
        assert part["predicted_peak_bytes"] == part["used_peak_bytes"], report
    assert len(report["losses"]) == steps, report
    return report["losses"]


def write_data():
    draw = random.Random(0)
    tensors = {}
    for step in range(2 * STEPS):
        tensors[f"step{step}.image"] = ("F32", [ROWS, 1, 28, 28], array.array("f", (draw.random() for _ in range(ROWS * 784))))
        tensors[f"step{step}.label"] = ("I64", [ROWS], array.array("q", (draw.randrange(10) for _ in range(ROWS))))
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        content = values.tobytes()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path("data.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


for tool in ("cc", "gcc", "clang", "ld", "ld.lld", "as"):
    assert shutil.which(tool) is None, f"{tool} is there: this machine is not bare"
assert memopt.__version__ == version, memopt.__version__
before = time.time()
write_data()
spent = time.time() - before
train("first", 1)
print(f"seconds from the installation to the first step: {time.time() - started - spent:.1f}")
for tool in ("memopt-run", "memopt-compile", "memopt-opt", "memopt-plan"):
    assert version in run(tool, "--version"), tool

whole = train("whole", STEPS)
assert whole[-1] < whole[0], whole
begin = train("begin", HALF, "--save=run")
assert begin + train("rest", STEPS - HALF, "--load=run") == whole, "a run that goes on has the same bits"
together = train("ranks", STEPS, "--ranks=2")
assert together[-1] < together[0], together
begin = train("begin", HALF, "--ranks=2", "--save=ranks")
assert begin + train("rest", STEPS - HALF, "--ranks=2", "--load=ranks") == together

run("memopt-compile", "mlp.train.pt2", "-o", "mlp.memopt", "--device-memory=2MiB")
with memopt.Session("mlp.memopt") as session:
    session.initialize()
    image = memoryview(array.array("f", bytes(4 * ROWS * 784))).cast("B").cast("f", [ROWS, 1, 28, 28])
    label = memoryview(array.array("q", bytes(8 * ROWS))).cast("B").cast("q", [ROWS])
    session.run_step([[image, label]])
    assert session.read_scalar("loss") > 0
print("drill passed")
