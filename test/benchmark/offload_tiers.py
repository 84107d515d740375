#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a model with its state on the device, on the host and on disk, under budgets that the first cannot meet.

    offload_tiers.py MODEL.pt2 --data FILE --disk DIR [--bin BIN] [--options "--batch=1"] [--steps 4] [--fractions 0.75,0.5]
                     [--json FILE]

The model is compiled without a budget, and with `--device-memory` at fractions of the smallest budget that the plain
step meets, where it is refused; then with `--offload-optimizer=cpu` and `=nvme`, with and without parameters. Weights are
random. Bytes are those used (`--check-memory`), which must be the predicted ones, and losses those of the plain run to the
last bit. Seconds of a step are the median of all but the first, of a run without `--check-memory`. `waited` is the time of
a step in which the step stood still for a transfer, by its timeline; `alone` is what the same transfers take when nothing
is beside them: bytes of the plan by the rates of this machine, measured here (copies of memory; reads and writes of the
folder with O_DIRECT). What hides is the rest, as a share. One Markdown table; the exit code is 1 when a run differs."""
import argparse
import json
import mmap
import os
import pathlib
import tempfile
import time

import memopt_driver as driver
from memopt_driver import Failed, median, mib

HEAD = ["where", "device budget MiB", "device MiB", "host MiB", "disk MiB", "s a step", "of plain", "sent MiB", "disk I/O MiB", "waited s",
        "alone s", "hidden %"]
TIERS = {"optimizer on host": ["--offload-optimizer=cpu"], "optimizer, parameters on host": ["--offload-optimizer=cpu", "--offload-param=cpu"],
         "optimizer on disk": ["--offload-optimizer=nvme"],
         "optimizer on disk, parameters on host": ["--offload-optimizer=nvme", "--offload-param=cpu"],
         "optimizer, parameters on disk": ["--offload-optimizer=nvme", "--offload-param=nvme"]}


def measure_disk(folder, size=256 << 20):
    """Seconds a byte, read and written in equal parts, around the system's cache."""
    block = mmap.mmap(-1, 8 << 20)
    file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    try:
        os.posix_fallocate(file, 0, size)
        times = []
        for _ in range(3):  # the first writes blocks that never were
            begin = time.monotonic()
            for move in (os.pwrite, lambda file, block, at: os.preadv(file, [block], at)):
                for at in range(0, size, len(block)):
                    move(file, block, at)
            times.append((time.monotonic() - begin) / (2 * size))
        return min(times)
    finally:
        os.close(file)


def measure_copy(size=64 << 20):
    source, target = bytearray(size), bytearray(size)
    times = []
    for _ in range(5):
        begin = time.monotonic()
        target[:] = source
        times.append((time.monotonic() - begin) / size)
    return min(times)


def waited(trace, steps):
    """Seconds of a step at waits of transfers."""
    events = json.loads(trace.read_text())["traceEvents"]
    return sum(event["dur"] for event in events if event.get("ph") == "X" and event["name"].startswith("transfer_wait")) / steps * 1e-6


class Runner:
    def __init__(self, arguments, folder):
        self.tools, self.arguments, self.folder = driver.Tools.find(arguments.bin, arguments.threads), arguments, folder
        self.copy, self.disk = measure_copy(), measure_disk(arguments.disk)
        self.plain, self.rows, self.failures = None, [], []

    def measure(self, name, options, budget):
        arguments, package = self.arguments, self.folder / "model.memopt"
        plan = self.folder / "plan.json"
        built = self.tools.build(arguments.model, package, [*arguments.options.split(), *options, f"--report={plan}"], budget)
        common = [f"--data={arguments.data}", "--init=random", "--seed=1", f"--steps={arguments.steps}"]
        checked = self.tools.train(built, [*common, "--check-memory"], self.folder / "checked.json")
        trace = self.folder / "trace.json"
        timed = self.tools.train(built, [*common, f"--trace={trace}"], self.folder / "timed.json")
        plan = json.loads(plan.read_text())
        used, seconds = checked["used_peak_bytes"], median(timed["step_seconds"][1:])
        self.plain = self.plain or (checked["losses"], seconds)
        if used != checked["predicted_peak_bytes"]:
            self.failures.append(f"{name}: used {used}, predicted {checked['predicted_peak_bytes']}")
        if checked["losses"] != self.plain[0]:
            self.failures.append(f"{name}: losses {checked['losses']}, expected {self.plain[0]}")
        sent, moved = plan["transfer_bytes"], plan["disk_transfer_bytes"]
        alone, stood = sent * self.copy + moved * self.disk, waited(trace, arguments.steps)
        hidden = f"{100 * max(0, 1 - stood / alone):.0f}" if alone else "-"
        self.rows.append([name, mib(budget), *(mib(used[space]) for space in ("device", "host", "disk")), f"{seconds:.2f}",
                          f"{seconds / self.plain[1]:.2f}", mib(sent), mib(moved), f"{stood:.2f}", f"{alone:.2f}", hidden])

    def run(self):
        arguments = self.arguments
        self.measure("all on the device", [], None)
        smallest = self.tools.smallest_budget(arguments.model, self.folder / "refused.memopt", arguments.options.split())
        for fraction in map(float, arguments.fractions.split(",")):
            for name, options in TIERS.items():
                on_disk = [f"--disk={arguments.disk}:64GiB"] if any("nvme" in option for option in options) else []
                try:
                    self.measure(name, [*options, *on_disk], int(smallest * fraction))
                except Failed as failure:
                    self.rows.append([name, mib(int(smallest * fraction)), *["-"] * (len(HEAD) - 2)])
                    print(f"{name} at {fraction}: {failure}")
        print(f"the plain step's smallest budget: {mib(smallest)} MiB; memory {1e-9 / self.copy:.1f} GB/s copied, disk {1e-9 / self.disk:.2f} GB/s")
        driver.report(HEAD, self.rows, self.failures, arguments.json)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--disk", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--options", default="--optimizer=adamw")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--fractions", default="0.75,0.5")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Runner(arguments, pathlib.Path(folder)).run()


main()
