// RUN: kernel-compile %s --print-schedule --processor=x86-64-v4 | FileCheck %s

// A block is four vector registers: 64 floats of AVX-512. "a/b": a loop of a iterations in blocks of b lanes.

#m2 = affine_map<(r, d) -> (r, d)>
#row = affine_map<(r, d) -> (r)>
#col = affine_map<(r, d) -> (d)>
#m3 = affine_map<(k, r, d) -> (k, r, d)>
#chunk = affine_map<(k, r, d) -> (k, d)>

// Everything contiguous: one flat loop.
// CHECK-LABEL: kernel memopt_kernel_0
// CHECK-NEXT: stage rows=1 distributes-nest
// CHECK-NEXT: nest 32000/64
func.func @flat(%a: tensor<100x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<100x320xf32>) -> tensor<100x320xf32> {
    %e = tensor.empty() : tensor<100x320xf32>
    %r = linalg.generic {indexing_maps = [#m2, #m2], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<100x320xf32>) outs(%e : tensor<100x320xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.mulf %p, %p : f32
      linalg.yield %s : f32
    } -> tensor<100x320xf32>
    memopt.yield %r : tensor<100x320xf32>
  }
  return
}

// A row's sum is taken once per row, before the row is written.
// CHECK-LABEL: kernel memopt_kernel_1
// CHECK-NEXT: stage rows=100
// CHECK-NEXT: nest 320/64
func.func @rows(%a: tensor<100x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<100x320xf32>) -> tensor<100x320xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<100xf32>) -> tensor<100xf32>
    %sum = linalg.generic {indexing_maps = [#m2, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<100x320xf32>) outs(%z : tensor<100xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<100xf32>
    %f = tensor.empty() : tensor<100x320xf32>
    %r = linalg.generic {indexing_maps = [#m2, #row, #m2], iterator_types = ["parallel", "parallel"]} ins(%x, %sum : tensor<100x320xf32>, tensor<100xf32>) outs(%f : tensor<100x320xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.divf %p, %q : f32
      linalg.yield %s : f32
    } -> tensor<100x320xf32>
    memopt.yield %r : tensor<100x320xf32>
  }
  return
}

// Column sums of chunks beside an elementwise result: a chunk is a row of both.
// CHECK-LABEL: kernel memopt_kernel_2
// CHECK-NEXT: stage rows=40
// CHECK-DAG: nest 256/64
// CHECK-DAG: nest 12544/64
func.func @chunks(%a: tensor<1960x256xf32>) {
  %0:2 = memopt.kernel (%x = %a : tensor<1960x256xf32>) -> (tensor<40x256xf32>, tensor<1960x256xf32>) {
    %zero = arith.constant 0.0 : f32
    %x3 = tensor.expand_shape %x [[0, 1], [2]] output_shape [40, 49, 256] : tensor<1960x256xf32> into tensor<40x49x256xf32>
    %e = tensor.empty() : tensor<40x256xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<40x256xf32>) -> tensor<40x256xf32>
    %sum = linalg.generic {indexing_maps = [#m3, #chunk], iterator_types = ["parallel", "reduction", "parallel"]} ins(%x3 : tensor<40x49x256xf32>) outs(%z : tensor<40x256xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<40x256xf32>
    %f = tensor.empty() : tensor<1960x256xf32>
    %r = linalg.generic {indexing_maps = [#m2, #m2], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1960x256xf32>) outs(%f : tensor<1960x256xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.mulf %p, %p : f32
      linalg.yield %s : f32
    } -> tensor<1960x256xf32>
    memopt.yield %sum, %r : tensor<40x256xf32>, tensor<1960x256xf32>
  }
  return
}

// A transpose goes through tiles, so that loads and stores are both contiguous.
// CHECK-LABEL: kernel memopt_kernel_3
// CHECK: nest 320/tile 16 128/64
func.func @transpose(%a: tensor<128x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<128x320xf32>) -> tensor<320x128xf32> {
    %t = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<128x320xf32>) -> tensor<320x128xf32>
    memopt.yield %t : tensor<320x128xf32>
  }
  return
}

// The pieces of a concatenation are written apart, without a test per element.
// CHECK-LABEL: kernel memopt_kernel_4
// CHECK-NEXT: stage rows=64
// CHECK-NEXT: nest 64/64
// CHECK-NEXT: result 0 at i[[#]] + 192*[[ROW:i[0-9]+]]{{$}}
// CHECK-NEXT: nest 128/64
// CHECK-NEXT: result 0 at 192*[[ROW]] + i[[#]] + 64
func.func @concat(%a: tensor<64x64xf32>, %b: tensor<64x128xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<64x64xf32>, %y = %b : tensor<64x128xf32>) -> tensor<64x192xf32> {
    %c = tensor.concat dim(1) %x, %y : (tensor<64x64xf32>, tensor<64x128xf32>) -> tensor<64x192xf32>
    memopt.yield %c : tensor<64x192xf32>
  }
  return
}

