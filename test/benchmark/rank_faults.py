#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kills, stops and ends ranks at random moments of a run, and cuts links, and looks at what is left.

    rank_faults.py PACKAGE.memopt --data FILE [--rounds 10] [--seed 1] [--transports shared,launched,mpi,mpi2x2,mpi3+1,ucx,...]
                   [--bin BIN] [--timeout 25]

PACKAGE is compiled for four ranks. A run saves after each step. Once it trains, one rank is killed (SIGKILL), stopped (SIGSTOP)
or asked to end (SIGTERM); or the link of one of two hosts is taken down. Then the run must end within --timeout seconds, with the
code for it and one message of memopt-run's at most (where a link is cut, on each side); no process of ours may be left, nor
anything in the folder of the checkpoint but the checkpoint, from which a run must go on. (Where a link is cut Open MPI's own
processes stay, and are not looked at.) Needs root and Linux; Open MPI, UCX and iproute2 for those that use them. Prints a
row for each transport and fault; the exit code is 1 if a run did not end as it should.
"""
import argparse
import collections
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import memopt_driver as driver
from shaped_hosts import Hosts

RANKS = 4
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
SUPPORT = pathlib.Path(__file__).resolve().parent.parent / "support"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS)]
UCX = [sys.executable, str(SUPPORT / "start_ranks.py"), "-n", str(RANKS)]


def place(ranks):
    """Puts so many ranks on the first host, and the others on a second one."""
    return ["sh", "-c", "r=${OMPI_COMM_WORLD_RANK:-$RANK}; OMPI_COMM_WORLD_LOCAL_SIZE=2 exec unshare --uts sh -c 'hostname host$0; exec \"$@\"'"
            f" $((r / {ranks})) \"$@\"", "sh"]


STARTS = {"shared": ([], [f"--ranks={RANKS}"]), "launched": (MPIRUN, []), "mpi": (MPIRUN, ["--transport=mpi"]),
          "mpi2x2": ([*MPIRUN, *place(2)], []), "mpi3+1": ([*MPIRUN, *place(3)], []), "ucx": (UCX, ["--transport=ucx"]),
          "ucx2x2": ([*UCX, *place(2)], []), "ucx3+1": ([*UCX, *place(3)], [])}


class Wrong(Exception):
    pass


def find_processes(mark):
    """Those of a run, which its folder tells from all others."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if entry.name.isdigit() and any(mark.encode() in word for word in words):
            found[int(entry.name)] = pathlib.Path(os.fsdecode(words[0])).name
    return found


def find_ranks(mark):
    """memopt-run's processes that have no children: where one forks ranks, those are meant."""
    ours = [process for process, name in find_processes(mark).items() if name == "memopt-run"]
    parents = set()
    for process in ours:
        try:
            parents.add(int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]))
        except OSError:
            pass
    return [process for process in ours if process not in parents]


