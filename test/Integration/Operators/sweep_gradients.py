#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients inside a loss, of each operator that PyTorch's tests (OpInfo) mark as twice differentiable, beside PyTorch's in float64.

    sweep_gradients.py [--tools FOLDER] [--ops GLOB,...] [--samples N] [--seconds N] [-o found.json]
    sweep_gradients.py --table found.json...

The loss of a sample is the sum of squares of the gradient that `torch.autograd.grad(..., create_graph=True)` takes of the
operator's results; so its own gradient, which is compared with the loss, is one of second order. Both are held against central
differences of the loss along a random direction: what has those is right where PyTorch's has not. Prints a line for each
operator, and then the table, whose kinds are those of sweep_operators.py; it needs what that needs.
"""
import argparse
import copy
import fnmatch
import functools
import itertools
import json
import pathlib
import signal

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

import record_operators as record
import sweep_operators as sweep

CANDIDATES, MOST_OFF, MOST_OFF_DIFFERENCES = 6, 1e-6, 1e-4


class Case(sweep.Case):
    """A sample whose loss is made of its first gradient, by what its author says has one."""

    def is_trained(self, x):
        return x.requires_grad

    def forward(self):
        leaves = self.operands()
        inputs = [x for x in leaves if torch.is_tensor(x) and x.requires_grad]
        value = 0
        for k, y in enumerate(self.results(leaves)):
            if y.dtype.is_floating_point and y.requires_grad:
                # With squares, as the gradient of a linear operator would be a constant.
                value = value + (y * getattr(self, f"w{k}") + 0.5 * y.square()).sum()
        found = torch.autograd.grad(value, inputs, create_graph=True, allow_unused=True, materialize_grads=True)
        loss = sum(gradient.square().mean() for gradient in found)
        self.o0.copy_(loss)
        return loss

    def record(self):
        """PyTorch's loss and gradients, and what they are off central differences. Raises where it has none."""
        self.o0 = torch.zeros((), dtype=torch.float64)
        self.expected = self.answer()
        again = self.answer(seed=2)
        if any(not np.array_equal(again[name], value, equal_nan=True) for name, value in self.expected.items()):
            raise ValueError("random results")
        if not all(np.isfinite(value).all() for value in self.expected.values()):
            raise ValueError("infinite or no numbers")
        self.measure_gradient = self.measure()
        self.off = self.measure_gradient(self.expected)

    def has_gradient(self):
        return any(" " in name and np.any(value) for name, value in self.expected.items())

    def measure(self, step=1e-6):
        """A function that says what gradients are off central differences of the loss."""
        generator, losses = torch.Generator().manual_seed(3), []
        ways = {name: torch.randn(p.shape, generator=generator, dtype=p.dtype) for name, p in self.named_parameters()}
        for side in (step, -step):
            moved = copy.deepcopy(self)
            with torch.no_grad():
                for name, parameter in moved.named_parameters():
                    parameter.add_(ways[name], alpha=side)
            losses.append(moved.answer()["o0"])
        slope = float((losses[0] - losses[1]) / (2 * step))

        def measure_gradient(found):
            own = sum(float((found[f"gradient {name}"] * way.numpy()).sum()) for name, way in ways.items() if f"gradient {name}" in found)
            return abs(own - slope) / (abs(slope) + abs(float(self.expected["o0"])) + 1e-3)
        return measure_gradient


def samples_of(op):
    """Small ones, as (function, leaves, tree); the functions leave out what no convention fixes, as signs of singular vectors."""
    torch.manual_seed(0)
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), 60):
        leaves, tree = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        tensors = [x for x in leaves if torch.is_tensor(x)]
        if all(x.layout == torch.strided and x.numel() for x in tensors) and sum(x.numel() for x in tensors) <= record.MOST_ELEMENTS:
            leaves = [x.detach().clone().requires_grad_(x.requires_grad) if torch.is_tensor(x) else x for x in leaves]
            yield functools.partial(compute, op, sample.output_process_fn_grad), leaves, tree


