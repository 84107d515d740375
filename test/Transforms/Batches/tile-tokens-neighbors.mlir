// RUN: memopt-opt %s -memopt-tile-tokens -split-input-file | FileCheck %s

// What only the segment needs is computed tile by tile with it: the features, of an argument; the gradient of their
// scale, which is a sum over tokens; and the error's sum.

// CHECK-LABEL: func.func @alone
// CHECK-SAME: %[[X:arg0]]: tensor<128x64xf32>, %[[S:arg1]]: tensor<128x64xf32>
// CHECK-NOT: tensor<128x16384xf32>
// CHECK-NOT: tensor.concat
// CHECK: %[[X0:.*]] = tensor.extract_slice %[[X]][0, 0] [32, 64] [1, 1]
// CHECK: %[[S0:.*]] = tensor.extract_slice %[[S]][0, 0] [32, 64] [1, 1]
// CHECK: %[[H0:.*]] = arith.mulf %[[X0]], %[[S0]] {memopt.tile = 0 : i64}
// CHECK: memopt.matmul %[[H0]]
// CHECK: %[[D0:.*]] = memopt.matmul {{.*}}memopt.tile = 0{{.*}} -> tensor<32x64xf32>
// CHECK: %[[P0:.*]] = arith.mulf %[[D0]], %[[X0]] {{.*}}memopt.tile = 0
// CHECK: %[[R0:.*]] = memopt.reduce %[[P0]] {{.*}}memopt.tile = 0{{.*}} -> tensor<64xf32>
// CHECK: %[[R1:.*]] = memopt.reduce {{.*}}memopt.tile = 1{{.*}} -> tensor<64xf32>
// CHECK: memopt.accumulate %[[R0]], %[[R1]] {{.*}}memopt.tile = 1
func.func @alone(%x: tensor<128x64xf32>, %s: tensor<128x64xf32>, %w: tensor<16384x64xf32>) -> (tensor<64xf32>, tensor<16384x64xf32>) {
  %h = arith.mulf %x, %s : tensor<128x64xf32>
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<128x64xf32>, tensor<16384x64xf32>) -> tensor<128x16384xf32>
  %g = arith.mulf %l, %l {memopt.phase = #memopt.phase<backward>} : tensor<128x16384xf32>
  %d = memopt.matmul %g, %w {memopt.phase = #memopt.phase<backward>} : (tensor<128x16384xf32>, tensor<16384x64xf32>) -> tensor<128x64xf32>
  %dw = memopt.matmul %g, %h {memopt.phase = #memopt.phase<backward>, transpose_a} : (tensor<128x16384xf32>, tensor<128x64xf32>) -> tensor<16384x64xf32>
  %p = arith.mulf %d, %x {memopt.phase = #memopt.phase<backward>} : tensor<128x64xf32>
  %ds = memopt.reduce %p {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<128x64xf32>) -> tensor<64xf32>
  return %ds, %dw : tensor<64xf32>, tensor<16384x64xf32>
}

// -----

// A value that somebody else needs whole is there anyway: its sum is taken of it as a whole. So are the features,
// which would be no fewer bytes as the two that they follow from.

// CHECK-LABEL: func.func @shared
// CHECK: %[[H:.*]] = arith.mulf %{{.*}}, %{{.*}} : tensor<128x64xf32>
// CHECK: tensor.extract_slice %[[H]][0, 0] [32, 64]
// CHECK: %[[D:.*]] = tensor.concat dim(0)
// CHECK: memopt.reduce %[[D]] {{.*}} : (tensor<128x64xf32>) -> tensor<64xf32>
// CHECK: return %{{.*}}, %[[D]]
func.func @shared(%a: tensor<128x64xf32>, %b: tensor<128x64xf32>, %w: tensor<16384x64xf32>) -> (tensor<64xf32>, tensor<128x64xf32>) {
  %x = math.exp %a : tensor<128x64xf32>
  %y = math.sqrt %b : tensor<128x64xf32>
  %u = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<max>} : (tensor<128x64xf32>) -> tensor<64xf32>
  %v = memopt.reduce %y {dimensions = array<i64: 0>, kind = #memopt.reduce<max>} : (tensor<128x64xf32>) -> tensor<64xf32>
  %h = arith.mulf %x, %y : tensor<128x64xf32>
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<128x64xf32>, tensor<16384x64xf32>) -> tensor<128x16384xf32>
  %g = arith.mulf %l, %l {memopt.phase = #memopt.phase<backward>} : tensor<128x16384xf32>
  %d = memopt.matmul %g, %w {memopt.phase = #memopt.phase<backward>} : (tensor<128x16384xf32>, tensor<16384x64xf32>) -> tensor<128x64xf32>
  %ds = memopt.reduce %d {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<128x64xf32>) -> tensor<64xf32>
  %m = arith.addf %u, %v : tensor<64xf32>
  %all = arith.addf %m, %ds : tensor<64xf32>
  return %all, %d : tensor<64xf32>, tensor<128x64xf32>
}

// -----

// A sum that the segment's other values wait for stays behind it: what reads both is no part of it.

// CHECK-LABEL: func.func @waits
// CHECK: %[[D:.*]] = tensor.concat dim(0)
// CHECK: %[[SUM:.*]] = memopt.reduce %[[D]]
// CHECK: %[[WIDE:.*]] = memopt.broadcast %[[SUM]]
// CHECK: arith.mulf %[[D]], %[[WIDE]] : tensor<128x64xf32>
func.func @waits(%h: tensor<128x64xf32>, %w: tensor<16384x64xf32>) -> tensor<64xf32> {
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<128x64xf32>, tensor<16384x64xf32>) -> tensor<128x16384xf32>
  %g = arith.mulf %l, %l : tensor<128x16384xf32>
  %d = memopt.matmul %g, %w : (tensor<128x16384xf32>, tensor<16384x64xf32>) -> tensor<128x64xf32>
  %sum = memopt.reduce %d {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<128x64xf32>) -> tensor<64xf32>
  %wide = memopt.broadcast %sum {dimensions = array<i64: 1>} : (tensor<64xf32>) -> tensor<128x64xf32>
  %p = arith.mulf %d, %wide : tensor<128x64xf32>
  %r = memopt.reduce %p {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<128x64xf32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// -----

// The labels' count is taken before the first tile, so their reshape stays in front.

// CHECK-LABEL: func.func @labels
// CHECK: %[[T:.*]] = tensor.collapse_shape %arg2
// CHECK: %{{.*}}, %[[COUNT:.*]], %{{.*}}, %{{.*}} = memopt.cross_entropy %{{.*}}, %[[T]] : (tensor<128x16384xf32>
// CHECK: %[[ONE:.*]] = arith.divf %{{.*}}, %[[COUNT]]
// CHECK: memopt.cross_entropy_backward {{.*}}, %[[ONE]] {memopt.tile = 0
func.func @labels(%h: tensor<128x64xf32>, %w: tensor<16384x64xf32>, %t: tensor<2x64xi64>) -> (tensor<f32>, tensor<16384x64xf32>) {
  %cst = arith.constant dense<1.000000e+00> : tensor<f32>
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<128x64xf32>, tensor<16384x64xf32>) -> tensor<128x16384xf32>
  %labels = tensor.collapse_shape %t [[0, 1]] : tensor<2x64xi64> into tensor<128xi64>
  %total, %count, %largest, %log_sum = memopt.cross_entropy %l, %labels : (tensor<128x16384xf32>, tensor<128xi64>) -> (tensor<f32>, tensor<f32>, tensor<128xf32>, tensor<128xf32>)
  %loss = arith.divf %total, %count : tensor<f32>
  %one = arith.divf %cst, %count : tensor<f32>
  %g = memopt.cross_entropy_backward %l, %labels, %largest, %log_sum, %one : (tensor<128x16384xf32>, tensor<128xi64>, tensor<128xf32>, tensor<128xf32>, tensor<f32>) -> tensor<128x16384xf32>
  %dw = memopt.matmul %g, %h {transpose_a} : (tensor<128x16384xf32>, tensor<128x64xf32>) -> tensor<16384x64xf32>
  return %loss, %dw : tensor<f32>, tensor<16384x64xf32>
}

// -----

// Labels that follow from the logits themselves: their count is known behind the last tile, and the gradient waits for
// it, so nothing is tiled.

// CHECK-LABEL: func.func @pseudo_labels
// CHECK-NOT: memopt.tile
func.func @pseudo_labels(%h: tensor<128x64xf32>, %w: tensor<16384x64xf32>) -> (tensor<f32>, tensor<16384x64xf32>) {
  %cst = arith.constant dense<1.000000e+00> : tensor<f32>
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<128x64xf32>, tensor<16384x64xf32>) -> tensor<128x16384xf32>
  %largest_logit = memopt.reduce %l {dimensions = array<i64: 1>, kind = #memopt.reduce<max>} : (tensor<128x16384xf32>) -> tensor<128xf32>
  %labels = arith.fptosi %largest_logit : tensor<128xf32> to tensor<128xi64>
  %total, %count, %largest, %log_sum = memopt.cross_entropy %l, %labels : (tensor<128x16384xf32>, tensor<128xi64>) -> (tensor<f32>, tensor<f32>, tensor<128xf32>, tensor<128xf32>)
  %loss = arith.divf %total, %count : tensor<f32>
  %one = arith.divf %cst, %count : tensor<f32>
  %g = memopt.cross_entropy_backward %l, %labels, %largest, %log_sum, %one : (tensor<128x16384xf32>, tensor<128xi64>, tensor<128xf32>, tensor<128xf32>, tensor<f32>) -> tensor<128x16384xf32>
  %dw = memopt.matmul %g, %h {transpose_a} : (tensor<128x16384xf32>, tensor<128x64xf32>) -> tensor<16384x64xf32>
  return %loss, %dw : tensor<f32>, tensor<16384x64xf32>
}

// -----

// The gradient of a table is as large for a tile as for all tokens: it is made once, of the joined tiles.

// CHECK-LABEL: func.func @table
// CHECK-NOT: memopt.embedding_backward
// CHECK: %[[D:.*]] = tensor.concat dim(0) {{.*}} -> tensor<64x8xf32>
// CHECK: memopt.embedding_backward %[[D]], %{{.*}} {memopt.phase = #memopt.phase<backward>} : (tensor<64x8xf32>, tensor<64xi64>) -> tensor<16384x8xf32>
// CHECK-NOT: memopt.embedding_backward
// CHECK: return
func.func @table(%h: tensor<64x8xf32>, %w: tensor<16384x8xf32>, %words: tensor<64xi64>, %t: tensor<64xi64>)
    -> (tensor<f32>, tensor<16384x8xf32>) {
  %cst = arith.constant dense<1.000000e+00> : tensor<f32>
  %l = memopt.matmul %h, %w {transpose_b} : (tensor<64x8xf32>, tensor<16384x8xf32>) -> tensor<64x16384xf32>
  %total, %count, %largest, %log_sum = memopt.cross_entropy %l, %t : (tensor<64x16384xf32>, tensor<64xi64>) -> (tensor<f32>, tensor<f32>, tensor<64xf32>, tensor<64xf32>)
  %g = memopt.cross_entropy_backward %l, %t, %largest, %log_sum, %cst {memopt.phase = #memopt.phase<backward>} : (tensor<64x16384xf32>, tensor<64xi64>, tensor<64xf32>, tensor<64xf32>, tensor<f32>) -> tensor<64x16384xf32>
  %d = memopt.matmul %g, %w {memopt.phase = #memopt.phase<backward>} : (tensor<64x16384xf32>, tensor<16384x8xf32>) -> tensor<64x8xf32>
  %dt = memopt.embedding_backward %d, %words {memopt.phase = #memopt.phase<backward>} : (tensor<64x8xf32>, tensor<64xi64>) -> tensor<16384x8xf32>
  return %total, %dt : tensor<f32>, tensor<16384x8xf32>
}
