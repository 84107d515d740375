#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains attention in f64 as the processor's library call and as products and a softmax (--memopt-write-out-attention).

Three steps of SGD: losses, the first step's gradients and the final parameters agree to TOLERANCE, a thousand roundings
of f64. Needs memopt-opt, memopt-compile and memopt-run on PATH.
"""

import dataclasses
import pathlib
import sys
import tempfile

from attention_steps import CASES, differences, run, train, write, write_inputs

TOLERANCE = 1e-12
SIZE = 512  # too wide for kernels of a device, which would not be written out


def main():
    failed = 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            case = dataclasses.replace(case, size=SIZE)
            (folder / "call.mlir").write_text(write(case))
            write_inputs(case, folder / "data.safetensors")
            written = run("memopt-opt", folder / "call.mlir", "--memopt-write-out-attention").stdout
            wrong = ["attention is not written out"] if "memopt.attention" in written else []
            (folder / "written.mlir").write_text(written)
            call, written = (train(folder / f"{name}.mlir", folder, lr=0.01)[0] for name in ("call", "written"))
            wrong += differences(call, written, TOLERANCE)
        failed += bool(wrong)
        print("\n".join(f"FAIL {case.name}: {text}" for text in wrong) or f"ok   {case.name}")
    print(f"{len(CASES) - failed} of {len(CASES)} kinds of attention train alike as calls and written out")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
