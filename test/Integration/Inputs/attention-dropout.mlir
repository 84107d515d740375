// Attention that drops scores: which ones depends on the number of each sample in the whole step.
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
  %heads = tensor.expand_shape %y [[0, 1], [2, 3]] output_shape [8, 3, 2, 2] : tensor<24x4xf32> into tensor<8x3x2x2xf32>
  %q = memopt.transpose %heads {permutation = array<i64: 0, 2, 1, 3>} : (tensor<8x3x2x2xf32>) -> tensor<8x2x3x2xf32>
  %a, %lse = memopt.attention %q, %q, %q, %seed, %step {scale = 0.5 : f64, dropout = 0.4 : f64, id = 3 : i64,
    operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0>}
    : (tensor<8x2x3x2xf32>, tensor<8x2x3x2xf32>, tensor<8x2x3x2xf32>, tensor<i64>, tensor<i64>) -> (tensor<8x2x3x2xf32>, tensor<8x2x3xf32>)
  %squares = arith.mulf %a, %a : tensor<8x2x3x2xf32>
  %total = memopt.reduce %squares {dimensions = array<i64: 0, 1, 2, 3>, kind = #memopt.reduce<add>} : (tensor<8x2x3x2xf32>) -> tensor<f32>
  %count = memopt.count %squares {dimensions = array<i64: 0, 1, 2, 3>} : (tensor<8x2x3x2xf32>) -> tensor<f32>
  %loss = arith.divf %total, %count : tensor<f32>
  return %loss : tensor<f32>
}
