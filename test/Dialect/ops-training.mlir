// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op of TrainingOps.td prints what it parsed.

// CHECK-LABEL: func.func @training
func.func @training(%p: tensor<4x8xf32>, %g: tensor<4x8xf32>, %m: tensor<4x8xf32>, %v: tensor<4x8xf32>,
                    %lr: tensor<f64>, %step: tensor<i64>, %seed: tensor<i64>) {
  // CHECK: memopt.dropout_mask %{{.*}}, %{{.*}} {id = 3 : i64, probability = 1.000000e-01 : f64} : (tensor<i64>, tensor<i64>) -> tensor<4x8xi1>
  %mask = memopt.dropout_mask %seed, %step {probability = 0.1 : f64, id = 3 : i64}
    : (tensor<i64>, tensor<i64>) -> tensor<4x8xi1>
  // CHECK: memopt.random %{{.*}}, %{{.*}} {distribution = #memopt.distribution<normal>, id = 4 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4x8xf32>
  %noise = memopt.random %seed, %step {distribution = #memopt.distribution<normal>, id = 4 : i64}
    : (tensor<i64>, tensor<i64>) -> tensor<4x8xf32>
  // CHECK: memopt.stochastic_round %{{.*}}, %{{.*}}, %{{.*}} {id = 5 : i64} : (tensor<4x8xf32>, tensor<i64>, tensor<i64>) -> tensor<4x8xbf16>
  %rounded = memopt.stochastic_round %p, %seed, %step {id = 5 : i64}
    : (tensor<4x8xf32>, tensor<i64>, tensor<i64>) -> tensor<4x8xbf16>
  // Inside of kernels.
  %number = arith.constant 7 : i64
  // CHECK: memopt.random_word %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {id = 6 : i64}
  %word = memopt.random_word %number, %number, %number, %number {id = 6 : i64}
  // A parameter that is narrower than its update.
  // CHECK: memopt.optimizer_step {{.*}} : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<f64>, tensor<i64>) -> tensor<4x8xf32>
  %updated = memopt.optimizer_step %rounded, %rounded, %lr, %step {optimizer = "sgd", state = [], settings = {}}
    : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<f64>, tensor<i64>) -> tensor<4x8xf32>
  // State comes and goes by name; an optimizer may have none.
  // CHECK: memopt.optimizer_step %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {optimizer = "sgd", settings = {weight_decay = 1.000000e-04 : f64}, state = []} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<i64>) -> tensor<4x8xf32>
  %plain = memopt.optimizer_step %p, %g, %lr, %step {optimizer = "sgd", state = [], settings = {weight_decay = 1.0e-4 : f64}}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<i64>) -> tensor<4x8xf32>
  // CHECK: memopt.optimizer_step {{.*}}state = ["exp_avg", "exp_avg_sq"]{{.*}} -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  %adam:3 = memopt.optimizer_step %p, %g, %lr, %step, %m, %v
    {optimizer = "adam", state = ["exp_avg", "exp_avg_sq"], settings = {betas = array<f64: 0.9, 0.999>}}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<i64>, tensor<4x8xf32>, tensor<4x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  // CHECK: memopt.global_norm %{{.*}}, %{{.*}} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
  %norm = memopt.global_norm %g, %m : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
  // CHECK: memopt.accumulate %{{.*}}, %{{.*}} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %sum = memopt.accumulate %m, %g : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}
