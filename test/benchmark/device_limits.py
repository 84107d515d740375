#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far are the kernels of packages for NVIDIA GPUs from what the device could do, as the assembler's output says.

    device_limits.py MODEL.pt2... [--device h100] [--precisions f32,bf16] [--batch N] [--optimizer adamw] [--option OPTION]
                     [--worst 10] [--bin BIN] [--ptxas PTXAS] [--nvdisasm NVDISASM] [--json FILE]

No device is needed. ptxas and nvdisasm are NVIDIA's; PyPI's triton brings both (triton/backends/nvidia/bin). One row for
each kernel, those first whose limit times runs is longest:

  runs         launches of a step; loops over micro-batches count once
  MB           operands and results of a launch, each once, as the plan has them
  memory us    what these bytes take at the bandwidth of the description
  issue us     what they take where all of them go through the kernel's busiest loop, and each of a multiprocessor's
               four schedulers issues an instruction in each cycle of the description's clock. The busiest is the loop
               whose turn issues most instructions for a byte that it loads or stores, of those that move at least a
               third of the bytes of the loop that moves most
  turn         instructions of one turn of that loop, without loops inside of it, and the bytes that a thread moves in it
  accesses     bytes of its loads and stores of memory, and how many there are of each
  launch       blocks x threads, registers of a thread; waves: blocks over those that run at once
  limit        which of the two is longer
  predicted    what the plan says, over the longer of the two

Attention and what calls of libraries launch is left out: products bound it. Kernels without a loop, which move little,
have no issue time.
"""
import argparse
import collections
import json
import pathlib
import re
import sys
import tempfile

import memopt_driver as driver
from cuda_packages import DEVICES, assemble, find_tool, name_of
from memopt_driver import Failed, execute, tail

HEAD = ["model", "kernel", "module", "runs", "MB", "memory us", "issue us", "turn", "accesses", "launch", "registers", "waves",
        "limit", "predicted"]
SCHEDULERS, WARP = 4, 32


class Loop:
    """A range of instructions that ends with a branch to its begin."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end
        self.instructions, self.accesses = 0, collections.Counter()

    @property
    def bytes(self):
        return sum(size * count for size, count in self.accesses.items())


def access_bytes(text):
    """Of an instruction that loads from memory or stores there; else 0."""
    found = re.match(r"(?:LDG|STG)\.E(\S*)", text)
    if not found:
        return 0
    kinds = found.group(1).split(".")
    for kind in kinds:
        if kind in ("64", "128"):
            return int(kind) // 8
        if kind in ("U8", "S8", "U16", "S16"):
            return int(kind[1:]) // 8
    return 4


def read_loops(lines):
    """Those of one function. What stands behind the last EXIT are ways that leave the main one, and come back to it."""
    texts, labels = [], {}
    for line in lines:
        label = re.match(r"(\.L\w+):", line)
        instruction = re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line)
        if label:
            labels[label.group(1)] = len(texts)
        elif instruction:
            texts.append(re.sub(r"^@!?U?P\w+\s+", "", instruction.group(1)))
    last = max((number for number, text in enumerate(texts) if text.startswith("EXIT")), default=len(texts))
    loops = {}
    for number, text in enumerate(texts[:last + 1]):
        target = re.match(r"BRA(?:\.\S+)?\s+(?:!?U?P\w+,\s*)*`\((\.L\w+)\)", text)
        if target and labels.get(target.group(1), number + 1) <= number and text != texts[-1]:
            begin = labels[target.group(1)]
            loops[begin] = max(loops.get(begin, 0), number)
    found = [Loop(begin, end) for begin, end in loops.items() if begin != loops[begin]]
    for number, text in enumerate(texts[:last + 1]):
        around = [loop for loop in found if loop.begin <= number <= loop.end]
        if around:
            innermost = min(around, key=lambda loop: loop.end - loop.begin)
            innermost.instructions += 1
            if size := access_bytes(text):
                innermost.accesses[size] += 1
    return found


def read_functions(text):
    """Lines of each function's code."""
    functions, current = {}, None
    for line in text.splitlines():
        name = re.match(r"\.text\.(\w+):", line)
        if name:
            current = functions.setdefault(name.group(1), [])
        elif line.startswith("\t.section"):
            current = None
        elif current is not None:
            current.append(line)
    return functions


def busiest(loops):
    moving = [loop for loop in loops if loop.bytes]
    most = max((loop.bytes for loop in moving), default=0)
    return max((loop for loop in moving if 3 * loop.bytes >= most), key=lambda loop: loop.instructions / loop.bytes, default=None)


