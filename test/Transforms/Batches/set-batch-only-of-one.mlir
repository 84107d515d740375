// RUN: memopt-opt %s -memopt-set-batch="size=4 only-of-one" -split-input-file -verify-diagnostics | FileCheck %s

// A step of one sample gets its size here; one of several keeps it, for the pass that cuts the batch.

// expected-remark @+2 {{compiled for 4 samples instead of 1}}
// CHECK-LABEL: func.func @one(%arg0: tensor<4x3xf32>
func.func @one(%x: tensor<1x3xf32>) -> tensor<f32> {
  %y = arith.mulf %x, %x : tensor<1x3xf32>
  %sum = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<1x3xf32>) -> tensor<f32>
  return %sum : tensor<f32>
}

// -----

// CHECK-LABEL: func.func @several(%arg0: tensor<2x3xf32>
func.func @several(%x: tensor<2x3xf32>) -> tensor<f32> {
  %y = arith.mulf %x, %x : tensor<2x3xf32>
  %sum = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x3xf32>) -> tensor<f32>
  return %sum : tensor<f32>
}
