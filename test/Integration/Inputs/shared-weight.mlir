// A weight that five steps share: its gradient is one product of the rows of all steps, samples of each behind those before.
memopt.variable @w : tensor<6x8xf32> role <parameter> {trainable, names = ["w"], initial = dense<0.25> : tensor<6x8xf32>}
memopt.variable @u : tensor<8x8xf32> role <parameter> {trainable, names = ["u"], initial = dense<[
  [0.5, -1.0, 0.25, 1.5, -0.5, 0.75, 0.125, -0.25], [1.0, 0.75, -0.5, 0.125, 0.25, -0.75, 0.5, 1.25],
  [-0.25, 0.5, 1.0, -1.5, 0.625, 0.125, -0.875, 0.75], [0.875, -0.375, 0.625, 1.125, -0.25, 0.5, 1.0, -1.0],
  [-0.5, 1.25, -0.75, 0.5, 0.375, -0.625, 0.25, 0.875], [0.125, -0.625, 1.75, -0.875, 0.5, 1.0, -0.5, 0.25],
  [0.75, 0.25, -1.25, 0.625, -0.125, 0.875, 1.0, -0.75], [-1.0, 0.5, 0.375, -0.25, 1.25, -0.5, 0.75, 0.625]]> : tensor<8x8xf32>}
func.func @train_step(%x: tensor<3x8x6xf32> {memopt.name = "x", memopt.batch_dim = 1 : i64})
    -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %w = memopt.read @w : tensor<6x8xf32>
  %u = memopt.read @u : tensor<8x8xf32>
  %x0 = tensor.extract_slice %x[0, 0, 0] [1, 8, 6] [1, 1, 1] : tensor<3x8x6xf32> to tensor<8x6xf32>
  %in = memopt.matmul %x0, %w : (tensor<8x6xf32>, tensor<6x8xf32>) -> tensor<8x8xf32>
  %h0 = math.tanh %in : tensor<8x8xf32>
  %p1 = memopt.matmul %h0, %u : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %h1 = math.tanh %p1 : tensor<8x8xf32>
  %p2 = memopt.matmul %h1, %u : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %h2 = math.tanh %p2 : tensor<8x8xf32>
  %p3 = memopt.matmul %h2, %u : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %h3 = math.tanh %p3 : tensor<8x8xf32>
  %p4 = memopt.matmul %h3, %u : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %h4 = math.tanh %p4 : tensor<8x8xf32>
  %p5 = memopt.matmul %h4, %u : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %squares = arith.mulf %p5, %p5 : tensor<8x8xf32>
  %total = memopt.reduce %squares {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<8x8xf32>) -> tensor<f32>
  %count = memopt.count %squares {dimensions = array<i64: 0, 1>} : (tensor<8x8xf32>) -> tensor<f32>
  %loss = arith.divf %total, %count : tensor<f32>
  return %loss : tensor<f32>
}
