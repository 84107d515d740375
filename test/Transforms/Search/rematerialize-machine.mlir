// RUN: sed 's/RATES/matmul_operations_per_second = 1.0e9, convolution_operations_per_second = 1.0e12/' %s \
// RUN:   | memopt-opt -memopt-rematerialize=budget=12416 -memopt-plan-memory=budget=12416 | FileCheck %s --check-prefix=SLOW-MATMUL
// RUN: sed 's/RATES/matmul_operations_per_second = 1.0e12, convolution_operations_per_second = 1.0e9/' %s \
// RUN:   | memopt-opt -memopt-rematerialize=budget=12416 -memopt-plan-memory=budget=12416 | FileCheck %s --check-prefix=SLOW-CONVOLUTION

// A product and a convolution of the same size are wanted again at the end. The budget has room for one of them, and the
// other runs again: the one that the machine of the module is faster at.

// SLOW-MATMUL: test.run({{.*}}clone = 1 : i64{{.*}}kind = "convolution"
// SLOW-CONVOLUTION: test.run({{.*}}clone = 1 : i64{{.*}}kind = "matmul"
module attributes {memopt.target = #memopt.cpu<profile = {RATES}>} {
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  %product = test.run(%x) {kind = "matmul", flops = 1000000000 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %image = test.run(%x) {kind = "convolution", flops = 1000000000 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %summary = test.run(%product, %image) {kind = "summary"} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<16xf32>
  %large = test.run(%summary) {kind = "grow"} : (tensor<16xf32>) -> tensor<2048xf32>
  %small = test.run(%large) {kind = "shrink"} : (tensor<2048xf32>) -> tensor<16xf32>
  %late = test.run(%product, %image, %small) {kind = "late"} : (tensor<1024xf32>, tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %late : tensor<16xf32>
}
}
