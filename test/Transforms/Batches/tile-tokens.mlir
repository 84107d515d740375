// RUN: memopt-opt %s -memopt-tile-tokens -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-tile-tokens -split-input-file 2>&1 -o /dev/null | FileCheck %s --check-prefix=REMARK
// RUN: memopt-opt %s -memopt-tile-tokens=parts=1 -split-input-file | FileCheck %s --check-prefix=WHOLE

// A loss head of 64 tokens in two tiles. The count of labels is taken in front, of no logits; sums are added tile by
// tile; the gradient of the features is joined.

// CHECK-LABEL: func.func @head
// CHECK-SAME: %[[H:arg0]]: tensor<64x8xf32>, %[[W:arg1]]: tensor<16384x8xf32>, %[[T:arg2]]: tensor<64xi64>
// CHECK: %[[NONE:.*]] = tensor.empty() : tensor<64x16384xf32>
// CHECK: %{{.*}}, %[[COUNT:.*]], %{{.*}}, %{{.*}} = memopt.cross_entropy %[[NONE]], %[[T]] :
// CHECK: %[[ONE:.*]] = arith.divf %{{.*}}, %[[COUNT]]
// CHECK: %[[H0:.*]] = tensor.extract_slice %[[H]][0, 0] [32, 8] [1, 1]
// CHECK: %[[L0:.*]] = memopt.matmul %[[H0]], %[[W]] {memopt.tile = 0 : i64, transpose_b} : (tensor<32x8xf32>, tensor<16384x8xf32>) -> tensor<32x16384xf32>
// CHECK: %[[T0:.*]] = tensor.extract_slice %[[T]][0] [32] [1]
// CHECK: %[[TOTAL0:.*]], %{{.*}}, %[[MAX0:.*]], %[[SUM0:.*]] = memopt.cross_entropy %[[L0]], %[[T0]] {memopt.tile = 0 : i64}
// CHECK: %[[G0:.*]] = memopt.cross_entropy_backward %[[L0]], %[[T0]], %[[MAX0]], %[[SUM0]], %[[ONE]] {memopt.phase = #memopt.phase<backward>, memopt.tile = 0 : i64}
// CHECK: %[[D0:.*]] = memopt.matmul %[[G0]], %[[W]]
// CHECK: %[[W0:.*]] = memopt.matmul %[[G0]], %[[H0]] {{.*}}transpose_a
// CHECK: %[[L1:.*]] = memopt.matmul %{{.*}}, %[[W]] {memopt.tile = 1 : i64, transpose_b}
// CHECK: %[[TOTAL1:.*]], %{{.*}}, %{{.*}}, %{{.*}} = memopt.cross_entropy %[[L1]]
// CHECK: %[[TOTAL:.*]] = memopt.accumulate %[[TOTAL0]], %[[TOTAL1]]
// CHECK: %[[G1:.*]] = memopt.cross_entropy_backward %[[L1]]
// CHECK: %[[D1:.*]] = memopt.matmul %[[G1]], %[[W]]
// CHECK: %[[W1:.*]] = memopt.matmul %[[G1]], %{{.*}} {{.*}}transpose_a
// CHECK: %[[DW:.*]] = memopt.accumulate %[[W0]], %[[W1]] {memopt.phase = #memopt.phase<backward>, memopt.tile = 1 : i64}
// CHECK: %[[DH:.*]] = tensor.concat dim(0) %[[D0]], %[[D1]]
// CHECK: %[[LOSS:.*]] = arith.divf %[[TOTAL]], %[[COUNT]]
// CHECK: return %[[LOSS]], %[[DH]], %[[DW]]

// The whole is computed by the same products and sums.

