# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of import_numbers.py for layers and losses: norms, normalizations, losses, recurrent cells, interpolation."""

import itertools

import numpy as np

from import_cases import Case, Constant, layers, lstm_cell, uniform
from spelling_cases import DOUBLE, floats, row

INF = np.inf
SINGLE = {"as_scalar_type": 7}


# ----------------------------------------------------------------------------------------------------
# Norms and quantiles
# ----------------------------------------------------------------------------------------------------

def norms(random):
    x = uniform(random, 3, 4)
    z = x.astype("f8")
    for order in (0, 1, 2, 3, INF, -INF, None):
        p, of_all = {"p": order}, z.reshape(-1)
        order = 2 if order is None else order
        if p["p"] is not None:
            yield row("norm.Scalar", np.linalg.norm(of_all, order), self_=x, **p)
        yield row("norm.ScalarOpt_dtype", np.linalg.norm(of_all, order), self_=x, dtype=SINGLE, **p)
        yield row("norm.ScalarOpt_dim", np.linalg.norm(z, order, 1, keepdims=True), self_=x, dim=[-1], keepdim=True, **p)
        yield Case(f"norm {order} in double", "norm.ScalarOpt_dim_dtype", np.linalg.norm(z, order, 0), 1e-7, self_=x, dim=[0],
                   keepdim=False, dtype=DOUBLE, **p)
    at_zero = floats([[0, 0], [3, -4]])
    yield row("norm.ScalarOpt_dim", floats([0, 5]), {"self_": [[0, 0], [0.6, -0.8]]}, self_=at_zero, p=2, dim=[1])
    yield row("norm.ScalarOpt_dim", floats([0, 4]), {"self_": [[0, 0], [0, -1]]}, self_=at_zero, p=INF, dim=[1])
    yield row("norm.Scalar", floats(5), {"self_": [[0, 0], [0.6, -0.8]]}, self_=at_zero)
    # Equal sums share the gradient.
    square, halves = floats([[1, -2], [1, 2]]), [[0.5, -0.5], [0.5, 0.5]]
    for order, slopes in ((INF, halves), (-INF, halves), (1, [[0, -1], [0, 1]]), (-1, [[1, 0], [1, 0]])):
        yield row("linalg_matrix_norm", np.linalg.norm(square, order), {"self_": slopes}, self_=square, ord=order)
    stack = uniform(random, 3, 2, 4)
    for order in (1, -1, INF, -INF):
        yield row("linalg_matrix_norm", np.linalg.norm(stack.astype("f8"), order, (2, 0), keepdims=True), self_=stack, ord=order,
                  dim=[-1, 0], keepdim=True)
    yield row("linalg_norm.ord_str", np.linalg.norm(z), {"self_": z / np.linalg.norm(z)}, self_=x, ord="fro")
    yield row("linalg_norm.ord_str", np.linalg.norm(stack.astype("f8"), "fro", (0, 2)), self_=stack, ord="fro", dim=[0, 2])


def quantiles(random):
    x = random.permutation(28).reshape(4, 7).astype("f4")
    missing = np.where(np.isin(x, (3, 8, 20)), np.nan, x).astype("f4")
    places = floats([0.1, 0.5, 1])
    for interpolation in ("linear", "lower", "higher", "midpoint"):
        how = {"interpolation": interpolation}
        for q in (places, Constant(places)):
            yield row("quantile", np.quantile(x, [0.1, 0.5, 1], 1, method=interpolation), self_=x, q=q, dim=1, **how)
            yield row("nanquantile", np.nanquantile(missing, [0.1, 0.5, 1], 0, method=interpolation, keepdims=True), self_=missing, q=q,
                      dim=0, keepdim=True, **how)
    yield row("quantile", floats([1.75, 6.25]), {"self_": [[0, 0.25, 0.25, 0.75, 0.75]]}, self_=floats([[9, 7, 1, 2, 6]]),
              q=Constant(floats([0.1875, 0.5625])), dim=None)
    yield row("nanquantile", floats([2.5]), {"self_": [0.5, 0, 0.5, 0]}, self_=floats([3, np.nan, 2, 9])[:, None].T[0],
              q=Constant(floats([0.25])), dim=0)