def resident_blocks(properties, kernel, launch):
    """As MultiprocessorLimits counts them."""
    warps = -(-launch["threads"] // WARP)
    of_warp = -(-max(kernel["registers"], 1) * WARP // 256) * 256
    reserved = properties["reservedSharedMemoryPerBlock"]
    taken = kernel["shared"] + launch["shared_bytes"] + reserved
    return max(1, min(properties["maxCtasPerSM"], properties["maxThreadsPerSM"] // (warps * WARP),
                      properties["maxRegistersPerSM"] // 4 // of_warp * 4 // warps,
                      (properties["maxSharedMemoryPerBlockOptin"] + reserved) // max(taken, 1)))


def measure(arguments, description, model, precision, package):
    command = [arguments.compiler, model, "-o", package, "--target=cuda", f"--target-features={arguments.device}", "--quiet",
               f"--precision={precision}", f"--optimizer={arguments.optimizer}", *arguments.option]
    done = execute(command + ([f"--batch={arguments.batch}"] if arguments.batch else []), timeout=arguments.timeout)
    if done.code:
        raise Failed(f"{model} in {precision}: exit {done.code}: {tail(done.errors)}")
    manifest = driver.Package(package, None, done.seconds).manifest()
    code = execute([arguments.nvdisasm, "-c", package / "kernels.cubin"])
    if code.code:
        raise Failed(f"nvdisasm: {tail(code.errors)}")
    functions = read_functions(code.output)
    taken = {kernel["name"]: kernel for kernel in assemble(arguments, package, manifest["target"]["chip"])[0]}
    properties, rates = description["properties"], description["rates"]
    sms = properties["multiProcessorCount"]
    issued = sms * SCHEDULERS * properties["smClockRateKHz"] * 1e3  # instructions of warps a second
    kernels = collections.OrderedDict()
    for instruction in manifest["instructions"]:
        if instruction["kind"] != "kernel" or len(instruction.get("launched_kernels", [])) != 1:
            continue
        number = instruction["launched_kernels"][0]
        row = kernels.setdefault((number, instruction["bytes_moved"]), {
            "model": f"{name_of(model)} {precision}", "kernel": manifest["kernels"][number], "module": instruction["module"], "runs": 0,
            "bytes": instruction["bytes_moved"], "predicted": instruction["predicted_seconds"], "launch": manifest["launches"][number]})
        row["runs"] += 1
    for row in kernels.values():
        row["memory"], row["issue"] = row["bytes"] / rates["memory_bytes_per_second"], 0.0
        kernel = taken[row["kernel"]]
        row["registers"] = kernel["registers"]
        row["waves"] = row["launch"]["blocks"] / (sms * resident_blocks(properties, kernel, row["launch"]))
        loop = busiest(read_loops(functions[row["kernel"]]))
        if loop:
            row["turn"], row["accesses"] = [loop.instructions, loop.bytes], dict(sorted(loop.accesses.items()))
            row["issue"] = row["bytes"] / (WARP * loop.bytes) * loop.instructions / issued
        row["limit"] = max(row["memory"], row["issue"])
    return sorted(kernels.values(), key=lambda row: -row["limit"] * row["runs"])


def text_of(row):
    turn = row.get("turn")
    return [row["model"], row["kernel"].removeprefix("memopt_"), row["module"], str(row["runs"]), f"{row['bytes'] / 1e6:.1f}",
            f"{row['memory'] * 1e6:.1f}", f"{row['issue'] * 1e6:.1f}" if turn else "-", f"{turn[0]} / {turn[1]}" if turn else "-",
            ", ".join(f"{count} x {size}" for size, count in row.get("accesses", {}).items()) or "-",
            f"{row['launch']['blocks']} x {row['launch']['threads']}", str(row["registers"]), f"{row['waves']:.2f}",
            "issue" if row["issue"] > row["memory"] else "memory", f"{row['predicted'] / row['limit']:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--device", default="h100", help="one that is compiled in")
    parser.add_argument("--precisions", default="f32,bf16")
    parser.add_argument("--batch", default="", help="samples of a batch; default: the model's own")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--option", action="append", default=[], help="a further option of memopt-compile")
    parser.add_argument("--worst", type=int, default=10, help="kernels of each package that are shown")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of memopt-compile; default: on PATH, or this source tree's build")
    parser.add_argument("--ptxas", type=pathlib.Path)
    parser.add_argument("--nvdisasm", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one compilation")
    parser.add_argument("--json", type=pathlib.Path, help="all kernels")
    arguments = parser.parse_args()
    arguments.compiler = driver.Tools.find(arguments.bin, 1).compile
    arguments.ptxas, arguments.nvdisasm = find_tool(arguments.ptxas, "ptxas"), find_tool(arguments.nvdisasm, "nvdisasm")
    description = json.loads((DEVICES / f"{arguments.device}.json").read_text())
    rows, shown, failures = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.models:
            for precision in arguments.precisions.split(","):
                try:
                    found = measure(arguments, description, model, precision, pathlib.Path(scratch) / "package.memopt")
                    rows += found
                    shown += found[:arguments.worst]
                except Failed as failure:
                    failures.append(str(failure))
    driver.report(HEAD, [text_of(row) for row in shown], failures, arguments.json, rows)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"device_limits.py: {error}")
