# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""machine.py MODEL_FOLDER WORK_FOLDER: what a run makes of a launcher's variables, of pipes, of signals, and of being
suspended. WORK_FOLDER has one.memopt, and two.memopt for two ranks."""

import json
import os
import pathlib
import shutil
import signal
import struct
import sys
import threading
import time

import processes
from tensor_files import read_safetensors, write_safetensors

model, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
data = model / "inputs.safetensors"
launched = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": f"29{os.getpid()}"}


def listen():
    """Whoever runs the tests may ignore Ctrl-C, and a run would go on doing so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*words, **variables):
    return processes.start("memopt-run", *words, env={**os.environ, **variables}, start_new_session=True, preexec_fn=listen)


def run(*words, **variables):
    process = start(*words, **variables)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def check_launchers():
    code, _, err = run(work / "two.memopt", f"--data={data}", "--steps=1", "--rank-timeout=60", **launched)
    assert code == 1 and "LOCAL_WORLD_SIZE is not set" in err and "--transport=shared" in err, (code, err)
    code, _, err = run(work / "one.memopt", f"--data={data}", "--steps=1", "--launcher=none", **launched)
    assert code == 0, err


def check_threads():
    if len(os.sched_getaffinity(0)) < 2:
        return
    _, _, err = run(work / "one.memopt", f"--data={data}", "--steps=1", OMP_NUM_THREADS="1")
    assert "note: OMP_NUM_THREADS=1 lets the run use 1 of the 2 threads" in err, err
    _, _, err = run(work / "one.memopt", f"--data={data}", "--steps=1", OMP_NUM_THREADS="2")
    assert "OMP_NUM_THREADS" not in err, err


def check_pipes():
    images = struct.pack(">iiii", 0x803, 32, 28, 28) + bytes(32 * 28 * 28)
    labels = struct.pack(">ii", 0x801, 32) + bytes(32)
    for name, content in (("images", images), ("labels", labels)):
        os.mkfifo(work / name)
        threading.Thread(target=(work / name).write_bytes, args=[content], daemon=True).start()
    code, _, err = run(model / "model.pt2", f"--data=idx:{work}/images,{work}/labels", "--steps=2")
    assert code == 0, err


def check_times():
    code, out, err = run(work / "one.memopt", f"--data={data}", "--steps=4", f"--report={work}/report.json", f"--log={work}/log.jsonl")
    assert code == 0, err
    report = json.loads((work / "report.json").read_text())
    assert len(report["data_seconds"]) == 4 and min(report["data_seconds"]) >= 0, report
    logged = [json.loads(line)["seconds"] for line in (work / "log.jsonl").read_text().splitlines()]
    for step, waited, whole in zip(report["step_seconds"], report["data_seconds"], logged):
        assert abs(step + waited - whole) < 1e-3 * whole + 1e-9, (step, waited, whole)


def check_exit_codes():
    tensors = read_safetensors(data)
    image = next(name for name in tensors if name.startswith("step0.") and tensors[name].dtype.kind == "f")
    tensors[image] = tensors[image].copy()
    tensors[image].flat[0] = float("nan")
    write_safetensors(work / "bad.safetensors", tensors)
    code, _, err = run(work / "one.memopt", f"--data={work}/bad.safetensors", "--steps=1")
    assert code == 4 and "the loss is nan" in err, (code, err)
    # A second request to stop, of another kind, ends the run while it stops after the first.
    process = start(work / "one.memopt", f"--data={data}", "--steps=100000000")
    while not process.stdout.readline().startswith("step 3/"):
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGSTOP)  # both are there when it goes on
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    process.stdout.close()
    assert process.wait(60) in (-signal.SIGINT, -signal.SIGTERM), process.returncode


def check_suspension():
    """The rank that waits finds no time gone when all of them go on."""
    process = start(work / "two.memopt", f"--data={data}", "--ranks=2", "--rank-timeout=1", "--steps=100000000", "--quiet")
    time.sleep(1)
    for _ in range(3):
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(0.2)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 5, process.stderr.read()


def check_waiting():
    """A run that waits for its compiler for an hour sleeps: it looks around now and then, and hears of the end at once."""
    beside = work / "beside"
    beside.mkdir()
    shutil.copy2(os.path.realpath(shutil.which("memopt-run")), beside / "memopt-run")
    (beside / "memopt-compile").write_text("#!/bin/sh\nsleep 2\nexit 3\n")
    (beside / "memopt-compile").chmod(0o755)
    process = processes.start(beside / "memopt-run", model / "model.pt2", f"--data={data}", "--steps=1", "--quiet", env=os.environ)
    begun = time.monotonic()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begun
    assert os.waitstatus_to_exitcode(status) == 3 and seconds >= 2, (status, seconds)
    assert used.ru_nvcsw < 200, used  # its children's, too


for check in (check_waiting, check_launchers, check_threads, check_pipes, check_times, check_exit_codes, check_suspension):
    check()
