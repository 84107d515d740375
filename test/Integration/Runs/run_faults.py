#!/usr/bin/env python3
"""run_faults.py FIXTURE SHIMS FOLDER [CASE...]: what a run leaves when its disk, its outputs or its data fail.

Each case is a function of this file; FIXTURE is a folder with model.pt2 and inputs.safetensors, SHIMS that of the libraries which
let calls fail, FOLDER where to work. The first case that fails ends it with what was seen."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

import processes
from tensor_files import read_safetensors, rebatch, write_safetensors

FIXTURE, SHIMS, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
DATA = FIXTURE / "inputs.safetensors"
TENSORS = ("model.safetensors", "optimizer.safetensors")
STEPS = 5


def compile_package(name, *options):
    subprocess.run(["memopt-compile", FIXTURE / "model.pt2", "-o", FOLDER / name, "--quiet", *options], check=True)
    return FOLDER / name


def shim(name, **variables):
    """The environment that loads a shim. A sanitizer's library need not be the first."""
    library = FOLDER / f"{name}.so"
    if not library.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SHIMS / f"{name}.c", "-ldl"], check=True)
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return {"LD_PRELOAD": str(library), "ASAN_OPTIONS": sanitizer, **variables}


def faults(rules, **variables):
    return shim("faults", FAULTS=rules, **variables)


def train(*options, env={}, data=DATA, package="train.memopt", steps=STEPS):
    command = ["memopt-run", FOLDER / package, f"--data={data}", f"--steps={steps}", *options]
    return processes.run(*command, code=None, env={**os.environ, **env})


def evaluate(*options, data=DATA, **more):
    return train(f"--eval-package={FOLDER}/eval.memopt", f"--eval-data={data}", "--eval-every=1", *options, **more)


def succeed(done):
    assert done.returncode == 0, (done.args, done.returncode, done.stderr)
    return done


def state(folder):
    return json.loads((folder / "state.json").read_text())


def contents(folder):
    return [(folder / name).read_bytes() for name in TENSORS]


def fresh(name="run"):
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    return FOLDER / name


def spoil(step, value, kind, batch=None):
    """The batches, of another size if one is given, with a value in one of them."""
    tensors = {name: array.copy() for name, array in read_safetensors(DATA).items()}
    tensors = rebatch(tensors, batch) if batch else tensors
    name = next(name for name in tensors if name.startswith(f"step{step}.") and tensors[name].dtype.kind == kind)
    tensors[name].flat[3] = value
    write_safetensors(FOLDER / "bad.safetensors", tensors)
    return FOLDER / "bad.safetensors"


def whole_run(*options):
    """A run that meets no fault: what is in its folder."""
    folder = fresh("whole")
    succeed(train(f"--save={folder}", "--quiet", *options))
    return contents(folder)


# ----------------------------------------------------------------------------------------------------------
# The disk
# ----------------------------------------------------------------------------------------------------------

def one_call_fails():
    """Any single call that fails is made good: the run ends well, with the checkpoints of one that met no fault."""
    expected = whole_run()
    for call, error in (("fsync", 5), ("rename", 116), ("pwrite", 28), ("fallocate", 28), ("mkdir", 5)):
        for skip in {"mkdir": (3, 6), "fallocate": (2, 9)}.get(call, (2, 9, 16)):
            folder = fresh()
            done = succeed(train(f"--save={folder}", "--save-every=1", "--keep=3", "--quiet",
                                 env=faults(f"{call}:{error}:{skip}:1", FAULTS_IN=str(folder))))
            assert "tried again" in done.stderr and "is written" in done.stderr, (call, skip, done.stderr)
            assert contents(folder) == expected, (call, skip)
            for kept in folder.glob("step-*"):
                assert state(kept)["step"] == int(kept.name[5:]) < STEPS, kept
            assert not [path for path in folder.iterdir() if path.name.startswith(".")], list(folder.iterdir())


