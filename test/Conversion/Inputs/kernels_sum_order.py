"""The order of the additions of a sum, as SumOrder.h of lib/Conversion says it: in numpy, for vectors of 32 bytes and for the
threads of a device. A sum has the same bits alone, beside elements that it is broadcast to, inside of other sums, where loops do
not merge, and where threads are too few to share it."""
import itertools
import sys

import numpy as np

from kernel_testing import Case, Kernel, main

IS_DEVICE = any(word.startswith("--chip") for word in sys.argv)
LANES, RUN, BLOCK = 32, 1024 if IS_DEVICE else 32, 128
WARP, GROUP, LONGEST_OF_WARP, FEW_RESULTS, LONG = 32, 256, 256, 2048, 64
ADD = "%s = arith.addf %o0, %a0 : f32\nlinalg.yield %s : f32"


def fit_lanes(size):
    if size <= LANES:
        return size
    return LANES // 2 if size % LANES and size % (LANES // 2) == 0 else LANES


def fit_threads(size):
    """Lanes of a thread, and threads."""
    lanes = next(lanes for lanes in (4, 2, 1) if size % lanes == 0)
    vectors = size // lanes
    return lanes, GROUP if vectors > LONGEST_OF_WARP else min(WARP, 2 ** (vectors - 1).bit_length())


