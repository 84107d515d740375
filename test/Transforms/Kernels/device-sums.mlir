// RUN: memopt-opt %s -memopt-lower-to-linalg -memopt-form-kernels | FileCheck %s

// Sums by columns on a device: as many parts as fill it, whose sums are taken in stages, each in a kernel of its own
// where few threads would be left to read what many have made.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {

// 64 columns are 16 threads: 64 images x 112 lines, then 64 parts of 112, then one. Whole lines, and not parts of them,
// share the kernel with what is computed of their points.
// CHECK-LABEL: @few_channels
// CHECK: memopt.kernel {{.*}}tensor<64x112x112x64xf32>) -> (tensor<64x112x64xf32>, tensor<64x112x64xf32>) {
// CHECK: memopt.kernel {{.*}} -> (tensor<64x64xf32>, tensor<64x64xf32>) {
// CHECK: memopt.kernel {{.*}} -> tensor<64x64xf32> {
// CHECK: memopt.kernel {{.*}} -> (tensor<64xf32>, tensor<64xf32>) {
// CHECK: memopt.kernel {{.*}} -> tensor<64x112x112x64xf32>
func.func @few_channels(%x: tensor<64x112x112x64xf32>) -> tensor<64x112x112x64xf32> {
  %y, %m, %v = memopt.batch_norm %x {eps = 1.0e-05 : f64, axis = 3 : i64, operandSegmentSizes = array<i32: 1, 0, 0>}
      : (tensor<64x112x112x64xf32>) -> (tensor<64x112x112x64xf32>, tensor<64xf32>, tensor<64xf32>)
  return %y : tensor<64x112x112x64xf32>
}

// Rows by the thousand are 2,112 parts, where a processor has 132.
// CHECK-LABEL: @bias
// CHECK: memopt.kernel {{.*}}tensor<135168x64xf32>) -> tensor<2112x64xf32> {
// CHECK: memopt.kernel {{.*}} -> tensor<33x64xf32> {
// CHECK: memopt.kernel {{.*}} -> tensor<64xf32> {
func.func @bias(%x: tensor<135168x64xf32>) -> tensor<64xf32> {
  %y = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<135168x64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// Many columns fill the device with few parts.
// CHECK-LABEL: @many_channels
// CHECK: memopt.kernel {{.*}} -> tensor<256x4096xf32> {
// CHECK: memopt.kernel {{.*}} -> tensor<4096xf32> {
// CHECK-NOT: memopt.kernel
func.func @many_channels(%x: tensor<8192x4096xf32>) -> tensor<4096xf32> {
  %y = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<8192x4096xf32>) -> tensor<4096xf32>
  return %y : tensor<4096xf32>
}
}