def a_disk_that_stays_full():
    """The old checkpoint stays, training goes to its end, and the last save is tried several times."""
    folder = fresh()
    succeed(train(f"--save={folder}", "--quiet", steps=2))
    before = contents(folder)
    done = train(f"--save={folder}", f"--load={folder}", "--save-every=1", env=faults("pwrite:28", FAULTS_IN=str(folder)))
    assert done.returncode == 3 and "step 7/7" in done.stdout and "No space left" in done.stderr.splitlines()[-1], done
    assert done.stderr.count("it is tried again in") == 3, done.stderr
    assert contents(folder) == before and state(folder)["step"] == 2


def room_is_looked_at():
    folder = fresh()
    done = train(f"--save={folder}", "--save-every=1", env=faults("", ROOM="900000"))
    assert done.returncode == 3 and not done.stdout and "2 checkpoints of" in done.stderr, done
    assert not folder.exists()
    succeed(train(f"--save={folder}", "--quiet", env=faults("", ROOM="900000")))  # one is enough here


def calls_are_cut_short():
    expected = whole_run()
    folder = fresh()
    succeed(train(f"--save={folder}", "--quiet", f"--trace={FOLDER}/t.json", steps=STEPS,
                  env=faults("write:short:0:50,pwrite:short:0:50,read:short:0:200,fallocate:4:0:2", FAULTS_IN=str(FOLDER))))
    assert contents(folder) == expected
    json.loads((FOLDER / "t.json").read_text())


def few_calls_are_known():
    """File systems without an exchange of names, hard links or locks."""
    folder = fresh()
    done = succeed(evaluate(f"--save={folder}", "--save-best", "--save-every=1", "--keep=3", "--quiet",
                            env=faults("renameat2:22,link:1,linkat:1,flock:37,fallocate:95")))
    assert "gives no lock" in done.stderr, done.stderr
    assert state(folder)["step"] == STEPS and state(folder / "step-4")["step"] == 4 and (folder / "best").is_dir()
    # What another run has not done may be on its way from another host.
    (folder / ".saving-0123456789abcdef").mkdir()
    succeed(train(f"--save={folder}", f"--load={folder}", "--quiet", env=faults("flock:37")))
    assert (folder / ".saving-0123456789abcdef").exists()
    succeed(train(f"--save={folder}", f"--load={folder}", "--quiet"))
    assert not (folder / ".saving-0123456789abcdef").exists()


def nothing_counts_before_it_is_flushed():
    folder, order = FOLDER / "new" / "run", FOLDER / "order"
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir()
    order.unlink(missing_ok=True)
    succeed(evaluate(f"--save={folder}", "--save-best", "--save-every=1", "--keep=3", "--quiet", env=shim("order", ORDER=str(order))))
    flushed, renamed = set(), 0
    for what, inode, *paths in (line.split("\t") for line in order.read_text().splitlines()):
        if what == "sync":
            flushed.add(inode)
        elif str(folder) in paths[1]:
            assert inode in flushed, paths
            renamed += 1
    assert renamed > STEPS and str(folder.parent.stat().st_ino) in flushed


# ----------------------------------------------------------------------------------------------------------
# Ranks
# ----------------------------------------------------------------------------------------------------------

def a_slow_save_is_no_hang():
    """A file server takes longer than --rank-timeout."""
    folder = fresh()
    succeed(train("--ranks=2", "--rank-timeout=1", f"--save={folder}", "--quiet", package="ranks.memopt", steps=2,
                  env=faults("fsync:s3:1:1", FAULTS_IN=f"{folder}/.saving")))
    assert state(folder)["step"] == 2


def a_rank_that_fails_costs_no_step():
    """Also where the save takes longer than the others are waited for once one has left."""
    folder = fresh()
    for value, kind, code in ((77, "i", 1), (np.nan, "f", 4)):
        data = spoil(3, value, kind)  # of rank 1 in step 2
        done = train("--ranks=2", f"--save={fresh()}", package="ranks.memopt", data=data,
                     env=faults("fsync:s7:0:1", FAULTS_IN=f"{folder}/.saving"))
        assert done.returncode == code and "step 2: " in done.stderr, done.stderr
        assert f"the checkpoint of step 1 is in '{folder}'" in done.stderr and state(folder)["step"] == 1, done.stderr


