#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that the user gives as source, in C and in MLIR, in steps and in PyTorch."""

import sys
import tempfile

import torch
from torch import nn

import memopt
from memopt.tools import run_compiler

# Of numbers, in C; its gradient is a formula in PyTorch.
softclip = memopt.operator("softclip", """
    static float one = 1;
    float softclip(float x) { return x / (one + fabsf(x)); }
""", elementwise=True, gradient=lambda x, y, dy: dy * (1 - y.abs()) ** 2)

# Of whole tensors, in C; its gradient is another operator.
pair_gradient = memopt.operator("pair_gradient", """
    void pair_gradient(const float *y, const float *dy, float *dx, const int64_t *sizes) {
      int64_t rows = sizes[0], columns = sizes[1];
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          float sum = 0;
          for (int64_t o = 0; o < columns; ++o)
            if (o != c) sum += 2 * dy[r * columns + o] * (y[r * columns + c] - y[r * columns + o]) + 2 * dy[r * columns + c] * (y[r * columns + c] - y[r * columns + o]);
          dx[r * columns + c] = sum;
        }
    }
""", shapes=lambda x, dy: x)
pair = memopt.operator("pair", """
    // how far each is from all others of its row
    void pair(const float *x, float *y, const int64_t *sizes) {
      int64_t rows = sizes[0], columns = sizes[1];
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          float sum = 0;
          for (int64_t o = 0; o < columns; ++o) {
            float gap = x[r * columns + c] - x[r * columns + o];
            sum += gap * gap;
          }
          y[r * columns + c] = sum;
        }
    }
""", shapes=lambda x: x, gradient=lambda x, y, dy: pair_gradient(x, dy))

# Two results of other shapes, without a gradient.
bounds = memopt.operator("bounds", """
    void bounds(const float *x, float *low, int64_t *place, const int64_t *sizes) {
      for (int64_t r = 0; r < sizes[0]; ++r) {
        int64_t best = 0;
        for (int64_t c = 1; c < sizes[1]; ++c)
          if (x[r * sizes[1] + c] < x[r * sizes[1] + best]) best = c;
        low[r] = x[r * sizes[1] + best];
        place[r] = best;
      }
    }
""", shapes=lambda x: [x[:1], x[:1]], results=2)

# Of numbers, in MLIR; its gradient is MLIR, too.
mish_gradient = memopt.operator("mish_gradient", """
    func.func @mish_gradient(%x: f32, %g: f32) -> f32 {
      %one = arith.constant 1.0 : f32
      %e = math.exp %x : f32
      %s = math.log1p %e : f32
      %t = math.tanh %s : f32
      %n = arith.addf %e, %one : f32
      %sigmoid = arith.divf %e, %n : f32
      %tt = arith.mulf %t, %t : f32
      %u = arith.subf %one, %tt : f32
      %us = arith.mulf %u, %sigmoid : f32
      %xus = arith.mulf %x, %us : f32
      %d = arith.addf %t, %xus : f32
      %r = arith.mulf %g, %d : f32
      return %r : f32
    }
""", "mlir")
mish = memopt.operator("mish", """
    func.func @mish(%x: f32) -> f32 {
      %e = math.exp %x : f32
      %s = math.log1p %e : f32
      %t = math.tanh %s : f32
      %y = arith.mulf %x, %t : f32
      return %y : f32
    }
""", "mlir", gradient=lambda x, y, dy: mish_gradient(x, dy), reference=nn.functional.mish)

# Of whole tensors, in MLIR: by a loop nest, and by ops of memopt; the gradient of one is MLIR of tensors, too.
energy_gradient = memopt.operator("energy_gradient", """
    func.func @energy_gradient(%x: tensor<8x5xf32>, %g: tensor<8xf32>) -> tensor<8x5xf32> {
      %rows = memopt.broadcast %g {dimensions = array<i64: 0>} : (tensor<8xf32>) -> tensor<8x5xf32>
      %twice = arith.addf %x, %x : tensor<8x5xf32>
      %r = arith.mulf %twice, %rows : tensor<8x5xf32>
      return %r : tensor<8x5xf32>
    }
""", "mlir", shapes=lambda x, g: x)
energy = memopt.operator("energy", """
    func.func @energy(%x: tensor<8x5xf32>) -> tensor<8xf32> {
      %zeros = arith.constant dense<0.0> : tensor<8xf32>
      %sums = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r)>],
                              iterator_types = ["parallel", "reduction"]}
          ins(%x : tensor<8x5xf32>) outs(%zeros : tensor<8xf32>) {
        ^bb0(%a: f32, %sum: f32):
          %square = arith.mulf %a, %a : f32
          %next = arith.addf %sum, %square : f32
          linalg.yield %next : f32
      } -> tensor<8xf32>
      return %sums : tensor<8xf32>
    }
""", "mlir", shapes=lambda x: x[:1], gradient=lambda x, y, dy: energy_gradient(x, dy), reference=lambda x: x.square().sum(1))
peak = memopt.operator("peak", """
    func.func @peak(%x: tensor<8x5xf32>) -> tensor<8xf32> {
      %e = math.exp %x : tensor<8x5xf32>
      %m = memopt.reduce %e {dimensions = array<i64: 1>, kind = #memopt.reduce<max>} : (tensor<8x5xf32>) -> tensor<8xf32>
      return %m : tensor<8xf32>
    }
""", "mlir", shapes=lambda x: x[:1], gradient=lambda x, y, dy: torch.where(x.exp() == y[:, None], y[:, None], 0.0) * dy[:, None],
                       reference=lambda x: x.exp().amax(1))


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.second, self.function = nn.Linear(6, 5), nn.Linear(5, 3), function

    def forward(self, x):
        return self.second(self.function(self.first(x)))


