#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records PyTorch's operator tests (OpInfo) with PyTorch's answers, for operator_samples.py.

    record_operators.py [--tools FOLDER] -o samples.zip [--ops GLOB,...] [--pack N]

FOLDER holds the built tools; by default they are on PATH. Needs torch with its testing packages (expecttest) and numpy;
operator_samples.py needs numpy alone. Of every operator a few samples are taken: the first that memopt gets right, and each other one whose exported
graph, functional or decomposed to core ATen, has a row of the importer's table that no sample before it had. A sample is a
module: its floating-point tensors are parameters where PyTorch has a gradient, its outputs are copied into buffers, and the
loss is a weighted sum of them. N operators share an archive. Left out, and counted: what memopt refuses by name, random
results, tensors of more than 1500 elements or none, and what memopt computes otherwise (docs/Import.md says where and why).

The archive holds pack-K.pt2, and pack-K.npz with the expected tensors in the sample's type ("s3.o0", "s3.gradient p1") and,
with "/double" behind the name, in float64; rows.json lists the rows that were reached.
"""
import argparse
import copy
import fnmatch
import io
import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import warnings
import zipfile

import numpy as np
import torch
from operator_samples import compare, run
from torch import nn
from torch.utils import _pytree as pytree

LEVELS = ("functional", "core")
TYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
CANDIDATES, MOST_ELEMENTS = 4, 1500


def load_database():
    warnings.filterwarnings("ignore")
    from torch.testing._internal.common_methods_invocations import op_db
    return dict(sorted((op.formatted_name, op) for op in op_db))


def type_of(op):
    supported = op.supported_dtypes("cpu")
    return next((t for t in (torch.float32, torch.int64, torch.bool) if t in supported), None)


def samples_of(op, dtype):
    """Small samples as (leaves, tree), the first of each structure before others."""
    found, seen = ([], []), set()
    torch.manual_seed(0)
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 60):
        leaves, tree = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        tensors = [x for x in leaves if torch.is_tensor(x)]
        sizes = [x.numel() for x in tensors]
        if 0 in sizes or not 0 < sum(sizes) <= MOST_ELEMENTS or any(x.is_complex() or x.layout != torch.strided for x in tensors):
            continue
        kind = str(tree) + repr([x.dim() if torch.is_tensor(x) else x for x in leaves])
        found[kind in seen].append(([x.detach().clone() if torch.is_tensor(x) else x for x in leaves], tree))
        seen.add(kind)
    return (found[0] + found[1])[:CANDIDATES]


class Case(nn.Module):
    """One sample: copies its outputs into buffers and returns a weighted sum of the floating-point ones, if any."""

    def __init__(self, function, leaves, tree, differentiable):
        super().__init__()
        self.function, self.tree, self.differentiable = function, tree, differentiable
        self.leaves = [None if torch.is_tensor(x) else x for x in leaves]
        for i, x in enumerate(leaves):
            if torch.is_tensor(x) and differentiable and self.is_trained(x):
                self.register_parameter(f"p{i}", nn.Parameter(x.clone()))
            elif torch.is_tensor(x):
                self.register_buffer(f"p{i}", x.clone())
        self.places = [i for i, x in enumerate(leaves) if torch.is_tensor(x)]
        # Operands are results, as they are in models, and not state itself.
        for name, value in (("one", 1.0), ("zero", 0), ("no", False)):
            self.register_buffer(name, torch.tensor(value))
        with torch.no_grad():
            results = copy.deepcopy(self).results()
        if not results or any(y.dtype not in TYPES or not y.numel() or y.layout != torch.strided for y in results):
            raise ValueError("no results, or complex, narrow, sparse or empty ones")
        generator = torch.Generator().manual_seed(len(results))
        for k, y in enumerate(results):
            self.register_buffer(f"o{k}", torch.zeros_like(y, memory_format=torch.contiguous_format))
            if y.dtype.is_floating_point:
                self.register_buffer(f"w{k}", torch.randn(y.shape, generator=generator).to(y.dtype), persistent=False)

    def is_trained(self, x):
        return x.dtype.is_floating_point

    def operands(self):
        leaves = list(self.leaves)
        for i in self.places:
            x = getattr(self, f"p{i}")
            if x.dtype.is_floating_point:
                leaves[i] = x * self.one.to(x.dtype)
            else:
                leaves[i] = torch.logical_or(x, self.no) if x.dtype == torch.bool else x + self.zero.to(x.dtype)
        return leaves

    def results(self, leaves=None):
        leaves = self.operands() if leaves is None else leaves
        first, rest, named = pytree.tree_unflatten(leaves, self.tree)
        return [y for y in pytree.tree_leaves(self.function(first, *rest, **named)) if torch.is_tensor(y)]

    def forward(self):
        loss = None
        for k, y in enumerate(self.results()):
            getattr(self, f"o{k}").copy_(y)
            if y.dtype.is_floating_point:
                term = (y * getattr(self, f"w{k}")).sum()
                loss = term if loss is None else loss + term
        return loss

    def answer(self, double=False, seed=1):
        """Outputs and gradients of PyTorch."""
        module, default, sow = copy.deepcopy(self), torch.get_default_dtype(), torch.manual_seed
        try:
            sow(seed)
            torch.manual_seed = lambda _: None  # random operators of the database sow on their own
            if double:
                module.double()
                torch.set_default_dtype(torch.float64)
            loss = module()
            if self.differentiable and loss is not None:
                loss.backward()
        finally:
            torch.manual_seed = sow
            torch.set_default_dtype(default)
        found = {n: b for n, b in module.named_buffers() if re.fullmatch(r"o\d+", n)}
        found.update({f"gradient {n}": p.grad for n, p in module.named_parameters() if p.grad is not None})
        return {name: x.detach().contiguous().numpy() for name, x in found.items()}

    def record(self):
        """Raises where PyTorch's answer is not one."""
        self.single, self.double = self.answer(), self.answer(double=True)
        for seed in (2, 3):
            again = self.answer(seed=seed)
            if any(not np.array_equal(again[n], x, equal_nan=x.dtype.kind == "f") for n, x in self.single.items()):
                raise ValueError("random results")


