#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles models for NVIDIA GPUs, none of which is needed, and says what the packages hold.

    cuda_packages.py MODEL.pt2... [--devices a100,h100,b200] [--precisions f32,bf16] [--batches 1,32,64] [--bin BIN]
                     [--ptxas PTXAS] [--json FILE]

--devices=all are those that are compiled in. A batch that is left out is the model's own. Ends with 1 where a compilation
failed: so a sweep over batches and devices finds kernels for which registers are too few.

For each model, device, precision and batch: processor seconds of the compilation with ptxas and cuDNN, and of ptxas alone, which
is run once more for its figures; kernels, their registers and shared memory, and how many of them keep registers in
memory, which none should; library calls, different plans of cuDNN and the largest workspace of one; the bytes of the
plan. Shared memory is what kernels declare; tiles of attention come on top of it.
"""
import argparse
import itertools
import pathlib
import re
import shutil
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, execute, tail

DEVICES = pathlib.Path(__file__).resolve().parents[2] / "lib/Target/Cuda/devices"
HEAD = ["model", "batch", "device", "precision", "CPU s", "ptxas CPU s", "kernels", "registers", "shared bytes", "spilling",
        "calls", "plans", "workspace MiB", "device MiB"]


def resources(text):
    """Name, registers, bytes of shared memory, and of stack and spilled registers, of each kernel that ptxas names."""
    kernels = []
    for line in text.splitlines():
        if entry := re.search(r"Compiling entry function '(\w+)'", line):
            kernels.append({"name": entry.group(1), "registers": 0, "shared": 0, "spilled": 0})
        for key, pattern in (("registers", r"Used (\d+) registers"), ("shared", r"(\d+) bytes smem"),
                             ("spilled", r"(\d+) bytes (?:stack frame|spill)")):
            if kernels:
                kernels[-1][key] += sum(int(number) for number in re.findall(pattern, line))
    return kernels


def assemble(arguments, package, chip):
    """What the kernels of a package take, and the processor seconds that ptxas needs to say it."""
    done = execute([arguments.ptxas, f"-arch={chip}", "-v", package / "kernels.ptx", "-o", "/dev/null"])
    if done.code:
        raise Failed(f"ptxas: {tail(done.errors)}")
    return resources(done.output + done.errors), done.cpu_seconds


def find_tool(given, name):
    found = given or shutil.which(name) or f"/usr/local/cuda/bin/{name}"
    if not shutil.which(str(found)):
        raise Failed(f"no {name} on PATH or in /usr/local/cuda; name it with --{name}")
    return found


def name_of(model):
    return model.parent.name if model.stem == "model" else model.stem


def measure(arguments, model, batch, device, precision, package):
    command = [arguments.compiler, model, "-o", package, "--target=cuda", f"--target-features={device}", "--quiet",
               f"--precision={precision}", f"--optimizer={arguments.optimizer}"] + ([f"--batch={batch}"] if batch else [])
    done = execute(command, timeout=arguments.timeout)
    if done.code:
        raise Failed(f"{model}{f' of {batch}' if batch else ''} for {device} in {precision}: exit {done.code}: {tail(done.errors)}")
    written = driver.Package(package, None, done.seconds)
    manifest = written.manifest()
    kernels, ptxas_seconds = assemble(arguments, package, manifest["target"]["chip"])
    calls = manifest["library_calls"]
    plans = {call["plan"]["text"]: call["workspace_bytes"] for call in calls if "plan" in call}
    return {"model": name_of(model), "batch": batch, "device": device, "precision": precision,
            "cpu": done.cpu_seconds, "ptxas_cpu": ptxas_seconds, "kernels": len(kernels),
            "registers": [kernel["registers"] for kernel in kernels], "shared": [kernel["shared"] for kernel in kernels],
            "spilling": sum(kernel["spilled"] > 0 for kernel in kernels), "calls": len(calls), "plans": len(plans),
            "workspace": max(plans.values(), default=0), "bytes": written.arena()}


def text_of(row):
    most = sorted(row["registers"])
    return [row["model"], row["batch"], row["device"], row["precision"], f"{row['cpu']:.1f}", f"{row['ptxas_cpu']:.1f}",
            str(row["kernels"]), f"{most[len(most) // 2]}, at most {most[-1]}", str(max(row["shared"])),
            str(row["spilling"]), str(row["calls"]), str(row["plans"]), driver.mib(row["workspace"]),
            driver.mib(row["bytes"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--devices", default="a100,h100,b200")
    parser.add_argument("--precisions", default="f32,bf16")
    parser.add_argument("--batches", default="", help="samples of a batch, separated by commas; default: the model's own")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--ptxas", type=pathlib.Path, help="default: on PATH, or in /usr/local/cuda")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one compilation")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.compiler = driver.Tools.find(arguments.bin, 1).compile
    arguments.ptxas = find_tool(arguments.ptxas, "ptxas")
    rows, failures = [], []
    devices = sorted(path.stem for path in DEVICES.glob("*.json")) if arguments.devices == "all" else arguments.devices.split(",")
    cases = itertools.product(arguments.models, arguments.batches.split(","), arguments.precisions.split(","), devices)
    with tempfile.TemporaryDirectory() as scratch:
        for model, batch, precision, device in cases:
            try:
                rows.append(measure(arguments, model, batch, device, precision, pathlib.Path(scratch) / "package"))
                print(text_of(rows[-1]), file=sys.stderr, flush=True)
            except Failed as failure:
                failures.append(str(failure))
                print(failure, file=sys.stderr, flush=True)
    driver.report(HEAD, [text_of(row) for row in rows], failures, arguments.json, rows)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"cuda_packages.py: {error}")
