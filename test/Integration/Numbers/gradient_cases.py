# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of one op each, for the check of gradients against finite differences.

A case becomes a module in f64 whose trainable parameters p0, p1, ... have random values. The step adds an
input d0, d1, ... to each, so that one run of the program can evaluate the loss at many places, applies
the op, and returns the sum of its results weighted by inputs c0, c1, ....

In a case's text $p0 is the first operand and $t0 its type, $i0 and $u0 those of the first integer
input, and %r0, %r1, ... are the results whose shapes the case lists.
"""

import dataclasses
import string

import numpy


@dataclasses.dataclass
class Integers:
    """An integer or boolean input, its values drawn from [low, high)."""
    shape: tuple
    low: int
    high: int
    element: str = "i64"


@dataclasses.dataclass
class Case:
    name: str
    shapes: list            # of the differentiated operands
    text: str
    results: list           # shapes of %r0, %r1, ...
    integers: list = dataclasses.field(default_factory=list)
    low: float = -1.5       # operands are drawn from [low, high)
    high: float = 1.5
    gap: float = 0.05       # and lie at least this far from zero, where many ops have a kink


def tensor_type(shape, element="f64"):
    return "tensor<" + "".join(f"{size}x" for size in shape) + element + ">"


def array(values):
    values = list(values)
    return "array<i64: " + ", ".join(map(str, values)) + ">" if values else "array<i64>"


def dense(values):
    return "dense<" + str(values.tolist()).replace("'", "") + ">"


def random_values(case, shape, generator):
    values = generator.uniform(case.low, case.high, shape)
    values = numpy.where(numpy.abs(values) < case.gap, case.gap * 2, values)
    # Equal values would be ties, which have no derivative.
    return values + numpy.arange(values.size).reshape(shape) * 1e-3


def weighted_sum(number, shape):
    """The lines that make %s<number>, the sum of %r<number> weighted by %c<number>."""
    kind, scalar = tensor_type(shape), tensor_type(())
    lines = [f"  %w{number} = arith.mulf %r{number}, %c{number} : {kind}"]
    if shape:
        lines.append(f"  %s{number} = memopt.reduce %w{number} {{kind = #memopt.reduce<add>, dimensions = "
                     f"{array(range(len(shape)))}}} : ({kind}) -> {scalar}")
    else:
        lines.append(f"  %s{number} = arith.addf %w{number}, %zero : {scalar}")
    return lines


def build(case, seed=0):
    """The module's text and the inputs by name."""
    generator = numpy.random.default_rng(seed)
    inputs, arguments, variables, body = {}, [], [], []
    names = {}
    for number, shape in enumerate(case.shapes):
        kind = tensor_type(shape)
        values = random_values(case, shape, generator)
        variables.append(f"memopt.variable @p{number} : {kind} role <parameter> "
                         f'{{trainable, names = ["p{number}"], initial = {dense(values)} : {kind}}}')
        inputs[f"d{number}"] = numpy.zeros(shape)
        arguments.append(f'%d{number}: {kind} {{memopt.name = "d{number}"}}')
        body.append(f"  %v{number} = memopt.read @p{number} : {kind}")
        body.append(f"  %x{number} = arith.addf %v{number}, %d{number} : {kind}")
        names |= {f"p{number}": f"%x{number}", f"t{number}": kind}
    for number, integers in enumerate(case.integers):
        kind = tensor_type(integers.shape, integers.element)
        dtype = {"i64": numpy.int64, "i32": numpy.int32, "i1": numpy.bool_}[integers.element]
        inputs[f"i{number}"] = generator.integers(integers.low, integers.high, integers.shape).astype(dtype)
        arguments.append(f'%i{number}: {kind} {{memopt.name = "i{number}"}}')
        names |= {f"i{number}": f"%i{number}", f"u{number}": kind}
    for number, shape in enumerate(case.results):
        inputs[f"c{number}"] = generator.uniform(0.5, 1.5, shape)
        arguments.append(f'%c{number}: {tensor_type(shape)} {{memopt.name = "c{number}"}}')
    body.append("  " + string.Template(case.text.strip()).substitute(names))
    body.append("  %zero = arith.constant dense<0.0> : tensor<f64>")
    total = "%zero"
    for number, shape in enumerate(case.results):
        body += weighted_sum(number, shape)
        body.append(f"  %a{number} = arith.addf {total}, %s{number} : tensor<f64>")
        total = f"%a{number}"
    text = "\n".join(variables)
    text += "\nfunc.func @train_step(" + ", ".join(arguments) + ")\n"
    text += '    -> (tensor<f64> {memopt.name = "loss", memopt.role = "loss"}) {\n'
    text += "\n".join(body) + f"\n  return {total} : tensor<f64>\n}}\n"
    return text, inputs


