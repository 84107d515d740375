# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers as pairs of tensors.

Gradients follow: the slopes of a real loss by both parts are what PyTorch calls the gradient of a complex tensor. A complex
parameter or buffer is a real one with a last dimension of two in the program, as `torch.view_as_real` has it; PyTorch's
optimizers see it so, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...errors import Refused
from ...internals import storage_of
from . import fourier
from .algebra import ALGEBRA, EMBEDDED, read_hermitian
from .arithmetic import absolute, add, angle, bilinear, div, exp, log, mul, pair, polar, reciprocal, split, sqrt
from .functions import FUNCTIONS
from .matrices import embed, unembed
from .pairs import Pair, as_pair, as_real, has_complex, is_complex

__all__ = ["Pair", "as_pair", "call", "finish", "has_complex", "is_complex", "makes_complex", "refuse", "write"]


def finish(value: Any) -> Any:
    return as_real(value) if is_complex(value) else value


def write(into: torch.Tensor, value: Any) -> None:
    into.copy_(finish(value))


_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}


def _sgn(z: Pair) -> Pair:
    size = absolute(z)
    safe = torch.where(size == 0, torch.ones_like(size), size)
    return Pair(z.re / safe, z.im / safe)


def _pow(a: Any, b: Any) -> Pair:
    if isinstance(b, (int, float)) and float(b).is_integer() and 0 < abs(b) <= 64:
        result, base, count = None, a, int(abs(b))
        while count:
            if count & 1:
                result = base if result is None else mul(result, base)
            count >>= 1
            base = mul(base, base) if count else base
        return result if b > 0 else reciprocal(result)
    if isinstance(b, (int, float)) and b == 0:
        return Pair(torch.ones_like(a.re), torch.zeros_like(a.re))
    return exp(mul(log(pair(a)), b))


def _equal(a: Any, b: Any) -> torch.Tensor:
    (ar, ai), (br, bi) = split(a), split(b)
    zero = 0
    return (ar == br) & ((zero if ai is None else ai) == (zero if bi is None else bi))


def _where(condition: torch.Tensor, a: Any, b: Any) -> Pair:
    (ar, ai), (br, bi) = split(a), split(b)
    zero = torch.zeros((), dtype=next(part.dtype for part in (ai, bi, ar, br) if isinstance(part, torch.Tensor)))
    parts = [part if isinstance(part, torch.Tensor) else zero + (part or 0) for part in (ar, ai, br, bi)]
    return Pair(torch.where(condition, parts[0], parts[2]), torch.where(condition, parts[1], parts[3]))


def _convert(value: Any, dtype: torch.dtype | None) -> Any:
    if dtype is None:
        return value
    if dtype.is_complex:
        found = pair(value)
        return Pair(found.re.to(_REAL[dtype]), found.im.to(_REAL[dtype]))
    return _is_true(value) if dtype is torch.bool else split(value)[0].to(dtype)


def _type_as(value: Any, other: Any) -> Any:
    if is_complex(other):
        return Pair(*(part.to(other.re.dtype) for part in pair(value)))
    return _convert(value, other.dtype)


def _is_true(value: Any) -> Any:
    """Whether numbers are not zero."""
    return (value.re != 0) | (value.im != 0) if is_complex(value) else value


def _copy(into: Any, value: Any, *_) -> Any:
    if not is_complex(into):
        return into.copy_(split(value)[0])
    found = pair(value)
    into.re.copy_(found.re)
    into.im.copy_(found.im)
    return into


def _norm(z: Pair, *rest: Any, **keywords: Any) -> torch.Tensor:
    order = rest[0] if rest else 2
    if order == 2 and not keywords.get("dtype"):
        dims = rest[1] if len(rest) > 1 else keywords.get("dim")
        if dims is None:
            dims = list(range(z.re.dim()))
        dims = [dim % z.re.dim() for dim in (dims if isinstance(dims, (list, tuple)) else [dims])]
        keep = rest[2] if len(rest) > 2 else keywords.get("keepdim", False)
        stacked = as_real(z)
        return torch.linalg.vector_norm(stacked, 2, [*dims, -1], False) if not keep else (
            torch.linalg.vector_norm(torch.linalg.vector_norm(stacked, 2, -1), 2, dims, True))
    return torch.linalg.vector_norm(absolute(z), *rest, **keywords)


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    result = bilinear(torch.nn.functional.linear, x, weight)
    return result if bias is None else add(result, bias)