class Pack(nn.Module):
    def __init__(self, cases):
        super().__init__()
        self.ones, self.names = nn.Parameter(torch.ones(2)), [f"s{i}" for i in cases]  # a step trains something
        for i, case in cases.items():
            setattr(self, f"s{i}", case)

    def forward(self):
        loss = (self.ones * self.ones).sum()
        for name in self.names:
            term = getattr(self, name)()
            loss = loss if term is None else loss + term
        return loss


def export(cases, level):
    """The archive's bytes, and the operators that each case's nodes call."""
    program = torch.export.export(Pack(cases).train(), (), {})
    program = program.run_decompositions({} if level == "functional" else None)
    called = {i: set() for i in cases}
    for node in program.graph.nodes:
        for name, _ in (node.meta.get("nn_module_stack") or {}).values():
            found = re.match(r"s(\d+)$", name)
            if found and node.op == "call_function":
                called[int(found[1])].add(str(node.target))
    data = io.BytesIO()
    torch.export.save(program, data)
    return strip(data.getvalue()), called


def strip(data):
    """Without stack traces and example inputs, which nobody reads."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            content = source.read(name)
            if "/sample_inputs/" in name:
                continue
            if name.endswith("models/model.json"):
                model = json.loads(content)
                for node in model["graph_module"]["graph"]["nodes"]:
                    node["metadata"] = {k: v for k, v in node["metadata"].items() if k == "nn_module_stack"}
                content = json.dumps(model).encode()
            target.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue()


def expectations(cases):
    found = {}
    for i, case in cases.items():
        found.update({f"s{i}.{name}": x for name, x in case.single.items()})
        found.update({f"s{i}.{name}/double": x for name, x in case.double.items()})
    return found


class Recorder:
    def __init__(self, arguments):
        self.arguments, self.rows, self.served, self.reasons, self.tally = arguments, set(), set(), {}, {}
        self.kept = {level: {} for level in LEVELS}

    def note(self, kind, name, why):
        self.tally.setdefault(kind, []).append(name)
        print(f"{name}: {why}", flush=True)

    def verdict(self, cases, archive):
        """Whether memopt gets these right: "right", or what else happened."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = run(self.arguments.tools, archive, pathlib.Path(folder))
            except subprocess.CalledProcessError as error:
                return ("refused" if error.returncode == 1 else "failed") + ": " + error.stderr.strip()[-200:]
        differ = compare(found, expectations(cases))
        return "differs: " + "; ".join(differ)[:200] if differ else "right"

    def cases_of(self, op):
        """Samples with PyTorch's answers; what PyTorch itself refuses is none."""
        dtype, cases = type_of(op), []
        for leaves, tree in samples_of(op, dtype) if dtype else []:
            for differentiable in (True, False) if op.supports_autograd and dtype.is_floating_point else (False,):
                try:
                    case = Case(op.get_op(), leaves, tree, differentiable)
                    case.record()
                    cases.append(case)
                    break
                except Exception:
                    continue
        return dict(enumerate(cases))

    def choose(self, cases, called):
        """The first case of an operator that has none yet, and cases that reach rows which none before them did."""
        chosen, rows, served = {}, set(self.rows), set(self.served)
        for i, case in cases.items():
            reached = called[i] & self.arguments.table
            if reached - rows or case.operator not in served:
                chosen[i] = case
                rows |= reached
                served.add(case.operator)
        return chosen

    def keep(self, cases, called, level):
        """Those that memopt gets right: together, or else each by itself."""
        if not cases:
            return
        why = self.verdict(cases, export(cases, level)[0])
        if why != "right" and len(cases) > 1:
            for i, case in cases.items():
                self.keep({i: case}, called, level)
            return
        for i, case in cases.items():
            if why != "right":
                self.reasons.setdefault(case.operator, why)
                continue
            self.served.add(case.operator)
            self.rows |= called[i] & self.arguments.table
            self.kept[level][len(self.kept[level])] = case

    def consider(self, operators):
        """Keeps the samples of these operators that add something; without one that is right, more are tried."""
        cases = {}
        for name, op in operators.items():
            for case in self.cases_of(op).values():
                case.operator = name
                cases[len(cases)] = case
        for level in LEVELS:
            try:
                _, called = export(cases, level)
            except Exception as error:
                if len(operators) > 1:
                    return [self.consider({name: op}) for name, op in operators.items()]
                self.reasons.setdefault(*operators, f"not exported: {type(error).__name__}")
                continue
            tried = {}
            while chosen := self.choose({i: case for i, case in cases.items() if i not in tried}, called):
                tried |= chosen
                self.keep(chosen, called, level)
        for name in operators:
            why = "kept" if name in self.served else self.reasons.get(name, "no sample")
            self.note(why.split(":")[0], name, why)

    def write(self, path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
            number = 0
            for level in LEVELS:
                items = list(self.kept[level].items())
                for begin in range(0, len(items), self.arguments.pack):
                    cases = dict(items[begin:begin + self.arguments.pack])
                    data = io.BytesIO()
                    np.savez(data, **expectations(cases))
                    out.writestr(zipfile.ZipInfo(f"pack-{number}.pt2"), export(cases, level)[0], zipfile.ZIP_DEFLATED)
                    out.writestr(zipfile.ZipInfo(f"pack-{number}.npz"), data.getvalue(), zipfile.ZIP_DEFLATED)
                    number += 1
            out.writestr(zipfile.ZipInfo("rows.json"), json.dumps(sorted(self.rows), indent=0), zipfile.ZIP_DEFLATED)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="")
    parser.add_argument("-o", required=True)
    parser.add_argument("--ops", default="*")
    parser.add_argument("--pack", type=int, default=24)
    parser.add_argument("--group", type=int, default=8, help="operators that are exported together, as long as all goes well")
    arguments = parser.parse_args()
    listed = subprocess.run([os.path.join(arguments.tools, "memopt-import-test"), "--rows"], check=True, capture_output=True, text=True)
    arguments.table = set(listed.stdout.split())
    torch.set_num_threads(1)
    recorder = Recorder(arguments)
    operators = [(name, op) for name, op in load_database().items()
                 if any(fnmatch.fnmatch(name, glob) for glob in arguments.ops.split(","))]
    for begin in range(0, len(operators), arguments.group):
        group = dict(operators[begin:begin + arguments.group])
        try:
            recorder.consider(group)
        except Exception as error:  # what is recorded so far should not be lost
            print(f"{', '.join(group)}: not recorded: {type(error).__name__}: {str(error)[:200]}", flush=True)
    recorder.write(arguments.o)
    print(", ".join(f"{len(names)} {kind}" for kind, names in sorted(recorder.tally.items())))
    print(f"{len(recorder.rows)} of {len(arguments.table)} rows of the table; not among them:")
    print("\n".join(sorted(arguments.table - recorder.rows)))


if __name__ == "__main__":
    main()
