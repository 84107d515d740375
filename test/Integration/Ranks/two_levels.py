#!/usr/bin/env python3
"""two_levels.py FOLDER LAUNCHER...: four ranks train with the same bits on one host, on two and on four. Hosts are UTS namespaces of
this machine: processes of two names do not share memory. Ranks that leave, hang or are killed end all with one message."""
import json
import pathlib
import shutil
import sys
import tempfile

import launched_ranks
import named_hosts
import processes
from launched_ranks import expect, read_results
from named_hosts import PLACEMENTS, place

RANKS = 4


def check_bits(start, package, data, work):
    for stage, path in package.items():
        results, notices = {}, {}
        starts = {name: [*start, *place(host), "memopt-run", path] for name, host in PLACEMENTS.items()}
        starts["memory"] = ["memopt-run", path, f"--ranks={RANKS}"]
        for name, command in starts.items():
            folder = work / f"{name.replace(' ', '-')}{stage}"
            folder.mkdir()
            notices[name] = expect(processes.start(*command, data, "--steps=3", "--check-memory", f"--save={folder}/checkpoint",
                                                   f"--report={folder}/report.json"), 0)
            results[name] = read_results(folder)
            launched_ranks.check_bytes(folder)
        for name, result in results.items():
            assert [key for key in result if result[key] != results["memory"][key]] == [], (stage, name)
            assert "send each other messages" not in notices[name], (name, notices[name])


def check_losses(start, package, data, work):
    """The four processes, once they train."""

    def begin(*options):
        log, out = work / "processes", work / "out"
        for file in (log, out):
            file.write_text("")
        process = processes.start(*start, *place(PLACEMENTS["two"], log), "sh", "-c", f'exec "$@" >> {out}', "sh", "memopt-run",
                                  package, data, "--steps=100000000", *options)
        launched_ranks.wait_for_steps(process, out)
        return process, [int(line) for line in log.read_text().split()]

    launched_ranks.check_losses(begin, work, "waited 1 s for rank ")


def check_own_package(start, package, data, work):
    """A rank runs the package that its own command line names, and no place that another host names: here none sees the other's.
    Copies are compared with all that is in them."""
    for host in "01":
        shutil.copytree(package[0], work / host / "here.memopt")
    hide = f'unshare --mount sh -c \'mount -t tmpfs none {work}/$((1 - $1)) && cd {work}/$1 && shift && exec "$@"\' sh'
    own = ["sh", "-c", f'exec {hide} {PLACEMENTS["two"]} "$@"', "sh"]
    run = [*start, *place(PLACEMENTS["two"]), *own, "memopt-run", "here.memopt", data, "--steps=1", "--quiet"]
    expect(processes.start(*run), 0)
    with open(work / "1" / "here.memopt" / "program.so", "ab") as code:
        code.write(b" ")
    expect(processes.start(*run), 3, "the model of rank 2 is another file")


def check_network(start, work):
    """Ranks that share the memory of their host, as many on each, measure two levels."""
    for name, members in (("two", [2, None]), ("three and one", [None])):
        path = work / "network.json"
        expect(processes.start(*start, *place(PLACEMENTS[name]), "memopt-run", f"--describe-network={path}"), 0)
        levels = json.loads(path.read_text())["levels"]
        assert [level.get("members") for level in levels] == members, (name, levels)
        for level in levels:
            for link in (level, level["sums"]):
                assert link["latency_seconds"] >= 0 and link["bytes_per_second"] > 0, levels


def main():
    inputs, launcher = pathlib.Path(sys.argv[1]), sys.argv[2:]
    if not named_hosts.are_possible():
        print("no host names of their own here")
        return
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        data, package = launched_ranks.prepare(inputs, work, 8, (0, 3), RANKS)
        start = [*launcher, *named_hosts.get_options(launcher), "-n", RANKS]
        check_bits(start, package, data, work)
        check_losses(start, package[3], data, work)
        check_network(start, work)
        check_own_package(start, package, data, work)


main()
