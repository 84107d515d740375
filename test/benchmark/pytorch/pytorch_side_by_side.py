#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains full-size models with PyTorch and with memopt, side by side: seconds of a step against bytes.

    VENV/bin/python pytorch_side_by_side.py resnet50 gpt2 --work FOLDER [--bin BIN] [--optimizer sgd|adamw] [--rounds 3]
        [--ways eager,channels_last] [--fractions 1,0.5,0.2] [--budgets 4] [--bf16] [--loaded]
        [--isa native|avx2|avx512] [--threads 2] [--json FILE]

The Python that runs it has torch, torchvision, transformers and safetensors. ResNet-50 and ViT-S/16 take batches of 16
images of 224 x 224, MobileNetV2 of 32, GPT-2 124M of 2 x 512 tokens, all without dropout; random weights and data, SGD
without momentum or AdamW, the loss as the only output. Each measurement is a process of its own with `--threads` threads; the rounds go through all of them
in turn. PyTorch trains eagerly (for convolutions in channels-last too), with torch.utils.checkpoint around each
block, with updates during backward, and through torch.compile with `activation_memory_budget` at the fractions.
memopt gets no budget, PyTorch's peaks as budgets, and `--budgets` more down to the smallest that it names. With --bf16
PyTorch also trains under torch.autocast, and memopt with --precision=bf16. With --loaded each also runs once while a
loop keeps one core busy, and a column says how many times longer its step takes then. --isa=avx2 holds PyTorch, its
libraries and memopt to AVX2, on a processor that has more, too (memopt_driver.py, AVX2_ENVIRONMENT).

  peak      PyTorch: bytes of its allocator at their highest, parameters and batch included, scratch inside libraries
            not; memopt: the arena, which holds everything
  process   peak of the process's resident memory; of PyTorch's, what was there before the model is taken off
  s a step  median over the steps of all rounds but the first of each process (and the first two of compiled ones)
  loss      largest relative distance from eager's over the steps

FOLDER keeps models, packages and torch.compile's cache. Exit code 1 when a measurement fails, or a loss is further
than 1e-4 from eager's (1e-2 in bf16).
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys

import paths  # noqa: F401
import memopt_driver as driver
from memopt_driver import Failed, median, mib

HEAD = ["model", "how", "peak MiB", "of eager %", "process MiB", "s a step", "of eager %", "predicted s", "recomputed",
        "loss"]
TOLERANCE, NARROW_TOLERANCE = 1e-4, 1e-2
RATES = {"sgd": {"resnet50": 1e-3, "mobilenet_v2": 1e-3, "vit_s16": 1e-3, "gpt2": 1e-2},
         "adamw": {"resnet50": 1e-5, "mobilenet_v2": 1e-5, "vit_s16": 1e-5, "gpt2": 1e-4}}
IMAGE_WAYS = ["eager", "channels_last", "checkpoint", "channels_last+checkpoint+step_in_backward"]
TOKEN_WAYS = ["eager", "checkpoint", "checkpoint+step_in_backward"]
WAYS = {"resnet50": IMAGE_WAYS, "mobilenet_v2": IMAGE_WAYS, "vit_s16": TOKEN_WAYS, "gpt2": TOKEN_WAYS}
NARROW_WAYS = {"resnet50": ["autocast", "channels_last+autocast"], "mobilenet_v2": ["channels_last+autocast"],
               "vit_s16": ["autocast"], "gpt2": ["autocast"]}


@contextlib.contextmanager
def busy_core():
    """One core of those that this process may use does something else."""
    core = min(os.sched_getaffinity(0))
    # Until it is killed, or this process is.
    code = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile os.getppid() == {os.getpid()}: pass"
    loop = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


