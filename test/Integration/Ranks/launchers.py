#!/usr/bin/env python3
"""launchers.py FOLDER [COMMAND...]: processes that a launcher started train as those of --ranks do, and end together: with
one message in all, and one exit code. With a COMMAND it is put in front of memopt-run; without one the variables of each
launcher are set by hand, and mpirun is tried where it is installed."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import processes
from tensor_files import read_safetensors, rebatch, write_safetensors

RANKS = 2
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI", "MPI_", "SLURM_")
STEPS = ["--steps=2", "--quiet"]


def torchrun(rank, port=29500):
    return {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": f"{port}{os.getpid()}"}


def open_mpi(rank):
    return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": RANKS, "OMPI_COMM_WORLD_LOCAL_SIZE": RANKS,
            "PMIX_NAMESPACE": os.getpid()}


def mpich(rank):
    return {"PMI_RANK": rank, "PMI_SIZE": RANKS, "MPI_LOCALNRANKS": RANKS}


def slurm(rank):
    return {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": RANKS, "SLURM_STEP_TASKS_PER_NODE": RANKS,
            "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0}


def start(command, variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHED)}
    return processes.start(*command, env=environment | {name: str(value) for name, value in variables.items()})


def start_all(command, launcher=torchrun, own=lambda rank: []):
    return [start([*command, *own(rank)], launcher(rank)) for rank in range(RANKS)]


def end(processes):
    """Exit codes, and the errors that were said."""
    errors = [process.communicate(timeout=120)[1] for process in processes]
    lines = [line for line in "".join(errors).splitlines() if "error: " in line]
    return [process.returncode for process in processes], lines


def expect_together(processes, code, *parts):
    codes, lines = end(processes)
    assert codes == [code] * len(codes) and len(lines) == 1, (codes, lines)
    for part in parts:
        assert part in lines[0], (part, lines)


def read_checkpoint(folder):
    return {f"{name} {key}": value.tobytes() for name in ("model", "optimizer")
            for key, value in read_safetensors(folder / f"{name}.safetensors").items()}


def expect_checkpoint(folder, expected, name):
    found = read_checkpoint(folder)
    assert found.keys() == expected.keys(), name
    assert [key for key in found if found[key] != expected[key]] == [], name


def check_bits(command, work):
    """Whoever starts the ranks, the bits are the same; a run can be started again at once."""
    command = [*command, *STEPS]
    codes, lines = end([start([*command, f"--ranks={RANKS}", f"--save={work}/own"], {})])
    assert codes == [0], lines
    expected = read_checkpoint(work / "own")
    for launcher in (torchrun, open_mpi, mpich, slurm):
        codes, lines = end(start_all([*command, f"--save={work}/{launcher.__name__}"], launcher))
        assert codes == [0] * RANKS and not lines, (launcher, codes, lines)
        expect_checkpoint(work / launcher.__name__, expected, launcher)
    # A shell between the launcher and us is a rank as well.
    codes, lines = end(start_all(["sh", "-c", '"$@"; exit $?', "sh", *command, f"--save={work}/shell"], mpich))
    assert codes == [0] * RANKS and not lines, (codes, lines)
    expect_checkpoint(work / "shell", expected, "shell")
    mpirun = shutil.which("mpirun")
    if mpirun:
        own = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in subprocess.check_output([mpirun, "--version"], text=True) else []
        codes, lines = end([start([mpirun, *own, "-n", RANKS, *command, f"--save={work}/mpirun"], {})])
        assert codes == [0], lines
        expect_checkpoint(work / "mpirun", expected, mpirun)


def check_disagreement(command, work, other_data):
    run = [*command, "--quiet"]
    expect_together(start_all(run, own=lambda rank: [f"--steps={3 + rank}"]), 3,
                    "rank 1 was given '--steps=4' where rank 0 has '--steps=3'")
    os.mkdir(work / "elsewhere")
    shutil.copy(other_data, work / "elsewhere" / "here.safetensors")
    shutil.copy(other_data, work / "here.safetensors")
    processes = []
    for rank, folder in enumerate((work, work / "elsewhere")):
        os.chdir(folder)
        processes.append(start([*command, *STEPS, "--data=here.safetensors"], torchrun(rank)))
    expect_together(processes, 3, "--data of rank 1 is another file than that of rank 0")
    expect_together(start_all([*run, "--ranks=3"])[:1], 1, "--ranks is 3, but torchrun started 2 processes")


def check_failures(command, work):
    # What the first finds wrong ends all, with its code.
    expect_together(start_all([*command, *STEPS, "--optimizer=none-such"]), 1, "none-such")
    expect_together(start_all([*command, *STEPS, "--device-memory=1KiB"]), 2, "the budget is 1024 bytes")
    expect_together([start([*command, *STEPS, "--rank-timeout=1"], torchrun(0))], 3, "rank 0 waited 1 s for rank 1")
    expect_together([start([*command, *STEPS, "--rank-timeout=1"], torchrun(1))], 3, "rank 1 waited 1 s for rank 0")

    def begin(*options):
        length = [] if any(option.startswith("--steps=") for option in options) else ["--steps=100000000"]
        processes = start_all([*command, *length, *options])
        while not processes[0].stdout.readline().startswith("step 2/"):
            assert processes[0].poll() is None, processes[0].stderr.read()
        return processes

    for lost in range(RANKS):
        processes = begin()
        processes[lost].kill()
        processes.pop(lost).wait()
        before = time.monotonic()
        expect_together(processes, 3, f"rank {lost}: its process was ended")
        assert time.monotonic() - before < 20
    # The rank below the process that was started.
    processes = begin()
    child = int(pathlib.Path(f"/proc/{processes[1].pid}/task/{processes[1].pid}/children").read_text().split()[0])
    os.kill(child, signal.SIGKILL)
    expect_together(processes, 3, "rank 1: was ended by signal 9 (Killed)")
    # A process that does not end when its rank has.
    processes = begin("--rank-timeout=1", "--steps=2000")
    processes[1].send_signal(signal.SIGSTOP)
    codes, lines = end(processes[:1])
    processes[1].kill()
    assert codes == [3] and "rank 1: its process does not end, 1 s after the others" in lines[0], (codes, lines)
    # One of them is asked to stop.
    processes = begin(f"--save={work}/stopped")
    processes[1].terminate()
    expect_together(processes, 5, "stopped after step")
    assert (work / "stopped" / "model.safetensors").exists()


def check_network(work):
    """What they take to send is measured as for those of --ranks."""
    described = work / "network.json"
    codes, lines = end(start_all(["memopt-run", f"--describe-network={described}"]))
    assert codes == [0] * RANKS, lines
    (level,) = json.loads(described.read_text())["levels"]
    assert level["bytes_per_second"] > 0 and level["latency_seconds"] >= 0, level


def main():
    inputs, launcher = pathlib.Path(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        data = rebatch(read_safetensors(inputs / "mlp" / "inputs.safetensors"), 16)
        write_safetensors(work / "data.safetensors", data)
        command = ["memopt-run", inputs / "mlp" / "model.pt2", "--batch=16", "--optimizer=adamw", "--zero-stage=1"]
        both = [*command, f"--data={work}/data.safetensors"]
        if launcher:
            codes, lines = end([start([*both, *STEPS, f"--ranks={RANKS}", f"--save={work}/own"], {})])
            assert codes == [0], lines
            codes, lines = end([start([*launcher, *both, *STEPS, f"--save={work}/launched"], {})])
            assert codes == [0], lines
            expect_checkpoint(work / "launched", read_checkpoint(work / "own"), launcher)
            return
        check_bits(both, work)
        check_disagreement(command, work, work / "data.safetensors")
        check_failures(both, work)
        check_network(work)


main()
