#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps through decompositions of one matrix, with their gradients, beside eager PyTorch: seconds to compile, and milliseconds of a
step, the least of some in turn.

    algebra.py [--rows 100,300] [--kinds eigh,svd,qr,solve,cholesky] [--steps 20] [--threads 1]

The table of docs/Benchmarks.md. Needs memopt on PYTHONPATH.
"""
import argparse
import time

import torch
from torch import nn

import memopt

KINDS = {
    "eigh": lambda a, s, t: (lambda values, vectors: (values * t[0]).sum() + (vectors.square() * t).sum())(*torch.linalg.eigh(s)),
    "svd": lambda a, s, t: (lambda u, values, vh: (values * t[0]).sum() + (u.square() * t).sum())(*torch.linalg.svd(a, False)),
    "qr": lambda a, s, t: (lambda q, r: (q * t).sum() + (r * t).sum())(*torch.linalg.qr(a)),
    "solve": lambda a, s, t: (torch.linalg.solve(a, t) * t).sum(),
    "cholesky": lambda a, s, t: (torch.linalg.cholesky(s) * t).sum(),
}


class Model(nn.Module):
    def __init__(self, kind, rows):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.w = kind, nn.Parameter(torch.randn(rows, rows) / rows ** 0.5 + torch.diag(torch.arange(1.0, rows + 1)))

    def forward(self, t):
        return KINDS[self.kind](self.w, 0.5 * (self.w + self.w.mT), t)


def measure(kind, rows, steps):
    """Seconds to compile, milliseconds of a step and of PyTorch's."""
    t = torch.randn(rows, rows)
    model = Model(kind, rows)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def eager():
        optimizer.zero_grad()
        model(t).backward()
        optimizer.step()
    compiled_model = Model(kind, rows)
    begin = time.perf_counter()
    try:
        step = memopt.compile(compiled_model, None, {"t": t}, optimizer=torch.optim.SGD(compiled_model.parameters(), lr=1e-6))
    except memopt.Error as error:
        return str(error).splitlines()[0], None, None
    seconds = time.perf_counter() - begin
    least = [float("inf"), float("inf")]
    for _ in range(steps):
        for place, run in enumerate((lambda: step({"t": t}), eager)):
            begin = time.perf_counter()
            run()
            least[place] = min(least[place], 1e3 * (time.perf_counter() - begin))
    return seconds, *least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="100,300")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| kind | rows | compile, s | step, ms | eager, ms |\n|---|---|---|---|---|")
    for kind in options.kinds.split(","):
        for rows in map(int, options.rows.split(",")):
            seconds, step, eager = measure(kind, rows, options.steps)
            found = f"refused: {seconds}" if step is None else f"{seconds:.1f} | {step:.2f} | {eager:.2f}"
            print(f"| {kind} | {rows} | {found} |", flush=True)


if __name__ == "__main__":
    main()
