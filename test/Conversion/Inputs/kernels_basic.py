"""Elementwise kernels, broadcasts, row reductions, scalars."""
import math

import numpy as np
from scipy_free import erf

from kernel_testing import Case, Kernel, main, tensor

rng = np.random.default_rng(7)
SIZES = [1, 3, 7, 10, 63, 64, 65, 197, 1000]
cases = []


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def add(name, kernel, inputs, expected, **options):
    cases.append(Case(name, kernel, inputs, expected, **options))


for n in SIZES:
    k = Kernel(((n,), "f32"), ((n,), "f32"))
    x, y = k.arguments
    r = k.pointwise([x, y], "f32", "%s = arith.addf %a0, %a1 : f32\nlinalg.yield %s : f32")
    a, b = normal(n), normal(n)
    add(f"add_{n}", k.yields(r), [a, b], [a + b], tolerance=0)
    add(f"add_in_place_{n}", k, [a, b], [a + b], tolerance=0, result_buffers=[1])

for m, n in [(1, 1), (3, 7), (7, 64), (5, 65), (10, 10), (64, 3), (2, 1000), (197, 63)]:
    a, g = normal(m, n), normal(n)
    k = Kernel(((m, n), "f32"), ((n,), "f32"))
    r = k.pointwise([k.arguments[0], (k.arguments[1], "(d0, d1) -> (d1)")], "f32",
                    "%s = arith.mulf %a0, %a1 : f32\nlinalg.yield %s : f32")
    add(f"scale_columns_{m}_{n}", k.yields(r), [a, g], [a * g], tolerance=0)

    h = normal(m)
    k = Kernel(((m, n), "f32"), ((m,), "f32"), ((), "f32"))
    r = k.pointwise([k.arguments[0], (k.arguments[1], "(d0, d1) -> (d0)"), (k.arguments[2], "(d0, d1) -> ()")],
                    "f32", "%s = arith.mulf %a0, %a1 : f32\n%t = arith.addf %s, %a2 : f32\nlinalg.yield %t : f32")
    add(f"scale_rows_{m}_{n}", k.yields(r), [a, h, np.float32(0.5)], [a * h[:, None] + np.float32(0.5)], tolerance=0)

FUNCTIONS = {
    "exp": ("math.exp", np.exp, normal(1000) * 20),
    "log": ("math.log", np.log, np.abs(normal(1000)) * 10),
    "tanh": ("math.tanh", np.tanh, normal(1000) * 2),
    "erf": ("math.erf", erf, normal(1000) * 2),
    "sqrt": ("math.sqrt", np.sqrt, np.abs(normal(1000))),
    "rsqrt": ("math.rsqrt", lambda x: 1 / np.sqrt(x), np.abs(normal(1000)) + 0.01),
    "sin": ("math.sin", np.sin, normal(1000)),
    "cos": ("math.cos", np.cos, normal(1000)),
}
for name, (op, function, a) in FUNCTIONS.items():
    for dtype, kind in (("f32", np.float32), ("f64", np.float64)):
        k = Kernel(((1000,), dtype))
        r = k.pointwise([k.arguments[0]], dtype, f"%s = {op} %a0 : {dtype}\nlinalg.yield %s : {dtype}")
        x = a.astype(kind)
        # Relative to each element, so scale both sides.
        e = function(x.astype(np.float64))
        add(f"{name}_{dtype}", k.yields(r), [x], [e], tolerance=3e-7 if dtype == "f32" else 1e-14)
edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.7, -103, -1, 1], np.float32)
for name, function in (("exp", np.exp), ("log", np.log), ("tanh", np.tanh)):
    k = Kernel(((11,), "f32"))
    r = k.pointwise([k.arguments[0]], "f32", f"%s = math.{name} %a0 : f32\nlinalg.yield %s : f32")
    with np.errstate(all="ignore"):
        e = function(edges.astype(np.float64)).astype(np.float32).astype(np.float64)
    add(f"{name}_edges", k.yields(r), [edges], [e])

# Sines of every size of argument: near multiples of pi / 2, at the border between two reductions, and at the largest.
sizes = np.random.default_rng(8)
circle = np.concatenate([np.arange(-400, 400) * (np.pi / 2), 2.0 ** sizes.uniform(-30, 128, 3000) * sizes.choice([-1, 1], 3000),
                         [2.0**28, np.nextafter(np.float32(2.0**28), np.float32(0)), 3.4028235e38, 0, -0.0, 1e-40, -1e-40,
                          np.inf, -np.inf, np.nan]]).astype(np.float32)
