// RUN: memopt-opt %s -memopt-autodiff -memopt-split-batch=parts=2 | FileCheck %s

// Matrices are samples of their own: a part of the batch is taken apart alone.

memopt.variable @v : tensor<3xf32> role <parameter> {trainable}

// CHECK-LABEL: func.func @train_step
// CHECK: memopt.repeat count(2)
// CHECK: memopt.linear_algebra %{{.*}} {kind = #memopt.algebra<eigenvectors>} : (tensor<4x3x3xf32>) -> (tensor<4x3xf32>, tensor<4x3x3xf32>)
func.func @train_step(%x: tensor<8x3x3xf32>) -> tensor<f32> {
  %v = memopt.read @v : tensor<3xf32>
  %rows = memopt.broadcast %v {dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<8x3xf32>
  %values, %vectors = memopt.linear_algebra %x {kind = #memopt.algebra<eigenvectors>} : (tensor<8x3x3xf32>) -> (tensor<8x3xf32>, tensor<8x3x3xf32>)
  %scaled = arith.mulf %values, %rows : tensor<8x3xf32>
  %loss = memopt.reduce %scaled {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
