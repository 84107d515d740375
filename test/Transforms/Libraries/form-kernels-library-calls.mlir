// RUN: memopt-opt %s --split-input-file --memopt-form-kernels --memopt-verify-kernel-graph | FileCheck %s

#rows = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>

// x w^T + b is one call: the transposition is a stride, the bias an operand.

// CHECK-LABEL: @linear
// CHECK-SAME: %[[X:.*]]: tensor<32x784xf32>, %[[W:.*]]: tensor<64x784xf32>, %[[B:.*]]: tensor<64xf32>
// CHECK: %[[Y:.*]] = memopt.library_call #memopt.matmul<m = 32, n = 64, k = 784, a_strides = [784, 1], b_strides = [1, 784],
// CHECK-SAME: c_strides = [64, 1], bias = true, type = f32, accumulator = f32>
// CHECK-SAME: (%[[X]], %[[W]], %[[B]])
// CHECK-NEXT: return %[[Y]]
func.func @linear(%x: tensor<32x784xf32>, %w: tensor<64x784xf32>, %b: tensor<64xf32>) -> tensor<32x64xf32> {
  %t = memopt.transpose %w {permutation = array<i64: 1, 0>} : (tensor<64x784xf32>) -> tensor<784x64xf32>
  %0 = memopt.matmul %x, %t : (tensor<32x784xf32>, tensor<784x64xf32>) -> tensor<32x64xf32>
  %e = tensor.empty() : tensor<32x64xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #column, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<32x64xf32>, tensor<64xf32>) outs(%e : tensor<32x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<32x64xf32>
  return %1 : tensor<32x64xf32>
}

// -----

// Gradients that are denormal numbers count as zero, but what is computed again keeps its bits.

