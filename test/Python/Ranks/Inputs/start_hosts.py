# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""start_hosts.py FOLDER torchrun|MPIRUN: check_hosts.py on four ranks of one host, which share memory, and of two. Hosts are UTS namespaces
of this machine: processes of two names do not share memory. torchrun's agents have four ranks on one host, 2 and 2, and 3 and 1."""

import json
import pathlib
import shutil
import socket
import subprocess
import sys
import time

SCRIPT = pathlib.Path(__file__).with_name("check_hosts.py")
RANKS, LIMIT = 4, 900


def find_ports():
    """Two that are free, the second behind the first."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            except OSError:
                continue
            return first.getsockname()[1]


def on_host(number, command):
    return ["unshare", "--uts", "sh", "-c", f'hostname host{number}; exec "$@"', "sh", *map(str, command)]


def start_agents(folder, name, places):
    port = find_ports()
    return [subprocess.Popen(on_host(host, [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(places)}", f"--node-rank={host}",
                                            f"--nproc-per-node={count}", "--master-addr=127.0.0.1", f"--master-port={port}",
                                            SCRIPT, folder, name]), stderr=subprocess.PIPE, text=True)
            for host, count in enumerate(places)]


def start_mpi(folder, name, launcher):
    version = subprocess.check_output([launcher, "--version"], text=True)
    options = [] if "HYDRA" in version else ["--allow-run-as-root", "--oversubscribe"]
    number = "$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / 2))"
    place = f'OMPI_COMM_WORLD_LOCAL_SIZE=2 MPI_LOCALNRANKS=2 exec unshare --uts sh -c "hostname host{number}; exec \\"\\$@\\"" sh "$@"'
    return [subprocess.Popen([launcher, *options, "-n", str(RANKS), "sh", "-c", place, "sh", sys.executable, SCRIPT, folder, name],
                             stderr=subprocess.PIPE, text=True)]


def end(processes):
    return [(process.communicate(timeout=LIMIT)[1], process.returncode) for process in processes]


def read_results(folder):
    """Losses of each rank, and the bytes of checkpoints."""
    files = {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}
    return files, [json.loads((folder / f"losses{rank}").read_text()) for rank in range(RANKS)]


def main():
    folder, launcher = pathlib.Path(sys.argv[1]), sys.argv[2]
    if subprocess.run(["unshare", "--uts", "hostname", "other"], capture_output=True).returncode:
        print("no host names of their own here")
        return
    said = end(start_agents(folder, "one", [RANKS]))
    assert said[0][1] == 0, said
    expected = read_results(folder / "one")
    assert len(expected[0]) == 8
    is_agents = launcher == "torchrun"
    for name, places in {"two": [2, 2], "uneven": [3, 1]}.items() if is_agents else {"mpi": None}.items():
        begun = time.monotonic()
        said = end(start_agents(folder, name, places) if is_agents else start_mpi(folder, name, launcher))
        assert read_results(folder / name) == expected, (name, said)
        assert all(code for _, code in said), said  # a rank was killed
        if is_agents:  # mpirun sees that a process is dead and ends all
            lost = [path.read_text() for path in sorted((folder / name).glob("lost[0-1]"))]
            assert len(lost) == 2 and all(f"rank {RANKS - 1}" in text for text in lost), (lost, said)
            ended = max(path.stat().st_mtime for path in (folder / name).glob("lost*"))
            print(name, f"{time.time() - ended:.1f} s behind the loss, {time.monotonic() - begun:.1f} s in all")
        shutil.rmtree(folder / name)


main()
