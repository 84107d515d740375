// RUN: memopt-opt %s --memopt-write-out-rank-sums | FileCheck %s
// RUN: memopt-opt %s --memopt-write-out-rank-sums=library=true | FileCheck %s --check-prefix=LIBRARY

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
  // A large sum: shards of 1024 elements, a kernel's additions from zero in the order of the ranks, a gather.
  // CHECK-LABEL: func.func @large
  // CHECK: %[[TERMS:.*]] = memopt.collective <all_to_all> %arg0 over 2 : tensor<32x64xf32> -> tensor<2048xf32>
  // CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<1024xf32>
  // CHECK: %[[FIRST:.*]] = tensor.extract_slice %[[TERMS]][0] [1024] [1]
  // CHECK: %[[ONE:.*]] = arith.addf %[[ZERO]], %[[FIRST]]
  // CHECK: %[[SECOND:.*]] = tensor.extract_slice %[[TERMS]][1024] [1024] [1]
  // CHECK: %[[SUM:.*]] = arith.addf %[[ONE]], %[[SECOND]]
  // CHECK: memopt.collective <all_gather> %[[SUM]] over 2 : tensor<1024xf32> -> tensor<32x64xf32>
  // LIBRARY-LABEL: func.func @large
  // LIBRARY-NEXT: memopt.collective <all_reduce>
  func.func @large(%x: tensor<32x64xf32>) -> tensor<32x64xf32> {
    %sum = memopt.collective <all_reduce> %x over 2 : tensor<32x64xf32> -> tensor<32x64xf32>
    return %sum : tensor<32x64xf32>
  }

  // A small one is gathered whole.
  // CHECK-LABEL: func.func @small
  // CHECK: memopt.collective <all_gather> %arg0 over 3 : tensor<i64> -> tensor<3xi64>
  // CHECK-COUNT-3: arith.addi
  // CHECK: tensor.collapse_shape %{{.*}} : tensor<1xi64> into tensor<i64>
  func.func @small(%x: tensor<i64>) -> tensor<i64> {
    %sum = memopt.collective <all_reduce> %x over 3 : tensor<i64> -> tensor<i64>
    return %sum : tensor<i64>
  }

  // A shard with padding, which a library does not take, and one without.
  // CHECK-LABEL: func.func @shards
  // CHECK: memopt.collective <all_to_all> %arg0 over 3 : tensor<10xf32> -> tensor<48xf32>
  // CHECK: memopt.collective <all_to_all> %arg1 over 3 : tensor<3x16xf32> -> tensor<48xf32>
  // CHECK-NOT: reduce_scatter
  // LIBRARY-LABEL: func.func @shards
  // LIBRARY: memopt.collective <all_to_all> %arg0 over 3 : tensor<10xf32> -> tensor<48xf32>
  // LIBRARY: memopt.collective <reduce_scatter> %arg1
  func.func @shards(%x: tensor<10xf32>, %y: tensor<3x16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
    %a = memopt.collective <reduce_scatter> %x over 3 : tensor<10xf32> -> tensor<16xf32>
    %b = memopt.collective <reduce_scatter> %y over 3 : tensor<3x16xf32> -> tensor<16xf32>
    return %a, %b : tensor<16xf32>, tensor<16xf32>
  }

  // The terms of 64 ranks: eight in each of eight iterations, from zero and in the order of the ranks.
  // CHECK-LABEL: func.func @many
  // CHECK: %[[TERMS:.*]] = memopt.collective <all_to_all> %arg0 over 64 : tensor<64x32xf32> -> tensor<2048xf32>
  // CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<32xf32>
  // CHECK: %[[GROUPS:.*]] = tensor.expand_shape %[[TERMS]] {{.*}} into tensor<8x256xf32>
  // CHECK: memopt.scan count(8) slices(%[[GROUP:.*]] = %[[GROUPS]] : tensor<256xf32> of tensor<8x256xf32>) carried(%[[SUM:.*]] = %[[ZERO]] : tensor<32xf32>)
  // CHECK-NEXT: %[[FIRST:.*]] = tensor.extract_slice %[[GROUP]][0] [32] [1]
  // CHECK-NEXT: %[[ONE:.*]] = arith.addf %[[SUM]], %[[FIRST]]
  // CHECK-NEXT: %[[SECOND:.*]] = tensor.extract_slice %[[GROUP]][32] [32] [1]
  // CHECK-NEXT: arith.addf %[[ONE]], %[[SECOND]]
  // CHECK-COUNT-6: arith.addf
  // CHECK-NEXT: memopt.yield
  // CHECK-NOT: arith.addf
  // CHECK: memopt.collective <all_gather>
  func.func @many(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
    %sum = memopt.collective <all_reduce> %x over 64 : tensor<64x32xf32> -> tensor<64x32xf32>
    return %sum : tensor<64x32xf32>
  }

  // As many in an iteration as divide the ranks.
  // CHECK-LABEL: func.func @divided
  // CHECK: memopt.scan count(4) slices(%{{.*}} : tensor<7xi64> of tensor<4x7xi64>)
  // CHECK-COUNT-7: arith.addi
  // CHECK-NEXT: memopt.yield
  func.func @divided(%x: tensor<i64>) -> tensor<i64> {
    %sum = memopt.collective <all_reduce> %x over 28 : tensor<i64> -> tensor<i64>
    return %sum : tensor<i64>
  }
}
