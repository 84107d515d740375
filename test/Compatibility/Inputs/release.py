# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""release.py make|check FOLDER [OUT]: what docs/Compatibility.md promises of a release, of which FOLDER keeps:

  package, checkpoint, data.safetensors   of tiny.mlir; the checkpoint stands behind two steps
  facts.json                              losses, the keys of reports, options of the tools, names of the Python package
  CInterface.h                            the header that programs were compiled with

`make` writes the folder when a release is made, `check` holds the tools at hand to it; OUT is an empty folder."""

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys

import memopt
import numpy as np

import processes
from tensor_files import write_safetensors

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parents[2] / "runtime/include/memopt-runtime/CInterface.h"
TOOLS = {"memopt-compile": [], "memopt-run": [], "memopt-plan": []}


def run(*command):
    return processes.run(*command).stdout


def train(folder, out, *options):
    """Two steps of the package, and what the run reports."""
    report = out / "report.json"
    run("memopt-run", folder / "package", f"--data={folder}/data.safetensors", "--steps=2", "--quiet", f"--report={report}",
        *options)
    return json.loads(report.read_text())


def list_options(tool):
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", run(tool, "--help"))))


def write_data(path):
    write_safetensors(path, {f"step{step}.x": np.array([0.25 * (step + 1) * (i - 2) for i in range(6)], "f4").reshape(2, 3)
                             for step in range(2)})


def make(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_data(folder / "data.safetensors")
    run("memopt-compile", HERE / "tiny.mlir", "-o", folder / "package", "--optimizer=adamw", "--target-features=x86-64", "--threads=1")
    out = folder / "made"
    out.mkdir()
    begin = train(folder, out, f"--save={folder}/checkpoint")
    rest = train(folder, out, f"--load={folder}/checkpoint")
    shutil.rmtree(out)
    facts = {"version": memopt.__version__, "losses": begin["losses"] + rest["losses"], "report": sorted(begin),
             "options": {tool: list_options(tool) for tool in TOOLS}, "python": [name for name in dir(memopt) if name[0] != "_"]}
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    shutil.copy(HEADER, folder / "CInterface.h")


def check(folder, out):
    facts = json.loads((folder / "facts.json").read_text())
    # Packages and checkpoints. A package of a release holds code for the plainest processor: other ones have its numbers.
    begin = train(folder, out)
    shutil.copytree(folder / "checkpoint", out / "checkpoint")
    rest = train(folder, out, f"--load={out}/checkpoint", f"--save={out}/checkpoint")
    losses = begin["losses"] + rest["losses"]
    assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(losses, facts["losses"], strict=True)), (losses, facts["losses"])
    # A package that is compiled now reads the checkpoint, too.
    run("memopt-compile", HERE / "tiny.mlir", "-o", out / "package", "--optimizer=adamw")
    shutil.copy(folder / "data.safetensors", out)
    again = train(out, out, f"--load={folder}/checkpoint")["losses"]
    assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(again, facts["losses"][2:], strict=True)), (again, facts["losses"])
    assert set(facts["report"]) <= set(begin), set(facts["report"]) - set(begin)
    for tool, names in facts["options"].items():
        assert set(names) <= set(list_options(tool)), (tool, set(names) - set(list_options(tool)))
    missing = [name for name in facts["python"] if name not in dir(memopt) and not importlib.util.find_spec(f"memopt.{name}")]
    assert not missing, missing
    # A package of another format is refused, with both versions named.
    manifest = json.loads((folder / "package/manifest.json").read_text())
    for key, value in (("version", 1), ("version", 99), ("program_interface_version", 99)):
        foreign = out / "foreign"
        shutil.copytree(folder / "package", foreign, dirs_exist_ok=True)
        (foreign / "manifest.json").write_text(json.dumps({**manifest, key: value}))
        done = subprocess.run(["memopt-run", str(foreign), "--steps=1"], capture_output=True, text=True)
        read = re.search(rf"version {value}, .* versions? (.*?)[;.]", done.stderr)
        assert done.returncode == 1 and read and str(manifest[key]) in re.findall(r"\d+", read.group(1)), done.stderr


if sys.argv[1] == "make":
    make(pathlib.Path(sys.argv[2]))
else:
    check(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