# ----------------------------------------------------------------------------------------------------------
# Elementwise ops
# ----------------------------------------------------------------------------------------------------------

def elementwise_cases():
    shape = (3, 5)
    kind = tensor_type(shape)
    anywhere = ["absf", "exp", "exp2", "expm1", "erf", "erfc", "sin", "cos", "tanh", "atan", "sinh", "cosh",
                "asinh"]
    positive = ["log", "log2", "log10", "sqrt", "rsqrt", "cbrt"]
    inside_one = ["log1p", "asin", "acos", "atanh", "tan"]
    for name in anywhere:
        yield Case(name, [shape], f"%r0 = math.{name} $p0 : $t0", [shape])
    for name in positive:
        yield Case(name, [shape], f"%r0 = math.{name} $p0 : $t0", [shape], low=0.3, high=2.0)
    for name in inside_one:
        yield Case(name, [shape], f"%r0 = math.{name} $p0 : $t0", [shape], low=-0.8, high=0.8)
    yield Case("acosh", [shape], "%r0 = math.acosh $p0 : $t0", [shape], low=1.5, high=3.0)
    yield Case("negf", [shape], "%r0 = arith.negf $p0 : $t0", [shape])
    for name in ["addf", "subf", "mulf", "divf", "remf", "maximumf", "minimumf", "maxnumf", "minnumf"]:
        yield Case(name, [shape, shape], f"%r0 = arith.{name} $p0, $p1 : $t0", [shape], gap=0.2)
    yield Case("square", [shape], "%r0 = arith.mulf $p0, $p0 : $t0", [shape])
    yield Case("scalar_mulf", [(), ()], "%r0 = arith.mulf $p0, $p1 : $t0", [()])
    yield Case("atan2", [shape, shape], "%r0 = math.atan2 $p0, $p1 : $t0", [shape], gap=0.2)
    yield Case("copysign", [shape, shape], "%r0 = math.copysign $p0, $p1 : $t0", [shape], gap=0.2)
    yield Case("powf", [shape, shape], "%r0 = math.powf $p0, $p1 : $t0", [shape], low=0.3, high=2.0)
    for power in ["0.0", "1.0", "2.0", "3.0", "0.5", "1.5", "-0.5", "-1.0"]:
        yield Case(f"powf_{power}", [shape],
                   f"%n = arith.constant dense<{power}> : $t0\n  %r0 = math.powf $p0, %n : $t0", [shape],
                   low=0.3, high=2.0)
    for power in [0, 1, 2, 3, -1]:
        yield Case(f"fpowi_{power}", [shape],
                   f"%n = arith.constant dense<{power}> : tensor<3x5xi64>\n"
                   "  %r0 = math.fpowi $p0, %n : $t0, tensor<3x5xi64>", [shape], gap=0.3)
    yield Case("fma", [shape] * 3, "%r0 = math.fma $p0, $p1, $p2 : $t0", [shape])
    yield Case("select", [shape, shape], f"%r0 = arith.select $i0, $p0, $p1 : $u0, {kind}", [shape],
               [Integers(shape, 0, 2, "i1")])
    yield Case("select_by_comparison", [shape, shape],
               f"%m = arith.cmpf olt, $p0, $p1 : $t0\n  %r0 = arith.select %m, $p0, $p1 : {tensor_type(shape, 'i1')}, $t0",
               [shape])
    for name in ["relu", "sigmoid", "softplus"]:
        yield Case(name, [shape], f"%r0 = memopt.{name} $p0 : $t0", [shape])
    yield Case("used_twice", [shape],
               "%a = math.exp $p0 : $t0\n  %b = math.sin $p0 : $t0\n  %r0 = arith.mulf %a, %b : $t0", [shape])


# ----------------------------------------------------------------------------------------------------------
# Shapes
# ----------------------------------------------------------------------------------------------------------