def mish_of_pytorch(x):
    return nn.functional.mish(x)


def with_bounds(x):
    low, place = bounds(x)
    return x * low[:, None] + place[:, None]


_CASES = {"c, of numbers": (softclip, softclip), "c, of tensors": (lambda x: pair(x) * 0.1, lambda x: pair(x) * 0.1),
          "c, two results": (with_bounds, with_bounds), "mlir": (mish, mish_of_pytorch),
          "mlir, of tensors": (lambda x: x * energy(x)[:, None] * 0.1 + peak(x)[:, None],
                               lambda x: x * x.square().sum(1)[:, None] * 0.1 + x.exp().amax(1)[:, None])}


def _train(function, batches, **options):
    torch.manual_seed(0)
    model = Net(function)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if options.pop("eager", False):
        losses = []
        for x, t in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), t)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, model.state_dict()
    step = memopt.compile(model, nn.functional.cross_entropy, batches[0], optimizer=optimizer, **options)
    return [step(batch) for batch in batches], step.state_dict()["model"]


def check_training():
    torch.manual_seed(1)
    batches = [(torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(3)]
    for name, (function, plain) in _CASES.items():
        expected, wanted = _train(plain, batches, eager=True)
        found, state = _train(function, batches)
        torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-5, atol=1e-6, msg=lambda text: f"{name}: {text}")
        for key, value in wanted.items():
            torch.testing.assert_close(state[key], value, rtol=1e-5, atol=1e-6, msg=lambda text: f"{name}, {key}: {text}")
        print(f"ok {name}")
    whole = _train(softclip, batches)
    parts = _train(softclip, batches, micro_batches=2)
    torch.testing.assert_close(torch.tensor(parts[0]), torch.tensor(whole[0]), rtol=1e-5, atol=1e-6)
    print("ok micro-batches of what goes element by element")
    rows = lambda x: x * peak(x)[:, None]
    whole, parts = _train(rows, batches), _train(rows, batches, micro_batches=2)
    torch.testing.assert_close(torch.tensor(parts[0]), torch.tensor(whole[0]), rtol=1e-5, atol=1e-6)
    print("ok micro-batches of MLIR of tensors")


def check_refusals():
    def expect(kind, words, function):
        try:
            function()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"'{words}' is missing")

    expect(memopt.BadInput, "another source", lambda: memopt.operator("softclip", "float softclip(float x) { return x; }", elementwise=True))
    expect(memopt.BadInput, "has no function", lambda: memopt.operator("absent", "float other(float x) { return x; }", elementwise=True))
    expect(memopt.BadInput, "expected torch.float32", lambda: softclip(torch.randn(3).double()))
    expect(memopt.BadInput, "does not compile", lambda: memopt.operator("broken", "float broken(float x) { return y; }",
                                                                         elementwise=True)(torch.randn(3)))
    expect(memopt.Refused, "give reference=", lambda: mish_gradient(torch.randn(3), torch.randn(3)))
    batch = torch.randn(8, 6), torch.randint(3, (8,))
    expect(memopt.Error, "does not run on a GPU", lambda: _train(softclip, [batch], device="cuda", target_features="h100"))
    expect(memopt.Error, "mixes samples", lambda: _train(_CASES["c, of tensors"][0], [batch], micro_batches=2))
    with tempfile.TemporaryDirectory() as folder:  # an archive from elsewhere may bring any code
        example = {"x": batch[0], "t": batch[1]}
        path, _ = memopt.export.export(Net(softclip), nn.functional.cross_entropy, example, f"{folder}/model", targets=["t"])
        expect(memopt.Error, "c_sources=on", lambda: run_compiler([str(path), "-o", f"{folder}/package"]))
        run_compiler([str(path), "-o", f"{folder}/package", "--c-sources=on"])
    print("ok refused")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] != ["refusals"]:
        check_training()
    check_refusals()
