#!/usr/bin/env python3
"""Does every file include only what its room may use?

The tables of the section "Rooms" in docs/Architecture.md say who may use whom. A row names a room (`Planning`) or a room
within a room (`Planning/Order`, `runtime/base`), what it holds, and what it may use: rooms (and what they may use in
turn), LLVM (its data structures and support library), MLIR (which brings all of LLVM), single headers of the runtime, in
backquotes. A room within a room may use what the outer one may, and of its neighbours those that its row names.

Prints, and exits 1 if there is any:
  - each include that the tables do not allow
  - rooms that use one another in a circle, and folders of a room that no row names
  - folders of more than 25 sources or tests, and rooms without a README.md
"""
import argparse
import pathlib
import re
import sys

MOST_SOURCES = MOST_TESTS = 25
INCLUDE = re.compile(r'^\s*#?\s*include\s+["<]([^">]+)[">]')
SUFFIXES = {".cpp", ".h", ".td", ".def", ".inc", ".c"}
TESTS = {".test", ".mlir"}
# Tools that must not grow into the compiler.
SMALL_TOOLS = {"memopt-run": {"runtime"}, "memopt-cudnn": {"runtime"}, "memopt-plan": {"Planning", "Support", "LLVM"}}
PREFIXES = {"memopt": "", "memopt-runtime": "runtime/", "mlir": "MLIR", "llvm": "LLVM", "llvm-c": "LLVM"}


def read_tables(source):
    """What the row of each room allows, as it stands there."""
    rows = {}
    text = (source / "docs/Architecture.md").read_text().split("## Rooms")[1].split("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"`[\w/]+`", cells[0]):
            rows[cells[0].strip("`")] = {word.strip().strip("`") for word in cells[2].split(",")} - {""}
    return rows


def get_outer(room):
    return room.rpartition("/")[0]


class Rooms:
    """The tables, with names of neighbours written out."""

    def __init__(self, rows):
        self.names = set(rows)
        self.allowed = {room: {self._resolve(room, word) for word in words} for room, words in rows.items()}

    def _resolve(self, room, word):
        outer = get_outer(room)
        while outer:
            if f"{outer}/{word}" in self.names:
                return f"{outer}/{word}"
            outer = get_outer(outer)
        return word

    def close(self, room):
        """The room, what it may use, and what that may use."""
        allowed, waiting = set(), [room]
        while waiting:
            name = waiting.pop()
            if name not in allowed:
                allowed.add(name)
                waiting += self.allowed.get(name, ())
                # What an outer room may use, its rooms may use. The outer room is also its headers that lie in no inner
                # one.
                if get_outer(name):
                    waiting.append(get_outer(name))
                # Whoever stands outside sees all that is inside.
                if not room.startswith(name.partition("/")[0] + "/"):
                    waiting += [inner for inner in self.names if inner.startswith(name + "/")]
        return allowed

    def find(self, path):
        """The innermost room of a path such as Planning/Order/PlanAnneal.h."""
        room = get_outer(path)
        while room and room not in self.names:
            room = get_outer(room)
        return room

    def find_provider(self, header):
        """Who gives a header: a room, MLIR, LLVM, or nobody that the tables speak of."""
        first, _, rest = header.partition("/")
        if first not in PREFIXES or not rest:
            return None
        if first in ("memopt", "memopt-runtime"):
            return self.find(PREFIXES[first] + rest) or None
        return PREFIXES[first]

    def find_circles(self):
        for room in sorted(self.names):
            for other in sorted(self.allowed[room] & self.names - {room}):
                if room < other and room in self.close(other):
                    yield f"{room} and {other} use one another"


def check_includes(rooms, source, path, allowed):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        include = INCLUDE.match(line)
        provider = include and rooms.find_provider(include.group(1))
        if not provider or provider in allowed or include.group(1).removeprefix("memopt-runtime/") in allowed:
            continue
        if provider == "LLVM" and "MLIR" in allowed:
            continue
        yield f"{path.relative_to(source)}:{number}: {include.group(1)} belongs to {provider}"


def get_sources(folder):
    return [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES] if folder.exists() else []


def check_room_files(rooms, source):
    """Includes of all that lies below a folder of rooms."""
    for base, prefix in (("lib", ""), ("include/memopt", ""), ("runtime/lib", "runtime/"),
                         ("runtime/include/memopt-runtime", "runtime/")):
        unnamed = set()
        for path in get_sources(source / base):
            relative = prefix + str(path.relative_to(source / base))
            room = rooms.find(relative)
            if not room:
                unnamed.add(relative.partition("/")[0] if "/" in relative else "")
                continue
            yield from check_includes(rooms, source, path, rooms.close(room))
        for name in sorted(unnamed - {""}):
            yield f"docs/Architecture.md: the tables of rooms lack {name}"


def check_folders(source):
    """Folders stay small enough to be read, and each room says what it is."""
    for base in ("lib", "include", "runtime", "test", "tools"):
        for folder in sorted(path for path in (source / base).rglob("*") if path.is_dir()):
            sources = sum(path.suffix in SUFFIXES for path in folder.iterdir())
            if sources > MOST_SOURCES:
                yield f"{folder.relative_to(source)}: {sources} sources, at most {MOST_SOURCES} are wanted"
    for folder in sorted(path for path in (source / "test").rglob("*") if path.is_dir()):
        tests = sum(path.suffix in TESTS for path in folder.iterdir())
        if tests > MOST_TESTS:
            yield f"{folder.relative_to(source)}: {tests} tests, at most {MOST_TESTS} are wanted"


def check_pages(rooms, source):
    for room in sorted(rooms.names):
        folder = source / ("runtime/lib" + room.removeprefix("runtime") if room.startswith("runtime") else "lib/" + room)
        if folder.is_dir() and get_sources(folder) and not (folder / "README.md").exists():
            yield f"{folder.relative_to(source)}: has no README.md"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1],
                        help="the tree; by default the one that this script stands in")
    source = parser.parse_args().source.resolve()
    rooms = Rooms(read_tables(source))
    wrong = list(check_room_files(rooms, source))
    for tool, allowed in SMALL_TOOLS.items():
        allowed = set().union(*(rooms.close(room) for room in allowed))
        for path in get_sources(source / "tools" / tool):
            wrong += check_includes(rooms, source, path, allowed)
    wrong += rooms.find_circles()
    wrong += check_folders(source)
    wrong += check_pages(rooms, source)
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
