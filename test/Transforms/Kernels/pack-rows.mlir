// RUN: memopt-opt %s -split-input-file --pass-pipeline='builtin.module(func.func(memopt-lower-to-linalg,cse,memopt-pack-rows,canonicalize,cse))' | FileCheck %s
// RUN: memopt-opt %s -split-input-file --pass-pipeline='builtin.module(func.func(memopt-lower-to-linalg,cse,memopt-pack-rows))' --remarks-filter=memopt-pack-rows --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Each of 64 rows has one of four experts; two of them are seen here, and their rows of 128 bytes wait in one buffer of 64. A
// row that does not count is the first that does, as before.

// CHECK-LABEL: func.func @one
// CHECK-SAME: %[[X:arg0]]: tensor<64x32xf32>, %[[Y:arg1]]: tensor<64x32xf32>, %[[T:arg2]]: tensor<64xi64>
// CHECK-DAG: %[[ZEROS:.*]] = arith.constant dense<0.000000e+00> : tensor<64x32xf32>
// CHECK: %[[M0:.*]] = linalg.generic {{.*}} ins(%[[T]] : tensor<64xi64>)
// CHECK: arith.cmpi eq, %{{.*}}, %c0_i64
// CHECK: %[[P0:.*]] = linalg.generic {{.*}} ins(%[[M0]], %[[T]] : tensor<64xi1>, tensor<64xi64>) {{.*}} tensor<64xi64>
// CHECK: %[[I0:.*]] = tensor.expand_shape %[[P0]] {{.*}} output_shape [64, 1]
// CHECK: %[[A:.*]] = memopt.scatter %[[ZEROS]], %[[X]], %[[I0]] {indexed = array<i64: 0>, kind = #memopt.scatter<set>, positions = array<i64: 1>}
// CHECK: %[[P1:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[T]] : tensor<64xi1>, tensor<64xi64>) {{.*}} tensor<64xi64>
// CHECK: %[[I1:.*]] = tensor.expand_shape %[[P1]] {{.*}} output_shape [64, 1]
// CHECK: %[[B:.*]] = memopt.scatter %[[A]], %[[Y]], %[[I1]]
// CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%[[P0]], %{{.*}} : tensor<64xi64>, tensor<i64>) {{.*}} attrs = {memopt.phase = #memopt.phase<backward>}
// CHECK: %[[LENT:.*]] = tensor.extract %[[P0]]
// CHECK: tensor.extract %[[B]]
// CHECK: memopt.matmul %[[R]], %[[R]] {memopt.phase = #memopt.phase<backward>, transpose_b}
// CHECK: tensor.extract %[[B]]
// REMARK: Function=one | BytesAfter=8192, BytesBefore=16384, Values=2
func.func @one(%x: tensor<64x32xf32>, %y: tensor<64x32xf32>, %chosen: tensor<64xi64>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x32xf32>) {
  %zero = arith.constant dense<0> : tensor<64xi64>
  %two = arith.constant dense<2> : tensor<64xi64>
  %m0 = arith.cmpi eq, %chosen, %zero : tensor<64xi64>
  %m1 = arith.cmpi eq, %chosen, %two : tensor<64xi64>
  %f0 = memopt.fill_rows %x, %m0 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %e0 = math.exp %f0 : tensor<64x32xf32>
  %f1 = memopt.fill_rows %y, %m1 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %e1 = math.exp %f1 : tensor<64x32xf32>
  %b0 = memopt.matmul %f0, %f0 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %b1 = memopt.matmul %f1, %f1 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %b0, %b1, %e0, %e1 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x32xf32>
}

// -----

// Two experts a row, as one_hot and torch.where give them: of four experts the places are those of 64 x 2 choices.

