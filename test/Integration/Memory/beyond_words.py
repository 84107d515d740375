#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a tensor with more elements than 32 bits count, and of more than 4 GiB: beyond_words.py [ROWS]

An evaluation reads rows of it from either end and adds up all of it, in kernels and through the copy of a batch. An offset, a count
or a trip count of 32 bits anywhere would read other rows. Needs some 9 GiB; with fewer ROWS the same in less, to try the script.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "test/Import/Inputs"), str(ROOT / "tools/python")]
from archive import Model  # noqa: E402
from memopt.runtime import Session  # noqa: E402

COLUMNS = 1 << 14


def build(rows, path):
    model = Model()
    table = model.input("table", "u8", [rows, COLUMNS])
    index = model.input("index", "i64", [4])
    model.output(model.op("aten.index_select.default", ("chosen", "u8", [4, COLUMNS]), self_=table, dim=0, index=index))
    model.output(model.op("aten.amax.default", ("most", "u8", [COLUMNS]), self_=table, dim=[0]))
    model.save(path)


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else (1 << 18) + 1
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "big.memopt"
        build(rows, pathlib.Path(folder) / "model.pt2")
        subprocess.run(["memopt-compile", pathlib.Path(folder) / "model.pt2", "-o", package, "--mode=eval", "--quiet"], check=True)
        table = np.zeros((rows, COLUMNS), np.uint8)  # pages that nobody writes take no memory
        places = np.array([0, rows // 2, rows - 2, rows - 1])
        table[places, :] = np.arange(1, 5, dtype=np.uint8)[:, None]
        table[-1, -1] = 251
        session = Session(package)
        session.initialize()
        program = session.programs[0]
        inputs = {"table": table, "index": places}
        program.run_step([[inputs[tensor["name"]] for tensor in program.manifest["inputs"]]])
        for output, (name, expected) in zip(program.manifest["outputs"], (("chosen", table[places]), ("most", table[places].max(axis=0)))):
            found = np.zeros(expected.shape, np.uint8)
            program.read_output(output["name"], found.ctypes.data)
            np.testing.assert_array_equal(found, expected, err_msg=name)
        print(f"{rows * COLUMNS} elements: {len(places)} rows and the largest of all columns are right")


main()
