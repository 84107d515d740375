#!/usr/bin/env python3
"""Writes random arena problems for `planning.py`: live ranges of training steps and of plain programs.

    make_arena_instances.py FOLDER [--sizes 300,3000,20000,60000] [--seed N]
"""
import argparse
import os
import random


def training(random_state, count):
    """Weights alive all along, activations from forward to backward, and gradients alive for a moment."""
    rows, layers = [], max(1, count // 12)
    step, total = 0, layers * 12
    for layer in range(layers):
        base = 2 ** random_state.randint(12, 22)
        back = total * 2 - layer * 12
        for _ in range(12):
            step += 1
            size = base * random_state.choice([1, 1, 2, 3, 4]) + random_state.choice([0, 0, 512])
            kind = random_state.random()
            if kind < 0.05:
                rows.append((0, 2 * total + 12, size))
            elif kind < 0.35:
                rows.append((step, back - random_state.randrange(12), size))
            elif kind < 0.65:
                rows.append((step, step + random_state.randint(1, 8), size))
            else:
                start = back - random_state.randrange(12)
                rows.append((start, start + random_state.randint(1, 10), size))
    return rows


def program(random_state, count):
    """Ranges of all lengths, most of them short, at any time."""
    rows, horizon = [], 4 * count
    for _ in range(count):
        lower = random_state.randrange(horizon)
        length = int(2 ** random_state.uniform(0, 12))
        rows.append((lower, lower + length, int(2 ** random_state.uniform(6, 24)) // 64 * 64 + 64))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--sizes", default="300,3000,20000,60000")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    for size in map(int, arguments.sizes.split(",")):
        for name, draw in (("training", training), ("program", program)):
            rows = draw(random.Random(f"{arguments.seed} {size} {name}"), size)
            with open(os.path.join(arguments.folder, f"{name}_{size}.csv"), "w") as file:
                file.write("id,lower,upper,size\n")
                file.writelines(f"{i},{l},{u},{s}\n" for i, (l, u, s) in enumerate(rows))


if __name__ == "__main__":
    main()
