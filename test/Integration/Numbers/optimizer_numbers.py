# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every optimizer, run in f64 by generated code, against its formulas in numpy.

    optimizer_numbers.py [--tools FOLDER] [--cases GLOB]

The model's loss is the sum over its parameters of p * d with d from the data, so gradients are the data. Parameters
have every rank up to three, sizes that blocks of 256 divide and others, tall and wide matrices, and a table that
indices look up. The formulas agree with torch.optim's, and with other implementations in PyTorch of what it lacks, to
1e-12. After some steps each parameter agrees with numpy's to 1e-9 of its largest change. Of state in 8 bits
a few codes may fall on the other side of a bucket's edge: there 98 of 100 elements agree to 1e-6.
"""
import argparse
import fnmatch
import os
import pathlib
import sys
import tempfile

import numpy as np

from processes import Failed, run
from reports import read_report
from tensor_files import read_safetensors, write_safetensors

STEPS = 6
SHAPES = {"scalar": (), "bias": (7,), "vector": (300,), "wide": (16, 64), "tall": (40, 24), "odd": (9, 31), "cube": (3, 5, 8),
          "table": (20, 16), "q_proj": (16, 16), "mlp": (6, 10)}
LOOKED_UP = [3, 3, 0, 19, 7]

# ---------------------------------------------------------------- formulas


def sgd(s, p, g, t, lr, momentum=0.0, dampening=0.0, nesterov=False, decay=0.0):
    g = g + decay * p
    if momentum:
        s["m"] = g if t == 1 else momentum * s["m"] + (1 - dampening) * g
        g = g + momentum * s["m"] if nesterov else s["m"]
    return p - lr * g


def adam(s, p, g, t, lr, betas=(0.9, 0.999), eps=1e-8, decay=0.0, decoupled=False, amsgrad=False, store=None):
    p, g = (p - lr * decay * p, g) if decoupled else (p, g + decay * p)
    m = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    v = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    top = s["top"] = np.maximum(s.get("top", 0), v) if amsgrad else v
    s["m"], s["v"] = store(m, v) if store else (m, v)
    return p - lr / (1 - betas[0] ** t) * m / (np.sqrt(top / (1 - betas[1] ** t)) + eps)


def rmsprop(s, p, g, t, lr, alpha=0.99, eps=1e-8, momentum=0.0, centered=False):
    v = s["v"] = alpha * s.get("v", 0) + (1 - alpha) * g * g
    if centered:
        s["a"] = alpha * s.get("a", 0) + (1 - alpha) * g
        v = v - s["a"] ** 2
    step = g / (np.sqrt(v) + eps)
    s["m"] = momentum * s.get("m", 0) + step
    return p - lr * s["m"]


def rprop(s, p, g, t, lr, etas=(0.5, 1.2), sizes=(1e-6, 50)):
    turn = g * s.get("prev", 0)
    size = s["size"] = np.clip(s.get("size", lr) * np.where(turn > 0, etas[1], np.where(turn < 0, etas[0], 1.0)), *sizes)
    s["prev"] = np.where(turn < 0, 0.0, g)
    return p - size * np.sign(s["prev"])


def adagrad(s, p, g, t, lr, lr_decay=0.0, start=0.0, eps=1e-10):
    s["v"] = s.get("v", start) + g * g
    return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s["v"]) + eps)


def adadelta(s, p, g, t, lr, rho=0.9, eps=1e-6, decay=0.0):
    g = g + decay * p
    s["v"] = rho * s.get("v", 0) + (1 - rho) * g * g
    step = np.sqrt(s.get("d", 0) + eps) / np.sqrt(s["v"] + eps) * g
    s["d"] = rho * s.get("d", 0) + (1 - rho) * step * step
    return p - lr * step


def adamax(s, p, g, t, lr, betas=(0.9, 0.999), eps=1e-8):
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["u"] = np.maximum(betas[1] * s.get("u", 0), np.abs(g) + eps)
    return p - lr / (1 - betas[0] ** t) * s["m"] / s["u"]


def nadam(s, p, g, t, lr, betas=(0.9, 0.999), eps=1e-8, momentum_decay=4e-3, decay=0.0, decoupled=False):
    p, g = (p - lr * decay * p, g) if decoupled else (p, g + decay * p)
    at = lambda i: betas[0] * (1 - 0.5 * 0.96 ** (i * momentum_decay))
    s["mu"] = s.get("mu", 1.0) * at(t)
    m = s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    v = s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    return p - lr * ((1 - at(t)) / (1 - s["mu"]) * g + at(t + 1) / (1 - s["mu"] * at(t + 1)) * m) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


def radam(s, p, g, t, lr, betas=(0.9, 0.999), eps=1e-8):
    m = s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    v = s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    longest, m = 2 / (1 - betas[1]) - 1, m / (1 - betas[0] ** t)
    length = longest - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
    if length <= 5:
        return p - lr * m
    rectified = np.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
    return p - lr * m * rectified * np.sqrt(1 - betas[1] ** t) / (np.sqrt(v) + eps)


def asgd(s, p, g, t, lr, lambd=1e-4, alpha=0.75, t0=1e6):
    eta = s.get("eta", lr)
    p = p - lambd * eta * p - eta * g
    mu = 1 / max(1, t - 1 - t0)
    s["ax"] = p if mu == 1 else s["ax"] + (p - s["ax"]) * mu
    s["eta"] = lr / (1 + lambd * lr * t) ** alpha
    return p


def adafactor(s, p, g, t, lr, beta2_decay=-0.8, eps=(float(np.finfo("f4").eps), 1e-3), d=1.0, decay=0.0):
    rms = lambda x: np.sqrt(np.mean(np.square(x)))
    weight, rate = t ** beta2_decay, max(eps[1], rms(p)) * min(lr, t ** -0.5)
    p = p - lr * decay * p
    mix = lambda name, x: s.__setitem__(name, (1 - weight) * s.get(name, 0) + weight * x) or s[name]
    if g.ndim > 1:
        row, col = mix("r", np.mean(g * g, -1, keepdims=True)), mix("c", np.mean(g * g, -2, keepdims=True))
        v = row * col / np.maximum(np.mean(row, -2, keepdims=True), eps[0])
    else:
        v = mix("v", g * g)
    step = g / np.sqrt(np.maximum(v, eps[0] ** 2))
    return p - rate / max(1.0, rms(step) / d) * step


def muon(s, p, g, t, lr, name="", momentum=0.95, nesterov=True, steps=5, decay=0.1, adjust="original"):
    if p.ndim != 2 or name == "table":
        return adam(s, p, g, t, lr, decay=decay, decoupled=True)
    m = s["m"] = momentum * s.get("m", 0) + (1 - momentum) * g
    x = (1 - momentum) * g + momentum * m if nesterov else m
    x = x / max(np.linalg.norm(x), 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    rows, columns = p.shape
    factor = 0.2 * np.sqrt(max(rows, columns)) if adjust != "original" else np.sqrt(max(1, rows / columns))
    return p - lr * decay * p - lr * factor * x


def lion(s, p, g, t, lr, betas=(0.9, 0.99), decay=0.0, store=None):
    m = s.get("m", 0)
    p = p - lr * decay * p - lr * np.sign(betas[0] * m + (1 - betas[0]) * g)
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    if store:
        s["m"] = store(s["m"], None)[0]
    return p


def sm3(s, p, g, t, lr, momentum=0.9, eps=1e-30):
    axes = range(max(1, p.ndim))
    g1 = np.atleast_1d(g)
    total = np.minimum.reduce([np.broadcast_to(s.get(k, 0.0), g1.shape) for k in axes]) + g1 * g1
    for k in axes:
        s[k] = total.max(tuple(a for a in axes if a != k), keepdims=True)
    step = (1 - momentum) * g / np.sqrt(total.reshape(g.shape) + eps)
    s["m"] = momentum * s.get("m", 0) + step
    return p - lr * s["m"]


def adam_mini(s, p, g, t, lr, name="", heads=4, betas=(0.9, 0.999), eps=1e-8, decay=0.0):
    blocks = (g.size, 1) if name == "bias" else (heads, -1) if name == "q_proj" else (len(p), -1) if name == "mlp" else (1, -1)
    p = p if name == "bias" else p - lr * decay * p
    m = s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    v = s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * np.mean(np.square(g.reshape(blocks)), 1, keepdims=True)
    return p - lr / (1 - betas[0] ** t) * (m.reshape(blocks) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)).reshape(p.shape)


def philox(words, step, id):
    """The first words of a stream with seed 0 (Salmon et al., Philox4x32-10)."""
    n = np.arange((words + 3) // 4, dtype="u8")
    c, low = [n, n >> np.uint64(32), np.full_like(n, step), np.full_like(n, id)], np.uint64(0xFFFFFFFF)
    for i in range(10):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        keys = [np.uint64(i * k & 0xFFFFFFFF) for k in (0x9E3779B9, 0xBB67AE85)]
        c = [q >> np.uint64(32) ^ c[1] ^ keys[0], q & low, p >> np.uint64(32) ^ c[3] ^ keys[1], p & low]
    return np.stack(c, 1).reshape(-1)[:words]


def projection(rows, rank, step):
    u, v = ((philox(2 * rows * rank, step, 1 << 29).reshape(-1, 2) >> np.uint64(9)) + 0.5).T / 2**23
    return (np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)).reshape(rows, rank) / np.sqrt(rank)


def apollo(s, p, g, t, lr, rank=256, gap=200, scale=1.0, mini=False, betas=(0.9, 0.999), eps=1e-6, decay=0.0):
    projected = p.ndim == 2 and min(p.shape) > rank
    tall = g if not projected or p.shape[0] >= p.shape[1] else g.T
    low = tall @ projection(tall.shape[1], rank, (t - 1) // gap) if projected else g
    m = s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * low
    v = s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * low * low
    step = m / (np.sqrt(v) + eps)
    if projected:
        norm = lambda x: np.linalg.norm(x) if mini else np.linalg.norm(x, axis=1, keepdims=True)
        step = tall * norm(step) / (norm(low) + 1e-8)
        step = step if tall is g else step.T
        growth = max(np.linalg.norm(step) / (s["n"] + 1e-8), 1.01) / 1.01 if t > 1 else 1.0
        s["n"] = np.linalg.norm(step) / growth
        step = np.sqrt(scale) * step / growth
    p = p - lr * np.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) * step
    return p - lr * decay * p


# ---------------------------------------------------------------- 8 and 4 bits


def dynamic_codes(signed, bits):
    if bits == 4 and not signed:
        return np.arange(1, 17) / 16
    values = [0.0, 1.0]
    for zeros in range(bits - 1):
        count = 2 ** (bits - 2 - zeros + (not signed))
        middles = 10.0**-zeros * (0.1 + 0.9 * (np.arange(count) + 0.5) / count)
        values += [*middles, *(-middles if signed else ())]
    return np.sort(np.array(values, "f4")).astype("f8")


def in_blocks(x, signed, bits):
    codes, block = dynamic_codes(signed, bits), 256 if bits == 8 else 128
    flat = np.pad(x.reshape(-1), (0, -x.size % block)).reshape(-1, block)
    scale = np.abs(flat).max(1, keepdims=True)
    nearest = np.searchsorted((codes[1:] + codes[:-1]) / 2, flat / np.maximum(scale, 1e-38))
    return (codes[nearest] * scale).reshape(-1)[: x.size].reshape(x.shape)


def in_bf16(x):
    bits = np.asarray(x, "f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view("f4").astype("f8")


def stored(bits, name, smallest):
    if bits == 16:
        return lambda m, v: (in_bf16(m), None if v is None else in_bf16(v))
    if name == "table" or int(np.prod(SHAPES[name])) < smallest:
        return None
    return lambda m, v: (in_blocks(m, True, bits), None if v is None else in_blocks(v, False, bits))


# ------------------------------------------------------------------ cases

# Options, then the update as a function of state, parameter, gradient, step, rate and name.
CASES = {
    "sgd": ("lr=0.1", lambda s, p, g, t, n: sgd(s, p, g, t, 0.1)),
    "sgd-dampening": ("lr=0.1 momentum=0.8 dampening=0.3 weight-decay=0.01",
                      lambda s, p, g, t, n: sgd(s, p, g, t, 0.1, 0.8, 0.3, False, 0.01)),
    "sgd-nesterov": ("momentum=0.9 nesterov", lambda s, p, g, t, n: sgd(s, p, g, t, 1e-3, 0.9, 0, True)),
    "adam": ("weight-decay=0.1", lambda s, p, g, t, n: adam(s, p, g, t, 1e-3, decay=0.1)),
    "adam-amsgrad": ("amsgrad betas=0.8,0.9", lambda s, p, g, t, n: adam(s, p, g, t, 1e-3, (0.8, 0.9), amsgrad=True)),
    "adamw": ("", lambda s, p, g, t, n: adam(s, p, g, t, 1e-3, decay=0.01, decoupled=True)),
    "rmsprop": ("", lambda s, p, g, t, n: rmsprop(s, p, g, t, 1e-2)),
    "rmsprop-centered": ("centered momentum=0.7 alpha=0.9 eps=1e-4",
                         lambda s, p, g, t, n: rmsprop(s, p, g, t, 1e-2, 0.9, 1e-4, 0.7, True)),
    "rprop": ("", lambda s, p, g, t, n: rprop(s, p, g, t, 1e-2)),
    "rprop-sizes": ("etas=0.3,2 step-sizes=1e-3,0.02", lambda s, p, g, t, n: rprop(s, p, g, t, 1e-2, (0.3, 2), (1e-3, 0.02))),
    "adagrad": ("lr-decay=0.1 initial-accumulator-value=0.3", lambda s, p, g, t, n: adagrad(s, p, g, t, 1e-2, 0.1, 0.3)),
    "adadelta": ("weight-decay=0.1", lambda s, p, g, t, n: adadelta(s, p, g, t, 1.0, decay=0.1)),
    "adamax": ("", lambda s, p, g, t, n: adamax(s, p, g, t, 2e-3)),
    "nadam": ("weight-decay=0.1", lambda s, p, g, t, n: nadam(s, p, g, t, 2e-3, decay=0.1)),
    "nadam-decoupled": ("weight-decay=0.1 decoupled-weight-decay momentum-decay=0.01",
                        lambda s, p, g, t, n: nadam(s, p, g, t, 2e-3, momentum_decay=0.01, decay=0.1, decoupled=True)),
    "radam": ("betas=0.9,0.95", lambda s, p, g, t, n: radam(s, p, g, t, 1e-3, (0.9, 0.95))),
    "asgd": ("lambd=1e-2 alpha=0.6 t0=2 lr=0.05", lambda s, p, g, t, n: asgd(s, p, g, t, 0.05, 1e-2, 0.6, 2)),
    "adafactor": ("weight-decay=0.1", lambda s, p, g, t, n: adafactor(s, p, g, t, 1e-2, decay=0.1)),
    "adafactor-options": ("beta2-decay=-0.5 eps=1e-3,1e-2 d=1.5 lr=0.5",
                          lambda s, p, g, t, n: adafactor(s, p, g, t, 0.5, -0.5, (1e-3, 1e-2), 1.5)),
    "muon": ("weight-decay=0.1", lambda s, p, g, t, n: muon(s, p, g, t, 1e-3, n)),
    "muon-rms": ("weight-decay=0.2 momentum=0.9 nesterov=off ns-steps=3 adjust-lr-fn=match-rms-adamw",
                 lambda s, p, g, t, n: muon(s, p, g, t, 1e-3, n, 0.9, False, 3, 0.2, "rms")),
    "lion": ("weight-decay=0.3", lambda s, p, g, t, n: lion(s, p, g, t, 1e-4, decay=0.3)),
    "sm3": ("", lambda s, p, g, t, n: sm3(s, p, g, t, 0.1)),
    "adam-mini": ("n-heads=4 weight-decay=0.1", lambda s, p, g, t, n: adam_mini(s, p, g, t, 1e-3, n, decay=0.1)),
    "adamw-16bit": ("optim-bits=16", lambda s, p, g, t, n: adam(s, p, g, t, 1e-3, decay=0.01, decoupled=True, store=stored(16, n, 0))),
    "adamw-8bit": ("optim-bits=8 min-8bit-size=256",
                   lambda s, p, g, t, n: adam(s, p, g, t, 1e-3, decay=0.01, decoupled=True, store=stored(8, n, 256))),
    "lion-8bit": ("optim-bits=8 min-8bit-size=0", lambda s, p, g, t, n: lion(s, p, g, t, 1e-4, store=stored(8, n, 0))),
    "adamw-4bit": ("optim-bits=4 min-8bit-size=256",
                   lambda s, p, g, t, n: adam(s, p, g, t, 1e-3, decay=0.01, decoupled=True, store=stored(4, n, 256))),
    "lion-4bit": ("optim-bits=4 min-8bit-size=0", lambda s, p, g, t, n: lion(s, p, g, t, 1e-4, store=stored(4, n, 0))),
    "apollo": ("rank=8 update-proj-gap=4 weight-decay=0.1", lambda s, p, g, t, n: apollo(s, p, g, t, 1e-3, 8, 4, decay=0.1)),
    "apollo-mini": ("betas=0.8,0.9", lambda s, p, g, t, n: apollo(s, p, g, t, 1e-3, 1, scale=128.0, mini=True, betas=(0.8, 0.9))),
    "adam-maximize": ("maximize weight-decay=0.1", lambda s, p, g, t, n: adam(s, p, -g, t, 1e-3, decay=0.1)),
    "adamw-groups": ("maximize param-group=w*:betas=0.8,0.9,eps=0.1,maximize=off param-group=t*:amsgrad=on,lr=0.01",
                     lambda s, p, g, t, n: adam(s, p, g, t, 1e-3, (0.8, 0.9), 0.1, 0.01, True) if n[0] == "w" else
                     adam(s, p, -g, t, 1e-2 if n[0] == "t" else 1e-3, decay=0.01, decoupled=True, amsgrad=n[0] == "t")),
    "sgd-groups": ("momentum=0.9 weight-decay=0.5 flat-decay-mult=0.5 bias-decay-mult=0 param-group=w*,t*:lr=0.5,weight-decay=0.2 "
                   "param-group=tall:lr=7 param-group=cube:optimizer=lion",
                   lambda s, p, g, t, n: lion(s, p, g, t, 1e-4, decay=0.5) if n == "cube" else
                   sgd(s, p, g, t, 0.5, 0.9, decay=0.2) if n[0] in "wt" else
                   sgd(s, p, g, t, 1e-3, 0.9, decay=0 if n == "bias" else 0.25 if p.ndim < 2 else 0.5)),
}


def of(shape, element="f64"):
    return "tensor<" + "".join(f"{size}x" for size in shape) + element + ">"


def write_model(path, start):
    lines, arguments, body, terms = [], [], [], []
    for name, shape in SHAPES.items():
        data = start[name].tobytes().hex().upper()
        lines.append(f'memopt.variable @{name} : {of(shape)} role <parameter> {{trainable, names = ["{name}"], '
                     f'initial = dense<"0x{data}"> : {of(shape)}}}')
        arguments.append(f'%d_{name}: {of(shape)} {{memopt.name = "d_{name}"}}')
        body.append(f"%{name} = memopt.read @{name} : {of(shape)}")
        body.append(f"%p_{name} = arith.mulf %{name}, %d_{name} : {of(shape)}")
        dims = ", ".join(map(str, range(len(shape))))
        if shape:
            body.append(f"%s_{name} = memopt.reduce %p_{name} {{kind = #memopt.reduce<add>, dimensions = array<i64: {dims}>}} : "
                        f"({of(shape)}) -> tensor<f64>")
        terms.append(f"%{'s' if shape else 'p'}_{name}")
    rows = (len(LOOKED_UP), SHAPES["table"][1])
    body += [f"%ids = arith.constant dense<{LOOKED_UP}> : tensor<{rows[0]}xi64>",
             f"%rows = memopt.embedding %table, %ids : ({of(SHAPES['table'])}, tensor<{rows[0]}xi64>) -> {of(rows)}",
             f"%s_rows = memopt.reduce %rows {{kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>}} : ({of(rows)}) -> tensor<f64>"]
    total = "%s_rows"
    for i, term in enumerate(terms):
        body.append(f"%t{i} = arith.addf {total}, {term} : tensor<f64>")
        total = f"%t{i}"
    lines.append(f'func.func @train_step({", ".join(arguments)}) -> (tensor<f64> {{memopt.role = "loss"}}) {{')
    path.write_text("\n".join([*lines, *("  " + line for line in body), f"  return {total} : tensor<f64>", "}"]) + "\n")


def train_here(update, start, batches):
    values, states = dict(start), {name: {} for name in SHAPES}
    looked_up = np.bincount(LOOKED_UP, minlength=SHAPES["table"][0])[:, None]
    for t, batch in enumerate(batches, 1):
        for name in SHAPES:
            g = batch[name] + (looked_up if name == "table" else 0)
            values[name] = np.asarray(update(states[name], values[name], g, t, name))
    return values


def check(case, tools, folder, start, batches):
    options, update = CASES[case]
    optimizer = case if case in ("adam-mini", "apollo-mini") else case.split("-")[0]
    command = [os.path.join(tools, "memopt-run"), folder / "model.mlir", f"--data={folder / 'data.safetensors'}", f"--steps={STEPS}",
               "--quiet", "--check-memory", f"--report={folder / 'report.json'}", f"--save={folder / 'saved'}", f"--optimizer={optimizer}",
               *("--" + option for option in options.split())]
    try:
        run(*command)
        read_report(folder / "report.json")
    except (Failed, AssertionError) as problem:
        return [str(problem)]
    wrong = []
    ours, expected = read_safetensors(folder / "saved" / "model.safetensors"), train_here(update, start, batches)
    # A number between two codes may go either way; projections are drawn in f32.
    quantile, tolerance = (0.98, 1e-6) if "bit" in case else (1.0, 1e-4 if "apollo" in case else 1e-9)
    for name in SHAPES:
        moved = max(np.abs(expected[name] - start[name]).max(), 1e-6)
        error = np.quantile(np.abs(ours[name] - expected[name]), quantile, method="higher") / moved
        if not error <= tolerance:
            wrong.append(f"{name}: error {error:.2e}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="", help="folder of memopt-run; by default it is on PATH")
    parser.add_argument("--cases", default="*")
    options = parser.parse_args()
    random = np.random.default_rng(7)
    start = {name: random.standard_normal(shape) for name, shape in SHAPES.items()}
    start = {name: np.asarray(value) for name, value in start.items()}
    batches = [{name: np.asarray(random.standard_normal(shape) * random.random(shape) ** 3) for name, shape in SHAPES.items()}
               for _ in range(STEPS)]
    failed = 0
    cases = fnmatch.filter(CASES, options.cases)
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            write_model(folder / "model.mlir", start)
            write_safetensors(folder / "data.safetensors",
                              {f"step{i}.d_{name}": value for i, batch in enumerate(batches) for name, value in batch.items()})
            wrong = check(case, options.tools, folder, start, batches)
        failed += bool(wrong)
        for text in wrong:
            print(f"FAIL {case}: {text}")
    print(f"{len(cases) - failed} of {len(cases)} updates agree with their formulas")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