for name, function in (("sin", np.sin), ("cos", np.cos)):
    k = Kernel((circle.shape, "f32"))
    r = k.pointwise([k.arguments[0]], "f32", f"%s = math.{name} %a0 : f32\nlinalg.yield %s : f32")
    with np.errstate(all="ignore"):
        e = function(circle.astype(np.float64)).astype(np.float32)
    add(f"{name}_everywhere", k.yields(r), [circle], [e], tolerance=0)

# And of doubles, whose error is one of each result: divided by what the result should be, they are ones. The argument that
# is nearest to a multiple of pi / 2 is one that other libraries miss by several bits.
nearest, its_cosine = 6381956970095103 * 2.0**797, -4.6871659242546276e-19
wide = np.concatenate([np.arange(1, 400) * (np.pi / 2), 2.0 ** sizes.uniform(-30, 1023, 3000) * sizes.choice([-1, 1], 3000),
                       [2.0**30, np.nextafter(2.0**30, 0), nearest, np.finfo(np.float64).max, 1e-300]])
for name, function in (("sin", np.vectorize(math.sin)), ("cos", np.vectorize(lambda x: its_cosine if x == nearest else math.cos(x)))):
    k = Kernel((wide.shape, "f64"), (wide.shape, "f64"))
    r = k.pointwise(k.arguments, "f64", f"%s = math.{name} %a0 : f64\n%t = arith.mulf %s, %a1 : f64\nlinalg.yield %t : f64")
    add(f"{name}_of_doubles", k.yields(r), [wide, 1 / function(wide)], [np.ones_like(wide)], tolerance=6e-16)
    few = np.array([0, -0.0, np.inf, -np.inf, np.nan])
    k = Kernel((few.shape, "f64"))
    r = k.pointwise([k.arguments[0]], "f64", f"%s = math.{name} %a0 : f64\nlinalg.yield %s : f64")
    with np.errstate(all="ignore"):
        add(f"{name}_of_few", k.yields(r), [few], [getattr(np, name)(few)], tolerance=0)

