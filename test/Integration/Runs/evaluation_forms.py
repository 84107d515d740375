#!/usr/bin/env python3
"""evaluation_forms.py FOLDER: evaluation in the course of training, of state in every form.

FOLDER has own.memopt, the model of $MODEL compiled with --mode=eval, which evaluates in an arena of its own; $DATA are batches."""
import json
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(sys.argv[1]).resolve()
DATA, MODEL = os.environ["DATA"], os.environ["MODEL"]
OWN = f"--eval-package={FOLDER}/own.memopt"


def train(*options, code=0):
    report = FOLDER / "forms.json"
    command = ["memopt-run", MODEL, f"--data={DATA}", f"--eval-data={DATA}", "--eval-every=2", "--steps=3", "--quiet", "--check-memory",
               f"--report={report}", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, f"{command}: code {done.returncode}\n{done.stderr[-3000:]}"
    return done.stderr if code else json.loads(report.read_text())


def check(*options):
    """The same losses and evaluations; one arena, of the larger program, with each tensor once."""
    ours, theirs = train(*options), train(*options, OWN)
    assert ours["losses"] == theirs["losses"], options
    assert ours["evaluations"] == theirs["evaluations"] and len(ours["evaluations"]) == 2, (options, ours["evaluations"], theirs["evaluations"])
    programs = ours["programs"]
    assert [(program["name"], program["kind"]) for program in programs] == [("train", "train"), ("evaluate", "eval")], programs
    for program in programs:
        assert program["predicted_peak_bytes"] == program["used_peak_bytes"], (options, program)
    assert all(program["steps"] > 0 for program in programs), programs
    assert ours["predicted_peak_bytes"]["device"] == max(program["predicted_peak_bytes"]["device"] for program in programs), options


ADAM = ("--optimizer=adam", "--lr=0.01")
check("--lr=0.5")
check("--micro-batches=2", "--lr=0.5")
check(*ADAM, "--offload-optimizer=cpu")
check(*ADAM, "--offload-param=cpu")
check(*ADAM, "--ema-decay=0.5", "--averaged")
for stage in (1, 3):
    check(*ADAM, "--ranks=2", f"--zero-stage={stage}")
    check(*ADAM, "--ranks=2", f"--zero-stage={stage}", "--ema-uniform", "--averaged")
assert "keeps none" in train("--averaged", code=1)

# A package that stays is made once, and evaluates without more ado.
kept = FOLDER / "kept.memopt"
train("-o", str(kept), "--lr=0.5")
made = kept.stat().st_mtime_ns
assert train("-o", str(kept), "--lr=0.5") and kept.stat().st_mtime_ns == made
report = FOLDER / "again.json"
subprocess.run(["memopt-run", kept, f"--data={DATA}", f"--eval-data={DATA}", "--eval-every=2", "--steps=3", "--quiet", "--lr=0.5",
                f"--report={report}"], check=True, capture_output=True)
assert json.loads(report.read_text())["evaluations"] == train("--lr=0.5")["evaluations"]
print("evaluations in all forms agree")
