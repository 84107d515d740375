// The model whose package and checkpoint each release keeps here: small, and with an optimizer's state.
memopt.variable @w : tensor<3xf32> role <parameter> {trainable, names = ["w"], initial = dense<[0.5, -1.0, 2.0]> : tensor<3xf32>}
func.func @train_step(%x: tensor<2x3xf32> {memopt.batch_dim = 0 : i64, memopt.name = "x"})
    -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %w = memopt.read @w : tensor<3xf32>
  %rows = memopt.broadcast %w {dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<2x3xf32>
  %y = arith.mulf %x, %rows : tensor<2x3xf32>
  %square = arith.mulf %y, %y : tensor<2x3xf32>
  %loss = memopt.reduce %square {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
