#!/usr/bin/env python3
"""Kills training runs at random moments and checks that the checkpoint they leave is whole.

    kill_drill.py FIXTURE... [--kills=N] [--steps=N] [--seed=N] [--folder=DIR]

FIXTURE is a folder with model.pt2 and inputs.safetensors. For each model a chain of runs of one step each gives the
checkpoint that must stand after every step. Then runs that save after every step, and keep the one before, are ended by
SIGKILL, N times over all models, at moments drawn from the length of a whole run. A flush takes longer than it would
(test/shims), so that most of these moments lie in a save. After each kill
  - the folder loads, and what it holds is the chain's checkpoint of its step to the last bit, as does the one that is kept;
  - its step is not below that of the kill before, and a run that goes on from it ends as the chain does;
  - the next run begins where the last one was killed, or anew over the old checkpoint, without any cleaning.
Prints a line for each model with the steps reached and the leftovers seen; exits 1 naming the first that is off, or when
less than a quarter of the kills were in a save.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]
SHIM = pathlib.Path(__file__).resolve().parents[2] / "shims" / "faults.c"
FLUSH_SECONDS = 0.03


def contents(folder):
    return [(folder / name).read_bytes() for name in FILES]


class Drill:
    def __init__(self, fixture, folder, steps, generator):
        self.name, self.folder, self.steps, self.random = fixture.name, folder, steps, generator
        self.package, self.data = folder / "model.memopt", fixture / "inputs.safetensors"
        subprocess.run(["memopt-compile", fixture / "model.pt2", "-o", self.package, "--optimizer=adamw"], check=True)
        self.target = folder / "checkpoint"
        self.step = 0  # of the last checkpoint; 0: none
        self.unsaved = self.half_moved = self.finished = 0
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "faults.so", SHIM, "-ldl"], check=True)
        self.slowly = {**os.environ, "LD_PRELOAD": str(folder / "faults.so"), "FAULTS": f"fsync:s{FLUSH_SECONDS}",
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def command(self, *options):
        return ["memopt-run", self.package, f"--data={self.data}", "--quiet", "--lr=0.01", "--seed=3",
                "--lr-schedule=linear", f"--schedule-steps={self.steps}", *options]

    def run(self, *options, env=None):
        done = subprocess.run(self.command(*options), capture_output=True, text=True, env=env)
        if done.returncode:
            sys.exit(f"{self.name}: {' '.join(map(str, options))} ended with {done.returncode}: {done.stderr}")

    def make_chain(self):
        """The checkpoint after each step, each from the one before."""
        self.chain = [None]
        for step in range(1, self.steps + 1):
            load = [f"--load={self.folder / f'step{step - 1}'}"] if step > 1 else []
            self.run("--steps=1", *load, f"--save={self.folder / f'step{step}'}")
            self.chain.append(contents(self.folder / f"step{step}"))
        begin = time.monotonic()
        self.run(f"--steps={self.steps}", "--save-every=1", "--keep=2", f"--save={self.folder / 'straight'}", env=self.slowly)
        self.seconds = time.monotonic() - begin
        if contents(self.folder / "straight") != self.chain[-1]:
            sys.exit(f"{self.name}: {self.steps} steps in one run differ from as many runs of one step")

    def kill_once(self):
        options = [f"--save={self.target}", "--save-every=1", "--keep=2"]
        if self.step:
            options += [f"--load={self.target}"]
        options += [f"--steps={self.steps - self.step}"]
        process = subprocess.Popen(self.command(*options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self.slowly)
        left = self.seconds * (0.3 + 0.7 * (self.steps - self.step) / self.steps)
        time.sleep(self.random.uniform(0, left))
        process.kill()
        errors = process.communicate()[1]
        if process.returncode > 0:
            sys.exit(f"{self.name}: a run ended with {process.returncode} before it was killed: {errors}")
        self.finished += process.returncode == 0

    def check(self):
        names = [path.name for path in self.target.iterdir()] if self.target.exists() else []
        self.half_moved += ".saved" in names
        self.unsaved += ".saved" not in names and any(name.startswith(".saving-") for name in names)
        for kept in self.target.glob("step-*"):
            if contents(kept) != self.chain[int(kept.name[5:])]:
                sys.exit(f"{self.name}: the kept checkpoint {kept.name} differs from that of a run that was not killed")
        if "state.json" not in names and ".saved" not in names:
            if self.step:
                sys.exit(f"{self.name}: the checkpoint of step {self.step} is gone; the folder holds {names}")
            return
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        self.run(f"--load={self.target}", "--steps=0", f"--save={copy}")
        step = json.loads((copy / "state.json").read_text())["step"]
        if step < self.step:
            sys.exit(f"{self.name}: step {step} stands after step {self.step}")
        if contents(copy) != self.chain[step]:
            sys.exit(f"{self.name}: the checkpoint of step {step} differs from that of a run that was not killed")
        self.run(f"--load={copy}", f"--steps={self.steps - step}", f"--save={copy}")
        if contents(copy) != self.chain[-1]:
            sys.exit(f"{self.name}: a run resumed at step {step} ends differently")
        self.step = step

    def go(self, kills):
        reached = []
        for _ in range(kills):
            self.kill_once()
            self.check()
            reached.append(self.step)
            if self.step == self.steps:
                self.step = 0  # anew, over the old checkpoint
        hits = self.unsaved + self.half_moved
        if 4 * hits < kills:
            sys.exit(f"{self.name}: only {hits} of {kills} kills were in a save")
        print(f"{self.name}: {kills} kills, {hits} in a save, all resumed bit-equal; steps reached {reached}; leftovers of saves not done "
              f"{self.unsaved}, of files on their way {self.half_moved}; runs that were faster {self.finished}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", nargs="+", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where to work (default: a temporary folder)")
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for number, fixture in enumerate(arguments.fixtures):
            work = pathlib.Path(folder) / str(number)
            work.mkdir()
            drill = Drill(fixture, work, arguments.steps, generator)
            drill.make_chain()
            drill.go(len(range(number, arguments.kills, len(arguments.fixtures))))


if __name__ == "__main__":
    main()
