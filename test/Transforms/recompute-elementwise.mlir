// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-recompute-elementwise{print}))' --verify-diagnostics | FileCheck %s
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-recompute-elementwise{enabled=false}))' | FileCheck %s --check-prefix=OFF
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-recompute-elementwise))' --remarks-filter='memopt-recompute-elementwise' --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK

// A product of 16 KiB, its square and the exponential of that: backward reads all three, and besides the
// two products nothing must be kept. Both readers of the exponential share one clone, and the clone of the square.

#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @chain
// OFF-LABEL: func.func @chain
// OFF-NOT: memopt.clone
// REMARK: BytesKeptAfter=32768, BytesKeptBefore=65536, Clones=2
func.func @chain(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %empty = tensor.empty() : tensor<64x64xf32>
  // CHECK: %[[PRODUCT:.*]] = memopt.matmul
  // expected-remark @below {{kept for backward: 16384 bytes}}
  %product = memopt.matmul %x, %y : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // expected-remark @below {{recomputed in backward}}
  %square = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%product : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  // expected-remark @below {{recomputed in backward}}
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%square : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  // CHECK: %[[FORWARD:.*]] = memopt.matmul
  // expected-remark @below {{kept for backward: 16384 bytes}}
  %forward = memopt.matmul %exp, %y : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[SQUARE:.*]] = linalg.generic {{.*}} ins(%[[PRODUCT]] : {{.*}}) {{.*}} attrs = {memopt.clone = 1 : i64, memopt.phase = "backward"}
  // CHECK: %[[EXP:.*]] = linalg.generic {{.*}} ins(%[[SQUARE]] : {{.*}}) {{.*}} attrs = {memopt.clone = 1 : i64, memopt.phase = "backward"}
  // CHECK: %[[B0:.*]] = memopt.matmul %[[FORWARD]], %[[EXP]]
  %b0 = memopt.matmul %forward, %exp {memopt.phase = "backward"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[B1:.*]] = memopt.matmul %[[B0]], %[[EXP]]
  %b1 = memopt.matmul %b0, %exp {memopt.phase = "backward"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: memopt.matmul %[[B1]], %[[SQUARE]]
  %b2 = memopt.matmul %b1, %square {memopt.phase = "backward"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: memopt.matmul %{{.*}}, %[[PRODUCT]]
  %b3 = memopt.matmul %b2, %product {memopt.phase = "backward"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %b3 : tensor<64x64xf32>
}
