#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains on several ranks of this machine with PyTorch's DDP and FSDP2 over gloo, and with memopt over shared memory.

    VENV/bin/python ranks_side_by_side.py gpt2 --work FOLDER [--ranks 2] [--batch 1] [--length 256] [--steps 4] [--rounds 2]
        [--ways ddp,fsdp2] [--stages 0,1,3] [--bin BIN] [--json FILE]

AdamW in f32, no dropout, random weights, one thread for each rank. FSDP2 shards each block and the rest, and gathers again for
the backward pass. The rounds go through all ways in turn. Peak is the growth of a rank's resident memory from before the model
to its highest, of the rank with the most; of memopt also the bytes of its arena, which are those of the plan. Seconds are the
median of all steps but the first of each round. The exit code is 1 when a run fails.
"""
import argparse
import pathlib
import socket
import sys
import time

import paths  # noqa: F401
import memopt_driver as driver
from memopt_driver import Failed, median

HEAD = ["ranks", "how", "peak MiB of a rank", "arena MiB", "s a step"]


def find_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make(arguments, rank=0):
    import torch
    import pytorch_models
    torch.manual_seed(pytorch_models.SEED)
    build = pytorch_models.MODELS[arguments.model].build
    model, draw = build(arguments.batch, arguments.length) if arguments.model == "gpt2" else build(arguments.batch)
    torch.manual_seed(100 + rank)
    return model.train(), draw


def train_rank(rank, arguments, way, port, results):
    """One of PyTorch's ranks."""
    import os
    import torch
    import torch.distributed as dist
    import pytorch_models
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(arguments.ranks)}
    dist.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
    before = pytorch_models.peak_rss()
    model, draw = make(arguments, rank)
    if way == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (arguments.ranks,))
        for block in pytorch_models.MODELS[arguments.model].blocks(model.net):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds = []
    for _ in range(arguments.steps):
        batch = draw()
        begin = time.perf_counter()
        loss = model(*batch.values())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
    results.put({"seconds": seconds, "peak": pytorch_models.peak_rss() - before})
    dist.barrier()
    dist.destroy_process_group()


def train_pytorch(arguments, way):
    import torch.multiprocessing as multiprocessing
    context = multiprocessing.get_context("spawn")
    results, port = context.Queue(), find_port()
    ranks = [context.Process(target=train_rank, args=(rank, arguments, way, port, results)) for rank in range(arguments.ranks)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    if any(rank.exitcode for rank in ranks):
        raise Failed(f"{way} ends with {[rank.exitcode for rank in ranks]}")
    found = [results.get() for _ in ranks]
    return max(one["peak"] for one in found), None, found[0]["seconds"][1:]


def train_memopt(arguments, tools, stage):
    package = tools.build(arguments.work / "model.pt2", arguments.work / f"{arguments.ranks}.{stage}.memopt",
                          ["--optimizer=adamw", f"--ranks={arguments.ranks}", f"--zero-stage={stage}", "--quiet"])
    found = tools.train(package, [f"--data={arguments.work}/inputs.safetensors", "--init=random", "--seed=1", "--quiet",
                                  f"--steps={arguments.steps}", f"--ranks={arguments.ranks}"], arguments.work / "report.json")
    arena = found["predicted_peak_bytes"]["device"]
    return arena + found["overhead_bytes"]["device"], arena, found["step_seconds"][1:]


def export(arguments):
    from safetensors.torch import save_file
    import memopt_export
    model, draw = make(arguments)
    memopt_export.save(memopt_export.export_program(model, draw(), training=True), arguments.work / "model.pt2")
    save_file({f"step{number}.{key}": value for number in range(arguments.ranks * arguments.steps) for key, value in draw().items()},
              arguments.work / "inputs.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ways", default="ddp,fsdp2")
    parser.add_argument("--stages", default="0,1,3")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    export(arguments)
    tools = driver.Tools.find(arguments.bin, 1)
    runs = {way: lambda way=way: train_pytorch(arguments, way) for way in arguments.ways.split(",")}
    runs |= {f"memopt, stage {stage}": lambda stage=stage: train_memopt(arguments, tools, stage) for stage in arguments.stages.split(",")}
    found, failures = {how: [] for how in runs}, []
    for _ in range(arguments.rounds):
        for how, run in runs.items():
            try:
                found[how].append(run())
                print(how, found[how][-1], file=sys.stderr, flush=True)
            except Failed as failure:
                failures.append(f"{how}: {failure}")
    mib = lambda count: f"{count / 2**20:.0f}"
    rows = [[str(arguments.ranks), how, mib(max(one[0] for one in all_runs)), mib(all_runs[0][1]) if all_runs[0][1] else "",
             f"{median([second for one in all_runs for second in one[2]]):.2f}"] for how, all_runs in found.items() if all_runs]
    driver.report(HEAD, rows, failures, arguments.json)


if __name__ == "__main__":
    main()
