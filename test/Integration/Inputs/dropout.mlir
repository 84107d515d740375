// A linear layer with dropout, less its mean over features: what a batch draws depends on the number of each sample in
// it, and what a mean over features divides by does not depend on the batch.
memopt.variable @seed : tensor<i64> role <hyperparameter>
memopt.variable @step : tensor<i64> role <hyperparameter>
memopt.variable @w : tensor<6x4xf32> role <parameter> {trainable, names = ["w"],
  initial = dense<[[0.5, -1.0, 0.25, 1.5], [1.0, 0.75, -0.5, 0.125], [-0.25, 0.5, 1.0, -1.5],
                   [0.875, -0.375, 0.625, 1.125], [-0.5, 1.25, -0.75, 0.5], [0.125, -0.625, 1.75, -0.875]]> : tensor<6x4xf32>}
func.func @train_step(%x: tensor<8x3x6xf32> {memopt.name = "x", memopt.batch_dim = 0 : i64})
    -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %seed = memopt.read @seed : tensor<i64>
  %step = memopt.read @step : tensor<i64>
  %w = memopt.read @w : tensor<6x4xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<8x3x6xf32> into tensor<24x6xf32>
  %y = memopt.matmul %flat, %w : (tensor<24x6xf32>, tensor<6x4xf32>) -> tensor<24x4xf32>
  %back = tensor.expand_shape %y [[0, 1], [2]] output_shape [8, 3, 4] : tensor<24x4xf32> into tensor<8x3x4xf32>
  %mask = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<8x3x4xi1>
  %zero = arith.constant dense<0.0> : tensor<8x3x4xf32>
  %kept = arith.select %mask, %back, %zero : tensor<8x3x4xi1>, tensor<8x3x4xf32>
  %rows = memopt.reduce %kept {dimensions = array<i64: 2>, kind = #memopt.reduce<add>} : (tensor<8x3x4xf32>) -> tensor<8x3xf32>
  %features = memopt.count %kept {dimensions = array<i64: 2>} : (tensor<8x3x4xf32>) -> tensor<f32>
  %each = memopt.broadcast %features {dimensions = array<i64>} : (tensor<f32>) -> tensor<8x3xf32>
  %means = arith.divf %rows, %each : tensor<8x3xf32>
  %spread = memopt.broadcast %means {dimensions = array<i64: 0, 1>} : (tensor<8x3xf32>) -> tensor<8x3x4xf32>
  %distance = arith.subf %kept, %spread : tensor<8x3x4xf32>
  %squares = arith.mulf %distance, %distance : tensor<8x3x4xf32>
  %total = memopt.reduce %squares {dimensions = array<i64: 0, 1, 2>, kind = #memopt.reduce<add>} : (tensor<8x3x4xf32>) -> tensor<f32>
  %count = memopt.count %squares {dimensions = array<i64: 0, 1, 2>} : (tensor<8x3x4xf32>) -> tensor<f32>
  %loss = arith.divf %total, %count : tensor<f32>
  return %loss : tensor<f32>
}
