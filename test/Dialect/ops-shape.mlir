// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op of ShapeOps.td prints what it parsed.

// CHECK-LABEL: func.func @shapes
func.func @shapes(%row: tensor<8xf32>, %table: tensor<256x8xf32>, %ids: tensor<4x16xi64>, %g: tensor<4x16x8xf32>) {
  // CHECK: %[[B:.*]] = memopt.broadcast %{{.*}} {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %b = memopt.broadcast %row {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  // CHECK: memopt.transpose %[[B]] {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %t = memopt.transpose %b {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  // CHECK: memopt.reduce %[[B]] {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  %sum = memopt.reduce %b {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  // CHECK: memopt.reduce %[[B]] {dimensions = array<i64: 0>, kind = #memopt.reduce<mul>}
  %product = memopt.reduce %b {kind = #memopt.reduce<mul>, dimensions = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  // CHECK: memopt.reduce %[[B]] {dimensions = array<i64: 1>, kind = #memopt.reduce<max>}
  %max = memopt.reduce %b {kind = #memopt.reduce<max>, dimensions = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  // Integers reduce too; reducing over no dimension is the value itself.
  // CHECK: memopt.reduce %{{.*}} {dimensions = array<i64>, kind = #memopt.reduce<min>} : (tensor<4x16xi64>) -> tensor<4x16xi64>
  %min = memopt.reduce %ids {kind = #memopt.reduce<min>, dimensions = array<i64>} : (tensor<4x16xi64>) -> tensor<4x16xi64>
  // A count reads no element.
  // CHECK: memopt.count %[[B]] {dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  %count = memopt.count %b {dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  // CHECK: memopt.pad %[[B]] {high = array<i64: 0, 2>, low = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<5x10xf32>
  %pad = memopt.pad %b {low = array<i64: 1, 0>, high = array<i64: 0, 2>} : (tensor<4x8xf32>) -> tensor<5x10xf32>
  // CHECK: memopt.reverse %[[B]] {dimensions = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %reversed = memopt.reverse %b {dimensions = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK: memopt.iota {dimension = 1 : i64} : () -> tensor<4x8xi64>
  %iota = memopt.iota {dimension = 1 : i64} : () -> tensor<4x8xi64>
  // CHECK: memopt.embedding %{{.*}}, %{{.*}} : (tensor<256x8xf32>, tensor<4x16xi64>) -> tensor<4x16x8xf32>
  %rows = memopt.embedding %table, %ids : (tensor<256x8xf32>, tensor<4x16xi64>) -> tensor<4x16x8xf32>
  // CHECK: memopt.embedding_backward %{{.*}}, %{{.*}} {padding_index = 0 : i64} : (tensor<4x16x8xf32>, tensor<4x16xi64>) -> tensor<256x8xf32>
  %back = memopt.embedding_backward %g, %ids {padding_index = 0 : i64}
    : (tensor<4x16x8xf32>, tensor<4x16xi64>) -> tensor<256x8xf32>
  return
}
