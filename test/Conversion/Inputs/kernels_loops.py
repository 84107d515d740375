"""Column reductions, windows, gathers, layout changes, views, concatenations."""
import numpy as np

from kernel_testing import Case, Kernel, main, tensor

rng = np.random.default_rng(11)
cases = []


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def add(name, kernel, inputs, expected, **options):
    cases.append(Case(name, kernel, inputs, expected, **options))


ADD = "%s = arith.addf %o0, %a0 : f32\nlinalg.yield %s : f32"
ID2 = "(d0, d1) -> (d0, d1)"
ID3 = "(d0, d1, d2) -> (d0, d1, d2)"

# Sums over leading dimensions, in chunks, with elementwise results beside them.
for chunks, rows, columns in [(1, 1, 1), (1, 5, 3), (2, 7, 10), (3, 10, 64), (4, 33, 65), (2, 300, 63), (8, 4, 768), (1, 1000, 197)]:
    a = normal(chunks * rows, columns)
    wide = a.astype(np.float64).reshape(chunks, rows, columns)
    k = Kernel(((chunks * rows, columns), "f32"))
    x = k.view(f"tensor.expand_shape %arg0 [[0, 1], [2]] output_shape [{chunks}, {rows}, {columns}] : "
               f"{tensor((chunks * rows, columns), 'f32')} into {tensor((chunks, rows, columns), 'f32')}", (chunks, rows, columns), "f32")
    total = k.reduce([(x, ID3)], ((chunks, columns), "(d0, d1, d2) -> (d0, d2)"), "prp", "0.0", ADD)
    mean = k.pointwise([total], "f32", f"%n = arith.constant {float(rows)} : f32\n%s = arith.divf %a0, %n : f32\nlinalg.yield %s : f32")
    square = k.reduce([(x, ID3), (mean, "(d0, d1, d2) -> (d0, d2)")], ((chunks, columns), "(d0, d1, d2) -> (d0, d2)"), "prp", "0.0",
                      "%d = arith.subf %a0, %a1 : f32\n%q = arith.mulf %d, %d : f32\n%s = arith.addf %o0, %q : f32\nlinalg.yield %s : f32")
    relu = k.pointwise([k.arguments[0]], "f32", "%z = arith.constant 0.0 : f32\n%s = arith.maximumf %a0, %z : f32\nlinalg.yield %s : f32")
    mu = wide.mean(1, keepdims=True)
    expected = [mu[:, 0], ((wide - mu) ** 2).sum(1), np.maximum(a, 0)]
    add(f"statistics_{chunks}_{rows}_{columns}", k.yields(mean, square, relu), [a], expected, tolerance=1e-5)
    add(f"statistics_in_place_{chunks}_{rows}_{columns}", k, [a], expected, tolerance=1e-5, result_buffers=[-1, -1, 0])

    # Partials, then the columns of all chunks.
    p = normal(chunks, columns)
    k = Kernel(((chunks, columns), "f32"))
    s = k.reduce([(k.arguments[0], ID2)], ((columns,), "(d0, d1) -> (d1)"), "rp", "0.0", ADD)
    add(f"columns_{chunks}_{rows}_{columns}", k.yields(s), [p], [p.astype(np.float64).sum(0)])

# Channels-first statistics: middle dimension stays.
a = normal(4, 5, 6, 7)
k = Kernel(((4, 5, 6, 7), "f32"))
s = k.reduce([(k.arguments[0], "(d0, d1, d2, d3) -> (d0, d1, d2, d3)")], ((5,), "(d0, d1, d2, d3) -> (d1)"), "rprr", "0.0", ADD)
add("channel_sums", k.yields(s), [a], [a.astype(np.float64).sum((0, 2, 3))])

