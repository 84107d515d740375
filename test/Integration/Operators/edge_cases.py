# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A family of import_numbers.py: operators at zeros, ties, bounds, infinities and NaN, with PyTorch 2.15's values.

`slopes` are the gradients of the sum of the first result; for a mean, a clamp, a maximum of equal elements PyTorch
has chosen one of several values, and that one stands here.
"""

import numpy as np

INF, NAN = np.inf, np.nan


def edges(case):
    yield from norms(case)
    yield from extremes(case)
    yield from functions(case)
    yield from draws(case)
    yield from divisions(case)
    yield from integers(case)


def floats(values):
    return np.array(values, "f4")


def sloped(case, name, target, expected, slopes, tolerance=2e-6, /, **arguments):
    """All arguments that are lists of numbers and have a slope are parameters."""
    arguments = {key: floats(value) if key in slopes else value for key, value in arguments.items()}
    expected = [e if isinstance(e, np.ndarray) else floats(e) for e in (expected if isinstance(expected, tuple) else (expected,))]
    found = case(name, target, expected, tolerance, **arguments)
    found.slopes = {key: floats(value) for key, value in slopes.items()}
    return found


def norms(case):
    rows = [[0, 0], [3, -4]]
    for order, norm, slope in ((1, [0, 7], [[0, 0], [1, -1]]), (2, [0, 5], [[0, 0], [0.6, -0.8]]),
                               (3, [0, 91 ** (1 / 3)], [[0, 0], [9 / 91 ** (2 / 3), -16 / 91 ** (2 / 3)]])):
        yield sloped(case, f"norm {order} at zero", "linalg_vector_norm.default", norm, {"self_": slope}, 4e-6, self_=rows,
                     ord=order, dim=[1])
    half = 0.5 ** 0.5
    yield sloped(case, "deviation of equals", "std.correction", [0, 2 ** 0.5], {"self_": [[0, 0], [-half, half]]},
                 self_=[[2, 2], [1, 3]], dim=[1], correction=1)
    yield sloped(case, "log-sum-exp of infinities", "logsumexp.default", [-INF, INF, INF, np.log(2), NAN],
                 {"self_": [[NAN, NAN], [NAN, 0], [NAN, 0], [0.5, 0.5], [NAN, NAN]]},
                 self_=[[-INF, -INF], [INF, 1], [INF, 1000], [0, 0], [NAN, 1]], dim=[1])


def extremes(case):
    rows = [[1, 3, 3], [2, 2, 2]]
    yield sloped(case, "first of equals", "max.dim", (floats([3, 2]), np.array([1, 0])),
                 {"self_": [[0, 1, 0], [1, 0, 0]]}, self_=rows, dim=1)
    yield sloped(case, "least, first of equals", "min.dim", (floats([1, 2]), np.array([0, 0])),
                 {"self_": [[1, 0, 0], [1, 0, 0]]}, self_=rows, dim=1)
    yield sloped(case, "shared among equals", "amax.default", [3, 2], {"self_": [[0, .5, .5], [1 / 3] * 3]},
                 self_=rows, dim=[1])
    places = floats([[1, NAN, INF], [2, 2, 1]])
    yield case("NaN is the largest", "argmax.default", np.array([1, 0]), self_=places, dim=1)
    yield sloped(case, "at the bounds of a clamp", "clamp.default", [-1, -1, 0, 1, 1], {"self_": [0, 0, 1, 0, 0]},
                 self_=[-2, -1, 0, 1, 2], min=-1, max=1)


def functions(case):
    yield sloped(case, "atan2 at the origin", "atan2.default", [0, np.pi, -np.pi / 2],
                 {"self_": [0, -1, 0], "other": [0, 0, 1]}, self_=[0, 0, -1], other=[0, -1, 0])
    yield case("hypot without overflow", "hypot.default", floats([2 ** 0.5 * 1e30, 5]), self_=floats([1e30, 3]),
               other=floats([1e30, 4]))
    yield sloped(case, "logarithms of 0 and 1", "binary_cross_entropy.default", [0, 0, 100, 100],
                 {"self_": [0, 0, -1e12, 1e12]}, self_=[0, 1, 0, 1], target=floats([0, 1, 1, 0]), reduction=0)
    yield sloped(case, "powers of 0", "pow.Tensor_Tensor", [1, 0, 1], {"self_": [0, 0, 0]}, self_=[0, 0, 3],
                 exponent=floats([0, 2, 0]))
    yield sloped(case, "x log y", "xlogy.Tensor", [0, 0, 0], {"self_": [0, np.log(2), 0], "other": [NAN, 0, 2]},
                 self_=[0, 0, 2], other=[0, 2, 1])
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    below = np.exp(-1)
    yield sloped(case, "ELU far out", "elu.default", [-1, below - 1, 0, 100, 200], {"self_": [0, below, 1, 1, 1]},
                 self_=[-200, -1, 0, 100, 200])
    yield sloped(case, "SELU far out", "selu.default", np.array([-scale * alpha, scale * alpha * (below - 1), 0, 100 * scale]),
                 {"self_": [0, scale * alpha * below, scale * alpha, scale]}, self_=[-200, -1, 0, 100])
    yield sloped(case, "softplus far out", "softplus.default", [0, np.log(2), 100], {"self_": [0, 0.5, 1]},
                 self_=[-200, 0, 100])
    yield sloped(case, "products with zeros", "prod.dim_int", [0, 0, 6], {"self_": [[6, 0, 0], [0, 0, 0], [6, 3, 2]]},
                 self_=[[0, 2, 3], [0, 0, 3], [1, 2, 3]], dim=1)
    yield sloped(case, "erfcx on both sides of its expansions", "special_erfcx.default", [5.00898008, 1, 0.110704638, 5.641895807e-8],
                 {"self_": [-11.1463393, -2 / np.pi ** 0.5, -0.0213327898, 0]}, self_=[-1, 0, 5, 1e7])
    yield sloped(case, "poles of Bessel functions", "special_bessel_y1.default", [-INF, 0.324674425], {"self_": [INF, 0.268625202]},
                 self_=[0, 3])


def draws(case):
    # A deviation of zero draws the mean, and no gradient reaches it.
    yield sloped(case, "no gradient of a draw", "normal.Tensor_float", [1, -2], {"mean": [0, 0]}, mean=[1, -2], std=0.0)


def divisions(case):
    x, y = floats([1, 7, -7, 1e7]), floats([0.1, -3, 3, 0.1])
    yield case("floors", "floor_divide.default", floats([9, -3, -3, 99999998]), self_=x, other=y)
    yield case("remainders", "remainder.Tensor", floats([0.1 - 1.4901161e-09, -2, 2, 0.05098839104175568]), 2e-6,
               self_=x, other=y)
    yield case("truncated remainders", "fmod.Tensor", floats([0.1 - 1.4901161e-09, 1, -1, 0.05098839104175568]), 2e-6,
               self_=x, other=y)
    a, b = np.array([7, -7, 7, -7, -2 ** 63]), np.array([2, 2, -2, -2, 3])
    yield case("floors of integers", "div.Tensor_mode", a // b, self_=a, other=b, rounding_mode="floor")
    quotient = np.array([3, -3, -3, 3, -3074457345618258602])
    yield case("quotients of integers", "div.Tensor_mode", quotient, self_=a, other=b, rounding_mode="trunc")
    yield case("remainders of integers", "remainder.Tensor", a - b * (a // b), self_=a, other=b)
    yield case("truncated remainders of integers", "fmod.Tensor", a - b * quotient, self_=a, other=b)


def integers(case):
    x, y = np.array([0, 100, 200, 255], "u1"), np.array([255, 200, 100, 0], "u1")
    yield case("bytes in order", "gt.Tensor", x > y, self_=x, other=y)
    yield case("larger bytes", "maximum.default", np.maximum(x, y), self_=x, other=y)
    yield case("bytes wrap around", "add.Tensor", x + y, self_=x, other=y)
    yield case("a sum of bytes", "sum.default", np.array(555), self_=x)
    yield case("bytes by a negative number", "floor_divide.Scalar", np.array([0, 0, 0, 1], "u1"), self_=x, other=-1)
    yield case("bytes shifted beyond their width", "bitwise_right_shift.Tensor", np.array([0, 50, 0, 0], "u1"), self_=x,
               other=np.array([8, 1, 87, 255], "u1"))
    yield case("bytes as numbers", "_to_copy.default", x.astype("f4"), self_=x, dtype={"as_scalar_type": 7})
    yield case("the largest byte", "argmax.default", np.array(3), self_=x)
    yield case("all of bytes", "all.default", np.array(0, "u1"), self_=x)
    yield case("powers of integers", "pow.Tensor_Scalar", np.array([-27, 0, 8]), self_=np.array([-3, 0, 2]), exponent=3)
    yield case("any of booleans", "any.dim", np.array([True, False]), self_=np.array([[True, False], [False, False]]), dim=1)
    yield case("bytes summed to a size", "sum_to_size.default", np.array([[300], [510]]),
               self_=np.array([[100, 200], [255, 255]], "u1"), size=[2, 1])
    yield case("means of bytes by index", "scatter_reduce.two", np.array([7, 200, 27], "u1"), self_=np.array([9, 9, 27], "u1"),
               dim=0, index=np.array([0, 1, 0, 0]), src=np.array([5, 200, 7, 10], "u1"), reduce="mean", include_self=False)
