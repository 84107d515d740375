// RUN: memopt-opt %s --memopt-insert-optimizer="settings='lr=0.1 momentum=0.9 weight-decay=0.5 norm-decay-mult=0 bias-decay-mult=0.5 flat-decay-mult=0.5 param-group=fc.*,tied:lr=0.2 param-group=fc.bias:lr=7 param-group=conv.weight:weight-decay=2 param-group=free:optimizer=lion'" \
// RUN:   | FileCheck %s
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam param-group=fc.*:betas=0.8,0.95,eps=0.5,amsgrad=on param-group=free:maximize=on,lr=3'" \
// RUN:   | FileCheck %s --check-prefix=EACH
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=muon'" | FileCheck %s --check-prefix=MUON
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adagrad initial-accumulator-value=0.5 optim-bits=8 min-8bit-size=300'" \
// RUN:   | FileCheck %s --check-prefix=BITS8
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam optim-bits=16'" | FileCheck %s --check-prefix=BITS16
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adafactor'" | FileCheck %s --check-prefix=FACTOR
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam param-group=fc.bias:step-count=own'" | FileCheck %s --check-prefix=COUNT
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam step-count=each'" 2>&1 | FileCheck %s --check-prefix=COUNTS
// RUN: memopt-opt %s --memopt-insert-optimizer="settings='hyperparameters=host param-group=fc.*,nothing.*:lr=1'" | FileCheck %s --check-prefix=HOST
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='param-group=fc.*,nothing.*:lr=1'" 2>&1 | FileCheck %s --check-prefix=UNUSED
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optim-bits=8'" 2>&1 | FileCheck %s --check-prefix=STATELESS
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam-mini'" 2>&1 | FileCheck %s --check-prefix=HEADS

memopt.variable @fc.weight : tensor<16x16xf32> role <parameter> {trainable, names = ["fc.weight"]}
memopt.variable @fc.bias : tensor<16xf32> role <parameter> {trainable, names = ["fc.bias"]}
memopt.variable @norm.weight : tensor<16xf32> role <parameter> {trainable, module_class = "my.RMSNorm", names = ["norm.weight"]}
memopt.variable @norm.bias : tensor<16xf32> role <parameter> {trainable, module_class = "torch.nn.modules.linear.Linear", names = ["norm.bias"]}
memopt.variable @table : tensor<32x16xf32> role <parameter> {trainable, names = ["table", "tied"]}
memopt.variable @conv.weight : tensor<4x4x3x3xf32> role <parameter> {trainable, names = ["conv.weight"]}
memopt.variable @free : tensor<4xf32> role <parameter> {trainable, names = ["free"]}
memopt.variable @q_proj.weight : tensor<16x20xf32> role <parameter> {trainable, names = ["q_proj.weight"]}

// Groups with a rate of their own read a variable that starts from it, one for each rate. The first group that
// names a parameter wins, by any of its names. A group's weight decay is taken as it is; elsewhere norms, biases
// and vectors have theirs scaled.

// CHECK: memopt.variable @lr : tensor<f64> role <hyperparameter> {init_value = 1.000000e-01 : f64
// CHECK: memopt.variable @lr.1 : tensor<f64> role <hyperparameter> {init_value = 2.000000e-01 : f64
// CHECK: memopt.variable @optimizer.exp_avg.free {{.*}}slot = "exp_avg"
// CHECK-NOT: @lr.2
// CHECK: %[[LR:.*]] = memopt.read @lr {
// CHECK: %[[OWN:.*]] = memopt.read @lr.1
// CHECK: memopt.optimizer_step %{{.*}}, %arg0, %[[OWN]], {{.*}}weight_decay = 5.000000e-01
// CHECK: memopt.optimizer_step %{{.*}}, %arg1, %[[OWN]], {{.*}}weight_decay = 1.250000e-01
// CHECK: memopt.optimizer_step %{{.*}}, %arg2, %[[LR]], {{.*}}weight_decay = 0.000000e+00
// CHECK: memopt.optimizer_step %{{.*}}, %arg3, %[[LR]], {{.*}}weight_decay = 1.250000e-01
// CHECK: memopt.optimizer_step %{{.*}}, %arg4, %[[OWN]], {{.*}}weight_decay = 5.000000e-01
// CHECK: memopt.optimizer_step %{{.*}}, %arg5, %[[LR]], {{.*}}weight_decay = 2.000000e+00
// CHECK: memopt.optimizer_step %{{.*}}, %arg6, %[[LR]], {{.*}}optimizer = "lion"{{.*}}weight_decay = 2.500000e-01

// A group may have any option, pairs with their comma. What goes up the gradient takes it negated.

