// Matrices taken apart and solved by: each kind with its results.
//
// RUN: memopt-opt %s | memopt-opt | FileCheck %s

// CHECK-LABEL: func @kinds
func.func @kinds(%square: tensor<2x4x4xf64>, %tall: tensor<2x5x3xf32>, %sides: tensor<2x4x6xf64>, %complex: tensor<2x5x3x2xf32>) -> tensor<2x4x6xf64> {
  // CHECK: memopt.linear_algebra %{{.*}} {kind = #memopt.algebra<cholesky>} : (tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
  %low = memopt.linear_algebra %square {kind = #memopt.algebra<cholesky>} : (tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
  // CHECK: {kind = #memopt.algebra<eigenvectors>} : (tensor<2x4x4xf64>) -> (tensor<2x4xf64>, tensor<2x4x4xf64>)
  %values, %vectors = memopt.linear_algebra %square {kind = #memopt.algebra<eigenvectors>} : (tensor<2x4x4xf64>) -> (tensor<2x4xf64>, tensor<2x4x4xf64>)
  // CHECK: {kind = #memopt.algebra<singular_vectors>}
  %u, %s, %vt = memopt.linear_algebra %tall {kind = #memopt.algebra<singular_vectors>} : (tensor<2x5x3xf32>) -> (tensor<2x5x3xf32>, tensor<2x3xf32>, tensor<2x3x3xf32>)
  // CHECK: {kind = #memopt.algebra<reflections>}
  %packed, %factors = memopt.linear_algebra %tall {kind = #memopt.algebra<reflections>} : (tensor<2x5x3xf32>) -> (tensor<2x5x3xf32>, tensor<2x3xf32>)
  // CHECK: {kind = #memopt.algebra<reflection_product>}
  %q = memopt.linear_algebra %packed, %factors {kind = #memopt.algebra<reflection_product>} : (tensor<2x5x3xf32>, tensor<2x3xf32>) -> tensor<2x5x3xf32>
  // CHECK: {kind = #memopt.algebra<lu>} : (tensor<2x4x4xf64>) -> (tensor<2x4x4xf64>, tensor<2x4xi64>, tensor<2x4xi64>)
  %both, %exchanges, %order = memopt.linear_algebra %square {kind = #memopt.algebra<lu>} : (tensor<2x4x4xf64>) -> (tensor<2x4x4xf64>, tensor<2x4xi64>, tensor<2x4xi64>)
  // CHECK: {kind = #memopt.algebra<lu_solve>, transposed}
  %x = memopt.linear_algebra %both, %exchanges, %sides {kind = #memopt.algebra<lu_solve>, transposed} : (tensor<2x4x4xf64>, tensor<2x4xi64>, tensor<2x4x6xf64>) -> tensor<2x4x6xf64>
  // CHECK: {kind = #memopt.algebra<triangular_solve>, unit, upper}
  %y = memopt.linear_algebra %low, %x {kind = #memopt.algebra<triangular_solve>, upper, unit} : (tensor<2x4x4xf64>, tensor<2x4x6xf64>) -> tensor<2x4x6xf64>
  // CHECK: {kind = #memopt.algebra<triangular_product>, right} : (tensor<2x4x4xf64>, tensor<2x6x4xf64>) -> tensor<2x6x4xf64>
  %rows = memopt.transpose %y {permutation = array<i64: 0, 2, 1>} : (tensor<2x4x6xf64>) -> tensor<2x6x4xf64>
  %z = memopt.linear_algebra %low, %rows {kind = #memopt.algebra<triangular_product>, right} : (tensor<2x4x4xf64>, tensor<2x6x4xf64>) -> tensor<2x6x4xf64>
  // Complex numbers are pairs; singular values stay real.
  // CHECK: {kind = #memopt.algebra<singular_vectors>, pairs} : (tensor<2x5x3x2xf32>) -> (tensor<2x5x3x2xf32>, tensor<2x3xf32>, tensor<2x3x3x2xf32>)
  %cu, %cs, %cvh = memopt.linear_algebra %complex {kind = #memopt.algebra<singular_vectors>, pairs} : (tensor<2x5x3x2xf32>) -> (tensor<2x5x3x2xf32>, tensor<2x3xf32>, tensor<2x3x3x2xf32>)
  return %y : tensor<2x4x6xf64>
}