# ----------------------------------------------------------------------------------------------------
# Normalizations, attention and windows
# ----------------------------------------------------------------------------------------------------

def normalizations(random):
    v, g = uniform(random, 4, 3), random.uniform(1, 2, (4, 1)).astype("f4")
    length = np.linalg.norm(v.astype("f8"), axis=1, keepdims=True)
    yield row("_weight_norm", v * g / length, {"g": (v / length).sum(1, keepdims=True)}, v=v, g=g)
    yield row("_weight_norm", v.T * g.T / length.T, {"g": (v / length).sum(1)[None]}, v=v.T.copy(), g=g.T.copy(), dim=1)
    for dim in (-1, -2):  # -1 is no dimension from the end: one length of all
        length = np.linalg.norm(v.astype("f8"), axis=None if dim == -1 else 1, keepdims=True)
        g = floats(2 * np.ones_like(length))
        yield row("_weight_norm", 2 * v / length, {"g": (v / length).sum(None if dim == -1 else 1, keepdims=True)}, v=v, g=g, dim=dim)
    x, scale, offset = uniform(random, 5, 3, 4) + 1, *uniform(random, 2, 3)
    mean, variance, axis = x.mean((0, 2), dtype="f8"), x.var((0, 2), dtype="f8"), (1, 3, 1)
    affine = {"weight": scale, "bias": offset, "momentum": 0.1, "eps": 1e-3}

    def normalized(mean, variance, scale=scale, offset=offset):
        return (x - mean.reshape(axis)) / np.sqrt(variance + 1e-3).reshape(axis) * np.reshape(scale, axis) + np.reshape(offset, axis)

    summed = normalized(mean, variance, np.ones(3), np.zeros(3)).sum((0, 2))
    running = {"running_mean": uniform(random, 3), "running_var": uniform(random, 3) + 1.5}
    none = {"running_mean": None, "running_var": None}
    yield row("batch_norm", normalized(mean, variance), {"weight": summed, "bias": 20}, 5e-6, input=x, training=True,
              cudnn_enabled=False, **affine, **none)
    yield row("batch_norm", normalized(*running.values()), None, 5e-6, input=x, training=False, cudnn_enabled=False, **affine,
              **running)
    yield row("_native_batch_norm_legit.no_stats", [normalized(mean, variance), mean, 1 / np.sqrt(variance + 1e-3)],
              {"weight": summed, "bias": 20}, 5e-6, input=x, training=True, **affine)
    logs = np.log(np.full((2, 3), 1 / 3) + [[0.1, -0.2, 0.1]])
    yield row("_log_softmax_backward_data", v[:2] - np.exp(logs) * v[:2].sum(1, keepdims=True), grad_output=v[:2].copy(),
              output=floats(logs), dim=-1, input_dtype=SINGLE)


def attention(random):
    query, key, value = (uniform(random, 2, 3, rows, 8) for rows in (4, 5, 5))
    lower, added = np.where(np.tri(4, 5), 0, -INF), uniform(random, 2, 1, 4, 5)
    for extra, options in ((0, {}), (lower, {"is_causal": True}), (added, {"attn_mask": added}), (0, {"scale": 0.3})):
        scores = query.astype("f8") @ key.swapaxes(-1, -2) * options.get("scale", 8 ** -0.5) + extra
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        total = weights.sum(-1, keepdims=True)
        yield row("_scaled_dot_product_flash_attention_for_cpu",
                  [weights / total @ value, (scores.max(-1, keepdims=True) + np.log(total))[..., 0]], None, 5e-6,
                  query=query, key=key, value=value, **options)


def convolve(x, weight, pads, stride, dilation, groups):
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + pads)
    spans = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(2, 2 + rank)))
    windows = windows[(slice(None),) * 2 + tuple(slice(None, None, s) for s in (*stride, *dilation))]
    kernel = tuple(range(2 + rank, 2 + 2 * rank))
    parts = [np.tensordot(part, w, ((1,) + kernel, (1,) + tuple(range(2, 2 + rank))))
             for part, w in zip(np.split(windows, groups, 1), np.split(weight.astype("f8"), groups))]
    return np.moveaxis(np.concatenate(parts, -1), -1, 1)


