// RUN: rm -rf %t && mkdir %t
// RUN: %python -c "import numpy, sys; sys.path.insert(0, '%support'); import tensor_files; tensor_files.write_safetensors('%t/data.safetensors', {'x': numpy.random.default_rng(0).standard_normal((64, 16)).astype('float32')})"
// RUN: memopt-compile %s --optimizer=sgd --micro-batches=2 --emit=kernels > %t/kernels.mlir
// RUN: memopt-opt %t/kernels.mlir -memopt-plan-memory | FileCheck %s --check-prefix=WRITTEN
// RUN: memopt-compile %s --optimizer=sgd --micro-batches=2 --emit=planned | FileCheck %s
// RUN: memopt-compile %s --optimizer=sgd --micro-batches=2 -o %t/two.memopt --quiet
// RUN: memopt-run %t/two.memopt --data=%t/data.safetensors --steps=2 --init=random --quiet --check-memory --report=%t/two.json
// RUN: %python %support/compare_runs.py %t/two.json %t/two.json

// Samples are weighed by frozen experts, and weights divided by their sum over the batch, which a loop in front of the
// step takes. An expert makes 131072 bytes of the 32 samples of a part. As the model is written all four are alive at
// once; in both loops it is one at a time, beside parameters of 280000 bytes.

// WRITTEN: memopt.planned = #memopt.planned<arena_bytes = [{{8[0-9][0-9][0-9][0-9][0-9]}},
// CHECK: memopt.planned = #memopt.planned<arena_bytes = [{{4[0-9][0-9][0-9][0-9][0-9]}},
// CHECK-COUNT-2: memopt.repeat count(2)

memopt.variable @u0 : tensor<1024x16xf32> role <parameter> {names = ["u0"]}
memopt.variable @d0 : tensor<1x1024xf32> role <parameter> {names = ["d0"]}
memopt.variable @u1 : tensor<1024x16xf32> role <parameter> {names = ["u1"]}
memopt.variable @d1 : tensor<1x1024xf32> role <parameter> {names = ["d1"]}
memopt.variable @u2 : tensor<1024x16xf32> role <parameter> {names = ["u2"]}
memopt.variable @d2 : tensor<1x1024xf32> role <parameter> {names = ["d2"]}
memopt.variable @u3 : tensor<1024x16xf32> role <parameter> {names = ["u3"]}
memopt.variable @d3 : tensor<1x1024xf32> role <parameter> {names = ["d3"]}
memopt.variable @o : tensor<16x16xf32> role <parameter> {trainable, names = ["o"]}
func.func @train_step(%x: tensor<64x16xf32> {memopt.name = "x", memopt.batch_dim = 0 : i64}) -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %u0 = memopt.read @u0 : tensor<1024x16xf32>
  %d0 = memopt.read @d0 : tensor<1x1024xf32>
  %u1 = memopt.read @u1 : tensor<1024x16xf32>
  %d1 = memopt.read @d1 : tensor<1x1024xf32>
  %u2 = memopt.read @u2 : tensor<1024x16xf32>
  %d2 = memopt.read @d2 : tensor<1x1024xf32>
  %u3 = memopt.read @u3 : tensor<1024x16xf32>
  %d3 = memopt.read @d3 : tensor<1x1024xf32>
  %o = memopt.read @o : tensor<16x16xf32>
  %w0 = memopt.matmul %x, %u0 {transpose_b} : (tensor<64x16xf32>, tensor<1024x16xf32>) -> tensor<64x1024xf32>
  %t0 = math.tanh %w0 : tensor<64x1024xf32>
  %w1 = memopt.matmul %x, %u1 {transpose_b} : (tensor<64x16xf32>, tensor<1024x16xf32>) -> tensor<64x1024xf32>
  %t1 = math.tanh %w1 : tensor<64x1024xf32>
  %w2 = memopt.matmul %x, %u2 {transpose_b} : (tensor<64x16xf32>, tensor<1024x16xf32>) -> tensor<64x1024xf32>
  %t2 = math.tanh %w2 : tensor<64x1024xf32>
  %w3 = memopt.matmul %x, %u3 {transpose_b} : (tensor<64x16xf32>, tensor<1024x16xf32>) -> tensor<64x1024xf32>
  %t3 = math.tanh %w3 : tensor<64x1024xf32>
  %s0 = memopt.matmul %t0, %d0 {transpose_b} : (tensor<64x1024xf32>, tensor<1x1024xf32>) -> tensor<64x1xf32>
  %s1 = memopt.matmul %t1, %d1 {transpose_b} : (tensor<64x1024xf32>, tensor<1x1024xf32>) -> tensor<64x1xf32>
  %s2 = memopt.matmul %t2, %d2 {transpose_b} : (tensor<64x1024xf32>, tensor<1x1024xf32>) -> tensor<64x1xf32>
  %s3 = memopt.matmul %t3, %d3 {transpose_b} : (tensor<64x1024xf32>, tensor<1x1024xf32>) -> tensor<64x1xf32>
  %a0 = arith.addf %s0, %s1 : tensor<64x1xf32>
  %a1 = arith.addf %a0, %s2 : tensor<64x1xf32>
  %a2 = arith.addf %a1, %s3 : tensor<64x1xf32>
  %flat = tensor.collapse_shape %a2 [[0, 1]] : tensor<64x1xf32> into tensor<64xf32>
  %weights = math.exp %flat : tensor<64xf32>
  %sum = memopt.reduce %weights {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<64xf32>) -> tensor<f32>
  %sums = memopt.broadcast %sum {dimensions = array<i64>} : (tensor<f32>) -> tensor<64xf32>
  %shares = arith.divf %weights, %sums : tensor<64xf32>
  %y = memopt.matmul %x, %o {transpose_b} : (tensor<64x16xf32>, tensor<16x16xf32>) -> tensor<64x16xf32>
  %far = arith.subf %y, %x : tensor<64x16xf32>
  %squares = arith.mulf %far, %far : tensor<64x16xf32>
  %each = memopt.reduce %squares {kind = #memopt.reduce<add>, dimensions = array<i64: 1>} : (tensor<64x16xf32>) -> tensor<64xf32>
  %weighed = arith.mulf %each, %shares : tensor<64xf32>
  %loss = memopt.reduce %weighed {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<64xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
