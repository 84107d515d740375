// RUN: memopt-opt %s --pass-pipeline='builtin.module(memopt-prune-elements)' -split-input-file | FileCheck %s
// RUN: memopt-opt %s --pass-pipeline='builtin.module(memopt-prune-elements)' -split-input-file --remarks-filter=memopt-prune-elements --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Of eight frequencies the first and the last two are read: two columns of the matrix from each end, one product.

// CHECK-LABEL: func.func @frequencies
// CHECK-SAME: %[[X:arg0]]: tensor<2x3x16xf32>, %[[W:arg1]]: tensor<16x8xf32>
// CHECK: %[[FLAT:.*]] = tensor.collapse_shape %[[X]]
// CHECK-DAG: %[[FIRST:.*]] = tensor.extract_slice %[[W]][0, 0] [16, 2] [1, 1]
// CHECK-DAG: %[[LAST:.*]] = tensor.extract_slice %[[W]][0, 6] [16, 2] [1, 1]
// CHECK: %[[BOTH:.*]] = tensor.concat dim(1) %[[FIRST]], %[[LAST]]
// CHECK: %[[P:.*]] = memopt.matmul %[[FLAT]], %[[BOTH]] : (tensor<6x16xf32>, tensor<16x4xf32>) -> tensor<6x4xf32>
// CHECK: %[[APART:.*]] = tensor.expand_shape %[[P]] {{.*}} output_shape [2, 3, 4]
// CHECK: %[[N:.*]] = arith.negf %[[APART]] : tensor<2x3x4xf32>
// CHECK: %[[A:.*]] = tensor.extract_slice %[[N]][0, 0, 0] [2, 3, 2]
// CHECK: %[[B:.*]] = tensor.extract_slice %[[N]][0, 0, 2] [2, 3, 2]
// CHECK: return %[[A]], %[[B]]
// REMARK: Function=frequencies | MultiplyAddsAfter=384, MultiplyAddsBefore=768
func.func @frequencies(%x: tensor<2x3x16xf32>, %w: tensor<16x8xf32>) -> (tensor<2x3x2xf32>, tensor<2x3x2xf32>) {
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x3x16xf32> into tensor<6x16xf32>
  %p = memopt.matmul %flat, %w : (tensor<6x16xf32>, tensor<16x8xf32>) -> tensor<6x8xf32>
  %apart = tensor.expand_shape %p [[0, 1], [2]] output_shape [2, 3, 8] : tensor<6x8xf32> into tensor<2x3x8xf32>
  %n = arith.negf %apart : tensor<2x3x8xf32>
  %a = tensor.extract_slice %n[0, 0, 0] [2, 3, 2] [1, 1, 1] : tensor<2x3x8xf32> to tensor<2x3x2xf32>
  %b = tensor.extract_slice %n[0, 0, 6] [2, 3, 2] [1, 1, 1] : tensor<2x3x8xf32> to tensor<2x3x2xf32>
  return %a, %b : tensor<2x3x2xf32>, tensor<2x3x2xf32>
}

// -----

// Rows of a dimension that several were collapsed into: two of each eight, behind a transpose.

// CHECK-LABEL: func.func @collapsed
// CHECK: %[[CUT:.*]] = tensor.extract_slice %arg0[0, 0, 3] [2, 5, 2] [1, 1, 1]
// CHECK: %[[T:.*]] = memopt.transpose %[[CUT]] {{.*}} -> tensor<2x2x5xf32>
// CHECK: %[[FLAT:.*]] = tensor.collapse_shape %[[T]] {{.*}} into tensor<4x5xf32>
// CHECK: %[[P:.*]] = memopt.matmul %[[FLAT]], %arg1 : {{.*}} -> tensor<4x6xf32>
// CHECK: %[[APART:.*]] = tensor.expand_shape %[[P]] {{.*}} output_shape [2, 2, 6]
// CHECK: return %[[APART]]
// REMARK: Function=collapsed | MultiplyAddsAfter=120, MultiplyAddsBefore=480
func.func @collapsed(%x: tensor<2x5x8xf32>, %w: tensor<5x6xf32>) -> tensor<2x2x6xf32> {
  %t = memopt.transpose %x {permutation = array<i64: 0, 2, 1>} : (tensor<2x5x8xf32>) -> tensor<2x8x5xf32>
  %flat = tensor.collapse_shape %t [[0, 1], [2]] : tensor<2x8x5xf32> into tensor<16x5xf32>
  %p = memopt.matmul %flat, %w : (tensor<16x5xf32>, tensor<5x6xf32>) -> tensor<16x6xf32>
  %apart = tensor.expand_shape %p [[0, 1], [2]] output_shape [2, 8, 6] : tensor<16x6xf32> into tensor<2x8x6xf32>
  %cut = tensor.extract_slice %apart[0, 3, 0] [2, 2, 6] [1, 1, 1] : tensor<2x8x6xf32> to tensor<2x2x6xf32>
  return %cut : tensor<2x2x6xf32>
}

// -----

