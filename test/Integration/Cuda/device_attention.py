#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains attention on an emulated device, by the kernels of the package, and on the processor.

    device_attention.py DEVICE.json

Three steps of SGD: losses, the first step's gradients and the final parameters agree to TOLERANCES, a thousand
roundings (of bf16 one), the device uses the bytes that were predicted, and calls that differ in their random numbers
alone share kernels. Needs memopt-compile, memopt-run and memopt-emulate on
PATH.
"""

import dataclasses
import pathlib
import re
import sys
import tempfile

from attention_steps import BATCH, CASES, QUERIES, Case, differences, train, write, write_inputs

TOLERANCES = {"f64": 1e-12, "f32": 2e-5, "bf16": 1e-2}

MORE = [
    # Several tiles each way, the last ones incomplete; vectors that fill no access of 16 bytes.
    Case("tiles", heads=1, groups=1, queries=70, keys=83, size=8, element="f32"),
    Case("causal-tiles", heads=2, groups=1, queries=83, keys=70, size=6, causal=True, element="f32"),
    Case("wide-heads", heads=1, groups=1, queries=20, keys=20, size=160, causal=True, element="f32"),
    Case("dropped-tiles", heads=1, groups=1, queries=9, keys=70, size=5, dropout=0.3, element="f32"),
    Case("two-dropouts", dropout=0.4, calls=2, element="f32"),
    Case("rounded", heads=4, keys=7, size=6, element="f32", narrow="bf16"),
    # Gradients of masks: of each score, and summed over batches, heads, queries or keys.
    Case("trained-mask", mask="numbers", mask_shape=(BATCH, 2, QUERIES, 5), trained=True),
    Case("trained-mask-of-keys", mask="numbers", mask_shape=(1, 2, 1, 5), trained=True, causal=True),
    Case("trained-mask-of-queries", mask="numbers", mask_shape=(BATCH, 1, QUERIES, 1), trained=True, dropout=0.25),
    Case("trained-number", mask="numbers", mask_shape=(1, 1, 1, 1), trained=True),
    Case("trained-mask-of-tiles", heads=1, groups=1, queries=35, keys=70, size=8, element="f32", mask="numbers",
         mask_shape=(1, 1, 1, 70), trained=True),
]


def compare(case, device):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "processor.mlir").write_text(write(case))
        (folder / "device.mlir").write_text(write(case))
        write_inputs(case, folder / "data.safetensors")
        expected, _ = train(folder / "processor.mlir", folder, lr=0.01)
        found, report = train(folder / "device.mlir", folder, ["--target=cuda", f"--target-features={device}"],
                              ["memopt-emulate"], ["--device=cuda", "--check-memory"], lr=0.01)
        yield from differences(expected, found, TOLERANCES[case.narrow or case.element])
        if report["used_peak_bytes"] != report["predicted_peak_bytes"]:
            yield f"uses {report['used_peak_bytes']} bytes, predicted {report['predicted_peak_bytes']}"
        manifest = (folder / "device.memopt/manifest.json").read_text()
        if len(kernels := set(re.findall(r"memopt_attention_forward_\d+_stage0", manifest))) != 1:
            yield f"has {len(kernels)} kernels of the forward pass"


def main():
    cases = CASES + [dataclasses.replace(case, element="f32") for case in CASES if case.name in ("plain", "dropout")] + MORE
    failed = 0
    for case in cases:
        wrong = list(compare(case, sys.argv[1]))
        failed += bool(wrong)
        print("\n".join(f"FAIL {case.name}: {text}" for text in wrong) or f"ok   {case.name}", flush=True)
    print(f"{len(cases) - failed} of {len(cases)} kinds of attention train alike on the device")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
