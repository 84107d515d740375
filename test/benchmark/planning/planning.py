#!/usr/bin/env python3
"""Runs memopt-plan on folders of problems, checks every answer and prints a table.

    planning.py FILE|FOLDER... [--budgets 90,70,50,30] [--capacity BYTES] [--tool build/develop/bin/memopt-plan]

`.json` files are rematerialization problems, `.csv` files arena problems. The checks here share no code with
the solvers: an operand is the latest earlier instance of its op, an instance is alive until it is used last;
buffers alive at once share no byte. Seconds are those of the processor, as other work may share the machine.
A wrong answer is printed as such, and the exit code is 1.
"""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from bisect import bisect_left, insort

MISSING = -1


def run(command):
    """Returns (exit code, standard output, last line on standard error, processor seconds)."""
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    errors = done.stderr.strip().splitlines()
    return done.returncode, done.stdout, errors[-1] if errors else "", seconds


def execute(ops, order):
    """Peak and cost of an order of ops, or a ValueError."""
    latest, last = [MISSING] * len(ops), []
    for position, op in enumerate(order):
        for operand in ops[op]["inputs"]:
            if latest[operand] == MISSING:
                raise ValueError(f"position {position}: operand {operand} has not run")
            last[latest[operand]] = position
        latest[op] = position
        last.append(position)
    if MISSING in latest:
        raise ValueError(f"op {latest.index(MISSING)} never runs")
    ends = [[] for _ in order]
    for position, end in enumerate(last):
        ends[end].append(position)
    alive = peak = 0
    for position, op in enumerate(order):
        alive += ops[op]["bytes"]
        peak = max(peak, alive)
        alive -= sum(ops[order[born]]["bytes"] for born in ends[position])
    return peak, sum(ops[op]["cost"] for op in order)


def bound_of(text, word):
    """The number behind 'lower bound' on the line that begins with `word`."""
    for line in text.splitlines():
        if line.startswith(word):
            return int(line.split("lower bound ")[1].split()[0])
    return 0


def remat(tool, path, percent, folder):
    ops = json.load(open(path))["ops"]
    peak, cost = execute(ops, range(len(ops)))
    plan = os.path.join(folder, "plan.json")
    code, out, error, seconds = run([tool, "remat", path, f"--budget={percent:g}%", "-o", plan])
    head = f"| {os.path.basename(path)} | {len(ops)} | {percent:g} |"
    bound = 100 * bound_of(out, "peak") / max(peak, 1)
    if code == 2:
        found = int(error.split("smallest peak found is ")[1].split()[0])
        return True, f"{head} - | smallest peak {100 * found / peak:.2f}, bound {bound:.2f} | {seconds:.1f} |"
    if code:
        return False, f"{head} WRONG: exit {code}: {error} | | |"
    try:
        new_peak, new_cost = execute(ops, json.load(open(plan))["order"])
    except ValueError as problem:
        return False, f"{head} WRONG: {problem} | | |"
    if new_peak > peak * percent / 100:
        return False, f"{head} WRONG: peak {100 * new_peak / peak:.3f} | | |"
    proven = ", optimal" if bound_of(out, "cost") == new_cost else ""
    return True, f"{head} {100 * (new_cost / cost - 1):.3f}{proven} | {100 * new_peak / peak:.2f} | {seconds:.1f} |"


def check_layout(path, layout):
    """Height and load of a layout, or a ValueError."""
    def rows(file):
        return {row["id"]: {key: int(value) for key, value in row.items() if key != "id"}
                for row in csv.DictReader(open(file, newline=""))}
    asked, placed = rows(path), rows(layout)
    if asked.keys() != placed.keys():
        raise ValueError("ids differ")
    events = []
    for key, row in placed.items():
        if any(row[field] != asked[key][field] for field in ("lower", "upper", "size")) or row["offset"] < 0:
            raise ValueError(f"buffer {key} was changed or not placed")
        if row["size"] and row["lower"] < row["upper"]:
            events += [(row["lower"], 1, key), (row["upper"], 0, key)]
    load = most = height = 0
    ranges = []  # in use now: (begin, end), sorted
    for _, born, key in sorted(events):
        begin, end = placed[key]["offset"], placed[key]["offset"] + placed[key]["size"]
        if not born:
            ranges.pop(bisect_left(ranges, (begin, end)))
            load -= end - begin
            continue
        at = bisect_left(ranges, (begin, end))
        if (at and ranges[at - 1][1] > begin) or (at < len(ranges) and ranges[at][0] < end):
            raise ValueError(f"buffer {key} shares bytes")
        insort(ranges, (begin, end))
        load += end - begin
        most, height = max(most, load), max(height, end)
    return height, most, len(asked)


def arena(tool, path, capacity, folder):
    layout = os.path.join(folder, "layout.csv")
    extra = [f"--capacity={capacity}"] if capacity else []
    code, _, error, seconds = run([tool, "arena", path, "-o", layout] + extra)
    head = f"| {os.path.basename(path)} |"
    if code == 2:
        return True, f"{head} | {error} | | {seconds:.1f} |"
    if code:
        return False, f"{head} | WRONG: exit {code}: {error} | | |"
    try:
        height, load, count = check_layout(path, layout)
    except (ValueError, KeyError) as problem:
        return False, f"{head} | WRONG: {problem} | | |"
    return True, f"{head} {count} | {height} | {height / max(load, 1):.5f} | {seconds:.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--budgets", default="90,70,50,30")
    parser.add_argument("--capacity", type=int)
    root = pathlib.Path(__file__).resolve().parents[3]
    parser.add_argument("--tool", default=root / "build/release/bin/memopt-plan")
    arguments = parser.parse_args()
    files = []
    for path in arguments.paths:
        files += sorted(os.path.join(path, name) for name in os.listdir(path)) if os.path.isdir(path) else [path]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        problems = [file for file in files if file.endswith(".json")]
        if problems:
            print("| problem | ops | budget % | cost + % | peak % | CPU s |\n|---|---|---|---|---|---|")
        for file in problems:
            for percent in map(float, arguments.budgets.split(",")):
                fine, line = remat(arguments.tool, file, percent, folder)
                good &= fine
                print(line, flush=True)
        layouts = [file for file in files if file.endswith(".csv")]
        if layouts:
            print("\n| problem | buffers | height | height / load | CPU s |\n|---|---|---|---|---|")
        for file in layouts:
            fine, line = arena(arguments.tool, file, arguments.capacity, folder)
            good &= fine
            print(line, flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