// Two numbers in front of zeros and two behind them, from two sums of which each has zeros elsewhere: rows of the constant
// that meet zeros are left out.

memopt.variable @table : tensor<8x4xf32> role <buffer> {initial = dense<2.0> : tensor<8x4xf32>, names = []}

// CHECK-LABEL: func.func @zeros
// CHECK: %[[W:.*]] = memopt.read @table
// CHECK: %[[A:.*]] = tensor.concat dim(1) %arg0, %{{.*}} : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x4xf32>
// CHECK: %[[B:.*]] = tensor.concat dim(1) %{{.*}}, %arg1 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x4xf32>
// CHECK: %[[S:.*]] = arith.addf %[[A]], %[[B]] : tensor<3x4xf32>
// CHECK-DAG: %[[FIRST:.*]] = tensor.extract_slice %[[W]][0, 0] [2, 4] [1, 1]
// CHECK-DAG: %[[LAST:.*]] = tensor.extract_slice %[[W]][6, 0] [2, 4] [1, 1]
// CHECK: %[[ROWS:.*]] = tensor.concat dim(0) %[[FIRST]], %[[LAST]]
// CHECK: %[[P:.*]] = memopt.matmul %[[S]], %[[ROWS]] : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
// CHECK: return %[[P]]
// REMARK: Function=zeros | MultiplyAddsAfter=48, MultiplyAddsBefore=96
func.func @zeros(%x: tensor<3x2xf32>, %y: tensor<3x2xf32>) -> tensor<3x4xf32> {
  %w = memopt.read @table : tensor<8x4xf32>
  %zeros = arith.constant dense<0.0> : tensor<3x6xf32>
  %a = tensor.concat dim(1) %x, %zeros : (tensor<3x2xf32>, tensor<3x6xf32>) -> tensor<3x8xf32>
  %b = memopt.pad %y {low = array<i64: 0, 6>, high = array<i64: 0, 0>} : (tensor<3x2xf32>) -> tensor<3x8xf32>
  %s = arith.addf %a, %b : tensor<3x8xf32>
  %p = memopt.matmul %s, %w : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  return %p : tensor<3x4xf32>
}

// -----

// Rows of zeros times a finite constant are zeros: of the next sum they are left out, too.

memopt.variable @table : tensor<4x4xf32> role <buffer> {initial = dense<2.0> : tensor<4x4xf32>, names = []}
memopt.variable @next : tensor<5x8xf32> role <buffer> {initial = dense<3.0> : tensor<5x8xf32>, names = []}

// CHECK-LABEL: func.func @rows
// REMARK: Function=rows |
// CHECK: %[[P:.*]] = memopt.matmul %arg0, %{{.*}} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
// CHECK: %[[CUT:.*]] = tensor.extract_slice %{{.*}}[0, 0] [5, 2] [1, 1]
// CHECK: memopt.matmul %[[CUT]], %[[P]] : (tensor<5x2xf32>, tensor<2x4xf32>) -> tensor<5x4xf32>
func.func @rows(%x: tensor<2x4xf32>) -> tensor<5x4xf32> {
  %w = memopt.read @table : tensor<4x4xf32>
  %v = memopt.read @next : tensor<5x8xf32>
  %wide = memopt.pad %x {low = array<i64: 0, 0>, high = array<i64: 6, 0>} : (tensor<2x4xf32>) -> tensor<8x4xf32>
  %p = memopt.matmul %wide, %w : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %q = memopt.matmul %v, %p : (tensor<5x8xf32>, tensor<8x4xf32>) -> tensor<5x4xf32>
  return %q : tensor<5x4xf32>
}

// -----

// Kept whole: zeros that meet what may be infinite (a parameter, an infinite constant, a buffer with a name), and what saves
// less than half of a product.

memopt.variable @weight : tensor<8x4xf32> role <parameter> {initial = dense<2.0> : tensor<8x4xf32>, names = ["weight"], trainable}
memopt.variable @named : tensor<8x4xf32> role <buffer> {initial = dense<2.0> : tensor<8x4xf32>, names = ["named"]}
memopt.variable @infinite : tensor<8x4xf32> role <buffer> {initial = dense<0x7F800000> : tensor<8x4xf32>, names = []}

// CHECK-LABEL: func.func @unknown
// REMARK-NOT: Function=unknown
// CHECK-COUNT-3: memopt.matmul {{.*}} : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
func.func @unknown(%x: tensor<3x2xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  %v = memopt.read @weight : tensor<8x4xf32>
  %w = memopt.read @infinite : tensor<8x4xf32>
  %u = memopt.read @named : tensor<8x4xf32>
  %wide = memopt.pad %x {low = array<i64: 0, 0>, high = array<i64: 0, 6>} : (tensor<3x2xf32>) -> tensor<3x8xf32>
  %p = memopt.matmul %wide, %v : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  %q = memopt.matmul %wide, %w : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  %r = memopt.matmul %wide, %u : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  return %p, %q, %r : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
}

