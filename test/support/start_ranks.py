#!/usr/bin/env python3
"""start_ranks.py -n N COMMAND...: starts processes as torchrun's agents do on hosts of two. An agent ends its own two when one of
them fails; it knows nothing of other hosts. The exit code is that of the first that fails."""
import os
import socket
import subprocess
import sys
import time

PLACES, PATIENCE = 2, 8


def find_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Host:
    """The processes of an agent."""

    def __init__(self, ranks):
        self.ranks, self.failed = ranks, None

    def watch(self):
        if self.failed is None and any(rank.poll() for rank in self.ranks):
            self.failed = time.monotonic()
        if self.failed and time.monotonic() - self.failed > PATIENCE:
            for rank in self.ranks:
                rank.kill()


def main():
    count, command = int(sys.argv[2]), sys.argv[3:]
    common = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(PLACES), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_port()),
              "MEMOPT_PORT": str(find_port())}
    ranks = [subprocess.Popen(command, env=os.environ | common | {"RANK": str(rank)}) for rank in range(count)]
    hosts = [Host(ranks[begin:begin + PLACES]) for begin in range(0, count, PLACES)]
    failed = 0
    while any(rank.poll() is None for rank in ranks):
        for host in hosts:
            host.watch()
        failed = failed or next((rank.returncode for rank in ranks if rank.returncode), 0)
        time.sleep(0.02)
    failed = failed or next((rank.returncode for rank in ranks if rank.returncode), 0)
    sys.exit(failed if failed >= 0 else 128 - failed)


main()
