#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A layer on frozen weights in each of their forms, against numpy with the codes' values in float64."""
import json
import pathlib
import tempfile

import numpy as np

import processes
from reports import read_report
from tensor_files import read_safetensors, write_safetensors

NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], "f4")
STEPS, RATE = 3, 0.5
# loss = mean((tanh(x @ wide) @ odd @ trained - target)^2); `odd` does not fill its last block.
SHAPES = {"wide": (64, 192), "odd": (192, 71), "bias": (71,), "trained": (71, 4)}
FROZEN = ["wide", "odd", "bias"]


def in_blocks(x, code):
    flat = np.pad(x.reshape(-1), (0, -x.size % 64)).reshape(-1, 64)
    scale = np.abs(flat).max(1, keepdims=True)
    return code(flat, scale).reshape(-1)[:x.size].reshape(x.shape)


def to_bf16(x):
    bits = x.astype("f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view("f4")


def to_int8(x):
    return in_blocks(x, lambda b, s: np.rint(b / (s / np.float32(127))) * (s / np.float32(127)))


def nearest(b, s):
    return NF4[np.abs((b / s)[..., None] - NF4).argmin(-1)] * s


def narrow_scales(s):
    rows = np.pad(s.reshape(-1), (0, -s.size % 256)).reshape(-1, 256)
    unit = rows.max(1, keepdims=True) / np.float32(255)
    return (np.maximum(np.rint(rows / unit), 1) * unit).reshape(-1)[:s.size].reshape(s.shape).astype("f4")


FORMS = {"f32": ([], lambda x: x, 4), "bf16": (["--frozen-weights=bf16"], to_bf16, 2),
         "int8": (["--frozen-weights=int8"], to_int8, 1 + 1 / 16),
         "nf4": (["--frozen-weights=nf4"], lambda x: in_blocks(x, nearest), 0.5 + 1 / 16),
         "nf4-scales": (["--frozen-weights=nf4", "--frozen-scales=int8"],
                        lambda x: in_blocks(x, lambda b, s: nearest(b, narrow_scales(s))), 0.5 + 1 / 64)}


def of(shape):
    return "tensor<" + "".join(f"{size}x" for size in shape) + "f32>"


def write_model(path, values, rows=16):
    lines = [f'memopt.variable @{name} : {of(value.shape)} role <parameter> {{{"" if name in FROZEN else "trainable, "}names = ["{name}"], '
             f'initial = dense<"0x{value.tobytes().hex().upper()}"> : {of(value.shape)}}}' for name, value in values.items()]
    x, h, o, y = (of((rows, size)) for size in (64, 192, 71, 4))
    lines.append(f'''func.func @train_step(%x: {x} {{memopt.name = "x"}}, %target: {y} {{memopt.name = "target"}}) -> (tensor<f32> {{memopt.role = "loss"}}) {{
  %wide = memopt.read @wide : {of(SHAPES["wide"])}
  %odd = memopt.read @odd : {of(SHAPES["odd"])}
  %bias = memopt.read @bias : {of(SHAPES["bias"])}
  %trained = memopt.read @trained : {of(SHAPES["trained"])}
  %a = memopt.matmul %x, %wide : ({x}, {of(SHAPES["wide"])}) -> {h}
  %h = math.tanh %a : {h}
  %m = memopt.matmul %h, %odd : ({h}, {of(SHAPES["odd"])}) -> {o}
  %b = memopt.broadcast %bias {{dimensions = array<i64: 1>}} : ({of(SHAPES["bias"])}) -> {o}
  %o = arith.addf %m, %b : {o}
  %y = memopt.matmul %o, %trained : ({o}, {of(SHAPES["trained"])}) -> {y}
  %d = arith.subf %y, %target : {y}
  %q = arith.mulf %d, %d : {y}
  %sum = memopt.reduce %q {{kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>}} : ({y}) -> tensor<f32>
  %count = arith.constant dense<{rows * 4}.0> : tensor<f32>
  %loss = arith.divf %sum, %count : tensor<f32>
  return %loss : tensor<f32>
}}''')
    path.write_text("\n".join(lines) + "\n")


def train_here(values, batches, steps):
    values, losses = {name: value.astype("f8") for name, value in values.items()}, []
    for i in range(steps):
        x, target = (value.astype("f8") for value in batches[i % len(batches)])
        o = np.tanh(x @ values["wide"]) @ values["odd"] + values["bias"]
        d = o @ values["trained"] - target
        losses.append(np.mean(d * d))
        values["trained"] = values["trained"] - RATE * o.T @ (2 * d / d.size)
    return losses, values


def run(folder, *words, fails=False):
    return processes.run("memopt-run", folder / "model.mlir", f"--data={folder / 'data.safetensors'}", f"--lr={RATE}", "--quiet",
                         *words, code=1 if fails else 0).stderr


def train(folder, name, *words):
    run(folder, "-o", folder / f"{name}.memopt", f"--steps={STEPS}", "--check-memory", f"--report={folder / 'r.json'}",
        f"--save={folder / name}", *words)
    report = read_report(folder / "r.json")
    return report["losses"], read_safetensors(folder / name / "model.safetensors"), report["used_peak_bytes"]["device"]


def check(folder, name, values, batches):
    words, narrow, bytes_a_number = FORMS[name]
    losses, saved, peak = train(folder, name, *words)
    widened = {key: narrow(value) if key in FROZEN and (value.ndim > 1 or name == "bf16") else value for key, value in values.items()}
    exact, ends = train_here(widened, batches, STEPS)
    assert np.allclose(losses, exact, rtol=2e-5), (name, losses, exact)
    assert np.allclose(saved["trained"], ends["trained"], rtol=1e-4, atol=1e-5), name
    manifest = json.loads((folder / f"{name}.memopt" / "manifest.json").read_text())
    held = sum(v["bytes"] for v in manifest["variables"] if v["name"].split(".")[-1] in ("wide", "odd"))
    numbers = sum(values[key].size for key in ("wide", "odd"))
    assert abs(held - bytes_a_number * numbers) <= 0.01 * bytes_a_number * numbers + 256, (name, held)
    state = json.loads((folder / name / "state.json").read_text())
    left_out = {"f32": set(), "bf16": set(FROZEN)}.get(name, {"wide", "odd"})
    assert set(saved) == set(values) - left_out and ("base" in state) == bool(left_out), (name, set(saved), state)
    return words, losses, saved, peak


def main():
    random = np.random.default_rng(3)
    values = {name: (random.standard_normal(shape) / np.sqrt(shape[0])).astype("f4") for name, shape in SHAPES.items()}
    batches = [(random.standard_normal((16, 64)).astype("f4"), random.standard_normal((16, 4)).astype("f4")) for _ in range(2)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model.mlir", values)
        write_safetensors(folder / "data.safetensors",
                          {f"step{i}.{key}": value for i, batch in enumerate(batches) for key, value in zip(("x", "target"), batch)})
        results = {name: check(folder, name, values, batches) for name in FORMS}
        words, losses, saved, peak = results["nf4"]
        # Bits do not depend on a budget, nor on loading what was saved.
        again, kept, smaller = train(folder, "tight", *words, f"--device-memory={peak}")
        assert again == losses and np.array_equal(kept["trained"], saved["trained"]) and smaller <= peak
        on = lambda name, *more: run(folder, f"--load={folder / name}", "--steps=2", f"--report={folder / 'r.json'}", *words, *more)
        on("nf4", f"--save={folder / 'on'}")
        run(folder, "--steps=5", f"--save={folder / 'through'}", *words)
        for file in ("model.safetensors", "optimizer.safetensors"):
            assert (folder / "on" / file).read_bytes() == (folder / "through" / file).read_bytes(), file
        assert np.allclose(train(folder, "parts", *words, "--micro-batches=2")[0], losses, rtol=1e-5)
        # A checkpoint of f32 goes on with codes of its values; one of codes does not without them, nor with other ones.
        on("f32")
        assert "--frozen-weights" in run(folder, f"--load={folder / 'nf4'}", "--steps=1", fails=True)
        write_model(folder / "model.mlir", {**values, "odd": -values["odd"]})
        assert "trained with another base" in run(folder, f"--load={folder / 'nf4'}", "--steps=1", *words, fails=True)
    print("frozen weights agree")


main()
