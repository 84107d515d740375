// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s
// RUN: memopt-opt %s --split-input-file --memopt-train --memopt-kernels | FileCheck %s --check-prefix=CALLS

// A weight that four steps share gets its gradient from one product of all rows, steps in their order,
// in place of a sum of four matrices.

memopt.variable @w : tensor<5x7xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CALLS-LABEL: func.func @train_step
func.func @train_step(%a: tensor<2x5xf32>, %b: tensor<2x5xf32>, %c: tensor<2x5xf32>, %d: tensor<2x5xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<5x7xf32>
  %0 = memopt.matmul %a, %w : (tensor<2x5xf32>, tensor<5x7xf32>) -> tensor<2x7xf32>
  %1 = memopt.matmul %b, %w : (tensor<2x5xf32>, tensor<5x7xf32>) -> tensor<2x7xf32>
  %2 = memopt.matmul %c, %w : (tensor<2x5xf32>, tensor<5x7xf32>) -> tensor<2x7xf32>
  %3 = memopt.matmul %d, %w : (tensor<2x5xf32>, tensor<5x7xf32>) -> tensor<2x7xf32>
  %4 = arith.mulf %0, %1 : tensor<2x7xf32>
  %5 = arith.mulf %2, %3 : tensor<2x7xf32>
  %6 = arith.addf %4, %5 : tensor<2x7xf32>
  // CHECK: %[[ROWS:.*]] = tensor.concat dim(0) %arg0, %arg1, %arg2, %arg3 {{.*}} -> tensor<8x5xf32>
  // CHECK: %[[G:.*]] = tensor.concat dim(0) {{.*}} -> tensor<8x7xf32>
  // CHECK: %[[DW:.*]] = memopt.matmul %[[ROWS]], %[[G]] {{.*}}transpose_a
  // CHECK-NOT: memopt.matmul
  // CHECK: memopt.gradient %[[DW]], @w
  %loss = memopt.reduce %6 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x7xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Rows of more elements than the matrix would take more memory than the sum: the products stay. Each is added
// where the sum lies when it is taken, so that they are not all there at a time.

memopt.variable @w : tensor<5x7xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CALLS-LABEL: func.func @train_step
func.func @train_step(%a: tensor<8x5xf32>, %b: tensor<8x5xf32>, %c: tensor<8x5xf32>, %d: tensor<8x5xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<5x7xf32>
  %0 = memopt.matmul %a, %w : (tensor<8x5xf32>, tensor<5x7xf32>) -> tensor<8x7xf32>
  %1 = memopt.matmul %b, %w : (tensor<8x5xf32>, tensor<5x7xf32>) -> tensor<8x7xf32>
  %2 = memopt.matmul %c, %w : (tensor<8x5xf32>, tensor<5x7xf32>) -> tensor<8x7xf32>
  %3 = memopt.matmul %d, %w : (tensor<8x5xf32>, tensor<5x7xf32>) -> tensor<8x7xf32>
  %4 = arith.mulf %0, %1 : tensor<8x7xf32>
  %5 = arith.mulf %2, %3 : tensor<8x7xf32>
  %6 = arith.addf %4, %5 : tensor<8x7xf32>
  // CHECK-NOT: tensor.concat
  // CHECK-COUNT-3: arith.addf {{.*}}memopt.sum_of_parts
  // CHECK: return
  // CALLS: %[[FIRST:.*]] = memopt.library_call #memopt.matmul<m = 5, n = 7, k = 8
  // CALLS: %[[SECOND:.*]] = memopt.library_call {{.*}}accumulate = true{{.*}} (%arg{{.}}, %{{.*}}, %[[FIRST]])
  // CALLS: %[[THIRD:.*]] = memopt.library_call {{.*}}accumulate = true{{.*}} (%arg{{.}}, %{{.*}}, %[[SECOND]])
  // CALLS: memopt.library_call {{.*}}accumulate = true{{.*}} (%arg{{.}}, %{{.*}}, %[[THIRD]])
  %loss = memopt.reduce %6 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x7xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A gradient that is a slice of longer lines begins no such sum: calls go on with the lines of their result.

memopt.variable @w : tensor<4x6xf32> role <parameter> {trainable}
// CALLS-LABEL: func.func @train_step
func.func @train_step(%x: tensor<2x4xf32>, %e: tensor<2x3xf32>, %v: tensor<6x5xf32>, %u: tensor<9x5xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<4x6xf32>
  %h = memopt.matmul %x, %w : (tensor<2x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
  %0 = memopt.matmul %h, %v : (tensor<2x6xf32>, tensor<6x5xf32>) -> tensor<2x5xf32>
  %1 = memopt.matmul %h, %v : (tensor<2x6xf32>, tensor<6x5xf32>) -> tensor<2x5xf32>
  %2 = memopt.matmul %h, %v : (tensor<2x6xf32>, tensor<6x5xf32>) -> tensor<2x5xf32>
  %3 = memopt.matmul %h, %v : (tensor<2x6xf32>, tensor<6x5xf32>) -> tensor<2x5xf32>
  %wide = tensor.concat dim(1) %h, %e : (tensor<2x6xf32>, tensor<2x3xf32>) -> tensor<2x9xf32>
  %4 = memopt.matmul %wide, %u : (tensor<2x9xf32>, tensor<9x5xf32>) -> tensor<2x5xf32>
  %5 = arith.mulf %0, %1 : tensor<2x5xf32>
  %6 = arith.mulf %5, %2 : tensor<2x5xf32>
  %7 = arith.mulf %6, %3 : tensor<2x5xf32>
  %8 = arith.mulf %7, %4 : tensor<2x5xf32>
  // CALLS: %[[WIDE:.*]] = memopt.library_call #memopt.matmul<m = 2, n = 9, k = 5
  // CALLS-NOT: accumulate = true{{.*}}, %[[WIDE]])
  // CALLS: return
  %loss = memopt.reduce %8 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x5xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
