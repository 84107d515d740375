// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op of KernelOps.td prints what it parsed.

#identity = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @kernels
func.func @kernels(%x: tensor<8xf32>, %y: tensor<4x8xf32>) -> tensor<8xf32> {
  // CHECK: %[[K:.*]] = memopt.kernel (%[[A:.*]] = %{{.*}} : tensor<8xf32>, %[[B:.*]] = %{{.*}} : tensor<8xf32>) -> tensor<8xf32> attributes {clone = 1 : i64} {
  %sum = memopt.kernel (%a = %x : tensor<8xf32>, %b = %x : tensor<8xf32>) -> tensor<8xf32> attributes {clone = 1 : i64} {
    %empty = tensor.empty() : tensor<8xf32>
    // CHECK: linalg.generic
    // CHECK-SAME: ins(%[[A]], %[[B]] : tensor<8xf32>, tensor<8xf32>)
    %0 = linalg.generic {indexing_maps = [#identity, #identity, #identity], iterator_types = ["parallel"]}
        ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%empty : tensor<8xf32>) {
    ^bb0(%p: f32, %q: f32, %out: f32):
      %1 = arith.addf %p, %q : f32
      linalg.yield %1 : f32
    } -> tensor<8xf32>
    // CHECK: memopt.yield %{{.*}} : tensor<8xf32>
    memopt.yield %0 : tensor<8xf32>
  }
  // A kernel without operands, and one with two results.
  // CHECK: memopt.kernel () -> tensor<8xi64> {
  %constant = memopt.kernel () -> tensor<8xi64> {
    %0 = memopt.iota {dimension = 0 : i64} : () -> tensor<8xi64>
    memopt.yield %0 : tensor<8xi64>
  }
  // CHECK: memopt.kernel (%{{.*}} = %{{.*}} : tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<4x8xf32>) {
  %two:2 = memopt.kernel (%a = %y : tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<4x8xf32>) {
    %0 = memopt.transpose %a {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    memopt.yield %0, %a : tensor<8x4xf32>, tensor<4x8xf32>
  }
  // A kernel of the host: its body knows no spaces.
  // CHECK: %[[FAR:.*]] = memopt.transfer_wait
  // CHECK: memopt.kernel (%[[IN:.*]] = %[[FAR]] : tensor<4x8xf32, #memopt.space<host>>) -> tensor<8x4xf32, #memopt.space<host>> {
  // CHECK: memopt.transpose %[[IN]] {{.*}} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %token = memopt.transfer_start %y to <host> : tensor<4x8xf32>
  %far = memopt.transfer_wait %token : tensor<4x8xf32, #memopt.space<host>>
  %there = memopt.kernel (%a = %far : tensor<4x8xf32, #memopt.space<host>>) -> tensor<8x4xf32, #memopt.space<host>> {
    %0 = memopt.transpose %a {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    memopt.yield %0 : tensor<8x4xf32>
  }
  // What a library computes is an attribute of the call: a product of the second half of each row of %y with %two.
  // CHECK: memopt.library_call #memopt.matmul<m = 4, n = 4, k = 4, a_strides = [8, 1], b_strides = [4, 1], c_strides = [4, 1], type = f32, accumulator = f32> (%{{.*}}, %{{.*}}) {implementation = "brgemm", number = 0 : i64, offsets = array<i64: 0, 256>, operand_offsets = array<i64: 4, 0>, workspace = 64 : i64} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %c = memopt.library_call #memopt.matmul<m = 4, n = 4, k = 4, a_strides = [8, 1], b_strides = [4, 1],
      c_strides = [4, 1], type = f32, accumulator = f32> (%y, %two#0) {operand_offsets = array<i64: 4, 0>,
      workspace = 64 : i64, implementation = "brgemm", number = 0 : i64, offsets = array<i64: 0, 256>}
    : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %sum : tensor<8xf32>
}
