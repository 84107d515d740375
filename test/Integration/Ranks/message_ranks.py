#!/usr/bin/env python3
"""message_ranks.py FOLDER MPIRUN [COMMAND...]: ranks over MPI give the bits of ranks that share memory: losses and
checkpoints, with state shared out, too. They refuse what differs, and end with one message. A COMMAND in place of MPIRUN's
usual options starts two ranks on hosts of its own."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import launched_ranks
import processes
from launched_ranks import expect, read_results
from tensor_files import read_safetensors, write_safetensors

RANKS = 2
RANK = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"  # by Open MPI's name, or MPICH's


def begin(command, **options):
    return processes.start(*command, **options)


def check_bits(mpirun, package, data, work):
    for stage in (0, 2):
        results = {}
        for name, start in ("shared", ["memopt-run", package[stage], f"--ranks={RANKS}"]), (
                "mpi", [*mpirun, "memopt-run", package[stage], "--transport=mpi"]):
            folder = work / f"{name}{stage}"
            folder.mkdir()
            expect(begin([*start, data, "--steps=3", "--quiet", "--check-memory", f"--save={folder}/checkpoint",
                          f"--report={folder}/report.json"]), 0)
            results[name] = read_results(folder)
            report = json.loads((folder / "report.json").read_text())
            for rank in report["per_rank"]:
                # An MPI may need a buffer more for messages that come early; ours allocates nothing.
                most = 3 if name == "mpi" else 0
                assert rank["hot_path_allocations"] <= most, (name, rank)
                if rank["hot_path_allocations"] == 0:
                    assert rank["used_peak_bytes"] == rank["predicted_peak_bytes"], rank
        assert results["shared"].keys() == results["mpi"].keys()
        assert [key for key in results["shared"] if results["shared"][key] != results["mpi"][key]] == [], stage


def check_differences(mpirun, package, data, work):
    run = ["memopt-run", package[0], "--transport=mpi", "--quiet"]
    own = ["sh", "-c", f'exec "$@" --steps=$((3 + {RANK}))', "sh"]
    expect(begin([*mpirun, *own, *run, data]), 3, "rank 1 was given '--steps=4' where rank 0 has '--steps=3'")
    tensors = read_safetensors(work / "data.safetensors")
    name = next(iter(tensors))
    tensors[name] = tensors[name] + 1  # as long as before
    for rank in range(RANKS):
        (work / str(rank)).mkdir()
    shutil.copy(work / "data.safetensors", work / "0" / "here.safetensors")
    write_safetensors(work / "1" / "here.safetensors", tensors)
    own = ["sh", "-c", f'cd {work}/{RANK} && exec "$@"', "sh"]
    expect(begin([*mpirun, *own, *run, "--data=here.safetensors", "--steps=2"]), 3,
           "--data of rank 1 is another file than that of rank 0")
    # Copies are as good.
    shutil.copy(work / "data.safetensors", work / "1" / "here.safetensors")
    expect(begin([*mpirun, *own, *run, "--data=here.safetensors", "--steps=2"]), 0)


def check_refusals(model, mpirun, package, data):
    run = ["memopt-run", package[0], data, "--steps=2", "--quiet"]
    expect(begin([*run, "--transport=mpi"]), 1, "--transport=mpi is for ranks that mpirun or srun started, and there are none")
    spread = os.environ | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    expect(begin([*run, "--transport=shared"], env=spread), 3, "which share no memory: leave out --transport=shared")
    expect(begin(run, env=spread | {"MEMOPT_MPI_PLUGIN": "/nowhere.so"}), 3, "ranks over MPI need a library", "/nowhere.so")
    # A launcher of another MPI than the plugin's.
    expect(begin(run, env=spread), 3, "rank 0 of 2, but MPI takes it for 0 of 1")
    # Two of the four processes that there are of this start, as each host sees it.
    own = ["sh", "-c", 'OMPI_COMM_WORLD_LOCAL_SIZE=1 MPI_LOCALNRANKS=1 exec "$@"', "sh"]
    expect(begin([*mpirun, *own, "memopt-run", model, data, "--quiet"]), 1,
           "processes on several hosts", f"memopt-compile {model} --ranks={RANKS} -o FOLDER.memopt")
    expect(begin([*mpirun, *own, *run]), 0)
    expect(begin([*mpirun, "memopt-run", model, "--batch=16", data, "--steps=2", "--transport=mpi", "--quiet"]), 0)
    expect(begin([*mpirun, "memopt-run", package[0], "--transport=mpi"]), 1, "give batches with --data")


def check_losses(mpirun, package, data, work):
    # Open MPI gives ranks a terminal to write on, and no line for each step stands there.
    run = [*mpirun, "sh", "-c", f'echo $$ > {work}/pid{RANK}; exec "$@" > {work}/out{RANK}', "sh",
           "memopt-run", package[0], data, "--transport=mpi", "--steps=100000000"]

    def start(*options):
        (work / "out0").write_text("")
        process = begin([*run, *options])
        launched_ranks.wait_for_steps(process, work / "out0")
        return process, [int((work / f"pid{rank}").read_text()) for rank in range(RANKS)]

    launched_ranks.check_losses(start, work, "rank 0: waited 1 s for rank 1")


def check_network(mpirun, work):
    described = work / "network.json"
    expect(begin([*mpirun, "memopt-run", f"--describe-network={described}", "--transport=mpi"]), 0)
    (level,) = json.loads(described.read_text())["levels"]
    assert level["bytes_per_second"] > 0 and level["latency_seconds"] >= 0, level


def main():
    inputs, mpirun, command = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    version = subprocess.check_output([mpirun, "--version"], text=True)
    own = [] if "HYDRA" in version else ["--allow-run-as-root", "--oversubscribe"]
    model = inputs / "mlp" / "model.pt2"
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        data, package = launched_ranks.prepare(inputs, work, 16, (0, 2), RANKS)
        start = [mpirun, *own, *(command or []), "-n", RANKS]
        check_bits(start, package, data, work)
        if command:
            return
        check_differences(start, package, data, work)
        check_refusals(model, start, package, data)
        check_losses(start, package, data, work)
        check_network(start, work)


main()
