# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of import_numbers.py for modes, histograms, segments, lists of tensors and numbers taken apart."""

import math

import numpy as np

from import_cases import Case, Constant, uniform
from spelling_cases import floats, row


def modes(random):
    x = floats([[3, 1, 3, 1, 2], [5, 5, 4, 4, 4], [2, 7, 1, 9, 0]])
    yield row("mode", [floats([1, 4, 0]), np.array([3, 4, 4])], self_=x)
    yield row("mode", [floats([[1], [4], [0]]), np.array([[3], [4], [4]])], {"self_": [[0, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]},
              self_=x, dim=1, keepdim=True)
    yield row("mode", [np.array([1, 4]), np.array([2, 2])], self_=np.array([[1, 2], [3, 4], [1, 4]])[:, ::1], dim=0)


def histograms(random):
    x, edges, weight = uniform(random, 4, 6), floats([-0.8, -0.2, 0.1, 0.7]), random.uniform(0, 1, (4, 6)).astype("f4")
    x[0, 0] = edges[-1]  # the end of the last belongs to it
    for how in ({}, {"density": True}, {"weight": weight}):
        counts, _ = np.histogram(x.reshape(-1), edges, density=how.get("density"), weights=how["weight"].reshape(-1) if "weight" in how else None)
        yield row("histogram.bins_tensor", [floats(counts), edges], self_=x, bins=edges, **how)
    samples, others = x.reshape(-1, 2), floats([-1, 0, 0.5])
    counts, _ = np.histogramdd(samples, [edges, others])
    yield row("histogramdd.TensorList_bins", [floats(counts), edges, others], self_=samples, bins=[edges, others])


def segments(random):
    x, lengths = uniform(random, 6, 2), np.array([2, 0, 3, 1])
    offsets = np.array([0, 2, 2, 5, 6])
    pieces = np.split(x.astype("f8"), offsets[1:-1])
    empty = {"sum": 0, "mean": np.nan, "prod": 1, "max": -np.inf, "min": np.inf}
    for name, reduce in (("sum", np.sum), ("mean", np.mean), ("prod", np.prod), ("max", np.max), ("min", np.min)):
        expected = np.stack([reduce(piece, 0) if len(piece) else np.full(2, empty[name]) for piece in pieces])
        yield row("segment_reduce", expected, data=x, reduce=name, lengths=lengths)
        yield row("segment_reduce", expected, data=x, reduce=name, offsets=offsets)
    slopes = np.zeros_like(x)
    for first, piece in zip(offsets, pieces):
        for column in range(2 if len(piece) else 0):
            slopes[first + piece[:, column].argmax(), column] = 1
    expected = np.stack([piece.max(0) if len(piece) else [-2, -2] for piece in pieces])
    yield row("segment_reduce", expected, {"data": slopes}, data=x, reduce="max", lengths=lengths, initial=-2)


def lists(random):
    tensors = [uniform(random, *shape) for shape in ((), (3,), (2, 3), (2, 3, 2))]
    for rank, shapes in ((1, [(1,), (3,), (2, 3), (2, 3, 2)]), (2, [(1, 1), (1, 3), (2, 3), (2, 3, 2)]),
                         (3, [(1, 1, 1), (1, 3, 1), (2, 3, 1), (2, 3, 2)])):
        yield row(f"atleast_{rank}d.Sequence", [x.reshape(shape) for x, shape in zip(tensors, shapes)], tensors=tensors)
    x, y = uniform(random, 2, 3, 2), uniform(random, 2, 4)
    padded = np.concatenate([x, np.zeros((2, 1, 2))], 1).reshape(2, 2, 4)
    yield row("_chunk_cat", np.concatenate([padded, y.reshape(2, 2, 2)], 2), tensors=[x, y], dim=1, num_chunks=2)
    yield row("resize_as", x.reshape(4, 3), self_=x, the_template=np.zeros((4, 3), "f4"))


def exponents(random):
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1, -2, 0.5, 3e-45, -1e-40, 1.1754944e-38, 3.4028235e38, 0.99999994, 1e20]
    x = np.concatenate([floats(special), uniform(random, 10) * np.float32(1e-3)])
    mantissa, exponent = np.frexp(x)
    exponent = np.where(np.isfinite(x), exponent, 0).astype("i4")
    yield Case("a number apart", "frexp.Tensor", [mantissa, exponent], 0, self_=x)
    finite = uniform(random, 8) * np.float32(100)
    yield row("frexp.Tensor", list(np.frexp(finite)), {"self_": 2.0 ** -np.frexp(finite)[1]}, self_=finite)
    for other in (np.inf, -np.inf, 0, np.nan):
        y = np.full_like(x, other)
        with np.errstate(over="ignore"):
            beside = np.nextafter(x, y)
        yield Case(f"the number next to it, to {other}", "nextafter.default", beside, 0, self_=x, other=y)
    pair = floats([1, 2])
    yield row("nextafter", np.nextafter(pair, floats([3, 2])), {"self_": [1, 0], "other": [0, 0]}, self_=pair, other=floats([3, 2]))
    wide = np.concatenate([x.astype("f8"), [5e-324, 2.0 ** -1022, 1.7976931348623157e308]])
    yield Case("in double", "nextafter.default", np.nextafter(wide, -wide), 0, self_=wide, other=-wide)