def shape_cases():
    for name, source, target, dimensions in [
            ("scalar", (), (2, 3), []), ("row", (3,), (2, 3), [1]), ("column", (2,), (2, 3), [0]),
            ("ones", (2, 1, 3), (2, 4, 3), [0, 1, 2]), ("ones_and_new", (1, 3), (4, 2, 3), [1, 2]),
            ("middle", (2, 4), (2, 3, 4), [0, 2]), ("all_ones", (1, 1), (3, 2), [0, 1])]:
        yield Case(f"broadcast_{name}", [source],
                   f"%r0 = memopt.broadcast $p0 {{dimensions = {array(dimensions)}}} : ($t0) -> "
                   f"{tensor_type(target)}", [target])
    for name, source, permutation in [("2d", (2, 3), [1, 0]), ("3d", (2, 3, 4), [2, 0, 1]),
                                      ("4d", (2, 3, 2, 2), [0, 2, 3, 1])]:
        target = tuple(source[i] for i in permutation)
        yield Case(f"transpose_{name}", [source],
                   f"%r0 = memopt.transpose $p0 {{permutation = {array(permutation)}}} : ($t0) -> "
                   f"{tensor_type(target)}", [target])
    for kind in ["add", "mul", "max", "min"]:
        for source, dimensions in [((2, 3), [0]), ((2, 3), [0, 1]), ((2, 3, 4), [1]), ((2, 1, 4), [1, 2])]:
            target = tuple(size for i, size in enumerate(source) if i not in dimensions)
            name = f"reduce_{kind}_{'x'.join(map(str, source))}_{'_'.join(map(str, dimensions))}"
            yield Case(name, [source],
                       f"%r0 = memopt.reduce $p0 {{kind = #memopt.reduce<{kind}>, dimensions = "
                       f"{array(dimensions)}}} : ($t0) -> {tensor_type(target)}", [target])
    yield Case("pad", [(2, 3)],
               f"%r0 = memopt.pad $p0 {{low = {array([1, 0])}, high = {array([0, 2])}}} : ($t0) -> {tensor_type((3, 5))}",
               [(3, 5)])
    yield Case("collapse_shape", [(2, 3, 4)],
               f"%r0 = tensor.collapse_shape $p0 [[0, 1], [2]] : $t0 into {tensor_type((6, 4))}", [(6, 4)])
    yield Case("expand_shape", [(6, 4)],
               f"%r0 = tensor.expand_shape $p0 [[0, 1], [2]] output_shape [2, 3, 4] : $t0 into "
               f"{tensor_type((2, 3, 4))}", [(2, 3, 4)])
    yield Case("expand_scalar", [()],
               f"%r0 = tensor.expand_shape $p0 [] output_shape [1, 1] : $t0 into {tensor_type((1, 1))}", [(1, 1)])
    yield Case("extract_slice", [(4, 5)],
               f"%r0 = tensor.extract_slice $p0[1, 2] [2, 3] [1, 1] : $t0 to {tensor_type((2, 3))}", [(2, 3)])
    yield Case("extract_slice_rank_reduced", [(4, 5)],
               f"%r0 = tensor.extract_slice $p0[2, 0] [1, 5] [1, 1] : $t0 to {tensor_type((5,))}", [(5,)])
    yield Case("extract_slice_strided", [(4, 6)],
               f"%r0 = tensor.extract_slice $p0[0, 1] [4, 3] [1, 2] : $t0 to {tensor_type((4, 3))}", [(4, 3)])
    yield Case("extract_slice_strided_to_the_end", [(5, 3, 7)],
               f"%r0 = tensor.extract_slice $p0[1, 0, 0] [2, 3, 3] [3, 1, 3] : $t0 to {tensor_type((2, 3, 3))}", [(2, 3, 3)])
    yield Case("split_in_three", [(2, 6)],
               "\n  ".join(f"%r{i} = tensor.extract_slice $p0[0, {2 * i}] [2, 2] [1, 1] : $t0 to {tensor_type((2, 2))}"
                           for i in range(3)), [(2, 2)] * 3)
    yield Case("overlapping_slices", [(2, 6)],
               "\n  ".join(f"%r{i} = tensor.extract_slice $p0[0, {i}] [2, 4] [1, 1] : $t0 to {tensor_type((2, 4))}"
                           for i in range(3)), [(2, 4)] * 3)
    yield Case("concat", [(2, 3), (2, 1), (2, 2)],
               f"%r0 = tensor.concat dim(1) $p0, $p1, $p2 : ($t0, $t1, $t2) -> {tensor_type((2, 6))}", [(2, 6)])
    for name, padding, low in [("", "", 0), ("_padding", " {padding_index = 2 : i64}", 3)]:
        # Rows at the padding index get no gradient by definition: none is drawn.
        yield Case(f"embedding{name}", [(5, 3)],
                   f"%r0 = memopt.embedding $p0, $i0{padding} : ($t0, $u0) -> {tensor_type((2, 4, 3))}",
                   [(2, 4, 3)], [Integers((2, 4), low, 5)])


