// RUN: memopt-opt %s --split-input-file --memopt-plan-memory | FileCheck %s

// Which results may lie over an operand: 64 * 64 * 4 = 16384 bytes when they may, twice that when not.

#rows = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// The sum of a row is known before the row is stored.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [16384, 0, 0]
// CHECK-LABEL: @row_sum
func.func @row_sum(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>) -> tensor<64x64xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
    %sum = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
        ins(%in : tensor<64x64xf32>) outs(%z : tensor<64xf32>) {
    ^bb0(%a: f32, %o: f32):
      %s = arith.addf %o, %a : f32
      linalg.yield %s : f32
    } -> tensor<64xf32>
    %f = tensor.empty() : tensor<64x64xf32>
    %y = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}
        ins(%in, %sum : tensor<64x64xf32>, tensor<64xf32>) outs(%f : tensor<64x64xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %d = arith.divf %a, %b : f32
      linalg.yield %d : f32
    } -> tensor<64x64xf32>
    memopt.yield %y : tensor<64x64xf32>
  }
  return %0 : tensor<64x64xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>

// The sum of a column needs rows that another iteration has overwritten.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [32768, 0, 0]
// CHECK-LABEL: @column_sum
func.func @column_sum(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>) -> tensor<64x64xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
    %sum = linalg.generic {indexing_maps = [#rows, #column], iterator_types = ["reduction", "parallel"]}
        ins(%in : tensor<64x64xf32>) outs(%z : tensor<64xf32>) {
    ^bb0(%a: f32, %o: f32):
      %s = arith.addf %o, %a : f32
      linalg.yield %s : f32
    } -> tensor<64xf32>
    %f = tensor.empty() : tensor<64x64xf32>
    %y = linalg.generic {indexing_maps = [#rows, #column, #rows], iterator_types = ["parallel", "parallel"]}
        ins(%in, %sum : tensor<64x64xf32>, tensor<64xf32>) outs(%f : tensor<64x64xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %d = arith.divf %a, %b : f32
      linalg.yield %d : f32
    } -> tensor<64x64xf32>
    memopt.yield %y : tensor<64x64xf32>
  }
  return %0 : tensor<64x64xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>

// Element (i, j) overwrites what element (j, i) reads.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [32768, 0, 0]
// CHECK-LABEL: @transposed
func.func @transposed(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>) -> tensor<64x64xf32> {
    %f = tensor.empty() : tensor<64x64xf32>
    %y = linalg.generic {indexing_maps = [#turned, #rows], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) {
    ^bb0(%a: f32, %o: f32):
      %n = arith.negf %a : f32
      linalg.yield %n : f32
    } -> tensor<64x64xf32>
    memopt.yield %y : tensor<64x64xf32>
  }
  return %0 : tensor<64x64xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>
#flat = affine_map<(d0) -> (d0)>

// A reshape between the operand and the result keeps every element in its place.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [16384, 0, 0]
// CHECK-LABEL: @reshaped
func.func @reshaped(%x: tensor<64x64xf32>) -> tensor<4096xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>) -> tensor<4096xf32> {
    %c = tensor.collapse_shape %in [[0, 1]] : tensor<64x64xf32> into tensor<4096xf32>
    %f = tensor.empty() : tensor<4096xf32>
    %y = linalg.generic {indexing_maps = [#flat, #flat], iterator_types = ["parallel"]}
        ins(%c : tensor<4096xf32>) outs(%f : tensor<4096xf32>) {
    ^bb0(%a: f32, %o: f32):
      %n = arith.negf %a : f32
      linalg.yield %n : f32
    } -> tensor<4096xf32>
    memopt.yield %y : tensor<4096xf32>
  }
  return %0 : tensor<4096xf32>
}

// -----

// What stays of an operand is read where it is written.

// CHECK: memopt.planned = #memopt.planned<arena_bytes = [32256, 0, 0]
// CHECK-LABEL: @head_of_two
func.func @head_of_two(%x: tensor<64x64xf32>, %rest: tensor<62x64xf32>) -> tensor<64x64xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>, %r = %rest : tensor<62x64xf32>) -> tensor<64x64xf32> {
    %head = tensor.extract_slice %in[0, 0] [2, 64] [1, 1] : tensor<64x64xf32> to tensor<2x64xf32>
    %y = tensor.concat dim(0) %head, %r : (tensor<2x64xf32>, tensor<62x64xf32>) -> tensor<64x64xf32>
    memopt.yield %y : tensor<64x64xf32>
  }
  return %0 : tensor<64x64xf32>
}

// -----

// Of a single row code knows only that it is row 0, wherever the iteration stands.

// CHECK: memopt.planned = #memopt.planned<arena_bytes = [48896, 0, 0]
// CHECK-LABEL: @head_of_one
func.func @head_of_one(%x: tensor<64x64xf32>, %rest: tensor<63x64xf32>) -> tensor<64x64xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>, %r = %rest : tensor<63x64xf32>) -> tensor<64x64xf32> {
    %head = tensor.extract_slice %in[0, 0] [1, 64] [1, 1] : tensor<64x64xf32> to tensor<1x64xf32>
    %y = tensor.concat dim(0) %head, %r : (tensor<1x64xf32>, tensor<63x64xf32>) -> tensor<64x64xf32>
    memopt.yield %y : tensor<64x64xf32>
  }
  return %0 : tensor<64x64xf32>
}

