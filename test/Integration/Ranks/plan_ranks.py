#!/usr/bin/env python3
"""plan_ranks.py MODEL FOLDER: what memopt-plan says of model state in each stage on each number of ranks is what packages
compiled for them hold, to the byte; programs for one number of ranks have one digest, and others have others. FOLDER has a
network.json."""
import json
import math
import pathlib
import re
import sys

from processes import run

ROW = re.compile(r"^ *(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", re.MULTILINE)


def compile_package(model, folder, ranks, stage, *options):
    package = folder / f"{ranks}-{stage}-{len(options)}.memopt"
    run("memopt-compile", model, "--batch=16", f"--ranks={ranks}", f"--zero-stage={stage}", *options, "-o", package)
    return package, json.load(open(package / "manifest.json"))


def plan(package, ranks, folder):
    text = run("memopt-plan", "ranks", package, f"--ranks={ranks}", f"--network={folder}/network.json").stdout
    table = {int(row[0]): [int(number) for number in row[1:]] for row in ROW.findall(text)}
    return table, re.search(r"^digest (\w+)$", text, re.MULTILINE)[1], text


def main():
    model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for options in (["--optimizer=adamw"], ["--optimizer=adamw", "--optim-bits=8"]):
        package, _ = compile_package(model, folder, 1, 0, *options)
        table, _, _ = plan(package, 1, folder)
        digests = set()
        for ranks, stage in ((2, 0), (2, 1), (2, 3), (8, 1), (8, 3), (64, 3)):
            package, manifest = compile_package(model, folder, ranks, stage, *options)
            own, digest, text = plan(package, ranks, folder)
            digests.add(digest)
            assert own == table, (own, table)  # from whichever package it is read
            # Tensors of one unit have the same bytes.
            held = sum({v.get("unit", v["name"]): v["bytes"] for v in manifest["variables"]
                        if v["role"] in ("parameter", "optimizer_state")}.values())
            gradients = sum(4 * elements for elements in count_gradients(manifest, ranks if stage >= 2 else 1))
            assert held + gradients == table[ranks][stage], (ranks, stage, held, gradients, table[ranks])
            assert f"device {manifest['predicted_peak_bytes']['device']} bytes on each rank" in text
            assert plan(package, ranks, folder)[1] == digest
        assert len(digests) == 6, digests


def count_gradients(manifest, ranks):
    """Elements of the gradients, or of their shards, which are as large as those of a state."""
    if ranks == 1:
        return [math.prod(v.get("whole_shape", v["shape"])) for v in manifest["variables"] if v["role"] == "parameter" and v["trainable"]]
    return {v.get("unit", v["name"]): v["shape"][0] for v in manifest["variables"] if v.get("slot") == "exp_avg"}.values()


main()