# ----------------------------------------------------------------------------------------------------------
# Products
# ----------------------------------------------------------------------------------------------------------

def matmul_cases():
    for batch in [(), (2,), (2, 3)]:
        for transpose_a in [False, True]:
            for transpose_b in [False, True]:
                a = batch + ((4, 3) if transpose_a else (3, 4))
                b = batch + ((5, 4) if transpose_b else (4, 5))
                flags = [f for f, on in [("transpose_a", transpose_a), ("transpose_b", transpose_b)] if on]
                attributes = " {" + ", ".join(flags) + "}" if flags else ""
                name = "_".join(["matmul", str(len(batch))] + flags)
                yield Case(name, [a, b],
                           f"%r0 = memopt.matmul $p0, $p1{attributes} : ($t0, $t1) -> {tensor_type(batch + (3, 5))}",
                           [batch + (3, 5)])


def window(strides, low, high, dilations=None, kernel=None, layout="channels_first"):
    parts = [f"kernel = {array(kernel)}"] if kernel else []
    parts += [f"strides = {array(strides)}", f"padding_low = {array(low)}", f"padding_high = {array(high)}"]
    if dilations:
        parts.append(f"dilations = {array(dilations)}")
    parts.append(f"layout = #memopt.layout<{layout}>")
    return ", ".join(parts)


def window_count(size, kernel, stride, low, high, dilation):
    return (size + low + high - dilation * (kernel - 1) - 1) // stride + 1


def activation(batch, channels, spatial, layout):
    return (batch,) + spatial + (channels,) if layout == "channels_last" else (batch, channels) + spatial


