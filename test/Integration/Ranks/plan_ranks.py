#!/usr/bin/env python3
"""plan_ranks.py MODEL FOLDER: what memopt-plan says of model state in each stage on each number of ranks is what packages
compiled for them hold, to the byte; programs for one number of ranks have one digest, and others have others. FOLDER has a
network.json."""
import json
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
            held = sum(v["bytes"] for v in manifest["variables"] if v["role"] in ("parameter", "optimizer_state"))
            gradients = sum(4 * v["elements"] for v in shards(manifest, ranks if stage >= 2 else 1, options))
            assert held + gradients == table[ranks][stage], (ranks, stage, held, gradients, table[ranks])
            assert f"device {manifest['predicted_peak_bytes']['device']} bytes on each rank" in text
            assert plan(package, ranks, folder)[1] == digest
        assert len(digests) == 6, digests


def shards(manifest, ranks, options):
    """Elements of the gradients, or of their shards."""
    unit = 256 if "--optim-bits=8" in options else 16
    for variable in manifest["variables"]:
        if variable["role"] == "parameter" and variable["trainable"]:
            count = 1
            for size in variable.get("whole_shape", variable["shape"]):
                count *= size
            coded = any(v.get("of") == variable["name"] and v["dtype"] in ("u8", "i8") for v in manifest["variables"])
            step, part = unit if coded else 16, -(-count // ranks)
            small = step == 16 and part < 16 < count  # and not rounded up
            yield {"elements": count if ranks == 1 else part if small else -(-part // step) * step}


main()
