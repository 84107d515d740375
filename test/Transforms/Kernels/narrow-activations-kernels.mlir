// RUN: memopt-opt %s --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=bf16},memopt-form-kernels))' 2>/dev/null | FileCheck %s

// A product, read in another shape by both passes, waits in that shape: so one kernel makes what the forward pass reads of
// it and rounds it, though ops that are computed in passing lie between, and kernels of the backward pass read what has
// been rounded.

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @reshaped
// CHECK: %[[Y:.*]] = memopt.library_call
// CHECK: memopt.kernel (%{{.*}} = %[[Y]] : tensor<256x64xf32>) -> (tensor<4x64x64xbf16>, tensor<4x64x64xf32>)
// CHECK-NOT: memopt.kernel
// CHECK: memopt.library_call
// CHECK-NOT: memopt.library_call
// CHECK: memopt.kernel (%{{.*}} : tensor<4x64x64xbf16>) -> (tensor<4x64x64xf32>, tensor<4x64x64xf32>)
// CHECK-NOT: memopt.narrowed
func.func @reshaped(%x: tensor<256x64xf32>, %w: tensor<64x64xf32>) -> (tensor<256x64xf32>, tensor<4x64x64xf32>, tensor<4x64x64xf32>) {
  %y = memopt.matmul %x, %w : (tensor<256x64xf32>, tensor<64x64xf32>) -> tensor<256x64xf32>
  %r = tensor.expand_shape %y [[0, 1], [2]] output_shape [4, 64, 64] : tensor<256x64xf32> into tensor<4x64x64xf32>
  %e = tensor.empty() : tensor<4x64x64xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%r : tensor<4x64x64xf32>) outs(%e : tensor<4x64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    linalg.yield %0 : f32
  } -> tensor<4x64x64xf32>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<4x64x64xf32>) outs(%e : tensor<4x64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.tanh %in : f32
    linalg.yield %0 : f32
  } -> tensor<4x64x64xf32>
  %flat = tensor.collapse_shape %t [[0, 1], [2]] : tensor<4x64x64xf32> into tensor<256x64xf32>
  %z = memopt.matmul %flat, %w : (tensor<256x64xf32>, tensor<64x64xf32>) -> tensor<256x64xf32>
  %rb = tensor.expand_shape %y [[0, 1], [2]] output_shape [4, 64, 64] {memopt.phase = #memopt.phase<backward>} : tensor<256x64xf32> into tensor<4x64x64xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%rb : tensor<4x64x64xf32>) outs(%e : tensor<4x64x64xf32>) attrs = {memopt.phase = #memopt.phase<backward>} {
  ^bb0(%in: f32, %out: f32):
    %0 = math.sin %in : f32
    linalg.yield %0 : f32
  } -> tensor<4x64x64xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%rb : tensor<4x64x64xf32>) outs(%e : tensor<4x64x64xf32>) attrs = {memopt.phase = #memopt.phase<backward>} {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<4x64x64xf32>
  return %z, %b, %c : tensor<256x64xf32>, tensor<4x64x64xf32>, tensor<4x64x64xf32>
}