def convolution_cases():
    for name, spatial, kernel, strides, low, high, dilations, groups, layout in [
            ("1d", (7,), (3,), (1,), (1,), (1,), (1,), 1, "channels_first"),
            ("2d", (5, 4), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, "channels_first"),
            ("strided", (6, 5), (3, 2), (2, 2), (1, 0), (1, 1), (1, 1), 1, "channels_first"),
            ("rest", (6, 6), (3, 3), (2, 2), (0, 0), (0, 0), (1, 1), 1, "channels_first"),
            ("dilated", (6, 6), (2, 3), (1, 1), (0, 1), (0, 1), (2, 2), 1, "channels_first"),
            ("grouped", (4, 4), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 2, "channels_first"),
            ("depthwise", (4, 4), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 4, "channels_first"),
            ("pointwise", (3, 3), (1, 1), (1, 1), (0, 0), (0, 0), (1, 1), 1, "channels_first"),
            ("channels_last", (5, 4), (3, 3), (2, 1), (1, 1), (1, 1), (1, 1), 1, "channels_last"),
            ("3d", (3, 3, 2), (2, 2, 2), (1, 1, 1), (0, 1, 0), (0, 0, 1), (1, 1, 1), 1, "channels_first")]:
        counts = tuple(map(window_count, spatial, kernel, strides, low, high, dilations))
        inputs, outputs = activation(2, 4, spatial, layout), activation(2, 8, counts, layout)
        filters = (8, 4 // groups) + kernel
        attributes = window(strides, low, high, dilations, layout=layout) + f", groups = {groups} : i64"
        yield Case(f"convolution_{name}", [inputs, filters],
                   f"%r0 = memopt.convolution $p0, $p1 {{{attributes}}} : ($t0, $t1) -> {tensor_type(outputs)}", [outputs])
        yield Case(f"transposed_convolution_{name}", [outputs, filters],
                   f"%r0 = memopt.convolution_backward_data $p0, $p1 {{{attributes}}} : ($t0, $t1) -> "
                   f"{tensor_type(inputs)}", [inputs])


def attention_cases():
    for name, heads, groups, queries, keys, mask, attributes in [
            ("plain", 2, 2, 4, 4, None, ""), ("causal", 2, 2, 5, 5, None, "causal, "),
            ("grouped", 4, 2, 3, 5, None, ""), ("cross", 2, 2, 3, 6, None, ""),
            ("mask", 2, 2, 4, 4, (1, 1, 4, 4), ""), ("batch_mask", 2, 1, 4, 4, (2, 1, 1, 4), "causal, ")]:
        result, logsumexp = (2, heads, queries, 5), (2, heads, queries)
        operands = "$p0, $p1, $p2" + (", $i0" if mask else "")
        types = "$t0, $t1, $t2" + (", $u0" if mask else "")
        segments = f"operandSegmentSizes = array<i32: 1, 1, 1, {int(mask is not None)}, 0, 0, 0>"
        yield Case(f"attention_{name}", [(2, heads, queries, 3), (2, groups, keys, 3), (2, groups, keys, 5)],
                   f"%r0, %lse = memopt.attention {operands} {{{attributes}scale = 0.7 : f64, {segments}}} : ({types}) -> "
                   f"({tensor_type(result)}, {tensor_type(logsumexp)})", [result],
                   [Integers(mask, 0, 2, "i1")] if mask else [])
    yield from trained_mask_cases()


def trained_mask_cases():
    """A mask of numbers has a gradient, summed over what shares it."""
    for name, heads, groups, mask, attributes in [
            ("whole", 2, 2, (2, 2, 3, 4), ""), ("positions", 4, 2, (1, 4, 3, 4), ""),
            ("keys", 2, 2, (2, 1, 1, 4), "causal, "), ("queries", 2, 1, (1, 1, 3, 1), "")]:
        result, logsumexp = (2, heads, 3, 5), (2, heads, 3)
        yield Case(f"attention_trained_{name}", [(2, heads, 3, 3), (2, groups, 4, 3), (2, groups, 4, 5), mask],
                   f"%r0, %lse = memopt.attention $p0, $p1, $p2, $p3 {{{attributes}scale = 0.7 : f64, "
                   "operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>} : ($t0, $t1, $t2, $t3) -> "
                   f"({tensor_type(result)}, {tensor_type(logsumexp)})", [result])


# ----------------------------------------------------------------------------------------------------------
# Norms, softmax, losses, windows
# ----------------------------------------------------------------------------------------------------------

def affine(forms):
    """Operands after the input, their types and segment sizes for a norm with `forms` of scale, offset."""
    return ("".join(f", $p{i + 1}" for i in range(forms)), "".join(f", $t{i + 1}" for i in range(forms)),
            f"operandSegmentSizes = array<i32: 1, {int(forms > 0)}, {int(forms > 1)}>")


def norm_cases():
    for forms in [0, 1, 2]:
        operands, types, segments = affine(forms)
        for shape, axis in [((4, 3), 1), ((3, 2, 2, 3), 1), ((3, 2, 2, 4), 3)]:
            channel = (shape[axis],)
            for statistics in [False, True]:
                names = "%r0, %r1, %r2" if statistics else "%r0, %m, %v"
                yield Case(f"batch_norm_{len(shape)}d_axis{axis}_{forms}{'_statistics' if statistics else ''}",
                           [shape] + [channel] * forms,
                           f"{names} = memopt.batch_norm $p0{operands} {{eps = 1.0e-3 : f64, axis = {axis} : i64, {segments}}} : "
                           f"($t0{types}) -> ({tensor_type(shape)}, {tensor_type(channel)}, {tensor_type(channel)})",
                           [shape] + [channel] * 2 * statistics)
        for shape, begin in [((3, 5), 1), ((2, 3, 4), 1), ((2, 3, 4), 2)]:
            rows = shape[:begin]
            for statistics in [False, True]:
                names = "%r0, %r1, %r2" if statistics else "%r0, %m, %v"
                yield Case(f"layer_norm_{len(shape)}d_{begin}_{forms}{'_statistics' if statistics else ''}",
                           [shape] + [shape[begin:]] * forms,
                           f"{names} = memopt.layer_norm $p0{operands} {{eps = 1.0e-3 : f64, begin = {begin} : i64, {segments}}} : "
                           f"($t0{types}) -> ({tensor_type(shape)}, {tensor_type(rows)}, {tensor_type(rows)})",
                           [shape] + [rows] * 2 * statistics)
        for shape, groups in [((2, 4, 3), 2), ((2, 4, 2, 2), 1), ((2, 4, 2, 2), 4), ((3, 6), 3)]:
            rows = (shape[0], groups)
            for statistics in [False, True]:
                names = "%r0, %r1, %r2" if statistics else "%r0, %m, %v"
                yield Case(f"group_norm_{len(shape)}d_{groups}_{forms}{'_statistics' if statistics else ''}",
                           [shape] + [(shape[1],)] * forms,
                           f"{names} = memopt.group_norm $p0{operands} {{eps = 1.0e-3 : f64, groups = {groups} : i64, {segments}}} : "
                           f"($t0{types}) -> ({tensor_type(shape)}, {tensor_type(rows)}, {tensor_type(rows)})",
                           [shape] + [rows] * 2 * statistics)
    for scaled in [0, 1]:
        for shape, begin in [((3, 5), 1), ((2, 3, 4), 1), ((2, 3, 4), 2)]:
            yield Case(f"rms_norm_{len(shape)}d_{begin}_{scaled}", [shape] + [shape[begin:]] * scaled,
                       f"%r0 = memopt.rms_norm $p0{', $p1' * scaled} {{eps = 1.0e-3 : f64, begin = {begin} : i64}} : "
                       f"($t0{', $t1' * scaled}) -> $t0", [shape])


def loss_cases():
    for name in ["softmax", "log_softmax"]:
        for shape, axis in [((3, 5), 1), ((2, 3, 4), 1)]:
            yield Case(f"{name}_{len(shape)}d", [shape],
                       f"%r0 = memopt.{name} $p0 {{axis = {axis} : i64}} : ($t0) -> $t0", [shape])
    scalars = "(tensor<f64>, tensor<f64>, tensor<6xf64>, tensor<6xf64>)"
    for name, attributes, ignored in [("plain", "", False), ("ignore", "ignore_index = 1 : i64", True),
                                      ("smooth", "label_smoothing = 0.1 : f64", False),
                                      ("smooth_ignore", "label_smoothing = 0.2 : f64, ignore_index = 1 : i64", True)]:
        for weighted in [False, True]:
            constant = "%k = arith.constant dense<[0.5, 1.5, 1.0, 0.7]> : tensor<4xf64>\n  " if weighted else ""
            operands, types = ("$p0, $i0, %k", "$t0, $u0, tensor<4xf64>") if weighted else ("$p0, $i0", "$t0, $u0")
            yield Case(f"cross_entropy_{name}{'_weighted' if weighted else ''}", [(6, 4)],
                       f"{constant}%r0, %n, %m, %s = memopt.cross_entropy {operands} {{{attributes}}} : ({types}) -> {scalars}",
                       [()], [Integers((6,), 0, 4)])
    yield Case("cross_entropy_mean", [(6, 4)],
               f"%t, %n, %m, %s = memopt.cross_entropy $p0, $i0 : ($t0, $u0) -> {scalars}\n  %r0 = arith.divf %t, %n : tensor<f64>",
               [()], [Integers((6,), 0, 4)])


def pool_cases():
    for name, spatial, kernel, strides, low, high, dilations, layout in [
            ("plain", (4, 6), (2, 2), (2, 2), (0, 0), (0, 0), (1, 1), "channels_first"),
            ("overlapping", (5, 5), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), "channels_first"),
            ("uneven", (5, 4), (3, 2), (1, 2), (1, 0), (0, 1), (1, 1), "channels_first"),
            ("dilated", (6, 6), (2, 2), (1, 1), (0, 0), (0, 0), (2, 2), "channels_first"),
            ("channels_last", (5, 5), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), "channels_last"),
            ("1d", (7,), (3,), (2,), (1,), (1,), (1,), "channels_first")]:
        counts = tuple(map(window_count, spatial, kernel, strides, low, high, dilations))
        inputs, outputs = activation(2, 3, spatial, layout), activation(2, 3, counts, layout)
        attributes = window(strides, low, high, dilations, kernel, layout)
        yield Case(f"max_pool_{name}", [inputs],
                   f"%r0, %taps = memopt.max_pool $p0 {{{attributes}}} : ($t0) -> ({tensor_type(outputs)}, {tensor_type(outputs, 'i8')})",
                   [outputs])
        if max(dilations) > 1:
            continue
        attributes = window(strides, low, high, None, kernel, layout)
        for form, extra in [("", ""), ("_count_padding", ", count_padding"), ("_divisor", ", divisor = 3 : i64")]:
            yield Case(f"avg_pool_{name}{form}", [inputs],
                       f"%r0 = memopt.avg_pool $p0 {{{attributes}{extra}}} : ($t0) -> {tensor_type(outputs)}", [outputs])


