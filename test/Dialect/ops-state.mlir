// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op and attribute of StateOps.td and MemoptDialect.td prints what it parsed.

// A parameter with two names in the state dict and values to start from.
// CHECK: memopt.variable @fc.weight : tensor<2x3xf32> role <parameter> {initial = dense<5.000000e-01> : tensor<2x3xf32>, names = ["fc.weight", "head.weight"], trainable}
memopt.variable @fc.weight : tensor<2x3xf32> role <parameter>
  {trainable, names = ["fc.weight", "head.weight"], initial = dense<0.5> : tensor<2x3xf32>}
// CHECK: memopt.variable @bn.running_var : tensor<3xf32> role <buffer> {init_value = 1.000000e+00 : f64}
memopt.variable @bn.running_var : tensor<3xf32> role <buffer> {init_value = 1.0 : f64}
// CHECK: memopt.variable @momentum : tensor<2x3xf32> role <optimizer_state> {of = @fc.weight, placement = #memopt.space<host>, slot = "momentum"}
memopt.variable @momentum : tensor<2x3xf32> role <optimizer_state>
  {of = @fc.weight, slot = "momentum", placement = #memopt.space<host>}
// CHECK: memopt.variable @kept : tensor<2xf32> role <gradient> {placement = #memopt.space<disk>, shard = #memopt.shard<ranks = 4, shape = [2, 3]>}
memopt.variable @kept : tensor<2xf32> role <gradient> {placement = #memopt.space<disk>, shard = #memopt.shard<ranks = 4, shape = [2, 3]>}
// CHECK: memopt.variable @lr : tensor<f64> role <hyperparameter>
memopt.variable @lr : tensor<f64> role <hyperparameter>
// The device is where variables are unless they say otherwise: it is not printed.
// CHECK: memopt.variable @step : tensor<i64> role <hyperparameter>{{$}}
memopt.variable @step : tensor<i64> role <hyperparameter> {placement = #memopt.space<device>}

// CHECK-LABEL: func.func @train_step
// CHECK-SAME: memopt.batch_dim = 0 : i64
// CHECK-SAME: memopt.name = "x"
func.func @train_step(%x: tensor<2x3xf32> {memopt.name = "x", memopt.batch_dim = 0 : i64}) {
  // CHECK: %[[W:.*]] = memopt.read @fc.weight : tensor<2x3xf32>
  %w = memopt.read @fc.weight : tensor<2x3xf32>
  // CHECK: memopt.gradient %[[W]], @fc.weight : tensor<2x3xf32>
  memopt.gradient %w, @fc.weight : tensor<2x3xf32>
  // CHECK: memopt.updated_where %{{.*}}, [@fc.weight] : tensor<f32>
  %count = arith.constant dense<1.0> : tensor<f32>
  memopt.updated_where %count, [@fc.weight] : tensor<f32>
  // CHECK: memopt.write %[[W]], @fc.weight {memopt.phase = #memopt.phase<optimizer>} : tensor<2x3xf32>
  memopt.write %w, @fc.weight {memopt.phase = #memopt.phase<optimizer>} : tensor<2x3xf32>
  return
}