# Booleans in bits, the first of eight in the lowest: stored beside another result, read in place, and read across rows,
# where a row's lanes are no whole bytes.
def pack(kernel, mask):
    shape = (*mask.shape[:-1], mask.shape[-1] // 8)
    return kernel.view(f"memopt.pack_bits {mask.name} : ({mask.type}) -> {tensor(shape, 'i8')}", shape, "i8")


def unpack(kernel, bits):
    shape = (*bits.shape[:-1], bits.shape[-1] * 8)
    return kernel.view(f"memopt.unpack_bits {bits.name} : ({bits.type}) -> {tensor(shape, 'i1')}", shape, "i1")


for shape in [(8,), (1, 16), (7, 24), (3, 64), (5, 72), (7, 200), (197, 1000), (3, 5, 8)]:
    a, b = normal(*shape), normal(*shape)
    mask, bits = a < b, np.packbits(a < b, axis=-1, bitorder="little").view(np.int8)
    name = "x".join(map(str, shape))
    k = Kernel((shape, "f32"), (shape, "f32"))
    less = k.pointwise(k.arguments, "i1", "%s = arith.cmpf olt, %a0, %a1 : f32\nlinalg.yield %s : i1")
    chosen = k.pointwise([less, *k.arguments], "f32", "%s = arith.select %a0, %a1, %a2 : f32\nlinalg.yield %s : f32")
    add(f"pack_bits_{name}", k.yields(pack(k, less), chosen), [a, b], [bits, np.where(mask, a, b)], tolerance=0)
    k = Kernel((bits.shape, "i8"), (shape, "f32"))
    r = k.pointwise([unpack(k, k.arguments[0]), k.arguments[1]], "f32",
                    "%z = arith.constant 0.0 : f32\n%s = arith.select %a0, %a1, %z : f32\nlinalg.yield %s : f32")
    add(f"unpack_bits_{name}", k.yields(r), [bits, b], [np.where(mask, b, 0)], tolerance=0)
    k = Kernel((bits.shape, "i8"))
    r = k.pointwise([unpack(k, k.arguments[0])], "i1", "%t = arith.constant true\n%s = arith.xori %a0, %t : i1\nlinalg.yield %s : i1")
    add(f"flip_bits_{name}", k.yields(pack(k, r)), [bits], [~bits])
for m, n in [(16, 8), (64, 24), (40, 200)]:
    mask = rng.random((m, n)) < 0.5
    k = Kernel(((m, n // 8), "i8"))
    r = k.pointwise([(unpack(k, k.arguments[0]), "(d0, d1) -> (d1, d0)")], "i1", "linalg.yield %a0 : i1", shape=(n, m))
    bits = np.packbits(mask, axis=-1, bitorder="little").view(np.int8)
    add(f"transpose_bits_{m}_{n}", k.yields(pack(k, r)), [bits],
        [np.packbits(mask.T, axis=-1, bitorder="little").view(np.int8)])
    k = Kernel(((m, n // 8), "i8"))
    r = k.reduce([(unpack(k, k.arguments[0]), "(d0, d1) -> (d0, d1)")], ((m,), "(d0, d1) -> (d0)"), "pr", "0",
                 "%i = arith.extui %a0 : i1 to i32\n%s = arith.addi %o0, %i : i32\nlinalg.yield %s : i32", dtype="i32")
    add(f"count_bits_{m}_{n}", k.yields(r), [bits], [mask.sum(axis=1).astype(np.int32)])

# Types: comparison to booleans and back, integers, f64 scalars in f32 loops.
a, b = normal(7, 65), normal(7, 65)
k = Kernel(((7, 65), "f32"), ((7, 65), "f32"))
mask = k.pointwise(k.arguments, "i1", "%s = arith.cmpf olt, %a0, %a1 : f32\nlinalg.yield %s : i1")
add("compare", k.yields(mask), [a, b], [a < b])
k = Kernel(((7, 65), "i1"), ((7, 65), "f32"))
r = k.pointwise(k.arguments, "f32", "%z = arith.constant 0.0 : f32\n%s = arith.select %a0, %a1, %z : f32\nlinalg.yield %s : f32")
add("select", k.yields(r), [a < b, b], [np.where(a < b, b, 0)], tolerance=0)
i = rng.integers(-100, 100, (5, 33))
k = Kernel(((5, 33), "i64"), ((33,), "i32"))
r = k.pointwise([k.arguments[0], (k.arguments[1], "(d0, d1) -> (d1)")], "i64",
                "%w = arith.extsi %a1 : i32 to i64\n%s = arith.muli %a0, %w : i64\n%i = linalg.index 1 : index\n"
                "%j = arith.index_cast %i : index to i64\n%t = arith.addi %s, %j : i64\nlinalg.yield %t : i64")
j = rng.integers(-9, 9, 33).astype(np.int32)
add("integers", k.yields(r), [i, j], [i * j + np.arange(33)])
k = Kernel(((1000,), "f32"), ((), "i64"))
x = normal(1000)
r = k.pointwise([k.arguments[0], (k.arguments[1], "(d0) -> ()")], "f32",
                "%b = arith.constant 0.9 : f64\n%t = arith.sitofp %a1 : i64 to f64\n%p = math.powf %b, %t : f64\n"
                "%one = arith.constant 1.0 : f64\n%c = arith.subf %one, %p : f64\n%d = arith.truncf %c : f64 to f32\n"
                "%s = arith.divf %a0, %d : f32\nlinalg.yield %s : f32")
add("bias_correction", k.yields(r), [x, np.int64(3)], [x / np.float32(1 - 0.9 ** 3.0)], tolerance=0)

# Rows.
for m, n in [(1, 1), (1, 1000), (3, 7), (7, 10), (5, 63), (4, 64), (4, 65), (37, 197), (100, 1), (2, 50257)]:
    a, g, h = normal(m, n), normal(n), normal(n)
    full, row, column, alone = "(d0, d1) -> (d0, d1)", "(d0, d1) -> (d0)", "(d0, d1) -> (d1)", "(d0) -> (d0)"
    k = Kernel(((m, n), "f32"))
    x, = k.arguments
    largest = k.reduce([(x, full)], ((m,), row), "pr", "0xFF800000", "%s = arith.maximumf %o0, %a0 : f32\nlinalg.yield %s : f32")
    total = k.reduce([(x, full), (largest, row)], ((m,), row), "pr", "0.0",
                     "%d = arith.subf %a0, %a1 : f32\n%e = math.exp %d : f32\n%s = arith.addf %o0, %e : f32\nlinalg.yield %s : f32")
    y = k.pointwise([x, (largest, row), (total, row)], "f32",
                    "%d = arith.subf %a0, %a1 : f32\n%e = math.exp %d : f32\n%s = arith.divf %e, %a2 : f32\nlinalg.yield %s : f32")
    l = k.pointwise([largest, total], "f32", "%e = math.log %a1 : f32\n%s = arith.addf %e, %a0 : f32\nlinalg.yield %s : f32")
    wide = a.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    expected = [e / e.sum(1, keepdims=True), np.log(e.sum(1)) + wide.max(1)]
    add(f"softmax_{m}_{n}", k.yields(y, l), [a], expected)
    add(f"softmax_in_place_{m}_{n}", k, [a], expected, result_buffers=[0, -1])

    k = Kernel(((m, n), "f32"), ((n,), "f32"), ((n,), "f32"))
    x, gamma, beta = k.arguments
    total = k.reduce([(x, full)], ((m,), row), "pr", "0.0", "%s = arith.addf %o0, %a0 : f32\nlinalg.yield %s : f32")
    mean = k.pointwise([total], "f32", f"%n = arith.constant {float(n)} : f32\n%s = arith.divf %a0, %n : f32\nlinalg.yield %s : f32")
    square = k.reduce([(x, full), (mean, row)], ((m,), row), "pr", "0.0",
                      "%d = arith.subf %a0, %a1 : f32\n%q = arith.mulf %d, %d : f32\n%s = arith.addf %o0, %q : f32\nlinalg.yield %s : f32")
    rstd = k.pointwise([square], "f32", f"%n = arith.constant {float(n)} : f32\n%v = arith.divf %a0, %n : f32\n"
                       "%e = arith.constant 1.0e-5 : f32\n%w = arith.addf %v, %e : f32\n%s = math.rsqrt %w : f32\nlinalg.yield %s : f32")
    y = k.pointwise([x, (mean, row), (rstd, row), (gamma, column), (beta, column)], "f32",
                    "%d = arith.subf %a0, %a1 : f32\n%h = arith.mulf %d, %a2 : f32\n%q = arith.mulf %h, %a3 : f32\n"
                    "%s = arith.addf %q, %a4 : f32\nlinalg.yield %s : f32")
    mu = wide.mean(1, keepdims=True)
    rs = 1 / np.sqrt(((wide - mu) ** 2).mean(1, keepdims=True) + 1e-5)
    add(f"layer_norm_{m}_{n}", k.yields(y, mean, rstd), [a, g, h], [(wide - mu) * rs * g + h, mu[:, 0], rs[:, 0]],
        tolerance=1e-5)

# A row statistic over some trailing dimensions, and an argmax, which no single op combines.
a = normal(5, 6, 7, 9)
k = Kernel(((5, 6, 7, 9), "f32"))
s = k.reduce([(k.arguments[0], "(d0, d1, d2, d3) -> (d0, d1, d2, d3)")], ((5, 6), "(d0, d1, d2, d3) -> (d0, d1)"), "pprr", "0.0",
             "%s = arith.addf %o0, %a0 : f32\nlinalg.yield %s : f32")
add("sum_trailing", k.yields(s), [a], [a.astype(np.float64).sum((2, 3))])
k = Kernel(((5, 97), "f32"))
best, where = k.generic([(k.arguments[0], "(d0, d1) -> (d0, d1)")],
                        [((5,), "f32", "(d0, d1) -> (d0)", "0xFF800000"), ((5,), "i64", "(d0, d1) -> (d0)", "0")], "pr",
                        "%i = linalg.index 1 : index\n%j = arith.index_cast %i : index to i64\n"
                        "%c = arith.cmpf ogt, %a0, %o0 : f32\n%s = arith.select %c, %a0, %o0 : f32\n"
                        "%t = arith.select %c, %j, %o1 : i64\nlinalg.yield %s, %t : f32, i64")
a = normal(5, 97)
add("argmax", k.yields(best, where), [a], [a.max(1), a.argmax(1)], tolerance=0)

# Full sums, integers and booleans.
for n in (1, 10, 65, 1000, 100003):
    a = normal(n)
    k = Kernel(((n,), "f32"))
    s = k.reduce([(k.arguments[0], "(d0) -> (d0)")], ((), "(d0) -> ()"), "r", "0.0",
                 "%s = arith.addf %o0, %a0 : f32\nlinalg.yield %s : f32")
    add(f"sum_all_{n}", k.yields(s), [a], [a.astype(np.float64).sum()], tolerance=1e-5)
a = rng.integers(0, 3, (4, 77))
k = Kernel(((4, 77), "i64"))
s = k.reduce([(k.arguments[0], "(d0, d1) -> (d0, d1)")], ((), "(d0, d1) -> ()"), "rr", "5",
             "%two = arith.constant 2 : i64\n%c = arith.cmpi ne, %a0, %two : i64\n%e = arith.extui %c : i1 to i64\n"
             "%s = arith.addi %o0, %e : i64\nlinalg.yield %s : i64", dtype="i64")
add("count", k.yields(s), [a], [(a != 2).sum() + 5])

# Unrelated shapes in one kernel.
a, b = normal(1000), normal(37, 5)
k = Kernel(((1000,), "f32"), ((37, 5), "f32"))
r = k.pointwise([k.arguments[0]], "f32", "%s = arith.mulf %a0, %a0 : f32\nlinalg.yield %s : f32")
t = k.pointwise([k.arguments[1]], "f32", "%s = arith.addf %a0, %a0 : f32\nlinalg.yield %s : f32")
add("unlike_shapes", k.yields(r, t), [a, b], [a * a, b + b], tolerance=0)

if __name__ == "__main__":
    main(cases)