// So are the pieces of pieces, and the zeros beside one.
// CHECK-LABEL: kernel memopt_kernel_5
// CHECK-NEXT: stage rows=32
// CHECK-NEXT: nest 32/32
// CHECK-NEXT: result 0 at i[[#]] + 96*[[ROW:i[0-9]+]] + 64
// CHECK-NEXT: result 0 at i[[#]] + 96*[[ROW]] + 3072
// CHECK-NEXT: nest 64/64
// CHECK-NEXT: result 0 at 96*[[ROW]] + i[[#]]{{$}}
// CHECK-NEXT: result 0 at 96*[[ROW]] + i[[#]] + 3104
func.func @concat_of_pieces(%a: tensor<32x64xf32>, %b: tensor<32x32xf32>, %c: tensor<32x64xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<32x64xf32>, %y = %b : tensor<32x32xf32>, %z = %c : tensor<32x64xf32>) -> tensor<64x96xf32> {
    %c0 = tensor.concat dim(1) %x, %y : (tensor<32x64xf32>, tensor<32x32xf32>) -> tensor<32x96xf32>
    %p = memopt.pad %z {low = array<i64: 0, 32>, high = array<i64: 0, 0>} : (tensor<32x64xf32>) -> tensor<32x96xf32>
    %c1 = tensor.concat dim(0) %c0, %p : (tensor<32x96xf32>, tensor<32x96xf32>) -> tensor<64x96xf32>
    memopt.yield %c1 : tensor<64x96xf32>
  }
  return
}

// The same kernel again is the same function.
// CHECK-NOT: kernel memopt_kernel_6
func.func @flat_again(%a: tensor<100x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<100x320xf32>) -> tensor<100x320xf32> {
    %e = tensor.empty() : tensor<100x320xf32>
    %r = linalg.generic {indexing_maps = [#m2, #m2], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<100x320xf32>) outs(%e : tensor<100x320xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.mulf %p, %p : f32
      linalg.yield %s : f32
    } -> tensor<100x320xf32>
    memopt.yield %r : tensor<100x320xf32>
  }
  return
}

