// RUN: memopt-opt %s -memopt-plan-memory -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-plan-memory -memopt-verify-planned -split-input-file > /dev/null

// Elementwise kernels write over an operand that dies: the input, both results and the output are one buffer of
// 256 * 4 = 1024 bytes.

#map = affine_map<(d0) -> (d0)>
// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [1024, 0, 0], lower_bound_bytes = [1024, 0, 0]>}
// CHECK-LABEL: func.func @in_place
// CHECK-SAME: memopt.offset = 0 : i64
func.func @in_place(%x: tensor<256xf32>) -> tensor<256xf32> {
  // CHECK: memopt.kernel {{.*}} attributes {offsets = array<i64: 0>}
  %a = memopt.kernel (%in = %x : tensor<256xf32>) -> tensor<256xf32> {
    %e = tensor.empty() : tensor<256xf32>
    %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
        ins(%in : tensor<256xf32>) outs(%e : tensor<256xf32>) {
    ^bb0(%p: f32, %out: f32):
      %1 = arith.negf %p : f32
      linalg.yield %1 : f32
    } -> tensor<256xf32>
    memopt.yield %0 : tensor<256xf32>
  }
  // CHECK: memopt.kernel {{.*}} attributes {offsets = array<i64: 0>}
  %b = memopt.kernel (%in = %a : tensor<256xf32>) -> tensor<256xf32> {
    %e = tensor.empty() : tensor<256xf32>
    %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
        ins(%in : tensor<256xf32>) outs(%e : tensor<256xf32>) {
    ^bb0(%p: f32, %out: f32):
      %1 = math.exp %p : f32
      linalg.yield %1 : f32
    } -> tensor<256xf32>
    memopt.yield %0 : tensor<256xf32>
  }
  return %b : tensor<256xf32>
}

// -----

// An instruction that does not say otherwise reads its operands in its own order, so nothing is written over them while
// it runs. At the second
// its operand and result, 1024 bytes each, and its workspace of 512 are alive: 2560. The first operand is dead by
// then; at the first call 2048 bytes are alive. One offset for each result, then one for the workspace.
// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [2560, 0, 0], lower_bound_bytes = [2560, 0, 0]>}
// CHECK-LABEL: func.func @workspace
// CHECK: test.run
// CHECK-SAME: offsets = array<i64: {{[0-9]+}}>
// CHECK: test.run
// CHECK-SAME: offsets = array<i64: {{[0-9]+}}, {{[0-9]+}}>
func.func @workspace(%x: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %a = test.run(%x) : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %b = test.run(%a) {scratch = array<i64: 512>} : (tensor<16x16xf32>) -> tensor<16x16xf32>
  return %b : tensor<16x16xf32>
}

// -----

// A reshape is another name of its operand's bytes: the input lives as long as the reshaped value is read.
// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [2048, 0, 0]
// CHECK-LABEL: func.func @reshape
// CHECK-SAME: memopt.offset = [[IN:[0-9]+]]
// CHECK: test.run(%{{.*}}, %{{.*}}) {{.*}}offsets = array<i64: [[OUT:[0-9]+]]>
func.func @reshape(%x: tensor<16x16xf32>) -> tensor<256xf32> {
  %flat = tensor.collapse_shape %x [[0, 1]] : tensor<16x16xf32> into tensor<256xf32>
  %a = test.run(%flat, %x) : (tensor<256xf32>, tensor<16x16xf32>) -> tensor<256xf32>
  return %a : tensor<256xf32>
}
