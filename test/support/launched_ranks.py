# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that a launcher has started: how they end, and what they leave. What the launcher itself says of an error is looked over."""

import json
import os
import signal
import time

from tensor_files import read_safetensors


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


def read_results(folder):
    """Losses and the bytes of all tensors of a checkpoint."""
    return {"losses": json.loads((folder / "report.json").read_text())["losses"]} | {
        f"{name} {key}": value.tobytes() for name in ("model", "optimizer")
        for key, value in read_safetensors(folder / "checkpoint" / f"{name}.safetensors").items()}


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
