// RUN: memopt-compile %s -o %t.memopt --explain --report=%t.json 2>&1 | FileCheck %s
// RUN: FileCheck %s --input-file=%t.json --check-prefix=REPORT

// What dropout between two layers drops is kept for the backward pass in 128 x 64 bits, and the plan says so.
// CHECK: Masks that are kept as bits for the backward pass: 1, in 1024 bytes.
// REPORT: "packed_mask_bytes": 1024,
// REPORT-NEXT: "packed_masks": 1,

memopt.variable @seed : tensor<i64> role <hyperparameter>
memopt.variable @step : tensor<i64> role <hyperparameter>
memopt.variable @first : tensor<32x64xf32> role <parameter> {trainable, names = ["first"], init_value = 0.5 : f64}
memopt.variable @second : tensor<64x8xf32> role <parameter> {trainable, names = ["second"], init_value = 0.5 : f64}
func.func @train_step(%x: tensor<128x32xf32> {memopt.name = "x", memopt.batch_dim = 0 : i64})
    -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %seed = memopt.read @seed : tensor<i64>
  %step = memopt.read @step : tensor<i64>
  %first = memopt.read @first : tensor<32x64xf32>
  %second = memopt.read @second : tensor<64x8xf32>
  %y = memopt.matmul %x, %first : (tensor<128x32xf32>, tensor<32x64xf32>) -> tensor<128x64xf32>
  %mask = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<128x64xi1>
  %zero = arith.constant dense<0.0> : tensor<128x64xf32>
  %kept = arith.select %mask, %y, %zero : tensor<128x64xi1>, tensor<128x64xf32>
  %z = memopt.matmul %kept, %second : (tensor<128x64xf32>, tensor<64x8xf32>) -> tensor<128x8xf32>
  %squares = arith.mulf %z, %z : tensor<128x8xf32>
  %total = memopt.reduce %squares {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<128x8xf32>) -> tensor<f32>
  %count = memopt.count %squares {dimensions = array<i64: 0, 1>} : (tensor<128x8xf32>) -> tensor<f32>
  %loss = arith.divf %total, %count : tensor<f32>
  return %loss : tensor<f32>
}
