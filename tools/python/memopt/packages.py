# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled packages, kept by what they were compiled from.

The key is a digest of the model's archive, the options, the compiler and the processor: whatever else changes, an
equal key means an equal package. Weights are not part of an archive here, so a model that has learnt something is not
compiled again. An entry is a folder of $MEMOPT_CACHE (default: ~/.cache/memopt), which may be deleted at any time:

    KEY/step.memopt     the package
    KEY/report.json     --report of memopt-compile

Packages hold native code, which is run: the cache is its owner's alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from .errors import Unavailable
from .tools import find_compiler, run_compiler

__all__ = ["CompiledPackage", "build_package"]


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
def _describe_compiler(path: pathlib.Path) -> bytes:
    """The compiler's bytes, and what it asks of the machine by default: its processor and number of threads."""
    digest = hashlib.sha256(path.read_bytes())
    try:
        facts = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        facts = []
    kept = [line for line in facts if line.split("\t")[0] in ("model name", "flags", "Features")]
    digest.update("\n".join([*kept, str(os.cpu_count())]).encode())
    return digest.digest()


def _make_key(archive: bytes, options: Sequence[str]) -> str:
    profile = os.environ.get("MEMOPT_MACHINE_PROFILE")
    parts = [b"2", archive, json.dumps(list(options)).encode(), _describe_compiler(find_compiler()),
             pathlib.Path(profile).read_bytes() if profile and os.path.exists(profile) else b""]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _read_entry(entry: pathlib.Path) -> CompiledPackage | None:
    try:
        return CompiledPackage(entry / "step.memopt", json.loads((entry / "report.json").read_text()), True)
    except (OSError, ValueError):
        return None


def _compile_into(folder: pathlib.Path, archive: bytes, options: Sequence[str]) -> None:
    model = folder / "step.pt2"
    model.write_bytes(archive)
    _, report = run_compiler([str(model), "-o", str(folder / "step.memopt"), *options])
    model.unlink()
    (folder / "report.json").write_text(json.dumps(report))


def build_package(archive: bytes, options: Sequence[str]) -> CompiledPackage:
    """The package of a model's archive, compiled unless it is there already.

    It is made beside its place and moved there whole, so any number of processes may ask for the same one.
    """
    cache = _find_cache()
    entry = cache / _make_key(archive, options)
    found = _read_entry(entry)
    if found:
        return found
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = pathlib.Path(tempfile.mkdtemp(prefix=".compiling-", dir=cache))
    except OSError as error:
        raise Unavailable(f"the cache of packages cannot be written: {error}; MEMOPT_CACHE names another folder") from error
    try:
        _compile_into(folder, archive, options)
        try:
            folder.rename(entry)
        except OSError:
            pass  # somebody else was faster
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    compiled = _read_entry(entry)
    if compiled is None:
        raise Unavailable(f"the package in {entry} cannot be read; delete the folder")
    return compiled._replace(was_cached=False)