def halve(total, axis):
    """Folds the upper half of an axis onto the lower until one is left."""
    total = np.moveaxis(total, axis, 0)
    while len(total) > 1:
        total = total[:len(total) // 2] + total[len(total) // 2:]
    return total[0]


def in_blocks(sizes, additions, zero, add):
    """`add(total, place)` at all places of a box, in order; a long sum of `additions` at each in blocks."""
    cut, count = None, 0
    for i in reversed(range(len(sizes))):
        if additions * sizes[i] > 2 * BLOCK:
            cut, count = i, max(1, BLOCK // additions)
            break
        additions *= sizes[i]
    total = zero.copy()
    if cut is None:
        for place in itertools.product(*map(range, sizes)):
            total = add(total, place)
        return total
    for outer in itertools.product(*map(range, sizes[:cut])):
        for first in range(0, sizes[cut], count):
            block = zero.copy()
            for middle in range(first, min(first + count, sizes[cut])):
                for inner in itertools.product(*map(range, sizes[cut + 1:])):
                    block = add(block, outer + (middle,) + inner)
            total = total + block
    return total


def ordered_sum(x, kinds):
    """Over the dims of `x` whose letter is r."""
    axes = [i for i, kind in enumerate(kinds) if kind == "r"]
    x = np.moveaxis(x, axes, range(len(axes))).astype(np.float32)
    sizes, rest = [size for size in x.shape[:len(axes)] if size != 1], x.shape[len(axes):]
    x = x.reshape(*sizes, *rest)
    lane_dims, run = 0, 1
    while lane_dims < len(sizes) and run < RUN:
        lane_dims += 1
        run *= sizes[-lane_dims]
    is_along = kinds[-1] == "r" or (IS_DEVICE and np.prod(sizes) >= LONG and np.prod(rest) < FEW_RESULTS)
    if not is_along or run < 4:
        return in_blocks(sizes, 1, np.zeros(rest, np.float32), lambda total, place: total + x[place])
    outer = sizes[:len(sizes) - lane_dims]
    x = x.reshape(*outer, run, *rest)
    lanes, threads = fit_threads(run) if IS_DEVICE else (fit_lanes(run), 1)
    width = lanes * threads
    zero, rounds = np.zeros((width, *rest), np.float32), -(-run // width)

    def add_rounds(total, numbers):
        for first in range(0, len(numbers), width):
            part = numbers[first:first + width]
            total = np.concatenate([total[:len(part)] + part, total[len(part):]])
        return total

    def add(total, place):
        full = run // width * width if rounds > 2 * BLOCK else 0
        for first in range(0, full, BLOCK * width):
            total = total + add_rounds(zero, x[place][first:min(first + BLOCK * width, full)])
        return add_rounds(total, x[place][full:])

    if rounds > 2 * BLOCK:
        total = zero
        for place in itertools.product(*map(range, outer)):
            total = add(total, place)
    else:
        total = in_blocks(outer, rounds, zero, add)
    if not IS_DEVICE:
        return halve(np.concatenate([total, np.zeros((2 ** (lanes - 1).bit_length() - lanes, *rest), np.float32)]), 0)
    warps = max(1, threads // WARP)
    total = total.reshape(warps, threads // warps, lanes, *rest)
    return halve(halve(halve(total, 2), 1), 0)


random = np.random.default_rng(7)
cases = []
SHAPES = [((2, 12, 8), "ppr"), ((16, 10), "rp"), ((16, 10), "pr"), ((3, 5, 7, 7), "pprr"), ((4, 70, 9), "prp"), ((5, 40, 33), "rpr"),
          ((300, 65), "rr"), ((9, 1000, 3), "prp"), ((1000, 2), "rr"), ((6, 3), "pr"), ((3, 9, 30, 20), "prrp"), ((2, 5, 600), "prr"),
          ((17, 4, 50, 2), "rprr"), ((40, 36), "rp"), ((3, 20001), "pr"), ((5, 3, 5000), "prr"), ((70, 50, 60), "rpp"), ((9000, 3), "rp"),
          ((2, 300, 3000), "prr"), ((7, 3, 1030), "rpr"), ((40, 60, 12), "ppr")]


def dims(letters):
    return ", ".join(letters)


for number, (shape, kinds) in enumerate(SHAPES):
    letters = [f"d{i}" for i in range(len(shape))]
    kept = [letter for letter, kind in zip(letters, kinds) if kind == "p"]
    identity, result_map = f"({dims(letters)}) -> ({dims(letters)})", f"({dims(letters)}) -> ({dims(kept)})"
    result = tuple(size for size, kind in zip(shape, kinds) if kind == "p")
    a = random.standard_normal(shape).astype(np.float32)
    total = ordered_sum(a, kinds)
    name = f"{kinds}_{'_'.join(map(str, shape))}"

    def begin():
        kernel = Kernel((shape, "f32"))
        return kernel, lambda value: kernel.reduce([(value, identity)], (result, result_map), kinds, "0.0", ADD)

    k, add = begin()
    cases.append(Case(f"alone_{name}", k.yields(add(k.arguments[0])), [a], [total], tolerance=0))

    k, add = begin()
    s = add(k.arguments[0])
    centered = k.pointwise([k.arguments[0], (s, result_map)], "f32", "%s = arith.subf %a0, %a1 : f32\nlinalg.yield %s : f32", shape)
    spread = np.expand_dims(total, [i for i, kind in enumerate(kinds) if kind == "r"])
    cases.append(Case(f"broadcast_{name}", k.yields(centered), [a], [a - spread], tolerance=0))

    k, add = begin()
    s = add(k.arguments[0])
    copied = k.pointwise([k.arguments[0]], "f32", "%s = arith.addf %a0, %a0 : f32\nlinalg.yield %s : f32")
    cases.append(Case(f"beside_{name}", k.yields(copied, s), [a], [a + a, total], tolerance=0))

    # Elements that come from other places: each address of the last dim has a quotient.
    k, add = begin()
    flat = ", ".join(map(str, range(len(shape))))
    count = a.size
    f = k.view(f"tensor.collapse_shape %arg0 [[{flat}]] : tensor<{'x'.join(map(str, shape))}xf32> into tensor<{count}xf32>", (count,), "f32")
    p = k.view(f"memopt.pad {f.name} {{low = array<i64: 3>, high = array<i64: 0>}} : (tensor<{count}xf32>) -> tensor<{count + 3}xf32>",
               (count + 3,), "f32")
    c = k.view(f"tensor.extract_slice {p.name}[0] [{count}] [1] : tensor<{count + 3}xf32> to tensor<{count}xf32>", (count,), "f32")
    e = k.view(f"tensor.expand_shape {c.name} [[{flat}]] output_shape [{dims(map(str, shape))}] : tensor<{count}xf32> into "
               f"tensor<{'x'.join(map(str, shape))}xf32>", shape, "f32")
    shifted = np.concatenate([np.zeros(3, np.float32), a.ravel()[:-3]]).reshape(shape)
    cases.append(Case(f"shifted_{name}", k.yields(add(e)), [a], [ordered_sum(shifted, kinds)], tolerance=0))

    # Where the results go, a number says: each thread of a device is at other elements.
    if result:
        k = Kernel((shape, "f32"), ((1, *result), "f32"), ((1, *[1] * len(result)), "i64"))
        s = k.reduce([(k.arguments[0], identity)], (result, result_map), kinds, "0.0", ADD)
        sizes, kept_dims = "x".join(map(str, result)), range(2, len(result) + 1)
        groups = ", ".join(["[0, 1]", *(f"[{dim}]" for dim in kept_dims)])
        u = k.view(f"tensor.expand_shape {s.name} [{groups}] output_shape [{dims(map(str, (1, *result)))}] : tensor<{sizes}xf32> into "
                   f"tensor<1x{sizes}xf32>", (1, *result), "f32")
        positions = dims(map(str, range(1, len(result) + 1)))
        r = k.view(f"memopt.scatter %arg1, {u.name}, %arg2 {{kind = #memopt.scatter<set>, indexed = array<i64: 0>, positions = array<i64: "
                   f"{positions}>}} : (tensor<1x{sizes}xf32>, tensor<1x{sizes}xf32>, tensor<1{'x1' * len(result)}xi64>) -> tensor<1x{sizes}xf32>",
                   (1, *result), "f32")
        cases.append(Case(f"placed_{name}", k.yields(r), [a, np.zeros((1, *result), np.float32), np.zeros((1, *[1] * len(result)), np.int64)],
                          [total[None]], tolerance=0))

    # A sum of sums.
    if result:
        k, add = begin()
        s = add(k.arguments[0])
        kept_dims = [f"d{i}" for i in range(len(result))]
        whole = k.reduce([(s, f"({dims(kept_dims)}) -> ({dims(kept_dims)})")], ((), f"({dims(kept_dims)}) -> ()"), "r" * len(result), "0.0", ADD)
        cases.append(Case(f"within_{name}", k.yields(whole, s), [a], [ordered_sum(total, "r" * len(result)), total], tolerance=0))

if __name__ == "__main__":
    main(cases)
