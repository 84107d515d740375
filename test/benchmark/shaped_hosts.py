#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hosts on one machine: network namespaces on a bridge, whose links tc shapes in both directions. Needs root and iproute2."""
import os
import subprocess

from memopt_driver import Failed, tail

EAGER = (1 << 20) + 1024  # bytes that Open MPI sends without asking, as our plugin has it


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {tail(done.stderr)}")
    return done.stdout


class Hosts:
    """Network namespaces on a bridge. Links go some time after their hosts, so no name comes twice."""

    made = 0

    def __init__(self, count, rate):
        Hosts.made += 1
        self.prefix, self.count, self.rate = f"mo{os.getpid()}x{Hosts.made}", count, rate

    def name(self, index):
        return f"{self.prefix}h{index}"

    @staticmethod
    def address(index):
        return f"10.78.0.{index + 1}"

    def __enter__(self):
        try:
            self.make()
        except Failed:
            self.__exit__()
            raise
        return self

    def make(self):
        bridge = f"{self.prefix}b"
        call("ip", "link", "add", bridge, "type", "bridge")
        call("ip", "link", "set", bridge, "up")
        shape = ["root", "tbf", "rate", self.rate, "burst", "128kb", "latency", "400ms"]  # nothing is dropped
        for index in range(self.count):
            host, end = self.name(index), f"{self.prefix}v{index}"
            call("ip", "netns", "add", host)
            call("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", host)
            call("ip", "link", "set", end, "master", bridge, "up")
            call("ip", "-n", host, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
            call("ip", "-n", host, "link", "set", "eth0", "up")
            call("ip", "-n", host, "link", "set", "lo", "up")
            call("tc", "qdisc", "add", "dev", end, *shape)
            call("tc", "-n", host, "qdisc", "add", "dev", "eth0", *shape)

    def __exit__(self, *_):
        for index in range(self.count):
            subprocess.run(["ip", "netns", "del", self.name(index)], capture_output=True)  # and its link
        subprocess.run(["ip", "link", "del", f"{self.prefix}b"], capture_output=True)

    def cut(self, index):
        call("ip", "link", "set", f"{self.prefix}v{index}", "down")

    def mpirun(self, agent, places):
        """How Open MPI starts `places` ranks on each host. It starts its daemons by what stands in the place of ssh here. Nothing
        is bound to a core: each host would take this machine's first ones for its own."""
        agent.write_text(f'#!/bin/sh\nhost=$1; shift\nexec ip netns exec {self.prefix}h$((${{host##*.}} - 1)) sh -c "$*"\n')
        agent.chmod(0o755)
        names = ",".join(f"{self.address(index)}:{places}" for index in range(self.count))
        return self.inside(
            0, "mpirun", "--allow-run-as-root", "--bind-to", "none", "--host", names, "-n", self.count * places, "--mca", "plm_rsh_agent", agent, "--mca",
            "plm_rsh_no_tree_spawn", 1, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0", "--mca",
            "oob_tcp_if_include", "eth0", "-x", f"OMPI_MCA_btl_tcp_eager_limit={EAGER}", "-x", "OMP_NUM_THREADS=1")

    def torchrun(self, places, port):
        """How processes are started that find each other by torchrun's variables; UCX keeps to the links."""
        return ["sh", "-c", f"for r in $(seq 0 {self.count * places - 1}); do RANK=$r WORLD_SIZE={self.count * places} LOCAL_WORLD_SIZE={places} "
                f"MASTER_ADDR={self.address(0)} MASTER_PORT={port} UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 "
                f"ip netns exec {self.prefix}h$((r / {places})) \"$@\" & done; wait", "sh"]

    def inside(self, index, *command):
        return ["ip", "netns", "exec", self.name(index), *map(str, command)]
