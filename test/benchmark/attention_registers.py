#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles attention of 16-bit vectors for many heads, masks and lengths, and says what ptxas makes of it.

    attention_registers.py [--chips sm_80,sm_90] [--heads 64,128] [--bin BIN]

For each chip and size of heads: the registers of the forward kernel, of dq and of dk and dv, at most, and the kinds
whose kernels spill. Ends with 1 where one does. ptxas is found as memopt-compile finds it.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

CALLS = pathlib.Path(__file__).resolve().parents[1] / "Conversion/Inputs/attention_calls.py"
CHIPS = "sm_80,sm_86,sm_89,sm_90,sm_100,sm_120"
HEADS = "16,32,48,64,80,96,112,128,160,192,256"
KINDS = ["bf16", "causal", "causal,packed,f16,queries=1023,keys=1023", "groups=1,queries=77,keys=333", "bits", "numbers",
         "causal,dropout", "numbers,dropout,causal", "dropout,first,queries=500,keys=72", "causal,dropout,queries=1023,keys=1023",
         "bits,dropout,queries=1000,keys=1023"]
LINE = re.compile(r"memopt_attention_(\w+)_(\d+)_stage(\d): (\d+) registers, (\d+) bytes of stack, (\d+) bytes spilled")


def compile_calls(chip, kinds, tools):
    """(number of the kind, stage, registers, bytes in memory) of each kernel."""
    with tempfile.TemporaryDirectory() as folder:
        calls = pathlib.Path(folder) / "calls.mlir"
        calls.write_text(subprocess.run([sys.executable, CALLS, chip, *kinds], capture_output=True, text=True, check=True).stdout)
        done = subprocess.run([tools / "kernel-compile", calls, f"--chip={chip}", "--cubin", "-o", calls.with_suffix(".cubin")],
                              capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"kernel-compile for {chip}: {done.stderr.strip()[-500:]}")
    for direction, call, stage, registers, stack, spilled in LINE.findall(done.stdout):
        name = "forward" if direction == "forward" else ("dq", "dk and dv")[int(stage)]
        yield int(call) // 2, name, int(registers), int(stack) + int(spilled)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", default=CHIPS)
    parser.add_argument("--heads", default=HEADS)
    parser.add_argument("--bin", default="build/release/bin", type=pathlib.Path)
    options = parser.parse_args()
    print("| chip | features | forward | dq | dk and dv | spill |\n|---|---|---|---|---|---|")
    failed = False
    for chip in options.chips.split(","):
        for head in options.heads.split(","):
            kinds = [f"head={head},{kind}" for kind in KINDS]
            most, spilling = {}, []
            for number, stage, registers, moved in compile_calls(chip, kinds, options.bin):
                most[stage] = max(most.get(stage, 0), registers)
                if moved:
                    spilling.append(f"{stage} of {KINDS[number]}")
            failed |= bool(spilling)
            print(f"| {chip} | {head} | " + " | ".join(str(most[stage]) for stage in ("forward", "dq", "dk and dv")) +
                  f" | {'; '.join(spilling) or 'none'} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