def windows(random):
    for rank in (1, 2):
        x, weight, bias = uniform(random, 2, 4, *(9, 8)[:rank]), uniform(random, 6, 2, *(4, 3)[:rank]), uniform(random, 6)
        for dilation in ((1, 1)[:rank], (2, 3)[:rank]):
            spans = [d * (k - 1) for k, d in zip(weight.shape[2:], dilation)]
            same = [(span // 2, span - span // 2) for span in spans]  # an odd one goes to the end
            for padding, pads, stride in (("same", same, (1, 1)[:rank]), ("valid", [(0, 0)] * rank, (2, 1)[:rank])):
                result = convolve(x, weight, pads, stride, dilation, 2) + bias.reshape(6, *[1] * rank)
                yield row(f"conv{rank}d.padding", result, None, 5e-6, input=x, weight=weight, bias=bias, stride=list(stride),
                          padding=padding, dilation=list(dilation), groups=2)
    volume = uniform(random, 2, 2, 4, 4, 5)
    incoming, indices, spread = uniform(random, 2, 2, 3, 2, 2), random.integers(0, 80, (2, 2, 3, 2, 2)), np.zeros((2, 2, 80))
    for n, c in np.ndindex(2, 2):
        np.add.at(spread[n, c], indices[n, c].reshape(-1), incoming[n, c].reshape(-1))
    yield row("max_pool3d_with_indices_backward", spread.reshape(volume.shape), grad_output=incoming, self_=volume, kernel_size=[2, 3, 3],
              stride=[1, 1, 2], padding=[0, 0, 0], dilation=[1, 1, 1], ceil_mode=False, indices=indices)
    table, rows, starts = uniform(random, 9, 4), random.integers(0, 9, 10), [0, 3, 3, 8]
    bags = [table[part] for part in np.split(rows, starts[1:])]
    for mode, combine in enumerate((np.sum, np.mean, np.max)):
        bag = np.array([combine(b, 0) if len(b) else np.zeros(4) for b in bags])
        yield row("embedding_bag", [bag, None, None, None], weight=table, indices=rows, offsets=Constant(starts), mode=mode)


# ----------------------------------------------------------------------------------------------------
# Losses of classes
# ----------------------------------------------------------------------------------------------------

def nll(logs, target, weight, reduction, ignored):
    """Loss, total weight and gradient of the loss' sum; classes are axis 1."""
    factor = np.where(target == ignored, 0.0, weight[np.where(target == ignored, 0, target)])
    chosen = np.moveaxis(np.eye(logs.shape[1])[target % logs.shape[1]], -1, 1)
    losses = -(logs.astype("f8") * chosen).sum(1) * factor
    total = factor.sum()
    slopes = -chosen * np.expand_dims(factor, 1)
    value = [losses, losses.sum() / total, losses.sum()][reduction]
    return value, total if reduction else 0.0, slopes / (total if reduction == 1 else 1)


def losses(random):
    classes = 5
    for shape, targets in (((6, classes), ("nll_loss", "nll_loss_forward")), ((2, classes, 3, 4), ("nll_loss2d", "nll_loss2d_forward"))):
        logs, target = uniform(random, *shape), random.integers(0, classes, shape[:1] + shape[2:])
        weights = random.uniform(0.5, 2, classes).astype("f4")
        for reduction in range(3):
            for weight, ignored in ((None, -100), (weights, int(target.flat[1]))):
                loss, total, slopes = nll(logs, target, np.ones(classes) if weight is None else weight, reduction, ignored)
                arguments = {"self_": logs, "target": target, "weight": weight, "reduction": reduction, "ignore_index": ignored}
                yield row(targets[0], loss, {"self_": slopes}, **arguments)
                yield row(targets[1], [loss, floats(total)], {"self_": slopes}, **arguments)
    one, two = uniform(random, classes), np.array(2.0, "f4")
    for reduction in (0, 2):  # a single row is counted always
        yield row("nll_loss_forward", [-2 * one[3], two], {"self_": -2 * np.eye(classes)[3]}, self_=one, target=np.array(3),
                  weight=np.full(classes, 2, "f4"), reduction=reduction, ignore_index=-100)
    x, target = floats([[0.5, 1.5, -0.5, 2], [1, 0, 1.25, -3]]), np.array([0, 2])  # 1.5 is at the margin of 1
    own, weights = x[[0, 1], target][:, None], floats([1, 2, 0.5, 3])
    others = np.arange(4) != target[:, None]
    for p, weight, margin in ((1, None, 1), (2, None, 1), (1, weights, 0.5), (2, weights, 1.5)):
        over = np.where(others, np.maximum(margin - own + x, 0), 0.0) / 4
        slope = np.where(over > 0, 1 / 4, 0) if p == 1 else 2 * over
        factor = np.ones((2, 1)) if weight is None else weight[target][:, None]
        loss, slope = (over * (over * 4) ** (p - 1) * factor).sum(1), slope * factor
        slope[[0, 1], target] = -slope.sum(1)
        for reduction, value in enumerate((loss, loss.mean(), loss.sum())):
            yield row("multi_margin_loss", value, {"self_": slope / (2 if reduction == 1 else 1)}, self_=x, target=target, p=p,
                      margin=margin, weight=weight, reduction=reduction)
    x, target = floats([[0.5, 1.5, -0.5, 2], [1, 0, 1.25, -3], [2, 0, 1, 1]]), np.array([[3, 0, -1, 1], [2, 2, 1, 0], [-1, 0, 1, 2]])
    loss, slope = np.zeros(3), np.zeros((3, 4))
    for place, classes in enumerate(([3, 0], [2, 2, 1, 0], [])):  # a class that comes twice counts twice
        for own, i in itertools.product(classes, set(range(4)) - set(classes)):
            lack = max(0, 1 - x[place, own] + x[place, i]) / 4
            loss[place] += lack
            slope[place, own] -= (lack > 0) / 4
            slope[place, i] += (lack > 0) / 4
    for reduction, value in enumerate((loss, loss.mean(), loss.sum())):
        yield row("multilabel_margin_loss", value, {"self_": slope / (3 if reduction == 1 else 1)}, self_=x, target=target,
                  reduction=reduction)
    yield row("multilabel_margin_loss", loss[0], {"self_": slope[0]}, self_=x[0], target=target[0], reduction=0)


# ----------------------------------------------------------------------------------------------------
# Recurrent cells
# ----------------------------------------------------------------------------------------------------

def plain_cell(function):
    def cell(x, state, weights):
        (h,), (wi, wh, bi, bh) = state, weights
        return (function(x @ wi.T + bi + h @ wh.T + bh),)
    return cell


def cells(random):
    def relu(x):
        return np.maximum(x, 0)

    x, hidden = uniform(random, 3, 4), [uniform(random, 3, 6) for _ in range(2)]
    for target, cell, gates in (("rnn_relu_cell", plain_cell(relu), 1), ("rnn_tanh_cell", plain_cell(np.tanh), 1),
                                ("lstm_cell", lstm_cell, 4)):
        weights = [uniform(random, *shape) for shape in ((gates * 6, 4), (gates * 6, 6), (gates * 6,), (gates * 6,))]
        states = hidden[:2 if gates == 4 else 1]
        arguments = {"input": x, "hx": states if gates == 4 else states[0], "w_ih": weights[0], "w_hh": weights[1]}
        yield row(target, cell(x, states, weights), None, 5e-6, b_ih=weights[2], b_hh=weights[3], **arguments)
        yield row(target, cell(x, states, weights[:2] + [0, 0]), None, 5e-6, **arguments)
    for count, directions, batch_first in ((1, 1, False), (2, 2, True)):
        x, state = uniform(random, 5, 3, 4), uniform(random, count * directions, 3, 6)
        weights = [[uniform(random, *shape) for shape in ((6, 4 if place < directions else 6 * directions), (6, 6), (6,), (6,))]
                   for place in range(count * directions)]
        expected = layers(plain_cell(relu), x, [state], weights, directions)
        if batch_first:
            x, expected[0] = x.swapaxes(0, 1).copy(), expected[0].swapaxes(0, 1)
        yield row("rnn_relu.input", expected, None, 5e-6, input=x, hx=state, params=[p for group in weights for p in group],
                  has_biases=True, num_layers=count, dropout=0.0, train=True, bidirectional=directions == 2, batch_first=batch_first)


# ----------------------------------------------------------------------------------------------------
# Interpolation
# ----------------------------------------------------------------------------------------------------

def cubic(distance, a):
    d = np.abs(distance)
    return np.where(d < 1, ((a + 2) * d - (a + 3)) * d * d + 1, np.where(d < 2, a * (((d - 5) * d + 8) * d - 4), 0))


def resampling(mode, size, count, corners, factor):
    """What each of `count` results takes of each of `size` elements."""
    step = (size - 1) / max(count - 1, 1) if corners else 1 / factor if factor else size / count
    results, elements = np.arange(count)[:, None], np.arange(size)
    if mode in ("nearest", "exact"):
        return (np.minimum(np.floor((results + (mode == "exact") / 2) * step), size - 1) == elements).astype("f8")
    if mode.endswith("antialias"):  # of a kernel that grows with the step, what lies inside
        reach = max(step, 1)
        distance = (elements + 0.5 - step * (results + 0.5)) / reach
        weights = cubic(distance, -0.5) if mode.startswith("cubic") else np.maximum(1 - np.abs(distance), 0)
        return weights / weights.sum(1, keepdims=True)
    place = results * step if corners else (results + 0.5) * step - 0.5
    if mode == "linear":
        return np.maximum(1 - np.abs(np.clip(place, 0, size - 1) - elements), 0)
    taps = np.floor(place) + np.arange(-1, 3)  # those outside are the border
    return (np.where(np.clip(taps, 0, size - 1)[..., None] == elements, cubic(place - taps, -0.75)[..., None], 0)).sum(1)


RESAMPLINGS = {"upsample_nearest{}d": ("nearest", (1, 2, 3), False), "_upsample_nearest_exact{}d": ("exact", (1, 2, 3), False),
               "upsample_linear1d": ("linear", (1,), True), "upsample_bilinear2d": ("linear", (2,), True),
               "upsample_trilinear3d": ("linear", (3,), True), "upsample_bicubic2d": ("cubic", (2,), True),
               "_upsample_bilinear2d_aa": ("linear antialias", (2,), True), "_upsample_bicubic2d_aa": ("cubic antialias", (2,), True)}
SIZES = (5, 7, 4)
COUNTS = (8, 3, 5)
FACTORS = (1.7, 0.45, 1.3)  # which give COUNTS, and other steps than their quotients


def interpolation(random):
    for target, (mode, ranks, aligns) in RESAMPLINGS.items():
        for rank in ranks:
            x, scales = uniform(random, 2, 3, *SIZES[:rank]), ["scales"] if rank == 1 else ["scales_d", "scales_h", "scales_w"][-rank:]
            for corners in (False, True)[:aligns + 1]:
                for factors in (None, FACTORS[:rank]):
                    matrices = [resampling(mode, *about[:2], corners, about[2])
                                for about in zip(SIZES, COUNTS[:rank], factors or [None] * rank)]
                    result, slopes = x.astype("f8"), np.ones(x.shape)
                    for axis, matrix in enumerate(matrices, 2):
                        result = np.moveaxis(np.tensordot(matrix, result, (1, axis)), 0, axis)
                        slopes *= matrix.sum(0).reshape([-1] + [1] * (rank + 1 - axis))
                    options = {"align_corners": corners} if aligns else {}
                    counts = list(COUNTS[:rank])
                    yield row(target.format(rank), result, {"self_": slopes}, 5e-6, self_=x, output_size=counts,
                              **options, **dict(zip(scales, factors or [])))
                    yield row(target.format(rank) + ".vec", result, {"input": slopes}, 5e-6, input=x, **options,
                              output_size=None if factors else counts, scale_factors=list(factors) if factors else None)
    x = uniform(random, 1, 2, 5, 4)
    rows, columns = resampling("linear", 5, 8, False, 1.7), resampling("linear", 4, 7, False, None)
    yield row("upsample_bilinear2d", rows @ x @ columns.T, None, 5e-6, self_=x, output_size=[8, 7], align_corners=False, scales_h=1.7)


FAMILIES = {"norms": norms, "quantiles": quantiles, "normalizations": normalizations, "attention kernels": attention, "windows": windows,
            "losses": losses, "cells": cells, "interpolation": interpolation}