def lower_gamma(a, x):
    """Of whole and half numbers a, by the recurrence from 0 and 1/2."""
    value, at = (math.erf(math.sqrt(x)), 0.5) if a % 1 else (1.0, 0)
    while at < a:
        value -= math.exp(at * math.log(x) - x - math.lgamma(at + 1))
        at += 1
    return value


def series(random):
    a = np.array([0.5, 1, 1.5, 2, 3.5, 7, 20, 20.5, 60])
    x = np.array([0.05, 0.9, 1.1, 3, 10, 25, 70])
    low = np.array([[lower_gamma(p, q) for q in x] for p in a])
    places, ends = np.repeat(a[:, None], len(x), 1), np.repeat(x[None], len(a), 0)
    slopes = np.exp((places - 1) * np.log(ends) - ends - np.vectorize(math.lgamma)(places))
    ends = ends.astype("f4")
    yield row("igamma", low, {"other": slopes}, 1e-5, self_=places.astype("f4"), other=ends)
    yield row("igammac", 1 - low, {"other": -slopes}, 1e-5, self_=places.astype("f4"), other=ends)
    a, x = floats([0, 0, 2, 2, np.inf, 2, -1, 1, np.nan]), floats([0, 1, 0, np.inf, 3, 3, 1, -1, 1])
    known = floats([np.nan, 1, 0, 1, 0, lower_gamma(2, 3), np.nan, np.nan, np.nan])
    yield row("igamma", known, self_=a, other=x)
    yield row("igammac", 1 - known, self_=a, other=x)
    x, q = floats([2, 3.5, 4, 12, 30, 2, 3]), floats([1, 0.5, 2.25, 7, 9, -2.5, -0.25])

    def zeta(x, q):
        terms = q + np.arange(200000)
        return np.sum(np.sign(terms) ** round(x) * np.abs(terms) ** -x) + (terms[-1] + 0.5) ** (1 - x) / (x - 1)
    values = np.array([zeta(float(a), float(b)) for a, b in zip(x, q)])
    slopes = np.array([-a * zeta(float(a) + 1, float(b)) for a, b in zip(x, q)])
    yield row("special_zeta", values, {"other": slopes}, 1e-5, self_=x, other=q)
    yield row("special_zeta", floats([np.inf, np.nan, np.inf, np.nan]), self_=floats([1, 0.5, 3, 2.5]), other=floats([2, 2, -1, -1.5]))
    yield row("special_zeta.other_scalar", np.pi ** floats([2, 4]) / floats([6, 90]), self_=floats([2, 4]), other=1)
    yield row("special_zeta.self_scalar", floats([np.pi ** 2 / 6, np.pi ** 2 / 6 - 1]), self_=2, other=floats([1, 2]))


def repetitions(random):
    x, repeats = uniform(random, 4, 3), np.array([0, 2, 1, 3])
    for given in (repeats, Constant(repeats)):
        yield row("repeat_interleave.self_Tensor", x.repeat(repeats, 0), {"self_": np.repeat(repeats[:, None], 3, 1)}, self_=x, repeats=given,
                  dim=0, output_size=6)
    yield row("repeat_interleave.self_Tensor", x.T.repeat(repeats, 1), self_=x.T.copy(), repeats=repeats, dim=-1, output_size=6)
    yield row("repeat_interleave.self_Tensor", x.ravel().repeat(2), self_=x, repeats=np.array([2]), output_size=24)
    yield row("repeat_interleave.Tensor", np.arange(4).repeat(repeats), repeats=repeats, output_size=6)


FAMILIES = {"modes": modes, "repetitions": repetitions, "histograms": histograms, "segments": segments, "lists": lists, "exponents": exponents, "series": series}
