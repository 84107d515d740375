// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op of TrainingOps.td prints what it parsed.

// CHECK-LABEL: func.func @training
func.func @training(%p: tensor<4x8xf32>, %g: tensor<4x8xf32>, %m: tensor<4x8xf32>, %v: tensor<4x8xf32>,
                    %lr: tensor<f64>, %step: tensor<i64>, %seed: tensor<i64>) {
  // CHECK: memopt.dropout_mask %{{.*}}, %{{.*}} {id = 3 : i64, probability = 1.000000e-01 : f64} : (tensor<i64>, tensor<i64>) -> tensor<4x8xi1>
  %mask = memopt.dropout_mask %seed, %step {probability = 0.1 : f64, id = 3 : i64}
    : (tensor<i64>, tensor<i64>) -> tensor<4x8xi1>
  // Without momentum there is no buffer, neither in nor out.
  // CHECK: memopt.sgd_step %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {dampening = 0.000000e+00 : f64, momentum = 0.000000e+00 : f64, weight_decay = 1.000000e-04 : f64} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<i64>) -> tensor<4x8xf32>
  %plain = memopt.sgd_step %p, %g, %lr, %step {momentum = 0.0 : f64, dampening = 0.0 : f64, weight_decay = 1.0e-4 : f64}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<i64>) -> tensor<4x8xf32>
  // CHECK: memopt.sgd_step {{.*}}nesterov{{.*}} -> (tensor<4x8xf32>, tensor<4x8xf32>)
  %sgd:2 = memopt.sgd_step %p, %g, %m, %lr, %step
    {momentum = 0.9 : f64, dampening = 0.0 : f64, weight_decay = 0.0 : f64, nesterov}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<i64>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  // CHECK: memopt.adam_step {{.*}}decoupled{{.*}} -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  %adam:3 = memopt.adam_step %p, %g, %m, %v, %lr, %step
    {beta1 = 0.9 : f64, beta2 = 0.999 : f64, eps = 1.0e-8 : f64, weight_decay = 0.01 : f64, decoupled}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<i64>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  // CHECK: memopt.global_norm %{{.*}}, %{{.*}} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
  %norm = memopt.global_norm %g, %m : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
  // CHECK: memopt.accumulate %{{.*}}, %{{.*}} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %sum = memopt.accumulate %m, %g : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}
