# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of import_numbers.py with their definitions in numpy, in families of one model each."""

import numpy as np

from edge_cases import edges


class Constant:
    """A tensor that the model holds, such as a list of indices written in its code."""

    def __init__(self, values):
        self.values = np.asarray(values)


class Case:
    """`target` without the namespace aten; arguments by the names of its schema. A result None is not looked at.
    `slopes` has, by argument, gradients of the sum of the first result."""

    def __init__(self, name, target, expected, tolerance=2e-6, /, **arguments):
        self.name, self.target, self.tolerance, self.arguments = name, target, tolerance, arguments
        expected = expected if isinstance(expected, (list, tuple)) else [expected]
        self.expected = [e if e is None else np.array(e, order="C") for e in expected]
        self.slopes = {}

    @property
    def row(self):
        return self.target if self.target.count(".") > 1 else f"aten.{self.target}"


def uniform(random, *shape):
    return random.uniform(-1, 1, shape).astype("f4")


# ----------------------------------------------------------------------------------------------------
# Elements by their indices
# ----------------------------------------------------------------------------------------------------

def reading(random):
    x = uniform(random, 4, 5, 6)
    i, j = random.integers(-4, 4, (3, 1)), random.integers(-6, 6, (1, 2))
    yield Case("one index", "index.Tensor", x[:, [1, -1, 0, 1]], self_=x, indices=[None, Constant([1, -1, 0, 1])])
    yield Case("run-time index", "index.Tensor", x[i], self_=x, indices=[i])
    yield Case("neighbours", "index.Tensor", x[i, i], self_=x, indices=[i, i])
    yield Case("apart", "index.Tensor", x[i, :, j], self_=x, indices=[i, None, j])
    yield Case("one of each row", "index.Tensor", x[:, 0][np.arange(4), [3, 0, 5, -6]], self_=x[:, 0].copy(),
               indices=[Constant(np.arange(4)), np.array([3, 0, 5, -6])])
    yield Case("scalar index", "index.Tensor", x[2], self_=x, indices=[np.array(2)])
    mask = np.array([True, False, True, True])
    yield Case("constant mask", "index.Tensor", x[mask], self_=x, indices=[Constant(mask)])
    yield Case("index_select", "index_select.default", x[:, :, [5, 0, 0]], self_=x, dim=-1, index=np.array([5, 0, 0]))
    k = random.integers(0, 5, (3, 2, 6))
    yield Case("gather", "gather.default", np.take_along_axis(x[:3], k, 1), self_=x, dim=1, index=k)
    yield Case("take", "take.default", x.reshape(-1)[[[7, -1], [119, 0]]], self_=x, index=np.array([[7, -1], [119, 0]]))
    k = np.argsort(x, 1)[:, :2]
    yield Case("take_along_dim", "take_along_dim.default", np.take_along_axis(x, k, 1), self_=x, indices=k, dim=1)
    classes = random.integers(0, 7, (2, 3))
    yield Case("one_hot", "one_hot.default", np.eye(7, dtype="i8")[classes], self_=classes, num_classes=7)
    yield from bags(random)


def bags(random):
    table, rows = uniform(random, 9, 4), random.integers(0, 9, 10)
    weights, starts = uniform(random, 10), [0, 3, 3, 8]
    ends = starts[1:] + [10]
    for mode, name, combine in ((0, "sum", np.sum), (1, "mean", np.mean), (2, "max", np.max)):
        picked = [table[rows[a:b]] for a, b in zip(starts, ends)]
        bag = np.array([combine(p, 0) if len(p) else np.zeros(4, "f4") for p in picked])
        yield Case(f"bags, {name}", "embedding_bag.padding_idx",
                   [bag, None, None, None], weight=table, indices=rows, offsets=Constant(starts), scale_grad_by_freq=False, mode=mode,
                   sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None)
    bag = np.array([(table[rows[a:b]] * weights[a:b, None]).sum(0) for a, b in zip(starts, ends)])
    yield Case("weighted bags", "embedding_bag.padding_idx", [bag, None, None, None], weight=table, indices=rows, offsets=Constant(starts),
               scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=weights, include_last_offset=False,
               padding_idx=None)


