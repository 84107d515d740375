// RUN: memopt-opt %s -canonicalize -split-input-file | FileCheck %s

// A broadcast to its own type is its operand.
// CHECK-LABEL: func.func @broadcast_to_itself
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>)
// CHECK-NEXT: return %[[X]]
func.func @broadcast_to_itself(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = memopt.broadcast %x {dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// A broadcast constant stays small: lowering reads through the broadcast.
// CHECK-LABEL: func.func @broadcast_constant
// CHECK: memopt.broadcast
func.func @broadcast_constant() -> tensor<4x2xf32> {
  %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = memopt.broadcast %c {dimensions = array<i64: 1>} : (tensor<2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// -----

// CHECK-LABEL: func.func @transpose_nothing
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>)
// CHECK-NEXT: return %[[X]]
func.func @transpose_nothing(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = memopt.transpose %x {permutation = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// Scores whose classes a model brings to the second dimension and its loss back to the last.
// CHECK-LABEL: func.func @transpose_back
// CHECK-SAME: (%[[X:.*]]: tensor<2x3x4xf32>)
// CHECK-NEXT: return %[[X]]
func.func @transpose_back(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = memopt.transpose %x {permutation = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %1 = memopt.transpose %0 {permutation = array<i64: 1, 2, 0>} : (tensor<4x2x3xf32>) -> tensor<2x3x4xf32>
  return %1 : tensor<2x3x4xf32>
}

// -----

// CHECK-LABEL: func.func @transpose_twice
// CHECK-SAME: (%[[X:.*]]: tensor<2x3x4xf32>)
// CHECK-NEXT: %[[Y:.*]] = memopt.transpose %[[X]] {permutation = array<i64: 1, 2, 0>} : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
// CHECK-NEXT: return %[[Y]]
func.func @transpose_twice(%x: tensor<2x3x4xf32>) -> tensor<3x4x2xf32> {
  %0 = memopt.transpose %x {permutation = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %1 = memopt.transpose %0 {permutation = array<i64: 2, 0, 1>} : (tensor<4x2x3xf32>) -> tensor<3x4x2xf32>
  return %1 : tensor<3x4x2xf32>
}

// -----

// Permutations of equal sizes have equal types and still move elements.
// CHECK-LABEL: func.func @transpose_square
// CHECK: memopt.transpose
func.func @transpose_square(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// Pure ops without users go away; a gradient's mark and a write have somebody outside who looks.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @effects
func.func @effects(%x: tensor<4xf32>, %seed: tensor<i64>, %step: tensor<i64>) {
  // CHECK-NOT: memopt.relu
  %unused = memopt.relu %x : tensor<4xf32>
  // CHECK-NOT: memopt.dropout_mask
  %mask = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4xi1>
  // CHECK-NOT: memopt.read
  %old = memopt.read @w : tensor<4xf32>
  // CHECK: memopt.gradient
  memopt.gradient %x, @w : tensor<4xf32>
  // CHECK: memopt.write
  memopt.write %x, @w : tensor<4xf32>
  return
}

// -----

// A shard of a sum that nobody wants whole.
// CHECK-LABEL: func.func @shard_of_sum
func.func @shard_of_sum(%g: tensor<10xf32>) -> (tensor<5xf32>, tensor<10xf32>, tensor<5xf32>) {
  // CHECK: %[[OWN:.*]] = memopt.collective <reduce_scatter> %arg0 over 2 : tensor<10xf32> -> tensor<5xf32>
  %0 = memopt.collective <all_reduce> %g over 2 : tensor<10xf32> -> tensor<10xf32>
  %1 = memopt.collective <own_shard> %0 over 2 : tensor<10xf32> -> tensor<5xf32>
  // CHECK: %[[SUM:.*]] = memopt.collective <all_reduce> %arg0 over 2
  // CHECK: %[[PART:.*]] = memopt.collective <own_shard> %[[SUM]] over 2
  %2 = memopt.collective <all_reduce> %g over 2 : tensor<10xf32> -> tensor<10xf32>
  %3 = memopt.collective <own_shard> %2 over 2 : tensor<10xf32> -> tensor<5xf32>
  // CHECK: return %[[OWN]], %[[SUM]], %[[PART]]
  return %1, %2, %3 : tensor<5xf32>, tensor<10xf32>, tensor<5xf32>
}

// -----

// A shard of several sums that are one vector is one sum.
// CHECK-LABEL: func.func @shard_of_pack
func.func @shard_of_pack(%g: tensor<10xf32>, %h: tensor<2x3xf32>) -> tensor<11xf32> {
  // CHECK: %[[ALL:.*]] = memopt.pack %arg0, %arg1 at [0, 16] {memopt.phase = #memopt.phase<backward>}
  // CHECK: %[[OWN:.*]] = memopt.collective <reduce_scatter> %[[ALL]] over 2 {phase = #memopt.phase<backward>} : tensor<22xf32> -> tensor<11xf32>
  // CHECK: return %[[OWN]]
  %0 = memopt.collective <all_reduce> %g over 2 {phase = #memopt.phase<backward>} : tensor<10xf32> -> tensor<10xf32>
  %1 = memopt.collective <all_reduce> %h over 2 {phase = #memopt.phase<backward>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %2 = memopt.pack %0, %1 at [0, 16] {memopt.phase = #memopt.phase<optimizer>} : (tensor<10xf32>, tensor<2x3xf32>) -> tensor<22xf32>
  %3 = memopt.collective <own_shard> %2 over 2 {phase = #memopt.phase<optimizer>} : tensor<22xf32> -> tensor<11xf32>
  return %3 : tensor<11xf32>
}
