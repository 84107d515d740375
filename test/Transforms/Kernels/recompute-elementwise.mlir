// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-recompute-elementwise{print}))' --verify-diagnostics | FileCheck %s
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-recompute-elementwise{enabled=false}))' | FileCheck %s --check-prefix=OFF
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-recompute-elementwise))' --remarks-filter='memopt-recompute-elementwise' --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK

// A product of 16 KiB, its square and the exponential of that: backward reads all three, and besides the
// two products nothing must be kept. Both readers of the exponential share one clone, and the clone of the square.

#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @chain
// OFF-LABEL: func.func @chain
// OFF-NOT: memopt.clone
// REMARK: BytesKeptAfter=32768, BytesKeptBefore=65536, Clones=2
func.func @chain(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %empty = tensor.empty() : tensor<64x64xf32>
  // CHECK: %[[PRODUCT:.*]] = memopt.matmul
  // expected-remark @below {{kept for backward: 16384 bytes}}
  %product = memopt.matmul %x, %y : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // expected-remark @below {{recomputed in backward}}
  %square = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%product : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  // expected-remark @below {{recomputed in backward}}
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%square : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  // CHECK: %[[FORWARD:.*]] = memopt.matmul
  // expected-remark @below {{kept for backward: 16384 bytes}}
  %forward = memopt.matmul %exp, %y : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[SQUARE:.*]] = linalg.generic {{.*}} ins(%[[PRODUCT]] : {{.*}}) {{.*}} attrs = {memopt.clone = 1 : i64, memopt.phase = #memopt.phase<backward>}
  // CHECK: %[[EXP:.*]] = linalg.generic {{.*}} ins(%[[SQUARE]] : {{.*}}) {{.*}} attrs = {memopt.clone = 1 : i64, memopt.phase = #memopt.phase<backward>}
  // CHECK: %[[B0:.*]] = memopt.matmul %[[FORWARD]], %[[EXP]]
  %b0 = memopt.matmul %forward, %exp {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[B1:.*]] = memopt.matmul %[[B0]], %[[EXP]]
  %b1 = memopt.matmul %b0, %exp {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: memopt.matmul %[[B1]], %[[SQUARE]]
  %b2 = memopt.matmul %b1, %square {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: memopt.matmul %{{.*}}, %[[PRODUCT]]
  %b3 = memopt.matmul %b2, %product {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %b3 : tensor<64x64xf32>
}

// -----

// Results of reductions and gathers from large tables are kept, and so is a sum with a bias, which the
// library adds on the way; what follows from them is recomputed. A scalar per row is too small to recompute.

#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
#id = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @fixed
// REMARK: BytesKeptAfter=33024, BytesKeptBefore=49152, Clones=1
func.func @fixed(%x: tensor<64x64xf32>, %bias: tensor<64xf32>, %table: tensor<9999x64xf32>,
                 %indices: tensor<64xi64>, %g: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %empty = tensor.empty() : tensor<64x64xf32>
  %rows = tensor.empty() : tensor<64xf32>
  %zero = arith.constant 0.0 : f32
  %zeros = linalg.fill ins(%zero : f32) outs(%rows : tensor<64xf32>) -> tensor<64xf32>
  %product = memopt.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  // expected-remark @below {{kept for backward: 16384 bytes}}
  %biased = linalg.generic {indexing_maps = [#map, #column, #map], iterator_types = ["parallel", "parallel"]}
      ins(%product, %bias : tensor<64x64xf32>, tensor<64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  // expected-remark @below {{kept for backward: 16384 bytes}}
  %gathered = linalg.generic {indexing_maps = [#row, #map], iterator_types = ["parallel", "parallel"]}
      ins(%indices : tensor<64xi64>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%a: i64, %out: f32):
    %0 = arith.index_cast %a : i64 to index
    %1 = linalg.index 1 : index
    %2 = tensor.extract %table[%0, %1] : tensor<9999x64xf32>
    linalg.yield %2 : f32
  } -> tensor<64x64xf32>
  %sums = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]}
      ins(%biased : tensor<64x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  // expected-remark @below {{kept for backward: 256 bytes}}
  %squares = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%sums : tensor<64xf32>) outs(%rows : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.mulf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  // expected-remark @below {{recomputed in backward}}
  %scaled = linalg.generic {indexing_maps = [#map, #row, #map], iterator_types = ["parallel", "parallel"]}
      ins(%biased, %squares : tensor<64x64xf32>, tensor<64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  // CHECK-NOT: memopt.clone
  // CHECK: %[[G0:.*]] = memopt.matmul {{.*}} {memopt.phase = #memopt.phase<backward>}
  // CHECK-NOT: memopt.clone
  // CHECK: %[[SCALED:.*]] = linalg.generic {{.*}} attrs = {memopt.clone = 1 : i64, memopt.phase = #memopt.phase<backward>}
  // CHECK: memopt.matmul %[[G0]], %[[SCALED]]
  %g0 = memopt.matmul %g, %gathered {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %g1 = memopt.matmul %g0, %scaled {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %g2 = memopt.matmul %g1, %biased {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %g2 : tensor<64x64xf32>
}

// -----

// What the step returns is alive to its end and costs nothing to keep.

// CHECK-LABEL: func.func @returned
// CHECK-NOT: memopt.clone
// REMARK: BytesKeptAfter=0, BytesKeptBefore=0, Clones=0
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @returned(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %empty = tensor.empty() : tensor<64x64xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  %g = memopt.matmul %x, %exp {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %exp, %g : tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// A chain of recomputations may read about eight operands: the second sum, of ten, is kept.

#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @long_chain
// REMARK: BytesKeptAfter=16384, BytesKeptBefore=32768, Clones=1
func.func @long_chain(%x0: tensor<64x64xf32>, %x1: tensor<64x64xf32>, %x2: tensor<64x64xf32>, %x3: tensor<64x64xf32>, %x4: tensor<64x64xf32>,
                      %x5: tensor<64x64xf32>, %x6: tensor<64x64xf32>, %x7: tensor<64x64xf32>, %x8: tensor<64x64xf32>, %x9: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %empty = tensor.empty() : tensor<64x64xf32>
  // expected-remark @below {{recomputed in backward}}
  %five = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x0, %x1, %x2, %x3, %x4 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>)
      outs(%empty : tensor<64x64xf32>) {
  ^bb0(%a0: f32, %a1: f32, %a2: f32, %a3: f32, %a4: f32, %out: f32):
    %1 = arith.addf %a0, %a1 : f32
    %2 = arith.addf %1, %a2 : f32
    %3 = arith.addf %2, %a3 : f32
    %4 = arith.addf %3, %a4 : f32
    linalg.yield %4 : f32
  } -> tensor<64x64xf32>
  // expected-remark @below {{kept for backward: 16384 bytes}}
  %ten = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%five, %x5, %x6, %x7, %x8, %x9 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>)
      outs(%empty : tensor<64x64xf32>) {
  ^bb0(%a0: f32, %a1: f32, %a2: f32, %a3: f32, %a4: f32, %a5: f32, %out: f32):
    %1 = arith.addf %a0, %a1 : f32
    %2 = arith.addf %1, %a2 : f32
    %3 = arith.addf %2, %a3 : f32
    %4 = arith.addf %3, %a4 : f32
    %5 = arith.addf %4, %a5 : f32
    linalg.yield %5 : f32
  } -> tensor<64x64xf32>
  // CHECK: %[[FIVE:.*]] = linalg.generic {{.*}} attrs = {memopt.clone = 1
  // CHECK: memopt.matmul %{{.*}}, %[[FIVE]]
  %g = memopt.matmul %ten, %five {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %g : tensor<64x64xf32>
}

// -----

// Readers far from each other have a clone each: one would be kept from the first to the second.

#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @far
// REMARK: BytesKeptAfter=0, BytesKeptBefore=16384, Clones=2
func.func @far(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %empty = tensor.empty() : tensor<64x64xf32>
  // expected-remark @below {{recomputed in backward}}
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  // CHECK: %[[FIRST:.*]] = linalg.generic {{.*}} attrs = {memopt.clone = 1
  // CHECK: memopt.matmul %{{.*}}, %[[FIRST]]
  %g0 = memopt.matmul %x, %exp {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %g1 = memopt.transpose %g0 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g2 = memopt.transpose %g1 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g3 = memopt.transpose %g2 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g4 = memopt.transpose %g3 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g5 = memopt.transpose %g4 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g6 = memopt.transpose %g5 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g7 = memopt.transpose %g6 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g8 = memopt.transpose %g7 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g9 = memopt.transpose %g8 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g10 = memopt.transpose %g9 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g11 = memopt.transpose %g10 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g12 = memopt.transpose %g11 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g13 = memopt.transpose %g12 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g14 = memopt.transpose %g13 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g15 = memopt.transpose %g14 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g16 = memopt.transpose %g15 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g17 = memopt.transpose %g16 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  // CHECK: %[[SECOND:.*]] = linalg.generic {{.*}} attrs = {memopt.clone = 2
  // CHECK: memopt.matmul %{{.*}}, %[[SECOND]]
  %g18 = memopt.matmul %g17, %exp {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %g18 : tensor<64x64xf32>
}

// -----

// Loops share a clone, however far they are from each other: it lives through both.

#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @loops
// REMARK: BytesKeptAfter=0, BytesKeptBefore=16384, Clones=1
func.func @loops(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %empty = tensor.empty() : tensor<64x64xf32>
  // expected-remark @below {{recomputed in backward}}
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  // CHECK: %[[BOTH:.*]] = linalg.generic {{.*}} attrs = {memopt.clone = 1
  // CHECK: memopt.scan count(4) fixed(%{{.*}} = %[[BOTH]]
  // CHECK: memopt.scan count(4) fixed(%{{.*}} = %[[BOTH]]
  %g0 = memopt.scan count(4) fixed(%f = %exp : tensor<64x64xf32>) carried(%h = %x : tensor<64x64xf32>) {
    %0 = memopt.matmul %h, %f {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    memopt.yield %0 : tensor<64x64xf32>
  } -> tensor<64x64xf32> {phase = #memopt.phase<backward>}
  %g1 = memopt.transpose %g0 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g2 = memopt.transpose %g1 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g3 = memopt.transpose %g2 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g4 = memopt.transpose %g3 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g5 = memopt.transpose %g4 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g6 = memopt.transpose %g5 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g7 = memopt.transpose %g6 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g8 = memopt.transpose %g7 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g9 = memopt.transpose %g8 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g10 = memopt.transpose %g9 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g11 = memopt.transpose %g10 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g12 = memopt.transpose %g11 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g13 = memopt.transpose %g12 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g14 = memopt.transpose %g13 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g15 = memopt.transpose %g14 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g16 = memopt.transpose %g15 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g17 = memopt.transpose %g16 {permutation = array<i64: 1, 0>, memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %g18 = memopt.scan count(4) fixed(%f = %exp : tensor<64x64xf32>) carried(%h = %g17 : tensor<64x64xf32>) {
    %0 = memopt.matmul %h, %f {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    memopt.yield %0 : tensor<64x64xf32>
  } -> tensor<64x64xf32> {phase = #memopt.phase<backward>}
  return %g18 : tensor<64x64xf32>
}
