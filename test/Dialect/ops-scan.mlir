// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// A recurrence: one value is handed on, one is stacked; an iteration reads a slice.

// CHECK-LABEL: func.func @recurrence
// CHECK: %[[R:.*]]:2 = memopt.scan count(8) fixed(%[[W:.*]] = %arg0 : tensor<4x4xf32>) slices(%[[X:.*]] = %arg1 : tensor<2x4xf32> of tensor<8x2x4xf32>) carried(%[[H:.*]] = %arg2 : tensor<2x4xf32>) {
// CHECK:   memopt.yield %[[N:.*]], %[[N]] : tensor<2x4xf32>, tensor<2x4xf32>
// CHECK: } -> tensor<2x4xf32>, tensor<8x2x4xf32>
func.func @recurrence(%w: tensor<4x4xf32>, %xs: tensor<8x2x4xf32>, %h0: tensor<2x4xf32>) -> tensor<8x2x4xf32> {
  %last, %all = memopt.scan count(8) fixed(%a = %w : tensor<4x4xf32>) slices(%x = %xs : tensor<2x4xf32> of tensor<8x2x4xf32>) carried(%h = %h0 : tensor<2x4xf32>) {
    %0 = memopt.matmul %h, %a : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %1 = arith.addf %0, %x : tensor<2x4xf32>
    memopt.yield %1, %1 : tensor<2x4xf32>, tensor<2x4xf32>
  } -> tensor<2x4xf32>, tensor<8x2x4xf32>
  return %all : tensor<8x2x4xf32>
}

// Some of the slices, the last of them first; nothing is carried, nothing is fixed.

// CHECK-LABEL: func.func @some
// CHECK: memopt.scan count(3) reverse slices(%{{.*}} = %arg0[2] : tensor<4xf32> of tensor<5x4xf32>) {
// CHECK: } -> tensor<3x4xf32> {phase = #memopt.phase<backward>}
func.func @some(%xs: tensor<5x4xf32>) -> tensor<3x4xf32> {
  %0 = memopt.scan count(3) reverse slices(%x = %xs[2] : tensor<4xf32> of tensor<5x4xf32>) {
    %1 = arith.addf %x, %x : tensor<4xf32>
    memopt.yield %1 : tensor<4xf32>
  } -> tensor<3x4xf32> {phase = #memopt.phase<backward>}
  return %0 : tensor<3x4xf32>
}