def experts(random):
    x, matrices = uniform(random, 9, 4), uniform(random, 3, 4, 5)
    ends = np.array([2, 2, 7])  # the second expert has no rows, the last rows have no expert
    product = np.concatenate([x[:2] @ matrices[0], x[2:7] @ matrices[2], np.zeros((2, 5), "f4")])
    yield Case("products by groups", "_grouped_mm.default", product, self_=x, mat2=matrices, offs=ends)
    yield Case("products by groups, of transformers", "transformers.grouped_mm_fallback.default", product, input=x, weight=matrices, offs=ends)
    counts = np.array([False, True, False, True, True, False, False, True, False])
    yield Case("rows that count", "memopt.fill_rows.default", np.where(counts[:, None], x, x[1]), x=x, counts=counts, dim=0)
    yield Case("no row that counts", "memopt.fill_rows.default", np.ones_like(x), x=x, counts=np.zeros(4, bool), dim=1)
    yield Case("each with its own", "_grouped_mm.default", x.reshape(3, 3, 4) @ matrices, self_=x.reshape(3, 3, 4), mat2=matrices)
    places = np.array([[0, 2, 2], [-1, 1.5, 3], [2.5, 0.25, np.nan]], "f4")
    yield Case("a histogram", "histc.default", np.array([2, 1, 3], "f4"), self_=places, bins=3, min=0, max=2.5)
    yield Case("a histogram of all", "histc.default", np.histogram(x, 7)[0].astype("f4"), self_=x, bins=7)
    yield Case("a histogram of equals", "histc.default", np.array([0, 0, 3, 0], "f4"), self_=np.full(3, 5, "f4"), bins=4)


def sums_of_products(random):
    a, b, c = uniform(random, 4, 4), uniform(random, 2, 1, 4, 4), uniform(random, 3, 4, 5)
    cases = [("an ellipsis", "...ij,...jk->...ik", [b, c]), ("of both", "b...ij,jk->b...k", [b, a]),
             ("no result named", "ba,ca", [a, a]), ("an ellipsis, no result named", "i...,...j", [a, c]), ("diagonals", "ii,ij->j", [a, a]),
             ("diagonals of many", "...ii->...i", [b]), ("thrice", "iii->i", [np.stack([a, 2 * a, 3 * a, -a])]),
             ("one for all", "bmij,amij->abmij", [b, uniform(random, 3, 2, 1, 4)]), ("one for all, summed", "mi,mi->", [a, a[:, :1]])]
    for label, equation, operands in cases:
        wide = [operand.astype("f8") for operand in operands]
        yield Case(f"einsum, {label}", "einsum.default", np.einsum(equation, *wide, optimize=False).astype("f4"), 1e-5, equation=equation, tensors=operands)


def writing(random):
    x, y = uniform(random, 5, 6), uniform(random, 3, 6)
    rows = np.array([4, 0, 4])
    added, stored = x.copy(), x.copy()
    np.add.at(added, rows, y)
    stored[rows] = y
    yield Case("index_put", "index_put.default", stored, self_=x, indices=[rows], values=y)
    yield Case("index_put, added", "index_put.default", added, self_=x, indices=[rows], values=y, accumulate=True)
    flags = x > 0
    yield Case("index_put of booleans, added", "index_put.default", flags | (np.arange(5) == 1)[:, None],
               self_=flags, indices=[Constant([1, 1, 0])],
               values=np.broadcast_to([[True], [False], [False]], (3, 6)).copy(), accumulate=True)
    columns = x.copy()
    columns[[0, 2], [1, -1]] = 3
    yield Case("index_put of a number", "index_put.default", columns, self_=x,
               indices=[Constant([0, 2]), Constant([1, -1])], values=np.array(3, "f4"))
    yield Case("index_add", "index_add.default", x + 2 * (added - x), self_=x, dim=0, index=rows, source=y, alpha=2)
    copied = x.copy()
    copied[:, [1, 3]] = y[0, 0] * np.ones((5, 2), "f4")
    yield Case("index_copy", "index_copy.default", copied, self_=x, dim=-1, index=np.array([1, 3]),
               source=np.full((5, 2), y[0, 0], "f4"))
    filled = x.copy()
    filled[[0, -1]] = -2
    yield Case("index_fill", "index_fill.int_Scalar", filled, self_=x, dim=0, index=np.array([0, -1]), value=-2)
    yield from scatters(random)


