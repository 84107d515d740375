#!/usr/bin/env python3
"""Does every file include only what its room may use?

The tables of the section "Rooms" in docs/Architecture.md say who may use whom. A row names a room (`Planning`) or a room
within a room (`Planning/Order`, `runtime/base`), what it holds, and what it may use: rooms (and what they may use in
turn), LLVM (its data structures and support library), MLIR (which brings all of LLVM), single headers of the runtime, in
backquotes. A room within a room may use what the outer one may, and of its neighbours those that its row names. Rows of
`python` are folders of the Python package, and say which of these a room imports.

Prints, and exits 1 if there is any:
  - each include that the tables do not allow
  - rooms that use one another in a circle, folders of a room that no row names, and modules of Python in a circle
  - folders of more than 25 sources or tests, and rooms without a README.md
"""
import argparse
import ast
import graphlib
import pathlib
import re
import sys

MOST_SOURCES = MOST_TESTS = 25
PYTHON = "tools/python/memopt"
INCLUDE = re.compile(r'^\s*#?\s*include\s+["<]([^">]+)[">]')
SUFFIXES = {".cpp", ".h", ".td", ".def", ".inc", ".c"}
SOURCES = SUFFIXES | {".py"}
TESTS = {".test", ".mlir"}
PREFIXES = {"memopt": "", "memopt-runtime": "runtime/", "mlir": "MLIR", "llvm": "LLVM", "llvm-c": "LLVM"}


def read_tables(source):
    """What the row of each room allows, as it stands there."""
    rows = {}
    text = (source / "docs/Architecture.md").read_text().split("## Rooms")[1].split("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"`[\w/-]+`", cells[0]):
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
            sources = sum(path.suffix in SOURCES for path in folder.iterdir())
            if sources > MOST_SOURCES:
                yield f"{folder.relative_to(source)}: {sources} sources, at most {MOST_SOURCES} are wanted"
    for folder in sorted(path for path in (source / "test").rglob("*") if path.is_dir()):
        tests = sum(path.suffix in TESTS for path in folder.iterdir())
        if tests > MOST_TESTS:
            yield f"{folder.relative_to(source)}: {tests} tests, at most {MOST_TESTS} are wanted"


def list_imports(package, path):
    """The files of the package that a module of it imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            start = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            found = [start / f"{name.name}.py" for name in node.names] + [start / name.name / "__init__.py" for name in node.names]
            found = [file for file in found if file.exists()] or [start.with_suffix(".py"), start / "__init__.py"]
            yield from (file.relative_to(package) for file in found if file.exists())


def check_python(rooms, source):
    package = source / PYTHON
    graph = {}
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        graph[relative] = set(list_imports(package, path))
        room = rooms.find(f"python/{relative}")
        if room == "" and relative.parent.name:
            yield f"docs/Architecture.md: the tables of rooms lack python/{relative.parent}"
        for other in sorted(graph[relative]) if room else ():
            if rooms.find(f"python/{other}") not in rooms.close(room) | {""}:
                yield f"{path.relative_to(source)}: {other} belongs to {rooms.find(f'python/{other}')}"
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"{PYTHON}: a circle: {' <- '.join(map(str, error.args[1]))}"


def find_folder(source, room):
    outer, _, inner = room.partition("/")
    return source / {"runtime": f"runtime/lib/{inner}", "tools": room, "python": f"{PYTHON}/{inner}"}.get(outer, f"lib/{room}")


def check_pages(rooms, source):
    for room in sorted(rooms.names):
        folder = find_folder(source, room)
        if folder.is_dir() and any(path.suffix in SOURCES for path in folder.rglob("*")) and not (folder / "README.md").exists():
            yield f"{folder.relative_to(source)}: has no README.md"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1],
                        help="the tree; by default the one that this script stands in")
    source = parser.parse_args().source.resolve()
    rooms = Rooms(read_tables(source))
    wrong = list(check_room_files(rooms, source))
    for tool in sorted(room for room in rooms.names if room.startswith("tools/") and "all" not in rooms.allowed[room]):
        for path in get_sources(source / tool):
            wrong += check_includes(rooms, source, path, rooms.close(tool))
    wrong += check_python(rooms, source)
    wrong += rooms.find_circles()
    wrong += check_folders(source)
    wrong += check_pages(rooms, source)
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
