#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds the steps that memopt-plan predicts for ranks on a network against those that they take.

    shaped_links.py MODEL.pt2 --data FILE [--ranks 2,4,2x2] [--rates 200mbit,1gbit] [--stages 0,3] [--steps 6] [--overlap on,off]
                    [--bin BIN] [--plugin libmemopt-mpi.so] [--options "--optimizer=adamw"] [--work FOLDER] [--json FILE]

Needs root, Linux, ip and tc (iproute2), and Open MPI. A host is a network namespace on a bridge, whose link tc shapes in both
directions. Each rank has a host of its own; 2x2 are two hosts of two ranks, which share memory. "In memory" is the step of as
many ranks on one host. With --overlap on,off each step is also compiled with its collectives in turn. What it then takes longer
than in memory is sending, and "hidden" is the share of it that is saved where collectives are in flight.

The prediction has two measurements: of collectives, by `memopt-run --describe-network`, and of computing, by
`memopt-compile --calibrate --ranks=N`, as all ranks share this machine's processors. Packages and what was measured stay in
--work, and a profile or a network that is there is taken. Measured is the fastest step, as the profile is that of an undisturbed machine; the
median of all steps but the first stands beside it, so that a machine that others use shows.
"""
import argparse
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile

import memopt_driver as driver
from memopt_driver import Failed, execute, median, tail
from shaped_hosts import Hosts

HEAD = ["ranks", "link", "stage", "overlap", "link measured, MB/s", "latency, us", "predicted s", "of it computing", "measured s", "median s", "off by %", "in memory s", "hidden %"]


class Runner:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.in_memory = {}  # seconds and losses, by ranks and stage
        self.tools = driver.Tools.find(arguments.bin, 1)
        self.plan = self.tools.compile.with_name("memopt-plan")

    def calibrate(self, ranks):
        """What ranks take to compute that share this machine's processors; all that is compiled from here on reads it."""
        profile = self.folder / f"profile.{ranks}.json"
        if not profile.exists():
            done = execute([self.tools.compile, f"--calibrate={profile}", f"--ranks={ranks}"])
            if done.code:
                raise Failed(f"memopt-compile --calibrate ends with {done.code}: {tail(done.errors)}")
        os.environ["MEMOPT_MACHINE_PROFILE"] = str(profile)

    def build(self, ranks, stage, overlap):
        package = self.folder / f"{ranks}.{stage}.{overlap}.memopt"
        self.tools.build(self.arguments.model, package,
                         [*self.arguments.options.split(), f"--ranks={ranks}", f"--zero-stage={stage}", f"--network={self.network}",
                          f"--overlap-collectives={overlap}", "--quiet"])
        return package

    def predict(self, package, ranks):
        """Seconds of a step, and of its computation, as the program was compiled: with what flies."""
        done = execute([self.plan, "ranks", package, f"--ranks={ranks}", f"--network={self.network}"])
        found = re.search(r"step (\S+) s, (\S+) s of it computing", done.output)
        if done.code or not found:
            raise Failed(f"memopt-plan ends with {done.code}: {tail(done.errors)}")
        with open(self.folder / "predictions.txt", "a") as file:
            print(package.name, self.network.read_text(), done.output, sep="\n", file=file)
        return float(found[1]), float(found[2])

    def start(self, hosts, places, *command):
        start = [*hosts.mpirun(self.folder / "agent.sh", places), *command]
        for _ in range(4):
            done = execute(start, timeout=self.arguments.timeout)
            if done.code != -signal.SIGKILL:
                break  # else its daemons have not found each other, as happens now and then
        if done.code:
            raise Failed(f"mpirun ends with {done.code}: {tail(done.errors)}")

    def run(self, hosts, places, *options):
        environment = ["env", f"MEMOPT_MPI_PLUGIN={self.arguments.plugin}"] if self.arguments.plugin else []
        self.start(hosts, places, *environment, self.tools.run, *options)

    def describe(self, hosts, places):
        """The rate of a host's link in bytes a second, and its latency in seconds: of gathers between hosts."""
        self.network = self.folder / f"network.{hosts.count}x{places}.{hosts.rate}.json"
        if not self.network.exists():
            self.run(hosts, places, f"--describe-network={self.network}")
        level = json.loads(self.network.read_text())["levels"][-1]
        return level["bytes_per_second"] * places, level["latency_seconds"]

    def measure(self, run, package):
        """The fastest step, the median of all but the first, and the losses."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        run(package, f"--data={self.arguments.data}", "--init=random", "--seed=1", f"--steps={self.arguments.steps}", "--quiet",
            f"--report={report}")
        found = json.loads(report.read_text())
        seconds = found["step_seconds"][1:]
        return min(seconds), median(seconds), found["losses"]

    def run_in_memory(self, ranks, *options):
        done = execute(["env", "OMP_NUM_THREADS=1", self.tools.run, *options, f"--ranks={ranks}"])
        if done.code:
            raise Failed(f"memopt-run ends with {done.code}: {tail(done.errors)}")

    def rows(self, placement, rate):
        count, _, places = placement.partition("x")
        count, places = int(count), int(places or 1)
        ranks = count * places
        self.calibrate(ranks)
        with Hosts(count, rate) as hosts:
            link, latency = self.describe(hosts, places)
            for stage in map(int, self.arguments.stages.split(",")):
                in_turn = None
                for overlap in sorted(self.arguments.overlap.split(",")):  # off comes first
                    package = self.build(ranks, stage, overlap)
                    predicted, computing = self.predict(package, ranks)
                    if (ranks, stage) not in self.in_memory:
                        self.in_memory[ranks, stage] = self.measure(functools.partial(self.run_in_memory, ranks), package)
                    in_memory, _, losses = self.in_memory[ranks, stage]
                    measured, typical, found = self.measure(functools.partial(self.run, hosts, places), package)
                    if found != losses:
                        raise Failed(f"stage {stage}: losses {found} are not those in memory, {losses}")
                    in_turn = measured if overlap == "off" else in_turn
                    hidden = "" if overlap == "off" or in_turn is None else f"{100 * (in_turn - measured) / (in_turn - in_memory):.0f}"
                    yield [placement, rate, str(stage), overlap, f"{link / 1e6:.1f}", f"{latency * 1e6:.0f}", f"{predicted:.3f}",
                           f"{computing:.3f}", f"{measured:.3f}", f"{typical:.3f}", f"{100 * (predicted / measured - 1):+.1f}", f"{in_memory:.3f}", hidden]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, nargs="?")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--ranks", default="2,4", help="hosts, or hosts x ranks of each")
    parser.add_argument("--rates", default="200mbit,1gbit", help="as tc writes them")
    parser.add_argument("--stages", default="0,3")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--overlap", default="on")
    parser.add_argument("--options", default="--optimizer=adamw")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--plugin", type=pathlib.Path, help="default: what memopt-run finds by itself")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run, which is then tried again")
    parser.add_argument("--work", type=pathlib.Path, help="default: a temporary folder")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    if os.geteuid() or not all(map(shutil.which, ("ip", "tc", "mpirun"))):
        parser.error("needs root, ip, tc and mpirun")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and no host stays behind
    if arguments.work:
        arguments.work.mkdir(parents=True, exist_ok=True)
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(arguments, arguments.work or pathlib.Path(folder))
        for ranks in arguments.ranks.split(","):
            for rate in arguments.rates.split(","):
                try:
                    for row in runner.rows(ranks, rate):
                        rows.append(row)
                        driver.show_progress(row)
                except Failed as failure:
                    failures.append(f"{ranks} ranks, {rate}: {failure}")
    driver.report(HEAD, rows, failures, arguments.json)


main()
