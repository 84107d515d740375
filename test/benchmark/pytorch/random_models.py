#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains small random models (random_layers.py) with memopt, and holds numbers and techniques against each other.

    VENV/bin/python random_models.py FIRST LAST [--bin BIN] [--emulate DEVICE.json]

Of each seed from FIRST up to LAST, LAST left out, four steps with data of their own:

  float64     losses and the first step's gradients against PyTorch's in float64: not further off than 2.5 times what float32
              PyTorch is; with --emulate also on an emulated device
  same bits   losses and the final state of: the smallest budget, checkpointing, offload of activations, parameters and state
              to host or disk, two threads, two steps resumed after two; in two micro-batches: offload, and as many
              accumulated batches of half the size, and two ranks with SGD; on a device the same of budgets, checkpointing,
              offload and ranks
  near        two micro-batches against the batch, unless a remark says that they take statistics; bf16 to a tenth
  memory      used = predicted, everywhere

with an optimizer, its state's bits, a clipped norm and a precision drawn for it. A line for each model, and one for each
finding. What float32 cannot settle (a maximum among equals, a batch norm of equal values) is found, too: look before you
mend. Exit code 1 when something was found. The Python that runs it has torch and safetensors.
"""
from __future__ import annotations

import argparse
import copy
import json
import math
import pathlib
import random
import shutil
import sys
import tempfile

import paths  # noqa: F401
import torch
from memopt import export
from memopt_driver import Failed, Tools, execute, tail
from random_layers import BATCH, TOKENS, RandomModel
from safetensors.torch import load_file, save_file

STEPS, RATE, ALLOWED = 4, 0.05, 2.5
OPTIMIZERS = {
    "sgd": ["--lr=0.05", "--momentum=0.9", "--weight-decay=0.01"], "adamw": ["--lr=0.003"], "adam": ["--lr=0.003", "--amsgrad"],
    "lion": ["--lr=0.001"], "adafactor": ["--lr=0.01"], "muon": ["--lr=0.01"], "sm3": ["--lr=0.05"], "asgd": ["--lr=0.01"],
    "rmsprop": ["--lr=0.002", "--centered"], "nadam": ["--lr=0.002"], "adagrad": ["--lr=0.02"], "adadelta": ["--lr=0.5"],
    "radam": ["--lr=0.002"], "adamax": ["--lr=0.003"],
}
OF_ANY_BITS = ("adam", "adamw", "lion", "sgd")


def batches(model, seed):
    """Of each step one, of samples like those of the model."""
    torch.manual_seed(seed)
    made = []
    for _ in range(STEPS):
        order = torch.randperm(BATCH)
        x, y = (model.sample[name][order] for name in ("x", "y"))
        made.append({"x": x + 0.2 * torch.randn_like(x) if x.is_floating_point() else torch.randint_like(x, TOKENS), "y": y})
    return made


def write(data, rows, file):
    """The samples in batches of `rows`."""
    whole = {name: torch.cat([batch[name] for batch in data]) for name in data[0]}
    save_file({f"step{i}.{name}": value[i * rows:(i + 1) * rows].clone().contiguous()
               for i in range(STEPS * BATCH // rows) for name, value in whole.items()}, file)


def reference(model, data, dtype):
    """PyTorch's losses with SGD, and the first step's gradients."""
    torch.set_default_dtype(dtype)
    model, losses, gradients = copy.deepcopy(model).to(dtype), [], {}
    for batch in data:
        model.zero_grad()
        loss = model(**{name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()})
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    gradients.setdefault(name, parameter.grad.double().clone())
                    parameter -= RATE * parameter.grad
    torch.set_default_dtype(torch.float32)
    return losses, gradients


def distance(found, expected):
    """Of all together, relative."""
    missing = [name for name, value in expected.items() if name not in found and value.abs().max() > 0]
    if missing:
        return math.inf
    total = sum(float((found[name].double() - value).square().sum()) for name, value in expected.items() if name in found)
    return math.sqrt(total / max(sum(float(value.square().sum()) for value in expected.values()), 1e-12))


class Runs:
    """Runs of one model, in a folder."""

    def __init__(self, tools, folder, model, seed):
        self.tools, self.folder, self.findings = tools, folder, []
        self.draw = random.Random(seed)
        export.save(export.export_program(copy.deepcopy(model), model.sample, training=True), folder / "model.pt2")
        self.data = batches(model, seed)
        for rows in (BATCH // 2, BATCH):
            write(self.data, rows, folder / f"{rows}.safetensors")

    def train(self, tag, options, steps=STEPS, rows=BATCH, before=()):
        """Losses, gradients and final state by name, with what was said; None, and a finding, where it fails."""
        work = self.folder / tag
        work.mkdir()
        done = execute([*before, self.tools.run, self.folder / "model.pt2", f"--data={self.folder / f'{rows}.safetensors'}", f"--steps={steps}",
                        "--check-memory", "--shuffle=off", "--quiet", f"--report={work / 'report.json'}", f"--save={work / 'saved'}",
                        f"--save-gradients={work / 'gradients.safetensors'}", *options], timeout=600)
        if done.code:
            self.findings.append(f"{tag} {' '.join(options)}: exit code {done.code}: {tail(done.errors)}")
            return None
        report = json.loads((work / "report.json").read_text())
        if any(part["used_peak_bytes"] != part["predicted_peak_bytes"] for part in report.get("per_rank") or [report]):
            self.findings.append(f"{tag} {' '.join(options)}: other bytes than predicted")
        tensors = {"losses": torch.tensor(report["losses"], dtype=torch.float64)}
        for name in ("saved/model.safetensors", "saved/optimizer.safetensors", "gradients.safetensors"):
            if (work / name).exists():
                tensors |= {f"{name}:{key}": value for key, value in load_file(work / name).items()}
        return tensors, done.errors

    def compare(self, tag, options, one, other, tolerance=0.0, names=""):
        """Tensors whose name begins with `names`, to a part of their largest element; 0: bits."""
        def differ(a, b):
            if a is None or b is None or a.shape != b.shape:
                return True
            gap = (a.double() - b.double()).abs()
            return bool((gap > tolerance * max(0.1, float(a.double().abs().max()))).any() or (a.isnan() != b.isnan()).any())
        wrong = [name for name in sorted({*one, *other}) if name.startswith(names) and differ(one.get(name), other.get(name))]
        if wrong:
            self.findings.append(f"{tag} {' '.join(options)}: {len(wrong)} differ, such as {wrong[0]}")

    def check_float64(self, tag, model, answer, factor=1.0):
        if answer is None:
            return
        (exact, gradients), (rounded, own) = (reference(model, self.data, dtype) for dtype in (torch.float64, torch.float32))
        allowed = factor * ALLOWED * (max(abs(a - b) for a, b in zip(rounded, exact)) + 2e-6 * max(1.0, *map(abs, exact)))
        found = max(abs(a - b) for a, b in zip(answer["losses"].tolist(), exact))
        if not found <= allowed:
            self.findings.append(f"{tag}: losses are {found:.2g} off, allowed {allowed:.2g}")
        prefix = "gradients.safetensors:"
        ours = {name[len(prefix):]: value for name, value in answer.items() if name.startswith(prefix)}
        found, allowed = distance(ours, gradients), factor * (ALLOWED * distance(own, gradients) + 2e-6)
        if not found <= allowed:
            self.findings.append(f"{tag}: gradients are {found:.2g} off, allowed {allowed:.2g}")

    def get_smallest(self, options):
        """The smallest budget in bytes."""
        report = self.folder / "smallest.json"
        execute([self.tools.compile, self.folder / "model.pt2", "-o", self.folder / "none.memopt", "--device-memory=1", f"--report={report}", *options])
        return json.loads(report.read_text())["smallest_budget_bytes"]["device"]

    def draw_options(self):
        """An optimizer, and what goes with it."""
        name = self.draw.choice(list(OPTIMIZERS))
        options = [f"--optimizer={name}", *OPTIMIZERS[name]]
        if name in OF_ANY_BITS and self.draw.random() < 0.3:
            options += self.draw.choice([["--optim-bits=8", "--min-8bit-size=16"], ["--optim-bits=16"]])
        if self.draw.random() < 0.2:
            options.append("--precision=bf16")
        if self.draw.random() < 0.3:
            options.append(f"--max-grad-norm={self.draw.choice([0.1, 1.0])}")
        return options

    def draw_memory(self, tiers=("cpu", "nvme")):
        """Where state, parameters and activations lie."""
        options = [f"--offload-{part}={self.draw.choice(tiers)}" for part in ("optimizer", "param") if self.draw.random() < 0.4]
        if self.draw.random() < 0.4 or not options:
            options.append("--offload-activation=cpu")
        return options + ([f"--disk={self.folder}:1GiB"] if any("nvme" in option for option in options) else [])

    def check_bits(self, options):
        base = self.train("base", [*options, "--threads=1"])
        if base is None:
            return
        ways = [["--threads=2"], [f"--activation-checkpointing=segments:{self.draw.choice([2, 4])}"], self.draw_memory(),
                [f"--device-memory={int(self.get_smallest(options) * self.draw.choice([1, 1.05, 1.3]))}"]]
        for number, way in enumerate(ways):
            if answer := self.train(f"way{number}", [*options, *way]):
                self.compare("same bits", [*options, *way], base[0], answer[0])
        half = self.train("half", options, steps=STEPS // 2)
        rest = half and self.train("rest", [*options, f"--load={self.folder / 'half' / 'saved'}"], steps=STEPS // 2)
        if rest:
            self.compare("resumed", options, base[0], rest[0], names="saved/")

    def check_parts(self, options, model):
        """Micro-batches, accumulation, ranks."""
        whole, parts = (self.train(tag, ["--optimizer=sgd", f"--lr={RATE}", *more]) for tag, more in (("batch", []), ("parts", ["--micro-batches=2"])))
        self.check_float64("float64", model, whole and whole[0])
        if parts and "statistic" not in parts[1]:
            self.check_float64("micro-batches", model, parts[0], factor=2)
        options = [option for option in options if "grad-norm" not in option]
        micro = self.train("micro", [*options, "--micro-batches=2"])
        if micro is None:
            return
        memory = ["--micro-batches=2", *self.draw_memory()]
        if answer := self.train("micro_memory", [*options, *memory]):
            self.compare("same bits", [*options, *memory], micro[0], answer[0])
        halves = [f"--batch={BATCH // 2}", "--accumulative-counts=2"]
        if answer := self.train("accumulated", [*options, *halves], rows=BATCH // 2):
            self.compare("same bits", [*options, *halves], micro[0], answer[0])
        ranks = ["--optimizer=sgd", f"--lr={RATE}", f"--batch={BATCH // 2}", "--ranks=2", f"--zero-stage={self.draw.randrange(4)}"]
        if parts and (answer := self.train("ranks", ranks, rows=BATCH // 2)):
            self.compare("same bits", ranks, parts[0], answer[0])

    def check_precision(self):
        wide, narrow = (self.train(tag, ["--optimizer=sgd", f"--lr={RATE}", *more], steps=1) for tag, more in
                        (("wide", []), ("narrow", ["--precision=bf16"])))
        if wide and narrow:
            self.compare("bf16", [], wide[0], narrow[0], tolerance=0.1, names="losses")

    def check_device(self, description, options, model):
        """On an emulated device, whose operations come in an order that the model's seed draws."""
        before = [self.tools.run.parent / "memopt-emulate", f"--seed={self.draw.randrange(1000)}"]
        device = ["--target=cuda", f"--target-features={description}", "--device=cuda"]

        def train(tag, more, **others):
            return self.train(f"device_{tag}", [*device, *more], before=before, **others)
        sgd = ["--optimizer=sgd", f"--lr={RATE}"]
        plain = train("plain", sgd)
        self.check_float64("device", model, plain and plain[0])
        tight = [*sgd, f"--device-memory={int(self.get_smallest([*device[:2], *sgd]) * self.draw.choice([1, 1.1]))}"]
        if plain and (answer := train("tight", tight)):
            self.compare("same bits on the device", tight, plain[0], answer[0])
        base = train("base", options)
        for number, way in enumerate([[f"--activation-checkpointing=segments:{self.draw.choice([2, 4])}"], self.draw_memory(["cpu"])]):
            if base and (answer := train(f"way{number}", [*options, *way])):
                self.compare("same bits on the device", [*options, *way], base[0], answer[0])
        parts = train("parts", [*sgd, "--micro-batches=2", *self.draw_memory(["cpu"])])
        ranks = [*sgd, f"--batch={BATCH // 2}", "--ranks=2", f"--zero-stage={self.draw.randrange(4)}"]
        if parts and (answer := train("ranks", ranks, rows=BATCH // 2)):
            self.compare("same bits on the device", ranks, parts[0], answer[0])


def judge(seed, arguments):
    """The model's layers, and what was found."""
    model = RandomModel(seed).train()
    losses, _ = reference(model, batches(model, seed), torch.float64)
    if not all(math.isfinite(loss) and abs(loss) < 1e6 for loss in losses):
        return f"{model.text}: no finite losses", []
    folder = pathlib.Path(tempfile.mkdtemp(prefix="memopt-"))
    try:
        runs = Runs(arguments.tools, folder, model, seed)
        options = runs.draw_options()
        runs.check_bits(options)
        runs.check_parts(options, model)
        runs.check_precision()
        if arguments.emulate:
            runs.check_device(arguments.emulate, options, model)
        return model.text, runs.findings
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--emulate", metavar="DEVICE.json", type=pathlib.Path, help="train on this emulated device, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.tools = Tools.find(arguments.bin, 1)
    found = 0
    for seed in range(arguments.first, arguments.last):
        try:
            text, findings = judge(seed, arguments)
        except (Failed, RuntimeError, TypeError, ValueError) as error:  # what PyTorch does not export
            text, findings = f"not exported: {str(error).splitlines()[0][:150]}", []
        found += bool(findings)
        print(seed, "LOOK" if findings else "ok", text, flush=True)
        for finding in findings:
            print("    ", finding.replace("\n", " "), flush=True)
    print(f"{arguments.last - arguments.first} models, {found} to look at")
    return found != 0


if __name__ == "__main__":
    sys.exit(main())
