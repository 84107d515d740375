# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of lowering_numbers.py (the arguments of its `Case`) for what is no plain loop over elements.

Places that are read or written by indices, orders, running results, random numbers and resizing.
"""

import numpy as np


def irregular_cases(random, random_words):
    yield from indexing_cases(random)
    yield from order_cases(random)
    yield from scan_cases(random)
    yield from random_cases(random_words)
    yield from resizing_cases(random)


def in_order(x, axis, descending):
    """Positions in a stable order in which NaN is greater than all numbers."""
    real = x.dtype.kind == "f"
    key = np.where(np.isnan(x), 0, x) if real else x.astype("i8")
    late = np.isnan(x).astype("i1") if real else np.zeros(x.shape, "i1")
    position = np.moveaxis(np.broadcast_to(np.arange(x.shape[axis]), np.moveaxis(x, axis, -1).shape), -1, axis)
    return np.lexsort((position, -key if descending else key, -late if descending else late), axis=axis)


def running_extreme(x, is_better):
    """Places along the last axis: of the last of equal elements, and of the last NaN once there is one."""
    places = np.zeros(x.shape, "i8")
    for row in np.ndindex(x.shape[:-1]):
        best = 0
        for place, value in enumerate(x[row]):
            if np.isnan(value) or is_better(value, x[row][best]):
                best = place
            places[row + (place,)] = best
    return places


def indexing_cases(random):
    def indexing(dims, places):
        return f"indexed = array<i64: {', '.join(map(str, dims))}>, positions = array<i64{': ' * bool(places)}{', '.join(map(str, places))}>"
    source = random.uniform(-1, 1, (6, 5, 37)).astype("f4")
    a, b = random.integers(0, 6, (3, 1, 7)), random.integers(0, 37, (3, 5, 7))
    yield ("gather_two", [source, a, b], f"%r0 = memopt.gather %a0, %a1, %a2 {{{indexing([0, 2], [1])}}} : ($a0, $a1, $a2) -> $r0",
               [source[a, np.arange(5)[None, :, None], b]])
    flags = random.integers(0, 2, (4, 9)).astype(bool)
    i = random.integers(0, 9, (4, 3)).astype("i4")
    yield ("gather_booleans", [flags, i], f"%r0 = memopt.gather %a0, %a1 {{{indexing([1], [0])}}} : ($a0, $a1) -> $r0",
               [np.take_along_axis(flags, i.astype("i8"), 1)])
    yield ("reverse", [source], "%r0 = memopt.reverse %a0 {dimensions = array<i64: 0, 2>} : ($a0) -> $r0",
           [np.ascontiguousarray(source[::-1, :, ::-1])])

    # Updates come in their order.
    table, updates = np.zeros((5, 70), "f4"), random.uniform(-1, 1, (4, 3, 70)).astype("f4")
    where = np.array([[0, 3, 3], [1, 3, 2], [4, 0, 0], [3, 1, 4]])
    for kind, combine in (("add", np.add), ("set", lambda old, new: new), ("max", np.maximum), ("mul", np.multiply)):
        expected = table + 1
        for token in np.ndindex(where.shape):
            expected[where[token]] = combine(expected[where[token]], updates[token])
        yield (f"scatter_{kind}", [table + 1, updates, where[..., None]],
                   f"%r0 = memopt.scatter %a0, %a1, %a2 {{kind = #memopt.scatter<{kind}>, {indexing([0], [2])}}} : ($a0, $a1, $a2) -> $r0",
                   [expected])
    counts = np.zeros(7, "i8")
    votes = random.integers(0, 7, (50,))
    np.add.at(counts, votes, 1)
    yield ("scatter_counts", [np.zeros(7, "i8"), np.ones(50, "i8"), votes],
               f"%r0 = memopt.scatter %a0, %a1, %a2 {{kind = #memopt.scatter<add>, {indexing([0], [])}}} : ($a0, $a1, $a2) -> $r0", [counts])


def order_cases(random):
    # Ties keep their order, zeros of both signs are equal, NaN is above infinity.
    x = random.integers(-3, 4, (5, 67)).astype("f4")
    x[0, :6], x[1, 3], x[2, ::3] = [0.0, -0.0, np.inf, np.nan, -np.inf, np.nan], np.nan, -0.0
    for axis in (0, 1):
        for count in (1, 2, x.shape[axis] // 2 + 1, x.shape[axis]):
            for descending in (False, True):
                expected = np.take(in_order(x, axis, descending), np.arange(count), axis)
                yield (f"argsort_{axis}_{count}_{descending}", [x],
                           f"%r0 = memopt.argsort %a0 {{axis = {axis} : i64{', descending' * descending}}} : ($a0) -> $r0", [expected])
    whole = random.integers(-9, 9, (3, 100))
    yield ("argsort_integers", [whole], "%r0 = memopt.argsort %a0 {axis = 1 : i64} : ($a0) -> $r0", [in_order(whole, 1, False)])


def scan_cases(random):
    y = random.uniform(-1, 1, (4, 70)).astype("f4")
    y[1, 4] = y[1, 9]
    with_nan = y.copy()
    with_nan[2, 5] = with_nan[3, 60] = np.nan
    for kind, is_better in (("max", np.greater_equal), ("min", np.less_equal)):
        yield (f"argextreme_scan_{kind}", [with_nan],
                   f"%r0 = memopt.argextreme_scan %a0 {{kind = #memopt.reduce<{kind}>, axis = 1 : i64}} : ($a0) -> $r0",
                   [running_extreme(with_nan, is_better)])
        yield (f"argextreme_scan_{kind}_columns", [np.ascontiguousarray(with_nan.T)],
                   f"%r0 = memopt.argextreme_scan %a0 {{kind = #memopt.reduce<{kind}>, axis = 0 : i64}} : ($a0) -> $r0",
                   [np.ascontiguousarray(running_extreme(with_nan, is_better).T)])
    whole = random.integers(-9, 9, (3, 9))
    long = random.uniform(0, 1, (1, 20000)).astype("f4")
    yield ("running_sum", [np.ones_like(long), long], "%r0 = memopt.linear_scan %a0, %a1 {axis = 1 : i64} : ($a0, $a1) -> $r0",
               [np.cumsum(long, 1, dtype="f8").astype("f4")], 1e-7)
    yield ("running_count", [np.ones_like(whole), whole],
               "%r0 = memopt.linear_scan %a0, %a1 {axis = 1 : i64, reverse} : ($a0, $a1) -> $r0",
               [np.ascontiguousarray(np.cumsum(whole[:, ::-1], 1)[:, ::-1])])
    far = np.array([[-np.inf, -np.inf, 3, 90, -np.inf, 1000, 1000.5], [5, np.inf, 1, np.inf, 2, 0, 0]], "f4")
    yield ("logsumexp_scan", [far], "%r0 = memopt.logsumexp_scan %a0 {axis = 1 : i64} : ($a0) -> $r0",
               [np.logaddexp.accumulate(far.astype("f8"), 1).astype("f4")])


def random_cases(random_words):
    """Numbers are made from the words of their elements; f32 and f64 take different bits of them."""
    seed, step = np.array(0x123456789ABCDEF, "i8"), np.array(5, "i8")
    for kind, shape in (("f4", (4, 33)), ("f8", (7, 5))):
        one, two = random_words(shape, 5, 3, int(seed)), random_words((*shape, 2), 5, 3, int(seed))
        bits = 23 if kind == "f4" else 31
        inside_one, inside = (((words >> np.uint64(32 - bits)) + 0.5) * 2.0**-bits for words in (one, two))
        uniform = (one >> np.uint64(8)) * 2.0**-24 if kind == "f4" else (
            ((two[..., 0] >> np.uint64(5)) << np.uint64(26) | two[..., 1] >> np.uint64(6)) * 2.0**-53)
        normal = np.sqrt(-2 * np.log(inside[..., 0])) * np.cos(2 * np.pi * inside[..., 1])
        for name, expected, tolerance in (("uniform", uniform, 0), ("normal", normal, 2e-6),
                                          ("exponential", -np.log(inside_one), 2e-6)):
            yield (f"random_{name}_{kind}", [seed, step],
                   f"%r0 = memopt.random %a0, %a1 {{distribution = #memopt.distribution<{name}>, id = 3 : i64}} : ($a0, $a1) -> $r0",
                   [expected.astype(kind)], tolerance)


def cubic(x, a):
    """The kernel of Keys, Cubic Convolution Interpolation for Digital Image Processing, 1981."""
    x = abs(x)
    return (((a + 2) * x - (a + 3)) * x * x + 1 if x < 1 else (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0)


def resizing_weights(mode, source, target):
    """weights[i, j]: what element j of `source` adds to element i of `target`."""
    step, weights = source / target, np.zeros((target, source))
    for i in range(target):
        if mode == "nearest_exact":
            weights[i, int((i + 0.5) * step)] = 1
        elif mode == "area":
            weights[i, i * source // target:-(-(i + 1) * source // target)] = 1
        elif mode == "cubic":
            place = (i + 0.5) * step - 0.5
            for j in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
                weights[i, min(max(j, 0), source - 1)] += cubic(place - j, -0.75)
        else:
            stretch, centre = max(step, 1), (i + 0.5) * step
            for j in range(source):
                x = (j + 0.5 - centre) / stretch
                weights[i, j] = max(0, 1 - abs(x)) if mode == "linear_antialias" else cubic(x, -0.5)
        weights[i] /= weights[i].sum()
    return weights


def resizing_cases(random):
    x = random.uniform(-1, 1, (2, 3, 12, 7)).astype("f4")
    for mode in ("nearest_exact", "area", "cubic", "linear_antialias", "cubic_antialias"):
        for size in ((5, 3), (17, 9)):
            expected = np.einsum("ih,jw,nchw->ncij", resizing_weights(mode, 12, size[0]), resizing_weights(mode, 7, size[1]), x)
            yield (f"resize_{mode}_{size[0]}", [x],
                   f"%r0 = memopt.interpolate %a0 {{scales = array<f64: {12 / size[0]!r}, {7 / size[1]!r}>, "
                   f"mode = #memopt.resampling<{mode}>}} : ($a0) -> $r0", [expected.astype("f4")])
