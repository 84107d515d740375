"""Scalar functions that are spelled out: halves, divisions that would trap, powers of integers, random words,
checks of data."""
import numpy as np

from kernel_testing import Case, Kernel, main

rng = np.random.default_rng(11)
cases = []


def add(name, ins, dtype, body, inputs, expected, **options):
    """A pointwise kernel: `body` computes %s from %a0, %a1."""
    k = Kernel(*[(x.shape, kind) for x, kind in zip(inputs, ins)])
    r = k.pointwise(k.arguments, dtype, f"{body}\nlinalg.yield %s : {dtype}")
    cases.append(Case(name, k.yields(r), inputs, [expected], **{"tolerance": 0, **options}))


def to_bfloat(x):
    """The bits of the nearest bfloat16, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), (bits >> 16 | 0x40).astype(np.uint16), rounded)


def from_bfloat(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


# Every half there is, and every f32 near the ones where rounding decides.
every = np.arange(65536, dtype=np.uint16)
halves, brains = every.view(np.float16), every
with np.errstate(all="ignore"):
    add("f16_to_f32", ["f16"], "f32", "%s = arith.extf %a0 : f16 to f32", [halves], halves.astype(np.float32))
    add("f16_to_f64", ["f16"], "f64", "%s = arith.extf %a0 : f16 to f64", [halves], halves.astype(np.float64))
    add("bf16_to_f32", ["bf16"], "f32", "%s = arith.extf %a0 : bf16 to f32", [brains], from_bfloat(brains))
    exact = np.concatenate([halves.astype(np.float32), from_bfloat(brains), np.float32([65504, 65519.99, 65520, 1e9, 6e-8, 2.9e-8, 3e-8])])
    finite = exact[np.isfinite(exact)]
    between = (finite[:-1].astype(np.float64) + finite[1:]) / 2
    near = np.concatenate([exact, between.astype(np.float32), np.nextafter(between.astype(np.float32), np.float32(0))])
    add("f32_to_f16", ["f32"], "f16", "%s = arith.truncf %a0 : f32 to f16", [near], near.astype(np.float16))
    add("f32_to_bf16", ["f32"], "bf16", "%s = arith.truncf %a0 : f32 to bf16", [near], to_bfloat(near))
    # Whatever the length: LLVM has no vectors of halves for some.
    for length in (1, 3, 5, 9, 13, 27):
        x = rng.standard_normal(length).astype(np.float32)
        add(f"f32_to_f16_{length}", ["f32"], "f16", "%s = arith.truncf %a0 : f32 to f16", [x], x.astype(np.float16))
        add(f"bf16_select_{length}", ["f32", "bf16"], "bf16",
            "%z = arith.constant 0.0 : f32\n%y = arith.constant 1.5 : bf16\n%c = arith.cmpf olt, %a0, %z : f32\n"
            "%s = arith.select %c, %a1, %y : bf16", [x, to_bfloat(x)], np.where(x < 0, to_bfloat(x), np.uint16(0x3fc0)))
    # Arithmetic on halves is that of f32, rounded after each op.
    a, b = (rng.standard_normal(1003).astype(np.float16) for _ in range(2))
    add("f16_arithmetic", ["f16", "f16"], "f16", "%m = arith.mulf %a0, %a1 : f16\n%s = arith.addf %m, %a1 : f16",
        [a, b], a * b + b)
    add("f16_compare", ["f16", "f16"], "i1", "%s = arith.cmpf olt, %a0, %a1 : f16", [a, b], a < b)
    c = to_bfloat(rng.standard_normal(1003))
    e = np.exp(from_bfloat(c).astype(np.float64)).astype(np.float32)
    add("bf16_exp", ["bf16"], "bf16", "%s = math.exp %a0 : bf16", [c], to_bfloat(e))

# What is known while compiling wraps around as what is not.
x, least, most = np.arange(5), np.iinfo(np.int64).min, np.iinfo(np.int64).max
for number, (op, a, b, result) in enumerate((("minsi", most, -8, -8), ("maxsi", -8, most, most), ("maxsi", least, 8, 8), ("addi", most, 8, least + 7),
                         ("subi", least, 8, most - 7), ("muli", most, 3, most - 2), ("muli", 1 << 40, 1 << 40, 0))):
    add(f"known_{op}_{number}", ["i64"], "i64", f"%p = arith.constant {a} : i64\n%q = arith.constant {b} : i64\n"
        f"%m = arith.{op} %p, %q : i64\n%s = arith.xori %m, %a0 : i64", [x], x ^ result)
add("cmpi_far", ["i64"], "i1", f"%p = arith.constant {most} : i64\n%q = arith.constant -8 : i64\n"
    "%m = arith.cmpi slt, %p, %q : i64\n%z = arith.constant 3 : i64\n%l = arith.cmpi slt, %a0, %z : i64\n"
    "%s = arith.ori %m, %l : i1", [x], x < 3)

# Divisions: nothing traps. By zero the dividend stays, and the least integer by -1 wraps around.
for dtype, kind in (("i64", np.int64), ("i32", np.int32), ("i16", np.int16), ("i8", np.int8)):
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x, y = (v.ravel() for v in np.meshgrid(np.array([low, low + 1, -7, -1, 0, 1, 7, high], kind), np.array([low, -3, -1, 0, 1, 3, high], kind)))
    wide = [(int(p), int(q)) for p, q in zip(x, y)]
    def wrap(values):
        return np.array([(v - low) % (high - low + 1) + low for v in values]).astype(kind)
    def truncated(p, q):
        return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
    quotient = [p if q == 0 else truncated(p, q) for p, q in wide]
    add(f"divide_{dtype}", [dtype, dtype], dtype, f"%s = arith.divsi %a0, %a1 : {dtype}", [x, y], wrap(quotient))
    rest = [0 if q == 0 else p - truncated(p, q) * q for p, q in wide]
    add(f"remainder_{dtype}", [dtype, dtype], dtype, f"%s = arith.remsi %a0, %a1 : {dtype}", [x, y], wrap(rest))
    floored = [p if q == 0 else p // q for p, q in wide]
    add(f"floor_{dtype}", [dtype, dtype], dtype, f"%s = arith.floordivsi %a0, %a1 : {dtype}", [x, y], wrap(floored))
    by = np.where(y == 0, kind(1), y)
    add(f"unsigned_{dtype}", [dtype, dtype], dtype, f"%s = arith.divui %a0, %a1 : {dtype}", [x, by],
        (x.view(f"u{x.itemsize}") // by.view(f"u{x.itemsize}")).view(kind))
    base, exponent = (v.ravel() for v in np.meshgrid(np.array([-3, -1, 0, 1, 2, 5], kind), np.array([-2, -1, 0, 1, 2, 7, 40], kind)))
    power = [(1 if p == 1 else (-1) ** (q % 2) if p == -1 else 0) if q < 0 else p ** q for p, q in zip(base.tolist(), exponent.tolist())]
    add(f"power_{dtype}", [dtype, dtype], dtype, f"%s = math.ipowi %a0, %a1 : {dtype}", [base, exponent], wrap(power))
x = rng.integers(-1000, 1000, 777)
add("divide_by_constant", ["i64"], "i64", "%c = arith.constant 7 : i64\n%s = arith.floordivsi %a0, %c : i64", [x], x // 7)

# Real numbers.
with np.errstate(all="ignore"):
    x = np.concatenate([rng.uniform(-150, 129, 5000), [0, -0.0, 127.99, 128, -126, -149, -150, np.inf, -np.inf, np.nan]]).astype(np.float32)
    exact = np.exp2(x.astype(np.float64))
    ours = Kernel(((5010,), "f32"))
    # Two units in the last place, as a ratio: every element counts alike.
    r = ours.pointwise(ours.arguments, "f32", "%e = math.exp2 %a0 : f32\n%x = arith.extf %a0 : f32 to f64\n%d = math.exp2 %x : f64\n"
                       "%w = arith.extf %e : f32 to f64\n%q = arith.divf %w, %d : f64\n%s = arith.truncf %q : f64 to f32\nlinalg.yield %s : f32")
    normal = np.isfinite(x) & (x > -126) & (x < 128)
    cases.append(Case("exp2_ratio", ours.yields(r), [np.where(normal, x, np.float32(1))], [np.ones(5010)], tolerance=2.4e-7))
    add("exp2_edges", ["f32"], "f32", "%s = math.exp2 %a0 : f32", [x], exact.astype(np.float32).astype(np.float64), tolerance=3e-7)
    edges = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3e38, 1e-45], np.float32)
    for name, function in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
        add(name, ["f32"], "i1", f"%s = math.{name} %a0 : f32", [edges], function(edges))
    x, y = (v.ravel() for v in np.meshgrid(np.float32([0, 1, -5, 1e8, 0.3, np.inf, np.nan]), np.float32([0.1, 3, -3, np.inf, 0])))
    add("remainder_f32", ["f32", "f32"], "f32", "%s = arith.remf %a0, %a1 : f32", [x, y], np.fmod(x, y))


# Random words, by their number: rows that begin with a counter's first word, known beforehand or not, inside of a
# counter, and not along the words.
def random_words(number, seed, step, identity):
    number = number.astype(np.uint64)
    low = np.uint64(0xFFFFFFFF)
    counter = [number >> np.uint64(2) & low, number >> np.uint64(34), np.full_like(number, step), np.full_like(number, identity)]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        counter = [second >> np.uint64(32) ^ counter[1] ^ np.uint64(keys[0]), second & low,
                   first >> np.uint64(32) ^ counter[3] ^ np.uint64(keys[1]), first & low]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.choose((number % np.uint64(4)).astype(int), counter).astype(np.uint32).view(np.int32)


for name, shape, strides, first in (("row", (77,), (1,), None), ("rows", (5, 72), (72, 1), None), ("odd_rows", (5, 71), (71, 1), None),
                                    ("part", (3, 72), (144, 1), 2**34 - 12), ("inside_part", (3, 72), (144, 1), 2**34 - 11),
                                    ("columns", (9, 40), (1, 12), 4)):
    k = Kernel(*[((), "i64")] * 3)
    scalar = f"({', '.join(f'd{i}' for i in range(len(shape)))}) -> ()"
    body = "%n0 = arith.constant 0 : index\n"
    for i, stride in enumerate(strides):
        body += (f"%i{i} = linalg.index {i} : index\n%c{i} = arith.constant {stride} : index\n"
                 f"%m{i} = arith.muli %i{i}, %c{i} : index\n%n{i + 1} = arith.addi %n{i}, %m{i} : index\n")
    body += (f"%n = arith.index_cast %n{len(shape)} : index to i64\n%zero = arith.constant 0 : i64\n"
             f"%s = memopt.random_word {'%zero' if first is None else '%a2'}, %n, %a0, %a1 {{id = 9 : i64}}\nlinalg.yield %s : i32")
    r = k.pointwise([(argument, scalar) for argument in k.arguments], "i32", body, shape)
    numbers = (first or 0) + sum(i * stride for i, stride in zip(np.indices(shape), strides))
    seed, step = 0x123456789ABCDEF, 5
    cases.append(Case(f"random_words_{name}", k.yields(r), [np.array(x, np.int64) for x in (seed, step, first or 0)],
                      [random_words(numbers, seed, step, 9)], tolerance=0))


# Checks: what is not allowed is replaced, and the least report stays.
def check(name, values, dtype, attributes, expected, faults, guard=""):
    add(name, [dtype], dtype, f"%s = memopt.check %a0 {{{attributes}}} : {dtype}", [values], expected, faults=faults)


quiet = 2**64 - 1
index = np.arange(100) % 10
check("check_fine", index, "i64", "min = 0 : i64, max = 9 : i64, otherwise = 0 : i64, site = 0 : i64", index, quiet)
index = index.copy()
index[[50, 70]] = 12, -5
# A negative value has all high bits set, so 12 is less.
check("check_index", index, "i64", "min = 0 : i64, max = 9 : i64, otherwise = 0 : i64, site = 3 : i64",
      np.where((index < 0) | (index > 9), 0, index), 3 << 48 | 12)
check("check_ignore", index, "i64", "min = 0 : i64, max = 9 : i64, ignore = 12 : i64, otherwise = 0 : i64, site = 0 : i64",
      np.where(index < 0, 0, index), 2**48 - 5)
divisor = np.array([3, -1, 0, 7] * 5, np.int32)
check("check_divisor", divisor, "i32", "min = 1 : i64, max = -1 : i64, otherwise = 1 : i64, site = 1 : i64",
      np.where(divisor == 0, 1, divisor), 1 << 48)

# What a guard keeps from being read is not reported: the zeros around a padded tensor are no divisors.
k = Kernel(((9,), "i64"))
padded = k.view(f"memopt.pad {k.arguments[0].name} {{low = array<i64: 4>, high = array<i64: 5>}} : (tensor<9xi64>) -> tensor<18xi64>", (18,), "i64")
inner = k.pointwise([k.arguments[0]], "i64", "%s = memopt.check %a0 {min = 1 : i64, max = -1 : i64, otherwise = 1 : i64, site = 0 : i64} : i64\n"
                    "linalg.yield %s : i64")
outer = k.view(f"memopt.pad {inner.name} {{low = array<i64: 4>, high = array<i64: 5>}} : (tensor<9xi64>) -> tensor<18xi64>", (18,), "i64")
r = k.pointwise([padded, outer], "i64", "%s = arith.addi %a0, %a1 : i64\nlinalg.yield %s : i64")
x = np.arange(1, 10)
cases.append(Case("check_guarded", k.yields(r), [x], [np.pad(2 * x, (4, 5))], faults=quiet))

# An index that nobody checked stays inside all the same.
k = Kernel(((5,), "f32"), ((6,), "i64"))
table = k.arguments[0]
r = k.pointwise([k.arguments[1]], "f32", f"%i = arith.index_cast %a0 : i64 to index\n%s = tensor.extract {table.name}[%i] : tensor<5xf32>\n"
                "linalg.yield %s : f32")
values = np.arange(5, dtype=np.float32)
cases.append(Case("unchecked_index", k.yields(r), [values, np.array([0, 4, 5, -1, 2**40, -2**63])], [np.float32([0, 4, 4, 0, 4, 0])], tolerance=0))

if __name__ == "__main__":
    main(cases)
