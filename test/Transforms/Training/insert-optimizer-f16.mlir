// RUN: not memopt-opt %s --memopt-autodiff --memopt-insert-optimizer 2>&1 | FileCheck %s

// Updates of bf16 are rounded at random; f16 has too small a range for steps.

// CHECK: error: parameter 'w' has elements of 'f16', to which no update is rounded; keep it in float32
memopt.variable @w : tensor<4xf16> role <parameter> {trainable}
func.func @train_step() -> tensor<f32> {
  %w = memopt.read @w : tensor<4xf16>
  %wide = arith.extf %w : tensor<4xf16> to tensor<4xf32>
  %loss = memopt.reduce %wide {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
