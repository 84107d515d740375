// RUN: memopt-opt %s --memopt-mixed-precision="type=bf16 master-weights=false" --memopt-autodiff --memopt-insert-optimizer="settings='optimizer=adam optim-bits=8 min-8bit-size=256'" | FileCheck %s

// A table stays a table where a cast stands between it and the ops that look it up: its state keeps 32 bits, that of the
// other parameter has 8.

memopt.variable @table : tensor<64x16xf32> role <parameter> {trainable}
memopt.variable @w : tensor<16x64xf32> role <parameter> {trainable}
// CHECK: memopt.variable @table : tensor<64x16xbf16>
// CHECK: memopt.variable @optimizer.exp_avg.table : tensor<64x16xf32>
// CHECK: memopt.variable @optimizer.exp_avg.w : tensor<16x64xi8>
// CHECK: memopt.variable @optimizer.exp_avg.scale.w : tensor<4xf32>

func.func @train_step(%indices: tensor<8xi64>) -> tensor<f32> {
  %0 = memopt.read @table : tensor<64x16xf32>
  %1 = memopt.read @w : tensor<16x64xf32>
  %2 = memopt.embedding %0, %indices : (tensor<64x16xf32>, tensor<8xi64>) -> tensor<8x16xf32>
  %3 = memopt.matmul %2, %1 : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
  %4 = memopt.reduce %3 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x64xf32>) -> tensor<f32>
  return %4 : tensor<f32>
}