def scatters(random):
    x, y, i = uniform(random, 4, 6), uniform(random, 3, 8), random.integers(0, 4, (3, 5))

    def scattered(combine, initial=x):
        result = initial.copy()
        for a, b in np.ndindex(i.shape):
            result[i[a, b], b] = combine(result[i[a, b], b], y[a, b])
        return result

    yield Case("scatter", "scatter.src", scattered(lambda old, new: new), self_=x, dim=0, index=i, src=y)
    yield Case("scatter a number", "scatter.value", scattered(lambda old, new: np.float32(7)), self_=x, dim=0, index=i, value=7.0)
    yield Case("scatter_add", "scatter_add.default", scattered(lambda old, new: old + new), self_=x, dim=0, index=i, src=y)
    combinations = {"sum": lambda old, new: old + new, "prod": lambda old, new: old * new, "amax": max, "amin": min}
    for kind, combine in combinations.items():
        yield Case(f"scatter_reduce {kind}", "scatter_reduce.two", scattered(combine), self_=x, dim=0, index=i, src=y, reduce=kind)
    touched = scattered(lambda old, new: old + 1, np.zeros_like(x))
    neutral = {"sum": 0, "prod": 1, "amax": -np.inf, "amin": np.inf}
    for kind, combine in combinations.items():
        alone = scattered(combine, np.full_like(x, neutral[kind]))
        yield Case(f"scatter_reduce {kind} of what comes", "scatter_reduce.two", np.where(touched > 0, alone, x), self_=x,
                   dim=0, index=i, src=y, reduce=kind, include_self=False)
    sums = scattered(lambda old, new: old + new)
    yield Case("scatter_reduce mean", "scatter_reduce.two", sums / (touched + 1), self_=x, dim=0, index=i, src=y, reduce="mean")


# ----------------------------------------------------------------------------------------------------
# Orders and running results
# ----------------------------------------------------------------------------------------------------

def orders(random):
    x = random.permutation(40).reshape(4, 10).astype("f4")
    order = np.argsort(x, 1)
    yield Case("sort", "sort.default", [np.sort(x, 1), order], self_=x, dim=-1, descending=False)
    ties = random.integers(0, 3, (3, 8))
    stable = np.argsort(-ties, 1, kind="stable")
    yield Case("stable sort", "sort.stable", [np.take_along_axis(ties, stable, 1), stable], self_=ties, stable=True, dim=1,
               descending=True)
    yield Case("argsort", "argsort.default", np.argsort(x, 0), self_=x, dim=0)
    yield Case("topk", "topk.default", [-np.sort(-x, 1)[:, :3], np.argsort(-x, 1)[:, :3]], self_=x, k=3)
    yield Case("smallest", "topk.default", [np.sort(x, 0)[:2], np.argsort(x, 0)[:2]], self_=x, k=2, dim=0, largest=False)
    yield Case("kthvalue", "kthvalue.default", [np.sort(x, 1)[:, 3], order[:, 3]], self_=x, k=4)
    yield Case("median", "median.dim", [np.sort(x, 1)[:, 4:5], order[:, 4:5]], self_=x, dim=1, keepdim=True)
    yield Case("median of all", "median.default", np.sort(x.reshape(-1))[19], self_=x)
    missing = x.copy()
    missing[0, :3], missing[2] = np.nan, np.nan
    yield Case("median without NaN", "nanmedian.default", np.sort(missing[~np.isnan(missing)])[13], self_=missing)
    for interpolation in ("linear", "lower", "higher", "midpoint"):
        yield Case(f"quantile, {interpolation}", "quantile.scalar", np.quantile(x, 0.3, 1, method=interpolation).astype("f4"),
                   self_=x, q=0.3, dim=1, interpolation=interpolation)
    edges, values = np.array([-1, 0, 0, 2.5, 7], "f4"), np.array([[-5, -1, 0], [2.5, 2.6, 99]], "f4")
    for right in (False, True):
        places = np.searchsorted(edges, values, "right" if right else "left")
        yield Case("bucketize", "bucketize.Tensor", places, self_=values, boundaries=edges, right=right)
    rows = np.sort(x, 1)
    wanted = uniform(random, 4, 3) * 50
    yield Case("searchsorted", "searchsorted.Tensor", np.array([np.searchsorted(r, w) for r, w in zip(rows, wanted)]),
               sorted_sequence=rows, self_=wanted)


