#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains small models of many published architectures with memopt, and holds their numbers against PyTorch's.

    VENV/bin/python architectures.py [GLOB...] [--bin BIN] [--json FILE] [--timeout S] [--option=OPTION...] [--list]

The Python that runs it has torch, torchvision, transformers and timm; what it lacks is left out. The models have few and
narrow layers, random weights and random data (architecture_models.py). Each trains three steps of SGD from the same
start, without dropout, in a process of its own:

  losses      |ours - float64| <= 2.5 e + 2e-6 scale, e being float32 PyTorch's own largest distance from float64
  gradients   of the first step, all together: relative L2 distance from float64's <= 2.5 x PyTorch's own + 1e-6
  memory      used = predicted, and nothing is allocated during steps

Where float32 is further off, the model is trained in float64, and must agree with PyTorch's float64 (e = 0): a ReLU or a
maximum that rounding turns over, behind a batch norm of few values, moves gradients by a thousandth and more.

A line each: right | unstable (right in float64 alone) | wrong | refused (by a message of memopt's) | crashed (another exit, or no end) | not exportable (by
PyTorch, or by memopt.export, which says why). Exit code 1 when one is wrong or crashed.
"""
from __future__ import annotations

import argparse
import copy
import fnmatch
import json
import multiprocessing
import pathlib
import subprocess
import sys
import tempfile
import time

import paths

STEPS, RATE, ALLOWED = 3, 0.01, 2.5
BAD = ("wrong", "crashed")


def train(step, batch, dtype):
    """Losses of the steps and the first one's gradients, in `dtype`."""
    import torch
    torch.set_default_dtype(dtype)  # of what the model makes while it runs
    step = copy.deepcopy(step).to(dtype)
    batch = {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()}
    losses, gradients = [], {}
    for number in range(STEPS):
        step.zero_grad()
        loss = step(**batch)
        loss.backward()
        losses.append(float(loss.detach()))
        with torch.no_grad():
            for name, parameter in step.named_parameters():
                if parameter.grad is None:
                    continue
                if number == 0:
                    gradients[name] = parameter.grad.double().clone()
                parameter -= RATE * parameter.grad
    return losses, gradients


def distance(found, expected):
    """Relative, in L2, over all tensors."""
    square = sum(float(value.square().sum()) for value in expected.values())
    return (sum(float((found[name] - value).square().sum()) for name, value in expected.items()) / max(square, 1e-300)) ** 0.5


def tail(text, lines=3):
    return " | ".join(text.strip().splitlines()[-lines:])[-600:]


def compile_and_run(options, folder):
    """The run's report, or a verdict and why."""
    run = [options.bin / "memopt-run", folder / "m.memopt", f"--data={folder / 'data.safetensors'}", "--shuffle=off",
           f"--steps={STEPS}", f"--lr={RATE}", "--check-memory", f"--report={folder / 'report.json'}",
           f"--save-gradients={folder / 'gradients.safetensors'}"]
    build = [options.bin / "memopt-compile", folder / "m.pt2", "-o", folder / "m.memopt", "--optimizer=sgd",
             "--dropout=off", *options.option]
    for command in (build, run):
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=options.timeout)
        except subprocess.TimeoutExpired:
            return "crashed", f"{command[0].name}: no end after {options.timeout} s"
        if done.returncode:
            refused = done.returncode == 1 and command is build and "PLEASE" not in done.stderr
            return "refused" if refused else "crashed", f"{command[0].name} exits {done.returncode}: {tail(done.stderr, 8)}"
    return "right", json.loads((folder / "report.json").read_text())


def judge(step, batch, report, gradients, exactly):
    """What is wrong, or an empty list."""
    import torch
    exact, expected = train(step, batch, torch.float64)
    rounded, own = (exact, expected) if exactly else train(step, batch, torch.float32)
    ours = report["losses"]
    scale = max(map(abs, exact))
    allowed = ALLOWED * max(abs(a - b) for a, b in zip(exact, rounded)) + 2e-6 * scale
    wrong = [f"loss {number} is {a}, float64's {b}, float32's {c}" for number, (a, b, c) in enumerate(zip(ours, exact, rounded))
             if not abs(a - b) <= allowed]
    missing = [name for name in expected if name not in gradients and float(expected[name].abs().max()) > 0]
    if missing:
        return [f"no gradient of {', '.join(missing[:4])}"]
    found = {name: gradients[name].double() for name in expected if name in gradients}
    kept = {name: expected[name] for name in found}
    off, limit = distance(found, kept), ALLOWED * distance(own, kept) + 1e-6
    if not off <= limit:
        worst = max(kept, key=lambda name: float((found[name] - kept[name]).square().sum()))
        wrong.append(f"gradients are {off:.2e} off, {limit:.2e} allowed; most in {worst}")
    return wrong


def attempt(name, options, exactly=False):
    """Verdict and words of one architecture; `exactly`: in float64."""
    import torch
    from memopt import export
    from safetensors.torch import load_file, save_file
    import architecture_models
    torch.set_num_threads(1)
    step, batch = architecture_models.make(name)
    if exactly:
        torch.set_default_dtype(torch.float64)
        step, batch = step.double(), {key: value.double() if value.is_floating_point() else value for key, value in batch.items()}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        try:
            export.save(export.export_program(step, batch, training=True), folder / "m.pt2")
        except Exception as error:
            return "not exportable", f"{type(error).__name__}: {tail(str(error), 2)}"
        save_file({f"step{i}.{key}": value.contiguous() for i in range(STEPS) for key, value in
                   ((k, v.clone()) for k, v in batch.items())}, folder / "data.safetensors")
        verdict, report = compile_and_run(options, folder)
        if verdict != "right":
            return verdict, report
        wrong = judge(step, batch, report, load_file(folder / "gradients.safetensors"), exactly)
        if not wrong or exactly:
            return ("wrong", "; ".join(wrong)) if wrong else ("right", "")
        verdict, words = attempt(name, options, exactly=True)
        return ("unstable" if verdict == "right" else "wrong", "; ".join(wrong) + (f"; in float64: {words}" if words else ""))


def work(name, options, connection):
    try:
        connection.send(attempt(name, options))
    except Exception as error:  # a model that this version of its library cannot build, say
        connection.send(("not built", f"{type(error).__name__}: {tail(str(error), 2)}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("globs", nargs="*", default=["*"])
    parser.add_argument("--bin", type=pathlib.Path, default=paths.ROOT / "build" / "release" / "bin")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    import architecture_models
    names = [name for name in architecture_models.NAMES if any(fnmatch.fnmatch(name, glob) for glob in options.globs)]
    if options.list:
        print(*names, sep="\n")
        return 0
    rows = {}
    for name in names:
        begin = time.monotonic()
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=work, args=(name, options, theirs))
        process.start()
        theirs.close()
        try:
            verdict, words = ours.recv() if ours.poll(3 * options.timeout) else ("crashed", "no end")
        except EOFError:
            verdict, words = "not built", "the process of the model ended"
        process.kill()
        process.join()
        rows[name] = {"verdict": verdict, "words": words, "seconds": round(time.monotonic() - begin, 1)}
        print(f"{name:45} {verdict:15} {rows[name]['seconds']:6} s  {words}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    verdicts = [row["verdict"] for row in rows.values()]
    print(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)))
    return any(verdict in BAD for verdict in verdicts)


if __name__ == "__main__":
    sys.exit(main())
