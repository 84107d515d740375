# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds memopt's tools and runs the compiler, as a child process.

The tools are looked for in the folder that $MEMOPT_BIN names, on $PATH, and in the builds of the source tree that this
package lies in. The runtime's library lies beside them, in `../lib`.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from .errors import BadInput, DoesNotFit, Error, Unavailable
from .keywords import write_options_as_keywords

__all__ = ["find_compiler", "find_library", "run_compiler"]

_log = logging.getLogger("memopt")


@functools.cache
def find_compiler() -> pathlib.Path:
    """The path of memopt-compile, without links."""
    chosen = os.environ.get("MEMOPT_BIN")
    if chosen:
        candidates = [os.path.join(chosen, "memopt-compile")]
    else:
        tree = pathlib.Path(__file__).resolve().parents[3]
        candidates = [shutil.which("memopt-compile"), *(tree / f"build/{preset}/bin/memopt-compile"
                                                        for preset in ("release", "develop"))]
    for path in candidates:
        if path and os.access(path, os.X_OK):
            return pathlib.Path(path).resolve()
    where = f"in MEMOPT_BIN={chosen}" if chosen else "on PATH"
    raise Unavailable(f"there is no memopt-compile {where}; set MEMOPT_BIN to the folder with memopt's tools, such as "
                      "build/release/bin")


def find_library() -> pathlib.Path:
    """The path of the runtime's library, of the same build as the compiler."""
    folder = find_compiler().parent
    for path in (folder.parent / "lib/libmemopt_runtime.so", folder / "libmemopt_runtime.so"):
        if path.exists():
            return path
    raise Unavailable(f"there is no libmemopt_runtime.so in {folder.parent / 'lib'}; build or install all of memopt")


def _start(command: Sequence[str]) -> tuple[int, str, str]:
    """Runs a command to its end. An interrupt ends it, too, wherever it was sent, and so does the end of this process."""
    environment = {**os.environ, "MEMOPT_PARENT": str(os.getpid())}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors="replace") as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            raise
    return process.returncode, out, err


def run_compiler(arguments: Sequence[str]) -> tuple[str, dict]:
    """Runs memopt-compile; what it printed, and its --report. A failure is raised as the exception of its kind."""
    with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
        path = pathlib.Path(folder) / "report.json"
        code, out, err = _start([str(find_compiler()), *arguments, f"--report={path}"])
        report = json.loads(path.read_text()) if path.exists() else {}
    if code == 0:
        for line in err.splitlines():
            _log.info(line)
        return out, {**report, "remarks": [line for line in err.splitlines() if "remark: " in line]}
    raise _make_error(code, err, report, arguments[0])


_ERROR = "memopt-compile: error: "


def _make_error(code: int, err: str, report: dict, model: str) -> Error:
    """The failure in the caller's words: of the model's file, which is not the caller's, nothing is said."""
    folder = os.path.dirname(model)
    text = write_options_as_keywords(err.replace(f"{model}: ", "").replace(model, "the model").replace(f"{folder}{os.sep}", ""))
    lines = text.splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith(_ERROR)]
    if not starts:
        ended = f"code {code}" if code >= 0 else f"signal {-code}"
        return Error(f"memopt-compile ended with {ended}", text.strip())
    message = lines.pop(starts[-1]).removeprefix(_ERROR)
    details = "\n".join(line for line in lines[starts[-1]:] + lines[:starts[-1]] if line.strip())
    if code == 2 and report:
        return DoesNotFit(message, details, report)
    return {1: BadInput, 3: Unavailable}.get(code, Error)(message, details)