// WHOLE-LABEL: func.func @head
// WHOLE: memopt.matmul {{.*}} -> tensor<32x16384xf32>
// WHOLE: memopt.matmul {{.*}} -> tensor<32x16384xf32>
// WHOLE: %[[L:.*]] = tensor.concat dim(0) {{.*}} -> tensor<64x16384xf32>
// WHOLE: %[[L0:.*]] = tensor.extract_slice %[[L]][0, 0] [32, 16384] [1, 1]
// WHOLE: memopt.cross_entropy %[[L0]]
// WHOLE: memopt.cross_entropy_backward %[[L]]
func.func @head(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>, %t: tensor<64xi64>)
    -> (tensor<f32>, tensor<64x8xf32>, tensor<16384x8xf32>) {
  %cst = arith.constant dense<1.000000e+00> : tensor<f32>
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %total, %count, %largest, %log_sum = memopt.cross_entropy %l, %t : (tensor<64x16384xf32>, tensor<64xi64>) -> (tensor<f32>, tensor<f32>, tensor<64xf32>, tensor<64xf32>)
  %loss = arith.divf %total, %count : tensor<f32>
  %one = arith.divf %cst, %count {memopt.phase = #memopt.phase<backward>} : tensor<f32>
  %g = memopt.cross_entropy_backward %l, %t, %largest, %log_sum, %one {memopt.phase = #memopt.phase<backward>} : (tensor<64x16384xf32>, tensor<64xi64>, tensor<64xf32>, tensor<64xf32>, tensor<f32>) -> tensor<64x16384xf32>
  %d = memopt.matmul %g, %w {memopt.phase = #memopt.phase<backward>} : (tensor<64x16384xf32>, tensor<16384x8xf32>) -> tensor<64x8xf32>
  %dw = memopt.matmul %g, %h {memopt.phase = #memopt.phase<backward>, transpose_a} : (tensor<64x16384xf32>, tensor<64x8xf32>) -> tensor<16384x8xf32>
  return %loss, %d, %dw : tensor<f32>, tensor<64x8xf32>, tensor<16384x8xf32>
}

// -----

// Logits that are returned are needed as a whole. A remark says what needs them.

// REMARK: remark: left the results of 1 wide product whole, 4194304 bytes; the largest has 4194304 bytes, for 'func.return' needs the value of all tokens as a whole

// CHECK-LABEL: func.func @returned
// CHECK-NOT: memopt.tile
func.func @returned(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>, %t: tensor<64xi64>) -> (tensor<f32>, tensor<64x16384xf32>, tensor<f32>) {
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %total, %count, %largest, %log_sum = memopt.cross_entropy %l, %t : (tensor<64x16384xf32>, tensor<64xi64>) -> (tensor<f32>, tensor<f32>, tensor<64xf32>, tensor<64xf32>)
  %gradient = arith.divf %total, %count {memopt.phase = #memopt.phase<backward>} : tensor<f32>
  return %total, %l, %gradient : tensor<f32>, tensor<64x16384xf32>, tensor<f32>
}

// -----

// Evaluation returns them for good, and nothing is said.

// REMARK-NOT: remark:

func.func @evaluated(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>) -> tensor<64x16384xf32> {
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  return %l : tensor<64x16384xf32>
}

// -----

// What depends on all tokens lies between: a softmax over them.

// CHECK-LABEL: func.func @mixed
// CHECK-NOT: memopt.tile
func.func @mixed(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>) -> tensor<64x8xf32> {
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %p = memopt.softmax %l {axis = 0 : i64} : (tensor<64x16384xf32>) -> tensor<64x16384xf32>
  %d = memopt.matmul %p, %w : (tensor<64x16384xf32>, tensor<16384x8xf32>) -> tensor<64x8xf32>
  return %d : tensor<64x8xf32>
}

// -----

// A constant that two segments read does not make them one, with what mixes tokens between them.

// CHECK-LABEL: func.func @constant
// CHECK: memopt.matmul {{.*}}memopt.tile = 0
// CHECK: memopt.matmul {{.*}}memopt.tile = 1
// CHECK: memopt.softmax
// CHECK: memopt.matmul {{.*}}memopt.tile = 0
// CHECK: memopt.matmul {{.*}}memopt.tile = 1
func.func @constant(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>) -> tensor<64x8xf32> {
  %half = arith.constant dense<5.000000e-01> : tensor<64x16384xf32>
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %s = arith.mulf %l, %half : tensor<64x16384xf32>
  %d = memopt.matmul %s, %w : (tensor<64x16384xf32>, tensor<16384x8xf32>) -> tensor<64x8xf32>
  %p = memopt.softmax %d {axis = 0 : i64} : (tensor<64x8xf32>) -> tensor<64x8xf32>
  %l2 = memopt.matmul %p, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %s2 = arith.mulf %l2, %half : tensor<64x16384xf32>
  %d2 = memopt.matmul %s2, %w : (tensor<64x16384xf32>, tensor<16384x8xf32>) -> tensor<64x8xf32>
  return %d2 : tensor<64x8xf32>
}

// -----

// What is made for the segment alone is not part of it where it mixes tokens.

// CHECK-LABEL: func.func @softmax_in_front
// CHECK: memopt.softmax {{.*}} : (tensor<64x8xf32>) -> tensor<64x8xf32>
// CHECK: memopt.matmul {{.*}}memopt.tile = 0
// CHECK: memopt.matmul {{.*}}memopt.tile = 1
func.func @softmax_in_front(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>) -> tensor<64x8xf32> {
  %e = math.exp %h : tensor<64x8xf32>
  %p = memopt.softmax %e {axis = 0 : i64} : (tensor<64x8xf32>) -> tensor<64x8xf32>
  %l = memopt.matmul %p, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %d = memopt.matmul %l, %w : (tensor<64x16384xf32>, tensor<16384x8xf32>) -> tensor<64x8xf32>
  return %d : tensor<64x8xf32>
}

// -----

// Several dimensions count tokens; a cap on logits, reshapes and a bias are part of the segment.

// CHECK-LABEL: func.func @rows
// CHECK: memopt.matmul {{.*}} -> tensor<32x16384xf32>
// CHECK: memopt.broadcast {{.*}} -> tensor<32x16384xf32>
// CHECK: tensor.expand_shape {{.*}} output_shape [1, 32, 16384]
// CHECK: math.tanh {{.*}} : tensor<1x32x16384xf32>
// CHECK: memopt.reduce {{.*}} : (tensor<1x32x16384xf32>) -> tensor<1x32xf32>
// CHECK: %[[ALL:.*]] = tensor.concat dim(1) {{.*}} -> tensor<1x64xf32>
// CHECK: tensor.collapse_shape %[[ALL]]
// CHECK: tensor.expand_shape {{.*}} output_shape [2, 32]
func.func @rows(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>, %b: tensor<16384xf32>) -> tensor<2x32xf32> {
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %bias = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<16384xf32>) -> tensor<64x16384xf32>
  %x = arith.addf %l, %bias : tensor<64x16384xf32>
  %e = tensor.expand_shape %x [[0, 1], [2]] output_shape [2, 32, 16384] : tensor<64x16384xf32> into tensor<2x32x16384xf32>
  %y = math.tanh %e : tensor<2x32x16384xf32>
  %s = memopt.reduce %y {dimensions = array<i64: 2>, kind = #memopt.reduce<max>} : (tensor<2x32x16384xf32>) -> tensor<2x32xf32>
  return %s : tensor<2x32xf32>
}
