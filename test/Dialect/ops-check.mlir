// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s -mlir-print-op-generic | memopt-opt | FileCheck %s

// Integers of any width, tensors before lowering and scalars inside kernels.
// CHECK-LABEL: func.func @check
// CHECK: memopt.check %{{.*}} {ignore = -100 : i64, max = 9 : i64, min = 0 : i64, otherwise = 0 : i64, site = 0 : i64} : tensor<4xi64>
// CHECK: memopt.check %{{.*}} {max = -1 : i64, min = 1 : i64, otherwise = 1 : i64, site = 1 : i64} : i8
func.func @check(%x: tensor<4xi64>, %y: i8) -> (tensor<4xi64>, i8) {
  %0 = memopt.check %x {min = 0 : i64, max = 9 : i64, ignore = -100 : i64, otherwise = 0 : i64, site = 0 : i64} : tensor<4xi64>
  %1 = memopt.check %y {min = 1 : i64, max = -1 : i64, otherwise = 1 : i64, site = 1 : i64} : i8
  return %0, %1 : tensor<4xi64>, i8
}
