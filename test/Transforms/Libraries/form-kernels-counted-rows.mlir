// RUN: memopt-opt %s --split-input-file --memopt-form-kernels --memopt-verify-kernel-graph | FileCheck %s

#matrix = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>

// Rows that a mask leaves out are not multiplied. The call reads the matrix as it is, without its zeros.

// CHECK-LABEL: @rows
// CHECK-SAME: %[[X:.*]]: tensor<32x80xf32>, %[[W:.*]]: tensor<64x80xf32>, %[[M:.*]]: tensor<32xi1>
// CHECK-NOT: memopt.kernel
// CHECK: %[[Y:.*]] = memopt.library_call #memopt.matmul<m = 32, n = 64, k = 80, {{.*}} counts_rows = true>
// CHECK-SAME: (%[[X]], %[[W]], %[[M]])
// CHECK-NEXT: return %[[Y]]
func.func @rows(%x: tensor<32x80xf32>, %w: tensor<64x80xf32>, %m: tensor<32xi1>) -> tensor<32x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x80xf32>
  %0 = linalg.generic {indexing_maps = [#rows, #matrix, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%m, %x : tensor<32xi1>, tensor<32x80xf32>) outs(%e : tensor<32x80xf32>) {
  ^bb0(%c: i1, %p: f32, %o: f32):
    %s = arith.select %c, %p, %zero : f32
    linalg.yield %s : f32
  } -> tensor<32x80xf32>
  %1 = memopt.matmul %0, %w {transpose_b} : (tensor<32x80xf32>, tensor<64x80xf32>) -> tensor<32x64xf32>
  return %1 : tensor<32x64xf32>
}

// -----

#matrix = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>

// In the gradient of the weights they are terms, behind elementwise code and another product, too; a bias stands before the mask.

// CHECK-LABEL: @terms
// CHECK-SAME: %[[X:.*]]: tensor<32x80xf32>, %[[W:.*]]: tensor<64x80xf32>, %[[G:.*]]: tensor<32x64xf32>, %[[M:.*]]: tensor<32xi1>
// CHECK: %[[D:.*]] = memopt.library_call #memopt.matmul<m = 32, n = 80, k = 64, {{.*}} counts_rows = true>
// CHECK-SAME: (%[[G]], %[[W]], %[[M]])
// CHECK: %[[S:.*]] = memopt.kernel {{.*}}%[[D]]
// CHECK: memopt.library_call #memopt.matmul<m = 80, n = 80, k = 32, {{.*}} bias = true, {{.*}} counts_terms = true>
// CHECK-SAME: (%[[S]], %[[X]], %{{.*}}, %[[M]])
func.func @terms(%x: tensor<32x80xf32>, %w: tensor<64x80xf32>, %g: tensor<32x64xf32>, %m: tensor<32xi1>, %b: tensor<80xf32>) -> tensor<80x80xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x64xf32>
  %0 = linalg.generic {indexing_maps = [#rows, #matrix, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%m, %g : tensor<32xi1>, tensor<32x64xf32>) outs(%e : tensor<32x64xf32>) {
  ^bb0(%c: i1, %p: f32, %o: f32):
    %s = arith.select %c, %p, %zero : f32
    linalg.yield %s : f32
  } -> tensor<32x64xf32>
  %1 = memopt.matmul %0, %w : (tensor<32x64xf32>, tensor<64x80xf32>) -> tensor<32x80xf32>
  %e1 = tensor.empty() : tensor<32x80xf32>
  %2 = linalg.generic {indexing_maps = [#matrix, #matrix, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%x, %1 : tensor<32x80xf32>, tensor<32x80xf32>) outs(%e1 : tensor<32x80xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = math.exp %p : f32
    %t = arith.mulf %s, %q : f32
    linalg.yield %t : f32
  } -> tensor<32x80xf32>
  %3 = memopt.matmul %2, %x {transpose_a} : (tensor<32x80xf32>, tensor<32x80xf32>) -> tensor<80x80xf32>
  %e2 = tensor.empty() : tensor<80x80xf32>
  %4 = linalg.generic {indexing_maps = [#matrix, #column, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%3, %b : tensor<80x80xf32>, tensor<80xf32>) outs(%e2 : tensor<80x80xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<80x80xf32>
  return %4 : tensor<80x80xf32>
}

// -----

#matrix = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>

// A sum with rows that are none of the mask's has no zeros.

// CHECK-LABEL: @sum
// CHECK-NOT: counts_
func.func @sum(%x: tensor<32x80xf32>, %w: tensor<64x80xf32>, %m: tensor<32xi1>) -> tensor<32x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x80xf32>
  %0 = linalg.generic {indexing_maps = [#rows, #matrix, #matrix], iterator_types = ["parallel", "parallel"]}
      ins(%m, %x : tensor<32xi1>, tensor<32x80xf32>) outs(%e : tensor<32x80xf32>) {
  ^bb0(%c: i1, %p: f32, %o: f32):
    %s = arith.select %c, %p, %zero : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<32x80xf32>
  %1 = memopt.matmul %0, %w {transpose_b} : (tensor<32x80xf32>, tensor<64x80xf32>) -> tensor<32x64xf32>
  return %1 : tensor<32x64xf32>
}
