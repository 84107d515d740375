// Samples behind time: an affine layer on rows of both, then a recurrence of two steps in which dropout draws for each.
memopt.variable @seed : tensor<i64> role <hyperparameter>
memopt.variable @step : tensor<i64> role <hyperparameter>
memopt.variable @w : tensor<6x4xf32> role <parameter> {trainable, names = ["w"],
  initial = dense<[[0.5, -1.0, 0.25, 1.5], [1.0, 0.75, -0.5, 0.125], [-0.25, 0.5, 1.0, -1.5],
                   [0.875, -0.375, 0.625, 1.125], [-0.5, 1.25, -0.75, 0.5], [0.125, -0.625, 1.75, -0.875]]> : tensor<6x4xf32>}
func.func @train_step(%x: tensor<3x8x6xf32> {memopt.name = "x", memopt.batch_dim = 1 : i64})
    -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %seed = memopt.read @seed : tensor<i64>
  %step = memopt.read @step : tensor<i64>
  %w = memopt.read @w : tensor<6x4xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<3x8x6xf32> into tensor<24x6xf32>
  %rows = memopt.matmul %flat, %w : (tensor<24x6xf32>, tensor<6x4xf32>) -> tensor<24x4xf32>
  %bent = math.tanh %rows : tensor<24x4xf32>
  %y = tensor.expand_shape %bent [[0, 1], [2]] output_shape [3, 8, 4] : tensor<24x4xf32> into tensor<3x8x4xf32>
  %mask = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<3x8x4xi1>
  %zero = arith.constant dense<0.0> : tensor<3x8x4xf32>
  %kept = arith.select %mask, %y, %zero : tensor<3x8x4xi1>, tensor<3x8x4xf32>
  %first = tensor.extract_slice %kept[0, 0, 0] [1, 8, 4] [1, 1, 1] : tensor<3x8x4xf32> to tensor<8x4xf32>
  %second = tensor.extract_slice %kept[2, 0, 0] [1, 8, 4] [1, 1, 1] : tensor<3x8x4xf32> to tensor<8x4xf32>
  %both = arith.mulf %first, %second : tensor<8x4xf32>
  %squares = arith.mulf %both, %both : tensor<8x4xf32>
  %total = memopt.reduce %squares {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<8x4xf32>) -> tensor<f32>
  %count = memopt.count %squares {dimensions = array<i64: 0, 1>} : (tensor<8x4xf32>) -> tensor<f32>
  %loss = arith.divf %total, %count : tensor<f32>
  return %loss : tensor<f32>
}
