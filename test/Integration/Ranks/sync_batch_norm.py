#!/usr/bin/env python3
"""sync_batch_norm.py FOLDER: ranks whose batch norms take statistics over all of them make the step of one rank that has
all their samples in one batch: losses, gradients, weights and running statistics agree but for the order of sums. Without
the option they do not. Used bytes are those predicted on every rank."""
import pathlib
import sys
import tempfile

import numpy as np

from processes import run
from reports import read_report
from tensor_files import read_safetensors, rebatch, write_safetensors

FILES = ("g.safetensors", "checkpoint/model.safetensors")


def train(model, data, options, folder):
    folder.mkdir()
    write_safetensors(folder / "data.safetensors", data)
    command = ["memopt-run", model, f"--data={folder}/data.safetensors", "--check-memory", "--quiet", "--steps=3", f"--report={folder}/r.json",
               f"--save={folder}/checkpoint", f"--save-gradients={folder}/g.safetensors", "--optimizer=sgd", "--lr=0.01", "--momentum=0.9", *options]
    run(*command)
    report = read_report(folder / "r.json")
    return {"losses": np.array(report["losses"])} | {f"{name} {key}": value for name in FILES
                                                     for key, value in read_safetensors(folder / name).items()}


def find_differences(one, several):
    """Names of what differs by more than rounding can."""
    assert one.keys() == several.keys()
    different = []
    for name, value in one.items():
        a, b = value.astype(np.float64), several[name].astype(np.float64)
        if not np.allclose(a, b, rtol=2e-3, atol=1e-4 * max(1e-6, np.abs(a).max())):
            different.append((name, float(np.abs(a - b).max()), float(np.abs(a).max())))
    return different


def main():
    inputs = pathlib.Path(sys.argv[1])
    model = inputs / "resnet18" / "model.pt2"
    data = read_safetensors(inputs / "resnet18" / "inputs.safetensors")
    small, large = rebatch(data, 2), rebatch(data, 4)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        one = train(model, large, ["--batch=4"], work / "one")
        ranks = ["--batch=2", "--ranks=2"]
        assert find_differences(one, train(model, small, ranks, work / "local")), "statistics of two ranks are those of one batch"
        for name, options in (("stage 0", []), ("stage 3", ["--zero-stage=3"]), ("budget", ["--activation-checkpointing=segments:2"])):
            several = train(model, small, [*ranks, "--sync-batch-norm", *options], work / name)
            assert not find_differences(one, several), (name, find_differences(one, several))
        # Each of two batches in turn has statistics of its own, those of all ranks.
        one = train(model, large, ["--batch=4", "--accumulative-counts=2"], work / "one of two")
        several = train(model, small, [*ranks, "--sync-batch-norm", "--accumulative-counts=2"], work / "two of two")
        assert not find_differences(one, several), find_differences(one, several)


main()
