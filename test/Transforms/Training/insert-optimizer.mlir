// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer | FileCheck %s --check-prefixes=CHECK,SGD
// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="settings='lr=0.1 momentum=0.9 nesterov weight-decay=0.5'" \
// RUN:   | FileCheck %s --check-prefixes=CHECK,MOMENTUM
// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="settings='optimizer=adam'" | FileCheck %s --check-prefixes=CHECK,ADAM
// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="settings='optimizer=adamw betas=0.8,0.9 eps=0.001'" \
// RUN:   | FileCheck %s --check-prefixes=CHECK,ADAMW
// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="max-grad-norm=2" | FileCheck %s --check-prefix=CLIP
// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="max-grad-norm=inf" | FileCheck %s --check-prefix=TOLD

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
memopt.variable @frozen : tensor<4xf32> role <parameter>
memopt.variable @v : tensor<4xf32> role <parameter> {trainable}

// The learning rate and the step's number are state that the runtime writes. Optimizer state belongs to a
// parameter; plain SGD has none.

// SGD:      memopt.variable @lr : tensor<f64> role <hyperparameter> {init_value = 1.000000e-03 : f64
// SGD:      memopt.variable @step : tensor<i64> role <hyperparameter>
// SGD-NOT:  optimizer_state
// MOMENTUM: memopt.variable @lr {{.*}}init_value = 1.000000e-01 : f64
// MOMENTUM: memopt.variable @optimizer.momentum.w : tensor<4xf32> role <optimizer_state>
// MOMENTUM-SAME: init_value = 0.000000e+00 : f64, names = ["optimizer.momentum.w"], of = @w, slot = "momentum"
// MOMENTUM: memopt.variable @optimizer.momentum.v
// ADAM:     memopt.variable @optimizer.exp_avg.w
// ADAM:     memopt.variable @optimizer.exp_avg_sq.w {{.*}}of = @w, slot = "exp_avg_sq"
// ADAM:     memopt.variable @optimizer.exp_avg.v
// ADAM:     memopt.variable @optimizer.exp_avg_sq.v

// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  -> tensor<f32> {
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %0 = memopt.read @w : tensor<4xf32>
  %1 = memopt.read @frozen : tensor<4xf32>
  %2 = memopt.read @v : tensor<4xf32>
  %3 = arith.mulf %0, %1 : tensor<4xf32>
  %4 = arith.mulf %3, %2 : tensor<4xf32>
  %5 = memopt.reduce %4 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %5 : tensor<f32>
}
// CHECK-DAG: memopt.gradient %[[DV:.*]], @v
// CHECK-DAG: memopt.gradient %[[DW:.*]], @w
// CHECK:     %[[LR:.*]] = memopt.read @lr {memopt.phase = #memopt.phase<optimizer>}
// CHECK:     %[[STEP:.*]] = memopt.read @step {memopt.phase = #memopt.phase<optimizer>}

// SGD:      %[[W:.*]] = memopt.read @w {memopt.phase = #memopt.phase<optimizer>}
// SGD:      %[[NEW:.*]] = memopt.optimizer_step %[[W]], %[[DW]], %[[LR]], %[[STEP]] {memopt.phase = #memopt.phase<optimizer>, optimizer = "sgd"
// SGD-SAME: settings = {dampening = 0.000000e+00 : f64, momentum = 0.000000e+00 : f64, nesterov = 0.000000e+00 : f64, weight_decay = 0.000000e+00 : f64}, state = []
// SGD-NEXT: memopt.write %[[NEW]], @w
// SGD-NOT:  @frozen
// SGD:      memopt.write %{{.*}}, @v

// MOMENTUM:      %[[BUFFER:.*]] = memopt.read @optimizer.momentum.w
// MOMENTUM:      %[[NEW:.*]], %[[NEXT:.*]] = memopt.optimizer_step %{{.*}}, %[[DW]], %[[LR]], %[[STEP]], %[[BUFFER]]
// MOMENTUM-SAME: momentum = 9.000000e-01 : f64, nesterov = 1.000000e+00 : f64, weight_decay = 5.000000e-01 : f64}, state = ["momentum"]
// MOMENTUM:      memopt.write %[[NEW]], @w
// MOMENTUM:      memopt.write %[[NEXT]], @optimizer.momentum.w

// ADAM:      %[[M:.*]] = memopt.read @optimizer.exp_avg.w
// ADAM:      %[[S:.*]] = memopt.read @optimizer.exp_avg_sq.w
// ADAM:      %[[NEW:[^,]*]], %[[STATE:.*]]:2 = memopt.optimizer_step %{{.*}}, %[[DW]], %[[LR]], %[[STEP]], %[[M]], %[[S]]
// ADAM-SAME: optimizer = "adam", settings = {amsgrad = 0.000000e+00 : f64, betas = array<f64: 9.000000e-01, 0.99{{[0-9]*}}>, eps = 1.000000e-08 : f64, weight_decay = 0.000000e+00 : f64}
// ADAM:      memopt.write %[[NEW]], @w
// ADAM:      memopt.write %[[STATE]]#0, @optimizer.exp_avg.w
// ADAM:      memopt.write %[[STATE]]#1, @optimizer.exp_avg_sq.w

// ADAMW:      memopt.optimizer_step
// ADAMW-SAME: optimizer = "adamw", settings = {amsgrad = 0.000000e+00 : f64, betas = array<f64: 8.000000e-01, 9.000000e-01>, eps = 1.000000e-03 : f64, weight_decay = 1.000000e-02 : f64}

// Clipping sees all gradients before any is used; what is marked is the gradient before it.

// CLIP:     memopt.variable @gradient_norm : tensor<f32> role <gradient>
// CLIP-DAG: memopt.gradient %[[DV:.*]], @v
// CLIP-DAG: memopt.gradient %[[DW:.*]], @w
// CLIP:     %[[NORM:.*]] = memopt.global_norm %[[DW]], %[[DV]]
// CLIP:     memopt.write %[[NORM]], @gradient_norm
// CLIP:     %[[LIMIT:.*]] = arith.constant dense<2.000000e+00>
// CLIP:     %[[RATIO:.*]] = arith.divf %[[LIMIT]], %{{.*}}
// CLIP:     %[[FACTOR:.*]] = arith.minimumf %[[RATIO]], %{{.*}}
// CLIP:     %[[ALL:.*]] = memopt.broadcast %[[FACTOR]]
// CLIP:     %[[CLIPPED:.*]] = arith.mulf %[[DW]], %[[ALL]]
// CLIP:     memopt.optimizer_step %{{.*}}, %[[CLIPPED]]

// Without a limit the norm is told, and gradients stay as they are.
// TOLD-DAG: memopt.gradient %[[DV:.*]], @v
// TOLD-DAG: memopt.gradient %[[DW:.*]], @w
// TOLD:     %[[NORM:.*]] = memopt.global_norm %[[DW]], %[[DV]]
// TOLD-NEXT: memopt.write %[[NORM]], @gradient_norm
// TOLD-NOT: arith.minimumf
// TOLD:     memopt.optimizer_step %{{.*}}, %[[DW]]