# Sums over all rows of sums of rows, the second of which needs the first: they have no loop in common.
for rows, columns in [(3, 5), (32, 128), (32, 20), (64, 64)]:
    a, b = normal(rows, columns), normal(rows, columns)
    k = Kernel(((rows, columns), "f32"), ((rows, columns), "f32"))
    square = "%q = arith.mulf %a0, %a0 : f32\n%s = arith.addf %o0, %q : f32\nlinalg.yield %s : f32"
    first, other = (k.reduce([(x, ID2)], ((rows,), "(d0, d1) -> (d0)"), "pr", "0.0", square) for x in k.arguments)
    firsts, others = (k.reduce([(x, "(d0) -> (d0)")], ((), "(d0) -> ()"), "r", "0.0", ADD) for x in (first, other))
    share = k.reduce([(k.arguments[0], ID2), (first, "(d0, d1) -> (d0)"), (firsts, "(d0, d1) -> ()")], ((rows,), "(d0, d1) -> (d0)"), "pr", "0.0",
                     "%d = arith.divf %a1, %a2 : f32\n%q = arith.mulf %a0, %d : f32\n%s = arith.addf %o0, %q : f32\nlinalg.yield %s : f32")
    shares = k.reduce([(share, "(d0) -> (d0)")], ((), "(d0) -> ()"), "r", "0.0", ADD)
    wide, norms = a.astype(np.float64), (a.astype(np.float64) ** 2).sum(1)
    add(f"sums_in_turn_{rows}_{columns}", k.yields(first, others, shares), [a, b],
        [norms, (b.astype(np.float64) ** 2).sum(), (wide * norms[:, None] / norms.sum()).sum()], tolerance=1e-4)

# Group norm: statistics of groups of channels, read back per channel.
a, g = normal(3, 8, 9, 7), normal(8)
wide = a.astype(np.float64)
k = Kernel(((3, 8, 9, 7), "f32"), ((8,), "f32"))
x = k.view("tensor.expand_shape %arg0 [[0], [1, 2], [3], [4]] output_shape [3, 2, 4, 9, 7] : tensor<3x8x9x7xf32> into tensor<3x2x4x9x7xf32>",
           (3, 2, 4, 9, 7), "f32")
full = "(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)"
group = "(d0, d1, d2, d3, d4) -> (d0, d1)"
total = k.reduce([(x, full)], ((3, 2), group), "pprrr", "0.0", ADD)
mean = k.pointwise([total], "f32", "%n = arith.constant 252.0 : f32\n%s = arith.divf %a0, %n : f32\nlinalg.yield %s : f32")
y = k.pointwise([(x, full), (mean, group)], "f32", "%s = arith.subf %a0, %a1 : f32\nlinalg.yield %s : f32", shape=(3, 2, 4, 9, 7))
y = k.view(f"tensor.collapse_shape {y.name} [[0], [1, 2], [3], [4]] : tensor<3x2x4x9x7xf32> into tensor<3x8x9x7xf32>", (3, 8, 9, 7), "f32")
y = k.pointwise([y, (k.arguments[1], "(d0, d1, d2, d3) -> (d1)")], "f32", "%s = arith.mulf %a0, %a1 : f32\nlinalg.yield %s : f32")
mu = wide.reshape(3, 2, -1).mean(2)
add("group_norm", k.yields(y, mean), [a, g],
    [(wide.reshape(3, 2, 4, 9, 7) - mu[:, :, None, None, None]).reshape(a.shape) * g[:, None, None], mu], tolerance=1e-5)

