// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=bf16}))' --verify-diagnostics | FileCheck %s
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-narrow-activations))' | FileCheck %s --check-prefix=OFF
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=int8}))' 2> /dev/null | FileCheck %s --check-prefix=INT8
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=fp8}))' 2> /dev/null | FileCheck %s --check-prefix=FP8
// RUN: not memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-narrow-activations{type=f16}))' 2>&1 | FileCheck %s --check-prefix=TYPE

// TYPE: expected f32, bf16, int8 or fp8 as the type of kept activations, found 'f16'

// What backward reads of forward is rounded where it is made, and widened in front of its reader; forward itself reads
// what was made. The sum of rows is a statistic and stays.

// In 8 bits each row, which has 64 elements, has a scale; codes are rounded by random words.
// INT8-LABEL: func.func @kept
// INT8: %[[Y:.*]] = memopt.matmul
// INT8: %[[SCALES:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<1024x64xf32>) outs({{.*}} : tensor<1024xf32>)
// INT8: math.absf
// INT8: %[[CODES:.*]] = linalg.generic {{.*}} ins(%[[Y]], %[[SCALES]] : tensor<1024x64xf32>, tensor<1024xf32>) outs({{.*}} : tensor<1024x64xi8>)
// INT8: memopt.random_word
// INT8: arith.trunci
// INT8: linalg.generic {{.*}} ins(%[[CODES]], %[[SCALES]] : tensor<1024x64xi8>, tensor<1024xf32>) {{.*}} attrs = {memopt.phase = #memopt.phase<backward>}
// INT8: arith.sitofp
// FP8-LABEL: func.func @kept
// FP8: outs({{.*}} : tensor<1024x64xi8>)
// FP8: arith.bitcast
// FP8: attrs = {memopt.phase = #memopt.phase<backward>}
// FP8: arith.bitcast

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @kept
// CHECK-SAME: %[[X:.*]]: tensor<1024x64xf32>, %[[W:.*]]: tensor<64x64xf32>
// OFF-LABEL: func.func @kept
// OFF-NOT: bf16
// expected-remark @below {{keeps 1 activations in bf16: 131072 bytes instead of 262144}}
func.func @kept(%x: tensor<1024x64xf32>, %w: tensor<64x64xf32>) -> tensor<1024x64xf32> {
  // CHECK: %[[Y:.*]] = memopt.matmul %[[X]], %[[W]]
  // CHECK: %[[KEPT:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<1024x64xf32>) outs({{.*}} : tensor<1024x64xbf16>)
  // CHECK: arith.truncf
  %y = memopt.matmul %x, %w : (tensor<1024x64xf32>, tensor<64x64xf32>) -> tensor<1024x64xf32>
  %empty = tensor.empty() : tensor<1024xf32>
  %zero = arith.constant 0.0 : f32
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<1024xf32>) -> tensor<1024xf32>
  // CHECK: %[[SUMS:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<1024x64xf32>)
  %sums = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<1024x64xf32>) outs(%start : tensor<1024xf32>) {
  ^bb0(%in: f32, %sum: f32):
    %0 = arith.addf %in, %sum : f32
    linalg.yield %0 : f32
  } -> tensor<1024xf32>
  // CHECK: memopt.matmul %[[Y]], %[[W]]
  %z = memopt.matmul %y, %w : (tensor<1024x64xf32>, tensor<64x64xf32>) -> tensor<1024x64xf32>
  // CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[KEPT]] : tensor<1024x64xbf16>) {{.*}} attrs = {memopt.phase = #memopt.phase<backward>}
  // CHECK: arith.extf
  // CHECK: linalg.generic {{.*}} ins(%[[WIDE]], %[[SUMS]] : tensor<1024x64xf32>, tensor<1024xf32>)
  %dx_empty = tensor.empty() : tensor<1024x64xf32>
  %dx = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %sums : tensor<1024x64xf32>, tensor<1024xf32>) outs(%dx_empty : tensor<1024x64xf32>) attrs = {memopt.phase = #memopt.phase<backward>} {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %0 = arith.mulf %in, %sum : f32
    linalg.yield %0 : f32
  } -> tensor<1024x64xf32>
  return %dx : tensor<1024x64xf32>
}

// -----

// Parameters and what is made of them alone, small values, and what the step returns stay as they are.

memopt.variable @w : tensor<64x64xf32> role <parameter>
#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @left
// CHECK-NOT: bf16
// expected-remark @below {{keeps 0 activations in bf16: 0 bytes instead of 0}}
func.func @left(%x: tensor<8x64xf32>, %v: tensor<64x64xf32>) -> (tensor<8x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %w = memopt.read @w : tensor<64x64xf32>
  %square = memopt.matmul %w, %w : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %small = memopt.matmul %x, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %returned = memopt.matmul %v, %w : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %a = memopt.matmul %small, %square {memopt.phase = #memopt.phase<backward>} : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %b = memopt.matmul %w, %square {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = memopt.matmul %returned, %w {memopt.phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %a, %b, %c, %returned : tensor<8x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// What a loop leaves of each turn waits in few bits, too, and is widened in front of the loop that reads it. What one turn
// hands to the next does not wait.

// CHECK-LABEL: func.func @loop
// expected-remark @below {{keeps 1 activations in bf16: 131072 bytes instead of 262144}}
func.func @loop(%x: tensor<16x64x64xf32>, %w: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %zero = arith.constant dense<0.0> : tensor<64x64xf32>
  // CHECK: %[[SCAN:.*]]:2 = memopt.scan count(16)
  %last, %all = memopt.scan count(16) fixed(%v = %w : tensor<64x64xf32>) slices(%a = %x : tensor<64x64xf32> of tensor<16x64x64xf32>)
      carried(%h = %zero : tensor<64x64xf32>) {
    %0 = memopt.matmul %h, %v : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = memopt.matmul %a, %0 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    memopt.yield %1, %0 : tensor<64x64xf32>, tensor<64x64xf32>
  } -> tensor<64x64xf32>, tensor<16x64x64xf32>
  // CHECK: %[[KEPT:.*]] = linalg.generic {{.*}} ins(%[[SCAN]]#1 : tensor<16x64x64xf32>) outs({{.*}} : tensor<16x64x64xbf16>)
  // CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[KEPT]] : tensor<16x64x64xbf16>)
  // CHECK: memopt.scan count(16) reverse slices(%{{.*}} = %[[WIDE]] : tensor<64x64xf32> of tensor<16x64x64xf32>)
  %dh = memopt.scan count(16) reverse slices(%a = %all : tensor<64x64xf32> of tensor<16x64x64xf32>) carried(%g = %zero : tensor<64x64xf32>) {
    %0 = memopt.matmul %a, %g : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    memopt.yield %0 : tensor<64x64xf32>
  } -> tensor<64x64xf32> {phase = #memopt.phase<backward>}
  return %last, %dh : tensor<64x64xf32>, tensor<64x64xf32>
}
