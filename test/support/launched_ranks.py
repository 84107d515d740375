# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that a launcher has started: how they end, and what they leave. What the launcher itself says of an error is looked over."""

import json
import os
import signal
import time

import processes
from tensor_files import read_safetensors, rebatch, write_safetensors


def end(process):
    """The exit code, the lines in which memopt-run says an error, and all that was said."""
    errors = process.communicate(timeout=300)[1]
    return process.returncode, [line for line in errors.splitlines() if "memopt-run: error: " in line], errors


def expect(process, code, *parts):
    """It ends with the exit code, and with one message that has these parts, or none. Returns what was said."""
    found, lines, errors = end(process)
    assert found == code and len(lines) == (1 if parts else 0), (found, errors)
    for part in parts:
        assert part in lines[0], (part, lines)
    return errors


def prepare(inputs, work, batch, stages, ranks, *options):
    """The batches of the small perceptron in `inputs`, as an option, and its package for ranks, by ZeRO's stage."""
    write_safetensors(work / "data.safetensors", rebatch(read_safetensors(inputs / "mlp" / "inputs.safetensors"), batch))
    packages = {stage: work / f"stage{stage}.memopt" for stage in stages}
    for stage, path in packages.items():
        expect(processes.start("memopt-compile", inputs / "mlp" / "model.pt2", f"--batch={batch}", "--optimizer=adamw", f"--zero-stage={stage}",
                               f"--ranks={ranks}", "--quiet", "-o", path, *options), 0)
    return f"--data={work}/data.safetensors", packages


def wait_for_steps(process, out):
    """Returns once the file that it writes says that it trains."""
    while "step 2/" not in out.read_text():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)


def read_results(folder):
    """Losses and the bytes of all tensors of a checkpoint."""
    return {"losses": json.loads((folder / "report.json").read_text())["losses"]} | {
        f"{name} {key}": value.tobytes() for name in ("model", "optimizer")
        for key, value in read_safetensors(folder / "checkpoint" / f"{name}.safetensors").items()}


def check_bytes(folder):
    """Each rank has used the bytes that were predicted, but for what an MPI has allocated."""
    for rank in json.loads((folder / "report.json").read_text())["per_rank"]:
        assert rank["hot_path_allocations"] <= 3, rank
        if rank["hot_path_allocations"] == 0:
            assert rank["used_peak_bytes"] == rank["predicted_peak_bytes"], rank


def check_losses(start, work, waiting):
    """All ranks end where rank 1 is killed, hangs, or is told to stop. `start(*options)` begins a training, and gives its process and those
    of the ranks once they train; `waiting`: what the message of a wait begins with."""
    process, ranks = start()
    os.kill(ranks[1], signal.SIGKILL)
    before = time.monotonic()
    code, _, errors = end(process)
    assert code != 0 and time.monotonic() - before < 30, (code, errors)
    process, ranks = start("--rank-timeout=1")
    os.kill(ranks[1], signal.SIGSTOP)
    expect(process, 3, waiting)
    process, ranks = start(f"--save={work}/stopped")
    os.kill(ranks[1], signal.SIGTERM)
    expect(process, 5, "stopped after step")
    assert (work / "stopped" / "model.safetensors").exists()
