// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op of FlowOps.td prints what it parsed.

memopt.variable @sum : tensor<8xf32> role <gradient>
memopt.variable @moment : tensor<8xf32> role <optimizer_state> {of = @w, slot = "momentum", placement = #memopt.space<host>}
memopt.variable @w : tensor<8xf32> role <parameter>

// CHECK-LABEL: func.func @flow
func.func @flow(%x: tensor<8xf32>, %loss: tensor<f32>) -> tensor<f32> {
  // CHECK: memopt.repeat count(4) next_batch (%[[IN:.*]] = %{{.*}} : tensor<8xf32>) {
  // CHECK-NEXT: memopt.read @sum
  // CHECK-NEXT: arith.addf %{{.*}}, %[[IN]]
  memopt.repeat count(4) next_batch (%in = %x : tensor<8xf32>) {
    %old = memopt.read @sum : tensor<8xf32>
    %new = arith.addf %old, %in : tensor<8xf32>
    memopt.write %new, @sum : tensor<8xf32>
  }
  // CHECK: memopt.repeat count(2) {
  // CHECK-NEXT: }
  memopt.repeat count(2) {
  }
  // CHECK: memopt.commit %{{.*}} : tensor<f32>
  memopt.commit %loss : tensor<f32>
  // What lies on the host has that in its type.
  // CHECK: %[[HOST:.*]] = memopt.read @moment : tensor<8xf32, #memopt.space<host>>
  %moment = memopt.read @moment : tensor<8xf32, #memopt.space<host>>
  // CHECK: %[[TOKEN:.*]] = memopt.transfer_start %[[HOST]] to <device> : tensor<8xf32, #memopt.space<host>>
  %token = memopt.transfer_start %moment to <device> : tensor<8xf32, #memopt.space<host>>
  // CHECK: memopt.transfer_wait %[[TOKEN]] : tensor<8xf32>
  %here = memopt.transfer_wait %token : tensor<8xf32>
  return %loss : tensor<f32>
}

// CHECK-LABEL: func.func @ranks
func.func @ranks(%g: tensor<2x5xf32>, %flag: tensor<3xi1>) {
  // CHECK: memopt.collective <all_reduce> %{{.*}} over 4 : tensor<2x5xf32> -> tensor<2x5xf32>
  %sum = memopt.collective <all_reduce> %g over 4 : tensor<2x5xf32> -> tensor<2x5xf32>
  // CHECK: memopt.collective <reduce_scatter> %{{.*}} over 4 : tensor<2x5xf32> -> tensor<16xf32>
  %own = memopt.collective <reduce_scatter> %g over 4 : tensor<2x5xf32> -> tensor<16xf32>
  // CHECK: memopt.collective <all_gather> %{{.*}} over 4 : tensor<16xf32> -> tensor<2x5xf32>
  %all = memopt.collective <all_gather> %own over 4 : tensor<16xf32> -> tensor<2x5xf32>
  // Shards may be of any type.
  // CHECK: memopt.collective <own_shard> %{{.*}} over 3 : tensor<3xi1> -> tensor<1xi1>
  %mine = memopt.collective <own_shard> %flag over 3 : tensor<3xi1> -> tensor<1xi1>
  // CHECK: %[[T:.*]] = memopt.collective_start <all_gather> %{{.*}} over 4 : tensor<16xf32>
  // CHECK: memopt.collective_wait %[[T]] : tensor<2x5xf32>
  %t = memopt.collective_start <all_gather> %own over 4 : tensor<16xf32>
  %later = memopt.collective_wait %t : tensor<2x5xf32>
  // CHECK: %[[V:.*]] = memopt.pack %{{.*}}, %{{.*}} at [0, 16] : (tensor<2x5xf32>, tensor<16xf32>) -> tensor<48xf32>
  %v = memopt.pack %g, %own at [0, 16] : (tensor<2x5xf32>, tensor<16xf32>) -> tensor<48xf32>
  // CHECK: memopt.unpack %[[V]] from 16 : tensor<48xf32> -> tensor<4x4xf32>
  %u = memopt.unpack %v from 16 : tensor<48xf32> -> tensor<4x4xf32>
  return
}
