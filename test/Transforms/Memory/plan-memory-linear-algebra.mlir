// RUN: memopt-opt %s --split-input-file --memopt-form-kernels --memopt-plan-memory | FileCheck %s

// Which results of calls that take matrices apart lie over an operand: 64 * 64 * 4 = 16384 bytes for each matrix.

// A factor takes the place of its matrix, which is an input, and what is solved that of the right side.

// CHECK: arena_bytes = [32768, 0, 0]
// CHECK-LABEL: @solve
func.func @solve(%a: tensor<1x64x64xf32>, %b: tensor<1x64x64xf32>) -> tensor<1x64x64xf32> {
  // CHECK: memopt.library_call #memopt.linear_algebra<kind = cholesky, {{.*}}offsets = array<i64: [[A:[0-9]+]]>
  %low = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>} : (tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  // CHECK: memopt.library_call #memopt.linear_algebra<kind = triangular_product, {{.*}}offsets = array<i64: [[B:[0-9]+]]>
  %y = memopt.linear_algebra %low, %b {kind = #memopt.algebra<triangular_product>, transposed} : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  // CHECK: memopt.library_call #memopt.linear_algebra<kind = triangular_solve, {{.*}}offsets = array<i64: [[B]]>
  %x = memopt.linear_algebra %low, %y {kind = #memopt.algebra<triangular_solve>, right} : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  return %x : tensor<1x64x64xf32>
}

// -----

// Both operands in one buffer: the triangle is read to the end.

// CHECK: arena_bytes = [32768, 0, 0]
// CHECK-LABEL: @same
func.func @same(%a: tensor<1x64x64xf32>) -> tensor<1x64x64xf32> {
  %x = memopt.linear_algebra %a, %a {kind = #memopt.algebra<triangular_solve>} : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  return %x : tensor<1x64x64xf32>
}
