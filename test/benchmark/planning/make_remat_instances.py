#!/usr/bin/env python3
"""Writes random rematerialization problems for `planning.py`: training steps and layered graphs.

    make_remat_instances.py FOLDER [--sizes 50,300,1000,5000,10000] [--seed N]

A forward graph is drawn; the training step then runs its gradients backwards, each reading what its
forward op read. Bytes span three orders of magnitude and costs are only loosely tied to them.
"""
import argparse
import json
import os
import random


def layered(random_state, ops):
    """A layered forward graph: each op reads one to three values, mostly of the layer before."""
    width = random_state.choice([1, 2, 4, 8])
    inputs = [[]]
    for i in range(1, ops):
        near = [i - 1 - random_state.randrange(min(i, width)) for _ in range(random_state.choice([1, 1, 2]))]
        if random_state.random() < 0.15:
            near.append(random_state.randrange(max(0, i - 10 * width), i))
        inputs.append(sorted(set(near)))
    return inputs


def residual(random_state, ops):
    """Blocks of a few ops with a sum around each, and some long skips as in a U-Net."""
    inputs, block = [[]], 0
    while len(inputs) < ops:
        start, depth = len(inputs) - 1, random_state.choice([3, 5, 8])
        for _ in range(depth):
            inputs.append([len(inputs) - 1])
        inputs.append([start, len(inputs) - 1])
        block += 1
        if random_state.random() < 0.05:
            inputs.append([len(inputs) - 1, random_state.randrange(len(inputs))])
    return inputs[:ops]


def training(random_state, forward):
    """Adds a gradient op for each forward op that reads its operands and the gradients of its users."""
    count = len(forward)
    scale = 2.0 ** random_state.uniform(10, 24)
    sizes = [int(scale * 2 ** random_state.uniform(0, 4)) for _ in range(count)]
    costs = [random_state.choice([1, 2, 5, 40, 100, 300]) * random_state.randint(5, 15) for _ in range(count)]
    ops = [{"bytes": sizes[i], "cost": costs[i], "inputs": forward[i]} for i in range(count)]
    users = [[] for _ in range(count)]
    for i, operands in enumerate(forward):
        for operand in operands:
            users[operand].append(i)
    gradient = {}
    for i in reversed(range(count)):
        operands = [gradient[user] for user in users[i]]
        operands += forward[i] if random_state.random() < 0.7 else []
        operands += [i] if random_state.random() < 0.4 or not operands else []
        gradient[i] = len(ops)
        ops.append({"bytes": sizes[i], "cost": 2 * costs[i], "inputs": sorted(set(operands))})
    return ops


def plain(random_state, forward):
    """No gradients: a layered graph whose values are read a few times, some late."""
    scale = 2.0 ** random_state.uniform(10, 24)
    return [{"bytes": int(scale * 2 ** random_state.uniform(0, 5)), "cost": random_state.randint(1, 500),
             "inputs": operands} for operands in forward]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--sizes", default="50,300,1000,5000,10000")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    for size in map(int, arguments.sizes.split(",")):
        for kind, draw in (("residual", residual), ("layered", layered)):
            random_state = random.Random(f"{arguments.seed} {size} {kind}")
            ops = training(random_state, draw(random_state, size // 2))
            name = f"{kind}_train_{size}"
            write(arguments.folder, name, ops)
        random_state = random.Random(f"{arguments.seed} {size} plain")
        write(arguments.folder, f"layered_{size}", plain(random_state, layered(random_state, size)))


def write(folder, name, ops):
    with open(os.path.join(folder, name + ".json"), "w") as file:
        json.dump({"format": "memopt-remat-problem", "version": 1, "name": name, "ops": ops}, file)


if __name__ == "__main__":
    main()
