// RUN: memopt-opt %s --split-input-file --memopt-form-kernels --memopt-verify-kernel-graph -verify-diagnostics | FileCheck %s

// Each op is one call, whose workspace is LAPACK's for one matrix of each thread.

// CHECK-LABEL: @least_squares
// CHECK-SAME: %[[A:.*]]: tensor<2x6x4xf64>, %[[B:.*]]: tensor<2x4x3xf64>
// CHECK: %[[R:.*]]:2 = memopt.library_call #memopt.linear_algebra<kind = reflections, batch = 2, rows = 6, columns = 4, type = f64>
// CHECK-SAME: (%[[A]]) {implementation = "lapack", {{.*}}workspace = {{[1-9][0-9]*}} : i64}
// CHECK-SAME: (tensor<2x6x4xf64>) -> (tensor<2x6x4xf64>, tensor<2x4xf64>)
// CHECK: memopt.library_call #memopt.linear_algebra<kind = reflection_product, batch = 2, rows = 6, columns = 4, width = 4, type = f64>
// CHECK-SAME: (%[[R]]#0, %[[R]]#1)
func.func @least_squares(%a: tensor<2x6x4xf64>, %b: tensor<2x4x3xf64>) -> tensor<2x6x4xf64> {
  %r, %t = memopt.linear_algebra %a {kind = #memopt.algebra<reflections>} : (tensor<2x6x4xf64>) -> (tensor<2x6x4xf64>, tensor<2x4xf64>)
  %q = memopt.linear_algebra %r, %t {kind = #memopt.algebra<reflection_product>} : (tensor<2x6x4xf64>, tensor<2x4xf64>) -> tensor<2x6x4xf64>
  return %q : tensor<2x6x4xf64>
}

// -----

// A solve of f32 works in its result: it needs no workspace. What is transposed is copied, as it is packed for the library.

// CHECK-LABEL: @solve
// CHECK: memopt.library_call #memopt.linear_algebra<kind = triangular_solve, batch = 1, rows = 4, columns = 4, width = 2, upper = true, transposed = true, type = f32>
// CHECK-SAME: workspace = 0 : i64
func.func @solve(%a: tensor<1x4x4xf32>, %b: tensor<1x2x4xf32>) -> tensor<1x4x2xf32> {
  %t = memopt.transpose %b {permutation = array<i64: 0, 2, 1>} : (tensor<1x2x4xf32>) -> tensor<1x4x2xf32>
  %x = memopt.linear_algebra %a, %t {kind = #memopt.algebra<triangular_solve>, upper, transposed} : (tensor<1x4x4xf32>, tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
  return %x : tensor<1x4x2xf32>
}

// -----

// Complex matrices are read as the pairs that they are.

// CHECK-LABEL: @pairs
// CHECK: memopt.library_call #memopt.linear_algebra<kind = triangular_solve, batch = 2, rows = 4, columns = 4, width = 3, right = true, pairs = true, type = f32>
func.func @pairs(%a: tensor<2x4x4x2xf32>, %b: tensor<2x3x4x2xf32>) -> tensor<2x3x4x2xf32> {
  %x = memopt.linear_algebra %a, %b {kind = #memopt.algebra<triangular_solve>, right, pairs} : (tensor<2x4x4x2xf32>, tensor<2x3x4x2xf32>) -> tensor<2x3x4x2xf32>
  return %x : tensor<2x3x4x2xf32>
}

// -----

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
  func.func @device(%a: tensor<1x4x4xf32>) -> tensor<1x4x4xf32> {
    // expected-error @+1 {{has no library on this target; loops of the program compute it where the graph is imported for the target}}
    %low = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>} : (tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
    return %low : tensor<1x4x4xf32>
  }
}
