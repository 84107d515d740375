// RUN: rm -rf %t && mkdir %t
// RUN: memopt-compile %s -o %t/sunk.memopt
// RUN: sed '/[/] ALONE$/d; s,^//KEPT ,,' %s > %t/kept.mlir
// RUN: memopt-compile %t/kept.mlir -o %t/kept.memopt
// RUN: memopt-run %t/sunk.memopt --steps=3 --lr=0.25 --quiet --check-memory --report=%t/sunk.json --save-gradients=%t/sunk.safetensors --save=%t/sunk
// RUN: memopt-run %t/kept.memopt --steps=3 --lr=0.25 --quiet --check-memory --report=%t/kept.json --save-gradients=%t/kept.safetensors --save=%t/kept
// RUN: %python %support/compare_runs.py %t/kept.json %t/sunk.json
// RUN: cmp %t/kept.safetensors %t/sunk.safetensors
// RUN: cmp %t/kept/model.safetensors %t/sunk/model.safetensors

// A max pool that comes before its relu gives the same bits, with ties above, at and below zero and windows that overlap.
// The second form keeps its order, for its rectified values are returned.

memopt.variable @x : tensor<1x1x4x5xf32> role <parameter> {trainable, names = ["x"], initial = dense<[[[
  [0.5, 0.5, -1.0, 0.0, -0.0], [0.5, -2.0, -1.0, -0.0, 0.0], [1.5, 1.5, 1.5, -3.0, -3.0], [-1.0, 1.5, 0.25, -3.0, 0.25]]]]>
  : tensor<1x1x4x5xf32>}
func.func @train_step() -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) { // ALONE
//KEPT func.func @train_step() -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}, tensor<1x1x4x5xf32>) {
  %x = memopt.read @x : tensor<1x1x4x5xf32>
  %positive = memopt.relu %x : tensor<1x1x4x5xf32>
  %pooled, %taps = memopt.max_pool %positive {kernel = array<i64: 2, 2>, strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x1x4x5xf32>) -> (tensor<1x1x3x4xf32>, tensor<1x1x3x4xi8>)
  %square = arith.mulf %pooled, %pooled : tensor<1x1x3x4xf32>
  %loss = memopt.reduce %square {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : (tensor<1x1x3x4xf32>) -> tensor<f32>
  return %loss : tensor<f32> // ALONE
//KEPT return %loss, %positive : tensor<f32>, tensor<1x1x4x5xf32>
}
