// A bias of 16 bits under a result of f32, which cuBLASLt does not add.
func.func @f(%x: tensor<4x8xbf16>, %w: tensor<8x4xbf16>, %b: tensor<4xbf16>) -> tensor<4x4xf32> {
  %0 = memopt.library_call #memopt.matmul<m = 4, n = 4, k = 8, a_strides = [8, 1], b_strides = [4, 1], c_strides = [4, 1],
      bias = true, type = bf16, accumulator = f32, result_type = f32, narrow_bias = true> (%x, %w, %b)
      {operand_offsets = array<i64: 0, 0, 0>, workspace = 0 : i64} : (tensor<4x8xbf16>, tensor<8x4xbf16>, tensor<4xbf16>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