def interpolate_cases():
    for name, source, target, mode, corners in [
            ("nearest_up", (2, 3), (4, 6), "nearest", False), ("nearest_odd", (3, 4), (5, 7), "nearest", False),
            ("nearest_down", (5, 6), (2, 3), "nearest", False), ("nearest_exact", (5, 3), (2, 7), "nearest_exact", False),
            ("linear_up", (2, 3), (4, 6), "linear", False), ("linear_down", (5, 6), (3, 4), "linear", False),
            ("linear_corners", (3, 4), (5, 7), "linear", True), ("cubic_up", (3, 4), (7, 8), "cubic", False),
            ("cubic_down", (7, 6), (3, 4), "cubic", False), ("cubic_corners", (4, 5), (6, 3), "cubic", True),
            ("area", (7, 9), (3, 4), "area", False), ("area_up", (3, 2), (5, 5), "area", False),
            ("linear_antialias", (9, 8), (3, 5), "linear_antialias", False),
            ("cubic_antialias", (9, 8), (4, 11), "cubic_antialias", False)]:
        scales = [(a - 1) / (b - 1) if corners else a / b for a, b in zip(source, target)]
        yield Case(f"interpolate_{name}", [(2, 2) + source],
                   f"%r0 = memopt.interpolate $p0 {{scales = array<f64: {', '.join(map(repr, scales))}>, mode = "
                   f"#memopt.resampling<{mode}>{', align_corners' * corners}}} : ($t0) -> {tensor_type((2, 2) + target)}",
                   [(2, 2) + target])


