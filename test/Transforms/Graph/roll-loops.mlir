// RUN: memopt-opt %s -memopt-roll-loops -canonicalize -split-input-file | FileCheck %s

// A cell over time: what the inputs contribute is one product a loop; the outputs are what the loops leave.
// CHECK-LABEL: func @cell
// CHECK-DAG:   %[[INTO:.*]] = memopt.read @into
// CHECK-DAG:   %[[HIDDEN:.*]] = memopt.read @hidden
// CHECK:       %[[SLICES:.*]] = memopt.transpose %arg0 {permutation = array<i64: 1, 0, 2>}
// CHECK:       %[[ROWS:.*]] = memopt.matmul {{.*}}, %[[INTO]] : (tensor<8x3xf32>, tensor<3x4xf32>) -> tensor<8x4xf32>
// CHECK:       %[[PARTS:.*]] = tensor.expand_shape %[[ROWS]]
// CHECK:       memopt.scan count(4) fixed(%[[W:.*]] = %[[HIDDEN]] : tensor<4x4xf32>) slices(%[[X:.*]] = %[[PARTS]] : tensor<2x4xf32> of tensor<4x2x4xf32>) carried(%[[H:.*]] = %{{.*}} : tensor<2x4xf32>) {
// CHECK-NEXT:    %[[PRODUCT:.*]] = memopt.matmul %[[H]], %[[W]]
// CHECK-NEXT:    %[[SUM:.*]] = arith.addf %[[X]], %[[PRODUCT]]
// CHECK-NEXT:    %[[NEXT:.*]] = math.tanh %[[SUM]]
// CHECK-NEXT:    memopt.yield %[[NEXT]], %[[NEXT]]
// CHECK:       memopt.scan count(4)
// CHECK:       memopt.scan count(4)
// CHECK:       memopt.scan count(4)
// CHECK-NOT:   memopt.scan
// CHECK:       %[[ALL:.*]] = tensor.concat dim(1)
// CHECK:       return %[[ALL]] : tensor<2x16x4xf32>
memopt.variable @into : tensor<3x4xf32> role <parameter>
memopt.variable @hidden : tensor<4x4xf32> role <parameter>
func.func @cell(%x: tensor<2x16x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<2x16x4xf32> {
  %into = memopt.read @into : tensor<3x4xf32>
  %hidden = memopt.read @hidden : tensor<4x4xf32>
  %h0 = arith.constant dense<0.0> : tensor<2x4xf32>
  %s0 = tensor.extract_slice %x[0, 0, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c0 = tensor.collapse_shape %s0 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a0 = memopt.matmul %c0, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b0 = memopt.matmul %h0, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d0 = arith.addf %a0, %b0 : tensor<2x4xf32>
  %h1 = math.tanh %d0 : tensor<2x4xf32>
  %s1 = tensor.extract_slice %x[0, 1, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c1 = tensor.collapse_shape %s1 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a1 = memopt.matmul %c1, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b1 = memopt.matmul %h1, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d1 = arith.addf %a1, %b1 : tensor<2x4xf32>
  %h2 = math.tanh %d1 : tensor<2x4xf32>
  %s2 = tensor.extract_slice %x[0, 2, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c2 = tensor.collapse_shape %s2 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a2 = memopt.matmul %c2, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b2 = memopt.matmul %h2, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d2 = arith.addf %a2, %b2 : tensor<2x4xf32>
  %h3 = math.tanh %d2 : tensor<2x4xf32>
  %s3 = tensor.extract_slice %x[0, 3, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c3 = tensor.collapse_shape %s3 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a3 = memopt.matmul %c3, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b3 = memopt.matmul %h3, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d3 = arith.addf %a3, %b3 : tensor<2x4xf32>
  %h4 = math.tanh %d3 : tensor<2x4xf32>
  %s4 = tensor.extract_slice %x[0, 4, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c4 = tensor.collapse_shape %s4 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a4 = memopt.matmul %c4, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b4 = memopt.matmul %h4, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d4 = arith.addf %a4, %b4 : tensor<2x4xf32>
  %h5 = math.tanh %d4 : tensor<2x4xf32>
  %s5 = tensor.extract_slice %x[0, 5, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c5 = tensor.collapse_shape %s5 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a5 = memopt.matmul %c5, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b5 = memopt.matmul %h5, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d5 = arith.addf %a5, %b5 : tensor<2x4xf32>
  %h6 = math.tanh %d5 : tensor<2x4xf32>
  %s6 = tensor.extract_slice %x[0, 6, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c6 = tensor.collapse_shape %s6 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a6 = memopt.matmul %c6, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b6 = memopt.matmul %h6, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d6 = arith.addf %a6, %b6 : tensor<2x4xf32>
  %h7 = math.tanh %d6 : tensor<2x4xf32>
  %s7 = tensor.extract_slice %x[0, 7, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c7 = tensor.collapse_shape %s7 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a7 = memopt.matmul %c7, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b7 = memopt.matmul %h7, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d7 = arith.addf %a7, %b7 : tensor<2x4xf32>
  %h8 = math.tanh %d7 : tensor<2x4xf32>
  %s8 = tensor.extract_slice %x[0, 8, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c8 = tensor.collapse_shape %s8 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a8 = memopt.matmul %c8, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b8 = memopt.matmul %h8, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d8 = arith.addf %a8, %b8 : tensor<2x4xf32>
  %h9 = math.tanh %d8 : tensor<2x4xf32>
  %s9 = tensor.extract_slice %x[0, 9, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c9 = tensor.collapse_shape %s9 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a9 = memopt.matmul %c9, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b9 = memopt.matmul %h9, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d9 = arith.addf %a9, %b9 : tensor<2x4xf32>
  %h10 = math.tanh %d9 : tensor<2x4xf32>
  %s10 = tensor.extract_slice %x[0, 10, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c10 = tensor.collapse_shape %s10 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a10 = memopt.matmul %c10, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b10 = memopt.matmul %h10, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d10 = arith.addf %a10, %b10 : tensor<2x4xf32>
  %h11 = math.tanh %d10 : tensor<2x4xf32>
  %s11 = tensor.extract_slice %x[0, 11, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c11 = tensor.collapse_shape %s11 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a11 = memopt.matmul %c11, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b11 = memopt.matmul %h11, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d11 = arith.addf %a11, %b11 : tensor<2x4xf32>
  %h12 = math.tanh %d11 : tensor<2x4xf32>
  %s12 = tensor.extract_slice %x[0, 12, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c12 = tensor.collapse_shape %s12 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a12 = memopt.matmul %c12, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b12 = memopt.matmul %h12, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d12 = arith.addf %a12, %b12 : tensor<2x4xf32>
  %h13 = math.tanh %d12 : tensor<2x4xf32>
  %s13 = tensor.extract_slice %x[0, 13, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c13 = tensor.collapse_shape %s13 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a13 = memopt.matmul %c13, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b13 = memopt.matmul %h13, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d13 = arith.addf %a13, %b13 : tensor<2x4xf32>
  %h14 = math.tanh %d13 : tensor<2x4xf32>
  %s14 = tensor.extract_slice %x[0, 14, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c14 = tensor.collapse_shape %s14 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a14 = memopt.matmul %c14, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b14 = memopt.matmul %h14, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d14 = arith.addf %a14, %b14 : tensor<2x4xf32>
  %h15 = math.tanh %d14 : tensor<2x4xf32>
  %s15 = tensor.extract_slice %x[0, 15, 0] [2, 1, 3] [1, 1, 1] : tensor<2x16x3xf32> to tensor<2x1x3xf32>
  %c15 = tensor.collapse_shape %s15 [[0], [1, 2]] : tensor<2x1x3xf32> into tensor<2x3xf32>
  %a15 = memopt.matmul %c15, %into : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %b15 = memopt.matmul %h15, %hidden : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d15 = arith.addf %a15, %b15 : tensor<2x4xf32>
  %h16 = math.tanh %d15 : tensor<2x4xf32>
  %e0 = tensor.expand_shape %h1 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e1 = tensor.expand_shape %h2 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e2 = tensor.expand_shape %h3 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e3 = tensor.expand_shape %h4 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e4 = tensor.expand_shape %h5 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e5 = tensor.expand_shape %h6 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e6 = tensor.expand_shape %h7 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e7 = tensor.expand_shape %h8 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e8 = tensor.expand_shape %h9 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e9 = tensor.expand_shape %h10 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e10 = tensor.expand_shape %h11 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e11 = tensor.expand_shape %h12 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e12 = tensor.expand_shape %h13 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e13 = tensor.expand_shape %h14 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e14 = tensor.expand_shape %h15 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %e15 = tensor.expand_shape %h16 [[0], [1, 2]] output_shape [2, 1, 4] : tensor<2x4xf32> into tensor<2x1x4xf32>
  %all = tensor.concat dim(1) %e0, %e1, %e2, %e3, %e4, %e5, %e6, %e7, %e8, %e9, %e10, %e11, %e12, %e13, %e14, %e15 : (tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>) -> tensor<2x16x4xf32>
  return %all : tensor<2x16x4xf32>
}

// -----

// Numbers that differ from turn to turn are slices; only the last turn's value is read, and one that is two turns old.
// CHECK-LABEL: func @numbers
// CHECK:       memopt.scan count(4) fixed({{.*}}) slices(%[[T:.*]] = %{{.*}} : tensor<f32> of tensor<16xf32>) carried(%{{.*}}, %{{.*}}) {
// CHECK:         memopt.broadcast %[[T]]
// CHECK:       } -> tensor<2x4xf32>, tensor<2x4xf32>
// CHECK:       %[[LAST:.*]]:2 = memopt.scan count(4) {{.*}} slices(%{{.*}} = %{{.*}}[12] : tensor<f32> of tensor<16xf32>)
// CHECK:       return %[[LAST]]#{{[01]}}
memopt.variable @w : tensor<4x4xf32> role <parameter>
func.func @numbers(%z0: tensor<2x4xf32> {memopt.batch_dim = 0 : i64}, %z1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %t0 = arith.constant dense<0.5> : tensor<2x4xf32>
  %p0 = memopt.matmul %z1, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q0 = arith.mulf %p0, %t0 : tensor<2x4xf32>
  %z2 = arith.addf %q0, %z0 : tensor<2x4xf32>
  %t1 = arith.constant dense<1.5> : tensor<2x4xf32>
  %p1 = memopt.matmul %z2, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q1 = arith.mulf %p1, %t1 : tensor<2x4xf32>
  %z3 = arith.addf %q1, %z1 : tensor<2x4xf32>
  %t2 = arith.constant dense<2.5> : tensor<2x4xf32>
  %p2 = memopt.matmul %z3, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q2 = arith.mulf %p2, %t2 : tensor<2x4xf32>
  %z4 = arith.addf %q2, %z2 : tensor<2x4xf32>
  %t3 = arith.constant dense<3.5> : tensor<2x4xf32>
  %p3 = memopt.matmul %z4, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q3 = arith.mulf %p3, %t3 : tensor<2x4xf32>
  %z5 = arith.addf %q3, %z3 : tensor<2x4xf32>
  %t4 = arith.constant dense<4.5> : tensor<2x4xf32>
  %p4 = memopt.matmul %z5, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q4 = arith.mulf %p4, %t4 : tensor<2x4xf32>
  %z6 = arith.addf %q4, %z4 : tensor<2x4xf32>
  %t5 = arith.constant dense<5.5> : tensor<2x4xf32>
  %p5 = memopt.matmul %z6, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q5 = arith.mulf %p5, %t5 : tensor<2x4xf32>
  %z7 = arith.addf %q5, %z5 : tensor<2x4xf32>
  %t6 = arith.constant dense<6.5> : tensor<2x4xf32>
  %p6 = memopt.matmul %z7, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q6 = arith.mulf %p6, %t6 : tensor<2x4xf32>
  %z8 = arith.addf %q6, %z6 : tensor<2x4xf32>
  %t7 = arith.constant dense<7.5> : tensor<2x4xf32>
  %p7 = memopt.matmul %z8, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q7 = arith.mulf %p7, %t7 : tensor<2x4xf32>
  %z9 = arith.addf %q7, %z7 : tensor<2x4xf32>
  %t8 = arith.constant dense<8.5> : tensor<2x4xf32>
  %p8 = memopt.matmul %z9, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q8 = arith.mulf %p8, %t8 : tensor<2x4xf32>
  %z10 = arith.addf %q8, %z8 : tensor<2x4xf32>
  %t9 = arith.constant dense<9.5> : tensor<2x4xf32>
  %p9 = memopt.matmul %z10, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q9 = arith.mulf %p9, %t9 : tensor<2x4xf32>
  %z11 = arith.addf %q9, %z9 : tensor<2x4xf32>
  %t10 = arith.constant dense<10.5> : tensor<2x4xf32>
  %p10 = memopt.matmul %z11, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q10 = arith.mulf %p10, %t10 : tensor<2x4xf32>
  %z12 = arith.addf %q10, %z10 : tensor<2x4xf32>
  %t11 = arith.constant dense<11.5> : tensor<2x4xf32>
  %p11 = memopt.matmul %z12, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q11 = arith.mulf %p11, %t11 : tensor<2x4xf32>
  %z13 = arith.addf %q11, %z11 : tensor<2x4xf32>
  %t12 = arith.constant dense<12.5> : tensor<2x4xf32>
  %p12 = memopt.matmul %z13, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q12 = arith.mulf %p12, %t12 : tensor<2x4xf32>
  %z14 = arith.addf %q12, %z12 : tensor<2x4xf32>
  %t13 = arith.constant dense<13.5> : tensor<2x4xf32>
  %p13 = memopt.matmul %z14, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q13 = arith.mulf %p13, %t13 : tensor<2x4xf32>
  %z15 = arith.addf %q13, %z13 : tensor<2x4xf32>
  %t14 = arith.constant dense<14.5> : tensor<2x4xf32>
  %p14 = memopt.matmul %z15, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q14 = arith.mulf %p14, %t14 : tensor<2x4xf32>
  %z16 = arith.addf %q14, %z14 : tensor<2x4xf32>
  %t15 = arith.constant dense<15.5> : tensor<2x4xf32>
  %p15 = memopt.matmul %z16, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %q15 = arith.mulf %p15, %t15 : tensor<2x4xf32>
  %z17 = arith.addf %q15, %z15 : tensor<2x4xf32>
  return %z17 : tensor<2x4xf32>
}

// -----

// From the last slice to the first one.
// CHECK-LABEL: func @backwards
// CHECK:       memopt.scan count(4) reverse {{.*}} slices(%{{.*}} = %arg0[12] : tensor<2x4xf32> of tensor<16x2x4xf32>)
// CHECK:       memopt.scan count(4) reverse {{.*}} slices(%{{.*}} = %arg0 : tensor<2x4xf32> of tensor<16x2x4xf32>)
memopt.variable @w : tensor<4x4xf32> role <parameter>
func.func @backwards(%x: tensor<16x2x4xf32>) -> tensor<2x4xf32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %h0 = arith.constant dense<0.0> : tensor<2x4xf32>
  %s0 = tensor.extract_slice %x[15, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c0 = tensor.collapse_shape %s0 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p0 = memopt.matmul %h0, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h1 = arith.addf %p0, %c0 : tensor<2x4xf32>
  %s1 = tensor.extract_slice %x[14, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c1 = tensor.collapse_shape %s1 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p1 = memopt.matmul %h1, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h2 = arith.addf %p1, %c1 : tensor<2x4xf32>
  %s2 = tensor.extract_slice %x[13, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c2 = tensor.collapse_shape %s2 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p2 = memopt.matmul %h2, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h3 = arith.addf %p2, %c2 : tensor<2x4xf32>
  %s3 = tensor.extract_slice %x[12, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c3 = tensor.collapse_shape %s3 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p3 = memopt.matmul %h3, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h4 = arith.addf %p3, %c3 : tensor<2x4xf32>
  %s4 = tensor.extract_slice %x[11, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c4 = tensor.collapse_shape %s4 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p4 = memopt.matmul %h4, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h5 = arith.addf %p4, %c4 : tensor<2x4xf32>
  %s5 = tensor.extract_slice %x[10, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c5 = tensor.collapse_shape %s5 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p5 = memopt.matmul %h5, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h6 = arith.addf %p5, %c5 : tensor<2x4xf32>
  %s6 = tensor.extract_slice %x[9, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c6 = tensor.collapse_shape %s6 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p6 = memopt.matmul %h6, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h7 = arith.addf %p6, %c6 : tensor<2x4xf32>
  %s7 = tensor.extract_slice %x[8, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c7 = tensor.collapse_shape %s7 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p7 = memopt.matmul %h7, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h8 = arith.addf %p7, %c7 : tensor<2x4xf32>
  %s8 = tensor.extract_slice %x[7, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c8 = tensor.collapse_shape %s8 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p8 = memopt.matmul %h8, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h9 = arith.addf %p8, %c8 : tensor<2x4xf32>
  %s9 = tensor.extract_slice %x[6, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c9 = tensor.collapse_shape %s9 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p9 = memopt.matmul %h9, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h10 = arith.addf %p9, %c9 : tensor<2x4xf32>
  %s10 = tensor.extract_slice %x[5, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c10 = tensor.collapse_shape %s10 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p10 = memopt.matmul %h10, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h11 = arith.addf %p10, %c10 : tensor<2x4xf32>
  %s11 = tensor.extract_slice %x[4, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c11 = tensor.collapse_shape %s11 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p11 = memopt.matmul %h11, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h12 = arith.addf %p11, %c11 : tensor<2x4xf32>
  %s12 = tensor.extract_slice %x[3, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c12 = tensor.collapse_shape %s12 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p12 = memopt.matmul %h12, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h13 = arith.addf %p12, %c12 : tensor<2x4xf32>
  %s13 = tensor.extract_slice %x[2, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c13 = tensor.collapse_shape %s13 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p13 = memopt.matmul %h13, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h14 = arith.addf %p13, %c13 : tensor<2x4xf32>
  %s14 = tensor.extract_slice %x[1, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c14 = tensor.collapse_shape %s14 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p14 = memopt.matmul %h14, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h15 = arith.addf %p14, %c14 : tensor<2x4xf32>
  %s15 = tensor.extract_slice %x[0, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<16x2x4xf32> to tensor<1x2x4xf32>
  %c15 = tensor.collapse_shape %s15 [[0, 1], [2]] : tensor<1x2x4xf32> into tensor<2x4xf32>
  %p15 = memopt.matmul %h15, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h16 = arith.addf %p15, %c15 : tensor<2x4xf32>
  return %h16 : tensor<2x4xf32>
}

// -----

// Each layer has a weight of its own.
// CHECK-LABEL: func @layers
// CHECK-NOT:   memopt.scan
// CHECK:       return
memopt.variable @w0 : tensor<4x4xf32> role <parameter>
memopt.variable @w1 : tensor<4x4xf32> role <parameter>
memopt.variable @w2 : tensor<4x4xf32> role <parameter>
memopt.variable @w3 : tensor<4x4xf32> role <parameter>
memopt.variable @w4 : tensor<4x4xf32> role <parameter>
memopt.variable @w5 : tensor<4x4xf32> role <parameter>
memopt.variable @w6 : tensor<4x4xf32> role <parameter>
memopt.variable @w7 : tensor<4x4xf32> role <parameter>
memopt.variable @w8 : tensor<4x4xf32> role <parameter>
memopt.variable @w9 : tensor<4x4xf32> role <parameter>
memopt.variable @w10 : tensor<4x4xf32> role <parameter>
memopt.variable @w11 : tensor<4x4xf32> role <parameter>
memopt.variable @w12 : tensor<4x4xf32> role <parameter>
memopt.variable @w13 : tensor<4x4xf32> role <parameter>
memopt.variable @w14 : tensor<4x4xf32> role <parameter>
memopt.variable @w15 : tensor<4x4xf32> role <parameter>
func.func @layers(%h0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w0 = memopt.read @w0 : tensor<4x4xf32>
  %p0 = memopt.matmul %h0, %w0 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h1 = math.tanh %p0 : tensor<2x4xf32>
  %w1 = memopt.read @w1 : tensor<4x4xf32>
  %p1 = memopt.matmul %h1, %w1 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h2 = math.tanh %p1 : tensor<2x4xf32>
  %w2 = memopt.read @w2 : tensor<4x4xf32>
  %p2 = memopt.matmul %h2, %w2 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h3 = math.tanh %p2 : tensor<2x4xf32>
  %w3 = memopt.read @w3 : tensor<4x4xf32>
  %p3 = memopt.matmul %h3, %w3 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h4 = math.tanh %p3 : tensor<2x4xf32>
  %w4 = memopt.read @w4 : tensor<4x4xf32>
  %p4 = memopt.matmul %h4, %w4 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h5 = math.tanh %p4 : tensor<2x4xf32>
  %w5 = memopt.read @w5 : tensor<4x4xf32>
  %p5 = memopt.matmul %h5, %w5 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h6 = math.tanh %p5 : tensor<2x4xf32>
  %w6 = memopt.read @w6 : tensor<4x4xf32>
  %p6 = memopt.matmul %h6, %w6 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h7 = math.tanh %p6 : tensor<2x4xf32>
  %w7 = memopt.read @w7 : tensor<4x4xf32>
  %p7 = memopt.matmul %h7, %w7 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h8 = math.tanh %p7 : tensor<2x4xf32>
  %w8 = memopt.read @w8 : tensor<4x4xf32>
  %p8 = memopt.matmul %h8, %w8 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h9 = math.tanh %p8 : tensor<2x4xf32>
  %w9 = memopt.read @w9 : tensor<4x4xf32>
  %p9 = memopt.matmul %h9, %w9 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h10 = math.tanh %p9 : tensor<2x4xf32>
  %w10 = memopt.read @w10 : tensor<4x4xf32>
  %p10 = memopt.matmul %h10, %w10 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h11 = math.tanh %p10 : tensor<2x4xf32>
  %w11 = memopt.read @w11 : tensor<4x4xf32>
  %p11 = memopt.matmul %h11, %w11 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h12 = math.tanh %p11 : tensor<2x4xf32>
  %w12 = memopt.read @w12 : tensor<4x4xf32>
  %p12 = memopt.matmul %h12, %w12 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h13 = math.tanh %p12 : tensor<2x4xf32>
  %w13 = memopt.read @w13 : tensor<4x4xf32>
  %p13 = memopt.matmul %h13, %w13 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h14 = math.tanh %p13 : tensor<2x4xf32>
  %w14 = memopt.read @w14 : tensor<4x4xf32>
  %p14 = memopt.matmul %h14, %w14 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h15 = math.tanh %p14 : tensor<2x4xf32>
  %w15 = memopt.read @w15 : tensor<4x4xf32>
  %p15 = memopt.matmul %h15, %w15 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h16 = math.tanh %p15 : tensor<2x4xf32>
  return %h16 : tensor<2x4xf32>
}

// -----

// One kernel, whose values stay in registers.
// CHECK-LABEL: func @elementwise
// CHECK-NOT:   memopt.scan
// CHECK:       return
func.func @elementwise(%h0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %p0 = math.exp %h0 : tensor<2x4xf32>
  %h1 = math.tanh %p0 : tensor<2x4xf32>
  %p1 = math.exp %h1 : tensor<2x4xf32>
  %h2 = math.tanh %p1 : tensor<2x4xf32>
  %p2 = math.exp %h2 : tensor<2x4xf32>
  %h3 = math.tanh %p2 : tensor<2x4xf32>
  %p3 = math.exp %h3 : tensor<2x4xf32>
  %h4 = math.tanh %p3 : tensor<2x4xf32>
  %p4 = math.exp %h4 : tensor<2x4xf32>
  %h5 = math.tanh %p4 : tensor<2x4xf32>
  %p5 = math.exp %h5 : tensor<2x4xf32>
  %h6 = math.tanh %p5 : tensor<2x4xf32>
  %p6 = math.exp %h6 : tensor<2x4xf32>
  %h7 = math.tanh %p6 : tensor<2x4xf32>
  %p7 = math.exp %h7 : tensor<2x4xf32>
  %h8 = math.tanh %p7 : tensor<2x4xf32>
  %p8 = math.exp %h8 : tensor<2x4xf32>
  %h9 = math.tanh %p8 : tensor<2x4xf32>
  %p9 = math.exp %h9 : tensor<2x4xf32>
  %h10 = math.tanh %p9 : tensor<2x4xf32>
  %p10 = math.exp %h10 : tensor<2x4xf32>
  %h11 = math.tanh %p10 : tensor<2x4xf32>
  %p11 = math.exp %h11 : tensor<2x4xf32>
  %h12 = math.tanh %p11 : tensor<2x4xf32>
  %p12 = math.exp %h12 : tensor<2x4xf32>
  %h13 = math.tanh %p12 : tensor<2x4xf32>
  %p13 = math.exp %h13 : tensor<2x4xf32>
  %h14 = math.tanh %p13 : tensor<2x4xf32>
  %p14 = math.exp %h14 : tensor<2x4xf32>
  %h15 = math.tanh %p14 : tensor<2x4xf32>
  %p15 = math.exp %h15 : tensor<2x4xf32>
  %h16 = math.tanh %p15 : tensor<2x4xf32>
  return %h16 : tensor<2x4xf32>
}

// -----

// Sums over samples stay where batches may be cut.
// CHECK-LABEL: func @sums
// CHECK-NOT:   memopt.scan
// CHECK:       return
func.func @sums(%h0: tensor<2x4xf32> {memopt.batch_dim = 0 : i64}, %w: tensor<4x4xf32>) -> tensor<f32> {
  %l0 = arith.constant dense<0.0> : tensor<f32>
  %p0 = memopt.matmul %h0, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h1 = math.tanh %p0 : tensor<2x4xf32>
  %r0 = memopt.reduce %h1 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l1 = arith.addf %l0, %r0 : tensor<f32>
  %p1 = memopt.matmul %h1, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h2 = math.tanh %p1 : tensor<2x4xf32>
  %r1 = memopt.reduce %h2 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l2 = arith.addf %l1, %r1 : tensor<f32>
  %p2 = memopt.matmul %h2, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h3 = math.tanh %p2 : tensor<2x4xf32>
  %r2 = memopt.reduce %h3 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l3 = arith.addf %l2, %r2 : tensor<f32>
  %p3 = memopt.matmul %h3, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h4 = math.tanh %p3 : tensor<2x4xf32>
  %r3 = memopt.reduce %h4 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l4 = arith.addf %l3, %r3 : tensor<f32>
  %p4 = memopt.matmul %h4, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h5 = math.tanh %p4 : tensor<2x4xf32>
  %r4 = memopt.reduce %h5 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l5 = arith.addf %l4, %r4 : tensor<f32>
  %p5 = memopt.matmul %h5, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h6 = math.tanh %p5 : tensor<2x4xf32>
  %r5 = memopt.reduce %h6 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l6 = arith.addf %l5, %r5 : tensor<f32>
  %p6 = memopt.matmul %h6, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h7 = math.tanh %p6 : tensor<2x4xf32>
  %r6 = memopt.reduce %h7 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l7 = arith.addf %l6, %r6 : tensor<f32>
  %p7 = memopt.matmul %h7, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h8 = math.tanh %p7 : tensor<2x4xf32>
  %r7 = memopt.reduce %h8 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l8 = arith.addf %l7, %r7 : tensor<f32>
  %p8 = memopt.matmul %h8, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h9 = math.tanh %p8 : tensor<2x4xf32>
  %r8 = memopt.reduce %h9 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l9 = arith.addf %l8, %r8 : tensor<f32>
  %p9 = memopt.matmul %h9, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h10 = math.tanh %p9 : tensor<2x4xf32>
  %r9 = memopt.reduce %h10 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l10 = arith.addf %l9, %r9 : tensor<f32>
  %p10 = memopt.matmul %h10, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h11 = math.tanh %p10 : tensor<2x4xf32>
  %r10 = memopt.reduce %h11 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l11 = arith.addf %l10, %r10 : tensor<f32>
  %p11 = memopt.matmul %h11, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h12 = math.tanh %p11 : tensor<2x4xf32>
  %r11 = memopt.reduce %h12 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l12 = arith.addf %l11, %r11 : tensor<f32>
  %p12 = memopt.matmul %h12, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h13 = math.tanh %p12 : tensor<2x4xf32>
  %r12 = memopt.reduce %h13 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l13 = arith.addf %l12, %r12 : tensor<f32>
  %p13 = memopt.matmul %h13, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h14 = math.tanh %p13 : tensor<2x4xf32>
  %r13 = memopt.reduce %h14 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l14 = arith.addf %l13, %r13 : tensor<f32>
  %p14 = memopt.matmul %h14, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h15 = math.tanh %p14 : tensor<2x4xf32>
  %r14 = memopt.reduce %h15 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l15 = arith.addf %l14, %r14 : tensor<f32>
  %p15 = memopt.matmul %h15, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %h16 = math.tanh %p15 : tensor<2x4xf32>
  %r15 = memopt.reduce %h16 {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  %l16 = arith.addf %l15, %r15 : tensor<f32>
  return %l16 : tensor<f32>
}
