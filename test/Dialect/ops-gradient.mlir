// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op of GradientOps.td prints what it parsed.

// CHECK-LABEL: func.func @gradients
func.func @gradients(%x: tensor<4xf32>, %n: tensor<2xi64>) {
  // CHECK: %[[Y:.*]] = memopt.stop_gradient %[[X:.*]] : (tensor<4xf32>) -> tensor<4xf32>
  %y = memopt.stop_gradient %x : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: %[[G:.*]] = memopt.incoming_gradient %[[Y]] {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %g = memopt.incoming_gradient %y {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // Integers come along without a gradient.
  // CHECK: memopt.custom_gradient %[[Y]], %{{.*}}, %[[G]], %[[X]], %[[G]]
  %z:2 = memopt.custom_gradient %y, %n, %g, %x, %g {operandSegmentSizes = array<i32: 2, 1, 1, 1>}
    : (tensor<4xf32>, tensor<2xi64>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<2xi64>)
  return
}
