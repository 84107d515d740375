// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s

// Elements that were picked send their gradients back by a scatter into zeros.

memopt.variable @w : tensor<9x4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[I:.*]]: tensor<3x1xi64>
func.func @train_step(%i: tensor<3x1xi64>) -> tensor<f32> {
  %w = memopt.read @w : tensor<9x4xf32>
  %0 = memopt.gather %w, %i {indexed = array<i64: 0>, positions = array<i64: 1>} : (tensor<9x4xf32>, tensor<3x1xi64>) -> tensor<3x4xf32>
  %1 = memopt.reduce %0 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<f32>
  // CHECK: %[[ZEROS:.*]] = arith.constant dense<0.0{{.*}}> : tensor<9x4xf32>
  // CHECK: %[[D:.*]] = memopt.scatter %[[ZEROS]], %{{.*}}, %[[I]] {indexed = array<i64: 0>, kind = #memopt.scatter<add>, memopt.phase = #memopt.phase<backward>, positions = array<i64: 1>}
  // CHECK: memopt.gradient %[[D]], @w
  return %1 : tensor<f32>
}

// -----

// Known indices that name no element twice are turned around: element 0 is at place 1, element 1 is nowhere,
// element 2 at place 0, element 3 at place 2.

memopt.variable @w : tensor<5x4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step(%x: tensor<5x3xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<5x4xf32>
  %i = arith.constant dense<[[2, 0, 3]]> : tensor<1x3xi64>
  %0 = memopt.gather %w, %i {indexed = array<i64: 1>, positions = array<i64: 0>} : (tensor<5x4xf32>, tensor<1x3xi64>) -> tensor<5x3xf32>
  %1 = arith.mulf %0, %x : tensor<5x3xf32>
  %2 = memopt.reduce %1 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<5x3xf32>) -> tensor<f32>
  // CHECK: %[[PLACES:.*]] = arith.constant dense<{{\[\[}}1, 0, 0, 2]]> : tensor<1x4xi64>
  // CHECK: %[[G:.*]] = memopt.gather %{{.*}}, %[[PLACES]] {indexed = array<i64: 1>, memopt.phase = #memopt.phase<backward>, positions = array<i64: 0>}
  // CHECK: %[[HAS:.*]] = arith.constant dense<{{\[\[}}true, false, true, true]]> : tensor<1x4xi1>
  // CHECK: %[[MASK:.*]] = memopt.broadcast %[[HAS]]
  // CHECK: %[[D:.*]] = arith.select %[[MASK]], %[[G]], %{{.*}}
  // CHECK: memopt.gradient %[[D]], @w
  // CHECK-NOT: memopt.scatter
  return %2 : tensor<f32>
}
