// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=bf16 only=1}))' --verify-diagnostics | FileCheck %s
// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{choice=bf16}))' 2>/dev/null | FileCheck %s --check-prefix=MARKS
// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=int8 only=1}))' 2>/dev/null | FileCheck %s --check-prefix=INT8
// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=int8}))' 2>/dev/null | FileCheck %s --check-prefix=ALL
// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{choice=bf16},memopt-form-kernels))' 2>/dev/null | FileCheck %s --check-prefix=KERNELS
// RUN: not memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=bf16 only=2}))' 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{choice=f16}))' 2>&1 | FileCheck %s --check-prefix=TYPE

// NUMBER: expected numbers of the 2 activations that may be narrowed, found 2
// TYPE: expected f32, bf16, int8 or fp8 as the type of kept activations, found 'f16'

// The activation of number 1 alone is narrowed. All have numbers for whoever chooses; those of calls and kernels are the
// same. Random words follow from the number, whatever else is narrowed.

// ALL: memopt.random_word {{.*}}id = 1073741824
// ALL: memopt.random_word {{.*}}id = 1073741825
// INT8-NOT: 1073741824
// INT8: memopt.random_word {{.*}}id = 1073741825
// KERNELS: memopt.library_call {{.*}}memopt.activations = array<i64: 0>
// KERNELS: memopt.library_call {{.*}}memopt.activations = array<i64: 1>
// KERNELS-NOT: memopt.activations

// CHECK-LABEL: func.func @two
// CHECK-SAME: %[[X:.*]]: tensor<64x64xf32>, %[[W:.*]]: tensor<64x64xf32>
// expected-remark @below {{keeps 1 activations in bf16: 8192 bytes instead of 16384}}
func.func @two(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  // CHECK: %[[Y:.*]] = memopt.matmul %[[X]], %[[W]]
  // MARKS: memopt.matmul {{.*}}memopt.activations = array<i64: 0>
  %y = memopt.matmul %x, %w : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[Z:.*]] = memopt.matmul %[[Y]], %[[W]]
  // CHECK: %[[KEPT:.*]] = linalg.generic {{.*}} ins(%[[Z]] : tensor<64x64xf32>) outs({{.*}} : tensor<64x64xbf16>)
  // MARKS: memopt.matmul {{.*}}memopt.activations = array<i64: 1>
  %z = memopt.matmul %y, %w : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[KEPT]] : tensor<64x64xbf16>)
  // CHECK: memopt.matmul %[[WIDE]], %[[W]]
  // MARKS-NOT: memopt.activations
  %a = memopt.matmul %z, %w {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: memopt.matmul %[[Y]], %{{.*}} {
  %b = memopt.matmul %y, %a {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %a, %b : tensor<64x64xf32>, tensor<64x64xf32>
}