# ----------------------------------------------------------------------------------------------------------
# Indices
# ----------------------------------------------------------------------------------------------------------

def known(values):
    """A constant and its type."""
    shape = numpy.shape(values)
    return f"arith.constant dense<{numpy.array(values).tolist()}> : {tensor_type(shape, 'i64')}", tensor_type(shape, "i64")


def gather_cases():
    def gather(name, source, result, index, indexed, positions, low, high):
        yield Case(f"gather_{name}", [source],
                   f"%r0 = memopt.gather $p0, $i0 {{indexed = {array(indexed)}, positions = {array(positions)}}} : "
                   f"($t0, $u0) -> {tensor_type(result)}", [result], [Integers(index, low, high)])
    # Rows; elements of the last dimension, which lanes run over; elements of the first, shorter than the source.
    yield from gather("rows", (5, 20), (2, 4, 20), (2, 4, 1), [0], [2], 0, 5)
    yield from gather("columns", (3, 20), (3, 7), (3, 7), [1], [0], 0, 20)
    yield from gather("along_rows", (4, 21), (6, 19), (6, 19), [0], [1], 0, 4)
    yield from gather("middle", (2, 5, 3), (2, 4, 3), (1, 4, 1), [1], [0, 2], 0, 5)
    yield from gather("scalar", (6,), (), (), [0], [], 0, 6)
    yield Case("gather_pairs", [(4, 5, 3)],
               f"%r0 = memopt.gather $p0, $i0, $i1 {{indexed = {array([0, 1])}, positions = {array([2])}}} : "
               f"($t0, $u0, $u1) -> {tensor_type((2, 6, 3))}", [(2, 6, 3)], [Integers((2, 6, 1), 0, 4), Integers((1, 6, 1), 0, 5)])
    # Known indices that name no element twice have a gather as their gradient, and not all elements need one.
    for name, source, result, indices, indexed, positions in [
            ("permutation", (4, 3), (4, 3), [[2], [0], [3], [1]], [0], [1]),
            ("some", (3, 6), (3, 2), [[5, 2]], [1], [0]), ("turned", (5, 2), (2, 3), [[4, 0, 1]], [0], [0])]:
        constant, kind = known(indices)
        yield Case(f"gather_known_{name}", [source],
                   f"%k = {constant}\n  %r0 = memopt.gather $p0, %k {{indexed = {array(indexed)}, positions = {array(positions)}}}"
                   f" : ($t0, {kind}) -> {tensor_type(result)}", [result])


