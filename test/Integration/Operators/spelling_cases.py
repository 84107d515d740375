# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of import_numbers.py for second spellings of an operator: with numbers, in other libraries' names, as copies.

Each row has its own list of arguments, so that each is reached. What recorded samples reach is not repeated.
"""

import math

import numpy as np

from import_cases import Case, Constant, uniform

DOUBLE = {"as_scalar_type": 8}
CPU = {"as_device": {"type": "cpu", "index": None}}


def single(values):
    """Definitions compute in float64, rows give float32."""
    values = np.asarray(values)
    return values.astype("f4") if values.dtype == "f8" else values


def row(target, expected, slopes=None, tolerance=2e-6, /, **arguments):
    """A case by the name of its row, "default" being left out. Arguments with slopes are parameters."""
    several = isinstance(expected, (list, tuple))
    results = [e if e is None else single(e) for e in (expected if several else [expected])]
    case = Case(target, target if "." in target else target + ".default", results, tolerance, **arguments)
    case.slopes = {key: np.array(np.broadcast_to(value, arguments[key].shape), "f4") for key, value in (slopes or {}).items()}
    return case


def floats(values):
    return np.array(values, "f4")


# ----------------------------------------------------------------------------------------------------
# Elementwise
# ----------------------------------------------------------------------------------------------------

def bits(random):
    x, y, flags = np.array([12, -7, 0, 5]), np.array([[10, 3, -1, 6]]), np.array([True, False])
    for name, combine in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        yield row(f"__{name}__.Tensor", combine(x, y), self_=x, other=y)
        for target in (f"__{name}__.Scalar", f"bitwise_{name}.Scalar"):
            yield row(target, combine(x, 6), self_=x, other=6)
            yield row(target, combine(flags, True), self_=flags, other=True)
    for side, shift in (("left", np.left_shift), ("right", np.right_shift)):
        places, name = np.array([1, 62, 64, 0]), f"__{side[0]}shift__"  # all bits leave at 64
        yield row(f"{name}.Tensor", np.array([int(shift(a, b)) if b < 64 else 0 for a, b in zip(x, places)]), self_=x, other=places)
        for target in (f"{name}.Scalar", f"bitwise_{side}_shift.Tensor_Scalar"):
            yield row(target, shift(x, 2), self_=x, other=2)


def arithmetic(random):
    x, y = uniform(random, 3, 4) * 5, random.uniform(0.5, 3, (1, 4)).astype("f4")
    z = x.astype("f8")
    yield row("multiply.Tensor", z * y, {"self_": np.tile(y, (3, 1)), "other": z.sum(0)}, self_=x, other=y)
    for target in ("divide.Scalar", "true_divide.Scalar"):
        yield row(target, z / -0.75, {"self_": 1 / -0.75}, self_=x, other=-0.75)
        yield row(target, np.array([3.5, -0.5]), self_=np.array([7, -1]), other=2)
    for mode, adjust in ((None, np.positive), ("floor", np.floor), ("trunc", np.trunc)):
        slopes = {"self_": 1 / 0.7 if mode is None else 0}
        for target in ("div.Scalar_mode", "divide.Scalar_mode"):
            yield row(target, adjust(z / 0.7), slopes, self_=x, other=0.7, rounding_mode=mode)
        yield row("divide.Tensor_mode", adjust(z / y), self_=x, other=y, rounding_mode=mode)
    yield row("floor_divide.Scalar", z // 0.7, self_=x, other=0.7)
    yield row("floor_divide.Scalar", np.array([-4, 3, 0]), self_=np.array([-7, 7, 1]), other=2)
    yield row("remainder.Scalar_Tensor", np.mod(-7.5, y.astype("f8")), self_=-7.5, other=y)
    yield row("remainder.Scalar_Tensor", np.array([1, -2, 0]), self_=7, other=np.array([3, -3, 7]))
    yield row("pow.Scalar", [2.5 ** z], {"exponent": 2.5 ** z * math.log(2.5)}, self_=2.5, exponent=x)
    yield row("pow.Scalar", floats([1, 0, 0]), {"exponent": 0}, self_=0.0, exponent=floats([0, 1, 2]))
    yield Case("float_power.Scalar", "float_power.Scalar", 0.3 ** z, self_=0.3, exponent=x)
    yield Case("float_power of integers", "float_power.Tensor_Scalar", np.array([1 / 9, 0.25]), self_=np.array([3, -2]), exponent=-2)
    yield row("copysign.Scalar", -np.abs(z), {"self_": -np.sign(x)}, self_=x, other=-0.5)
    yield row("copysign.Scalar", floats([2, 0]), {"self_": [-1, 0]}, self_=floats([-2, 0]), other=0.0)
    yield row("positive", x, {"self_": 1}, self_=x)
    yield row("lerp.Tensor", z + y * (2 * y - z), {"self_": 1 - np.tile(y, (3, 1)), "weight": (2 * y - z).sum(0)[None]},
              self_=x, end=2 * y, weight=y)
    yield row("ger", np.outer(z[:, 0], y[0]), {"self_": y.sum(), "vec2": z[:, 0].sum()}, self_=x[:, 0].copy(), vec2=y[0].copy())
    chain = [uniform(random, *shape) for shape in ((2, 5), (5, 3), (3, 4))]
    yield row("chain_matmul", np.linalg.multi_dot(chain), matrices=chain)
    square = uniform(random, 2, 3, 3)
    for power in (0, 1, 5):
        yield row("matrix_power", np.linalg.matrix_power(square.astype("f8"), power), None, 1e-5, self_=square, n=power)


def choices(random):
    at = floats([-2, -0.5, 0, 0.5, 2])
    inside = np.array([0, 0, 1, 0, 0])  # bounds pass no gradient
    yield row("clamp_max", np.minimum(at, 0.5), {"self_": [1, 1, 1, 0, 0]}, self_=at, max=0.5)
    yield row("clip", np.clip(at, -0.5, 0.5), {"self_": inside}, self_=at, min=-0.5, max=0.5)
    yield row("clip", np.maximum(at, -0.5), {"self_": [0, 0, 1, 1, 1]}, self_=at, min=-0.5)
    low, high = floats([-1, -1, -1, 1, 1]), floats([1, 1, 1, 0, 3])  # the upper bound wins
    yield row("clip.Tensor", np.minimum(np.maximum(at, low), high),
              {"self_": [0, 1, 1, 0, 1], "min": [1, 0, 0, 0, 0], "max": [0, 0, 0, 1, 0]}, self_=at, min=low, max=high)
    yield row("hardshrink", np.where(abs(at) > 0.5, at, 0), {"self_": [1, 0, 0, 0, 1]}, self_=at)
    yield row("softshrink", np.sign(at) * np.maximum(abs(at) - 0.5, 0), {"self_": [1, 0, 0, 0, 1]}, self_=at)
    rate = np.array(0.25, "f4")
    yield row("_prelu_kernel", np.where(at > 0, at, at / 4), {"self_": [0.25, 0.25, 0.25, 1, 1], "weight": -2.5},
              self_=at, weight=rate.reshape(1))
    rates, image = np.array([2, -1, 0.5], "f4").reshape(1, 3, 1), uniform(random, 2, 3, 4)
    yield row("_prelu_kernel", np.where(image > 0, image, image * rates), self_=image, weight=rates)
    flags = at > 0
    yield row("where.Scalar", np.where(flags, 1.5, -2.0), condition=flags, self_=1.5, other=-2.0)
    yield row("where.Scalar", np.where(flags, 3, -2), condition=flags, self_=3, other=-2)
    numbers = np.array([[3, 1], [4, 3]])
    yield row("isin.Scalar_Tensor", np.array(True), element=3, test_elements=numbers)
    yield row("isin.Scalar_Tensor", np.array(True), element=2, test_elements=numbers, invert=True)
    yield row("isin.Tensor_Scalar", numbers == 3, elements=numbers, test_element=3)
    edges = floats([-1, 0, 0, 2.5, 7])
    for right, of_edge in ((False, 1), (True, 3)):
        yield row("bucketize.Scalar", np.array(of_edge), self_=0.0, boundaries=edges, right=right)
        yield row("bucketize.Scalar", np.array(4, "i4"), self_=3, boundaries=edges, right=right, out_int32=True)
        yield row("searchsorted.Scalar", np.array(of_edge), sorted_sequence=edges, self_=0, side="right" if right else "left")


def functions(random):
    at = floats([0, 0.5, 2, 3])
    with np.errstate(divide="ignore"):
        for plus, by_number, of_number in ((0, "xlogy.Scalar_Self", "xlogy.Scalar_Other"),
                                           (1, "special_xlog1py.self_scalar", "special_xlog1py.other_scalar")):
            yield row(by_number, 1.5 * np.log(at.astype("f8") + plus), {"other": 1.5 / (at + plus)}, self_=1.5, other=at)
            yield row(by_number, at * 0, {"other": np.where(at + plus == 0, np.nan, 0)}, self_=0, other=at)
            yield row(of_number, at * math.log(2.5 + plus), {"self_": math.log(2.5 + plus)}, self_=at, other=2.5)
    yield row("xlogy.Scalar_Other", np.where(at == 0, 0, -np.inf), {"self_": [0, -np.inf, -np.inf, -np.inf]}, self_=at, other=0)
    positive, any_sign = floats([0.3, 1, 2.5, 17]), floats([-1.3, -0.25, 0.3, 8])
    for target in ("polygamma", "special_polygamma"):
        for n, x in ((0, any_sign), (1, any_sign), (2, any_sign), (5, positive), (9, positive)):
            yield row(target, polygamma(n, x), {"self_": polygamma(n + 1, x)}, 5e-6, n=n, self_=x)
        for n, pole in ((2, -np.inf), (3, np.inf)):
            yield row(target, floats([pole, pole]), n=n, self_=floats([0, -2]))


def polygamma(n, x):
    """Its first 50 terms, and the integral of the others with two corrections."""
    terms, end = x.astype("f8")[:, None] + np.arange(50), x.astype("f8") + 50
    if n == 0:
        return np.log(end) - 1 / (2 * end) - 1 / (12 * end ** 2) - (1 / terms).sum(1)
    rest = end ** -n / n + end ** -(n + 1.0) / 2 + (n + 1) * end ** -(n + 2.0) / 12
    return (-1) ** (n + 1) * math.factorial(n) * ((terms ** -(n + 1.0)).sum(1) + rest)


def polynomials(random):
    x = np.linspace(-1.5, 1.5, 13, dtype="f4")
    x[[2, 10]] = -1, 1
    z = x.astype("f8")

    def by_doubling(first):  # p[k + 1] = 2 x p[k] - p[k - 1], from 1 and `first`
        def evaluate(z, n):
            before, value = np.zeros_like(z), np.ones_like(z)
            for k in range(n):
                before, value = value, (first(z) if k == 0 else 2 * z * value - before)
            return value
        return evaluate

    chebyshev = {"t": by_doubling(lambda z: z), "u": by_doubling(lambda z: 2 * z), "v": by_doubling(lambda z: 2 * z - 1),
                 "w": by_doubling(lambda z: 2 * z + 1)}
    named = np.polynomial
    others = {"hermite_polynomial_h": named.hermite.hermval, "hermite_polynomial_he": named.hermite_e.hermeval,
              "laguerre_polynomial_l": named.laguerre.lagval, "legendre_polynomial_p": named.legendre.legval}
    for n in (-1, 0, 1, 2, 5, 8):
        for kind, evaluate in chebyshev.items():
            for shifted, at in (("", z), ("shifted_", 2 * z - 1)):
                yield row(f"special_{shifted}chebyshev_polynomial_{kind}.n_scalar", evaluate(at, n) * (n >= 0), None, 1e-5, x=x, n=n)
        for target, evaluate in others.items():
            yield row(f"special_{target}.n_scalar", evaluate(z, np.eye(9)[n] * (n >= 0)), None, 1e-5, x=x, n=n)
    degrees = np.array([-1, 0, 1, 2, 5, 8.9, 3, 0, 7, 4, 1, 6, 2], "f4")
    whole = [max(int(n), -1) for n in degrees]
    each = lambda evaluate, given=z: np.array([evaluate(at, n) * (n >= 0) for at, n in zip(given, whole)])
    points = {"default": (x, z), "x_scalar": (0.3, np.full(13, 0.3))}
    for kind, evaluate in chebyshev.items():
        for shifted, scale, offset in (("", 1, 0), ("shifted_", 2, -1)):
            for overload, (own, given) in points.items():
                yield row(f"special_{shifted}chebyshev_polynomial_{kind}.{overload}", each(lambda at, n: evaluate(scale * at + offset, n), given),
                          None, 1e-5, x=own, n=degrees)
    for target, evaluate in others.items():
        for overload, (own, given) in points.items():
            yield row(f"special_{target}.{overload}", each(lambda at, n: evaluate(at, np.eye(9)[max(n, 0)]), given), None, 1e-5, x=own, n=degrees)


# ----------------------------------------------------------------------------------------------------
# Shapes and copies
# ----------------------------------------------------------------------------------------------------

def same(random):
    x, whole = uniform(random, 2, 3, 4), np.array([[1, -2], [3, 4]])
    for target in ("alias", "alias_copy", "contiguous", "lift_fresh", "lift_fresh_copy"):
        yield row(target, x, self_=x)
    yield row("detach", x, {"self_": 0}, self_=x)
    yield row("detach_copy", x, self_=x)
    for target in ("contiguous", "lift_fresh", "lift_fresh_copy"):
        yield row(target, x, {"self_": 1}, self_=x)
    yield row("to.dtype", whole.astype("f4"), self_=whole, dtype={"as_scalar_type": 7})
    yield row("to.dtype", x, {"self_": 1}, self_=x, dtype={"as_scalar_type": 7}, copy=True)
    yield row("to.dtype", np.trunc(x * 9).astype("i8"), self_=x * 9, dtype={"as_scalar_type": 5})
    yield Case("to.device", "to.device", x.astype("f8"), self_=x, device=CPU, dtype=DOUBLE)
    yield Case("to.dtype_layout", "to.dtype_layout", whole.astype("f8"), self_=whole, dtype=DOUBLE, device=CPU)
    yield row("to.dtype_layout", x, {"self_": 1}, self_=x)
    yield row("type_as", whole.astype("f4"), self_=whole, other=x)
    yield row("type_as", x, {"self_": 1, "other": 0}, self_=x, other=x[0])


def moves(random):
    x, matrices = uniform(random, 2, 3, 4), uniform(random, 2, 3, 3)
    yield row("reshape", x.reshape(4, 6), self_=x, shape=[4, -1])
    yield row("flatten.using_ints", x.reshape(2, 12), self_=x, start_dim=1)
    yield row("unflatten.int", x.reshape(2, 3, 2, 2), self_=x, dim=-1, sizes=[2, -1])
    for target in ("broadcast_to", "expand_as"):
        shape = {"size": [5, 2, 3]} if target == "broadcast_to" else {"other": np.zeros((5, 2, 3), "f4")}
        yield row(target, np.broadcast_to(x[:, :1, 0], (5, 2, 3)), {"self_": 15}, self_=x[:, :1, 0].copy(), **shape)
    yield row("swapaxes", x.swapaxes(0, 2), self_=x, axis0=0, axis1=-1)
    yield row("swapdims", x.swapaxes(1, 2), self_=x, dim0=-2, dim1=2)
    for target in ("moveaxis", "movedim"):
        yield row(f"{target}.int", np.moveaxis(x, 0, -1), self_=x, source=0, destination=-1)
        yield row(f"{target}.intlist", np.moveaxis(x, (0, -1), (1, 0)), self_=x, source=[0, -1], destination=[1, 0])
    for target in ("adjoint", "mH", "mT"):
        yield row(target, x.swapaxes(-1, -2), self_=x)
    yield row("numpy_T", x.T, self_=x)
    yield row("linalg_diagonal", np.diagonal(matrices, 1, -2, -1), {"A": np.eye(3, k=1)}, A=matrices, offset=1)
    shuffled = x[:, [0, 1, 2, 2]].reshape(2, 2, 2, 4).transpose(0, 2, 1, 3).reshape(2, 4, 4)
    yield row("native_channel_shuffle", shuffled, self_=x[:, [0, 1, 2, 2]], groups=2)
    yield row("meshgrid", np.meshgrid(x[0, 0], x[1, :, 0], np.arange(2, dtype="f4"), indexing="ij"),
              tensors=[x[0, 0].copy(), x[1, :, 0].copy(), Constant(np.arange(2, dtype="f4"))])
    yield row("meshgrid.indexing", np.meshgrid(x[0, 0], x[1, :, 0], np.arange(2, dtype="f4"), indexing="xy"),
              tensors=[x[0, 0].copy(), x[1, :, 0].copy(), Constant(np.arange(2, dtype="f4"))], indexing="xy")
    for target, mode in (("reflection_pad", "reflect"), ("replication_pad", "edge")):
        for rank in (2, 3):
            if (mode, rank) == ("reflect", 2):
                continue
            volume = uniform(random, 2, *range(3, 3 + rank))
            sides = [(1, 2), (2, 0), (0, 1)][:rank]
            yield row(f"{target}{rank}d", np.pad(volume, [(0, 0)] + sides, mode), self_=volume,
                      padding=[n for pair in reversed(sides) for n in pair])


def parts(random):
    x = uniform(random, 4, 7)
    second = np.zeros_like(x)
    second[:, 2:5] = 1
    yield row("narrow", x[:, 2:5], {"self_": second}, self_=x, dim=-1, start=2, length=3)
    yield row("narrow", x[:, 2:5], {"self_": second}, self_=x, dim=1, start=-5, length=3)
    yield row("select_copy.int", x[:, -3], {"self_": np.eye(7)[4]}, self_=x, dim=1, index=-3)
    yield row("slice_copy.Tensor", x[:, 1:6:2], {"self_": np.arange(7) % 2}, self_=x, dim=1, start=1, end=-1, step=2)
    yield row("slice_copy.Tensor", x[:3], self_=x, end=3)
    yield row("squeeze_copy.dims", x, self_=x.reshape(1, 4, 1, 7), dim=[0, -2])
    yield row("squeeze_copy.dims", x.reshape(4, 1, 7), self_=x.reshape(1, 4, 1, 7), dim=[0, 1])
    cut = {"dim": 1, "self_": x}
    for target in ("chunk", "unsafe_chunk"):  # each as long as the first; fewer where they are used up
        yield row(target, np.split(x, [3, 6], 1), {"self_": np.arange(7) < 3}, chunks=3, **cut)
        yield row(target, np.split(x, [2, 4, 6], 1), chunks=5, **cut)
    yield row("split_copy.Tensor", np.split(x, [4], 1), {"self_": np.arange(7) < 4}, split_size=4, **cut)
    yield row("unsafe_split_with_sizes", np.split(x, [1, 5], 1), {"self_": np.arange(7) < 1}, split_sizes=[1, 4, 2], **cut)
    yield row("tensor_split.sections", np.array_split(x, 3, 1), {"self_": np.arange(7) < 3}, sections=3, **cut)
    yield row("tensor_split.indices", np.split(x, [2, -1], 1), {"self_": np.arange(7) < 2}, indices=[2, -1], **cut)
    yield row("concat", np.concatenate([x, x[:, :2], x], -1), tensors=[x, x[:, :2].copy(), x], dim=-1)
    rows, columns = random.integers(-4, 4, (3, 1)), random.integers(-7, 7, 2)
    yield row("_unsafe_index.Tensor", x[rows, columns], self_=x, indices=[rows, columns])
    added, some = x.copy(), uniform(random, 3, 2)
    np.add.at(added, (rows, columns), some)
    yield row("_unsafe_index_put", added, self_=x, indices=[rows, columns], values=some, accumulate=True)
    far, taken = np.array([[3, -9], [0, 40], [-2, 1]]), np.array([[1, 0], [1, 0], [1, 1]], bool)  # what is not taken is out of range
    place, read = far % 4, np.zeros_like(x)
    np.add.at(read, place, taken[..., None])
    yield row("_unsafe_masked_index", np.where(taken[..., None], x[place], 0.5), {"self_": read}, self_=x, mask=taken[..., None],
              indices=[far], fill=0.5)
    added, put = x.copy(), uniform(random, 3, 2, 7)
    np.add.at(added, place, np.where(taken[..., None], put, 0))
    yield row("_unsafe_masked_index_put_accumulate", added, {"self_": 1, "values": taken[..., None]}, self_=x, mask=taken[..., None],
              indices=[far], values=put)
    index, at = np.array([[3, 0, 3], [1, 2, 2]]), np.arange(3)
    for reduce, ufunc in (("add", np.add), ("multiply", np.multiply)):
        reduced = x.copy()
        ufunc.at(reduced, (index, at), 3)
        yield row("scatter.value_reduce", reduced, self_=x, dim=0, index=index, value=3.0, reduce=reduce)
    strided, source = x.reshape(-1).copy(), uniform(random, 3, 2)
    strided[2 + np.arange(3)[:, None] + 5 * np.arange(2)] = source
    yield row("as_strided_scatter", strided.reshape(4, 7), {"src": 1}, self_=x, src=source, size=[3, 2], stride=[1, 5], storage_offset=2)


# ----------------------------------------------------------------------------------------------------
# Creation
# ----------------------------------------------------------------------------------------------------

def creation(random):
    yield row("arange.start", np.arange(-2, 5), start=-2, end=5)
    yield row("arange.start", np.arange(0.5, 4.2), start=0.5, end=4.2)
    yield row("arange.start", np.arange(1.0, 4), start=1, end=4, dtype={"as_scalar_type": 7})
    yield row("eye", np.eye(3), n=3)
    yield row("eye.m", np.eye(3, 5, dtype="i8"), n=3, m=5, dtype={"as_scalar_type": 5})
    start, end = np.array(-1.5, "f4"), np.array(2, "f4")
    for target, define in (("linspace", np.linspace), ("logspace", lambda a, b, n: 3 ** np.linspace(a, b, n))):
        base = {"base": 3.0} if target == "logspace" else {}
        for overload, a, b in (("default", -1.5, 2), ("Scalar_Tensor", -1.5, end), ("Tensor_Scalar", start, 2),
                               ("Tensor_Tensor", start, end)):
            for steps in (1, 6):
                yield row(f"{target}.{overload}", define(-1.5, 2, steps), start=a, end=b, steps=steps, **base)
    yield row("logspace", np.logspace(0, 2, 4), start=0, end=2, steps=4)
    for target, define in (("tril_indices", np.tril_indices), ("triu_indices", np.triu_indices)):
        for offset in (0, 1, -2):
            yield row(target, np.stack(define(4, offset, 5)), row=4, col=5, offset=offset)
    # What is in new memory does not matter to PyTorch; here it is always zeros.
    yield row("empty_like", np.zeros((2, 3)), self_=uniform(random, 2, 3))
    yield row("new_empty", np.zeros((4, 1), "i8"), self_=uniform(random, 2, 3), size=[4, 1], dtype={"as_scalar_type": 5})


FAMILIES = {"bits": bits, "arithmetic": arithmetic, "choices": choices, "functions": functions, "polynomials": polynomials,
            "same": same, "moves": moves, "parts": parts, "creation": creation}