def _einsum(equation: str, operands: list, **_: Any) -> Any:
    if len(operands) == 1:
        return Pair(*(torch.einsum(equation, part) for part in operands[0]))
    if len(operands) == 2:
        return bilinear(lambda a, b: torch.einsum(equation, a, b), *operands)
    # One part of each operand at a time, with i to the power of how many are imaginary.
    total: list = [None, None]
    for chosen in range(2 ** len(operands)):
        parts = [split(value)[chosen >> place & 1] for place, value in enumerate(operands)]
        if any(part is None for part in parts):
            continue
        power = bin(chosen).count("1")
        term = torch.einsum(equation, *parts)
        term = -term if power % 4 in (2, 3) else term
        total[power % 2] = term if total[power % 2] is None else total[power % 2] + term
    return Pair(*total)


def _numbers(value: Any) -> tuple[Any, Any]:
    re, im = split(value)
    return re, 0 if im is None else im


def _fill(z: Pair, value: Any) -> Pair:
    return Pair(*(torch.zeros_like(part) + number for part, number in zip(z, _numbers(value))))


def _pad(z: Pair, sizes: list[int], value: Any = 0, mode: str = "constant") -> Pair:
    if mode != "constant":
        return Pair(*(torch.nn.functional.pad(part, sizes, mode) for part in z))
    return Pair(*(torch.nn.functional.pad(part, sizes, value=number or 0.0) for part, number in zip(z, split(value or 0))))


_FUNCTIONS = {
    "constant_pad_nd": _pad, "pad": lambda z, sizes, mode="constant", value=0: _pad(z, sizes, value, mode),
    "view_as_complex": as_pair, "real": lambda z: z.re, "imag": lambda z: z.im,
    "complex": Pair, "polar": polar, "conj_physical": lambda z: Pair(z.re, -z.im),
    "fill": lambda z, value: _fill(z, value), "full_like": lambda z, value, **_: _fill(z, value),
    "new_full": lambda z, sizes, value, **_: _fill(Pair(z.re.new_empty(sizes), z.im.new_empty(sizes)), value),
    "new_ones": lambda z, sizes, **_: Pair(z.re.new_ones(sizes), z.im.new_zeros(sizes)), "isreal": lambda z: z.im == 0,
    "float_power": lambda a, b: _pow(_convert(a, torch.complex128), b),
    "index_fill": lambda z, dim, places, value: Pair(*(part.index_fill(dim, places, number) for part, number in zip(z, _numbers(value)))),
    "_conj_physical": lambda z: Pair(z.re, -z.im), "abs": absolute, "angle": angle, "mul": mul, "neg": lambda z: Pair(-z.re, -z.im),
    "add": add, "sub": lambda a, b, alpha=1: add(a if is_complex(a) else pair(a) if is_complex(b) else a, b, alpha, -1),
    "div": div, "true_divide": div, "reciprocal": reciprocal, "exp": exp, "log": log, "sqrt": sqrt, "sgn": _sgn, "pow": _pow,
    "square": lambda z: mul(z, z), "rsub": lambda a, b, alpha=1: add(pair(b), a, alpha, -1),
    "masked_fill": lambda z, mask, value: _where(mask, value, z), "eq": _equal, "ne": lambda a, b: ~_equal(a, b), "where": _where, "copy_": _copy, "linalg_vector_norm": _norm,
    "norm": lambda z, *rest, **keywords: _norm(z, *[2 if part is None else part for part in rest], **keywords),
    "linear": _linear, "einsum": _einsum,
    "vdot": lambda a, b: bilinear(torch.dot, Pair(a.re, -a.im), b), "linalg_vecdot": lambda a, b, dim=-1: Pair(
        *(part.sum(dim) for part in mul(Pair(a.re, -a.im), b))),
    **dict.fromkeys(("to", "_to_copy"), None), "type_as": _type_as, "_assert_tensor_metadata": lambda *_, **keywords: None,
}
#: Of truth values.
_OF_TRUTHS = {"logical_not", "logical_and", "logical_or", "logical_xor", "any", "all"}
#: Of two factors.
_BILINEAR = {"matmul", "mm", "bmm", "mv", "dot", "outer", "kron", "ger", "linalg_matmul", "cross", "linalg_cross"}
#: Of both parts alike.
_OF_PARTS = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "select", "slice", "transpose", "permute", "t", "numpy_T", "mT",
             "unsqueeze", "squeeze", "expand", "expand_as", "broadcast_to", "repeat", "tile", "index", "index_select", "gather", "roll",
             "flip", "unbind", "split", "split_with_sizes", "chunk", "movedim", "swapaxes", "swapdims", "narrow", "clone", "contiguous",
             "detach", "alias", "lift_fresh_copy", "sum", "mean", "cumsum", "diagonal", "diag", "tril", "triu", "zeros_like",
             "empty_like", "new_zeros", "new_empty", "unfold", "tensor_split", "positive",
             "resolve_conj", "resolve_neg", "atleast_1d", "atleast_2d", "view_copy", "atleast_3d",
             "detach_", "alias_copy", "detach_copy", "diagonal_copy", "expand_copy", "permute_copy", "select_copy", "slice_copy", "t_copy",
             "split_copy", "split_with_sizes_copy", "squeeze_copy", "transpose_copy", "unbind_copy", "unfold_copy", "unsqueeze_copy",
             "narrow_copy", "take", "take_along_dim", "fliplr", "flipud", "rot90", "view_as", "reshape_as", "ravel", "hsplit", "vsplit",
             "dsplit", "diff", "diag_embed", "diagflat", "linalg_diagonal", "sum_to_size", "moveaxis", "repeat_interleave",
             "squeeze_", "unsqueeze_", "transpose_", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle",
             "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "combinations", "nan_to_num"}
