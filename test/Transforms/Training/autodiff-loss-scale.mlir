// RUN: memopt-opt %s --memopt-autodiff="loss-scale=1024" | FileCheck %s
// RUN: not memopt-opt %s --memopt-autodiff="loss-scale=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// The backward pass starts from the scale, and the gradient of the parameter is divided by it where it is complete.

// NEGATIVE: the scale of the loss must be a positive f32, found -1

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}

// CHECK: memopt.variable @loss_scale : tensor<f32> role <loss_scale> {init_value = 1.024000e+03 : f64
// CHECK-LABEL: func.func @train_step(
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %0 = memopt.read @w : tensor<4xf32>
  %1 = arith.mulf %0, %x : tensor<4xf32>
  %2 = memopt.reduce %1 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: %[[LOSS:.*]] = memopt.reduce
  // CHECK: %[[SCALE:.*]] = memopt.read @loss_scale {memopt.phase = #memopt.phase<backward>}
  // CHECK: %[[SEED:.*]] = memopt.broadcast %[[SCALE]]
  // CHECK: %[[SCALED:.*]] = arith.mulf %[[SEED]], %{{.*}}
  // CHECK: %[[INVERSE:.*]] = arith.divf %{{.*}}, %{{.*}} : tensor<f32>
  // CHECK: %[[REPEATED:.*]] = memopt.broadcast %[[INVERSE]]
  // CHECK: %[[GRADIENT:.*]] = arith.mulf %[[SCALED]], %[[REPEATED]]
  // CHECK: memopt.gradient %[[GRADIENT]], @w
  // CHECK: return %[[LOSS]]
  return %2 : tensor<f32>
}
