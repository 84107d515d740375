// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s
// RUN: memopt-opt %s --split-input-file --memopt-lower-to-linalg | FileCheck %s --check-prefix=LOWERED

// No gradient passes a stop_gradient: x of x * stop(x) gets stop(x), once. A parameter that is only behind such
// ops gets no gradient at all, as in PyTorch, where its .grad stays None. The ops are gone afterwards.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
memopt.variable @target : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step() -> tensor<f32> {
  // CHECK: %[[W:.*]] = memopt.read @w
  // CHECK: %[[T:.*]] = memopt.read @target
  // CHECK-NOT: stop_gradient
  // LOWERED-NOT: stop_gradient
  %w = memopt.read @w : tensor<4xf32>
  %t = memopt.read @target : tensor<4xf32>
  %fixed = memopt.stop_gradient %w : (tensor<4xf32>) -> tensor<4xf32>
  %far = memopt.stop_gradient %t : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: memopt.gradient %[[W]], @w
  // CHECK: arith.mulf %[[W]], %[[W]] : tensor<4xf32>
  %0 = arith.mulf %w, %fixed : tensor<4xf32>
  %1 = arith.addf %0, %far : tensor<4xf32>
  %2 = memopt.reduce %1 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK-NOT: memopt.gradient
  return %2 : tensor<f32>
}

// -----

// A function's own backward formula takes the place of its derivative: this one is the identity whose gradient
// is reversed and halved.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[X:.*]]: tensor<4xf32>
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[W:.*]] = memopt.read @w
  %w = memopt.read @w : tensor<4xf32>
  %scale = arith.constant dense<-0.5> : tensor<4xf32>
  %g = memopt.incoming_gradient %w {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %d = arith.mulf %g, %scale : tensor<4xf32>
  %y = memopt.custom_gradient %w, %g, %w, %d {operandSegmentSizes = array<i32: 1, 1, 1, 1>}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: arith.mulf %[[W]], %[[X]] : tensor<4xf32>
  %0 = arith.mulf %y, %x : tensor<4xf32>
  %1 = memopt.reduce %0 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: %[[D:.*]] = arith.mulf %[[X]], %{{.*}} {memopt.phase = #memopt.phase<backward>}
  // CHECK: memopt.gradient %[[D]], @w
  // CHECK-NOT: custom_gradient
  // LOWERED-NOT: custom_gradient
  // LOWERED-NOT: incoming_gradient
  return %1 : tensor<f32>
}

// -----

// A value whose gradient nobody asks for counts as one with a gradient of zero.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step() -> tensor<f32> {
  %w = memopt.read @w : tensor<4xf32>
  %a = memopt.incoming_gradient %w {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %b = memopt.incoming_gradient %w {result_number = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %sum = arith.addf %a, %b : tensor<4xf32>
  %y:2 = memopt.custom_gradient %w, %w, %a, %b, %w, %sum {operandSegmentSizes = array<i32: 2, 2, 1, 1>}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %0 = memopt.reduce %y#1 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: %[[ONE:.*]] = arith.constant dense<1.0{{.*}}> : tensor<4xf32>
  // CHECK: %[[ZERO:.*]] = arith.constant dense<0.0{{.*}}> : tensor<4xf32>
  // CHECK: %[[D:.*]] = arith.addf %[[ZERO]], %[[ONE]]
  // CHECK: memopt.gradient %[[D]], @w
  return %0 : tensor<f32>
}

// -----

// A function of nothing that has a gradient passes none, though its value was computed from a parameter.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step() -> tensor<f32> {
  // CHECK: %[[W:.*]] = memopt.read @w
  %w = memopt.read @w : tensor<4xf32>
  // CHECK: %[[V:.*]] = arith.mulf %[[W]], %[[W]] : tensor<4xf32>
  %v = arith.mulf %w, %w : tensor<4xf32>
  %g = memopt.incoming_gradient %v {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %y = memopt.custom_gradient %v, %g {operandSegmentSizes = array<i32: 1, 1, 0, 0>}
    : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: arith.addf %[[V]], %[[W]] : tensor<4xf32>
  %0 = arith.addf %y, %w : tensor<4xf32>
  %1 = memopt.reduce %0 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: %[[ONE:.*]] = arith.constant dense<1.0{{.*}}> : tensor<4xf32>
  // CHECK: memopt.gradient %[[ONE]], @w
  return %1 : tensor<f32>
}
