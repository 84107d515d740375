// RUN: memopt-opt %s --split-input-file -memopt-hoist-invariants --remarks-filter='memopt-hoist-invariants' --remark-format=emitRemark 2> %t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: memopt-opt %s --split-input-file -memopt-hoist-invariants=budget=122943 -memopt-plan-memory=budget=122943 -memopt-verify-planned | FileCheck %s --check-prefix=TIGHT
// RUN: memopt-opt %s --split-input-file -memopt-hoist-invariants=budget=122944 -memopt-plan-memory=budget=122944 -memopt-verify-planned | FileCheck %s

// The cast of a parameter, made in forward and again in backward of each iteration, is made once in front of the loop,
// where its 8192 bytes fit: the arena is 114752 without it. What follows from the batch, from a variable that the loop writes or from one that the
// runtime writes with each batch stays.

// TIGHT: arena_bytes = [114752,
// REMARK: Bytes=8192, Kernels=2, PackedWeights=0, Results=1
#id = affine_map<(d0, d1) -> (d0, d1)>
#none = affine_map<(d0, d1) -> ()>
memopt.variable @w : tensor<64x64xf32> role <parameter> {trainable}
memopt.variable @sample_offset : tensor<i64> role <hyperparameter>
memopt.variable @sum : tensor<64x64xf32> role <gradient>
// CHECK-LABEL: func.func @train_step
// TIGHT-LABEL: func.func @train_step
func.func @train_step(%x: tensor<64x64xf32> {memopt.name = "x"}) {
  // CHECK: %[[W:.*]] = memopt.read @w
  // CHECK: %[[CAST:.*]] = memopt.kernel (%{{.*}} = %[[W]] : tensor<64x64xf32>) -> tensor<64x64xbf16>
  // CHECK: memopt.repeat count(4) next_batch (%{{.*}} = %{{.*}} : tensor<64x64xf32>, %[[INSIDE:.*]] = %[[CAST]] : tensor<64x64xbf16>)
  // CHECK-NOT: memopt.read @w
  // TIGHT-NOT: memopt.read @w
  // TIGHT: memopt.repeat count(4)
  // TIGHT-COUNT-2: memopt.kernel (%{{.*}} = %{{.*}} : tensor<64x64xf32>) -> tensor<64x64xbf16>
  memopt.repeat count(4) next_batch (%batch = %x : tensor<64x64xf32>) {
    %w = memopt.read @w : tensor<64x64xf32>
    %narrow = memopt.kernel (%a = %w : tensor<64x64xf32>) -> tensor<64x64xbf16> {
      %e = tensor.empty() : tensor<64x64xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xbf16>) {
      ^bb0(%in: f32, %o: bf16):
        %0 = arith.truncf %in : f32 to bf16
        linalg.yield %0 : bf16
      } -> tensor<64x64xbf16>
      memopt.yield %r : tensor<64x64xbf16>
    }
    // CHECK: %[[Y:.*]] = test.run(%{{.*}}, %[[INSIDE]])
    %y = test.run(%batch, %narrow) {kind = "product"} : (tensor<64x64xf32>, tensor<64x64xbf16>) -> tensor<64x64xf32>
    %again = memopt.kernel (%a = %w : tensor<64x64xf32>) -> tensor<64x64xbf16>
        attributes {phase = #memopt.phase<backward>, clone = 1 : i64} {
      %e = tensor.empty() {memopt.phase = #memopt.phase<backward>} : tensor<64x64xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xbf16>) attrs = {memopt.phase = #memopt.phase<backward>} {
      ^bb0(%in: f32, %o: bf16):
        %0 = arith.truncf %in : f32 to bf16
        linalg.yield %0 : bf16
      } -> tensor<64x64xbf16>
      memopt.yield %r : tensor<64x64xbf16>
    }
    // CHECK: %[[Z:.*]] = test.run(%[[Y]], %[[INSIDE]])
    %z = test.run(%y, %again) {kind = "product"} : (tensor<64x64xf32>, tensor<64x64xbf16>) -> tensor<64x64xf32>
    // CHECK: memopt.kernel (%{{.*}} = %{{.*}} : tensor<64x64xf32>) -> tensor<64x64xbf16>
    %own = memopt.kernel (%a = %z : tensor<64x64xf32>) -> tensor<64x64xbf16> {
      %e = tensor.empty() : tensor<64x64xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xbf16>) {
      ^bb0(%in: f32, %o: bf16):
        %0 = arith.truncf %in : f32 to bf16
        linalg.yield %0 : bf16
      } -> tensor<64x64xbf16>
      memopt.yield %r : tensor<64x64xbf16>
    }
    %old = memopt.read @sum : tensor<64x64xf32>
    // CHECK: memopt.read @sum
    // CHECK: memopt.kernel (%{{.*}} = %{{.*}} : tensor<64x64xf32>) -> tensor<64x64xbf16>
    %changing = memopt.kernel (%a = %old : tensor<64x64xf32>) -> tensor<64x64xbf16> {
      %e = tensor.empty() : tensor<64x64xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xbf16>) {
      ^bb0(%in: f32, %o: bf16):
        %0 = arith.truncf %in : f32 to bf16
        linalg.yield %0 : bf16
      } -> tensor<64x64xbf16>
      memopt.yield %r : tensor<64x64xbf16>
    }
    // CHECK: memopt.read @sample_offset
    // CHECK: memopt.kernel (%{{.*}} = %{{.*}} : tensor<i64>) -> tensor<64x64xi64>
    %number = memopt.read @sample_offset : tensor<i64>
    %first = memopt.kernel (%a = %number : tensor<i64>) -> tensor<64x64xi64> {
      %e = tensor.empty() : tensor<64x64xi64>
      %r = linalg.generic {indexing_maps = [#none, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<i64>) outs(%e : tensor<64x64xi64>) {
      ^bb0(%in: i64, %o: i64):
        linalg.yield %in : i64
      } -> tensor<64x64xi64>
      memopt.yield %r : tensor<64x64xi64>
    }
    %new = test.run(%z, %own, %changing, %first) {kind = "sum"} : (tensor<64x64xf32>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xi64>) -> tensor<64x64xf32>
    memopt.write %new, @sum : tensor<64x64xf32>
  }
  return
}
