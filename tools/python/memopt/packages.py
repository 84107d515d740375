# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled packages, kept by what they were compiled from.

The key is a digest of the model's archive, the options and the files that they name, the compiler with its libraries, the
processor and the instructions that runs are held to: whatever else changes, an equal key means an equal package. Weights are
not part of an archive here, so a model that has learnt something is not compiled again. An entry is a folder of $MEMOPT_CACHE
(default: ~/.cache/memopt), which may be deleted at any time:

    KEY/step.memopt     the package
    KEY/report.json     --report of memopt-compile; its time is that of the entry's last use

Packages hold native code, which is run: a cache that others own or may write to is refused. It keeps to
$MEMOPT_CACHE_BYTES (default: 4 GiB); entries that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .errors import BadInput, Unavailable
from .tools import describe_device, find_compiler, run_compiler

__all__ = ["CompiledPackage", "Program", "build_package", "find_device", "find_source_options"]


class CompiledPackage(NamedTuple):
    path: pathlib.Path
    report: dict  #: memopt-compile's --report, and its "remarks"
    was_cached: bool


def _find_cache() -> pathlib.Path:
    chosen = os.environ.get("MEMOPT_CACHE")
    if chosen:
        return pathlib.Path(chosen)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "memopt"


@functools.cache
def find_device() -> pathlib.Path:
    """A file with the description of the GPU at hand, which is in the cache by its content."""
    content, cache = describe_device(), _find_cache()
    path = cache / f"device-{hashlib.sha256(content).hexdigest()[:16]}.json"
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(cache)
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError as error:
        raise Unavailable(f"the cache of packages cannot be written: {error}; MEMOPT_CACHE names another folder") from error
    return path


def _check_owner(folder: pathlib.Path) -> None:
    """Refuses a folder whose content somebody else may have written."""
    facts = folder.stat()
    if facts.st_uid not in (os.geteuid(), 0):
        raise Unavailable(f"the cache of packages {folder} belongs to user {facts.st_uid}, and code from it is run; "
                          "MEMOPT_CACHE names a folder of your own")
    if facts.st_mode & 0o022:
        raise Unavailable(f"the cache of packages {folder} may be written by others (mode {facts.st_mode & 0o777:o}), and "
                          "code from it is run; empty it and take their right away (chmod go-w), or name another folder "
                          "by MEMOPT_CACHE")


def _get_limit() -> int:
    text = os.environ.get("MEMOPT_CACHE_BYTES") or str(4 << 30)
    if not text.isdecimal():
        raise BadInput(f"MEMOPT_CACHE_BYTES is the size of the cache, a number of bytes, not {text!r}")
    return int(text)


_BUILD_ID = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"  # head of the note, before the id's 20 bytes


def _identify_library(path: pathlib.Path) -> bytes:
    """The build id that the linker gave a library, which is a digest of it; without one the digest of its bytes."""
    with path.open("rb") as file:
        begin = file.read(1 << 13)
        place = begin.find(_BUILD_ID) + len(_BUILD_ID)
        if place >= len(_BUILD_ID) and place + 20 <= len(begin):
            return begin[place:place + 20]
        file.seek(0)
        return hashlib.sha256(file.read()).digest()


