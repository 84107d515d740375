// RUN: memopt-opt %s --memopt-mixed-precision="type=bf16" --memopt-autodiff --split-input-file | FileCheck %s
// RUN: memopt-opt %s --memopt-mixed-precision="type=bf16" --memopt-autodiff --memopt-lower-to-linalg --memopt-form-kernels --split-input-file | FileCheck %s --check-prefix=CALLS

// The backward pass multiplies narrow values. The gradient of the parameter comes out of its product in f32, unrounded;
// that of an activation is rounded. In the kernel graph the calls store what was rounded, and the bias joins in f32.

memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable}
memopt.variable @b : tensor<4xf32> role <parameter> {trainable}

// CHECK-LABEL: func.func @train_step(
// CALLS-LABEL: func.func @train_step(
func.func @train_step(%x: tensor<8x4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %b = memopt.read @b : tensor<4xf32>
  // CALLS: memopt.library_call {{.*}}bias = true, type = bf16, accumulator = f32>{{.*}} : (tensor<8x4xbf16>, tensor<4x4xbf16>, tensor<4xf32>) -> tensor<8x4xbf16>
  %0 = memopt.matmul %x, %w : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %1 = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<8x4xf32>
  %2 = arith.addf %0, %1 : tensor<8x4xf32>
  // CHECK: %[[H:.*]] = memopt.relu %{{.*}} : tensor<8x4xbf16>
  %3 = memopt.relu %2 : tensor<8x4xf32>
  %4 = memopt.matmul %3, %w {transpose_b} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %5 = math.tanh %4 : tensor<8x4xf32>
  %6 = memopt.reduce %5 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x4xf32>) -> tensor<f32>
  // CHECK-DAG: %[[DH:.*]] = memopt.matmul %{{.*}}, %{{.*}} : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xf32>
  // CHECK-DAG: arith.truncf %[[DH]]
  // The parameter is read twice: its gradient is a sum of two products as they are.
  // CHECK: %[[SUM:.*]] = arith.addf %[[ONE:.*]], %[[TWO:.*]] : tensor<4x4xf32>
  // CHECK: memopt.gradient %[[SUM]], @w {{.*}} : tensor<4x4xf32>
  // CALLS: memopt.library_call {{.*}}result_type = f32>{{.*}} : (tensor<8x4xbf16>, tensor<8x4xbf16>) -> tensor<4x4xf32>
  // CALLS: memopt.gradient %{{.*}}, @w {{.*}}: tensor<4x4xf32>
  return %6 : tensor<f32>
}