def scatter_cases():
    places = [("rows", (5, 20), (2, 4, 20), (2, 4, 1), [0], [2], 5), ("columns", (3, 20), (3, 7), (3, 7), [1], [0], 20),
              ("along_rows", (4, 21), (6, 19), (6, 19), [0], [1], 4), ("flat", (9,), (3, 5), (3, 5), [0], [], 9)]
    for name, target, updates, index, indexed, positions, high in places:
        for kind in ["add", "mul", "max", "min"]:
            yield Case(f"scatter_{kind}_{name}", [target, updates],
                       f"%r0 = memopt.scatter $p0, $p1, $i0 {{kind = #memopt.scatter<{kind}>, indexed = {array(indexed)}, "
                       f"positions = {array(positions)}}} : ($t0, $t1, $u0) -> $t0", [target], [Integers(index, 0, high)])
    # Of several updates of one element the last stays, the others have a gradient all the same: so each has its own.
    constant, kind = known([[3, 0, 1], [1, 4, 2]])
    yield Case("scatter_set", [(2, 5), (2, 3)],
               f"%k = {constant}\n  %r0 = memopt.scatter $p0, $p1, %k {{kind = #memopt.scatter<set>, indexed = {array([1])}, "
               f"positions = {array([0])}}} : ($t0, $t1, {kind}) -> $t0", [(2, 5)])


def scan_cases():
    for axis, shape in [(0, (6, 19)), (1, (3, 7)), (1, (2, 5, 3)), (0, (1, 3))]:
        for reverse in ["", ", reverse"]:
            name = f"{axis}_{'x'.join(map(str, shape))}{'_reverse' if reverse else ''}"
            yield Case(f"linear_scan_{name}", [shape, shape],
                       f"%r0 = memopt.linear_scan $p0, $p1 {{axis = {axis} : i64, initial = 0.7 : f64{reverse}}} : ($t0, $t1) -> $t0",
                       [shape])
            yield Case(f"logsumexp_scan_{name}", [shape],
                       f"%g = memopt.logsumexp_scan $p0 {{axis = {axis} : i64{reverse}}} : ($t0) -> $t0\n"
                       "  %r0 = arith.mulf %g, $p0 : $t0", [shape])
    shape = (3, 6)
    yield Case("running_sum", [shape], "%one = arith.constant dense<1.0> : $t0\n"
               "  %r0 = memopt.linear_scan %one, $p0 {axis = 1 : i64} : ($t0, $t0) -> $t0", [shape])
    yield Case("running_product", [shape], "%zero_term = arith.constant dense<0.0> : $t0\n"
               "  %r0 = memopt.linear_scan $p0, %zero_term {axis = 1 : i64, initial = 1.0 : f64} : ($t0, $t0) -> $t0", [shape])


def order_cases():
    yield Case("reverse", [(3, 5)], "%r0 = memopt.reverse $p0 {dimensions = array<i64: 1>} : ($t0) -> $t0", [(3, 5)])
    yield Case("reverse_all", [(3, 20)], "%r0 = memopt.reverse $p0 {dimensions = array<i64: 0, 1>} : ($t0) -> $t0", [(3, 20)])
    yield Case("topk", [(3, 9)],
               f"%o = memopt.argsort $p0 {{axis = 1 : i64, descending}} : ($t0) -> {tensor_type((3, 4), 'i64')}\n"
               f"  %r0 = memopt.gather $p0, %o {{indexed = {array([1])}, positions = {array([0])}}} : ($t0, {tensor_type((3, 4), 'i64')})"
               f" -> {tensor_type((3, 4))}", [(3, 4)])
    yield Case("custom_gradient", [(3, 5)],  # the formula is the derivative of the square
               "%y = arith.mulf $p0, $p0 : $t0\n"
               "  %g = memopt.incoming_gradient %y {result_number = 0 : i64} : ($t0) -> $t0\n"
               "  %x2 = arith.addf $p0, $p0 : $t0\n  %d = arith.mulf %g, %x2 : $t0\n"
               "  %r0 = memopt.custom_gradient %y, %g, $p0, %d {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : "
               "($t0, $t0, $t0, $t0) -> $t0", [(3, 5)])


def all_cases():
    families = [elementwise_cases, shape_cases, gather_cases, scatter_cases, scan_cases, order_cases, matmul_cases,
                convolution_cases, attention_cases, norm_cases, loss_cases, pool_cases, interpolate_cases]
    return [case for family in families for case in family()]