// EACH: @optimizer.max_exp_avg_sq.fc.weight
// EACH-NOT: @optimizer.max_exp_avg_sq.norm.weight
// EACH: memopt.optimizer_step %{{.*}}, %arg0, {{.*}}amsgrad = 1.000000e+00{{.*}}betas = array<f64: 8.000000e-01, 0.94999999999999996>{{.*}}eps = 5.000000e-01
// EACH: memopt.optimizer_step %{{.*}}, %arg2, {{.*}}amsgrad = 0.000000e+00{{.*}}eps = 1.000000e-08
// EACH: %[[UP:.*]] = arith.negf %arg6
// EACH: memopt.optimizer_step %{{.*}}, %[[UP]], {{.*}}maximize = 1.000000e+00

// Muon takes matrices that are no embeddings; the rest is AdamW's, with its own defaults.

// MUON: memopt.optimizer_step %{{.*}}, %arg0, {{.*}}optimizer = "muon"{{.*}}adjust_lr_fn = "original"{{.*}}nesterov = 1.000000e+00{{.*}}weight_decay = 1.000000e-01
// MUON: memopt.optimizer_step %{{.*}}, %arg1, {{.*}}optimizer = "adamw"{{.*}}eps = 1.000000e-08{{.*}}weight_decay = 1.000000e-02
// MUON: memopt.optimizer_step %{{.*}}, %arg4, {{.*}}optimizer = "adamw"
// MUON: memopt.optimizer_step %{{.*}}, %arg5, {{.*}}optimizer = "adamw"

// Codes of 8 bits have a scale for each block, the last one included. Small parameters and embeddings keep 32 bits.

// BITS8-DAG: @optimizer.sum.fc.weight : tensor<16x16xf32>
// BITS8-DAG: @optimizer.sum.table : tensor<32x16xf32>
// BITS8-DAG: @optimizer.sum.q_proj.weight : tensor<16x20xi8> role <optimizer_state> {init_value = 1.000000e+00 : f64
// BITS8-DAG: @optimizer.sum.scale.q_proj.weight : tensor<2xf32> role <optimizer_state> {init_value = 5.000000e-01 : f64

// BITS16: @optimizer.exp_avg.fc.weight : tensor<16x16xbf16>
// BITS16: @optimizer.exp_avg_sq.table : tensor<32x16xbf16>

// State may be smaller than the parameter.

// FACTOR-DAG: @optimizer.row_var.conv.weight : tensor<4x4x3x1xf32>
// FACTOR-DAG: @optimizer.col_var.conv.weight : tensor<4x4x1x3xf32>
// FACTOR-DAG: @optimizer.variance.fc.bias : tensor<16xf32>

// UNUSED: error: --param-group: no trainable parameter matches 'nothing.*'; of the 9 parameters the nearest are 'norm.bias', 
// STATELESS: error: --optim-bits: sgd keeps no state with these options
// HEADS: error: adam-mini needs --n-heads=N for 'q_proj.weight', which its name makes a query or key projection

func.func @train_step(%a: tensor<16x16xf32>, %b: tensor<16xf32>, %c: tensor<16xf32>, %d: tensor<16xf32>, %e: tensor<32x16xf32>,
                      %f: tensor<4x4x3x3xf32>, %g: tensor<4xf32>, %h: tensor<16x20xf32>, %ids: tensor<3xi64>) -> tensor<3x16xf32> {
  %table = memopt.read @table : tensor<32x16xf32>
  %rows = memopt.embedding %table, %ids : (tensor<32x16xf32>, tensor<3xi64>) -> tensor<3x16xf32>
  memopt.gradient %a, @fc.weight : tensor<16x16xf32>
  memopt.gradient %b, @fc.bias : tensor<16xf32>
  memopt.gradient %c, @norm.weight : tensor<16xf32>
  memopt.gradient %d, @norm.bias : tensor<16xf32>
  memopt.gradient %e, @table : tensor<32x16xf32>
  memopt.gradient %f, @conv.weight : tensor<4x4x3x3xf32>
  memopt.gradient %g, @free : tensor<4xf32>
  memopt.gradient %h, @q_proj.weight : tensor<16x20xf32>
  return %rows : tensor<3x16xf32>
}

// A count of its own is state of the parameter, and the number of its update.

// COUNT: memopt.variable @optimizer.step.fc.bias : tensor<i64> role <optimizer_state> {init_value = 0.000000e+00 : f64{{.*}}of = @fc.bias, slot = "step"
// COUNT-NOT: @optimizer.step.norm
// COUNT: %[[STEP:.*]] = memopt.read @step {
// COUNT: memopt.optimizer_step %{{.*}}, %arg0, %{{[^,]*}}, %[[STEP]],
// COUNT: %[[BEFORE:.*]] = memopt.read @optimizer.step.fc.bias
// COUNT: %[[NUMBER:.*]] = arith.addi %[[BEFORE]]
// COUNT: memopt.write %[[NUMBER]], @optimizer.step.fc.bias
// COUNT: memopt.optimizer_step %{{.*}}, %arg1, %{{[^,]*}}, %[[NUMBER]],
// COUNT: memopt.optimizer_step %{{.*}}, %arg2, %{{[^,]*}}, %[[STEP]],
// COUNTS: --step-count expects shared, own, found 'each'
// HOST: memopt.optimizer_step
