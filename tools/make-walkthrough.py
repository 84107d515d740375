#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the IR of every stage into docs/Walkthrough.md.

    tools/make-walkthrough.py [--compile=build/release/bin/memopt-compile] [--out=FILE]

The page holds lines `<!-- stage NAME [kernels] -->`, each followed by a block of code; the block is replaced by what
`memopt-compile --emit=NAME` prints for the shipped MLP, made readable: phases and names of the state dict are left
out, descriptors cut to their kind, and bodies of kernels too unless `kernels` is given. `--reference` makes the plan the
same on every processor with AVX-512. The lit test Docs/walkthrough.test compares the committed page with a fresh one.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 150
OPTIONS = ["--reference", "--run-threads=2", "--threads=1", "--optimizer=sgd", "--lr=0.1"]
MARK = re.compile(r"<!-- stage (\w+)( kernels)? -->\n```mlir\n.*?```\n", re.DOTALL)


def emit(compiler: str, stage: str) -> str:
    command = [compiler, str(ROOT / "tools/export/models/mlp.train.pt2"), f"--emit={stage}", *OPTIONS]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command)}: exit code {result.returncode}\n{result.stderr}")
    return result.stdout


def without_bodies(text: str) -> str:
    """Kernels as one line: what they read, give and carry."""
    lines, depth = [], 0
    for line in text.splitlines():
        if depth == 0 and "memopt.kernel" in line:
            lines.append(line[: line.rindex("{")] + "{ ... }")
        if depth or "memopt.kernel" in line:
            depth += line.count("{") - line.count("}")
        else:
            lines.append(line)
    return "\n".join(line for line in lines if not line.startswith("#map"))


def wrapped(line: str) -> str:
    """Long lines go on behind a comma, a colon or an arrow, which the grammar allows."""
    indent = re.match(r" *", line)[0] + "    "
    pieces = []
    while len(line) > WIDTH:
        cut = max(line.rfind(mark, 0, WIDTH) + len(mark) - 1 for mark in (", ", " -> ", ") : ", "} : "))
        if cut <= len(indent):
            break
        pieces.append(line[:cut].rstrip())
        line = indent + line[cut:].lstrip()
    return "\n".join([*pieces, line])


def readable(text: str, keep_bodies: bool) -> str:
    text = re.sub(r'(memopt\.)?phase = #memopt\.phase<\w+>(, )?', "", text)
    text = re.sub(r', names = \["[^"]*"\]', "", text)
    text = re.sub(r'descriptor = \{[^}]*kind = "(\w+)"[^}]*\}', r'descriptor = {kind = "\1", ...}', text)
    text = re.sub(r"dense_resource<[^>]*>", "...", text)
    text = re.sub(r"dense<\[[^\]]*\]>", "...", text)
    text = re.sub(r", (\w+ = 0\.000000e\+00 : f64)", "", text)
    text = re.sub(r" (attributes|attrs =)? *\{\}", "", text)
    text = re.sub(r", \}", "}", text)
    text = re.sub(r"\n*\{-#\s*#-\}\s*", "\n", text)
    text = (text if keep_bodies else without_bodies(text)).strip()
    return "\n".join(wrapped(line) for line in text.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    page = ROOT / "docs/Walkthrough.md"
    parser.add_argument("--compile", default=str(ROOT / "build/release/bin/memopt-compile"))
    parser.add_argument("--out", type=pathlib.Path, default=page)
    options = parser.parse_args()

    def replace(match: re.Match) -> str:
        code = readable(emit(options.compile, match[1]), match[2] is not None)
        return f"<!-- stage {match[1]}{match[2] or ''} -->\n```mlir\n{code}\n```\n"

    options.out.write_text(MARK.sub(replace, page.read_text()))


if __name__ == "__main__":
    main()
