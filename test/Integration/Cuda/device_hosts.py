#!/usr/bin/env python3
"""device_hosts.py FOLDER DEVICE.json LAUNCHER...: four ranks, each on an emulated device of its own, train with the same bits on one host and
on several. A rank that is killed, hangs or is told to stop ends all, and no race is on any device."""
import pathlib
import sys
import tempfile

import launched_ranks
import named_hosts
import processes
from launched_ranks import expect, read_results
from named_hosts import PLACEMENTS, place

RANKS = 4
RUN = ["memopt-emulate", "memopt-run"]


def check_bits(start, packages, data, work):
    for stage, package in packages.items():
        results = {}
        starts = {name: [*start, *place(host), *RUN, package, *transport]
                  for name, host, transport in (("two", PLACEMENTS["two"], []), ("four", PLACEMENTS["four"], []),
                                                ("messages", PLACEMENTS["two"], ["--transport=mpi"]))}
        starts["memory"] = [*RUN, package, f"--ranks={RANKS}"]
        for name, command in starts.items():
            folder = work / f"{name}{stage}"
            folder.mkdir()
            expect(processes.start(*command, data, "--device=cuda", "--steps=3", "--check-memory", f"--save={folder}/checkpoint",
                                   f"--report={folder}/report.json"), 0)
            results[name] = read_results(folder)
            launched_ranks.check_bytes(folder)
        for name, result in results.items():
            assert [key for key in result if result[key] != results["memory"][key]] == [], (stage, name)


def check_losses(start, package, data, work):
    def begin(*options):
        log, out = work / "processes", work / "out"
        for file in (log, out):
            file.write_text("")
        # memopt-emulate is another process than the rank.
        process = processes.start(*start, *place(PLACEMENTS["two"]), "memopt-emulate", "sh", "-c",
                                  f'echo $$ >> {log}; exec memopt-run "$@" >> {out}', "sh", package, data, "--device=cuda",
                                  "--steps=100000000", *options)
        launched_ranks.wait_for_steps(process, out)
        return process, [int(line) for line in log.read_text().split()]

    launched_ranks.check_losses(begin, work, "waited 1 s for rank ")


def main():
    inputs, device, launcher = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if not named_hosts.are_possible():
        print("no host names of their own here")
        return
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        data, packages = launched_ranks.prepare(inputs, work, 8, (0, 3), RANKS, "--target=cuda", f"--target-features={device}")
        start = [*launcher, *named_hosts.get_options(launcher), "-n", RANKS]
        check_bits(start, packages, data, work)
        check_losses(start, packages[3], data, work)


main()