def scans(random):
    x = uniform(random, 3, 7, 2)
    yield Case("cumsum", "cumsum.default", np.cumsum(x, 1), self_=x, dim=1)
    yield Case("count", "cumsum.default", np.cumsum(x > 0, 2), self_=x > 0, dim=-1)
    yield Case("cumprod", "cumprod.default", np.cumprod(x, 1), self_=x, dim=1)
    yield Case("logcumsumexp", "logcumsumexp.default", np.logaddexp.accumulate(x, 1), self_=x, dim=1)
    for name, extreme in (("cummax", np.maximum), ("cummin", np.minimum)):
        values = extreme.accumulate(x, 1)
        places = np.maximum.accumulate(np.where(x == values, np.arange(7)[None, :, None], 0), 1)
        yield Case(name, f"{name}.default", [values, places], self_=x, dim=1)
    yield Case("diff", "diff.default", np.diff(x, 2, 1), self_=x, n=2, dim=1)
    yield Case("no differences", "diff.default", x, self_=x, n=0, dim=1, prepend=x[:, :1].copy())
    yield Case("trapezoid", "trapezoid.dx", (x[:, 1:] + x[:, :-1]).sum(1) / 4, y=x, dx=0.5, dim=1)


# ----------------------------------------------------------------------------------------------------
# Shapes
# ----------------------------------------------------------------------------------------------------

