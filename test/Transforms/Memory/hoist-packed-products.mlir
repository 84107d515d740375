// RUN: memopt-opt %s -split-input-file -memopt-lower-to-linalg -memopt-form-kernels -memopt-hoist-invariants -memopt-plan-memory -memopt-verify-planned \
// RUN:   --remarks-filter='memopt-hoist-invariants' --remark-format=emitRemark 2> %t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: memopt-opt %s -split-input-file -memopt-lower-to-linalg -memopt-form-kernels -memopt-hoist-invariants=budget=1 -memopt-plan-memory -memopt-verify-planned \
// RUN:   | FileCheck %s --check-prefix=TIGHT

// A loop over slices multiplies few rows by the same weights again and again: they are packed once in front of it, in one
// layout for both products that read them, whoever says no bytes. What the loop carries is packed by the call that
// reads it. The plain weights, which nobody reads any more, do not live through the loop. A product with a batch, be
// it of one, packs for itself.

// REMARK: Kernels=0, PackedWeights=1, Results=1
// TIGHT-NOT: pack_weights

memopt.variable @w : tensor<640x640xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @step
func.func @step(%x: tensor<16x32x640xf32> {memopt.name = "x"}, %h0: tensor<32x640xf32>, %m0: tensor<640x640xf32>)
    -> (tensor<32x640xf32>, tensor<640x640xf32>) {
  %w = memopt.read @w : tensor<640x640xf32>
  // CHECK: %[[PACKED:.*]] = memopt.library_call #memopt.pack_weights<#memopt.matmul<m = 32, n = 640, k = 640, {{.*}} packed = [[BYTES:[0-9]+]]>>
  // CHECK: memopt.scan count(16) fixed(%[[INSIDE:[a-z_0-9]+]] = %[[PACKED]] : tensor<{{[0-9]+}}xf32>) slices(
  // CHECK-COUNT-2: memopt.library_call #memopt.matmul<m = 32, n = 640, k = 640, {{.*}} packed = [[BYTES]]>{{.*}}%[[INSIDE]]
  // CHECK: memopt.library_call #memopt.matmul<m = 32, n = 640, k = 640, {{.*}} accumulator = f32> (
  %last, %other = memopt.scan count(16) fixed(%f = %w : tensor<640x640xf32>)
      slices(%slice = %x : tensor<32x640xf32> of tensor<16x32x640xf32>)
      carried(%h = %h0 : tensor<32x640xf32>, %m = %m0 : tensor<640x640xf32>) {
    %0 = memopt.matmul %h, %f {transpose_b} : (tensor<32x640xf32>, tensor<640x640xf32>) -> tensor<32x640xf32>
    %1 = memopt.matmul %slice, %f {transpose_b} : (tensor<32x640xf32>, tensor<640x640xf32>) -> tensor<32x640xf32>
    %2 = arith.mulf %0, %1 : tensor<32x640xf32>
    %3 = memopt.matmul %2, %m {transpose_b} : (tensor<32x640xf32>, tensor<640x640xf32>) -> tensor<32x640xf32>
    %4 = arith.addf %m, %m : tensor<640x640xf32>
    memopt.yield %3, %4 : tensor<32x640xf32>, tensor<640x640xf32>
  } -> tensor<32x640xf32>, tensor<640x640xf32>
  return %last, %other : tensor<32x640xf32>, tensor<640x640xf32>
}

// -----

// Loops in a row that read the same weights share what is packed in front of the first.

// REMARK: Kernels=0, PackedWeights=1, Results=2

memopt.variable @w : tensor<640x640xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @loops
func.func @loops(%h0: tensor<32x640xf32>) -> tensor<32x640xf32> {
  %w = memopt.read @w : tensor<640x640xf32>
  // CHECK: %[[PACKED:.*]] = memopt.library_call #memopt.pack_weights<
  // CHECK: memopt.scan count(16) fixed(%{{.*}} = %[[PACKED]]
  // CHECK-NOT: pack_weights
  // CHECK: memopt.scan count(16) fixed(%{{.*}} = %[[PACKED]]
  %first = memopt.scan count(16) fixed(%f = %w : tensor<640x640xf32>) carried(%h = %h0 : tensor<32x640xf32>) {
    %0 = memopt.matmul %h, %f {transpose_b} : (tensor<32x640xf32>, tensor<640x640xf32>) -> tensor<32x640xf32>
    memopt.yield %0 : tensor<32x640xf32>
  } -> tensor<32x640xf32>
  %second = memopt.scan count(16) fixed(%f = %w : tensor<640x640xf32>) carried(%h = %first : tensor<32x640xf32>) {
    %0 = memopt.matmul %h, %f {transpose_b} : (tensor<32x640xf32>, tensor<640x640xf32>) -> tensor<32x640xf32>
    memopt.yield %0 : tensor<32x640xf32>
  } -> tensor<32x640xf32>
  return %second : tensor<32x640xf32>
}

// -----

// CHECK-LABEL: func.func @batch
// CHECK-NOT: pack_weights
// CHECK: memopt.library_call #memopt.matmul<batch = [1], m = 32,
func.func @batch(%h0: tensor<1x32x640xf32>, %w: tensor<1x640x640xf32>) -> tensor<1x32x640xf32> {
  %last = memopt.scan count(16) fixed(%f = %w : tensor<1x640x640xf32>) carried(%h = %h0 : tensor<1x32x640xf32>) {
    %0 = memopt.matmul %h, %f : (tensor<1x32x640xf32>, tensor<1x640x640xf32>) -> tensor<1x32x640xf32>
    memopt.yield %0 : tensor<1x32x640xf32>
  } -> tensor<1x32x640xf32>
  return %last : tensor<1x32x640xf32>
}