// What fills a kernel: zeros first, then updates in their order; points that never meet are the parallel loop.
// CHECK-LABEL: kernel memopt_kernel_
// CHECK-NEXT: stage rows=1 distributes-nest
// CHECK-NEXT: nest 3200/64
// CHECK-NEXT: result 0
// CHECK-NEXT: stage scatter tokens 7 points 100 columns 16/16
func.func @scatter(%g: tensor<100x7x16xf32>, %i: tensor<100x7x1xi64>) {
  %0 = memopt.kernel (%u = %g : tensor<100x7x16xf32>, %j = %i : tensor<100x7x1xi64>) -> tensor<100x2x16xf32> {
    %z = arith.constant dense<0.0> : tensor<100x2x16xf32>
    %r = memopt.scatter %z, %u, %j {kind = #memopt.scatter<add>, indexed = array<i64: 1>, positions = array<i64: 0, 2>}
      : (tensor<100x2x16xf32>, tensor<100x7x16xf32>, tensor<100x7x1xi64>) -> tensor<100x2x16xf32>
    memopt.yield %r : tensor<100x2x16xf32>
  }
  return
}

// An order keeps a heap in its result; a scan runs over lanes where the axis is not the last.
// CHECK-LABEL: kernel memopt_kernel_
// CHECK-NEXT: stage order first 5 of 1000 points 8
// CHECK-LABEL: kernel memopt_kernel_
// CHECK-NEXT: stage scan 1000 points 8
// CHECK-LABEL: kernel memopt_kernel_
// CHECK-NEXT: stage scan 8 columns 1000/32
func.func @orders(%a: tensor<8x1000xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<8x1000xf32>) -> tensor<8x5xi64> {
    %r = memopt.argsort %x {axis = 1 : i64, descending} : (tensor<8x1000xf32>) -> tensor<8x5xi64>
    memopt.yield %r : tensor<8x5xi64>
  }
  %1 = memopt.kernel (%x = %a : tensor<8x1000xf32>) -> tensor<8x1000xf32> {
    %r = memopt.logsumexp_scan %x {axis = 1 : i64} : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
    memopt.yield %r : tensor<8x1000xf32>
  }
  %2 = memopt.kernel (%x = %a : tensor<8x1000xf32>) -> tensor<8x1000xf32> {
    %r = memopt.logsumexp_scan %x {axis = 0 : i64} : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
    memopt.yield %r : tensor<8x1000xf32>
  }
  return
}

// Two transposed matrices side by side in pairs: pairs are one loop with their columns, whose lanes read each element of a tile twice.
// CHECK-LABEL: kernel memopt_kernel_{{[0-9]+}}
// CHECK: nest 32/tile 16 288/32
#turned = affine_map<(o, x) -> (x, o)>
#pairs = affine_map<(o, x, c) -> (o, x, c)>
func.func @interleaved(%a: tensor<144x32xf32>, %b: tensor<144x32xf32>, %c: tensor<32x144x2xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<144x32xf32>, %y = %b : tensor<144x32xf32>, %z = %c : tensor<32x144x2xf32>) -> tensor<32x144x2xf32> {
    %e = tensor.empty() : tensor<32x144xf32>
    %s = linalg.generic {indexing_maps = [#turned, #m2], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<144x32xf32>) outs(%e : tensor<32x144xf32>) {
    ^bb0(%p: f32, %o: f32):
      linalg.yield %p : f32
    } -> tensor<32x144xf32>
    %t = linalg.generic {indexing_maps = [#turned, #m2], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<144x32xf32>) outs(%e : tensor<32x144xf32>) {
    ^bb0(%p: f32, %o: f32):
      linalg.yield %p : f32
    } -> tensor<32x144xf32>
    %s1 = tensor.expand_shape %s [[0], [1, 2]] output_shape [32, 144, 1] : tensor<32x144xf32> into tensor<32x144x1xf32>
    %t1 = tensor.expand_shape %t [[0], [1, 2]] output_shape [32, 144, 1] : tensor<32x144xf32> into tensor<32x144x1xf32>
    %both = tensor.concat dim(2) %s1, %t1 : (tensor<32x144x1xf32>, tensor<32x144x1xf32>) -> tensor<32x144x2xf32>
    %f = tensor.empty() : tensor<32x144x2xf32>
    %r = linalg.generic {indexing_maps = [#pairs, #pairs, #pairs], iterator_types = ["parallel", "parallel", "parallel"]} ins(%both, %z : tensor<32x144x2xf32>, tensor<32x144x2xf32>) outs(%f : tensor<32x144x2xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %1 = arith.mulf %p, %q : f32
      linalg.yield %1 : f32
    } -> tensor<32x144x2xf32>
    memopt.yield %r : tensor<32x144x2xf32>
  }
  return
}