def shapes(random):
    x, square = uniform(random, 2, 3, 4), uniform(random, 5, 5)
    yield Case("flip", "flip.default", x[::-1, :, ::-1], self_=x, dims=[0, -1])
    yield Case("rot90", "rot90.default", np.rot90(x, 3, (1, 2)), self_=x, k=3, dims=[1, 2])
    yield Case("roll", "roll.default", np.roll(x, (1, -1), (0, 2)), self_=x, shifts=[1, -1], dims=[0, 2])
    yield Case("roll of all", "roll.default", np.roll(x, 5), self_=x, shifts=[5])
    yield Case("tile", "tile.default", np.tile(x, (2, 1, 1, 3)), self_=x, dims=[2, 1, 1, 3])
    for offset in (0, 1, -2):
        yield Case(f"diagonal {offset}", "diagonal.default", np.diagonal(x, offset, 1, 2), self_=x, offset=offset, dim1=1, dim2=2)
    yield Case("diag_embed", "diag_embed.default", np.stack([np.diag(r, 1) for r in square]), self_=square, offset=1)
    put = square.copy()
    np.fill_diagonal(put, 9)
    yield Case("diagonal_scatter", "diagonal_scatter.default", put, self_=square, src=np.full(5, 9, "f4"))
    yield Case("trace", "trace.default", np.trace(square), self_=square)
    yield Case("block_diag", "block_diag.default", np.block([[square, np.zeros((5, 4))], [np.zeros((3, 5)), x[0]]]).astype("f4"),
               tensors=[square, x[0]])
    shuffled = x.reshape(1, 2, 3, 4).transpose(0, 2, 1, 3).reshape(1, 6, 4)
    yield Case("channel_shuffle", "channel_shuffle.default", shuffled, self_=x.reshape(1, 6, 4).copy(), groups=2)
    yield Case("as_strided", "as_strided.default", np.lib.stride_tricks.as_strided(x.reshape(-1)[3:], (3, 4), (16, 4)), self_=x,
               size=[3, 4], stride=[4, 1], storage_offset=3)
    windows = np.lib.stride_tricks.sliding_window_view(x, 2, 1)
    yield Case("unfold", "unfold.default", windows, self_=x, dimension=1, size=2, step=1)
    for target, mode, kwargs in (("reflection_pad1d", "reflect", {}), ("replication_pad1d", "edge", {}), ("_pad_circular", "wrap", {})):
        yield Case(f"pad {mode}", f"{target}.default", np.pad(x, ((0, 0), (0, 0), (2, 3)), mode), self_=x,
                   **({"pad": [2, 3]} if mode == "wrap" else {"padding": [2, 3]}))
    planes = uniform(random, 1, 2, 4, 5)
    yield Case("pad reflect 2d", "reflection_pad2d.default", np.pad(planes, ((0, 0), (0, 0), (3, 0), (1, 2)), "reflect"),
               self_=planes, padding=[1, 2, 3, 0])
    yield Case("crop and pad", "constant_pad_nd.default", np.pad(planes[:, :, 1:], ((0, 0),) * 3 + ((2, 0),), constant_values=4),
               self_=planes, pad=[2, 0, -1, 0], value=4.0)
    columns = np.lib.stride_tricks.sliding_window_view(planes, (2, 3), (2, 3)).transpose(0, 1, 4, 5, 2, 3).reshape(1, 12, 9)
    yield Case("im2col", "im2col.default", columns, self_=planes, kernel_size=[2, 3], dilation=[1, 1], padding=[0, 0], stride=[1, 1])
    folded = np.zeros_like(planes)
    for a, b, i, j in np.ndindex(2, 3, 3, 3):
        folded[0, :, a + i, b + j] += columns.reshape(2, 2, 3, 3, 3)[:, a, b, i, j]
    yield Case("col2im", "col2im.default", folded, self_=columns, output_size=[4, 5], kernel_size=[2, 3], dilation=[1, 1],
               padding=[0, 0], stride=[1, 1])


# ----------------------------------------------------------------------------------------------------
# Recurrent layers
# ----------------------------------------------------------------------------------------------------

