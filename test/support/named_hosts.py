# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several hosts on this machine: UTS namespaces. Processes of two names do not share memory."""
import subprocess

RANK = "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}"  # by Open MPI's name, MPICH's or torchrun's
# The host of each of four ranks. Launchers say that there are several.
PLACEMENTS = {"one": "0", "two": f"$(({RANK} / 2))", "four": RANK, "three and one": f"$(({RANK} / 3))",
              "in turn": f"$(({RANK} % 2))"}


def are_possible():
    return subprocess.run(["unshare", "--uts", "hostname", "other"], capture_output=True).returncode == 0


def place(host, log="/dev/null"):
    """Puts a rank on a host, as its launcher would."""
    inside = f'hostname host{host}; echo $$ >> {log}; exec "$@"'
    return ["sh", "-c", f"OMPI_COMM_WORLD_LOCAL_SIZE=2 MPI_LOCALNRANKS=2 exec unshare --uts sh -c '{inside}' sh \"$@\"".replace(
        f"host{host}", f"host'{host}'"), "sh"]


def get_options(launcher):
    """What a launcher needs on a machine with fewer processors than ranks."""
    if "mpirun" not in launcher[-1]:
        return []
    version = subprocess.check_output([*launcher, "--version"], text=True)
    return [] if "HYDRA" in version else ["--allow-run-as-root", "--oversubscribe"]
