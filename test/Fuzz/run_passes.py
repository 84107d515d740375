#!/usr/bin/env python3
"""run_passes.py FILE...: runs every pass of memopt-opt and memopt-compile on every module of the files.

A module that parses comes out of a pass or is refused with an error: exit code 0 or 1, and with 1 a message. Prints each
run that ended otherwise, by a signal above all, and the number of runs; exits 1 when there was one.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

PASSES = [
    "--memopt-fuse-conv-bn-eval=modules=all", "--memopt-sink-relu", "--memopt-write-out-attention",
    "--memopt-write-out-rank-sums", "--memopt-mixed-precision=type=bf16", "--memopt-mixed-precision=type=f16",
    "--memopt-autodiff", "--memopt-insert-optimizer=settings=adamw",
    "--memopt-insert-optimizer=settings=sgd ranks=2 zero-stage=3 max-grad-norm=1", "--memopt-set-batch=size=3",
    "--memopt-guard-state", "--memopt-split-batch=parts=2", "--memopt-split-batch=batches=2 ranks=2 scatter=true",
    "--memopt-shard-parameters=ranks=2", "--memopt-skip-overflow", "--memopt-annotate-input-ranges",
    "--memopt-check-indices", "--memopt-choose-layout", "--memopt-lower-to-linalg",
    "--memopt-narrow-frozen=code=nf4", "--memopt-recompute-elementwise", "--memopt-narrow-activations=type=int8",
    "--memopt-narrow-activations=type=bf16 only=0 choice=bf16", "--memopt-form-kernels", "--memopt-pack-masks",
    "--memopt-reserve-exchange", "--memopt-verify-kernel-graph", "--memopt-schedule",
    "--memopt-activation-checkpointing=segments=2", "--memopt-activation-checkpointing=modules=*",
    "--memopt-offload=optimizer=cpu parameters=cpu activations=cpu", "--memopt-hoist-invariants",
    "--memopt-rematerialize=budget=10", "--memopt-plan-memory", "--memopt-plan-memory=budget=10",
    "--memopt-verify-planned", "--memopt-joint", "--memopt-kernels", "--memopt-plan", "--memopt-plan=budget=10",
    "--memopt-train", "--memopt-train=optimizer=adam budget=100 max-grad-norm=1",
    "--memopt-train=checkpoint-segments=2", "--memopt-train=optimizer=adamw micro-batches=2 precision=bf16",
    "--memopt-train=optimizer=adamw ranks=2 zero-stage=3",
    "--memopt-train=optimizer=adamw activation-dtype=bf16 offload-optimizer=cpu",
]
# What memopt-opt says of a pass or an option that it does not know, which would test nothing.
UNKNOWN = ("Unknown command line argument", "no such option", "failed to add", "does not refer to a")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
    is_known = not any(words in done.stderr for words in UNKNOWN)
    if is_known and (done.returncode == 0 or (done.returncode == 1 and "error:" in done.stderr)):
        return None
    return f"code {done.returncode}: {' '.join(command)}\n{done.stderr[-600:]}"


def main():
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for path in map(pathlib.Path, sys.argv[1:]):
            for number, text in enumerate(path.read_text().split("// -----\n")):
                module = pathlib.Path(folder) / f"{path.stem}-{number}.mlir"
                module.write_text(text)
                runs += [["memopt-opt", option, str(module)] for option in PASSES]
                runs += [["memopt-compile", str(module), "-o", str(module.with_suffix(f".{mode}")), f"--mode={mode}", "--threads=1"]
                         for mode in ("train", "eval")]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            failures = [failure for failure in pool.map(run, runs) if failure]
    print("\n".join(failures + [f"{len(runs)} runs, {len(failures)} ended otherwise"]))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