def compute(op, process, *arguments, **keywords):
    return process(op.gradcheck_wrapper(op.get_op(), *arguments, **keywords))


def choose_cases(op, count):
    """Those with a second gradient before others, and why others have none."""
    cases, why = [], "no sample"
    for function, leaves, tree in itertools.islice(samples_of(op), CANDIDATES):
        try:
            case = Case(function, leaves, tree, True)
            case.record()
            cases.append(case)
        except Exception as error:  # what PyTorch itself refuses is no case
            why = f"{type(error).__name__}: {str(error)[:100]}"
        if sum(case.has_gradient() for case in cases) == count:
            break
    return sorted(cases, key=lambda case: not case.has_gradient())[:count], why


def compare(found, expected):
    """What differs, one line each."""
    differ = []
    for name, value in expected.items():
        ours = found.get(name, np.zeros_like(value) if " " in name else None)
        if ours is None or ours.shape != value.shape or not np.max(np.abs(ours - value), initial=0) <= MOST_OFF * (np.max(np.abs(value)) + 1e-3):
            differ.append(f"{name}: expected {value.ravel()[:4]}, found {'nothing' if ours is None else ours.ravel()[:4]}")
    return differ


def judge(case, tools):
    """The fate of one case, and what was said."""
    try:
        found, fate = sweep.run_cases({0: case}, tools)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    if fate:
        return fate
    found = {name.replace("net.s0.", ""): value for name, value in found.items()}
    differ = compare(found, case.expected)
    if differ and case.off > MOST_OFF_DIFFERENCES and case.measure_gradient(found) < MOST_OFF_DIFFERENCES:
        return "right", "as central differences are"
    return ("differs", "; ".join(differ)) if differ else ("right", "")


def _give_up(*_):
    raise TimeoutError("no end within the time")


def visit(op, arguments):
    signal.alarm(arguments.seconds)
    try:
        cases, why = choose_cases(op, arguments.samples)
        fates, off = {}, 0
        for case in cases:
            kind, text = judge(case, arguments.tools)
            fates.setdefault(kind, text)
            off = max(off, case.off)
        kind = next((kind for kind in ("failed", "differs", "right", "refused") if kind in fates), "not judged")
        return {"kind": kind, "text": fates.get(kind, why), "off": off}
    except TimeoutError as error:
        return {"kind": "not judged", "text": str(error), "off": 0}
    finally:
        signal.alarm(0)


def sweep_all(arguments, found):
    for name, op in record.load_database().items():
        if not op.supports_gradgrad or torch.float64 not in op.supported_backward_dtypes("cpu"):
            continue
        if not any(fnmatch.fnmatch(name, glob) for glob in arguments.ops.split(",")):
            continue
        found.append({"op": name, "type": "second gradients", **visit(op, arguments)})
        entry = found[-1]
        first = " ".join(entry["text"].split())
        note = f" (PyTorch's is {entry['off']:.1e} off central differences)" if entry["off"] > MOST_OFF_DIFFERENCES else ""
        print(f"{name}: {entry['kind']}{f': {first[:400]}' if first else ''}{note}", flush=True)
        if arguments.o:
            pathlib.Path(arguments.o).write_text(json.dumps(found, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="")
    parser.add_argument("--ops", default="*")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="for each operator")
    parser.add_argument("-o")
    parser.add_argument("--table", nargs="+")
    arguments = parser.parse_args()
    found = []
    if arguments.table:
        return sweep.print_table([entry for path in arguments.table for entry in json.loads(pathlib.Path(path).read_text())])
    torch.set_num_threads(1)
    np.seterr(all="ignore")
    signal.signal(signal.SIGALRM, _give_up)
    # The other kinds of attention have no second gradient in PyTorch.
    with sdpa_kernel(SDPBackend.MATH):
        sweep_all(arguments, found)
    sweep.print_table(found)


if __name__ == "__main__":
    main()
