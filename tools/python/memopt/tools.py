# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds memopt's tools and runs the compiler, as a child process.

The tools are looked for in the folder that $MEMOPT_BIN names, in this package, where wheels put them (`bin` and `lib`), on
$PATH, and in the builds of the source tree that this package lies in. The runtime's library lies beside them, in `../lib`.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from .errors import BadInput, DoesNotFit, Error, Unavailable

__all__ = ["describe_device", "find_compiler", "find_library", "find_tool", "run_compiler"]

_log = logging.getLogger("memopt")
_OPTION = re.compile(r"(?<![\w/.-])--?([a-z][a-z0-9-]*)(=?)")


#: The library's name, with the version of the C interface in a folder that programs are not linked from.
_LIBRARIES = ("libmemopt_runtime.so", "libmemopt_runtime.so.2")


def _list_folders() -> Iterator[pathlib.Path]:
    """Where tools may lie, the preferred place first."""
    chosen = os.environ.get("MEMOPT_BIN")
    if chosen:
        yield pathlib.Path(chosen)
        return
    package = pathlib.Path(__file__).resolve().parent
    yield package / "bin"
    for folder in map(pathlib.Path, os.get_exec_path()):
        for tool in ("memopt-compile", "memopt-run"):
            if os.access(folder / tool, os.X_OK) and not _is_script(folder / tool):
                yield (folder / tool).resolve().parent
                break
    for preset in ("release", "develop"):
        yield package.parents[2] / "build" / preset / "bin"


def _is_script(path: pathlib.Path) -> bool:
    """Whether it is what pip makes of `start_tool`, of this package or of one elsewhere."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def _describe_search() -> str:
    chosen = os.environ.get("MEMOPT_BIN")
    return f"in MEMOPT_BIN={chosen}" if chosen else "in this package and on PATH"


@functools.cache
def find_tool(name: str) -> pathlib.Path:
    """The path of a tool, without links."""
    for folder in _list_folders():
        if os.access(folder / name, os.X_OK):
            return (folder / name).resolve()
    raise Unavailable(f"there is no {name} {_describe_search()}; install the compiler (pip install memopt[compiler]), or set "
                      "MEMOPT_BIN to the folder with memopt's tools, such as build/release/bin")


def find_compiler() -> pathlib.Path:
    """The path of memopt-compile, without links."""
    return find_tool("memopt-compile")


def find_library() -> pathlib.Path:
    """The path of the runtime's library, of the same build as the tools."""
    searched = []
    for folder in _list_folders():
        if not any((folder / tool).exists() for tool in ("memopt-compile", "memopt-run")):
            continue
        searched.append(folder.resolve().parent / "lib")
        for place in (searched[-1], folder.resolve()):
            for name in _LIBRARIES:
                if (place / name).exists():
                    return place / name
    where = f"in {searched[0]}" if searched else f"and no tool of memopt {_describe_search()}"
    raise Unavailable(f"there is no libmemopt_runtime.so {where}; build or install all of memopt")


def start_tool() -> None:
    """Becomes the tool of the name that this program was started by: what the commands of an installed package do."""
    name = os.path.basename(sys.argv[0])
    try:
        # The compiler's tools may be one program, which goes by its name: wheels hold no links.
        program = find_tool(name if name == "memopt-run" else "memopt-compile")
        named = program.with_name(name)
        os.execv(named if named.exists() else program, [str(named), *sys.argv[1:]])
    except (Unavailable, OSError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        sys.exit(3)


def _write_options_as_keywords(text: str) -> str:
    """A text about options of memopt-compile (`--device-memory`) as one about keywords (`device_memory=`)."""
    return _OPTION.sub(lambda found: found[1].replace("-", "_") + "=", text)


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


def run_compiler(arguments: Sequence[str], models: Sequence[os.PathLike] = ()) -> tuple[str, dict]:
    """Runs memopt-compile; what it printed, and its --report. A failure is raised as the exception of its kind.

    `models` are the archives that it reads; without them the first argument is one.
    """
    with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
        path = pathlib.Path(folder) / "report.json"
        code, out, err = _start([str(find_compiler()), *arguments, f"--report={path}"])
        report = json.loads(path.read_text()) if path.exists() else {}
    if code == 0:
        for line in err.splitlines():
            _log.info(line)
        return out, {**report, "remarks": [line for line in err.splitlines() if "remark: " in line]}
    raise _make_error(code, err, report, list(map(str, models)) or [arguments[0]])


def describe_device() -> bytes:
    """The GPU at hand, as memopt-compile's --target-features=FILE takes it."""
    with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
        path = pathlib.Path(folder) / "device.json"
        code, _, err = _start([str(find_tool("memopt-run")), "--device=cuda", f"--describe-device={path}"])
        if code == 0:
            return path.read_bytes()
    message = err.strip().rpartition("memopt-run: error: ")[2] or f"memopt-run ended with code {code}"
    raise {1: BadInput, 3: Unavailable}.get(code, Error)(f"device=\"cuda\": {message}; target_features= names another device to compile for")


_ERROR = "memopt-compile: error: "


def _make_error(code: int, err: str, report: dict, models: Sequence[str]) -> Error:
    """The failure in the caller's words: of the model's file, which is not the caller's, nothing is said, nor of the
    program's name where there is one."""
    folder = os.path.dirname(models[0])
    for model in models:
        err = err.replace(f"{model}: ", "").replace(model, "the model")
    if len(models) == 1:
        err = re.sub(r"(?<=error: )program '[^']*': ", "", err)
    text = _write_options_as_keywords(err.replace(f"{folder}{os.sep}", ""))
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