def a_rank_that_fails_takes_no_shard_along():
    """Ranks share out the state, and one of them alone meets a bad sample: all leave that step, and write the checkpoint together."""
    for stage in (1, 2, 3):
        package, ranks = compile_package(f"zero{stage}.memopt", "--optimizer=adamw", "--ranks=2", f"--zero-stage={stage}"), ["--ranks=2", "--quiet"]
        expected = fresh("whole")
        succeed(train(*ranks, f"--save={expected}", package=package, steps=3))
        for rank, options in ((1, []), (0, []), (1, ["--save-every=1"]), (1, ["--no-save"])):
            folder, bad = fresh(), spoil(2 + rank, 77, "i")  # of that rank in step 2
            saves = [] if "--no-save" in options else [f"--save={folder}", *options]
            done = train(*ranks, *saves, package=package, data=bad)
            line, = done.stderr.splitlines()
            assert done.returncode == 1 and f"error: rank {rank}: step 2: " in line and "holds 77" in line, done.stderr
            if not saves:
                continue
            assert line.endswith(f"; the checkpoint of step 1 is in '{folder}'") and state(folder)["step"] == 1, line
            succeed(train(*ranks, f"--load={folder}", f"--save={folder}", package=package, steps=2))
            assert contents(folder) == contents(expected), (stage, rank, options)
        # A loss that is not finite, and a disk that takes nothing at that time.
        folder = fresh()
        done = train(*ranks, f"--save={folder}", package=package, data=spoil(3, np.nan, "f"))
        assert done.returncode == 4 and f"; the checkpoint of step 1 is in '{folder}'" in done.stderr, done.stderr
        done = train(*ranks, f"--save={fresh()}", package=package, data=spoil(3, 77, "i"), env=faults("pwrite:28", FAULTS_IN=str(folder)))
        line, = done.stderr.splitlines()
        assert done.returncode == 1 and "rank 1: step 2: " in line and "the state of step 1 could not be saved: " in line, line


def a_batch_in_parts_is_refused_by_all():
    """The bad sample comes in the middle of a step."""
    package = compile_package("parts.memopt", "--optimizer=adamw", "--ranks=2", "--zero-stage=2", "--accumulative-counts=2", "--batch=8")
    folder = fresh()
    done = train("--ranks=2", "--quiet", f"--save={folder}", package=package, data=spoil(7, 77, "i", batch=8))  # rank 1's second of step 2
    line, = done.stderr.splitlines()
    assert done.returncode == 1 and "rank 1: step 2: batch 2 of 2: " in line and state(folder)["step"] == 1, done.stderr


# ----------------------------------------------------------------------------------------------------------
# Evaluations
# ----------------------------------------------------------------------------------------------------------

def a_failed_evaluation_costs_no_step():
    folder = fresh()
    done = evaluate(f"--save={folder}", data=spoil(2, 77, "i"))
    assert done.returncode == 1 and f"the checkpoint of step 1 is in '{folder}'" in done.stderr, done.stderr
    assert state(folder)["step"] == 1


def a_failed_evaluation_of_one_rank_costs_no_step():
    package, folder = compile_package("zero2.memopt", "--optimizer=adamw", "--ranks=2", "--zero-stage=2"), fresh()
    good = FOLDER / "good.safetensors"
    shutil.copy(DATA, good)
    done = train("--ranks=2", "--quiet", f"--eval-package={FOLDER}/eval.memopt", f"--eval-data={spoil(1, 77, 'i')}", "--eval-every=1",
                 f"--save={folder}", package=package, data=good)
    line, = done.stderr.splitlines()
    assert done.returncode == 1 and "rank 1: " in line and "evaluation after step 1" in line, line
    assert f"the checkpoint of step 1 is in '{folder}'" in line and state(folder)["step"] == 1, line