// -----

// A scatter changes some elements of its input, in place: 64 * 64 * 4 bytes, 256 of updates and 8 of an index.

// CHECK: memopt.planned = #memopt.planned<arena_bytes = [16648, 0, 0]
// CHECK-LABEL: @scatter
func.func @scatter(%x: tensor<64x64xf32>, %u: tensor<1x64xf32>, %i: tensor<1x1xi64>) -> tensor<64x64xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>, %updates = %u : tensor<1x64xf32>, %at = %i : tensor<1x1xi64>) -> tensor<64x64xf32> {
    %y = memopt.scatter %in, %updates, %at {kind = #memopt.scatter<set>, indexed = array<i64: 0>, positions = array<i64: 1>}
      : (tensor<64x64xf32>, tensor<1x64xf32>, tensor<1x1xi64>) -> tensor<64x64xf32>
    memopt.yield %y : tensor<64x64xf32>
  }
  return %0 : tensor<64x64xf32>
}

// -----

// Not where the updates are read from it while it is written.

// CHECK: memopt.planned = #memopt.planned<arena_bytes = [32776, 0, 0]
// CHECK-LABEL: @scatter_onto_itself
func.func @scatter_onto_itself(%x: tensor<64x64xf32>, %i: tensor<1x1xi64>) -> tensor<64x64xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>, %at = %i : tensor<1x1xi64>) -> tensor<64x64xf32> {
    %row = tensor.extract_slice %in[3, 0] [1, 64] [1, 1] : tensor<64x64xf32> to tensor<1x64xf32>
    %y = memopt.scatter %in, %row, %at {kind = #memopt.scatter<add>, indexed = array<i64: 0>, positions = array<i64: 1>}
      : (tensor<64x64xf32>, tensor<1x64xf32>, tensor<1x1xi64>) -> tensor<64x64xf32>
    memopt.yield %y : tensor<64x64xf32>
  }
  return %0 : tensor<64x64xf32>
}

// -----

// Nor is a scan written over what it reads, even of one element: its loop is not an element's.

// CHECK: memopt.planned = #memopt.planned<arena_bytes = [12, 0, 0]
// CHECK-LABEL: @scan_of_one
func.func @scan_of_one(%x: tensor<1xf32>) -> tensor<1xf32> {
  %0 = memopt.kernel (%in = %x : tensor<1xf32>) -> tensor<1xf32> {
    %ones = arith.constant dense<1.0> : tensor<1xf32>
    %y = memopt.linear_scan %ones, %in {axis = 0 : i64} : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
    memopt.yield %y : tensor<1xf32>
  }
  return %0 : tensor<1xf32>
}

// -----

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d1, d2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// Each element of a row takes a sum of its own over the whole row, of which a part is written by then: operands and
// result, 3 * 16384 bytes.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [49152, 0, 0]
// CHECK-LABEL: @sum_for_each_element
func.func @sum_for_each_element(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = memopt.kernel (%in = %x : tensor<64x64xf32>, %v = %w : tensor<64x64xf32>) -> tensor<64x64xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<64x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
    %sum = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%in, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%z : tensor<64x64xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<64x64xf32>
    memopt.yield %sum : tensor<64x64xf32>
  }
  return %0 : tensor<64x64xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>

// Results that are joined of pieces are written piece by piece: the first one would lie over %x while pieces of the second
// still read it. Operands take 16384 + 512 + 15872 bytes, results 16384 + 8192.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [57344, 0, 0]
// CHECK-LABEL: @joined_beside_a_reader
func.func @joined_beside_a_reader(%x: tensor<64x64xf32>, %u: tensor<2x64xf32>, %rest: tensor<62x64xf32>)
    -> (tensor<64x64xf32>, tensor<64x64xbf16>) {
  %0:2 = memopt.kernel (%in = %x : tensor<64x64xf32>, %h = %u : tensor<2x64xf32>, %r = %rest : tensor<62x64xf32>)
      -> (tensor<64x64xf32>, tensor<64x64xbf16>) {
    %first = tensor.concat dim(0) %h, %r : (tensor<2x64xf32>, tensor<62x64xf32>) -> tensor<64x64xf32>
    %head = tensor.extract_slice %in[0, 0] [2, 64] [1, 1] : tensor<64x64xf32> to tensor<2x64xf32>
    %e = tensor.empty() : tensor<2x64xbf16>
    %a = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
        ins(%head : tensor<2x64xf32>) outs(%e : tensor<2x64xbf16>) {
    ^bb0(%p: f32, %o: bf16):
      %t = arith.truncf %p : f32 to bf16
      linalg.yield %t : bf16
    } -> tensor<2x64xbf16>
    %f = tensor.empty() : tensor<62x64xbf16>
    %b = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
        ins(%r : tensor<62x64xf32>) outs(%f : tensor<62x64xbf16>) {
    ^bb0(%p: f32, %o: bf16):
      %t = arith.truncf %p : f32 to bf16
      linalg.yield %t : bf16
    } -> tensor<62x64xbf16>
    %second = tensor.concat dim(0) %a, %b : (tensor<2x64xbf16>, tensor<62x64xbf16>) -> tensor<64x64xbf16>
    memopt.yield %first, %second : tensor<64x64xf32>, tensor<64x64xbf16>
  }
  return %0#0, %0#1 : tensor<64x64xf32>, tensor<64x64xbf16>
}