def _find_libraries(program: pathlib.Path) -> list[pathlib.Path]:
    """The shared libraries that the loader finds for a program, which is not run."""
    done = subprocess.run([str(program)], env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace")
    found = re.findall(r"=> (/.*) \(0x[0-9a-f]+\)$", done.stdout, re.MULTILINE)
    return [pathlib.Path(path) for path in sorted(found)]


@functools.cache
def _describe_compiler(path: pathlib.Path) -> bytes:
    """The compiler and its libraries, and what it asks of the machine by default: its processor and number of threads."""
    digest = hashlib.sha256(path.read_bytes())
    for library in _find_libraries(path):
        digest.update(_identify_library(library))
    try:
        facts = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        facts = []
    kept = [line for line in facts if line.split("\t")[0] in ("model name", "flags", "Features")]
    digest.update("\n".join([*kept, str(os.cpu_count())]).encode())
    return digest.digest()


#: What memopt-compile takes of NVIDIA's tools (lib/Support/Toolkit.cpp): the Python package's folder, and the file in it.
_TOOLKIT = (("cu13", "bin/ptxas"), ("cu13", "nvvm/libdevice/libdevice.10.bc"), ("cudnn", "lib/libcudnn.so.9"))


def _describe_toolkit(compiler: pathlib.Path) -> bytes:
    """NVIDIA's tools in all places where the compiler looks, and the variables that choose among these."""
    digest = hashlib.sha256(repr([os.environ.get(name) for name in ("CUDA_HOME", "MEMOPT_WITHOUT_CUDA")]).encode())
    python = compiler.parents[2]
    folders = [os.environ.get("CUDA_HOME"), os.path.dirname(os.path.dirname(shutil.which("ptxas") or "")), "/usr/local/cuda"]
    for package, file in _TOOLKIT:
        beside = [python / "nvidia" / package, *sorted(python.glob(f"venv/lib/*/site-packages/nvidia/{package}"))]
        for path in [*(folder / file for folder in beside), *(pathlib.Path(folder) / file for folder in folders if folder)]:
            if path.is_file():
                digest.update(str(path).encode() + _identify_library(path))
    return digest.digest()


def _read_named(text: str) -> bytes:
    """The content of a file that an option's value, or a part of it, names; nothing where it names none."""
    content = b""
    for name in dict.fromkeys([text, *text.split(",")]):
        if os.path.isfile(name):
            content += hashlib.sha256(pathlib.Path(name).read_bytes()).digest()
    return content


class Program(NamedTuple):
    """What one program of a package is compiled from."""

    name: str
    archive: bytes  #: a .pt2
    options: Sequence[str]
    optimizer: str = ""  #: whose state it has
    variables: Mapping[str, str] = {}  #: what its variables are called among all programs


def _make_key(programs: Sequence[Program], state: pathlib.Path | None) -> str:
    profile = os.environ.get("MEMOPT_MACHINE_PROFILE") or ""
    compiler = find_compiler()
    parts = [b"5", _describe_compiler(compiler), _read_named(profile), os.environ.get("MEMOPT_MAX_ISA", "").encode()]
    if state is not None:
        parts.append(json.loads((state / "manifest.json").read_text())["digest"].encode())
    if any("--target=cuda" in program.options for program in programs):
        parts.append(_describe_toolkit(compiler))
    for program in programs:
        parts += [program.name.encode(), program.archive, json.dumps(list(program.options)).encode(), program.optimizer.encode(),
                  json.dumps(dict(program.variables), sort_keys=True).encode()]
        parts += [_read_named(option.partition("=")[2] or option) for option in program.options]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _read_entry(entry: pathlib.Path) -> CompiledPackage | None:
    report = entry / "report.json"
    try:
        content = json.loads(report.read_text())
        _check_owner(entry)
        with contextlib.suppress(OSError):  # what is used stays
            os.utime(report)
    except Unavailable:
        raise
    except (OSError, ValueError):
        return None
    return CompiledPackage(entry / "step.memopt", content, True)


def find_source_options(archive: bytes) -> list[str]:
    """Options of memopt-compile for an archive that this process has written: the C source in it is the user's."""
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        has_c = any("extra/memopt_operators/" in name and name.endswith(".c") for name in members.namelist())
    return ["--c-sources=on"] if has_c else []


def _compile_into(folder: pathlib.Path, programs: Sequence[Program], state: pathlib.Path | None) -> None:
    models = [folder / f"step{number}.pt2" for number in range(len(programs))]
    for model, program in zip(models, programs):
        model.write_bytes(program.archive)
    listed = folder / "programs.json"
    listed.write_text(json.dumps({"programs": [{"name": program.name, "model": str(model), "options": [*program.options, *find_source_options(program.archive)],
                                                "optimizer": program.optimizer, "variables": dict(program.variables)} for model, program in zip(models, programs)]}))
    words = [f"--programs={listed}", "-o", str(folder / "step.memopt"), *([f"--state={state}"] if state is not None else [])]
    _, report = run_compiler(words, models)
    for path in (*models, listed):
        path.unlink()
    (folder / "report.json").write_text(json.dumps(report))


# ----------------------------------------------------------------------------------------------------------------------
# The folder
# ----------------------------------------------------------------------------------------------------------------------

_MAKING = ".compiling-"


def _try_lock(folder: pathlib.Path) -> tuple[int, bool]:
    """The open folder, and whether this process holds its lock now, which the system takes from one that ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return descriptor, False
    return descriptor, True


def _clear_leftovers(cache: pathlib.Path) -> None:
    """Removes what killed processes were about to compile."""
    for folder in cache.glob(_MAKING + "*"):
        with contextlib.suppress(OSError):
            lock, is_left = _try_lock(folder)
            if is_left:
                shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _make_folder(cache: pathlib.Path) -> tuple[pathlib.Path, int]:
    """A folder to compile in, and its lock, which says that somebody is there."""
    _clear_leftovers(cache)
    while True:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=_MAKING, dir=cache))
        try:
            lock, _ = _try_lock(folder)
        except FileNotFoundError:
            continue  # before it was locked somebody took it for a leftover
        if folder.exists():
            return folder, lock
        os.close(lock)


def _count_bytes(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _prune(cache: pathlib.Path, kept: pathlib.Path) -> None:
    """Removes the entries that were not used for longest, until the others keep to the limit.

    One that was used a moment ago may be about to be opened, and stays.
    """
    limit, now, entries = _get_limit(), time.time(), []
    for report in cache.glob("*/report.json"):
        with contextlib.suppress(OSError):
            entries.append((report.stat().st_mtime, report.parent, _count_bytes(report.parent)))
    total = sum(size for _, _, size in entries)
    for used, entry, size in sorted(entries):
        if total <= limit or now - used < 60:
            break
        if entry != kept:
            shutil.rmtree(entry, ignore_errors=True)
            total -= size


def build_package(programs: Sequence[Program], state: pathlib.Path | None = None) -> CompiledPackage:
    """The package of several programs, compiled unless it is there already; `state` is one whose state they have.

    It is made beside its place and moved there whole, so any number of processes may ask for the same one.
    """
    cache = _find_cache()
    entry = cache / _make_key(programs, state)
    _get_limit()
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(cache)
        found = _read_entry(entry)
        folder, lock = (None, None) if found else _make_folder(cache)
    except Unavailable:
        raise
    except OSError as error:
        raise Unavailable(f"the cache of packages cannot be written: {error}; MEMOPT_CACHE names another folder") from error
    if found:
        return found
    try:
        _compile_into(folder, programs, state)
        with contextlib.suppress(OSError):  # somebody else was faster
            folder.rename(entry)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
    compiled = _read_entry(entry)
    if compiled is None:
        raise Unavailable(f"the package in {entry} cannot be read; delete the folder")
    _prune(cache, entry)
    return compiled._replace(was_cached=False)
