// cuDNN plans convolutions in a process of its own; here it is a fake (test/fake-cuda), whose plans need 1000 and 10
// bytes.

// RUN: env CUDA_HOME=%fake_cuda memopt-opt %s --memopt-form-kernels | FileCheck %s
// RUN: not env CUDA_HOME=%fake_cuda FAKE_CUDNN=abort memopt-opt %s --memopt-form-kernels 2>&1 | FileCheck %s --check-prefix=ABORT
// RUN: not env CUDA_HOME=%fake_cuda FAKE_CUDNN=none memopt-opt %s --memopt-form-kernels 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not env CUDA_HOME=%fake_cuda FAKE_CUDNN=90701 memopt-opt %s --memopt-form-kernels 2>&1 | FileCheck %s --check-prefix=OLD
// RUN: not env MEMOPT_WITHOUT_CUDA=1 memopt-opt %s --memopt-form-kernels 2>&1 | FileCheck %s --check-prefix=WITHOUT
// RUN: sed 's/, properties = {multiProcessorCount = 132}//' %s > %t.mlir
// RUN: not env CUDA_HOME=%fake_cuda memopt-opt %t.mlir --memopt-form-kernels 2>&1 | FileCheck %s --check-prefix=PROPERTIES

// The first plan that keeps within the device's cap, in whole pieces of 64 bytes.
// CHECK-LABEL: @f32
// CHECK: memopt.library_call #memopt.convolution<kind = forward{{.*}} bias = true, type = f32
// CHECK-SAME: implementation = "cudnn 9.26.0 engine50"
// CHECK-SAME: workspace = 1024

// cuDNN has no engine that adds a bias of f32 to narrow numbers: the call rounds, and a kernel widens and adds.
// CHECK-LABEL: @bf16
// CHECK: %[[Y:.*]] = memopt.library_call #memopt.convolution<kind = forward{{.*}} type = bf16, accumulator = f32>
// CHECK-SAME: -> tensor<2x8x8x4xbf16>
// CHECK: memopt.kernel
// CHECK: arith.extf
// CHECK: arith.addf

// ABORT: error: {{.*}}no library call can compute this on sm_90: memopt-cudnn, which asks cuDNN for plans, ended by signal 6 (Aborted)
// NONE: error: {{.*}}no library call can compute this on sm_90: cuDNN 9.26.0 has no deterministic engine for this call
// OLD: error: {{.*}}libcudnn.so.9: cuDNN is version 9.7.1, memopt needs 9.8.0 or newer
// WITHOUT: error: {{.*}}cuDNN, which plans it, is not found in $CUDA_HOME, the build's environment or /usr/local/cuda; tools/install.sh --with-cuda installs it
// PROPERTIES: error: {{.*}}the target has no properties of a device

#image = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d3)>
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132, properties = {multiProcessorCount = 132}>} {
func.func @f32(%x: tensor<2x8x8x3xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) -> tensor<2x8x8x4xf32> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>,
      dilations = array<i64: 1, 1>, groups = 1 : i64, layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x3xf32>, tensor<4x3x3x3xf32>) -> tensor<2x8x8x4xf32>
  %e = tensor.empty() : tensor<2x8x8x4xf32>
  %1 = linalg.generic {indexing_maps = [#image, #channel, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%0, %b : tensor<2x8x8x4xf32>, tensor<4xf32>) outs(%e : tensor<2x8x8x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<2x8x8x4xf32>
  return %1 : tensor<2x8x8x4xf32>
}

func.func @bf16(%x: tensor<2x8x8x3xbf16>, %w: tensor<4x3x3x3xbf16>, %b: tensor<4xf32>) -> tensor<2x8x8x4xf32> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>,
      dilations = array<i64: 1, 1>, groups = 1 : i64, layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x3xbf16>, tensor<4x3x3x3xbf16>) -> tensor<2x8x8x4xf32>
  %e = tensor.empty() : tensor<2x8x8x4xf32>
  %1 = linalg.generic {indexing_maps = [#image, #channel, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%0, %b : tensor<2x8x8x4xf32>, tensor<4xf32>) outs(%e : tensor<2x8x8x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<2x8x8x4xf32>
  return %1 : tensor<2x8x8x4xf32>
}
}
