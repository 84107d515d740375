#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""own_counts.py FIXTURE FOLDER: runs whose parameters count their updates, beside those that count steps.

FIXTURE is a folder with model.pt2 and inputs.safetensors, FOLDER where to work."""
import json
import pathlib
import shutil
import struct
import sys

import processes

FIXTURE, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])


def compile_package(name, *options):
    processes.run("memopt-compile", FIXTURE / "model.pt2", "-o", FOLDER / name, "--quiet", "--optimizer=adamw", "--lr=0.01", *options)


def train(package, save, *options, code=0):
    return processes.run("memopt-run", FOLDER / package, f"--data={FIXTURE}/inputs.safetensors", "--steps=2", "--quiet",
                         f"--save={FOLDER / save}", *options, code=code).stderr


def open_file(folder):
    data = (FOLDER / folder / "optimizer.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return data, json.loads(data[8:8 + size]), 8 + size


def list_counts(folder):
    data, header, start = open_file(folder)
    return {name: struct.unpack_from("<q", data, start + entry["data_offsets"][0])[0]
            for name, entry in header.items() if name.startswith("optimizer.step.")}


def write_counts(folder, count):
    data, header, start = open_file(folder)
    data = bytearray(data)
    for name in list_counts(folder):
        struct.pack_into("<q", data, start + header[name]["data_offsets"][0], count)
    (FOLDER / folder / "optimizer.safetensors").write_bytes(data)


def read_model(folder):
    return (FOLDER / folder / "model.safetensors").read_bytes()


def main():
    compile_package("shared.memopt")
    compile_package("same.memopt", "--step-count=shared")
    compile_package("own.memopt", "--param-group=*.bias:step-count=own")
    compile_package("all.memopt", "--step-count=own")
    for path in (FOLDER / "shared.memopt").iterdir():
        assert path.read_bytes() == (FOLDER / "same.memopt" / path.name).read_bytes(), path.name
    for name in ("shared", "own", "all"):
        train(f"{name}.memopt", name)
    assert read_model("own") == read_model("shared") == read_model("all")
    assert not list_counts("shared") and set(list_counts("own").values()) == {2}, list_counts("own")
    assert len(list_counts("all")) == 2 * len(list_counts("own")), list_counts("all")
    # Each goes on from the others': a count that is not there is that of the rest, one of the rest is not needed.
    for package in ("shared", "own", "all"):
        for checkpoint in ("shared", "own", "all"):
            train(f"{package}.memopt", "next", f"--load={FOLDER / checkpoint}")
            assert set(list_counts("next").values()) <= {4}, (package, checkpoint, list_counts("next"))
            assert not list_counts("next") == (package != "shared")
            if (package, checkpoint) == ("shared", "shared"):
                shutil.copytree(FOLDER / "next", FOLDER / "second")
            assert read_model("next") == read_model("second"), (package, checkpoint)
    # Counts of their own count.
    write_counts("own", 0)
    train("own.memopt", "next", f"--load={FOLDER / 'own'}")
    assert set(list_counts("next").values()) == {2} and read_model("next") != read_model("second"), list_counts("next")
    said = train("shared.memopt", "refused", f"--load={FOLDER / 'own'}", code=1)
    assert "has made 0 updates, and others 2" in said and ":step-count=own" in said, said
    # So it is with the scale of a loss, whose steps may be left out: of the largest scale all are.
    for scale in ("dynamic", "1e38"):
        for name, options in (("shared16", []), ("own16", ["--step-count=own"])):
            compile_package(f"{name}.memopt", "--precision=fp16", f"--loss-scale={scale}", *options)
            train(f"{name}.memopt", name)
        assert read_model("own16") == read_model("shared16")
        assert scale == "dynamic" or set(list_counts("own16").values()) == {0}, list_counts("own16")
        train("own16.memopt", "next", f"--load={FOLDER / 'shared16'}")
        train("shared16.memopt", "other", f"--load={FOLDER / 'own16'}")
        assert read_model("next") == read_model("other")


main()
