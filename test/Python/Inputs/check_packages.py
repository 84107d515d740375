# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_packages.py ARCHIVE FOLDER: who may fill the cache, what its keys are made of and how large it becomes; packages
that are replaced while sessions of them are open; checkpoints that are cut while they are read."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy

import memopt
from memopt import packages, tools

archive, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
cache = folder / "cache"
os.environ["MEMOPT_CACHE"] = str(cache)
rng = numpy.random.default_rng(0)
batch = (rng.random((64, 1, 28, 28), dtype=numpy.float32), rng.integers(0, 10, 64))


def make_key(options):
    return packages._make_key([packages.Program("step", b"", options)], None)


def build(*options):
    return packages.build_package([packages.Program("step", archive.read_bytes(), ["--optimizer=sgd", *options])])


def refuses(kind, parts, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        assert all(part in error.message for part in parts), error.message
        return
    raise AssertionError(f"{function} refuses nothing, expected {parts}")


def train(session):
    return [session.run_step([batch]) or session.read_scalar("loss") for _ in range(3)]


# Whoever may write to the cache could run code as its owner.
entry = build().path.parent
for changed in (cache, entry):
    mode = changed.stat().st_mode & 0o777
    for bits in (0o020, 0o002):
        changed.chmod(mode | bits)
        refuses(memopt.Unavailable, [str(changed), "may be written by others", "chmod go-w"], build)
    changed.chmod(mode)
if os.geteuid() == 0:
    os.chown(cache, 65534, 65534)
    refuses(memopt.Unavailable, [str(cache), "belongs to user 65534", "MEMOPT_CACHE"], build)
    os.chown(cache, 0, 0)
assert build().was_cached

# What a file holds that an option names, and what the compiler is, are part of the key.
profile = folder / "profile.json"
keys = set()
for content in ("{}", "[]"):
    profile.write_text(content)
    keys |= {make_key([f"--machine-profile={profile}"]), make_key([f"--a=b,{profile}"])}
    os.environ["MEMOPT_MACHINE_PROFILE"] = str(profile)
    keys.add(make_key([]))
    del os.environ["MEMOPT_MACHINE_PROFILE"]
assert len(keys) == 6, keys
# So are the instructions that the run is held to: workspaces follow from them.
os.environ["MEMOPT_MAX_ISA"] = "avx2"
held = make_key([])
del os.environ["MEMOPT_MAX_ISA"]
assert make_key([]) == make_key([]) != held
libraries = packages._find_libraries(tools.find_compiler())
assert any(path.name.startswith("libc.so") for path in libraries), libraries
one, other = folder / "one.so", folder / "other.so"
one.write_bytes(b"1"), other.write_bytes(b"2")
assert packages._identify_library(one) != packages._identify_library(other)

toolkit = folder / "toolkit/bin/ptxas"
toolkit.parent.mkdir(parents=True)
keys = {make_key(["--target=cuda"])}
os.environ["CUDA_HOME"] = str(folder / "toolkit")
for content in (b"1", b"2"):
    toolkit.write_bytes(content)
    keys.add(make_key(["--target=cuda"]))
del os.environ["CUDA_HOME"]
assert len(keys) == 3, keys

# The cache keeps to its size: what was not used for longest goes, and nothing that was used a moment ago.
second = build("--lr=0.5").path.parent
os.environ["MEMOPT_CACHE_BYTES"] = "1"
build("--lr=0.25")
assert entry.exists() and second.exists()
for age, used in ((300, entry), (200, second)):
    os.utime(used / "report.json", (time.time() - age,) * 2)
os.environ["MEMOPT_CACHE_BYTES"] = str(packages._count_bytes(second) * 3 + 1000)
assert build("--lr=0.125").path.exists() and not entry.exists() and second.exists()
os.environ["MEMOPT_CACHE_BYTES"] = "much"
refuses(memopt.BadInput, ["MEMOPT_CACHE_BYTES", "'much'"], build)
del os.environ["MEMOPT_CACHE_BYTES"]

# A process that is killed leaves nothing for ever, and no compiler at work.
child = subprocess.Popen([sys.executable, "-c", "import memopt.packages as p, sys, pathlib\n"
                          "p.build_package([p.Program('step', pathlib.Path(sys.argv[1]).read_bytes(), ['--lr=0.3'])])", str(archive)])
while not list(cache.glob(".compiling-*/step0.pt2")):
    time.sleep(0.001)
child.send_signal(signal.SIGKILL)
child.wait()
assert list(cache.glob(".compiling-*"))
live = pathlib.Path(tempfile.mkdtemp(prefix=".compiling-", dir=cache))
lock, is_locked = packages._try_lock(live)
assert is_locked
build("--lr=0.4")
assert list(cache.glob(".compiling-*")) == [live]
os.close(lock)

# A package that is compiled again while it is open: each session runs its own.
package = folder / "p.memopt"


def compile_again(*options):
    tools.run_compiler([str(archive), "-o", str(package), *options])


compile_again("--optimizer=sgd", "--lr=0.1")
first = memopt.Session(package)
compile_again("--optimizer=adamw", "--lr=0.01", "--batch=32")
half = (batch[0][:32], batch[1][:32])
second = memopt.Session(package)
assert first.manifest["digest"] != second.manifest["digest"] == json.loads((package / "manifest.json").read_text())["digest"]
second.initialize(), first.initialize()
assert len(set(train(first))) == 3
second.run_step([half])
refuses(memopt.BadInput, ["expected f32[32"], second.run_step, [batch])
compile_again("--optimizer=sgd", "--lr=0.1")
with memopt.Session(package) as third:
    assert third.manifest["digest"] == first.manifest["digest"], "the same input and options give the same package"
    first.initialize(), third.initialize()
    assert train(third) == train(first)

# Files of two packages are refused, whichever was exchanged.
mixed = folder / "mixed.memopt"
tools.run_compiler([str(archive), "-o", str(folder / "q.memopt"), "--optimizer=adamw"])
for name in ("program.so", "weights.safetensors", "manifest.json"):
    shutil.rmtree(mixed, ignore_errors=True)
    shutil.copytree(package, mixed)
    shutil.copy(folder / "q.memopt" / name, mixed / name)
    refuses(memopt.BadInput, ["mixed.memopt", "of package", "mixes files of two packages"], lambda: memopt.Session(mixed).initialize())

# A checkpoint that somebody cuts while it is read is a failure, and not the end of the process.
first.save(folder / "run")
size = (folder / "run/model.safetensors").stat().st_size
for delay in (0, 0.0005, 0.001, 0.002, 0.005):
    shutil.rmtree(folder / "cut", ignore_errors=True)
    shutil.copytree(folder / "run", folder / "cut")
    child = os.fork()
    if child == 0:
        time.sleep(delay)
        os.truncate(folder / "cut/model.safetensors", size // 2)
        os._exit(0)
    try:
        first.load(folder / "cut")
    except memopt.Error as error:
        assert "model.safetensors" in error.message, error.message
    os.waitpid(child, 0)
first.load(folder / "run")
