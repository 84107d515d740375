#!/usr/bin/env python3
"""killed_while_compiling.py FIXTURE FOLDER: kills memopt-run while its memopt-compile is at work, with a package that is
kept and with one that is not; two runs that compile into one folder at once each run their own package."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

fixture, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
temporary, kept = folder / "tmp", folder / "kept"
temporary.mkdir(), kept.mkdir()


def start(*options):
    command = ["memopt-run", fixture / "model.pt2", f"--data={fixture}/inputs.safetensors", "--steps=2", "--quiet", *options]
    return subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)


def finish(process):
    errors = process.communicate()[1]
    assert process.returncode == 0, errors


def children(process):
    return pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()


def is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited a minute"
        time.sleep(0.001)


def kill_while_compiling(place, *options):
    """Kills a run when its compiler is there and what it makes lies at a place."""
    process = start(*options)
    wait_for(lambda: process.poll() is not None or children(process.pid) and list_all(place))
    compilers = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert compilers, "the run ended before it was killed"
    wait_for(lambda: not any(map(is_alive, compilers)))


def list_all(place):
    return sorted(path.name for path in place.iterdir())


kill_while_compiling(temporary)
assert list_all(temporary)
finish(start())
assert not list_all(temporary), list_all(temporary)

package = kept / "p.memopt"
kill_while_compiling(kept, "-o", package)
assert [name for name in list_all(kept) if name.startswith(".memopt-making-")], list_all(kept)
finish(start("-o", package))
assert list_all(kept) == ["p.memopt"] and not list_all(temporary), (list_all(kept), list_all(temporary))

options = {name: [f"--optimizer={name}", f"--report={folder}/{name}.json"] for name in ("sgd", "adamw")}
for words in options.values():
    finish(start(*words))
alone = {name: json.loads((folder / f"{name}.json").read_text())["losses"] for name in options}
assert alone["sgd"] != alone["adamw"]
for _ in range(2):
    for process in [start(*words, "-o", package) for words in options.values()]:
        finish(process)
    for name in options:
        assert json.loads((folder / f"{name}.json").read_text())["losses"] == alone[name], name
assert list_all(kept) == ["p.memopt"]
