// RUN: memopt-opt %s --memopt-split-batch="ranks=2 sync-batch-norm" | FileCheck %s

// Over ranks a norm that no pass has heard of builds its own statistics of all samples, which then move a buffer.

memopt.variable @s : tensor<4xf32> role <parameter> {trainable, names = ["s"]}
memopt.variable @peak : tensor<f32> role <buffer> {names = ["peak"]}

// CHECK-LABEL: func.func @train_step
// CHECK: %{{.*}}, %[[OWN:.*]] = test.peak_norm
// CHECK: %[[ALL:.*]] = memopt.collective <all_reduce> %[[OWN]] over 2
// CHECK: memopt.write %[[ALL]], @peak
func.func @train_step(%x: tensor<2x4xf32>) -> (tensor<f32> {memopt.role = "loss"}) {
  %s = memopt.read @s : tensor<4xf32>
  %n, %peak = test.peak_norm %x, %s : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<f32>)
  %loss = memopt.reduce %n {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  memopt.write %peak, @peak : tensor<f32>
  return %loss : tensor<f32>
}
