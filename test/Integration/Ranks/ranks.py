#!/usr/bin/env python3
"""ranks.py FOLDER [OPTION...]: N ranks give the bits of one rank that accumulates N batches: losses, gradients, weights, running
statistics and optimizer state, also when a run goes on with another number of ranks; evaluations, whose batches they share
out, are those of one rank, too. Used bytes are those predicted on
every rank. A rank that dies, hangs or meets a bad sample ends the run with one message. With OPTIONs of memopt-run, which say
where to run, a part of that."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import numpy as np

import processes
from reports import read_report
from tensor_files import read_safetensors, rebatch, write_safetensors

FILES = ("g.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors")


def start(model, data, options, folder):
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "data.safetensors", data)
    command = ["memopt-run", model, f"--data={folder}/data.safetensors", *options, *sys.argv[2:]]
    return processes.start(*command)


def train(model, data, options, folder):
    """Everything that a run leaves, by name."""
    process = start(model, data, ["--check-memory", "--quiet", f"--report={folder}/r.json", f"--save={folder}/checkpoint",
                                  f"--save-gradients={folder}/g.safetensors", *options], folder)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    report = read_report(folder / "r.json")
    result = {"losses": report["losses"], "norms": report.get("gradient_norms"), "evaluations": report.get("evaluations"),
              "ranks": len(report.get("per_rank", [0]))}
    for name in FILES:
        result |= {f"{name}:{key}": value.tobytes() for key, value in read_safetensors(folder / name).items()}
    return result


def check_equal(name, one, several, ranks):
    assert several.pop("ranks") == ranks and one.pop("ranks") == 1
    different = [key for key in one.keys() | several.keys() if one.get(key) != several.get(key)]
    assert not different, f"{name}: {different}"


def check_bits(inputs, work):
    mlp, resnet = (read_safetensors(inputs / name / "inputs.safetensors") for name in ("mlp", "resnet18"))
    rows = np.random.default_rng(5).standard_normal((96, 3, 6)).astype(np.float32)
    draws = {f"step{i}.x": rows[8 * i:8 * i + 8] for i in range(12)}
    cases = [("mlp", "mlp/model.pt2", mlp, 8, 4, ["--optimizer=adamw"]),
             ("clip", "mlp/model.pt2", mlp, 16, 2, ["--optimizer=sgd", "--momentum=0.9", "--max-grad-norm=0.1"]),
             ("codes", "mlp/model.pt2", mlp, 16, 2, ["--optimizer=adamw", "--optim-bits=8"]),
             ("batch norm", "resnet18/model.pt2", resnet, 4, 3, ["--optimizer=sgd", "--momentum=0.9"]),
             ("budget", "mlp/model.pt2", mlp, 16, 2, ["--optimizer=sgd", "--activation-checkpointing=segments:2"]),
             ("dropout", "dropout.mlir", draws, 8, 3, ["--optimizer=sgd"]),
             ("attention", "attention-dropout.mlir", draws, 8, 3, ["--optimizer=sgd"]),
             ("state shared out", "mlp/model.pt2", mlp, 8, 3, ["--optimizer=adamw", "--zero-stage=1"]),
             ("gradients shared out", "resnet18/model.pt2", resnet, 4, 3, ["--optimizer=nadam", "--zero-stage=2"]),
             ("codes shared out", "mlp/model.pt2", mlp, 8, 3, ["--optimizer=adamw", "--optim-bits=8", "--zero-stage=2"]),
             ("parameters shared out", "resnet18/model.pt2", resnet, 4, 3, ["--optimizer=adamw", "--zero-stage=3"]),
             ("statistics of many ranks", "resnet18/model.pt2", resnet, 2, 10, ["--optimizer=sgd", "--momentum=0.9"]),
             ("sums of many ranks", "mlp/model.pt2", mlp, 2, 12, ["--optimizer=sgd", "--momentum=0.9", "--zero-stage=1"]),
             ("averages", "mlp/model.pt2", mlp, 8, 3, ["--optimizer=adamw", "--ema-decay=0.9", "--zero-stage=3"]),
             ("units of gradients", "resnet18/model.pt2", resnet, 4, 3, ["--optimizer=adamw", "--zero-stage=2"]),
             ("under a budget", "resnet18/model.pt2", resnet, 4, 3, ["--optimizer=adamw", "--zero-stage=3", "--device-memory=1600000"]),
             ("padding is never seen", "dropout.mlir", draws, 8, 3, ["--optimizer=adamw", "--eps=0", "--zero-stage=3"]),
             ("random", "mlp/model.pt2", mlp, 8, 3, ["--optimizer=adamw", "--zero-stage=3", "--init=random", "--optim-bits=8"])]
    if len(sys.argv) > 2:
        cases = [case for case in cases if case[0] in ("mlp", "clip", "dropout", "sums of many ranks", "padding is never seen")]
    for name, model, data, batch, ranks, options in cases:
        data, options = rebatch(data, batch), [*options, "--steps=3", f"--batch={batch}"]
        alone = [option for option in options if not option.startswith(("--zero-stage", "--device-memory"))]
        one = train(inputs / model, data, [*alone, f"--accumulative-counts={ranks}"], work / f"{name} one")
        several = train(inputs / model, data, [*options, f"--ranks={ranks}"], work / f"{name} several")
        check_equal(name, one, dict(several), ranks)
        in_turn = train(inputs / model, data, [*options, f"--ranks={ranks}", "--overlap-collectives=off"], work / f"{name} in turn")
        assert in_turn == several, name


def check_evaluations(inputs, work):
    """Batches of an evaluation are dealt out, the last ones to some of the ranks; parameters may be shared out meanwhile."""
    resnet, model = read_safetensors(inputs / "resnet18" / "inputs.safetensors"), inputs / "resnet18" / "model.pt2"
    data = rebatch(resnet, 4)
    options = ["--optimizer=adamw", "--steps=3", "--batch=4", f"--eval-data={work}/evaluation.safetensors", "--eval-every=2",
               "--save-best", "--patience=9"]
    write_safetensors(work / "evaluation.safetensors", data)
    count = len(data) // len({name.partition(".")[2] for name in data})
    assert count % 3, "the last round is to be one of some ranks"
    one = train(model, data, [*options, "--accumulative-counts=3"], work / "evaluated by one")
    assert [entry["step"] for entry in one["evaluations"]] == [2, 3] and one["evaluations"][0]["samples"] == 4 * count
    several = train(model, data, [*options, "--ranks=3", "--zero-stage=3"], work / "evaluated by several")
    check_equal("evaluations", one, several, 3)
    # Evaluation by itself, from the checkpoint.
    write_safetensors(work / "data.safetensors", data)
    reports = []
    for ranks in (1, 3):
        subprocess.run(["memopt-run", model, "--mode=eval", "--batch=4", f"--data={work}/data.safetensors", f"--ranks={ranks}", "--quiet",
                        f"--load={work}/evaluated by one/checkpoint", f"--report={work}/eval.json", "--check-memory"],
                       check=True, stdout=subprocess.DEVNULL)
        reports.append(json.load(open(work / "eval.json")))
    assert reports[0]["outputs"] == reports[1]["outputs"] == one["evaluations"][1]["outputs"], reports
    assert reports[0]["losses"] == reports[1]["losses"] and len(reports[1]["per_rank"]) == 3, reports


def check_both_sums(inputs, work):
    """Ranks that accumulate: sums nest, so they agree but for the order of additions."""
    data = rebatch(read_safetensors(inputs / "mlp" / "inputs.safetensors"), 8)
    options = ["--optimizer=sgd", "--momentum=0.9", "--max-grad-norm=0.1", "--batch=8", "--steps=2"]
    one = train(inputs / "mlp" / "model.pt2", data, [*options, "--accumulative-counts=4"], work / "four")
    for stage in (0, 1, 2, 3):
        two = train(inputs / "mlp" / "model.pt2", data,
                    [*options, "--accumulative-counts=2", "--ranks=2", f"--zero-stage={stage}"], work / f"two by two {stage}")
        assert np.allclose(one["losses"], two["losses"], rtol=1e-6), (one["losses"], two["losses"])
        assert len(one["norms"]) == 2 and np.allclose(one["norms"], two["norms"], rtol=1e-5), (one["norms"], two["norms"])
        for key in one:
            if ":" in key:
                a, b = (np.frombuffer(run[key], np.float32) for run in (one, two))
                assert np.allclose(a, b, rtol=1e-5, atol=1e-6 * np.abs(a).max()), key


def check_resume(inputs, work):
    """Two steps on two ranks, and then two on one, or on four with other batches, or of parts of a batch: positions are samples."""
    model, data = inputs / "mlp" / "model.pt2", read_safetensors(inputs / "mlp" / "inputs.safetensors")
    fours, eights = rebatch(data, 4), rebatch(data, 8)
    options = ["--optimizer=adamw", "--quiet"]
    whole = train(model, eights, [*options, "--batch=8", "--ranks=2", "--steps=4"], work / "whole")
    first = start(model, eights, [*options, "--batch=8", "--ranks=2", "--steps=2", f"--save={work}/part"], work / "first")
    assert first.wait() == 0, first.stderr.read()
    alone = train(model, eights, [*options, "--batch=8", "--accumulative-counts=2", "--steps=2", f"--load={work}/part"],
                  work / "alone")
    weights = FILES[1] + ":"
    for key in whole:
        if key.startswith(weights) or key.startswith(FILES[2]):
            assert whole[key] == alone[key], key
    # State that ranks shared out is that of any other run, before and after.
    for stage in (2, 3):
        shared = train(model, eights, [*options, "--batch=8", "--ranks=2", f"--zero-stage={stage}", "--steps=2", f"--load={work}/part"],
                       work / f"shared {stage}")
        for key in whole:
            if key.startswith(weights) or key.startswith(FILES[2]):
                assert whole[key] == shared[key], key
    four = train(model, fours, [*options, "--batch=4", "--ranks=4", "--steps=2", f"--load={work}/part"], work / "four ranks")
    assert np.allclose(whole["losses"][2:], four["losses"], rtol=1e-5), (whole["losses"], four["losses"])
    # One rank, whose batches are cut in two before the checkpoint and in four behind it.
    sixteens = rebatch(data, 16)
    cut = [*options, "--batch=16", "--steps=2"]
    first = start(model, sixteens, [*cut, "--micro-batches=2", f"--save={work}/cut"], work / "cut in two")
    assert first.wait() == 0, first.stderr.read()
    check_equal("resumed", train(model, sixteens, [*cut, "--micro-batches=4", f"--load={work}/cut"], work / "cut in four"), four, ranks=4)


def children_of(process):
    return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def check_failures(inputs, work):
    model, data = inputs / "mlp" / "model.pt2", rebatch(read_safetensors(inputs / "mlp" / "inputs.safetensors"), 16)
    package = work / "p.memopt"
    subprocess.run(["memopt-compile", model, "--batch=16", "--ranks=2", "-o", package, "--optimizer=sgd"], check=True,
                   stderr=subprocess.DEVNULL)

    def fail(send, options=(), batches=data, whom="one"):
        process = start(package, batches, ["--ranks=2", "--steps=100000000", *options], work / "failing")
        if send:
            while not process.stdout.readline().startswith("step 2/"):
                assert process.poll() is None, process.stderr.read()
            children = children_of(process)
            for pid in [process.pid, *children] if whom == "all" else children[1:]:
                os.kill(pid, send)
        _, errors = process.communicate()
        return process.returncode, errors.strip().splitlines()

    code, lines = fail(signal.SIGKILL)
    assert code == 3 and lines == ["memopt-run: error: rank 1: was ended by signal 9 (Killed)"], (code, lines)
    code, lines = fail(signal.SIGSTOP, ["--rank-timeout=1"])
    assert code == 3 and len(lines) == 1, (code, lines)
    assert "rank 0: " in lines[0] and "waited 1 s for rank 1; --rank-timeout=SECONDS gives it longer" in lines[0], lines
    # One of them is asked to stop, or all are at once: they do so after the same step.
    for whom in ("one", "all"):
        code, lines = fail(signal.SIGTERM, [f"--save={work}/stopped {whom}"], whom=whom)
        assert code == 5 and len(lines) == 1 and "stopped after step" in lines[0], (code, lines)
        assert (work / f"stopped {whom}" / "model.safetensors").exists()

    bad = {name: value.copy() for name, value in data.items()}
    image = next(name for name in bad if name.startswith("step3.") and bad[name].dtype == np.float32)
    bad[image].flat[7] = np.nan  # the second step's batch of rank 1
    code, lines = fail(None, [f"--save={work}/bad"], bad)
    assert code == 4 and len(lines) == 1, (code, lines)
    assert "rank 1: step 2: the loss is " in lines[0] and "input '" in lines[0], lines
    assert f"; the checkpoint of step 1 is in '{work}/bad'" in lines[0], lines
    assert json.loads((work / "bad" / "state.json").read_text())["step"] == 1


def main():
    inputs = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        check_bits(inputs, work)
        if len(sys.argv) > 2:
            return
        check_evaluations(inputs, work)
        check_both_sums(inputs, work)
        check_resume(inputs, work)
        check_failures(inputs, work)


main()