def what_is_no_number_is_never_best():
    folder = fresh()
    done = evaluate(f"--save={folder}", "--save-best", "--patience=2", "--quiet", data=spoil(0, np.nan, "f"))
    assert "2 evaluations without a smaller loss" in done.stderr, done
    assert not (folder / "best").exists() and state(folder)["step"] == 2


def the_best_outlives_a_resume():
    folder = fresh()
    succeed(evaluate(f"--save={folder}", "--save-best", "--quiet"))
    best = state(folder)["best_evaluation"]
    assert state(folder / "best")["step"] == best["step"]
    done = succeed(evaluate(f"--save={folder}", f"--load={folder}", "--save-best", "--patience=2", "--lr=30", "--quiet"))
    assert "2 evaluations without a smaller loss" in done.stderr and state(folder)["step"] == STEPS + 2, done.stderr
    assert state(folder)["best_evaluation"] == best and state(folder / "best")["step"] == best["step"]
    assert state(folder)["evaluations_without_a_better_one"] == 2


# ----------------------------------------------------------------------------------------------------------
# Logs and signals
# ----------------------------------------------------------------------------------------------------------

def a_log_waits_for_room():
    """Lines that a full disk does not take are written when it has room again."""
    log = FOLDER / "log.csv"
    done = succeed(train("--quiet", f"--log={log}", env=faults("write:28:2:2", FAULTS_IN=str(log))))
    assert "training goes on" in done.stderr and "what was missing is added" in done.stderr, done.stderr
    assert [line.split(",")[0] for line in log.read_text().splitlines()] == ["step", *map(str, range(1, STEPS + 1))]


def logs_have_names_of_their_own():
    folder = fresh("board")
    runs = [subprocess.Popen(["memopt-run", FOLDER / "train.memopt", f"--data={DATA}", "--steps=1", "--quiet", f"--log=tensorboard:{folder}"],
                             stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [run.wait() for run in runs] == [0] * 3 and len(list(folder.iterdir())) == 3
    assert all(os.uname().nodename in path.name for path in folder.iterdir())


def a_second_signal_ends_the_run():
    """The first is answered behind the step, here in a save that takes long; the next one, of another kind, at once."""
    folder = fresh()
    for second, code in ((None, 5), (signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)):
        run = subprocess.Popen(["memopt-run", FOLDER / "train.memopt", f"--data={DATA}", "--steps=1000000", f"--save={fresh()}"],
                               env={**os.environ, **faults("fsync:s1.5:0:1", FAULTS_IN=f"{folder}/.saving")},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               # A job in the background ignores Ctrl-C, and so would its children.
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        while not re.match("step 2/", run.stdout.readline()):
            assert run.poll() is None
        run.send_signal(signal.SIGTERM)
        if second:
            while not list(folder.glob(".saving-*/*")):
                time.sleep(0.01)
            run.send_signal(second)
        errors = run.communicate()[1]
        assert run.returncode == code, (second, run.returncode, errors)
        assert second or "; the checkpoint is in '" in errors, errors


def main():
    FOLDER.mkdir(exist_ok=True)
    compile_package("train.memopt", "--optimizer=adamw")
    compile_package("eval.memopt", "--mode=eval")
    compile_package("ranks.memopt", "--optimizer=adamw", "--ranks=2")
    cases = [one_call_fails, a_disk_that_stays_full, room_is_looked_at, calls_are_cut_short, few_calls_are_known,
             nothing_counts_before_it_is_flushed, a_slow_save_is_no_hang, a_rank_that_fails_costs_no_step,
             a_rank_that_fails_takes_no_shard_along, a_batch_in_parts_is_refused_by_all, a_failed_evaluation_of_one_rank_costs_no_step,
             a_failed_evaluation_costs_no_step, what_is_no_number_is_never_best, the_best_outlives_a_resume, a_log_waits_for_room,
             logs_have_names_of_their_own, a_second_signal_ends_the_run]
    for case in cases:
        if len(sys.argv) < 5 or case.__name__ in sys.argv[4:]:
            case()
    print(len(cases), "cases")


main()