class Drill:
    def __init__(self, arguments, folder):
        self.arguments, self.folder, self.count = arguments, folder, 0
        self.run_tool = driver.Tools.find(arguments.bin, 1).run
        self.random = random.Random(arguments.seed)

    def begin(self, transport, hosts):
        self.count += 1
        work = self.folder / f"run{self.count}"
        work.mkdir()
        (work / "lines").write_text("")
        command = [self.run_tool, self.arguments.package, f"--data={self.arguments.data}", f"--save={work}/checkpoint", "--save-every=1",
                   "--init=random", "--steps=1000000", "--rank-timeout=2"]
        if transport == "cut-mpi":
            start = hosts.mpirun(work / "agent.sh", RANKS // hosts.count)
        elif transport == "cut-ucx":
            start = hosts.torchrun(RANKS // hosts.count, 29500)
        else:
            start, options = STARTS[transport]
            command += options
        with open(work / "out", "wb") as out, open(work / "err", "wb") as err:
            write = ["sh", "-c", f'exec "$@" >> {work}/lines', "sh"]  # an MPI gives ranks a terminal, on which no lines stand
            process = subprocess.Popen([*map(str, start), *write, *map(str, command)], stdout=out, stderr=err, start_new_session=True,
                                       env=dict(os.environ, OMP_NUM_THREADS="1"))
        return process, work

    def wait_for_steps(self, process, work):
        begin = time.monotonic()
        while "step 3/" not in (work / "lines").read_text():
            if process.poll() is not None or time.monotonic() - begin > 60:
                raise Wrong(f"does not train: {(work / 'err').read_text()[-500:]}")
            time.sleep(0.02)
        time.sleep(self.random.uniform(0, 0.5))

    def strike(self, fault, work, hosts):
        if fault == "cut":
            return hosts.cut(hosts.count - 1)
        ranks = find_ranks(str(work))
        if len(ranks) != RANKS:
            raise Wrong(f"{len(ranks)} ranks")
        os.kill(self.random.choice(sorted(ranks)), SIGNALS[fault])

    def check(self, fault, transport, code, work):
        said = [line for line in (work / "err").read_text().splitlines() if "memopt-run: error: " in line]
        # Where a launcher ends all, its code and its words are what there is.
        wanted = {"term": [5], "stop": [3]}.get(fault, [3] if transport in ("shared", "launched") else None)
        if wanted and code not in wanted or code == 0:
            raise Wrong(f"code {code}: {said}")
        if len(said) > (2 if fault == "cut" else 1) or (wanted and len(said) != 1):
            raise Wrong(f"{len(said)} messages: {said}")
        done = driver.execute([self.run_tool, self.arguments.package, f"--data={self.arguments.data}", f"--load={work}/checkpoint", f"--save={work}/checkpoint",
                               f"--ranks={RANKS}", "--steps=1", "--quiet"], threads=1, timeout=60)
        if done.code:
            raise Wrong(f"the checkpoint: {driver.tail(done.errors)}")
        # What a process that was killed could not clear away, the next run does.
        left = [name for name in os.listdir(work / "checkpoint") if name.startswith(".") and name != ".lock"]
        if left:
            raise Wrong(f"left behind: {left}")

    def wait(self, process, fault, work):
        """The exit code; none where the launcher does not see that all have ended."""
        if fault != "cut":
            return process.wait(self.arguments.timeout)
        begin = time.monotonic()
        while "memopt-run" in find_processes(str(work)).values():
            if time.monotonic() - begin > self.arguments.timeout:
                raise subprocess.TimeoutExpired(process.args, self.arguments.timeout)
            time.sleep(0.05)
        return None

    def strike_once(self, transport, fault, hosts):
        process, work = self.begin(transport, hosts)
        try:
            self.wait_for_steps(process, work)
            before = time.monotonic()
            self.strike(fault, work, hosts)
            try:
                code = self.wait(process, fault, work)
            except subprocess.TimeoutExpired:
                states = [f"{name} {pathlib.Path(f'/proc/{process}/stat').read_text().split()[2]}"
                          for process, name in find_processes(str(work)).items()]
                raise Wrong(f"has not ended: {states}, {(work / 'err').read_text()[-300:]}") from None
            while fault != "cut" and (left := find_processes(str(work))) and time.monotonic() - before < self.arguments.timeout:
                time.sleep(0.05)
            seconds = time.monotonic() - before
            if fault != "cut" and left:
                raise Wrong(f"processes are left: {left}")
            self.check(fault, transport, code, work)
            return seconds
        finally:
            for left in find_processes(str(work)):
                try:
                    os.kill(left, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transports", default=",".join([*STARTS, "cut-mpi", "cut-ucx"]))
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=25)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and nothing of the drill stays behind
    rows, failures = [], []
    with tempfile.TemporaryDirectory(prefix="rank-faults-") as folder:
        drill = Drill(arguments, pathlib.Path(folder))
        for transport in arguments.transports.split(","):
            for fault in ["cut"] if transport.startswith("cut") else SIGNALS:
                ends = collections.defaultdict(int)
                taken = [0.0]
                for number in range(arguments.rounds):
                    try:
                        if transport.startswith("cut"):
                            with Hosts(2, "1gbit") as hosts:
                                taken.append(drill.strike_once(transport, fault, hosts))
                        else:
                            taken.append(drill.strike_once(transport, fault, None))
                        ends["right"] += 1
                    except (Wrong, driver.Failed) as wrong:
                        failures.append(f"{transport}, {fault}, {number}: {wrong}")
                        print(failures[-1], file=sys.stderr, flush=True)
                rows.append([transport, fault, str(arguments.rounds), str(ends["right"]), f"{max(taken):.1f}"])
                print(rows[-1], file=sys.stderr, flush=True)
    driver.report(["transport", "fault", "runs", "ended as they should", "longest, s"], rows, failures, None)


main()
