#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of docs/Import.md: PyTorch's operator tests (OpInfo), exported by memopt as models are, each with its fate.

    sweep_operators.py [--tools FOLDER] [--types float32,complex64] [--ops GLOB,...] [--samples N] [-o found.json]
    sweep_operators.py --table found.json...

Prints a line for each operator and type, and then the table. Of each operator a few plain samples are taken, as modules of
record_operators.py whose complex results are compared as pairs. An operator is right if a sample is right and none is not; refused
if all are, by a message; failed where a tool ends otherwise. Not judged: random results, none, and what PyTorch does not export.
What differs at NaN, infinities and ties is not looked for here; docs/Import.md says where. Needs what record_operators.py needs,
and memopt on PYTHONPATH.
"""
import argparse
import fnmatch
import itertools
import json
import pathlib
import re
import subprocess
import tempfile

import numpy as np
import torch
from torch.utils import _pytree as pytree

import record_operators as record
from memopt import export
from memopt.errors import Refused
from operator_samples import compare, run

KINDS = ("right", "refused", "differs", "failed", "not judged")
record.TYPES = (*record.TYPES, torch.complex64, torch.complex128)


class Case(record.Case):
    """With complex results as pairs; uint8 results, which no state has, as wider integers."""

    def results(self, leaves=None):
        found = [torch.view_as_real(y.resolve_conj()) if y.is_complex() else y for y in super().results(leaves)]
        return [y.to(torch.int64) if y.dtype == torch.uint8 else y for y in found]


def samples_of(op, dtype, count):
    torch.manual_seed(0)
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 60):
        leaves, tree = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        tensors = [x for x in leaves if torch.is_tensor(x)]
        sizes = [x.numel() for x in tensors]
        if 0 in sizes or not 0 < sum(sizes) <= record.MOST_ELEMENTS or any(x.layout != torch.strided for x in tensors):
            continue
        yield [x.detach().clone() if torch.is_tensor(x) else x for x in leaves], tree
        count -= 1
        if not count:
            return


def cases_of(op, dtype, count):
    """Those to which PyTorch has an answer, and why others have none."""
    cases, why = [], "no sample"
    for leaves, tree in samples_of(op, dtype, count):
        for differentiable in (True, False) if op.supports_autograd and dtype.is_floating_point else (False,):
            try:
                case = Case(op.get_op(), leaves, tree, differentiable)
                case.record()
                cases.append(case)
                break
            except Exception as error:  # what PyTorch itself refuses is no case
                why = f"{type(error).__name__}: {str(error)[:100]}"
    return cases, why


def run_cases(cases, tools):
    """What a step of these cases gives; and if it gives nothing, its fate and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        archive = pathlib.Path(folder) / "step.pt2"
        try:
            export.save(export.export_program(export.TrainingStep(record.Pack(cases)), {}, training=True), archive)
            return run(tools, archive.read_bytes(), pathlib.Path(folder)), None
        except Refused as error:
            return None, ("refused", str(error))
        except subprocess.CalledProcessError as error:
            text = error.stderr.strip() or f"ended with code {error.returncode}"
            return None, ("refused" if error.returncode in (1, 2) and "error: loc(" not in text else "failed", text)


def judge(case, tools):
    """The fate of one case, and what was said."""
    cases = {0: case}
    found, fate = run_cases(cases, tools)
    if fate:
        return fate
    expected = {f"net.{name}".replace("gradient ", ""): value for name, value in record.expectations(cases).items()}
    # A parameter that the loss does not depend on has no gradient here and zeros there; its value says nothing.
    found = {name.replace("gradient ", ""): value for name, value in found.items() if not re.fullmatch(r"net\.s\d+\.p\d+", name)}
    found = {**{name: value for name, value in expected.items() if not np.any(value)}, **found}
    differ = compare(found, expected)
    return ("differs", "; ".join(differ)) if differ else ("right", "")


def sweep(op, dtype, arguments):
    cases, why = cases_of(op, dtype, arguments.samples)
    fates = {}
    for case in cases:
        kind, text = judge(case, arguments.tools)
        fates.setdefault(kind, text)
        if kind in ("differs", "failed"):
            break
    kind = next((kind for kind in ("failed", "differs", "right", "refused") if kind in fates), "not judged")
    return kind, fates.get(kind, why) or fates.get("refused", "")


def print_table(found):
    print("| type | operators | " + " | ".join(KINDS) + " |\n|" + "---|" * (len(KINDS) + 2))
    for dtype in dict.fromkeys(entry["type"] for entry in found):
        kinds = [entry["kind"] for entry in found if entry["type"] == dtype]
        print(f"| {dtype} | {len(kinds)} | " + " | ".join(str(kinds.count(kind)) for kind in KINDS) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="")
    parser.add_argument("--types", default="float32,float64,complex64,int64,uint8,bool")
    parser.add_argument("--ops", default="*")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("-o")
    parser.add_argument("--table", nargs="+")
    arguments = parser.parse_args()
    found = []
    if arguments.table:
        return print_table([entry for path in arguments.table for entry in json.loads(pathlib.Path(path).read_text())])
    torch.set_num_threads(1)
    np.seterr(all="ignore")
    for dtype in arguments.types.split(","):
        for name, op in record.load_database().items():
            if getattr(torch, dtype) not in op.supported_dtypes("cpu") or not any(fnmatch.fnmatch(name, glob) for glob in arguments.ops.split(",")):
                continue
            kind, text = sweep(op, getattr(torch, dtype), arguments)
            found.append({"op": name, "type": dtype, "kind": kind, "text": text})
            first = next(iter(text.splitlines()), "")
            print(f"{name} {dtype}: {kind}{f': {first[:200]}' if first else ''}", flush=True)
            if arguments.o:
                pathlib.Path(arguments.o).write_text(json.dumps(found, indent=1))
    print_table(found)


if __name__ == "__main__":
    main()
