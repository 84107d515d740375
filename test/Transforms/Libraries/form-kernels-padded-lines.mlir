// Products of 16 bits on a device: lines of 70 elements begin at multiples of 8 of them, in what the product stores and in
// what a kernel stores for one. The processor's stay as they are, and so does what is small, or leaves the step.

// RUN: memopt-opt %s --split-input-file --memopt-form-kernels --memopt-verify-kernel-graph | FileCheck %s
// RUN: sed 's/memopt.target = [^}]*/test.none/' %s | memopt-opt --split-input-file --memopt-form-kernels | FileCheck %s --check-prefix=CPU

#m = affine_map<(r, d) -> (r, d)>
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @between
// CHECK: %[[P:.*]] = memopt.library_call #memopt.matmul<m = 128, n = 70, k = 64,
// CHECK-SAME: c_strides = [72, 1]
// CHECK-SAME: -> tensor<128x72xbf16>
// CHECK: %[[Q:.*]] = memopt.kernel ({{.*}} = %[[P]] : tensor<128x72xbf16>) -> tensor<128x72xbf16>
// CHECK: memopt.library_call #memopt.matmul<m = 128, n = 64, k = 70, a_strides = [72, 1], b_strides = [64, 1], c_strides = [64, 1]
// CHECK-SAME: (%[[Q]], %{{.*}})
// CPU-LABEL: @between
// CPU: c_strides = [70, 1]
// CPU: a_strides = [70, 1]
func.func @between(%x: tensor<128x64xbf16>, %w: tensor<64x70xbf16>, %v: tensor<70x64xbf16>) -> tensor<128x64xbf16> {
  %0 = memopt.matmul %x, %w : (tensor<128x64xbf16>, tensor<64x70xbf16>) -> tensor<128x70xbf16>
  %e = tensor.empty() : tensor<128x70xbf16>
  %1 = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x70xbf16>) outs(%e : tensor<128x70xbf16>) {
  ^bb0(%p: bf16, %o: bf16):
    %f = arith.extf %p : bf16 to f32
    %q = arith.mulf %f, %f : f32
    %r = arith.truncf %q : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<128x70xbf16>
  %2 = memopt.matmul %1, %v : (tensor<128x70xbf16>, tensor<70x64xbf16>) -> tensor<128x64xbf16>
  return %2 : tensor<128x64xbf16>
}

}

// -----

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @outside
// CHECK: c_strides = [70, 1]
func.func @outside(%x: tensor<128x64xbf16>, %w: tensor<64x70xbf16>) -> tensor<128x70xbf16> {
  %0 = memopt.matmul %x, %w : (tensor<128x64xbf16>, tensor<64x70xbf16>) -> tensor<128x70xbf16>
  return %0 : tensor<128x70xbf16>
}
}

// -----

// The gradient of a table of 70 rows, tile by tile: rows behind the last are sums of the zeros behind the tile's columns,
// and the sum goes on with them. The kernel that stores a tile stores its zeros, too.
#m = affine_map<(r, d) -> (r, d)>
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @rows
// CHECK: %[[A:.*]] = memopt.kernel ({{.*}}) -> tensor<128x72xbf16>
// CHECK: %[[S:.*]] = memopt.library_call #memopt.matmul<m = 72, n = 64, k = 128, a_strides = [1, 72], b_strides = [64, 1], c_strides = [64, 1]
// CHECK-SAME: (%[[A]], %{{.*}}) {{.*}} -> tensor<72x64xf32>
// CHECK: %[[B:.*]] = memopt.kernel ({{.*}}) -> tensor<128x72xbf16>
// CHECK: %[[T:.*]] = memopt.library_call #memopt.matmul<m = 72, n = 64, k = 128, {{.*}} accumulate = true
// CHECK-SAME: (%[[B]], %{{.*}}, %[[S]]) {{.*}} -> tensor<72x64xf32>
// CHECK: memopt.kernel ({{.*}} = %[[T]] : tensor<72x64xf32>) -> tensor<70x64xf32>
// CPU-LABEL: @rows
// CPU-COUNT-2: m = 70
func.func @rows(%x: tensor<128x70xf32>, %y: tensor<128x70xf32>, %v: tensor<128x64xbf16>, %w: tensor<128x64xbf16>) -> tensor<70x64xf32> {
  %e = tensor.empty() : tensor<128x70xbf16>
  %0 = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x70xf32>) outs(%e : tensor<128x70xbf16>) attrs = {memopt.tile = 0 : i64} {
  ^bb0(%p: f32, %o: bf16):
    %r = arith.truncf %p : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<128x70xbf16>
  %1 = memopt.matmul %0, %v {transpose_a, memopt.tile = 0 : i64} : (tensor<128x70xbf16>, tensor<128x64xbf16>) -> tensor<70x64xf32>
  %2 = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<128x70xf32>) outs(%e : tensor<128x70xbf16>) attrs = {memopt.tile = 1 : i64} {
  ^bb0(%p: f32, %o: bf16):
    %r = arith.truncf %p : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<128x70xbf16>
  %3 = memopt.matmul %2, %w {transpose_a, memopt.tile = 1 : i64} : (tensor<128x70xbf16>, tensor<128x64xbf16>) -> tensor<70x64xf32>
  %g = tensor.empty() : tensor<70x64xf32>
  %4 = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel", "parallel"]} ins(%1, %3 : tensor<70x64xf32>, tensor<70x64xf32>) outs(%g : tensor<70x64xf32>) attrs = {memopt.tile = 1 : i64} {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<70x64xf32>
  %5 = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%4 : tensor<70x64xf32>) outs(%g : tensor<70x64xf32>) attrs = {memopt.tile = -1 : i64} {
  ^bb0(%p: f32, %o: f32):
    %r = arith.mulf %p, %p : f32
    linalg.yield %r : f32
  } -> tensor<70x64xf32>
  return %5 : tensor<70x64xf32>
}
}