// CHECK-LABEL: func.func @two
// CHECK: memopt.scatter %{{.*}} -> tensor<128x32xf32>
// CHECK-COUNT-3: memopt.scatter {{.*}} : (tensor<128x32xf32>, tensor<64x32xf32>, tensor<64x1xi64>) -> tensor<128x32xf32>
// CHECK-NOT: memopt.scatter
// REMARK: Function=two | BytesAfter=16384, BytesBefore=32768, Values=4
func.func @two(%x: tensor<64x32xf32>, %chosen: tensor<64x2xi64>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %numbers = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi64>
  %wide = memopt.broadcast %chosen {dimensions = array<i64: 0, 1>} : (tensor<64x2xi64>) -> tensor<64x2x4xi64>
  %all = memopt.broadcast %numbers {dimensions = array<i64: 2>} : (tensor<4xi64>) -> tensor<64x2x4xi64>
  %same = arith.cmpi eq, %wide, %all : tensor<64x2x4xi64>
  %hot = arith.extui %same : tensor<64x2x4xi1> to tensor<64x2x4xi32>
  %any = memopt.reduce %hot {dimensions = array<i64: 1>, kind = #memopt.reduce<max>} : (tensor<64x2x4xi32>) -> tensor<64x4xi32>
  %t = memopt.transpose %any {permutation = array<i64: 1, 0>} : (tensor<64x4xi32>) -> tensor<4x64xi32>
  %none = arith.constant dense<0> : tensor<64xi32>
  %s0 = tensor.extract_slice %t[0, 0] [1, 64] [1, 1] : tensor<4x64xi32> to tensor<64xi32>
  %s1 = tensor.extract_slice %t[1, 0] [1, 64] [1, 1] : tensor<4x64xi32> to tensor<64xi32>
  %s2 = tensor.extract_slice %t[2, 0] [1, 64] [1, 1] : tensor<4x64xi32> to tensor<64xi32>
  %s3 = tensor.extract_slice %t[3, 0] [1, 64] [1, 1] : tensor<4x64xi32> to tensor<64xi32>
  %m0 = arith.cmpi ne, %s0, %none : tensor<64xi32>
  %m1 = arith.cmpi ne, %s1, %none : tensor<64xi32>
  %m2 = arith.cmpi ne, %s2, %none : tensor<64xi32>
  %m3 = arith.cmpi ne, %s3, %none : tensor<64xi32>
  %f0 = memopt.fill_rows %x, %m0 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %f1 = memopt.fill_rows %x, %m1 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %f2 = memopt.fill_rows %x, %m2 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %f3 = memopt.fill_rows %x, %m3 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %b0 = memopt.matmul %f0, %f0 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %b1 = memopt.matmul %f1, %f1 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %b2 = memopt.matmul %f2, %f2 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %b3 = memopt.matmul %f3, %f3 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %b0, %b1, %b2, %b3 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// Left alone: masks of two tables, of one number twice, of no table (a limit, another number than one that is known), rows that nobody reads in
// the backward pass, and a reader in front of the last expert's rows.

// CHECK-LABEL: func.func @tables
// CHECK-NOT: memopt.scatter
// REMARK-NOT: Function=tables
func.func @tables(%x: tensor<64x32xf32>, %a: tensor<64xi64>, %b: tensor<64xi64>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %zero = arith.constant dense<0> : tensor<64xi64>
  %two = arith.constant dense<2> : tensor<64xi64>
  %m0 = arith.cmpi eq, %a, %zero : tensor<64xi64>
  %m1 = arith.cmpi eq, %b, %two : tensor<64xi64>
  %f0 = memopt.fill_rows %x, %m0 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %f1 = memopt.fill_rows %x, %m1 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %b0 = memopt.matmul %f0, %f0 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %b1 = memopt.matmul %f1, %f1 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %b0, %b1 : tensor<64x64xf32>, tensor<64x64xf32>
}

// CHECK-LABEL: func.func @twice
// CHECK-NOT: memopt.scatter
// REMARK-NOT: Function=twice
func.func @twice(%x: tensor<64x32xf32>, %y: tensor<64x32xf32>, %a: tensor<64xi64>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %two = arith.constant dense<2> : tensor<64xi64>
  %m = arith.cmpi eq, %a, %two : tensor<64xi64>
  %f0 = memopt.fill_rows %x, %m {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %f1 = memopt.fill_rows %y, %m {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %b0 = memopt.matmul %f0, %f0 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %b1 = memopt.matmul %f1, %f1 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %b0, %b1 : tensor<64x64xf32>, tensor<64x64xf32>
}

// CHECK-LABEL: func.func @limits
// CHECK-NOT: memopt.scatter
// REMARK-NOT: Function=limits
func.func @limits(%x: tensor<64x32xf32>, %a: tensor<64xi64>, %n: tensor<64xi64>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %two = arith.constant dense<2> : tensor<64xi64>
  %m0 = arith.cmpi slt, %a, %two : tensor<64xi64>
  %m1 = arith.cmpi eq, %a, %n : tensor<64xi64>
  %f0 = memopt.fill_rows %x, %m0 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %f1 = memopt.fill_rows %x, %m1 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %b0 = memopt.matmul %f0, %f0 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %b1 = memopt.matmul %f1, %f1 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %b0, %b1 : tensor<64x64xf32>, tensor<64x64xf32>
}

// CHECK-LABEL: func.func @forward
// CHECK-NOT: memopt.scatter
// REMARK-NOT: Function=forward
func.func @forward(%x: tensor<64x32xf32>, %a: tensor<64xi64>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %zero = arith.constant dense<0> : tensor<64xi64>
  %two = arith.constant dense<2> : tensor<64xi64>
  %m0 = arith.cmpi eq, %a, %zero : tensor<64xi64>
  %m1 = arith.cmpi eq, %a, %two : tensor<64xi64>
  %f0 = memopt.fill_rows %x, %m0 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %f1 = memopt.fill_rows %x, %m1 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %b0 = memopt.matmul %f0, %f0 {transpose_b} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %b1 = memopt.matmul %f1, %f1 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %b0, %b1 : tensor<64x64xf32>, tensor<64x64xf32>
}

// CHECK-LABEL: func.func @between
// CHECK-NOT: memopt.scatter
// REMARK-NOT: Function=between
func.func @between(%x: tensor<64x32xf32>, %a: tensor<64xi64>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %zero = arith.constant dense<0> : tensor<64xi64>
  %two = arith.constant dense<2> : tensor<64xi64>
  %m0 = arith.cmpi eq, %a, %zero : tensor<64xi64>
  %m1 = arith.cmpi eq, %a, %two : tensor<64xi64>
  %f0 = memopt.fill_rows %x, %m0 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %b0 = memopt.matmul %f0, %f0 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %f1 = memopt.fill_rows %x, %m1 {dim = 0 : i64} : (tensor<64x32xf32>, tensor<64xi1>) -> tensor<64x32xf32>
  %b1 = memopt.matmul %f1, %f1 {transpose_b, memopt.phase = #memopt.phase<backward>} : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %b0, %b1 : tensor<64x64xf32>, tensor<64x64xf32>
}
