// Within a budget the calls of a device take less workspace: a product under a smaller cap, a convolution by another of
// cuDNN's plans. cuDNN is a fake (test/fake-cuda) whose plans need 1000 and 10 bytes.

// DEFINE: %{budget} = 40000000
// DEFINE: %{plan} = env CUDA_HOME=%fake_cuda memopt-opt %s -memopt-form-kernels -memopt-rematerialize=budget=%{budget} -memopt-plan-memory=budget=%{budget}
// RUN: %{plan} 2>&1 | FileCheck %s --check-prefix=ROOMY
// REDEFINE: %{budget} = 5000000
// RUN: %{plan} 2>&1 | FileCheck %s --check-prefix=CAP
// REDEFINE: %{budget} = 20000
// RUN: %{plan} 2>&1 | FileCheck %s --check-prefix=BARE
// REDEFINE: %{budget} = 17500
// RUN: %{plan} 2>&1 | FileCheck %s --check-prefix=PLAN

// ROOMY-NOT: remark
// ROOMY: implementation = "cudnn 9.26.0 engine50"{{.*}} workspace = 1024
// ROOMY: implementation = "cublaslt"{{.*}} workspace = 33554432

// CAP: 1 library calls in less workspace
// CAP: implementation = "cudnn 9.26.0 engine50"{{.*}} workspace = 1024
// CAP: implementation = "cublaslt"{{.*}} slowdown = 1.1{{[0-9.e+]*}} : f64, workspace = 4194304

// BARE: 1 library calls in less workspace
// BARE: implementation = "cudnn 9.26.0 engine50"{{.*}} workspace = 1024
// BARE: implementation = "cublaslt"{{.*}} slowdown = 1.21{{[0-9.e+]*}} : f64, workspace = 0

// PLAN: 2 library calls in less workspace
// PLAN: implementation = "cudnn 9.26.0 engine70"{{.*}} slowdown = 1.1{{[0-9.e+]*}} : f64, workspace = 64
// PLAN: implementation = "cublaslt"{{.*}} workspace = 0

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132, properties = {multiProcessorCount = 132}>} {
func.func @train_step(%x: tensor<2x8x8x16xf32>, %w: tensor<8x16x3x3xf32>, %v: tensor<8x8xf32>) -> tensor<128x8xf32> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>,
      dilations = array<i64: 1, 1>, groups = 1 : i64, layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x16xf32>, tensor<8x16x3x3xf32>) -> tensor<2x8x8x8xf32>
  %1 = tensor.collapse_shape %0 [[0, 1, 2], [3]] : tensor<2x8x8x8xf32> into tensor<128x8xf32>
  %2 = memopt.matmul %1, %v : (tensor<128x8xf32>, tensor<8x8xf32>) -> tensor<128x8xf32>
  return %2 : tensor<128x8xf32>
}
}
