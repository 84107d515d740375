// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op of IndexingOps.td prints what it parsed.

// CHECK-LABEL: func.func @indexing
func.func @indexing(%t: tensor<256x64xf32>, %i: tensor<4x128x1xi64>, %j: tensor<1x128x1xi32>, %g: tensor<4x128x64xf32>,
                    %flags: tensor<8x9xi1>, %k: tensor<8x3xi64>) {
  // CHECK: memopt.gather %{{.*}}, %{{.*}} {indexed = array<i64: 0>, positions = array<i64: 2>} : (tensor<256x64xf32>, tensor<4x128x1xi64>) -> tensor<4x128x64xf32>
  %0 = memopt.gather %t, %i {indexed = array<i64: 0>, positions = array<i64: 2>} : (tensor<256x64xf32>, tensor<4x128x1xi64>) -> tensor<4x128x64xf32>
  // Two indices broadcast together; nothing is left to place.
  // CHECK: memopt.gather %{{.*}}, %{{.*}}, %{{.*}} {indexed = array<i64: 0, 1>, positions = array<i64>}
  %1 = memopt.gather %t, %i, %j {indexed = array<i64: 0, 1>, positions = array<i64>}
    : (tensor<256x64xf32>, tensor<4x128x1xi64>, tensor<1x128x1xi32>) -> tensor<4x128x1xf32>
  // CHECK: memopt.gather %{{.*}}, %{{.*}} {indexed = array<i64: 1>, positions = array<i64: 0>} : (tensor<8x9xi1>, tensor<8x3xi64>) -> tensor<8x3xi1>
  %2 = memopt.gather %flags, %k {indexed = array<i64: 1>, positions = array<i64: 0>} : (tensor<8x9xi1>, tensor<8x3xi64>) -> tensor<8x3xi1>
  // CHECK: memopt.scatter %{{.*}}, %{{.*}}, %{{.*}} {indexed = array<i64: 0>, kind = #memopt.scatter<add>, positions = array<i64: 2>}
  %3 = memopt.scatter %t, %g, %i {kind = #memopt.scatter<add>, indexed = array<i64: 0>, positions = array<i64: 2>}
    : (tensor<256x64xf32>, tensor<4x128x64xf32>, tensor<4x128x1xi64>) -> tensor<256x64xf32>
  // CHECK: memopt.scatter %{{.*}}kind = #memopt.scatter<set>
  %4 = memopt.scatter %flags, %2, %k {kind = #memopt.scatter<set>, indexed = array<i64: 1>, positions = array<i64: 0>}
    : (tensor<8x9xi1>, tensor<8x3xi1>, tensor<8x3xi64>) -> tensor<8x9xi1>
  // CHECK: memopt.argsort %{{.*}} {axis = 1 : i64, descending} : (tensor<256x64xf32>) -> tensor<256x5xi64>
  %5 = memopt.argsort %t {axis = 1 : i64, descending} : (tensor<256x64xf32>) -> tensor<256x5xi64>
  // CHECK: memopt.linear_scan %[[T:.*]], %[[T]] {axis = 0 : i64, initial = 1.0{{.*}} : f64, reverse}
  %6 = memopt.linear_scan %t, %t {axis = 0 : i64, initial = 1.0 : f64, reverse} : (tensor<256x64xf32>, tensor<256x64xf32>) -> tensor<256x64xf32>
  // CHECK: memopt.logsumexp_scan %[[T]] {axis = 1 : i64} : (tensor<256x64xf32>) -> tensor<256x64xf32>
  %7 = memopt.logsumexp_scan %t {axis = 1 : i64} : (tensor<256x64xf32>) -> tensor<256x64xf32>
  // CHECK: memopt.argextreme_scan %[[T]] {axis = 1 : i64, kind = #memopt.reduce<min>} : (tensor<256x64xf32>) -> tensor<256x64xi64>
  %8 = memopt.argextreme_scan %t {kind = #memopt.reduce<min>, axis = 1 : i64} : (tensor<256x64xf32>) -> tensor<256x64xi64>
  return
}
