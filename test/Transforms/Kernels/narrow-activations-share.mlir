// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=bf16 share=50}))' --verify-diagnostics | FileCheck %s
// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=bf16 share=0}))' 2>/dev/null | FileCheck %s --check-prefix=NONE

// Half of the bytes: the activation made first is narrowed, for it waits longest, the second is kept as it is.

// CHECK-LABEL: func.func @two
// CHECK-SAME: %[[X:.*]]: tensor<64x64xf32>, %[[W:.*]]: tensor<64x64xf32>
// NONE-LABEL: func.func @two
// NONE-NOT: bf16
// expected-remark @below {{keeps 1 activations in bf16: 8192 bytes instead of 16384}}
func.func @two(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  // CHECK: %[[Y:.*]] = memopt.matmul %[[X]], %[[W]]
  // CHECK: %[[KEPT:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<64x64xf32>) outs({{.*}} : tensor<64x64xbf16>)
  %y = memopt.matmul %x, %w : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[Z:.*]] = memopt.matmul %[[Y]], %[[W]]
  %z = memopt.matmul %y, %w : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: memopt.matmul %[[Z]], %[[W]]
  %a = memopt.matmul %z, %w {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[KEPT]] : tensor<64x64xbf16>)
  // CHECK: memopt.matmul %[[WIDE]], %[[A:.*]] {
  %b = memopt.matmul %y, %a {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %a, %b : tensor<64x64xf32>, tensor<64x64xf32>
}