def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_cell(x, state, weights):
    (h, c), (wi, wh, bi, bh) = state, weights
    i, f, g, o = np.split(x @ wi.T + bi + h @ wh.T + bh, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_cell(x, state, weights):
    (h,), (wi, wh, bi, bh) = state, weights
    (ri, zi, ni), (rh, zh, nh) = np.split(x @ wi.T + bi, 3, -1), np.split(h @ wh.T + bh, 3, -1)
    r, z = sigmoid(ri + rh), sigmoid(zi + zh)
    return ((1 - z) * np.tanh(ni + r * nh) + z * h,)


def tanh_cell(x, state, weights):
    (h,), (wi, wh, bi, bh) = state, weights
    return (np.tanh(x @ wi.T + bi + h @ wh.T + bh),)


def layers(cell, x, states, parameters, directions):
    """x [T, N, F]; states one [layers * directions, N, H] each; gives outputs and last states."""
    last = []
    for layer in range(len(parameters) // directions):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            state, steps = tuple(s[place] for s in states), []
            for step in (x[::-1] if direction else x):
                state = cell(step, state, parameters[place])
                steps.append(state[0])
            outputs.append(np.stack(steps[::-1] if direction else steps))
            last.append(state)
        x = np.concatenate(outputs, -1)
    return [x] + [np.stack(s) for s in zip(*last)]


def recurrent(random):
    for name, cell, gates in (("lstm", lstm_cell, 4), ("gru", gru_cell, 3), ("rnn_tanh", tanh_cell, 1)):
        for count, directions, batch_first in ((1, 1, False), (2, 2, True)):
            steps, batch, features, hidden = 5, 3, 4, 6
            x = uniform(random, steps, batch, features)
            states = [uniform(random, count * directions, batch, hidden) for _ in range(2 if name == "lstm" else 1)]
            parameters = [[uniform(random, *shape) for shape in
                           ((gates * hidden, features if place < directions else hidden * directions),
                            (gates * hidden, hidden), (gates * hidden,), (gates * hidden,))]
                          for place in range(count * directions)]
            expected = layers(cell, x, states, parameters, directions)
            if batch_first:
                x, expected[0] = x.swapaxes(0, 1).copy(), expected[0].swapaxes(0, 1)
            yield Case(f"{name}, {count} layers", f"{name}.input", expected, 5e-6, input=x, hx=states if name == "lstm" else states[0],
                       params=[p for group in parameters for p in group], has_biases=True, num_layers=count, dropout=0.0,
                       train=True, bidirectional=directions == 2, batch_first=batch_first)
    x, state, weights = uniform(random, 3, 4), uniform(random, 3, 6), [uniform(random, *s) for s in ((18, 4), (18, 6), (18,), (18,))]
    yield Case("gru_cell", "gru_cell.default", gru_cell(x, (state,), weights), input=x, hx=state, w_ih=weights[0],
               w_hh=weights[1], b_ih=weights[2], b_hh=weights[3])


# ----------------------------------------------------------------------------------------------------
# Windows over images
# ----------------------------------------------------------------------------------------------------

def images(random):
    x = uniform(random, 2, 3, 7, 5)

    def parts(size, out):
        return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]

    pooled = np.array([[x[:, :, a:b, c:d].mean((2, 3)) for c, d in parts(5, 2)] for a, b in parts(7, 3)])
    yield Case("adaptive mean", "adaptive_avg_pool2d.default", pooled.transpose(2, 3, 0, 1), self_=x, output_size=[3, 2])

    def maxima(x, rows, columns):
        """Of the windows between the rows and the columns, with their places in the image."""
        place = np.array([[[[np.ravel_multi_index((a + k // (d - c), c + k % (d - c)), x.shape[2:])
                             for k in [int(np.argmax(image[a:b, c:d]))]][0] for c, d in columns] for a, b in rows]
                          for image in x.reshape(-1, *x.shape[2:])]).reshape(*x.shape[:2], len(rows), len(columns))
        return [np.take_along_axis(x.reshape(*x.shape[:2], -1), place.reshape(*x.shape[:2], -1), 2).reshape(place.shape), place]

    large = np.round(uniform(random, 2, 3, 19, 23) * 40) / 40  # some are equal
    for image, count in ((x, (3, 2)), (large, (1, 1)), (large, (2, 2))):
        pooled, place = maxima(image, *(parts(size, n) for size, n in zip(image.shape[2:], count)))
        yield Case(f"adaptive maximum {count}", "adaptive_max_pool2d.default", [pooled, place], self_=image, output_size=list(count))
    yield Case("maximum of large windows", "max_pool2d_with_indices.default", maxima(large, [(0, 9), (9, 18)], [(0, 8), (8, 16)]),
               self_=large, kernel_size=[9, 8])
    pooled, place = maxima(x, parts(7, 3), parts(5, 2))
    unpooled = np.zeros((2, 3, 35), "f4")
    np.put_along_axis(unpooled, place.reshape(2, 3, 6), pooled.reshape(2, 3, 6), 2)
    yield Case("max_unpool", "max_unpool2d.default", unpooled.reshape(2, 3, 7, 5), self_=pooled, indices=place, output_size=[7, 5])
    for align in (False, True):
        for padding in range(3):
            for mode in range(2):
                grid = random.uniform(-1.4, 1.4, (2, 4, 6, 2)).astype("f4")
                yield Case(f"grid_sample {mode} {padding} {align}", "grid_sampler.default", grid_sample(x, grid, mode, padding, align),
                           5e-6, input=x, grid=grid, interpolation_mode=mode, padding_mode=padding, align_corners=align)
        theta = uniform(random, 2, 2, 3)
        lines = [np.linspace(-1, 1, n) if align else (np.arange(n) * 2 + 1) / n - 1 for n in (4, 6)]
        base = np.stack(np.broadcast_arrays(lines[1][None, :], lines[0][:, None], 1.0), -1)
        yield Case("affine_grid", "affine_grid_generator.default", np.einsum("hwk,nik->nhwi", base, theta).astype("f4"), theta=theta,
                   size=[2, 3, 4, 6], align_corners=align)


def grid_sample(x, grid, mode, padding, align):
    """Bilinear (0) or nearest (1); outside are zeros (0), the border (1), or reflections (2)."""
    def coordinate(place, size):
        place = (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2
        if padding == 2:
            low, span = (0, size - 1) if align else (-0.5, size)
            turns, rest = divmod(abs(place - low), span)
            place = low + (span - rest if turns % 2 else rest)
        return min(max(place, 0), size - 1) if padding else place

    result = np.zeros(x.shape[:2] + grid.shape[1:3])
    for n, i, j in np.ndindex(*grid.shape[:3]):
        column, row = (coordinate(float(grid[n, i, j, d]), x.shape[3 - d]) for d in range(2))
        if mode == 1:
            taps = [(round(row), round(column), 1.0)]
        else:
            top, left = int(np.floor(row)), int(np.floor(column))
            taps = [(r, c, (1 - abs(row - r)) * (1 - abs(column - c))) for r in (top, top + 1) for c in (left, left + 1)]
        for r, c, weight in taps:
            if 0 <= r < x.shape[2] and 0 <= c < x.shape[3]:
                result[n, :, i, j] += weight * x[n, :, r, c]
    return result.astype("f4")


# ----------------------------------------------------------------------------------------------------
# Attention
# ----------------------------------------------------------------------------------------------------

def attention(random):
    """Batches broadcast as those of a product of matrices; heads of keys too, or they come in groups."""
    def attend(query, key, value):
        scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return ((weights / weights.sum(-1, keepdims=True)) @ value).astype("f4")

    shapes = {"one head": ((2, 4, 3, 8), (2, 1, 5, 8)), "one head for all samples": ((2, 4, 3, 8), (1, 1, 5, 8)),
              "one sample of keys": ((2, 4, 3, 8), (1, 4, 5, 8)), "one query": ((1, 4, 3, 8), (2, 4, 5, 8)),
              "fewer dimensions of keys": ((2, 4, 3, 8), (4, 5, 8)), "fewer of the query": ((4, 3, 8), (2, 4, 5, 8)),
              "three dimensions": ((4, 3, 8), (1, 5, 8))}
    for name, (of_query, of_key) in shapes.items():
        query, key, value = uniform(random, *of_query), uniform(random, *of_key), uniform(random, *of_key[:-1], 6)
        yield Case(name, "scaled_dot_product_attention.default", attend(query, key, value), query=query, key=key, value=value)
    query, key = uniform(random, 2, 4, 3, 8), uniform(random, 1, 2, 5, 8)
    yield Case("groups for all samples", "scaled_dot_product_attention.default",
               attend(query, np.repeat(key, 2, 1), np.repeat(key, 2, 1)), query=query, key=key, value=key, enable_gqa=True)


FAMILIES = {"reading": reading, "experts": experts, "sums of products": sums_of_products, "writing": writing, "orders": orders, "scans": scans, "shapes": shapes,
            "recurrent": recurrent, "images": images, "attention": attention, "edges": lambda random: edges(Case)}
