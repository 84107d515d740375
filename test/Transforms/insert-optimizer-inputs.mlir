// RUN: memopt-opt %s --memopt-insert-optimizer="max-grad-norm=2 settings='optimizer=sgd lr=0.1 momentum=0.9 weight-decay=0.5 bias-decay-mult=0.5 hyperparameters=inputs param-group=fc.*:lr=0.2,weight-decay=0 param-group=free:weight-decay=3'" \
// RUN:   | FileCheck %s
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adamw hyperparameters=inputs'" | FileCheck %s --check-prefix=ADAMW
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=sgd hyperparameters=inputs'" | FileCheck %s --check-prefix=PLAIN
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adamw hyperparameters=inputs'" --memopt-lower-to-linalg --cse \
// RUN:   | FileCheck %s --check-prefix=LOWERED
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='hyperparameters=some'" 2>&1 | FileCheck %s --check-prefix=WRONG

memopt.variable @fc.weight : tensor<16x16xf32> role <parameter> {trainable, names = ["fc.weight"]}
memopt.variable @conv.bias : tensor<16xf32> role <parameter> {trainable, names = ["conv.bias"]}
memopt.variable @free : tensor<4xf32> role <parameter> {trainable, names = ["free"]}

// The numbers of a group are told by its rate, and where that is the same by what they start from. A decay that is
// scaled for a parameter is scaled in the step.

// CHECK-DAG: memopt.variable @hyperparameter.max_grad_norm : tensor<f64> role <hyperparameter> {init_value = 2.000000e+00
// CHECK-DAG: memopt.variable @hyperparameter.momentum : tensor<f64> role <hyperparameter> {init_value = 9.000000e-01
// CHECK-DAG: memopt.variable @hyperparameter.momentum.1 : tensor<f64> role <hyperparameter> {init_value = 9.000000e-01
// CHECK-DAG: memopt.variable @hyperparameter.weight_decay : tensor<f64> role <hyperparameter> {init_value = 5.000000e-01
// CHECK-DAG: memopt.variable @hyperparameter.weight_decay.1 : tensor<f64> role <hyperparameter> {init_value = 0.000000e+00
// CHECK-DAG: memopt.variable @"hyperparameter.weight_decay-2" : tensor<f64> role <hyperparameter> {init_value = 3.000000e+00
// CHECK: %[[LIMIT:.*]] = memopt.read @hyperparameter.max_grad_norm
// CHECK: %[[NARROW:.*]] = arith.truncf %[[LIMIT]]
// CHECK: arith.divf %[[NARROW]]
// CHECK: memopt.optimizer_step {{.*}}inputs = ["momentum", "weight_decay"]
// CHECK: %[[DECAY:.*]] = memopt.read @hyperparameter.weight_decay {
// CHECK: %[[HALF:.*]] = arith.constant {{.*}}dense<5.000000e-01> : tensor<f64>
// CHECK: %[[OWN:.*]] = arith.mulf %[[DECAY]], %[[HALF]]
// CHECK: memopt.optimizer_step {{.*}}, %[[OWN]] {
// CHECK: %[[OTHER:.*]] = memopt.read @"hyperparameter.weight_decay-2"
// CHECK: memopt.optimizer_step {{.*}}, %[[OTHER]] {

// ADAMW: memopt.optimizer_step {{.*}}inputs = ["beta1", "beta2", "weight_decay"]

// A momentum of 0 has no state, and is none.

// PLAIN: memopt.optimizer_step {{.*}}inputs = ["weight_decay"]

// What is made of numbers alone is made once for all parameters, in f64.

// LOWERED-COUNT-3: memopt.read @hyperparameter.
// LOWERED: math.powf {{.*}} : f64

// WRONG: --hyperparameters expects constants, inputs, host, found 'some'

func.func @train_step(%a: tensor<16x16xf32>, %b: tensor<16xf32>, %c: tensor<4xf32>) {
  memopt.gradient %a, @fc.weight : tensor<16x16xf32>
  memopt.gradient %b, @conv.bias : tensor<16xf32>
  memopt.gradient %c, @free : tensor<4xf32>
  return
}
