// RUN: memopt-opt %s --split-input-file --memopt-form-kernels --memopt-verify-kernel-graph | FileCheck %s

#rows = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#one = affine_map<(d0) -> (d0)>

// A reduction, what follows from it per row, and the result over the same rows are one kernel; the row
// sums are no buffer.

// CHECK-LABEL: @rows
// CHECK: %[[K:.*]] = memopt.kernel (%{{.*}} = %{{.*}} : tensor<64x128xf32>) -> tensor<64x128xf32> {
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return %[[K]]
func.func @rows(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x128xf32>) outs(%z : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  %inverse = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%sum : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %one = arith.constant 1.0 : f32
    %d = arith.divf %one, %a : f32
    linalg.yield %d : f32
  } -> tensor<64xf32>
  %f = tensor.empty() : tensor<64x128xf32>
  %y = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %inverse : tensor<64x128xf32>, tensor<64xf32>) outs(%f : tensor<64x128xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<64x128xf32>
  return %y : tensor<64x128xf32>
}

// -----

#all = affine_map<(d0) -> (d0)>
#none = affine_map<(d0) -> ()>

// The sum of everything is no row of its reader: two kernels.

// CHECK-LABEL: @whole
// CHECK: %[[SUM:.*]] = memopt.kernel {{.*}} -> tensor<f32>
// CHECK: memopt.kernel (%{{.*}} = %{{.*}} : tensor<65536xf32>, %{{.*}} = %[[SUM]] : tensor<f32>) -> tensor<65536xf32>
func.func @whole(%x: tensor<65536xf32>) -> tensor<65536xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %sum = linalg.generic {indexing_maps = [#all, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<65536xf32>) outs(%z : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %f = tensor.empty() : tensor<65536xf32>
  %y = linalg.generic {indexing_maps = [#all, #none, #all], iterator_types = ["parallel"]}
      ins(%x, %sum : tensor<65536xf32>, tensor<f32>) outs(%f : tensor<65536xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<65536xf32>
  return %y : tensor<65536xf32>
}

// -----

#all = affine_map<(d0) -> (d0)>

// Updates never share a kernel with what comes before: loss and gradients can be looked at first.

// CHECK-LABEL: @update
// CHECK: %[[G:.*]] = memopt.kernel {{.*}} attributes {phase = #memopt.phase<backward>}
// CHECK: memopt.gradient %[[G]], @w
// CHECK: %[[NEW:.*]] = memopt.kernel {{.*}} attributes {phase = #memopt.phase<optimizer>}
// CHECK: memopt.write %[[NEW]], @w
memopt.variable @w : tensor<8xf32> role <parameter> {trainable}
func.func @update(%x: tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %g = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {memopt.phase = #memopt.phase<backward>} {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  memopt.gradient %g, @w : tensor<8xf32>
  %w = memopt.read @w : tensor<8xf32>
  %new = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel"]}
      ins(%w, %g : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {memopt.phase = #memopt.phase<optimizer>} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.subf %a, %b : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  memopt.write %new, @w : tensor<8xf32>
  return
}

// -----

// A view that the caller gets must be stored; a reshape of a buffer is another name for it.

// CHECK-LABEL: @views
// CHECK: %[[T:.*]] = memopt.kernel
// CHECK: memopt.transpose
// CHECK: memopt.yield
// CHECK: %[[R:.*]] = tensor.collapse_shape %[[T]]
// CHECK: return %[[R]]
func.func @views(%x: tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<8x4xf32> into tensor<32xf32>
  return %1 : tensor<32xf32>
}

// -----

// The code generator has loops of its own for this op: it stays alone.

// CHECK-LABEL: @embedding_backward
// CHECK: memopt.kernel (%[[G:.*]] = %{{.*}} : tensor<6x4xf32>, %[[I:.*]] = %{{.*}} : tensor<6xi64>)
// CHECK-NEXT: memopt.embedding_backward %[[G]], %[[I]]
// CHECK-NEXT: memopt.yield
func.func @embedding_backward(%g: tensor<6x4xf32>, %i: tensor<6xi64>) -> tensor<10x4xf32> {
  %0 = memopt.embedding_backward %g, %i : (tensor<6x4xf32>, tensor<6xi64>) -> tensor<10x4xf32>
  return %0 : tensor<10x4xf32>
}

// -----

// It reads through views: a tensor of zeros, and updates that are one number everywhere, are never buffers.

// CHECK-LABEL: @scatter
// CHECK: memopt.kernel (%{{.*}} = %{{.*}} : tensor<f32>, %[[I:.*]] = %{{.*}} : tensor<6x1xi64>)
// CHECK-NEXT: %[[ZEROS:.*]] = arith.constant
// CHECK-NEXT: %[[U:.*]] = memopt.broadcast
// CHECK-NEXT: memopt.scatter %[[ZEROS]], %[[U]], %[[I]]
// CHECK-NEXT: memopt.yield
func.func @scatter(%g: tensor<f32>, %i: tensor<6x1xi64>) -> tensor<10x4xf32> {
  %zeros = arith.constant dense<0.0> : tensor<10x4xf32>
  %u = memopt.broadcast %g {dimensions = array<i64>} : (tensor<f32>) -> tensor<6x4xf32>
  %0 = memopt.scatter %zeros, %u, %i {kind = #memopt.scatter<add>, indexed = array<i64: 0>, positions = array<i64: 1>}
    : (tensor<10x4xf32>, tensor<6x4xf32>, tensor<6x1xi64>) -> tensor<10x4xf32>
  return %0 : tensor<10x4xf32>
}

// -----

// A scalar that several kernels read is a kernel of its own. As part of one of them it would keep the others waiting for
// what that reads: every update for the last gradient.

// CHECK-LABEL: @shared_scalar
// CHECK-SAME: %[[GRADIENT:[a-z0-9]+]]: tensor<64x128xf32>, %[[OTHER:[a-z0-9]+]]: tensor<256x512xf32>, %[[STEP:[a-z0-9]+]]: tensor<f32>
// CHECK: %[[SCALE:.*]] = memopt.kernel (%{{[a-z0-9]+}} = %[[STEP]] : tensor<f32>) -> tensor<f32>
// CHECK: memopt.kernel ({{.*}}%[[GRADIENT]] : tensor<64x128xf32>{{.*}}) -> tensor<64x128xf32>
// CHECK: memopt.kernel ({{.*}}%[[OTHER]] : tensor<256x512xf32>{{.*}}) -> tensor<256x512xf32>
#rows = affine_map<(d0, d1) -> (d0, d1)>
func.func @shared_scalar(%g: tensor<64x128xf32>, %h: tensor<256x512xf32>, %step: tensor<f32>)
    -> (tensor<64x128xf32>, tensor<256x512xf32>, tensor<f32>) {
  %e = tensor.empty() : tensor<f32>
  %scale = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%step : tensor<f32>) outs(%e : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %beta = arith.constant 0.9 : f32
    %p = math.powf %beta, %a : f32
    linalg.yield %p : f32
  } -> tensor<f32>
  %eg = tensor.empty() : tensor<64x128xf32>
  %u = linalg.generic {indexing_maps = [#rows, affine_map<(d0, d1) -> ()>, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%g, %scale : tensor<64x128xf32>, tensor<f32>) outs(%eg : tensor<64x128xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<64x128xf32>
  %eh = tensor.empty() : tensor<256x512xf32>
  %v = linalg.generic {indexing_maps = [#rows, affine_map<(d0, d1) -> ()>, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%h, %scale : tensor<256x512xf32>, tensor<f32>) outs(%eh : tensor<256x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<256x512xf32>
  return %u, %v, %scale : tensor<64x128xf32>, tensor<256x512xf32>, tensor<f32>
}

// -----

// The mark of a gradient stands where the gradient is made: behind that, its bytes may be used again.

// CHECK-LABEL: @mark
// CHECK: %[[GRADIENT:.*]] = memopt.kernel
// CHECK: memopt.gradient %[[GRADIENT]], @w
// CHECK: memopt.library_call
#rows = affine_map<(d0, d1) -> (d0, d1)>
memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable}
func.func @mark(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %g = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<4x4xf32>
  %y = memopt.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  memopt.gradient %g, @w : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

// Sums of the same operand are one kernel, which stands where the last of them stood; what changes state stays behind the
// commit all the same.

memopt.variable @late : tensor<7x3xf32> role <buffer> {names = ["v"]}
// CHECK-LABEL: func.func @late_loss
func.func @late_loss(%x: tensor<64xf32>, %y: tensor<7x3xf32>) -> (tensor<f32>, tensor<f32>) {
  %empty = tensor.empty() : tensor<7x3xf32>
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<f32>
  %start = linalg.fill ins(%zero : f32) outs(%none : tensor<f32>) -> tensor<f32>
  // CHECK: %[[A:.*]] = memopt.kernel
  %a = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%y : tensor<7x3xf32>) outs(%empty : tensor<7x3xf32>) {
  ^bb0(%e: f32, %o: f32):
    %0 = math.exp %e : f32
    linalg.yield %0 : f32
  } -> tensor<7x3xf32>
  // CHECK: memopt.kernel {{.*}} -> (tensor<f32>, tensor<f32>)
  %loss = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
    ins(%x : tensor<64xf32>) outs(%start : tensor<f32>) {
  ^bb0(%e: f32, %o: f32):
    %0 = arith.addf %e, %o : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  // CHECK: memopt.commit
  memopt.commit %loss : tensor<f32>
  // CHECK: memopt.write %[[A]], @late
  memopt.write %a, @late : tensor<7x3xf32>
  %other = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
    ins(%x : tensor<64xf32>) outs(%start : tensor<f32>) {
  ^bb0(%e: f32, %o: f32):
    %0 = arith.mulf %e, %e : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %loss, %other : tensor<f32>, tensor<f32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// What forward rounds for backward is stored rounded, though backward could round it: else the wider would be kept.

// CHECK-LABEL: @rounded_for_backward
// CHECK: %[[Y:.*]] = memopt.library_call
// CHECK: %[[KEPT:.*]] = memopt.kernel (%{{.*}} = %[[Y]] : tensor<64x64xf32>) -> tensor<64x64xbf16>
// CHECK: memopt.kernel (%{{.*}} = %[[KEPT]] : tensor<64x64xbf16>) -> tensor<64x64xf32> attributes {phase = #memopt.phase<backward>}
func.func @rounded_for_backward(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = memopt.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %narrow = tensor.empty() : tensor<64x64xbf16>
  %wide = tensor.empty() : tensor<64x64xf32>
  %kept = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<64x64xf32>) outs(%narrow : tensor<64x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<64x64xbf16>
  %dx = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%kept : tensor<64x64xbf16>) outs(%wide : tensor<64x64xf32>) attrs = {memopt.phase = #memopt.phase<backward>} {
  ^bb0(%in: bf16, %out: f32):
    %0 = arith.extf %in : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  return %dx : tensor<64x64xf32>
}

// -----

#chunks = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#parts = affine_map<(d0, d1, d2) -> (d0, d2)>
#all = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d1)>

// Parts of a sum by columns, and their sum: the rows of the first are no rows of the second, though there are as many.
// In one kernel a column would be one thread's.

// CHECK-LABEL: @as_many_columns_as_rows
// CHECK: memopt.kernel {{.*}} -> tensor<64x64xf32> {
// CHECK: memopt.kernel {{.*}} -> tensor<64xf32> {
func.func @as_many_columns_as_rows(%x: tensor<64x32x64xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %part = linalg.generic {indexing_maps = [#chunks, #parts], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<64x32x64xf32>) outs(%z : tensor<64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<64x64xf32>
  %f = tensor.empty() : tensor<64xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.generic {indexing_maps = [#all, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%part : tensor<64x64xf32>) outs(%g : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %sum : tensor<64xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>

// Kernels read elements of a few pieces where they are, and those of many as one that a kernel has stored.

// CHECK-LABEL: @few_pieces
// CHECK: memopt.kernel
// CHECK-NEXT: tensor.concat
// CHECK: linalg.generic
// CHECK-NOT: memopt.kernel
func.func @few_pieces(%x: tensor<2x8xf32>) -> tensor<64x8xf32> {
  %c = tensor.concat dim(0) %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x
      : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
      -> tensor<64x8xf32>
  %e = tensor.empty() : tensor<64x8xf32>
  %y = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<64x8xf32>) outs(%e : tensor<64x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: @many_pieces
// CHECK: %[[C:.*]] = memopt.kernel {{.*}} -> tensor<66x8xf32> {
// CHECK-NEXT: %[[STORED:.*]] = tensor.concat
// CHECK-NEXT: memopt.yield %[[STORED]]
// CHECK: memopt.kernel (%{{.*}} = %[[C]] : tensor<66x8xf32>) -> tensor<66x8xf32> {
// CHECK-NOT: tensor.concat
// CHECK: linalg.generic
func.func @many_pieces(%x: tensor<2x8xf32>) -> tensor<66x8xf32> {
  %c = tensor.concat dim(0) %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x
      : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
      -> tensor<66x8xf32>
  %e = tensor.empty() : tensor<66x8xf32>
  %y = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<66x8xf32>) outs(%e : tensor<66x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<66x8xf32>
  return %y : tensor<66x8xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>

// What is stored for a product is read there by kernels, too, if it has more than two pieces.

// CHECK-LABEL: @stored_pieces
// CHECK: %[[C:.*]] = memopt.kernel {{.*}} -> tensor<6x6xf32> {
// CHECK-NEXT: tensor.concat
// CHECK: memopt.library_call {{.*}}(%[[C]], %[[C]])
// CHECK: memopt.kernel (%{{.*}} = %[[C]] : tensor<6x6xf32>) -> tensor<6x6xf32> {
// CHECK-NOT: tensor.concat
func.func @stored_pieces(%x: tensor<2x6xf32>) -> (tensor<6x6xf32>, tensor<6x6xf32>) {
  %c = tensor.concat dim(0) %x, %x, %x : (tensor<2x6xf32>, tensor<2x6xf32>, tensor<2x6xf32>) -> tensor<6x6xf32>
  %p = memopt.matmul %c, %c : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %e = tensor.empty() : tensor<6x6xf32>
  %y = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<6x6xf32>) outs(%e : tensor<6x6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %q = arith.mulf %a, %a : f32
    linalg.yield %q : f32
  } -> tensor<6x6xf32>
  return %p, %y : tensor<6x6xf32>, tensor<6x6xf32>
}

// -----

// A sum with several results for a row is made anew for each turn of a sum that reads them: of a chain of four, one kernel makes two.

// CHECK-LABEL: @chain
// CHECK: %[[HALF:.*]] = memopt.kernel
// CHECK-COUNT-2: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: memopt.kernel (%{{.*}} = %[[HALF]]
// CHECK-COUNT-2: linalg.generic

#row = affine_map<(b, i, j) -> (b, i)>
#column = affine_map<(b, i, j) -> (b, j)>
#table = affine_map<(b, i, j) -> (i, j)>
func.func @chain(%a: tensor<3x5xf32>, %w: tensor<5x5xf32>) -> tensor<3x5xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<3x5xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
    %first = linalg.generic {indexing_maps = [#row, #table, #column], iterator_types = ["parallel", "reduction", "parallel"]} ins(%a, %w : tensor<3x5xf32>, tensor<5x5xf32>) outs(%f : tensor<3x5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5xf32>
    %second = linalg.generic {indexing_maps = [#row, #table, #column], iterator_types = ["parallel", "reduction", "parallel"]} ins(%first, %w : tensor<3x5xf32>, tensor<5x5xf32>) outs(%f : tensor<3x5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5xf32>
    %third = linalg.generic {indexing_maps = [#row, #table, #column], iterator_types = ["parallel", "reduction", "parallel"]} ins(%second, %w : tensor<3x5xf32>, tensor<5x5xf32>) outs(%f : tensor<3x5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5xf32>
    %fourth = linalg.generic {indexing_maps = [#row, #table, #column], iterator_types = ["parallel", "reduction", "parallel"]} ins(%third, %w : tensor<3x5xf32>, tensor<5x5xf32>) outs(%f : tensor<3x5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5xf32>
  return %fourth : tensor<3x5xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// Gates are slices of a sum. Each reads its part of the operands alone, so that the sum is computed where they are.

// CHECK-LABEL: @gates
// CHECK-COUNT-4: memopt.kernel (%{{.*}} : tensor<32x1024xf32>, %{{.*}} : tensor<32x1024xf32>) -> tensor<32x256xf32> {
// CHECK-NOT: memopt.kernel
// CHECK: return
func.func @gates(%a: tensor<32x1024xf32>, %b: tensor<32x1024xf32>)
    -> (tensor<32x256xf32>, tensor<32x256xf32>, tensor<32x256xf32>, tensor<32x256xf32>) {
  %e = tensor.empty() : tensor<32x1024xf32>
  %sum = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<32x1024xf32>, tensor<32x1024xf32>) outs(%e : tensor<32x1024xf32>) {
  ^bb0(%in: f32, %in1: f32, %out: f32):
    %0 = arith.addf %in, %in1 : f32
    linalg.yield %0 : f32
  } -> tensor<32x1024xf32>
  %f = tensor.empty() : tensor<32x256xf32>
  %s0 = tensor.extract_slice %sum[0, 0] [32, 256] [1, 1] : tensor<32x1024xf32> to tensor<32x256xf32>
  %r0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s0 : tensor<32x256xf32>) outs(%f : tensor<32x256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<32x256xf32>
  %s1 = tensor.extract_slice %sum[0, 256] [32, 256] [1, 1] : tensor<32x1024xf32> to tensor<32x256xf32>
  %r1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1 : tensor<32x256xf32>) outs(%f : tensor<32x256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<32x256xf32>
  %s2 = tensor.extract_slice %sum[0, 512] [32, 256] [1, 1] : tensor<32x1024xf32> to tensor<32x256xf32>
  %r2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2 : tensor<32x256xf32>) outs(%f : tensor<32x256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<32x256xf32>
  %s3 = tensor.extract_slice %sum[0, 768] [32, 256] [1, 1] : tensor<32x1024xf32> to tensor<32x256xf32>
  %r3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s3 : tensor<32x256xf32>) outs(%f : tensor<32x256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<32x256xf32>
  return %r0, %r1, %r2, %r3 : tensor<32x256xf32>, tensor<32x256xf32>, tensor<32x256xf32>, tensor<32x256xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// What backward makes again of an activation and its gradient both take an exponential of the same number: they are one
// kernel, though a product stands between them. Not so where the number is read once more behind both: its place could
// not be taken, and there would be a buffer more.

// CHECK-LABEL: @exponential_of_two
// CHECK: memopt.library_call
// CHECK: %[[BOTH:.*]]:2 = memopt.kernel {{.*}} -> (tensor<128x128xf32>, tensor<128x128xf32>)
// CHECK: memopt.library_call {{.*}}(%[[BOTH]]#0, %{{.*}})
// CHECK-NOT: memopt.kernel
func.func @exponential_of_two(%a: tensor<128x128xf32>, %w: tensor<128x128xf32>, %dy: tensor<128x128xf32>)
    -> (tensor<128x128xf32>, tensor<128x128xf32>) {
  %x = memopt.matmul %a, %w : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %e = tensor.empty() : tensor<128x128xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<128x128xf32>
  %again = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %x : tensor<128x128xf32>, tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%in: f32, %in1: f32, %out: f32):
    %0 = arith.mulf %in, %in1 : f32
    linalg.yield %0 : f32
  } -> tensor<128x128xf32>
  %dw = memopt.matmul %again, %dy : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %g = memopt.matmul %dy, %w : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %scaled = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %g : tensor<128x128xf32>, tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%in: f32, %in1: f32, %out: f32):
    %0 = arith.mulf %in, %in1 : f32
    linalg.yield %0 : f32
  } -> tensor<128x128xf32>
  %dx = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%scaled, %g : tensor<128x128xf32>, tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%in: f32, %in1: f32, %out: f32):
    %0 = arith.addf %in, %in1 : f32
    linalg.yield %0 : f32
  } -> tensor<128x128xf32>
  return %dw, %dx : tensor<128x128xf32>, tensor<128x128xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: @exponential_of_three
// CHECK: memopt.kernel {{.*}} -> tensor<128x128xf32>
// CHECK: memopt.kernel {{.*}} -> tensor<128x128xf32>
func.func @exponential_of_three(%a: tensor<128x128xf32>, %w: tensor<128x128xf32>, %dy: tensor<128x128xf32>)
    -> (tensor<128x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>) {
  %x = memopt.matmul %a, %w : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %e = tensor.empty() : tensor<128x128xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<128x128xf32>
  %again = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %a : tensor<128x128xf32>, tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%in: f32, %in1: f32, %out: f32):
    %0 = arith.mulf %in, %in1 : f32
    linalg.yield %0 : f32
  } -> tensor<128x128xf32>
  %dw = memopt.matmul %again, %dy : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %g = memopt.matmul %dy, %w : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %scaled = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %g : tensor<128x128xf32>, tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%in: f32, %in1: f32, %out: f32):
    %0 = arith.mulf %in, %in1 : f32
    linalg.yield %0 : f32
  } -> tensor<128x128xf32>
  %dx = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%scaled, %g : tensor<128x128xf32>, tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%in: f32, %in1: f32, %out: f32):
    %0 = arith.addf %in, %in1 : f32
    linalg.yield %0 : f32
  } -> tensor<128x128xf32>
  %last = memopt.matmul %dx, %x : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  return %dw, %dx, %last : tensor<128x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>
}
