// RUN: memopt-opt %s -memopt-mixed-precision=type=bf16 -canonicalize | FileCheck %s

// Products in the body of a loop are narrow. A weight that they alone read is rounded once, in front of the loop; what is
// carried stays f32 and is rounded in each iteration; slices that were rounded come narrow.
// CHECK-LABEL: func @step
// CHECK-DAG:   %[[WEIGHT:.*]] = arith.truncf %{{.*}} : tensor<4x4xf32> to tensor<4x4xbf16>
// CHECK:       %[[INPUTS:.*]] = arith.truncf %{{.*}} : tensor<6x4xf32> to tensor<6x4xbf16>
// CHECK:       %[[SLICES:.*]] = tensor.expand_shape %[[INPUTS]]
// CHECK:       memopt.scan count(3) fixed(%[[W:.*]] = %[[WEIGHT]] : tensor<4x4xbf16>, %[[S:.*]] = %arg1 : tensor<4xf32>) slices(%[[X:.*]] = %[[SLICES]] : tensor<2x4xbf16> of tensor<3x2x4xbf16>) carried(%[[H:.*]] = %arg2 : tensor<2x4xf32>) {
// CHECK-DAG:     arith.extf %[[X]]
// CHECK-DAG:     %[[NARROW:.*]] = arith.truncf %[[H]] : tensor<2x4xf32> to tensor<2x4xbf16>
// CHECK:         memopt.matmul %[[NARROW]], %[[W]] : (tensor<2x4xbf16>, tensor<4x4xbf16>) -> tensor<2x4xf32>
// CHECK:         memopt.broadcast %[[S]]
// CHECK:       } -> tensor<2x4xf32>
memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable}
func.func @step(%x: tensor<6x3xf32>, %scale: tensor<4xf32>, %h0: tensor<2x4xf32>, %into: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %p = memopt.matmul %x, %into : (tensor<6x3xf32>, tensor<3x4xf32>) -> tensor<6x4xf32>
  %xs = tensor.expand_shape %p [[0, 1], [2]] output_shape [3, 2, 4] : tensor<6x4xf32> into tensor<3x2x4xf32>
  %last = memopt.scan count(3) fixed(%v = %w : tensor<4x4xf32>, %s = %scale : tensor<4xf32>)
      slices(%now = %xs : tensor<2x4xf32> of tensor<3x2x4xf32>) carried(%h = %h0 : tensor<2x4xf32>) {
    %0 = memopt.matmul %h, %v : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %1 = arith.addf %0, %now : tensor<2x4xf32>
    %2 = memopt.broadcast %s {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4xf32>
    %3 = arith.mulf %1, %2 : tensor<2x4xf32>
    memopt.yield %3 : tensor<2x4xf32>
  } -> tensor<2x4xf32>
  return %last : tensor<2x4xf32>
}
