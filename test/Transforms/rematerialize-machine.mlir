// RUN: sed 's/RATES/matmul_operations_per_second = 1.0e9, convolution_operations_per_second = 1.0e12/' %s \
// RUN:   | memopt-opt -memopt-rematerialize=budget=12416 -memopt-plan-memory=budget=12416 | FileCheck %s --check-prefix=SLOW-MATMUL
// RUN: sed 's/RATES/matmul_operations_per_second = 1.0e12, convolution_operations_per_second = 1.0e9/' %s \
// RUN:   | memopt-opt -memopt-rematerialize=budget=12416 -memopt-plan-memory=budget=12416 | FileCheck %s --check-prefix=SLOW-CONVOLUTION

// A product and a convolution of the same size are wanted again at the end. The budget has room for one of them, and the
// other runs again: the one that the machine of the module is faster at.

// SLOW-MATMUL: memopt.library_call {{.*}}kind = "convolution_forward"{{.*}}memopt.clone
// SLOW-CONVOLUTION: memopt.library_call {{.*}}kind = "matmul"{{.*}}memopt.clone
module attributes {memopt.machine = {RATES}} {
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  %product = memopt.library_call %x {descriptor = {kind = "matmul"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 1000000000 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %image = memopt.library_call %x {descriptor = {kind = "convolution_forward"}, operand_offsets = array<i64: 0>,
    workspace = 0 : i64, flop_count = 1000000000 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %summary = memopt.library_call %product, %image {descriptor = {kind = "summary"}, operand_offsets = array<i64: 0, 0>,
    workspace = 0 : i64, flop_count = 0 : i64} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<16xf32>
  %large = memopt.library_call %summary {descriptor = {kind = "grow"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<2048xf32>
  %small = memopt.library_call %large {descriptor = {kind = "shrink"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<2048xf32>) -> tensor<16xf32>
  %late = memopt.library_call %product, %image, %small {descriptor = {kind = "late"}, operand_offsets = array<i64: 0, 0, 0>,
    workspace = 0 : i64, flop_count = 0 : i64} : (tensor<1024xf32>, tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %late : tensor<16xf32>
}
}