class Torch:
    """One of PyTorch's ways to train."""

    predicted, recomputed = None, "-"

    def __init__(self, model, way):
        self.model, self.way, self.runs, self.peak = model, way, [], None
        self.name = f"PyTorch {way}"
        self.tolerance = NARROW_TOLERANCE if "autocast" in way else TOLERANCE
        self.skip = 2 if "compile" in way else 1

    def run(self):
        options = self.model.options
        steps = options.steps + self.skip
        done = driver.execute([sys.executable, __file__, self.model.name, "--measure", self.way, "--steps", steps,
                               "--threads", options.threads, "--optimizer", options.optimizer,
                               *(["--memory"] if self.peak is None else [])],
                              options.threads)
        if done.code:
            raise Failed(f"{self.name} ends with {done.code}: {driver.tail(done.errors)}")
        self.runs.append(json.loads(driver.tail(done.output, 1)))
        self.peak = self.peak or self.runs[-1]["peak_bytes"]


class Memopt:
    """One package of memopt."""

    skip = 1

    def __init__(self, model, package, name, tolerance):
        self.model, self.package, self.runs, self.name = model, package, [], f"memopt {name}"
        self.peak, self.predicted = package.arena(), package.predicted_seconds()
        self.recomputed, self.tolerance = str(package.recomputed()), tolerance

    def run(self):
        steps = self.model.options.steps + self.skip
        self.runs.append(self.model.tools.train(
            self.package, [f"--data={self.model.folder / 'inputs.safetensors'}", "--shuffle=off", f"--steps={steps}"],
            self.model.folder / "report.json"))


class Model:
    def __init__(self, name, options):
        self.name, self.options, self.failures = name, options, []
        self.folder = options.work / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tools = driver.Tools.find(options.bin, options.threads)
        ways = [way for way in WAYS[name] if not options.ways or way in ("eager", *options.ways)]
        self.torch = [Torch(self, way) for way in ways + (NARROW_WAYS[name] if options.bf16 else [])
                      + [f"compile:{f}" for f in options.fractions]]
        self.memopt = []

    def export(self):
        if (self.folder / "model.pt2").exists() and (self.folder / "inputs.safetensors").exists():
            return
        done = driver.execute([sys.executable, __file__, self.name, "--export", self.folder])
        if done.code:
            raise Failed(f"export ends with {done.code}: {driver.tail(done.errors)}")

    def compile(self):
        """Packages without a budget, within PyTorch's peaks, and within less."""
        model = self.folder / "model.pt2"
        optimizer = self.options.optimizer
        compile_options = [f"--optimizer={optimizer}", f"--lr={RATES[optimizer][self.name]}", *self.options.option]

        def add(name, budget=None, narrow=False):
            package = self.tools.build(model, self.folder / f"{'bf16.' if narrow else ''}{budget or 'free'}.memopt",
                                       compile_options + (["--precision=bf16"] if narrow else []), budget)
            self.memopt.append(Memopt(self, package, name, NARROW_TOLERANCE if narrow else TOLERANCE))
            print(f"{self.name} {self.memopt[-1].name}: {package.arena()} bytes, compiled in "
                  f"{package.compile_seconds:.1f} s", file=sys.stderr, flush=True)

        add("no budget")
        if self.options.bf16:
            add("bf16, no budget", narrow=True)
        for way in self.torch:
            if way.way in ("eager", "checkpoint") and way.peak:
                add(f"within PyTorch {way.way}'s peak", way.peak)
        if not self.options.budgets:
            return
        smallest = self.tools.smallest_budget(model, self.folder / "refused.memopt", compile_options)
        for budget in driver.spread(self.memopt[0].peak, smallest, self.options.budgets + 1)[1:]:
            add(f"budget {mib(budget)} MiB", budget)

    def attempt(self, entries):
        for entry in entries:
            try:
                entry.run()
            except Failed as failure:
                self.failures.append(f"{entry.name}: {failure}")

    def measure(self):
        self.export()
        self.attempt(self.torch)
        self.compile()
        self.attempt(self.memopt)
        for turn in range(1, self.options.rounds):
            self.attempt((self.torch + self.memopt)[:: 1 if turn % 2 else -1])
        if self.options.loaded:
            for entry in self.torch + self.memopt:
                entry.quiet_runs, entry.runs = entry.runs, []
            with busy_core():
                self.attempt(self.torch + self.memopt)
            for entry in self.torch + self.memopt:
                entry.loaded_runs, entry.runs = entry.runs, entry.quiet_runs

    def rows(self):
        eager = self.torch[0]
        base = seconds_of(eager.runs, eager.skip)
        for entry in self.torch + self.memopt:
            if not entry.runs:
                continue
            seconds = seconds_of(entry.runs, entry.skip)
            distance = max(distance_of(run["losses"], eager.runs[0]["losses"]) for run in entry.runs)
            if not distance <= entry.tolerance:
                self.failures.append(f"{entry.name}: the losses {entry.runs[0]['losses']} are not eager's "
                                     f"{eager.runs[0]['losses']}")
            loaded = []
            if self.options.loaded:
                loaded = [f"{seconds_of(entry.loaded_runs, entry.skip) / seconds:.2f}" if entry.loaded_runs else "-"]
            yield [self.name, entry.name, mib(entry.peak), f"{100 * entry.peak / eager.peak:.0f}",
                   mib(max(run["peak_rss"] - run.get("rss_before", 0) for run in entry.runs)), f"{seconds:.3f}", f"{100 * seconds / base:.0f}",
                   f"{entry.predicted:.3f}" if entry.predicted else "-", entry.recomputed, f"{distance:.0e}", *loaded]


