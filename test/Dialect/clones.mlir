// RUN: memopt-opt %s -cse | FileCheck %s

// The clone number keeps CSE from merging a recomputation with what it repeats; without it they are one.
// CHECK-LABEL: func.func @clones
// CHECK-COUNT-2: memopt.softplus
// CHECK-NOT: memopt.softplus
func.func @clones(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = memopt.softplus %x : tensor<4xf32>
  %1 = memopt.softplus %x : tensor<4xf32>
  %2 = memopt.softplus %x {memopt.clone = 1 : i64} : tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Random bits of equal seed, step and id are equal, so two masks are one; another id is another mask.
// CHECK-LABEL: func.func @masks
// CHECK-COUNT-2: memopt.dropout_mask
// CHECK-NOT: memopt.dropout_mask
func.func @masks(%seed: tensor<i64>, %step: tensor<i64>) -> (tensor<4xi1>, tensor<4xi1>, tensor<4xi1>) {
  %0 = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4xi1>
  %1 = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4xi1>
  %2 = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 1 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4xi1>
  return %0, %1, %2 : tensor<4xi1>, tensor<4xi1>, tensor<4xi1>
}

memopt.variable @w : tensor<4xf32> role <buffer>
// A read after a write sees the new value: the two are not merged.
// CHECK-LABEL: func.func @reads
// CHECK-COUNT-2: memopt.read
func.func @reads(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = memopt.read @w : tensor<4xf32>
  memopt.write %x, @w : tensor<4xf32>
  %1 = memopt.read @w : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
