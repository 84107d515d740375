#!/usr/bin/env python3
"""Does every file include only what its room may use?

The table "Rooms" in docs/Architecture.md says who may use whom: rooms (with what they may use in turn), LLVM (its data
structures and support library), MLIR (which brings all of LLVM), single headers of the runtime, in backquotes. Prints
each include that the table does not allow, and exits 1 if there is one.
"""
import argparse
import pathlib
import re
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("source", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1],
                    help="the tree; by default the one that this script stands in")
SOURCE = parser.parse_args().source.resolve()
INCLUDE = re.compile(r'^\s*#?include\s+["<]([^">]+)[">]')
SUFFIXES = {".cpp", ".h", ".td", ".def", ".inc", ".c"}
# Tools that must not grow into the compiler.
SMALL_TOOLS = {"memopt-run": {"runtime"}, "memopt-cudnn": {"runtime"}, "memopt-plan": {"Planning", "Support", "LLVM"}}


def read_table():
    """What each room's row allows, as it stands there."""
    rows = {}
    text = (SOURCE / "docs/Architecture.md").read_text().split("## Rooms")[1].split("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"`\w+`", cells[0]):
            rows[cells[0].strip("`")] = {word.strip().strip("`") for word in cells[2].split(",")}
    return rows


def close(rows, room):
    """The room, what it may use, and what that may use."""
    allowed, waiting = set(), [room]
    while waiting:
        name = waiting.pop()
        if name not in allowed:
            allowed.add(name)
            waiting += rows.get(name, ())
    return allowed


def provider(header):
    """Who gives a header: a room, MLIR, LLVM, or nobody that the table speaks of."""
    first, _, rest = header.partition("/")
    if first == "memopt" and "/" in rest:
        return rest.split("/")[0]
    return {"memopt-runtime": "runtime", "mlir": "MLIR", "llvm": "LLVM", "llvm-c": "LLVM"}.get(first)


def check(folder, allowed):
    wrong = []
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        if path.suffix not in SUFFIXES:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = INCLUDE.match(line)
            user = include and provider(include.group(1))
            if not user or user in allowed or include.group(1).removeprefix("memopt-runtime/") in allowed:
                continue
            if user == "LLVM" and "MLIR" in allowed:
                continue
            wrong.append(f"{path.relative_to(SOURCE)}:{number}: {include.group(1)} belongs to {user}")
    return wrong


def main():
    rows, wrong = read_table(), []
    for folder in sorted((SOURCE / "lib").iterdir()):
        if not folder.is_dir():
            continue
        if folder.name not in rows:
            wrong.append(f"docs/Architecture.md: the table of rooms lacks {folder.name}")
        for place in (folder, SOURCE / "include/memopt" / folder.name):
            wrong += check(place, close(rows, folder.name))
    wrong += check(SOURCE / "runtime", {"runtime"})
    for tool, allowed in SMALL_TOOLS.items():
        wrong += check(SOURCE / "tools" / tool, allowed)
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