_JOINED = {"cartesian_prod", "cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "row_stack", "column_stack",
           "block_diag"}
_CREATED = {"zeros", "empty", "ones", "full", "eye", "scalar_tensor"}
_WRITES = {"masked_fill_": lambda z, mask, value: _where(mask, value, z), "add_": add, "sub_": lambda a, b, alpha=1: add(a, b, alpha, -1), "mul_": mul, "div_": div}
_FROM_REAL = {"complex", "polar", "view_as_complex"}


def _name(target: Any) -> str | None:
    return target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else None


def _dtype(keywords: dict) -> torch.dtype | None:
    return keywords.get("dtype")


def makes_complex(target: Any, arguments: tuple, keywords: dict) -> bool:
    """Whether an operator gives complex numbers for real ones."""
    name = _name(target)
    return name in _FROM_REAL or name in fourier.RULES or any(
        isinstance(value, torch.dtype) and value.is_complex for value in (*arguments, *keywords.values()))


def _of_parts(engine, target, arguments, keywords):
    """The same of real and of imaginary parts; of what is real, and takes no more than a shape, only once."""
    is_real = isinstance(arguments[0], torch.Tensor)
    results = []
    for place in (0,) if is_real else (0, 1):
        part = lambda value: value[place] if is_complex(value) else value
        mapped = pytree.tree_map(part, (arguments, keywords), is_leaf=is_complex)
        if keywords.get("dtype") is not None:
            mapped[1]["dtype"] = _REAL.get(keywords["dtype"], keywords["dtype"])
        results.append(engine.call(target, tuple(mapped[0]), mapped[1]))
    if is_real:
        return results[0]
    if not isinstance(results[0], (torch.Tensor, tuple, list)):
        raise Refused("rows of complex numbers that a mask chooses are not supported, as their number depends on the data; choose by "
                      "torch.where(mask, x, 0)")
    if isinstance(results[0], (tuple, list)):
        return [Pair(*parts) for parts in zip(*results)]
    return Pair(*results)


def _view_as_real(engine, z):
    """A copy of both parts, which follow what is written to it, as it follows them."""
    whole = as_real(z)
    for place, part, other in ((0, z.re, z.im), (1, z.im, z.re)):
        def write(place=place, other=other):
            other.copy_(whole.select(-1, 1 - place))  # parts may lie in one storage, which counts as written then
            return whole.select(-1, place)
        engine.views.add(whole, part, lambda: as_real(z), write)
    return whole


def _scatter(engine, target, arguments, keywords):
    """A number goes to both parts as it is."""
    into, dim, places, value, *reduction = arguments
    if reduction or keywords:
        refuse(target._schema.name)
    if not isinstance(value, torch.Tensor) and not is_complex(value):
        return Pair(*(engine.call(target, (part, dim, places, number), {}) for part, number in zip(pair(into), _numbers(value))))
    return _of_parts(engine, target, (pair(into), dim, places, pair(value)), keywords)


def _create(target, name, arguments, keywords):
    dtype = _REAL[keywords["dtype"]]
    keywords = {**keywords, "dtype": dtype}
    if name in ("full", "scalar_tensor"):
        *sizes, value = arguments
        re, im = split(value)
        return Pair(target(*sizes, re, **keywords), target(*sizes, 0.0 if im is None else im, **keywords))
    re = target(*arguments, **keywords)
    return Pair(re, torch.zeros_like(re))


