// RUN: memopt-opt %s --memopt-split-batch=parts=2 | FileCheck %s

// The samples of a loop over time are those of its body: both loops, forward and backward, work on half of them
// in each micro-batch. What is added up over them in a carried value is a sum of the micro-batch.

// CHECK: memopt.repeat count(2) next_batch
// CHECK: memopt.scan count(8) slices(%{{.*}} : tensor<2x4xf32> of tensor<8x2x4xf32>) carried(%{{.*}} : tensor<2x4xf32>, %{{.*}} : tensor<4xf32>)
// CHECK:   %[[SUM:.*]] = memopt.reduce %{{.*}} : (tensor<2x4xf32>) -> tensor<4xf32>
// CHECK: } -> tensor<2x4xf32>, tensor<4xf32>
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @step(%xs: tensor<8x4x4xf32> {memopt.batch_dim = 1 : i64}) -> (tensor<f32> {memopt.role = "loss"}) {
  %h0 = arith.constant dense<0.0> : tensor<4x4xf32>
  %s0 = arith.constant dense<0.0> : tensor<4xf32>
  %h, %s = memopt.scan count(8) slices(%x = %xs : tensor<4x4xf32> of tensor<8x4x4xf32>) carried(%a = %h0 : tensor<4x4xf32>, %b = %s0 : tensor<4xf32>) {
    %0 = arith.addf %a, %x : tensor<4x4xf32>
    %1 = math.tanh %0 : tensor<4x4xf32>
    %2 = memopt.reduce %1 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
    %3 = arith.addf %b, %2 : tensor<4xf32>
    memopt.yield %1, %3 : tensor<4x4xf32>, tensor<4xf32>
  } -> tensor<4x4xf32>, tensor<4xf32>
  memopt.gradient %s, @w : tensor<4xf32>
  %loss = memopt.reduce %h {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<4x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
