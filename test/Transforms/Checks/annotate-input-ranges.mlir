// RUN: memopt-opt %s -memopt-annotate-input-ranges -split-input-file | FileCheck %s

// Tokens index a table of 256 rows; 255 is the last. The reason names the module.
// CHECK-LABEL: func.func @embedding
// CHECK-SAME: %{{.*}}: tensor<4x8xi64> {memopt.valid_range = {max = 255 : i64, min = 0 : i64, reason = "rows of an embedding in net.token"}}
func.func @embedding(%tokens: tensor<4x8xi64>, %table: tensor<256x16xf32>) -> tensor<4x8x16xf32> {
  %0 = memopt.embedding %table, %tokens : (tensor<256x16xf32>, tensor<4x8xi64>) -> tensor<4x8x16xf32> loc("net.token")
  return %0 : tensor<4x8x16xf32>
}

// -----

// An index tensor of a gather or scatter names elements of the dimension that it indexes.
// CHECK-LABEL: func.func @places
// CHECK-SAME: tensor<4x3xi64> {memopt.valid_range = {max = 6 : i64, min = 0 : i64, reason = "elements of a gather in net.pick"}}
// CHECK-SAME: tensor<4x1xi64> {memopt.valid_range = {max = 8 : i64, min = 0 : i64, reason = "elements of a scatter in net.put"}}
func.func @places(%i: tensor<4x3xi64>, %j: tensor<4x1xi64>, %x: tensor<4x7xf32>, %y: tensor<9x3xf32>) -> tensor<9x3xf32> {
  %0 = memopt.gather %x, %i {indexed = array<i64: 1>, positions = array<i64: 0>} : (tensor<4x7xf32>, tensor<4x3xi64>) -> tensor<4x3xf32> loc("net.pick")
  %1 = memopt.scatter %y, %0, %j {kind = #memopt.scatter<add>, indexed = array<i64: 0>, positions = array<i64: 1>}
    : (tensor<9x3xf32>, tensor<4x3xf32>, tensor<4x1xi64>) -> tensor<9x3xf32> loc("net.put")
  return %1 : tensor<9x3xf32>
}

// -----

// Labels reach a cross entropy of 10 classes through a reshape; -100 does not count and is fine, too.
// CHECK-LABEL: func.func @classes
// CHECK-SAME: memopt.valid_range = {ignore = -100 : i64, max = 9 : i64, min = 0 : i64, reason = "classes of a cross entropy"}
func.func @classes(%logits: tensor<8x10xf32>, %labels: tensor<2x4xi64>) -> tensor<f32> {
  %flat = tensor.collapse_shape %labels [[0, 1]] : tensor<2x4xi64> into tensor<8xi64>
  %0:4 = memopt.cross_entropy %logits, %flat : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<8xf32>)
  return %0#0 : tensor<f32>
}

// -----

// Of two uses the tighter range counts. A value is ignored only where every use ignores it: an embedding does not.
// CHECK-LABEL: func.func @both
// CHECK-SAME: tensor<8xi64> {memopt.valid_range = {max = 9 : i64, min = 0 : i64, reason = "classes of a cross entropy"}}
func.func @both(%logits: tensor<8x10xf32>, %table: tensor<32x4xf32>, %labels: tensor<8xi64>) -> tensor<8x4xf32> {
  %0:4 = memopt.cross_entropy %logits, %labels : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<8xf32>)
  %1 = memopt.embedding %table, %labels : (tensor<32x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// -----

// Two losses that ignore different values ignore none together.
// CHECK-LABEL: func.func @two_losses
// CHECK-SAME: tensor<8xi64> {memopt.valid_range = {max = 9 : i64, min = 0 : i64, reason = "classes of a cross entropy"}}
func.func @two_losses(%logits: tensor<8x10xf32>, %labels: tensor<8xi64>) -> tensor<f32> {
  %0:4 = memopt.cross_entropy %logits, %labels {ignore_index = 255 : i64}
    : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<8xf32>)
  %1:4 = memopt.cross_entropy %logits, %labels
    : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<8xf32>)
  return %1#0 : tensor<f32>
}

// -----

// Two losses that ignore the same value keep ignoring it, in whichever order a third use comes.
// CHECK-LABEL: func.func @three_losses
// CHECK-SAME: tensor<8xi64> {memopt.valid_range = {max = 9 : i64, min = 0 : i64, reason = "classes of a cross entropy"}}
func.func @three_losses(%logits: tensor<8x10xf32>, %labels: tensor<8xi64>) -> tensor<f32> {
  %0:4 = memopt.cross_entropy %logits, %labels {ignore_index = -1 : i64}
    : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<8xf32>)
  %1:4 = memopt.cross_entropy %logits, %labels {ignore_index = 255 : i64}
    : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<8xf32>)
  %2:4 = memopt.cross_entropy %logits, %labels {ignore_index = -1 : i64}
    : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<8xf32>)
  return %2#0 : tensor<f32>
}

// -----

// An index that is computed has no range here; the program checks it. Floating-point inputs never have one.
// CHECK-LABEL: func.func @computed
// CHECK-NOT: memopt.valid_range
func.func @computed(%tokens: tensor<8xi64>, %table: tensor<256x16xf32>) -> tensor<8x16xf32> {
  %sum = arith.addi %tokens, %tokens : tensor<8xi64>
  %0 = memopt.embedding %table, %sum : (tensor<256x16xf32>, tensor<8xi64>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}