def seconds_of(runs, skip):
    return median([second for run in runs for second in run["step_seconds"][skip:]])


def distance_of(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def parts(text):
    return [part for part in text.split(",") if part]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=sorted(WAYS))
    parser.add_argument("--work", type=pathlib.Path, help="folder that keeps models and packages")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of the tools; else PATH, else build/develop/bin")
    parser.add_argument("--option", action="append", default=[], help="for memopt-compile, such as a machine profile")
    parser.add_argument("--optimizer", choices=sorted(RATES), default="sgd")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each process")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind")
    parser.add_argument("--ways", type=parts, default=[], help="of PyTorch in f32 beside eager, joined by commas; default: all")
    parser.add_argument("--fractions", type=parts, default=["1", "0.5", "0.2"],
                        help="of activation_memory_budget, joined by commas; empty: no torch.compile")
    parser.add_argument("--budgets", type=int, default=4, help="of memopt, below its plan without a budget")
    parser.add_argument("--bf16", action="store_true", help="autocast and --precision=bf16 as well")
    parser.add_argument("--loaded", action="store_true", help="beside a busy core as well")
    parser.add_argument("--isa", choices=driver.ISAS, default="native", help="instructions that all sides are held to")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="writes the rows there too")
    for hidden in ("--measure", "--export"):  # what this script tells its own processes
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.work or options.measure or options.export):
        parser.error("--work FOLDER is missing")
    if options.steps < 1 or options.rounds < 1 or options.budgets < 0:
        parser.error("--steps and --rounds want 1 or more, --budgets 0 or more")
    return options


BATCHES = 2  # that the steps take in turn


def main():
    options = parse()
    if options.measure or options.export:
        import pytorch_models
        if options.export:
            return pytorch_models.export(options.models[0], BATCHES, pathlib.Path(options.export))
        name = options.models[0]
        optimizer = pytorch_models.make_optimizer(options.optimizer, RATES[options.optimizer][name])
        return print(json.dumps(pytorch_models.measure(name, options.measure, BATCHES, optimizer, options.steps,
                                                       options.threads, options.memory)))
    options.option += driver.hold_to(options.isa)
    head = [*HEAD, *(["under load"] if options.loaded else [])]
    rows, failures = [], []
    for name in options.models:
        try:
            model = Model(name, options)
            model.measure()
            rows += model.rows()
            print(driver.markdown(head, model.rows()), flush=True)  # what takes an hour may not come to its end
            failures += [f"{name}: {text}" for text in model.failures]
        except Failed as failure:
            failures.append(f"{name}: {failure}")
    driver.report(head, rows, failures, options.json)


if __name__ == "__main__":
    main()
