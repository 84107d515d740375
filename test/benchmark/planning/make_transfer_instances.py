#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes planning problems with links for `planning.py`.

    make_transfer_instances.py swap PROBLEM.json OUT.json --rate BYTES [--latency N]
    make_transfer_instances.py zero3 OUT.json [--layers 16] [--weight 400000000] [--activation 100000000]
                               [--cost 4000] [--rate 400000] [--swaps] [--updates RANKS]

`swap`: every value of a problem may be stored on the host and fetched again, over one link for each direction that
moves RATE bytes in a unit of cost, after LATENCY units. `zero3`: a training step whose weights are gathered, each of
them a start and a wait that may run again; forward and backward of LAYERS layers. The gather stands two ops before its
first use. With --updates each weight's gradient is reduced over so many ranks and its shard updated.
"""
import argparse
import json
import math


def transfer(resource, size, rate, latency):
    return {"resource": resource, "cost": latency + math.ceil(size / rate)}


def swap_way(value, size, rate, latency):
    return {"value": value, "store": transfer(1, size, rate, latency), "fetch": transfer(2, size, rate, latency),
            "copy": {"bytes": size, "space": 1}}


def frame(ops, ways):
    return {"format": "memopt-plan-problem", "version": 2, "spaces": [{"name": "device"}, {"name": "host"}],
            "resources": ["compute", "out", "in"], "ops": ops, "ways": ways}


def sizes_of(op):
    sizes = op["bytes"] if isinstance(op["bytes"], list) else [op["bytes"]]
    return [size["bytes"] if isinstance(size, dict) else size for size in sizes]


def with_swaps(problem, rate, latency):
    ways = []
    for index, op in enumerate(problem["ops"]):
        for result, size in enumerate(sizes_of(op)):
            if size:
                ways.append(swap_way([index, result], size, rate, latency))
    whole = frame(problem["ops"], ways)
    if "resident" in problem:
        whole["resident"] = problem["resident"]
    return whole


def zero3(layers, weight, activation, cost, rate, swaps, ranks):
    ops = []

    def op(size, time, *inputs, **more):
        ops.append({"bytes": size, "cost": time, "inputs": list(inputs), **more})
        return len(ops) - 1

    # Forward: two ops a layer. Gathers run two of these ahead, so their places are known beforehand.
    gathers, waits, outputs, middles = [], [], [op(1000000, 1)], []

    def gather():
        gathers.append(op(weight, weight // rate, resource=2))

    def wait():
        waits.append(op([], 0, waits_for=gathers[len(waits)]))

    gather()
    for layer in range(layers):
        if layer + 1 < layers:
            gather()
        wait()
        middles.append(op(2 * activation, cost // 2, gathers[layer], outputs[-1]))
        outputs.append(op(activation, cost // 2, gathers[layer], middles[-1]))
    gradient = op(activation, cost // 10, outputs[-1])
    for layer in reversed(range(layers)):
        inner = op(2 * activation, cost, gathers[layer], middles[layer], gradient)
        full = op(weight if ranks else weight // 64, cost // 2 if ranks else 1, middles[layer], gradient)
        if ranks:
            shard = op(weight // ranks, weight // rate, full, resource=1, pinned=True)
            done = op([], 0, waits_for=shard)
            op([], 10, shard, pinned=True, after=[gathers[layer], done])
        gradient = op(activation, cost, gathers[layer], outputs[layer], inner)
    ways = []
    if swaps:
        sources = set(outputs) | set(middles)
        ways = [swap_way([index, 0], ops[index]["bytes"], rate, 0) for index in sorted(sources)]
    whole = frame(ops, ways)
    if ranks:
        whole["resident"] = 4 * weight * layers // ranks
    return whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    swap = kinds.add_parser("swap")
    swap.add_argument("problem")
    swap.add_argument("out")
    swap.add_argument("--rate", type=int, required=True)
    swap.add_argument("--latency", type=int, default=0)
    step = kinds.add_parser("zero3")
    step.add_argument("out")
    for name, default in (("layers", 16), ("weight", 400000000), ("activation", 100000000), ("cost", 4000),
                          ("rate", 400000), ("updates", 0)):
        step.add_argument("--" + name, type=int, default=default)
    step.add_argument("--swaps", action="store_true")
    arguments = parser.parse_args()
    if arguments.kind == "swap":
        problem = with_swaps(json.load(open(arguments.problem)), arguments.rate, arguments.latency)
    else:
        problem = zero3(arguments.layers, arguments.weight, arguments.activation, arguments.cost, arguments.rate,
                        arguments.swaps, arguments.updates)
    with open(arguments.out, "w") as file:
        json.dump(problem, file)


if __name__ == "__main__":
    main()
