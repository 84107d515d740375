# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that the user gives as source, in C or MLIR.

    softclip = memopt.operator("softclip", '''
        float softclip(float x) { return x / (1 + fabsf(x)); }
    ''', elementwise=True, gradient=lambda x, y, dy: dy * (1 - y.abs()) ** 2)

A function of C gets the addresses of its arguments, those of its results, and that of all their sizes; with `elementwise` it gets
numbers and returns one. A function of MLIR takes and returns numbers, which is for all elements, or tensors. PyTorch runs C by the
machine's compiler, too, so that a model with such an operator runs without memopt.compile; for MLIR it needs `reference`.

An operator is a torch.library.custom_op, whose body is another operator that export leaves in the program. An archive has the
sources of its operators (lib/Import/Graph/OwnOperators.cpp).
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from .errors import BadInput, Refused, Unavailable

__all__ = ["list_sources", "operator"]

_C_TYPES = {"float": torch.float32, "double": torch.float64, "int64_t": torch.int64, "long": torch.int64, "int32_t": torch.int32,
            "int": torch.int32, "int16_t": torch.int16, "int8_t": torch.int8, "uint8_t": torch.uint8, "_Bool": torch.bool,
            "bool": torch.bool}
_MLIR_TYPES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i1": torch.bool}
_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-ffp-contract=off", "-w")
_library = torch.library.Library("memopt_operators", "FRAGMENT")


class _Signature(NamedTuple):
    arguments: list[torch.dtype]
    results: list[torch.dtype]


def _read_c(name: str, source: str, results: int, elementwise: bool) -> _Signature:
    code = re.sub(r"/\*.*?\*/|//[^\n]*", " ", source, flags=re.S)
    found = re.search(rf"\b([A-Za-z_]\w*)\s+{name}\s*\(([^)]*)\)\s*\{{", code)
    if found is None:
        raise BadInput(f"the source of the operator '{name}' has no function {name}(...) with a body")
    types = []
    for parameter in filter(None, (part.strip() for part in found[2].split(","))):
        words = [word for word in re.findall(r"[A-Za-z_]\w*|\*", parameter) if word not in ("const", "restrict", "__restrict", "__restrict__")]
        if not words or words[0] not in _C_TYPES or ("*" in words) == elementwise:
            raise BadInput(f"'{parameter}' of the function {name} is not understood; expected {'a number' if elementwise else 'an address'}, "
                           f"such as {'float x' if elementwise else 'const float *x'}, of the types {', '.join(_C_TYPES)}")
        types.append(_C_TYPES[words[0]])
    if elementwise:
        if found[1] not in _C_TYPES or results != 1:
            raise BadInput(f"the function {name} gives {found[1]}, expected a number: a function of elements has one result")
        return _Signature(types, [_C_TYPES[found[1]]])
    if found[1] != "void" or len(types) < results + 1 or types[-1] != torch.int64:
        raise BadInput(f"the function {name} is expected to be void {name}(arguments..., {results} result{'s' * (results > 1)}, "
                       "const int64_t *sizes)")
    return _Signature(types[:-1 - results], types[-1 - results:-1])


def _read_mlir(name: str, source: str, results: int) -> _Signature:
    found = re.search(rf"func\.func\s+(?:private\s+)?@{name}\s*\((.*?)\)\s*->\s*(\([^{{]*\)|[^{{]*)\{{", source, re.S)
    if found is None:
        raise BadInput(f"the source of the operator '{name}' has no func.func @{name}(...) -> ...")
    kinds = [[_MLIR_TYPES[word] for word in re.findall(r"(?:(?<=[:x(,\s])|^)([fi]\d+)\b", part) if word in _MLIR_TYPES]
             for part in found.groups()]
    if len(kinds[1]) != results:
        raise BadInput(f"the function @{name} gives {len(kinds[1])} values, expected {results}; say results={len(kinds[1])}")
    return _Signature(*kinds)


def _write_c_type(dtype: torch.dtype) -> str:
    return next(word for word, other in _C_TYPES.items() if other is dtype)


def _loop_over_elements(name: str, source: str, signature: _Signature) -> str:
    """A function of addresses around one of numbers."""
    types = [_write_c_type(dtype) for dtype in signature.arguments]
    given = "".join(f"const {kind} *x{place}, " for place, kind in enumerate(types))
    taken = ", ".join(f"x{place}[i]" for place in range(len(types)))
    return (f"#define {name} {name}_of_one\n#line 1 \"{name}.c\"\n{source}\n#undef {name}\n"
            f"void {name}({given}{_write_c_type(signature.results[0])} *y, const int64_t *sizes) {{\n"
            f"  for (int64_t i = 0; i < sizes[0]; ++i) y[i] = {name}_of_one({taken});\n}}\n")


# ----------------------------------------------------------------------------------------------------------
# In PyTorch
# ----------------------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=None)
def _load(name: str, source: str) -> Any:
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "clang", "gcc")), None)
    if compiler is None:
        raise Unavailable(f"the operator '{name}' is given in C, and there is no C compiler (cc, clang or gcc); install one, or name it "
                          "in the variable CC")
    with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
        path = pathlib.Path(folder) / f"{name}.c"
        path.write_text(f"#include <math.h>\n#include <stdint.h>\n#line 1 \"{name}.c\"\n{source}\n")
        done = subprocess.run([compiler, *_FLAGS, str(path), "-o", str(path.with_suffix(".so")), "-lm"], capture_output=True, text=True)
        if done.returncode:
            raise BadInput(f"the operator '{name}' does not compile ({compiler}): {done.stderr.strip()[:2000]}")
        return getattr(ctypes.CDLL(str(path.with_suffix(".so"))), name)


