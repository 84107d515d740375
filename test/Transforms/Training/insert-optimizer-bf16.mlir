// RUN: memopt-opt %s --memopt-mixed-precision="type=bf16 master-weights=false" --memopt-autodiff --memopt-insert-optimizer="settings='momentum=0.9'" | FileCheck %s
// RUN: memopt-opt %s --memopt-mixed-precision="type=bf16 master-weights=false" --memopt-autodiff --memopt-insert-optimizer="max-grad-norm=1" | FileCheck %s --check-prefix=CLIP
// RUN: not memopt-opt %s --memopt-mixed-precision="type=fp16 master-weights=false" 2>&1 | FileCheck %s --check-prefix=HALF
// RUN: not memopt-opt %s --memopt-mixed-precision="type=bf17" 2>&1 | FileCheck %s --check-prefix=TYPE

// HALF: parameters without a master copy are bf16, which fp16 is not
// TYPE: expected f32, bf16 or fp16 as the precision, found 'bf17'

// Without a master copy a parameter is a bf16 variable, its first values rounded to nearest (1.00390625 lies in the
// middle of two, the even one is 1). Its update is computed in f32 and rounded at random; state stays f32.

// CHECK: memopt.variable @w : tensor<4x2xbf16> role <parameter> {initial = dense<{{\[\[}}1.000000e+00, 2.000000e+00], {{.*}}> : tensor<4x2xbf16>
memopt.variable @w : tensor<4x2xf32> role <parameter> {trainable, initial = dense<[[1.00390625, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>}
// CHECK: memopt.variable @frozen : tensor<2xf32>
memopt.variable @frozen : tensor<2xf32> role <parameter>
// CHECK: memopt.variable @optimizer.momentum.w : tensor<4x2xf32>
// CHECK: memopt.variable @seed : tensor<i64> role <hyperparameter>

// CHECK-LABEL: func.func @train_step(
func.func @train_step(%x: tensor<8x4xf32>) -> tensor<f32> {
  // CHECK: %[[W:.*]] = memopt.read @w : tensor<4x2xbf16>
  // CHECK: memopt.matmul %{{.*}}, %[[W]]
  %0 = memopt.read @w : tensor<4x2xf32>
  %1 = memopt.matmul %x, %0 : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
  %2 = memopt.reduce %1 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x2xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}
// CHECK: memopt.gradient %[[GRADIENT:.*]], @w {{.*}} : tensor<4x2xbf16>
// CHECK: %[[NEW:.*]], %{{.*}} = memopt.optimizer_step %{{.*}}, %[[GRADIENT]], {{.*}} -> (tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK: %[[SEED:.*]] = memopt.read @seed
// CHECK: %[[ROUNDED:.*]] = memopt.stochastic_round %[[NEW]], %[[SEED]], %{{.*}} {id = 2147483648 : i64, {{.*}}} : (tensor<4x2xf32>, tensor<i64>, tensor<i64>) -> tensor<4x2xbf16>
// CHECK: memopt.write %[[ROUNDED]], @w

// The norm of all gradients is f32.
// CLIP: memopt.global_norm {{.*}} : (tensor<4x2xbf16>) -> tensor<f32>
// CLIP: arith.mulf {{.*}} : tensor<4x2xf32>
// CLIP: arith.truncf {{.*}} : tensor<4x2xf32> to tensor<4x2xbf16>
