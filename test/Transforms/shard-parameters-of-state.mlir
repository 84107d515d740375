// RUN: memopt-opt %s --memopt-shard-parameters | FileCheck %s

// An evaluation reads the parts of a training's parameters, in whose cut they are: one gather for all readers. What the
// training keeps whole stays whole, though this run has ranks=1.

// CHECK: memopt.variable @w : tensor<32xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [8, 6]>}
// CHECK: memopt.variable @b : tensor<6xf32> role <parameter>{{$}}
// CHECK: memopt.variable @v : tensor<16xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [6, 4]>}
memopt.variable @w : tensor<8x6xf32> role <parameter> {memopt.state_shard = {type = tensor<32xf32>, shard = #memopt.shard<ranks = 2, shape = [8, 6]>}}
memopt.variable @b : tensor<6xf32> role <parameter>
memopt.variable @v : tensor<6x4xf32> role <parameter> {memopt.state_shard = {type = tensor<16xf32>, shard = #memopt.shard<ranks = 2, shape = [6, 4]>}}
// CHECK-LABEL: func.func @step
func.func @step(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  // CHECK: %[[W:.*]] = memopt.read @w : tensor<32xf32>
  // CHECK: memopt.read @b : tensor<6xf32>
  // CHECK: %[[PART:.*]] = memopt.read @v : tensor<16xf32>
  // CHECK: %[[ALL:.*]] = memopt.collective <all_gather> %[[W]]
  // CHECK-COUNT-2: memopt.matmul %{{.*}}, %[[ALL]]
  // CHECK-NOT: all_gather> %[[W]]
  // CHECK: memopt.collective <all_gather> %[[PART]]
  %w = memopt.read @w : tensor<8x6xf32>
  %b = memopt.read @b : tensor<6xf32>
  %a = memopt.read @v : tensor<6x4xf32>
  %y = memopt.matmul %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %z = memopt.matmul %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %sum = arith.addf %y, %z : tensor<4x6xf32>
  %r = memopt.matmul %sum, %a : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}
