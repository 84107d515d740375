// RUN: memopt-opt %s -memopt-plan-memory -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-plan-memory -memopt-verify-planned -split-input-file > /dev/null

// Elementwise kernels write over an operand that dies: the input, both results and the output are one buffer of
// 256 * 4 = 1024 bytes.

#map = affine_map<(d0) -> (d0)>
// CHECK: module attributes {memopt.arena_bytes = 1024 : i64, memopt.lower_bound_bytes = 1024 : i64}
// CHECK-LABEL: func.func @in_place
// CHECK-SAME: memopt.offset = 0 : i64
func.func @in_place(%x: tensor<256xf32>) -> tensor<256xf32> {
  // CHECK: memopt.kernel {{.*}} attributes {memopt.offsets = array<i64: 0>}
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
  // CHECK: memopt.kernel {{.*}} attributes {memopt.offsets = array<i64: 0>}
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

// A library reads its operands in its own order, so nothing is written over them while it runs. At the second call
// its operand and result, 1024 bytes each, and its workspace of 512 are alive: 2560. The first operand is dead by
// then; at the first call 2048 bytes are alive. One offset for each result, then one for the workspace.
// CHECK: module attributes {memopt.arena_bytes = 2560 : i64, memopt.lower_bound_bytes = 2560 : i64}
// CHECK-LABEL: func.func @workspace
// CHECK: memopt.library_call
// CHECK-SAME: memopt.offsets = array<i64: {{[0-9]+}}>
// CHECK: memopt.library_call
// CHECK-SAME: memopt.offsets = array<i64: {{[0-9]+}}, {{[0-9]+}}>
func.func @workspace(%x: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %a = memopt.library_call %x {descriptor = {kind = "matmul"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %b = memopt.library_call %a {descriptor = {kind = "matmul"}, operand_offsets = array<i64: 0>, workspace = 512 : i64,
    flop_count = 0 : i64} : (tensor<16x16xf32>) -> tensor<16x16xf32>
  return %b : tensor<16x16xf32>
}

// -----

// A reshape is another name of its operand's bytes: the input lives as long as the reshaped value is read.
// CHECK: module attributes {memopt.arena_bytes = 2048 : i64
// CHECK-LABEL: func.func @reshape
// CHECK-SAME: memopt.offset = [[IN:[0-9]+]]
// CHECK: memopt.library_call %{{.*}}, %{{.*}} {{.*}}memopt.offsets = array<i64: [[OUT:[0-9]+]]>
func.func @reshape(%x: tensor<16x16xf32>) -> tensor<256xf32> {
  %flat = tensor.collapse_shape %x [[0, 1]] : tensor<16x16xf32> into tensor<256xf32>
  %a = memopt.library_call %flat, %x {descriptor = {kind = "matmul"}, operand_offsets = array<i64: 0, 0>,
    workspace = 0 : i64, flop_count = 0 : i64} : (tensor<256xf32>, tensor<16x16xf32>) -> tensor<256xf32>
  return %a : tensor<256xf32>
}