class _Operator:
    """A function of tensors, and what the compiler needs of it."""

    def __init__(self, name: str, source: str, file: str, signature: _Signature, shapes: Callable | None, elementwise: bool,
                 reference: Callable | None):
        self.name, self.source, self.file, self.signature = name, source, file, signature
        self._shapes, self._elementwise, self._reference = shapes, elementwise, reference

    def make(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors for the results, whose arguments fit."""
        if len(values) != len(self.signature.arguments):
            raise BadInput(f"the operator '{self.name}' is called with {len(values)} tensors, expected {len(self.signature.arguments)}")
        for place, (value, dtype) in enumerate(zip(values, self.signature.arguments)):
            if value.dtype is not dtype:
                raise BadInput(f"argument {place} of the operator '{self.name}' is {value.dtype}, expected {dtype}")
        if self._elementwise:
            if any(value.shape != values[0].shape for value in values):
                raise BadInput(f"the operator '{self.name}' goes element by element and takes tensors of one shape, not "
                               + ", ".join(str(list(value.shape)) for value in values))
            shapes = [values[0].shape] * len(self.signature.results)
        else:
            shapes = self._shapes(*(tuple(value.shape) for value in values))
            shapes = [shapes] if not shapes or isinstance(shapes[0], int) else list(shapes)
        if len(shapes) != len(self.signature.results):
            raise BadInput(f"shapes of the operator '{self.name}' gives {len(shapes)}, expected {len(self.signature.results)}")
        return [torch.empty(tuple(shape), dtype=dtype) for shape, dtype in zip(shapes, self.signature.results)]

    def run(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        made = self.make(values)
        if self._reference is not None:
            found = self._reference(*values)
            return [value.clone() for value in (found if isinstance(found, (tuple, list)) else [found])]
        if self.file.endswith(".mlir"):
            raise Refused(f"the operator '{self.name}' is given in MLIR, which runs in compiled steps alone; give reference=, a function "
                          "of PyTorch, to run it elsewhere")
        held = [value.contiguous() for value in values]
        sizes = [values[0].numel()] if self._elementwise else [size for value in (*held, *made) for size in value.shape]
        _load(self.name, self.source)(*(ctypes.c_void_p(value.data_ptr()) for value in (*held, *made)),
                                      (ctypes.c_int64 * max(1, len(sizes)))(*sizes))
        return made


_operators: dict[str, tuple[_Operator, Callable]] = {}


def operator(name: str, source: str, language: str = "c", *, elementwise: bool = False, shapes: Callable | None = None, results: int = 1,
             gradient: Callable | None = None, reference: Callable | None = None) -> Callable:
    """An operator of PyTorch, for models that memopt compiles, from a function `name` of C or MLIR.

    `elementwise`: the function is of numbers (MLIR of numbers always is). Of others `shapes(*shapes of arguments)` gives the shape
    of the result, or of each of `results`. `gradient(*arguments, *results, *gradients of results)` gives the gradient of each
    argument, None where there is none; it may call other operators. Without it no gradient comes through. `reference` computes
    the same in PyTorch, outside of compiled steps.
    """
    if language not in ("c", "mlir"):
        raise BadInput(f"language={language!r}: expected 'c' or 'mlir'")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise BadInput(f"{name!r} is no name of a function")
    if language == "mlir":
        signature = _read_mlir(name, source, results)
        elementwise = elementwise or "tensor<" not in source
        file, written = f"{name}.mlir", source
    else:
        signature = _read_c(name, source, results, elementwise)
        file, written = (f"{name}.each.c", _loop_over_elements(name, source, signature)) if elementwise else (f"{name}.c", source)
    if not elementwise and shapes is None:
        raise BadInput(f"the operator '{name}' is of whole tensors: shapes= says which its results have, as lambda x: x")
    if name in _operators:
        known, call = _operators[name]
        if known.source != written:
            raise BadInput(f"there is an operator '{name}' with another source; choose another name")
        return call
    own = _Operator(name, written, file, signature, shapes, elementwise, reference)
    call = _define(own, gradient)
    _operators[name] = own, call
    return call


def _define(own: _Operator, gradient: Callable | None) -> Callable:
    name, count = own.name, len(own.signature.results)
    _library.define(f"{name}(Tensor[] arguments) -> Tensor[]")
    _library.impl(name, own.run, "CPU")
    torch.library.register_fake(f"memopt_operators::{name}", own.make, lib=_library)
    inner = getattr(torch.ops.memopt_operators, name).default
    parameters = ", ".join(f"Tensor x{place}" for place in range(len(own.signature.arguments)))

    def run(*values):
        found = inner(list(values))
        return found[0] if count == 1 else tuple(found)
    outer = torch.library.custom_op(f"memopt_operators_of_users::{name}", run, mutates_args=(),
                                    schema=f"({parameters}) -> " + ("Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"))
    outer.register_fake(lambda *values: own.make(values)[0] if count == 1 else tuple(own.make(values)))
    if gradient is None:  # none comes through
        return lambda *values: outer(*(value.detach() for value in values))

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs, *(output if isinstance(output, (tuple, list)) else [output]))

    def differentiate(ctx, *gradients):
        return gradient(*ctx.saved_tensors, *gradients)
    outer.register_autograd(differentiate, setup_context=keep)
    return outer


# ----------------------------------------------------------------------------------------------------------
# In archives
# ----------------------------------------------------------------------------------------------------------

def list_sources(nodes: Iterable[torch.fx.Node]) -> dict[str, str]:
    """The sources of what these nodes call, by the names of their files in an archive."""
    names = {node.target._schema.name for node in nodes if isinstance(node.target, torch._ops.OpOverload)
             and node.target.namespace == "memopt_operators"}
    operators = [_operators[name.partition("::")[2]][0] for name in sorted(names)]
    return {own.file: own.source for own in operators}
