// Rows of which some count: the others are filled, and get no gradient. Parts of them fill themselves, so that samples
// stay apart.
//
// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s -memopt-autodiff | FileCheck %s --check-prefix=GRADIENT
// RUN: memopt-opt %s -memopt-autodiff -memopt-split-batch=parts=2 | FileCheck %s --check-prefix=PARTS
// RUN: memopt-opt %s -memopt-lower-to-linalg | FileCheck %s --check-prefix=LOOPS

memopt.variable @v : tensor<3xf32> role <parameter> {trainable}

// CHECK-LABEL: func @train_step
// GRADIENT-LABEL: func.func @train_step
// PARTS-LABEL: func.func @train_step
// LOOPS-LABEL: func.func @train_step
func.func @train_step(%x: tensor<8x3xf32>, %m: tensor<8xi1>) -> tensor<f32> {
  %v = memopt.read @v : tensor<3xf32>
  %rows = memopt.broadcast %v {dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<8x3xf32>
  %scaled = arith.mulf %x, %rows : tensor<8x3xf32>
  // CHECK: memopt.fill_rows %{{.*}}, %{{.*}} {dim = 0 : i64} : (tensor<8x3xf32>, tensor<8xi1>) -> tensor<8x3xf32>
  // PARTS: memopt.repeat count(2)
  // PARTS: memopt.fill_rows %{{.*}}, %{{.*}} {dim = 0 : i64} : (tensor<4x3xf32>, tensor<4xi1>) -> tensor<4x3xf32>
  // The first that counts, by its number; 8 where none does.
  // LOOPS: %[[LAST:.*]] = arith.constant 8 : i64
  // LOOPS: memopt.filled_rows
  // LOOPS: %[[NUMBER:.*]] = arith.minsi
  // LOOPS: %[[LENT:.*]] = arith.index_cast %[[NUMBER]] : i64 to index
  // LOOPS: %[[ROW:.*]] = arith.select %{{.*}}, %{{.*}}, %[[LENT]] : index
  // LOOPS: %[[FOUND:.*]] = tensor.extract %{{.*}}[%[[ROW]], %{{.*}}] : tensor<8x3xf32>
  // LOOPS: arith.select %{{.*}}, %[[FOUND]], %{{.*}} : f32
  %filled = memopt.fill_rows %scaled, %m {dim = 0 : i64} : (tensor<8x3xf32>, tensor<8xi1>) -> tensor<8x3xf32>
  %loss = memopt.reduce %filled {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x3xf32>) -> tensor<f32>
  // GRADIENT: %[[COUNTS:.*]] = memopt.broadcast %{{.*}} {dimensions = array<i64: 0>, {{.*}}} : (tensor<8xi1>) -> tensor<8x3xi1>
  // GRADIENT: arith.select %[[COUNTS]]
  return %loss : tensor<f32>
}
