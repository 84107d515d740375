# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compare_versions.py SOURCE PACKAGE: do all places name one version, major.minor.patch?"""

import json
import pathlib
import re
import subprocess
import sys

import memopt

source, package = map(pathlib.Path, sys.argv[1:])
found = {"memopt.__version__": memopt.__version__,
         "docs/Changelog.md": re.findall(r"^## (\d\S*)", (source / "docs/Changelog.md").read_text(), re.MULTILINE)[0],
         "manifest.json": json.loads((package / "manifest.json").read_text())["compiler"].removeprefix("memopt ")}
for tool in ("memopt-compile", "memopt-run", "memopt-opt", "memopt-plan", "memopt-cudnn"):
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    name, found[tool] = said.split()[:2]
    assert name == tool, said
assert len(set(found.values())) == 1, found
assert re.fullmatch(r"\d+\.\d+\.\d+", memopt.__version__), found
