# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls memopt-compile and memopt-run and reads what they write; the benchmarks beside it share this.

Needs the standard library only.
"""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

DOES_NOT_FIT = 2
MEBIBYTE = 1 << 20
DEVELOP_BUILD = pathlib.Path(__file__).resolve().parents[2] / "build" / "develop" / "bin"


class Failed(Exception):
    """A tool ended with an exit code that was not expected; the text is its last lines."""


ISAS = ("native", "avx2", "avx512")
# What keeps each side to AVX2. oneDNN, MKL and PyTorch read theirs when they are loaded, and inductor asks ATen's; MKL
# heeds its own on Intel's processors, and has no code for AVX-512 that runs on others.
AVX2_ENVIRONMENT = {"MEMOPT_MAX_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
                    "ATEN_CPU_CAPABILITY": "avx2", "TORCHINDUCTOR_CPP_MARCH": "x86-64-v3"}
AVX2_PROCESSOR = "x86-64-v3"


def processor_flags() -> set[str]:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":")[1].split())
    return set()


def hold_to(isa: str) -> list[str]:
    """Holds this program and all that it starts to an instruction set, and returns what memopt-compile is told of it.

    The program begins anew where libraries may have been loaded without the limit. Fails where the processor lacks what
    is asked for.
    """
    if isa == "native":
        return []
    if not {"avx2": "avx2", "avx512": "avx512f"}[isa] in processor_flags():
        raise Failed(f"--isa={isa}: this processor does not have it")
    if isa == "avx512":
        return []
    if any(os.environ.get(name) != value for name, value in AVX2_ENVIRONMENT.items()):
        os.environ.update(AVX2_ENVIRONMENT)
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)
    return [f"--target-features={AVX2_PROCESSOR}"]


@dataclasses.dataclass
class Finished:
    """A process that has ended."""

    code: int
    output: str
    errors: str
    peak_rss: int  # bytes
    seconds: float
    cpu_seconds: float  # of all its threads


def execute(command: list, threads: int | None = None, timeout: float = 3600) -> Finished:
    """Runs a command to its end; it is killed after `timeout` seconds, which its exit code then shows."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads)) if threads else None
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        before = time.monotonic()
        process = subprocess.Popen([str(part) for part in command], stdout=output, stderr=errors, env=environment)
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)  # unlike wait, it tells this child's own peak
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
        return Finished(process.returncode, *texts, usage.ru_maxrss * 1024, time.monotonic() - before,
                        usage.ru_utime + usage.ru_stime)


def tail(text: str, lines: int = 3) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


@dataclasses.dataclass
class Tools:
    """memopt-compile and memopt-run of one build."""

    compile: pathlib.Path
    run: pathlib.Path
    threads: int

    @staticmethod
    def find(folder: pathlib.Path | None, threads: int) -> Tools:
        """The tools in `folder`; without one, those on PATH, then those of this source tree's own build."""
        if folder is None:
            on_path = shutil.which("memopt-compile")
            folder = pathlib.Path(on_path).parent if on_path else DEVELOP_BUILD
        tools = Tools(folder / "memopt-compile", folder / "memopt-run", threads)
        for tool in (tools.compile, tools.run):
            if not tool.is_file():
                raise Failed(f"{tool}: no such file; build memopt or name its folder with --bin")
        return tools

    def build(self, model: pathlib.Path, package: pathlib.Path, options: list[str],
              budget: int | None = None) -> Package:
        """Compiles; raises Failed, whose text says why, when that does not end with a package."""
        command = [self.compile, model, "-o", package, f"--run-threads={self.threads}", *options]
        done = execute(command + ([f"--device-memory={budget}"] if budget is not None else []))
        if done.code:
            raise Failed(f"memopt-compile ends with {done.code}: {tail(done.errors)}")
        return Package(package, budget, done.seconds)

    def smallest_budget(self, model: pathlib.Path, package: pathlib.Path, options: list[str]) -> int:
        """The smallest budget that would do, as the refusal of one byte names it; `package` is not written."""
        done = execute([self.compile, model, "-o", package, f"--run-threads={self.threads}", *options,
                        "--device-memory=1"])
        named = re.search(r"smallest budget that would do is (\d+)", done.errors)
        if done.code != DOES_NOT_FIT or not named:
            raise Failed(f"memopt-compile with a budget of 1 byte ends with {done.code} and names no smallest "
                         f"budget: {tail(done.errors)}")
        return int(named[1])

    def train(self, package: Package, options: list, report: pathlib.Path) -> dict:
        """Runs a package and returns its report, with `peak_rss` of the process in bytes beside."""
        done = execute([self.run, package.path, "--quiet", f"--report={report}", *options], self.threads)
        if done.code:
            raise Failed(f"memopt-run ends with {done.code}: {tail(done.errors)}")
        return {**json.loads(report.read_text()), "peak_rss": done.peak_rss}


@dataclasses.dataclass
class Package:
    """What a compilation wrote."""

    path: pathlib.Path
    budget: int | None
    compile_seconds: float

    def manifest(self) -> dict:
        return json.loads((self.path / "manifest.json").read_text())

    def arena(self) -> int:
        return self.manifest()["arena_bytes"]["device"]

    def predicted_seconds(self) -> float | None:
        """The cost model's sum over the instructions; None where the package does not say."""
        seconds = [instruction.get("predicted_seconds") for instruction in self.manifest()["instructions"]]
        return None if not seconds or None in seconds else sum(seconds)

    def recomputed(self) -> int:
        return sum(1 for instruction in self.manifest()["instructions"] if instruction.get("clone"))


def spread(high: int, low: int, count: int) -> list[int]:
    """`count` budgets from `high` down to `low`, both among them, evenly spaced."""
    return [high - (high - low) * i // (count - 1) for i in range(count)]


def median(values: list[float]) -> float:
    return statistics.median(values)


def mib(size: int | None) -> str:
    return "-" if size is None else f"{size / MEBIBYTE:.2f}" if size < 100 * MEBIBYTE else f"{size / MEBIBYTE:.0f}"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f}"


def markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join([markdown_row(head), "|" + "---|" * len(head), *map(markdown_row, rows)])


def show_progress(row: list[str]):
    """A row of the table as soon as it is there: a run that is stopped has shown what it had."""
    print(markdown_row(row), file=sys.stderr, flush=True)


def report(head, rows, failures, path=None, records=None):
    """Prints the table and what failed, writes both, or `records`, to `path` if there is one, and ends the process: 1 on
    failures."""
    print(markdown(head, rows))
    for text in failures:
        print(f"FAILED {text}")
    if path:
        written = {"head": head, "rows": rows, "failures": failures} if records is None else records
        path.write_text(json.dumps(written, indent=1) + "\n")
    sys.exit(bool(failures))
