#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training in bf16 and fp16 against float64, held to the error that PyTorch's autocast has.

    precision_numbers.py numbers MODEL PRECISION [options of memopt-run ...]
    precision_numbers.py skipped        a step that overflows leaves the bits of never having been
    precision_numbers.py activations MODEL [options of memopt-run ...]
                                        kept in bf16: bytes are fewer, the first loss has the bits of f32, and all else
                                        is held to the errors of bf16
    precision_numbers.py stochastic     parameters without a master copy: the same run, the same bits; training goes on

Inputs/autocast_errors.json holds the root mean square errors e of five steps of torch.autocast on the CPU (PyTorch 2.15,
sgd as in the models' fixture.json, fp16 with a loss scale of 1024) against float64. Ours may be
  gradients of each tensor  2 e + scale / 512 + group / 4096     scale and group: root mean squares of the tensor, and
  losses                    2 e + scale / 4096                   of the largest of its kind
  parameters at the end     3 e + scale / 16384
"""
import json
import pathlib
import sys
import tempfile

import numpy as np

import processes
from reports import read_report
from tensor_files import read_safetensors, write_safetensors

INPUTS = pathlib.Path(__file__).resolve().parents[1] / "Inputs"


def sample(array):
    """As the errors were taken: of at most 256 elements, evenly spread."""
    flat = array.reshape(-1)
    return flat if flat.size <= 256 else flat[np.arange(256) * flat.size // 256]


def rms(array):
    return float(np.sqrt(np.mean(np.square(array.astype("f8")))))


def settings(folder):
    sgd = json.loads((folder / "fixture.json").read_text())["sgd"]
    return ["--optimizer=sgd", f"--lr={sgd['lr']}", f"--momentum={sgd['momentum']}", f"--weight-decay={sgd['weight_decay']}"]


def run(out, folder, steps, *options, data=None):
    out.mkdir(exist_ok=True)
    command = ["memopt-run", folder / "model.pt2", "-o", out / "model.memopt", "--quiet", f"--steps={steps}", "--check-memory",
               f"--data={data or folder / 'inputs.safetensors'}", f"--report={out / 'report.json'}",
               f"--save={out / 'checkpoint'}", f"--save-gradients={out / 'gradients.safetensors'}", *options]
    processes.run(*command)
    return read_report(out / "report.json")


def numbers(out, model, precision, *options):
    folder = INPUTS / model
    errors = json.loads((INPUTS / "autocast_errors.json").read_text())[model][precision]
    reference = read_safetensors(folder / "reference.safetensors")
    scaling = ["--loss-scale=1024"] if precision == "fp16" else []
    # An option may not be given twice.
    own = [option for option in (f"--precision={precision}", *scaling) if option.split("=")[0] not in " ".join(options)]
    report = run(out, folder, 5, *own, *settings(folder), *options)
    worst = {}

    def check(kind, name, error, allowed):
        worst[kind] = max(worst.get(kind, 0), error / allowed)
        assert error <= allowed, f"{kind} {name}: error {error:.3g}, allowed {allowed:.3g}"

    losses = reference["f64.sgd.loss"]
    check("losses", "", float(np.max(np.abs(report["losses"] - losses))), 2 * errors["loss"] + float(np.max(losses)) / 4096)
    ours = read_safetensors(out / "gradients.safetensors")
    expected = {name: sample(reference["f64.grad." + name]) for name in errors["grad"] if "f64.grad." + name in reference}
    assert expected, "no gradient to compare"
    group = max(map(rms, expected.values()))
    for name, value in expected.items():
        check("gradients", name, rms(sample(ours[name]) - value), 2 * errors["grad"][name] + rms(value) / 512 + group / 4096)
    ours = read_safetensors(out / "checkpoint" / "model.safetensors")
    finals = {name: sample(reference["sgd.final." + name]) for name in errors["final"] if "sgd.final." + name in reference}
    for name, value in finals.items():
        if value.dtype.kind == "f":
            check("parameters", name, rms(sample(ours[name]) - value), 3 * errors["final"][name] + rms(value) / 16384)
    shares = ", ".join(f"{kind} {share:.2f}" for kind, share in worst.items())
    print(f"{model} {precision}: of what is allowed {shares}; peak {report['predicted_peak_bytes']['device']}")


def without_first_batch(source, target):
    """The data file's batches from the second on."""
    kept = {}
    for name, values in read_safetensors(source).items():
        step, tensor = name.removeprefix("step").split(".", 1)
        if step != "0":
            kept[f"step{int(step) - 1}.{tensor}"] = values
    write_safetensors(target, kept)


def skipped(out):
    for model, optimizer in (("mlp", "adamw"), ("resnet18", "sgd")):
        folder = INPUTS / model
        common = [f"--optimizer={optimizer}", "--lr=0.001", "--precision=fp16", "--backoff-factor=5.9604644775390625e-08",
                  "--growth-interval=2"]
        first = run(out / "all", folder, 5, *common, "--init-scale=1099511627776")
        assert first["skipped_steps"] == [0], first
        assert first["loss_scales"] == [2.0**40, 65536, 65536, 131072, 131072], first
        without_first_batch(folder / "inputs.safetensors", out / "rest.safetensors")
        second = run(out / "rest", folder, 4, *common, "--init-scale=65536", data=out / "rest.safetensors")
        assert second["skipped_steps"] == [] and second["losses"] == first["losses"][1:], (first, second)
        for name in ("model.safetensors", "optimizer.safetensors"):
            ours, theirs = (read_safetensors(out / part / "checkpoint" / name) for part in ("all", "rest"))
            for key in theirs:
                if key != "loss_scale.skipped_steps":
                    assert ours[key].tobytes() == theirs[key].tobytes(), f"{model} {key}: the skipped step left a trace"
    print("a skipped step leaves no trace")


def stochastic(out):
    folder = INPUTS / "gpt2"
    common = [*settings(folder), "--precision=bf16"]
    none = [*common, "--master-weights=none", "--seed=7"]
    with_master = run(out / "master", folder, 5, *common)
    losses = run(out / "none", folder, 5, *none)["losses"]
    assert np.allclose(losses, with_master["losses"], rtol=2e-3), (losses, with_master["losses"])
    saved = (out / "none" / "checkpoint" / "model.safetensors").read_bytes()
    # Fewer bytes, the same bits; in two runs, too.
    run(out / "small", folder, 5, *none, "--device-memory=4400KiB")
    assert (out / "small" / "checkpoint" / "model.safetensors").read_bytes() == saved
    run(out / "half", folder, 3, *none)
    run(out / "rest", folder, 2, *none, f"--load={out / 'half' / 'checkpoint'}")
    assert (out / "rest" / "checkpoint" / "model.safetensors").read_bytes() == saved
    run(out / "other", folder, 5, *none, "--seed=8")
    assert (out / "other" / "checkpoint" / "model.safetensors").read_bytes() != saved
    print("updates of bf16 parameters are rounded by counter")


def activations(out, model, *options):
    folder = INPUTS / model
    plain = run(out / "f32", folder, 3, *settings(folder), *options)
    narrow = run(out / "bf16", folder, 3, *settings(folder), *options, "--activation-dtype=bf16")
    assert narrow["losses"][0] == plain["losses"][0], (narrow["losses"], plain["losses"])
    bytes_of = [report["used_peak_bytes"]["device"] for report in (plain, narrow)]
    assert bytes_of[1] < bytes_of[0], bytes_of
    ours, theirs = ((out / part / "gradients.safetensors").read_bytes() for part in ("bf16", "f32"))
    assert ours != theirs, "gradients are those of f32"
    print(f"{model}: {bytes_of[1]} bytes instead of {bytes_of[0]}")
    numbers(out / "bf16", model, "bf16", "--precision=f32", "--activation-dtype=bf16", *options)


def main():
    with tempfile.TemporaryDirectory() as out:
        tests = {"numbers": numbers, "skipped": skipped, "activations": activations, "stochastic": stochastic}
        tests[sys.argv[1]](pathlib.Path(out), *sys.argv[2:])


if __name__ == "__main__":
    main()