def _conjugate(engine, z: Pair, turn: Callable[[torch.Tensor], torch.Tensor]) -> Pair:
    """A view, so its imaginary part follows what is written to that of z, as that follows it. `turn` is its own inverse."""
    im = -turn(z.im)
    engine.views.add(im, z.im, lambda: -turn(z.im), lambda: -turn(im))
    return Pair(turn(z.re), im)


#: What else than elements a conjugate changes.
_CONJUGATES = {"conj": lambda part: part, "_conj": lambda part: part,
               **dict.fromkeys(("mH", "adjoint", "matrix_H"), lambda part: part.mT)}


def call(engine: Any, target: Any, arguments: tuple, keywords: dict) -> Any:
    """An operator with complex numbers in it. A result that is no view has parts of its own."""
    found = _call(engine, target, arguments, keywords)
    schema = getattr(target, "_schema", None)
    if schema is None or schema.is_mutable or any(result.alias_info is not None for result in schema.returns):
        return found
    parts = [part for value in pytree.tree_leaves((arguments, keywords)) for part in (value if is_complex(value) else (value,))]
    given = {storage_of(part) for part in parts if isinstance(part, torch.Tensor)}
    own = lambda part: part.clone() if storage_of(part) in given else part
    return pytree.tree_map(lambda value: Pair(*map(own, value)) if is_complex(value) else value, found)


def _call(engine: Any, target: Any, arguments: tuple, keywords: dict) -> Any:
    name = _name(target)
    if name is None:
        return target(*arguments, **keywords)  # getitem
    if name in fourier.RULES:
        return fourier.RULES[name](*arguments, **keywords)
    if name in _CONJUGATES and is_complex(arguments[0]):
        return _conjugate(engine, arguments[0], _CONJUGATES[name])
    if name == "view_as_real":
        return _view_as_real(engine, arguments[0])
    if name in ("to", "_to_copy"):
        dtype = next((value for value in (*arguments[1:], *keywords.values()) if isinstance(value, torch.dtype)), None)
        return _convert(arguments[0], dtype)
    if name in _CREATED and (_dtype(keywords) or torch.float32).is_complex:
        return _create(target, name, arguments, keywords)
    if name in _WRITES:
        return _copy(arguments[0], _WRITES[name](*arguments, **keywords))
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*arguments, **keywords)
    if name in FUNCTIONS:
        return FUNCTIONS[name](*arguments, **keywords)
    if name in ALGEBRA:
        return ALGEBRA[name](*arguments, **keywords)
    if name in EMBEDDED:
        found = engine.call(target, (embed(read_hermitian(*arguments, **keywords)), *arguments[1:]), keywords)
        return found // 2 if name == "linalg_matrix_rank" else unembed(found)
    if name in ("trapezoid", "trapz", "cumulative_trapezoid") and len(arguments) > 1:
        return bilinear(lambda y, x: target(y, x, *arguments[2:], **keywords), *arguments[:2])
    if name.endswith("_") and (name[:-1] in _FUNCTIONS or name[:-1] in FUNCTIONS):  # in place
        return _copy(arguments[0], (_FUNCTIONS if name[:-1] in _FUNCTIONS else FUNCTIONS)[name[:-1]](*arguments, **keywords))
    if name in _BILINEAR:
        return bilinear(lambda a, b: target(a, b, *arguments[2:], **keywords), *arguments[:2])
    if name in _JOINED:
        parts = [pair(part) for part in arguments[0]]
        return Pair(*(target([part[place] for part in parts], *arguments[1:], **keywords) for place in (0, 1)))
    if name in ("fill_", "zero_"):
        re, im = split(arguments[1] if len(arguments) > 1 else 0)
        arguments[0].re.fill_(re)
        arguments[0].im.fill_(im or 0)
        return arguments[0]
    if name in ("scatter", "scatter_"):
        return _scatter(engine, target, arguments, keywords)
    if name in ("index_put", "index_put_", "index_add", "index_add_", "index_copy", "index_copy_", "scatter_add", "scatter_add_",
                "slice_scatter", "select_scatter", "diagonal_scatter", "masked_scatter", "masked_scatter_"):
        return _of_parts(engine, target, tuple(pair(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                                       for value in arguments), keywords)
    if name in _OF_TRUTHS:
        arguments, keywords = pytree.tree_map(_is_true, (arguments, keywords), is_leaf=is_complex)
        return engine.call(target, tuple(arguments), keywords)
    if name in _OF_PARTS:
        return _of_parts(engine, target, arguments, keywords)
    refuse(target._schema.name)
    return None


def refuse(name: str) -> None:
    raise Refused(f"{name.replace('::', '.')} of complex numbers is not supported; write it with their real and imaginary parts "
                  "(torch.view_as_real)")
