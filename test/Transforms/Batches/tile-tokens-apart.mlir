// RUN: memopt-opt %s -memopt-tile-tokens -canonicalize -split-input-file | FileCheck %s

// A loss whose gradient waits for what all tokens come to, as a preference loss is: the sum of all rows decides how much each
// row's gradient counts. Forward and backward pass are tiled apart, and a tile of the second reads the logits that the
// same tile of the first has left; nobody puts them together.

// CHECK-LABEL: func.func @preference
// CHECK-NOT: tensor<64x16384xf32>
// CHECK: %[[L0:.*]] = memopt.matmul %{{.*}} {memopt.tile = 0 : i64, transpose_b} : {{.*}} -> tensor<32x16384xf32>
// CHECK: %[[P0:.*]] = memopt.log_softmax %[[L0]]
// CHECK: %[[L1:.*]] = memopt.matmul %{{.*}} {memopt.tile = 1 : i64, transpose_b} : {{.*}} -> tensor<32x16384xf32>
// CHECK: %[[P1:.*]] = memopt.log_softmax %[[L1]]
// CHECK: %[[LOSS:.*]] = math.exp
// CHECK: memopt.broadcast %[[LOSS]] {{.*}} -> tensor<32x16384xf32>
// CHECK: %[[G0:.*]] = arith.mulf %{{.*}}, %[[P0]] {memopt.phase = #memopt.phase<backward>, memopt.tile = 0 : i64}
// CHECK: memopt.matmul %[[G0]], %{{.*}} {memopt.phase = #memopt.phase<backward>, memopt.tile = 0 : i64}
// CHECK: %[[G1:.*]] = arith.mulf %{{.*}}, %[[P1]] {memopt.phase = #memopt.phase<backward>, memopt.tile = 1 : i64}
// CHECK-NOT: tensor<64x16384xf32>
// CHECK: return
func.func @preference(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>) -> (tensor<f32>, tensor<64x8xf32>) {
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %p = memopt.log_softmax %l {axis = 1 : i64} : (tensor<64x16384xf32>) -> tensor<64x16384xf32>
  %rows = memopt.reduce %p {dimensions = array<i64: 1>, kind = #memopt.reduce<add>} : (tensor<64x16384xf32>) -> tensor<64xf32>
  %s = memopt.reduce %rows {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<64xf32>) -> tensor<f32>
  %loss = math.exp %s : tensor<f32>
  %spread = memopt.broadcast %loss {dimensions = array<i64>, memopt.phase = #memopt.phase<backward>} : (tensor<f32>) -> tensor<64x16384xf32>
  %g = arith.mulf %spread, %p {memopt.phase = #memopt.phase<backward>} : tensor<64x16384xf32>
  %d = memopt.matmul %g, %w {memopt.phase = #memopt.phase<backward>} : (tensor<64x16384xf32>, tensor<16384x8xf32>) -> tensor<64x8xf32>
  return %loss, %d : tensor<f32>, tensor<64x8xf32>
}

// -----

// Logits that the forward pass gives away are needed as a whole.

// CHECK-LABEL: func.func @returned
// CHECK-NOT: memopt.tile
func.func @returned(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>) -> (tensor<f32>, tensor<64x8xf32>, tensor<64x16384xf32>) {
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %rows = memopt.reduce %l {dimensions = array<i64: 1>, kind = #memopt.reduce<add>} : (tensor<64x16384xf32>) -> tensor<64xf32>
  %s = memopt.reduce %rows {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<64xf32>) -> tensor<f32>
  %loss = math.exp %s : tensor<f32>
  %spread = memopt.broadcast %loss {dimensions = array<i64>, memopt.phase = #memopt.phase<backward>} : (tensor<f32>) -> tensor<64x16384xf32>
  %g = arith.mulf %spread, %l {memopt.phase = #memopt.phase<backward>} : tensor<64x16384xf32>
  %d = memopt.matmul %g, %w {memopt.phase = #memopt.phase<backward>} : (tensor<64x16384xf32>, tensor<16384x8xf32>) -> tensor<64x8xf32>
  return %loss, %d, %l : tensor<f32>, tensor<64x8xf32>, tensor<64x16384xf32>
}
