#!/usr/bin/env python3
"""batches.py FOLDER: steps on rows cut in several ways agree in losses, gradients and weights; used bytes are predicted
ones. The same draws come out however samples are cut, which shows in losses that are equal but for the order of sums."""
import pathlib
import sys
import tempfile

import numpy as np

from processes import run
from reports import read_report
from tensor_files import read_safetensors, rebatch, write_safetensors


def train(model, data, options, folder):
    batches = folder / "data.safetensors"
    write_safetensors(batches, data)
    run("memopt-run", model, f"--data={batches}", "--quiet", "--check-memory", f"--report={folder}/r.json",
        f"--save-gradients={folder}/g.safetensors", f"--save={folder}/checkpoint", "--optimizer=sgd", "--lr=0.05", "--momentum=0.9",
        *options)
    report = read_report(folder / "r.json")
    tensors = read_safetensors(folder / "g.safetensors") | read_safetensors(folder / "checkpoint" / "model.safetensors")
    return np.array(report["losses"]), tensors


def compare(model, data, whole, rows, ways, steps=3, axis=0):
    """`ways`: options and the rows of their batches."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        losses, tensors = train(model, rebatch(data, rows, axis), [*whole, f"--steps={steps}"], folder)
        for options, size in ways:
            found, others = train(model, rebatch(data, size, axis), [*options, f"--steps={steps}"], folder)
            np.testing.assert_allclose(found, losses, rtol=2e-5, err_msg=str(options))
            assert others.keys() == tensors.keys(), options
            for key, value in tensors.items():
                scale = max(float(np.abs(value).max()), 1e-6) if value.size else 1
                np.testing.assert_allclose(others[key], value, atol=2e-5 * scale, rtol=0, err_msg=f"{options} {key}")
        # A cut that draws other numbers would be far away.
        return losses


def main():
    inputs = pathlib.Path(sys.argv[1])
    mlp = inputs / "mlp"
    compare(mlp / "model.pt2", read_safetensors(mlp / "inputs.safetensors"), ["--batch=64"], 64,
            [(["--accumulative-counts=2"], 32), (["--batch=64", "--micro-batches=4"], 64),
             (["--batch=16", "--gradient-accumulation-steps=4"], 16),
             (["--batch=32", "--micro-batches=2", "--accumulative-counts=2", "--activation-checkpointing=segments:2"], 32)],
            steps=2)
    gpt2 = inputs / "gpt2"
    compare(gpt2 / "model.pt2", read_safetensors(gpt2 / "inputs.safetensors"), [], 4,
            [(["--micro-batches=2"], 4), (["--batch=1", "--accumulative-counts=4"], 1)], steps=2)
    rows = np.random.default_rng(0).standard_normal((48, 3, 6)).astype(np.float32)
    data = {f"step{i}.x": rows[8 * i:8 * i + 8] for i in range(6)}
    for graph in (inputs / "dropout.mlir", inputs / "attention-dropout.mlir"):
        alone = compare(graph, data, [], 8, [(["--micro-batches=4"], 8), (["--batch=2", "--accumulative-counts=4"], 2)])
        with tempfile.TemporaryDirectory() as name:
            other, _ = train(graph, rebatch(data, 8), ["--seed=7", "--steps=3"], pathlib.Path(name))
            assert not np.allclose(other, alone, rtol=1e-2), (other, alone)
    data = {name: np.ascontiguousarray(np.moveaxis(value, 0, 1)) for name, value in data.items()}
    for graph in ("time-first.mlir", "shared-weight.mlir"):
        compare(inputs / graph, data, [], 8, [(["--micro-batches=4"], 8), (["--batch=2", "--accumulative-counts=4"], 2)], axis=1)


if __name__ == "__main__":
    main()