// CHECK-LABEL: @gradient
// CHECK: memopt.library_call {{.*}} {flush_denormals, {{.*}}phase = #memopt.phase<backward>
// CHECK-NOT: flush_denormals
func.func @gradient(%x: tensor<32x64xf32>, %w: tensor<64x64xf32>) -> (tensor<32x64xf32>, tensor<32x64xf32>) {
  %0 = memopt.matmul %x, %w {memopt.phase = #memopt.phase<backward>} : (tensor<32x64xf32>, tensor<64x64xf32>) -> tensor<32x64xf32>
  %1 = memopt.matmul %x, %w {memopt.phase = #memopt.phase<backward>, memopt.clone = 1 : i64, transpose_b} : (tensor<32x64xf32>, tensor<64x64xf32>) -> tensor<32x64xf32>
  return %0, %1 : tensor<32x64xf32>, tensor<32x64xf32>
}

// -----

// A slice of a fused projection begins at its own element of the same buffer.

// CHECK-LABEL: @slice
// CHECK: memopt.library_call {{.*}}a_strides = [24, 1], b_strides = [1, 24]
// CHECK-SAME: (%[[X:.*]], %[[X]])
// CHECK-SAME: operand_offsets = array<i64: 0, 8>
func.func @slice(%x: tensor<4x24xf32>) -> tensor<4x4xf32> {
  %q = tensor.extract_slice %x[0, 0] [4, 8] [1, 1] : tensor<4x24xf32> to tensor<4x8xf32>
  %k = tensor.extract_slice %x[0, 8] [4, 8] [1, 1] : tensor<4x24xf32> to tensor<4x8xf32>
  %0 = memopt.matmul %q, %k {transpose_b} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// The gradient of a transposed weight is made in the weight's own order.

// CHECK-LABEL: @transposed_result
// CHECK: %[[G:.*]] = memopt.library_call
// CHECK-SAME: c_strides = [1, 16]
// CHECK-SAME: -> tensor<8x16xf32>
// CHECK-NEXT: return %[[G]]
func.func @transposed_result(%x: tensor<4x16xf32>, %g: tensor<4x8xf32>) -> tensor<8x16xf32> {
  %0 = memopt.matmul %x, %g {transpose_a} : (tensor<4x16xf32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %1 = memopt.transpose %0 {permutation = array<i64: 1, 0>} : (tensor<16x8xf32>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}

// -----

// Heads are strides of the projections, and the result is stored by token.

// CHECK-LABEL: @attention
// CHECK: memopt.library_call
// CHECK-SAME: heads = 4, {{.*}}head_dim = 16
// CHECK-SAME: q_strides = [512, 16, 64, 1]
// CHECK-SAME: o_strides = [512, 16, 64, 1]
// CHECK-SAME: (tensor<2x8x64xf32>, tensor<2x8x64xf32>, tensor<2x8x64xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
func.func @attention(%q: tensor<2x8x64xf32>, %k: tensor<2x8x64xf32>, %v: tensor<2x8x64xf32>) -> tensor<2x8x64xf32> {
  %0 = tensor.expand_shape %q [[0], [1], [2, 3]] output_shape [2, 8, 4, 16] : tensor<2x8x64xf32> into tensor<2x8x4x16xf32>
  %1 = tensor.expand_shape %k [[0], [1], [2, 3]] output_shape [2, 8, 4, 16] : tensor<2x8x64xf32> into tensor<2x8x4x16xf32>
  %2 = tensor.expand_shape %v [[0], [1], [2, 3]] output_shape [2, 8, 4, 16] : tensor<2x8x64xf32> into tensor<2x8x4x16xf32>
  %3 = memopt.transpose %0 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x8x4x16xf32>) -> tensor<2x4x8x16xf32>
  %4 = memopt.transpose %1 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x8x4x16xf32>) -> tensor<2x4x8x16xf32>
  %5 = memopt.transpose %2 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x8x4x16xf32>) -> tensor<2x4x8x16xf32>
  %6, %7 = memopt.attention %3, %4, %5 {scale = 0.25 : f64, causal, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
  %8 = memopt.transpose %6 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x8x16xf32>) -> tensor<2x8x4x16xf32>
  %9 = tensor.collapse_shape %8 [[0], [1], [2, 3]] : tensor<2x8x4x16xf32> into tensor<2x8x64xf32>
  return %9 : tensor<2x8x64xf32>
}

// -----

// Samples within tokens: a reshape joins rows that do not continue each other, and the next one takes
// them apart again. Heads are strides of the projection.

// CHECK-LABEL: @tokens_first
// CHECK: memopt.library_call
// CHECK-SAME: q_strides = [192, 16, 384, 1], k_strides = [192, 16, 384, 1], v_strides = [192, 16, 384, 1]
// CHECK-SAME: operand_offsets = array<i64: 64, 0, 128>
// CHECK-SAME: (tensor<16x192xf32>, tensor<16x192xf32>, tensor<16x192xf32>)
func.func @tokens_first(%x: tensor<16x192xf32>) -> tensor<2x4x8x16xf32> {
  %0 = tensor.expand_shape %x [[0, 1], [2, 3]] output_shape [8, 2, 3, 64] : tensor<16x192xf32> into tensor<8x2x3x64xf32>
  %1 = memopt.transpose %0 {permutation = array<i64: 2, 0, 1, 3>} : (tensor<8x2x3x64xf32>) -> tensor<3x8x2x64xf32>
  %k0 = tensor.extract_slice %1[0, 0, 0, 0] [1, 8, 2, 64] [1, 1, 1, 1] : tensor<3x8x2x64xf32> to tensor<1x8x2x64xf32>
  %q0 = tensor.extract_slice %1[1, 0, 0, 0] [1, 8, 2, 64] [1, 1, 1, 1] : tensor<3x8x2x64xf32> to tensor<1x8x2x64xf32>
  %v0 = tensor.extract_slice %1[2, 0, 0, 0] [1, 8, 2, 64] [1, 1, 1, 1] : tensor<3x8x2x64xf32> to tensor<1x8x2x64xf32>
  %k1 = tensor.collapse_shape %k0 [[0, 1], [2, 3]] : tensor<1x8x2x64xf32> into tensor<8x128xf32>
  %q1 = tensor.collapse_shape %q0 [[0, 1], [2, 3]] : tensor<1x8x2x64xf32> into tensor<8x128xf32>
  %v1 = tensor.collapse_shape %v0 [[0, 1], [2, 3]] : tensor<1x8x2x64xf32> into tensor<8x128xf32>
  %k2 = tensor.expand_shape %k1 [[0], [1, 2]] output_shape [8, 8, 16] : tensor<8x128xf32> into tensor<8x8x16xf32>
  %q2 = tensor.expand_shape %q1 [[0], [1, 2]] output_shape [8, 8, 16] : tensor<8x128xf32> into tensor<8x8x16xf32>
  %v2 = tensor.expand_shape %v1 [[0], [1, 2]] output_shape [8, 8, 16] : tensor<8x128xf32> into tensor<8x8x16xf32>
  %k3 = memopt.transpose %k2 {permutation = array<i64: 1, 0, 2>} : (tensor<8x8x16xf32>) -> tensor<8x8x16xf32>
  %q3 = memopt.transpose %q2 {permutation = array<i64: 1, 0, 2>} : (tensor<8x8x16xf32>) -> tensor<8x8x16xf32>
  %v3 = memopt.transpose %v2 {permutation = array<i64: 1, 0, 2>} : (tensor<8x8x16xf32>) -> tensor<8x8x16xf32>
  %k = tensor.expand_shape %k3 [[0, 1], [2], [3]] output_shape [2, 4, 8, 16] : tensor<8x8x16xf32> into tensor<2x4x8x16xf32>
  %q = tensor.expand_shape %q3 [[0, 1], [2], [3]] output_shape [2, 4, 8, 16] : tensor<8x8x16xf32> into tensor<2x4x8x16xf32>
  %v = tensor.expand_shape %v3 [[0, 1], [2], [3]] output_shape [2, 4, 8, 16] : tensor<8x8x16xf32> into tensor<2x4x8x16xf32>
  %o, %l = memopt.attention %q, %k, %v {scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
  return %o : tensor<2x4x8x16xf32>
}

// -----

// Rows that nobody takes apart again are stored together first.

// CHECK-LABEL: @joined_rows
// CHECK: %[[ROWS:.*]] = memopt.kernel
// CHECK-NEXT: tensor.extract_slice
// CHECK: memopt.library_call {{.*}}a_strides = [128, 1], {{.*}} (%[[ROWS]], %{{.*}})
func.func @joined_rows(%x: tensor<8x2x192xf32>, %w: tensor<128x4xf32>) -> tensor<8x4xf32> {
  %0 = tensor.extract_slice %x[0, 0, 64] [8, 2, 64] [1, 1, 1] : tensor<8x2x192xf32> to tensor<8x2x64xf32>
  %1 = tensor.collapse_shape %0 [[0], [1, 2]] : tensor<8x2x64xf32> into tensor<8x128xf32>
  %2 = memopt.matmul %1, %w : (tensor<8x128xf32>, tensor<128x4xf32>) -> tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// -----

// The gradient of a trained mask is stored packed and summed over what shares the mask.

// CHECK-LABEL: @trained_mask
// CHECK: memopt.library_call {{.*}}kind = backward{{.*}}mask_type = f32, mask_strides = [0, 64, 8, 0], dmask_strides = [0, 8, 1, 0]
// CHECK-SAME: -> ({{.*}}, tensor<1x4x8x1xf32>)
func.func @trained_mask(%x: tensor<2x4x8x16xf32>, %l: tensor<2x4x8xf32>, %wide: tensor<1x4x8x8xf32>) -> tensor<1x4x8x1xf32> {
  %m = tensor.extract_slice %wide[0, 0, 0, 0] [1, 4, 8, 1] [1, 1, 1, 1] : tensor<1x4x8x8xf32> to tensor<1x4x8x1xf32>
  %0:4 = memopt.attention_backward %x, %x, %x, %m, %x, %l, %x
    {scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 1, 1, 1>}
    : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<1x4x8x1xf32>, tensor<2x4x8x16xf32>,
       tensor<2x4x8xf32>, tensor<2x4x8x16xf32>)
    -> (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<1x4x8x1xf32>)
  return %0#3 : tensor<1x4x8x1xf32>
}

// -----

// Convolutions want packed operands: a padded input is stored first.

// CHECK-LABEL: @convolution
// CHECK: %[[P:.*]] = memopt.kernel
// CHECK: memopt.pad
// CHECK: memopt.library_call {{.*}}kind = forward, layout = channels_first{{.*}} (%[[P]], %{{.*}})
func.func @convolution(%x: tensor<1x3x4x4xf32>, %w: tensor<8x3x3x3xf32>) -> tensor<1x8x4x4xf32> {
  %0 = memopt.pad %x {low = array<i64: 0, 0, 1, 1>, high = array<i64: 0, 0, 1, 1>} : (tensor<1x3x4x4xf32>) -> tensor<1x3x6x6xf32>
  %1 = memopt.convolution %0, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>,
    dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x6x6xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x4x4xf32>
  return %1 : tensor<1x8x4x4xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>

// A product that is added to a variable, as gradients of micro-batches are, is added by the call, and no buffer holds it.

// CHECK-LABEL: @accumulates
// CHECK-SAME: %[[X:.*]]: tensor<4x16xf32>, %[[G:.*]]: tensor<4x8xf32>
// CHECK-NEXT: %[[OLD:.*]] = memopt.read @sum : tensor<16x8xf32>
// CHECK-NEXT: %[[NEW:.*]] = memopt.library_call #memopt.matmul<m = 16, n = 8, k = 4, a_strides = [1, 16], b_strides = [8, 1],
// CHECK-SAME: c_strides = [8, 1], accumulate = true, type = f32, accumulator = f32> (%[[X]], %[[G]], %[[OLD]])
// CHECK-SAME: operand_offsets = array<i64: 0, 0, 0>
// CHECK-NEXT: memopt.write %[[NEW]], @sum
// CHECK-NEXT: return
memopt.variable @sum : tensor<16x8xf32> role <gradient>
func.func @accumulates(%x: tensor<4x16xf32>, %g: tensor<4x8xf32>) {
  %0 = memopt.matmul %x, %g {transpose_a} : (tensor<4x16xf32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %old = memopt.read @sum : tensor<16x8xf32>
  %e = tensor.empty() : tensor<16x8xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%old, %0 : tensor<16x8xf32>, tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<16x8xf32>
  memopt.write %1, @sum : tensor<16x8xf32>
  return
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>

// In the order of the sum, where the product has another.

// CHECK-LABEL: @accumulates_transposed
// CHECK: memopt.library_call #memopt.matmul<m = 16, n = 8, k = 4, {{.*}} c_strides = [1, 16], accumulate = true
// CHECK-SAME: -> tensor<8x16xf32>
memopt.variable @sum : tensor<8x16xf32> role <gradient>
func.func @accumulates_transposed(%x: tensor<4x16xf32>, %g: tensor<4x8xf32>) {
  %0 = memopt.matmul %x, %g {transpose_a} : (tensor<4x16xf32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %old = memopt.read @sum : tensor<8x16xf32>
  %e = tensor.empty() : tensor<8x16xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #turned, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%old, %0 : tensor<8x16xf32>, tensor<16x8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<8x16xf32>
  memopt.write %1, @sum : tensor<8x16xf32>
  return
}

// -----

#taps = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>

// A gradient of filters, too; on a device kernels add it, for cuDNN has no such call.

// CHECK-LABEL: @accumulates_filters
// CHECK: %[[OLD:.*]] = memopt.read @sum
// CHECK-NEXT: %[[NEW:.*]] = memopt.library_call #memopt.convolution<kind = backward_weights, {{.*}}accumulate = true
// CHECK-SAME: (%{{.*}}, %{{.*}}, %[[OLD]])
// CHECK-NEXT: memopt.write %[[NEW]], @sum
memopt.variable @sum : tensor<8x3x3x3xf32> role <gradient>
func.func @accumulates_filters(%x: tensor<1x6x6x3xf32>, %g: tensor<1x4x4x8xf32>) {
  %0 = memopt.convolution_backward_weights %x, %g {layout = #memopt.layout<channels_last>, strides = array<i64: 1, 1>,
    padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<1x6x6x3xf32>, tensor<1x4x4x8xf32>) -> tensor<8x3x3x3xf32>
  %old = memopt.read @sum : tensor<8x3x3x3xf32>
  %e = tensor.empty() : tensor<8x3x3x3xf32>
  %1 = linalg.generic {indexing_maps = [#taps, #taps, #taps], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%old, %0 : tensor<8x3x3x3xf32>, tensor<8x3x3x3xf32>) outs(%e : tensor<8x3x3x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<8x3x3x3xf32>
  memopt.write %1, @sum : tensor<8x3x3x3xf32>
  return
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>

// Not where something else is written to the variable: what was read would have to be copied first.

// CHECK-LABEL: @sum_goes_elsewhere
// CHECK-NOT: accumulate = true
memopt.variable @sum : tensor<16x8xf32> role <gradient>
func.func @sum_goes_elsewhere(%x: tensor<4x16xf32>, %g: tensor<4x8xf32>) -> tensor<16x8xf32> {
  %0 = memopt.matmul %x, %g {transpose_a} : (tensor<4x16xf32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %old = memopt.read @sum : tensor<16x8xf32>
  %e = tensor.empty() : tensor<16x8xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%old, %0 : tensor<16x8xf32>, tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<16x8xf32>
  return %1 : tensor<16x8xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>

// Nor where the product is needed besides.

// CHECK-LABEL: @product_is_used
// CHECK-NOT: accumulate = true
memopt.variable @sum : tensor<16x8xf32> role <gradient>
func.func @product_is_used(%x: tensor<4x16xf32>, %g: tensor<4x8xf32>) -> tensor<16x8xf32> {
  %0 = memopt.matmul %x, %g {transpose_a} : (tensor<4x16xf32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %old = memopt.read @sum : tensor<16x8xf32>
  %e = tensor.empty() : tensor<16x8xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%old, %0 : tensor<16x8xf32>, tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<16x8xf32>
  memopt.write %1, @sum : tensor<16x8xf32>
  return %0 : tensor<16x8xf32>
}

// -----

// A bias is read, and its codes are widened, behind the product: both move in front of it.

#rows = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#vector = affine_map<(d0) -> (d0)>

memopt.variable @b : tensor<8xbf16> role <parameter>

// CHECK-LABEL: @bias_behind
// CHECK: %[[CODES:.*]] = memopt.read @b
// CHECK: %[[BIAS:.*]] = memopt.kernel (%{{.*}} = %[[CODES]] : tensor<8xbf16>) -> tensor<8xf32>
// CHECK: memopt.library_call {{.*}}bias = true{{.*}} (%{{.*}}, %{{.*}}, %[[BIAS]])
func.func @bias_behind(%x: tensor<4x16xf32>, %w: tensor<16x8xf32>) -> tensor<4x8xf32> {
  %0 = memopt.matmul %x, %w : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %b = memopt.read @b : tensor<8xbf16>
  %n = tensor.empty() : tensor<8xf32>
  %wide = linalg.generic {indexing_maps = [#vector, #vector], iterator_types = ["parallel"]}
      ins(%b : tensor<8xbf16>) outs(%n : tensor<8xf32>) {
  ^bb0(%p: bf16, %o: f32):
    %s = arith.extf %p : bf16 to f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #column, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%0, %wide : tensor<4x8xf32>, tensor<8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// A bias that is cut out of what ranks have gathered behind the product is an operand, too: some convolutions begin
// their sums with it, so a step that adds it later has other bits.

#rows = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: @bias_cut_behind
// CHECK-SAME: %[[X:.*]]: tensor<4x16xf32>, %[[ALL:.*]]: tensor<160xf32>
// CHECK: %[[BIAS:.*]] = memopt.kernel ({{.*}} = %[[ALL]] : tensor<160xf32>) -> tensor<8xf32>
// CHECK: memopt.library_call {{.*}}bias = true{{.*}} (%[[X]], %[[ALL]], %[[BIAS]])
func.func @bias_cut_behind(%x: tensor<4x16xf32>, %all: tensor<160xf32>) -> tensor<4x8xf32> {
  %part = tensor.extract_slice %all[0] [128] [1] : tensor<160xf32> to tensor<128xf32>
  %w = tensor.expand_shape %part [[0, 1]] output_shape [16, 8] : tensor<128xf32> into tensor<16x8xf32>
  %0 = memopt.matmul %x, %w : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %b = tensor.extract_slice %all[144] [8] [1] : tensor<160xf32> to tensor<8xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #column, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<4x8xf32>, tensor<8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// What is written behind the product, and read then, stays where it is.

#rows = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>

memopt.variable @b : tensor<8xf32> role <buffer>

// CHECK-LABEL: @bias_written
// CHECK-NOT: bias = true
func.func @bias_written(%x: tensor<4x16xf32>, %w: tensor<16x8xf32>, %new: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = memopt.matmul %x, %w : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  memopt.write %new, @b : tensor<8xf32>
  %b = memopt.read @b : tensor<8xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #column, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<4x8xf32>, tensor<8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
