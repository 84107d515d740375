// cuBLASLt adds a bias of the result's type to sums that it rounds afterwards, so the bias of a product that is rounded to
// 16 bits right away is rounded, too, and the product stores no wide sums. Where something else reads the wide sum it stays
// one of f32, as it does on a processor.

// RUN: memopt-opt %s --split-input-file --memopt-form-kernels --memopt-verify-kernel-graph | FileCheck %s
// RUN: sed 's/memopt.target = [^}]*/test.none/' %s | memopt-opt --split-input-file --memopt-form-kernels | FileCheck %s --check-prefix=CPU
// RUN: not memopt-opt %S/Inputs/narrow-bias-of-wide-result.mlir 2>&1 | FileCheck %s --check-prefix=WIDE

#m = affine_map<(r, d) -> (r, d)>
#n = affine_map<(r, d) -> (d)>
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @rounded
// CHECK: %[[B:.*]] = memopt.kernel ({{.*}} : tensor<64xf32>) -> tensor<64xbf16>
// CHECK: %[[R:.*]] = memopt.library_call #memopt.matmul<m = 128, n = 64, k = 64, {{.*}} bias = true, {{.*}} narrow_bias = true>
// CHECK-SAME: (%{{.*}}, %{{.*}}, %[[B]]) {{.*}} -> tensor<128x64xbf16>
// CHECK: return %[[R]]
// CPU-LABEL: @rounded
// CPU: bias = true
// CPU-NOT: narrow_bias
func.func @rounded(%x: tensor<128x64xbf16>, %w: tensor<64x64xbf16>, %b: tensor<64xf32>) -> tensor<128x64xbf16> {
  %0 = memopt.matmul %x, %w : (tensor<128x64xbf16>, tensor<64x64xbf16>) -> tensor<128x64xf32>
  %e = tensor.empty() : tensor<128x64xf32>
  %1 = linalg.generic {indexing_maps = [#m, #n, #m], iterator_types = ["parallel", "parallel"]} ins(%0, %b : tensor<128x64xf32>, tensor<64xf32>) outs(%e : tensor<128x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<128x64xf32>
  %f = tensor.empty() : tensor<128x64xbf16>
  %2 = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<128x64xf32>) outs(%f : tensor<128x64xbf16>) {
  ^bb0(%p: f32, %o: bf16):
    %r = arith.truncf %p : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<128x64xbf16>
  return %2 : tensor<128x64xbf16>
}
}

// -----

#m = affine_map<(r, d) -> (r, d)>
#n = affine_map<(r, d) -> (d)>
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @wide
// CHECK: memopt.library_call
// CHECK-NOT: bias
// CHECK: memopt.kernel
func.func @wide(%x: tensor<128x64xbf16>, %w: tensor<64x64xbf16>, %b: tensor<64xf32>) -> tensor<128x64xf32> {
  %0 = memopt.matmul %x, %w : (tensor<128x64xbf16>, tensor<64x64xbf16>) -> tensor<128x64xf32>
  %e = tensor.empty() : tensor<128x64xf32>
  %1 = linalg.generic {indexing_maps = [#m, #n, #m], iterator_types = ["parallel", "parallel"]} ins(%0, %b : tensor<128x64xf32>, tensor<64xf32>) outs(%e : tensor<128x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<128x64xf32>
  return %1 : tensor<128x64xf32>
}
}

// WIDE: error: narrow_bias takes a bias, and a result of the operands' type