// CHECK-LABEL: func.func @most
// REMARK-NOT: Function=most
// CHECK: memopt.matmul {{.*}} -> tensor<3x8xf32>
func.func @most(%x: tensor<3x4xf32>, %w: tensor<4x8xf32>) -> tensor<3x5xf32> {
  %p = memopt.matmul %x, %w : (tensor<3x4xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
  %cut = tensor.extract_slice %p[0, 0] [3, 5] [1, 1] : tensor<3x8xf32> to tensor<3x5xf32>
  return %cut : tensor<3x5xf32>
}

// -----

// What another reader needs whole is whole: zeros are put back. A softmax has all of its columns, of the rows that are read.

memopt.variable @table : tensor<8x8xf32> role <buffer> {initial = dense<2.0> : tensor<8x8xf32>, names = []}

// CHECK-LABEL: func.func @whole
// REMARK: Function=whole |
// CHECK: %[[CUT:.*]] = tensor.extract_slice %arg0[1, 0] [2, 3] [1, 1]
// CHECK: %[[P:.*]] = memopt.matmul %[[CUT]], %arg1 : {{.*}} -> tensor<2x8xf32>
// CHECK: %[[S:.*]] = memopt.softmax %[[P]] {axis = 1 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
// CHECK: %[[C:.*]] = tensor.extract_slice %[[S]][0, 0] [2, 2] [1, 1]
// CHECK: %[[Z:.*]] = arith.constant dense<0.000000e+00> : tensor<2x6xf32>
// CHECK: %[[WIDE:.*]] = tensor.concat dim(1) %[[C]], %[[Z]]
// CHECK: %[[ROWS:.*]] = tensor.extract_slice %{{.*}}[0, 0] [2, 8] [1, 1]
// CHECK: memopt.matmul %[[C]], %[[ROWS]]
// CHECK: return %[[WIDE]]
func.func @whole(%x: tensor<8x3xf32>, %v: tensor<3x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %w = memopt.read @table : tensor<8x8xf32>
  %p = memopt.matmul %x, %v : (tensor<8x3xf32>, tensor<3x8xf32>) -> tensor<8x8xf32>
  %s = memopt.softmax %p {axis = 1 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %c = tensor.extract_slice %s[1, 0] [2, 2] [1, 1] : tensor<8x8xf32> to tensor<2x2xf32>
  %wide = memopt.pad %c {low = array<i64: 0, 0>, high = array<i64: 0, 6>} : (tensor<2x2xf32>) -> tensor<2x8xf32>
  %q = memopt.matmul %wide, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %wide, %q : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

// Behind an elementwise op, too, zeros are put back for a reader that needs all.

memopt.variable @table : tensor<8x8xf32> role <buffer> {initial = dense<2.0> : tensor<8x8xf32>, names = []}

// CHECK-LABEL: func.func @behind
// CHECK: %[[N:.*]] = arith.negf %arg0 : tensor<2x2xf32>
// CHECK: %[[Z:.*]] = arith.constant dense<0.000000e+00> : tensor<2x6xf32>
// CHECK: %[[WIDE:.*]] = tensor.concat dim(1) %[[N]], %[[Z]]
// CHECK: %[[P:.*]] = memopt.matmul %[[N]], %{{.*}} : (tensor<2x2xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
// CHECK: return %[[WIDE]], %[[P]]
func.func @behind(%c: tensor<2x2xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %w = memopt.read @table : tensor<8x8xf32>
  %wide = memopt.pad %c {low = array<i64: 0, 0>, high = array<i64: 0, 6>} : (tensor<2x2xf32>) -> tensor<2x8xf32>
  %n = arith.negf %wide : tensor<2x8xf32>
  %p = memopt.matmul %n, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %n, %p : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

// A single element has no dimension to cut.

memopt.variable @table : tensor<8x8xf32> role <buffer> {initial = dense<2.0> : tensor<8x8xf32>, names = []}

// CHECK-LABEL: func.func @single
// CHECK: %[[S:.*]] = tensor.collapse_shape %arg1 [] : tensor<1x1xf32> into tensor<f32>
// CHECK: %[[N:.*]] = arith.negf %[[S]] : tensor<f32>
// CHECK: tensor.expand_shape %[[N]] [] output_shape [1, 1] : tensor<f32> into tensor<1x1xf32>
func.func @single(%c: tensor<2x2xf32>, %one: tensor<1x1xf32>) -> (tensor<2x8xf32>, tensor<1x1xf32>) {
  %w = memopt.read @table : tensor<8x8xf32>
  %wide = memopt.pad %c {low = array<i64: 0, 0>, high = array<i64: 0, 6>} : (tensor<2x2xf32>) -> tensor<2x8xf32>
  %p = memopt.matmul %wide, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %s = tensor.collapse_shape %one [] : tensor<1x1xf32> into tensor<f32>
  %n = arith.negf %s : tensor<f32>
  %e = tensor.expand_shape %n [] output_shape [1, 1] : tensor<f32> into tensor<1x1xf32>
  return %p, %e : tensor<2x8xf32>, tensor<1x1xf32>
}
