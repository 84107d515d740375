// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s

// The gradient of a loop is a loop in the other direction. The forward loop stacks its products, or what one op alone
// makes of them (here the tanh, which is stacked already); the backward loop begins each iteration with what the
// forward iteration began with. The gradient of the weight is
// one product behind the loop, over the rows of all iterations.

// CHECK-LABEL: func.func @recurrence
// CHECK-SAME:  %[[XS:.*]]: tensor<8x2x4xf32>
// CHECK: %[[W:.*]] = memopt.read @w
// CHECK: %[[F:.*]]:2 = memopt.scan count(8) fixed(%{{.*}} = %[[W]] : tensor<4x4xf32>) slices(%{{.*}} = %[[XS]]
// CHECK:   memopt.yield %[[H:.*]], %[[H]] : 
// CHECK: } -> tensor<2x4xf32>, tensor<8x2x4xf32>
// CHECK: %[[BEFORE:.*]] = tensor.extract_slice %[[F]]#1[0, 0, 0] [7, 2, 4] [1, 1, 1] {{.*}} to tensor<7x2x4xf32>
// CHECK: %[[STARTS:.*]] = tensor.concat dim(0) %{{.*}}, %[[BEFORE]]
// CHECK: %[[B:.*]]:2 = memopt.scan count(8) reverse fixed(%[[W1:.*]] = %[[W]] : tensor<4x4xf32>) slices({{.*}}%[[F]]#1
// CHECK:   arith.subf
// CHECK-NEXT: %[[D:.*]] = arith.mulf
// CHECK:   %[[DH:.*]] = memopt.matmul %[[D]], %[[W1]] {memopt.phase = #memopt.phase<backward>, transpose_b}
// CHECK:   memopt.yield %[[DH]], %[[D]]
// CHECK: } -> tensor<2x4xf32>, tensor<8x2x4xf32> {phase = #memopt.phase<backward>}
// CHECK-DAG: %[[LEFT:.*]] = tensor.collapse_shape %[[STARTS]] {{\[\[}}0, 1], [2]]
// CHECK-DAG: %[[RIGHT:.*]] = tensor.collapse_shape %[[B]]#1 {{\[\[}}0, 1], [2]]
// CHECK: %[[DW:.*]] = memopt.matmul %[[LEFT]], %[[RIGHT]] {memopt.phase = #memopt.phase<backward>, transpose_a}
// CHECK: memopt.gradient %[[DW]], @w
memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable}
func.func @recurrence(%xs: tensor<8x2x4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %zero = arith.constant dense<0.0> : tensor<2x4xf32>
  %last, %all = memopt.scan count(8) fixed(%a = %w : tensor<4x4xf32>) slices(%x = %xs : tensor<2x4xf32> of tensor<8x2x4xf32>) carried(%h = %zero : tensor<2x4xf32>) {
    %0 = memopt.matmul %h, %a : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %1 = arith.addf %0, %x : tensor<2x4xf32>
    %2 = math.tanh %1 : tensor<2x4xf32>
    memopt.yield %2, %2 : tensor<2x4xf32>, tensor<2x4xf32>
  } -> tensor<2x4xf32>, tensor<8x2x4xf32>
  %loss = memopt.reduce %all {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2>} : (tensor<8x2x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// What each iteration would round for the type of a narrow weight is taken for all iterations, too, and is not rounded
// where the gradient is wide again.

// CHECK-LABEL: func.func @narrow
// CHECK: memopt.scan count(8) reverse
// CHECK-NOT: memopt.accumulate
// CHECK: %[[DW:.*]] = memopt.matmul %{{.*}}, %{{.*}} {memopt.phase = #memopt.phase<backward>, transpose_a} : (tensor<16x4xbf16>, tensor<16x4xbf16>) -> tensor<4x4xf32>
// CHECK-NEXT: memopt.gradient %[[DW]], @w
memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable}
func.func @narrow(%xs: tensor<8x2x4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %narrow = arith.truncf %w : tensor<4x4xf32> to tensor<4x4xbf16>
  %zero = arith.constant dense<0.0> : tensor<2x4xf32>
  %last, %all = memopt.scan count(8) fixed(%a = %narrow : tensor<4x4xbf16>) slices(%x = %xs : tensor<2x4xf32> of tensor<8x2x4xf32>) carried(%h = %zero : tensor<2x4xf32>) {
    %left = arith.truncf %h : tensor<2x4xf32> to tensor<2x4xbf16>
    %0 = memopt.matmul %left, %a : (tensor<2x4xbf16>, tensor<4x4xbf16>) -> tensor<2x4xf32>
    %1 = arith.addf %0, %x : tensor<2x4xf32>
    %2 = math.tanh %1 : tensor<2x4xf32>
    memopt.yield %2, %2 : tensor<2x4xf32>, tensor<2x4xf32>
  } -> tensor<2x4xf32>, tensor<8x2x4xf32>
  %loss = memopt.reduce %all {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2>} : (tensor<8x2x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// What is no product and no sum over dimensions is added up in a carried value, from zero on. Some slices of a
// trained table are read: zeros are put around their gradient.

// CHECK-LABEL: func.func @sums
// CHECK: %[[T:.*]] = memopt.read @table
// CHECK: memopt.scan count(3) reverse {{.*}} carried(%{{.*}} = %{{.*}} : tensor<4xf32>, %[[SUM:.*]] = %{{.*}} : tensor<4xf32>)
// CHECK:   %[[NEXT:.*]] = memopt.accumulate %[[SUM]], %{{.*}}
// CHECK:   memopt.yield %{{.*}}, %[[NEXT]], %{{.*}}
// CHECK: } -> tensor<4xf32>, tensor<4xf32>, tensor<3x4xf32>
// CHECK-DAG: memopt.pad %{{.*}} {high = array<i64: 1, 0>, low = array<i64: 2, 0>
// CHECK-DAG: memopt.gradient %{{.*}}, @decay
// CHECK-DAG: memopt.gradient %{{.*}}, @table
memopt.variable @decay : tensor<4xf32> role <parameter> {trainable}
memopt.variable @table : tensor<6x4xf32> role <parameter> {trainable}
func.func @sums() -> tensor<f32> {
  %d = memopt.read @decay : tensor<4xf32>
  %t = memopt.read @table : tensor<6x4xf32>
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %last = memopt.scan count(3) fixed(%a = %d : tensor<4xf32>) slices(%x = %t[2] : tensor<4xf32> of tensor<6x4xf32>) carried(%h = %zero : tensor<4xf32>) {
    %0 = arith.mulf %h, %a : tensor<4xf32>
    %1 = arith.addf %0, %x : tensor<4xf32>
    memopt.yield %1 : tensor<4xf32>
  } -> tensor<4xf32>
  %loss = memopt.reduce %last {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
