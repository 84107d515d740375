// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-hoist-slices))' -split-input-file | FileCheck %s
// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-hoist-slices))' -split-input-file --remarks-filter=memopt-hoist-slices --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// The last token's logits are cut off: behind a bias, a cap and a cast.

// CHECK-LABEL: func.func @shifted
// CHECK-SAME: %[[X:arg0]]: tensor<2x8x4xf16>, %[[W:arg1]]: tensor<32x4xf16>, %[[B:arg2]]: tensor<32xf16>
// CHECK: %[[CUT:.*]] = tensor.extract_slice %[[X]][0, 0, 0] [2, 7, 4] [1, 1, 1]
// CHECK: %[[FLAT:.*]] = tensor.collapse_shape %[[CUT]] {{\[}}[0, 1], [2]] : tensor<2x7x4xf16> into tensor<14x4xf16>
// CHECK: %[[L:.*]] = memopt.matmul %[[FLAT]], %[[W]] {transpose_b} : {{.*}} -> tensor<14x32xf16>
// CHECK: %[[WIDE:.*]] = memopt.broadcast %[[B]] {dimensions = array<i64: 1>} : (tensor<32xf16>) -> tensor<14x32xf16>
// CHECK: %[[S:.*]] = arith.addf %[[L]], %[[WIDE]]
// CHECK: %[[APART:.*]] = tensor.expand_shape %[[S]] {{\[}}[0, 1], [2]] output_shape [2, 7, 32]
// CHECK: %[[F:.*]] = arith.extf %[[APART]] : tensor<2x7x32xf16> to tensor<2x7x32xf32>
// CHECK: %[[TENTH:.*]] = arith.constant dense<1.000000e-01> : tensor<2x7x32xf32>
// CHECK: %[[R:.*]] = arith.mulf %[[F]], %[[TENTH]] : tensor<2x7x32xf32>
// CHECK: return %[[R]]
// REMARK: [Passed] HoistSlices | Category:memopt-hoist-slices | Function=shifted | BytesAfter=1792, BytesBefore=2048
func.func @shifted(%x: tensor<2x8x4xf16>, %w: tensor<32x4xf16>, %b: tensor<32xf16>) -> tensor<2x7x32xf32> {
  %tenth = arith.constant dense<1.000000e-01> : tensor<2x8x32xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x8x4xf16> into tensor<16x4xf16>
  %l = memopt.matmul %flat, %w {transpose_b} : (tensor<16x4xf16>, tensor<32x4xf16>) -> tensor<16x32xf16>
  %wide = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<32xf16>) -> tensor<16x32xf16>
  %s = arith.addf %l, %wide : tensor<16x32xf16>
  %apart = tensor.expand_shape %s [[0, 1], [2]] output_shape [2, 8, 32] : tensor<16x32xf16> into tensor<2x8x32xf16>
  %f = arith.extf %apart : tensor<2x8x32xf16> to tensor<2x8x32xf32>
  %r = arith.mulf %f, %tenth : tensor<2x8x32xf32>
  %cut = tensor.extract_slice %r[0, 0, 0] [2, 7, 32] [1, 1, 1] : tensor<2x8x32xf32> to tensor<2x7x32xf32>
  return %cut : tensor<2x7x32xf32>
}

// -----

// Logits that the step returns are computed whole; a layer that makes less than it reads keeps its slice; positions
// along the cut dimension stay what they are.

// CHECK-LABEL: func.func @returned
// CHECK: memopt.matmul {{.*}} -> tensor<16x32xf32>
// CHECK: tensor.extract_slice {{.*}} [2, 7, 32]
func.func @returned(%x: tensor<16x4xf32>, %w: tensor<32x4xf32>) -> (tensor<2x8x32xf32>, tensor<2x7x32xf32>) {
  %l = memopt.matmul %x, %w {transpose_b} : (tensor<16x4xf32>, tensor<32x4xf32>) -> tensor<16x32xf32>
  %apart = tensor.expand_shape %l [[0, 1], [2]] output_shape [2, 8, 32] : tensor<16x32xf32> into tensor<2x8x32xf32>
  %cut = tensor.extract_slice %apart[0, 0, 0] [2, 7, 32] [1, 1, 1] : tensor<2x8x32xf32> to tensor<2x7x32xf32>
  return %apart, %cut : tensor<2x8x32xf32>, tensor<2x7x32xf32>
}

// CHECK-LABEL: func.func @narrow
// CHECK: memopt.matmul {{.*}} -> tensor<16x4xf32>
func.func @narrow(%x: tensor<2x8x32xf32>, %w: tensor<4x32xf32>) -> tensor<2x7x4xf32> {
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x8x32xf32> into tensor<16x32xf32>
  %l = memopt.matmul %flat, %w {transpose_b} : (tensor<16x32xf32>, tensor<4x32xf32>) -> tensor<16x4xf32>
  %apart = tensor.expand_shape %l [[0, 1], [2]] output_shape [2, 8, 4] : tensor<16x4xf32> into tensor<2x8x4xf32>
  %cut = tensor.extract_slice %apart[0, 1, 0] [2, 7, 4] [1, 1, 1] : tensor<2x8x4xf32> to tensor<2x7x4xf32>
  return %cut : tensor<2x7x4xf32>
}

// CHECK-LABEL: func.func @positions
// CHECK: %[[I:.*]] = memopt.iota {dimension = 0 : i64} : () -> tensor<8xi64>
// CHECK-DAG: %[[IC:.*]] = tensor.extract_slice %[[I]][1] [7] [1]
// CHECK-DAG: %[[XC:.*]] = tensor.extract_slice %arg0[1, 0] [7, 4] [1, 1]
// CHECK: memopt.matmul %[[XC]]
// CHECK: arith.sitofp %[[IC]] : tensor<7xi64> to tensor<7xf32>
func.func @positions(%x: tensor<8x4xf32>, %w: tensor<32x4xf32>) -> tensor<7x32xf32> {
  %l = memopt.matmul %x, %w {transpose_b} : (tensor<8x4xf32>, tensor<32x4xf32>) -> tensor<8x32xf32>
  %i = memopt.iota {dimension = 0 : i64} : () -> tensor<8xi64>
  %p = arith.sitofp %i : tensor<8xi64> to tensor<8xf32>
  %wide = memopt.broadcast %p {dimensions = array<i64: 0>} : (tensor<8xf32>) -> tensor<8x32xf32>
  %s = arith.addf %l, %wide : tensor<8x32xf32>
  %cut = tensor.extract_slice %s[1, 0] [7, 32] [1, 1] : tensor<8x32xf32> to tensor<7x32xf32>
  return %cut : tensor<7x32xf32>
}