# Windows: clamped taps, channels last; the winner's number beside the maximum.
for n, h, w, c, kernel, stride, pad in [(2, 7, 9, 5, 3, 2, 1), (1, 8, 8, 64, 2, 2, 0), (2, 5, 6, 65, 3, 1, 1)]:
    oh, ow = (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1
    a = normal(n, h, w, c)
    k = Kernel(((n, h, w, c), "f32"))
    maps = "(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d5)"
    # The window's size is the shape of an operand that the body does not read.
    window = k.view(f"tensor.empty() : tensor<{kernel}x{kernel}xf32>", (kernel, kernel), "f32")
    body = [f"%n = linalg.index 0 : index\n%c = linalg.index 5 : index\n%zero = arith.constant 0 : index"]
    for name, out, tap, size in (("y", 1, 3, h), ("x", 2, 4, w)):
        body.append(f"%o_{name} = linalg.index {out} : index\n%t_{name} = linalg.index {tap} : index\n"
                    f"%s_{name} = arith.constant {stride} : index\n%p_{name} = arith.constant {pad} : index\n"
                    f"%m_{name} = arith.muli %o_{name}, %s_{name} : index\n%q_{name} = arith.addi %m_{name}, %t_{name} : index\n"
                    f"%i_{name} = arith.subi %q_{name}, %p_{name} : index\n%last_{name} = arith.constant {size - 1} : index\n"
                    f"%l_{name} = arith.maxsi %i_{name}, %zero : index\n%c_{name} = arith.minsi %l_{name}, %last_{name} : index\n"
                    f"%in_{name} = arith.cmpi eq, %i_{name}, %c_{name} : index")
    body.append(f"%e = tensor.extract %arg0[%n, %c_y, %c_x, %c] : {tensor((n, h, w, c), 'f32')}\n"
                "%in = arith.andi %in_y, %in_x : i1\n%ninf = arith.constant 0xFF800000 : f32\n"
                "%v = arith.select %in, %e, %ninf : f32\n%better = arith.cmpf ogt, %v, %o0 : f32\n"
                f"%r = arith.select %better, %v, %o0 : f32\n%kw = arith.constant {kernel} : index\n"
                "%row = arith.muli %t_y, %kw : index\n%tap = arith.addi %row, %t_x : index\n%tap8 = arith.index_cast %tap : index to i8\n"
                "%win = arith.select %better, %tap8, %o1 : i8\nlinalg.yield %r, %win : f32, i8")
    best, taps = k.generic([(window, "(d0, d1, d2, d3, d4, d5) -> (d3, d4)")],
                           [((n, oh, ow, c), "f32", maps, "0xFF800000"), ((n, oh, ow, c), "i8", maps, "0")], "ppprrp", "\n".join(body))
    padded = np.full((n, h + 2 * pad, w + 2 * pad, c), -np.inf, np.float32)
    padded[:, pad:pad + h, pad:pad + w] = a
    stack = np.stack([padded[:, i:i + stride * oh:stride, j:j + stride * ow:stride][:, :oh, :ow] for i in range(kernel) for j in range(kernel)])
    add(f"max_pool_{h}_{w}_{c}", k.yields(best, taps), [a], [stack.max(0), stack.argmax(0)], tolerance=0)

# Gathers.
for tokens, vocabulary, width in [(1, 1, 1), (10, 7, 3), (33, 50, 64), (64, 100, 197)]:
    table, indices = normal(vocabulary, width), rng.integers(0, vocabulary, tokens)
    k = Kernel(((vocabulary, width), "f32"), ((tokens,), "i64"))
    r = k.generic([(k.arguments[1], "(d0, d1) -> (d0)")], [((tokens, width), "f32", ID2, None)], "pp",
                  f"%i = arith.index_cast %a0 : i64 to index\n%d = linalg.index 1 : index\n"
                  f"%e = tensor.extract %arg0[%i, %d] : {tensor((vocabulary, width), 'f32')}\nlinalg.yield %e : f32")
    add(f"embedding_{tokens}_{width}", k.yields(r), [table, indices], [table[indices]], tolerance=0)
    # The element of a row that a label names.
    rows, labels = normal(tokens, width), rng.integers(0, width, tokens)
    k = Kernel(((tokens, width), "f32"), ((tokens,), "i64"))
    r = k.generic([(k.arguments[1], "(d0) -> (d0)")], [((tokens,), "f32", "(d0) -> (d0)", None)], "p",
                  f"%i = arith.index_cast %a0 : i64 to index\n%t = linalg.index 0 : index\n"
                  f"%e = tensor.extract %arg0[%t, %i] : {tensor((tokens, width), 'f32')}\nlinalg.yield %e : f32")
    add(f"pick_{tokens}_{width}", k.yields(r), [rows, labels], [rows[np.arange(tokens), labels]], tolerance=0)

# Embedding's gradient.
for tokens, vocabulary, width, padding in [(1, 1, 1, None), (40, 7, 3, None), (100, 11, 64, 3), (64, 20, 197, 0)]:
    gradient, indices = normal(tokens, width), rng.integers(0, vocabulary, tokens)
    attribute = "" if padding is None else f" {{padding_index = {padding} : i64}}"
    k = Kernel(((tokens, width), "f32"), ((tokens,), "i64"))
    r = k.view(f"memopt.embedding_backward %arg0, %arg1{attribute} : (tensor<{tokens}x{width}xf32>, tensor<{tokens}xi64>) -> "
               f"tensor<{vocabulary}x{width}xf32>", (vocabulary, width), "f32")
    e = np.zeros((vocabulary, width), np.float32)
    for t in range(tokens):
        if indices[t] != padding:
            e[indices[t]] += gradient[t]
    add(f"embedding_backward_{tokens}_{width}", k.yields(r), [gradient, indices], [e], tolerance=0)

# Scatters: updates come in their order, those outside are left out, here rows -1 and 5 of 5.
where = np.array([[0, 3, 3], [-1, 3, 5], [4, 0, 0], [3, 1, 4]])
base, updates = normal(5, 70), normal(4, 3, 70)
for kind, combine in (("add", np.add), ("set", lambda old, new: new), ("max", np.maximum), ("mul", np.multiply)):
    k = Kernel(((5, 70), "f32"), ((4, 3, 70), "f32"), ((4, 3, 1), "i64"))
    r = k.view(f"memopt.scatter %arg0, %arg1, %arg2 {{kind = #memopt.scatter<{kind}>, indexed = array<i64: 0>, positions = array<i64: 2>}} : "
               "(tensor<5x70xf32>, tensor<4x3x70xf32>, tensor<4x3x1xi64>) -> tensor<5x70xf32>", (5, 70), "f32")
    e = base.copy()
    for token in np.ndindex(where.shape):
        if 0 <= where[token] < 5:
            e[where[token]] = combine(e[where[token]], updates[token])
    add(f"scatter_{kind}", k.yields(r), [base, updates, where[..., None]], [e], tolerance=0)
# A row for each column of an update.
where = rng.integers(0, 9, (3, 9, 8))
base, updates = normal(3, 9, 8), normal(3, 9, 8)
k = Kernel(((3, 9, 8), "f32"), ((3, 9, 8), "f32"), ((3, 9, 8), "i64"))
r = k.view("memopt.scatter %arg0, %arg1, %arg2 {kind = #memopt.scatter<add>, indexed = array<i64: 1>, positions = array<i64: 0, 2>} : "
           "(tensor<3x9x8xf32>, tensor<3x9x8xf32>, tensor<3x9x8xi64>) -> tensor<3x9x8xf32>", (3, 9, 8), "f32")
e = base.copy()
for token in np.ndindex(where.shape):
    e[token[0], where[token], token[2]] += updates[token]
add("scatter_columns", k.yields(r), [base, updates, where], [e], tolerance=0)

# Layout changes.
for shape, permutation in [((7, 10), (1, 0)), ((64, 64), (1, 0)), ((65, 197), (1, 0)), ((3, 5, 7), (2, 0, 1)), ((2, 10, 3, 4, 8), (2, 0, 3, 1, 4)),
                           ((2, 3, 9, 11), (0, 2, 3, 1)), ((2, 9, 11, 64), (0, 3, 1, 2)), ((100, 3), (1, 0)), ((3, 100), (1, 0))]:
    a = normal(*shape)
    result = tuple(shape[p] for p in permutation)
    for name, scale in (("transpose", False), ("transpose_scale", True)):
        k = Kernel((shape, "f32"))
        r = k.view(f"memopt.transpose %arg0 {{permutation = array<i64: {', '.join(map(str, permutation))}>}} : "
                   f"({tensor(shape, 'f32')}) -> {tensor(result, 'f32')}", result, "f32")
        if scale:
            r = k.pointwise([r], "f32", "%s = arith.addf %a0, %a0 : f32\nlinalg.yield %s : f32")
        e = a.transpose(permutation)
        add(f"{name}_{'_'.join(map(str, shape))}", k.yields(r), [a], [e + e if scale else e], tolerance=0)

# Other views.
a = normal(6, 35)
k = Kernel(((6, 35), "f32"))
s = k.view("tensor.extract_slice %arg0[1, 5] [4, 10] [1, 3] : tensor<6x35xf32> to tensor<4x10xf32>", (4, 10), "f32")
add("slice", k.yields(s), [a], [a[1:5, 5:35:3]], tolerance=0)
k = Kernel(((6, 35), "f32"))
s = k.view("tensor.extract_slice %arg0[2, 1] [1, 33] [1, 1] : tensor<6x35xf32> to tensor<33xf32>", (33,), "f32")
add("slice_row", k.yields(s), [a], [a[2, 1:34]], tolerance=0)
k = Kernel(((6, 35), "f32"))
p = k.view("memopt.pad %arg0 {low = array<i64: 1, 2>, high = array<i64: 0, 40>} : (tensor<6x35xf32>) -> tensor<7x77xf32>", (7, 77), "f32")
r = k.pointwise([p], "f32", "%one = arith.constant 1.0 : f32\n%s = arith.addf %a0, %one : f32\nlinalg.yield %s : f32")
add("pad", k.yields(p, r), [a], [np.pad(a, ((1, 0), (2, 40))), np.pad(a, ((1, 0), (2, 40))) + 1], tolerance=0)
b = normal(6, 3)
k = Kernel(((6, 35), "f32"), ((6, 3), "f32"))
c = k.view("tensor.concat dim(1) %arg1, %arg0, %arg1 : (tensor<6x3xf32>, tensor<6x35xf32>, tensor<6x3xf32>) -> tensor<6x41xf32>", (6, 41), "f32")
r = k.pointwise([c], "f32", "%s = arith.mulf %a0, %a0 : f32\nlinalg.yield %s : f32")
e = np.concatenate([b, a, b], 1)
add("concat", k.yields(c), [a, b], [e], tolerance=0)
k2 = Kernel(((6, 35), "f32"), ((6, 3), "f32"))
c = k2.view("tensor.concat dim(1) %arg1, %arg0, %arg1 : (tensor<6x3xf32>, tensor<6x35xf32>, tensor<6x3xf32>) -> tensor<6x41xf32>", (6, 41), "f32")
r = k2.pointwise([c], "f32", "%s = arith.mulf %a0, %a0 : f32\nlinalg.yield %s : f32")
add("concat_squared", k2.yields(r), [a, b], [e * e], tolerance=0)
k = Kernel(((6, 35), "f32"), ((2, 35), "f32"))
c = k.view("tensor.concat dim(0) %arg1, %arg0 : (tensor<2x35xf32>, tensor<6x35xf32>) -> tensor<8x35xf32>", (8, 35), "f32")
b = normal(2, 35)
add("concat_rows", k.yields(c), [a, b], [np.concatenate([b, a])], tolerance=0)
# Over the operand whose head is its first piece; the others are written elsewhere.
whole, rest = normal(20, 6), normal(4, 6)
k = Kernel(((20, 6), "f32"), ((4, 6), "f32"))
h = k.view("tensor.extract_slice %arg0[0, 0] [4, 6] [1, 1] : tensor<20x6xf32> to tensor<4x6xf32>", (4, 6), "f32")
h = k.pointwise([h], "f32", "%s = arith.mulf %a0, %a0 : f32\nlinalg.yield %s : f32")
c = k.view(f"tensor.concat dim(0) {h.name}, %arg1, %arg1, %arg1, %arg1 : (" + ", ".join(["tensor<4x6xf32>"] * 5) + ") -> tensor<20x6xf32>", (20, 6), "f32")
add("concat_over_its_head", k.yields(c), [whole, rest], [np.concatenate([whole[:4] ** 2, rest, rest, rest, rest])], tolerance=0, result_buffers=[0])
k = Kernel(((35,), "f32"))
r = k.view("memopt.broadcast %arg0 {dimensions = array<i64: 1>} : (tensor<35xf32>) -> tensor<4x35xf32>", (4, 35), "f32")
i = k.view("memopt.iota {dimension = 1 : i64} : () -> tensor<4x35xi64>", (4, 35), "i64")
f = k.view("arith.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>", (1, 3), "f32")
add("broadcast_iota_constant", k.yields(r, i, f), [a[0]], [np.tile(a[0], (4, 1)), np.tile(np.arange(35), (4, 1)), [[1, 2, 3]]], tolerance=0)
k = Kernel(((6, 35), "f32"))
r = k.view("tensor.collapse_shape %arg0 [[0, 1]] : tensor<6x35xf32> into tensor<210xf32>", (210,), "f32")
r = k.view(f"tensor.expand_shape {r.name} [[0, 1]] output_shape [14, 15] : tensor<210xf32> into tensor<14x15xf32>", (14, 15), "f32")
t = k.view(f"memopt.transpose {r.name} {{permutation = array<i64: 1, 0>}} : (tensor<14x15xf32>) -> tensor<15x14xf32>", (15, 14), "f32")
add("reshape", k.yields(r, t), [a], [a.reshape(14, 15), a.reshape(14, 15).T], tolerance=0)

# A reduction of a reduction, and one whose input is padded.
a = normal(4, 9, 65)
k = Kernel(((4, 9, 65), "f32"))
inner = k.reduce([(k.arguments[0], ID3)], ((4, 9), "(d0, d1, d2) -> (d0, d1)"), "ppr", "0.0", ADD)
outer = k.reduce([(inner, ID2)], ((4,), "(d0, d1) -> (d0)"), "pr", "0xFF800000", "%s = arith.maximumf %o0, %a0 : f32\nlinalg.yield %s : f32")
add("max_of_sums", k.yields(outer), [a], [a.astype(np.float64).sum(2).max(1)])
k = Kernel(((4, 9, 65), "f32"))
p = k.view("memopt.pad %arg0 {low = array<i64: 0, 1, 3>, high = array<i64: 0, 0, 2>} : (tensor<4x9x65xf32>) -> tensor<4x10x70xf32>", (4, 10, 70), "f32")
s = k.reduce([(p, ID3)], ((4, 10), "(d0, d1, d2) -> (d0, d1)"), "ppr", "0.0", ADD)
add("sum_padded", k.yields(s), [a], [np.pad(a.astype(np.float64), ((0, 0), (1, 0), (3, 2))).sum(2)])

# Sums over rows and columns in one loop, of values for each row, for each column, and of every other row; pieces that are joined.
MUL = "%p = arith.mulf %a0, %a1 : f32\n%q = arith.mulf %p, %a2 : f32\n%s = arith.addf %o0, %q : f32\nlinalg.yield %s : f32"
for rows, columns in [(16, 8), (100, 8), (33, 4), (50, 16), (20, 64), (9, 128), (40, 6), (12, 80)]:
    a, b, c = (abs(normal(*shape)) for shape in ((rows, columns), (rows,), (columns,)))
    k = Kernel(((rows, columns), "f32"), ((rows,), "f32"), ((columns,), "f32"))
    total = k.reduce([(k.arguments[0], ID2), (k.arguments[1], "(d0, d1) -> (d0)"), (k.arguments[2], "(d0, d1) -> (d1)")],
                     ((), "(d0, d1) -> ()"), "rr", "0.0", MUL)
    add(f"sum_of_shared_{rows}_{columns}", k.yields(total), [a, b, c], [(a.astype(np.float64) * b[:, None] * c).sum()])
    strided, head = abs(normal(2 * rows, 3)), abs(normal(1, columns))
    k = Kernel(((rows, columns), "f32"), ((2 * rows, 3), "f32"), ((1, columns), "f32"), ((rows - 1, columns), "f32"))
    every = k.view(f"tensor.extract_slice %arg1[1, 2] [{rows}, 1] [2, 1] : tensor<{2 * rows}x3xf32> to tensor<{rows}xf32>", (rows,), "f32")
    joined = k.view(f"tensor.concat dim(0) %arg2, %arg3 : (tensor<1x{columns}xf32>, tensor<{rows - 1}x{columns}xf32>) -> tensor<{rows}x{columns}xf32>",
                    (rows, columns), "f32")
    total = k.reduce([(k.arguments[0], ID2), (every, "(d0, d1) -> (d0)"), (joined, ID2)], ((), "(d0, d1) -> ()"), "rr", "0.0", MUL)
    add(f"sum_of_strided_{rows}_{columns}", k.yields(total), [a, strided, head, a[1:]],
        [(a.astype(np.float64) * strided[1::2, 2][:, None] * np.concatenate([head, a[1:]])).sum()])

# Two matrices that are transposed and interleaved, as the parts of complex numbers are.
for rows, columns, dtype in [(32, 32, "f32"), (144, 32, "f32"), (40, 17, "f32"), (36, 24, "f64"), (7, 5, "f32")]:
    real, imaginary, other = (normal(*shape, dtype=np.float32 if dtype == "f32" else np.float64)
                              for shape in ((rows, columns), (rows, columns), (columns, rows, 2)))
    k = Kernel(((rows, columns), dtype), ((rows, columns), dtype), ((columns, rows, 2), dtype))
    turned = []
    for part in k.arguments[:2]:
        t = k.view(f"memopt.transpose {part.name} {{permutation = array<i64: 1, 0>}} : ({part.type}) -> {tensor((columns, rows), dtype)}", (columns, rows), dtype)
        turned.append(k.view(f"tensor.expand_shape {t.name} [[0], [1, 2]] output_shape [{columns}, {rows}, 1] : {t.type} into "
                             f"{tensor((columns, rows, 1), dtype)}", (columns, rows, 1), dtype))
    pairs = k.view(f"tensor.concat dim(2) {turned[0].name}, {turned[1].name} : ({turned[0].type}, {turned[1].type}) -> {k.arguments[2].type}",
                   (columns, rows, 2), dtype)
    r = k.pointwise([pairs, k.arguments[2]], dtype, f"%s = arith.mulf %a0, %a1 : {dtype}\nlinalg.yield %s : {dtype}")
    add(f"interleaved_{rows}_{columns}_{dtype}", k.yields(r), [real, imaginary, other], [np.stack([real.T, imaginary.T], 2) * other], tolerance=0)

# Rows that depend on a statistic of the whole.
a = normal(300, 65)
k = Kernel(((300, 65), "f32"))
total = k.reduce([(k.arguments[0], ID2)], ((), "(d0, d1) -> ()"), "rr", "0.0", ADD)
r = k.pointwise([k.arguments[0], (total, "(d0, d1) -> ()")], "f32", "%s = arith.subf %a0, %a1 : f32\nlinalg.yield %s : f32")
add("whole_statistic", k.yields(r, total), [a], [a - a.astype(np.float64).sum(), a.astype(np.float64).sum()], tolerance=1e-5)

if __name__ == "__main__":
    main(cases)
