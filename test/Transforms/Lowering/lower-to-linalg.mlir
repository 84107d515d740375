// RUN: memopt-opt %s --split-input-file --memopt-lower-to-linalg | FileCheck %s

// Broadcasts and splat constants become indexing maps and scalars; the phase stays on the op.

// CHECK-DAG: #[[$ROWS:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[$COLUMN:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: @elementwise
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>, %[[B:.*]]: tensor<8xf32>
// CHECK-NOT: memopt.broadcast
// CHECK: %[[SUM:.*]] = linalg.generic {indexing_maps = [#[[$ROWS]], #[[$COLUMN]], #[[$ROWS]]]
// CHECK-SAME: ins(%[[X]], %[[B]]
// CHECK: arith.addf
// CHECK: linalg.generic {indexing_maps = [#[[$ROWS]], #[[$ROWS]]]
// CHECK-SAME: ins(%[[SUM]]
// CHECK-SAME: memopt.phase = #memopt.phase<backward>
// CHECK: %[[TWO:.*]] = arith.constant 2.0
// CHECK: arith.mulf %{{.*}}, %[[TWO]]
func.func @elementwise(%x: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  %two = arith.constant dense<2.0> : tensor<4x8xf32>
  %0 = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %1 = arith.addf %x, %0 : tensor<4x8xf32>
  %2 = arith.mulf %1, %two {memopt.phase = #memopt.phase<backward>} : tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// NaN is not less than or equal to zero, so it passes.

// CHECK-LABEL: @relu
// CHECK: %[[SMALL:.*]] = arith.cmpf ole, %[[X:.*]], %[[ZERO:.*]] : f32
// CHECK: arith.select %[[SMALL]], %[[ZERO]], %[[X]] : f32
func.func @relu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = memopt.relu %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A transposed operand is read in its own order.

// CHECK: #[[$TURNED:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: @transposed
// CHECK-NOT: memopt.transpose
// CHECK: linalg.generic {indexing_maps = [#{{.*}}, #[[$TURNED]], #{{.*}}]
func.func @transposed(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> tensor<4x8xf32> {
  %0 = memopt.transpose %y {permutation = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %1 = arith.addf %x, %0 : tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// Sums over the last dimension of many rows need no chunks.

// CHECK-LABEL: @row_sums
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK-NOT: linalg.generic
func.func @row_sums(%x: tensor<64x1024xf32>) -> tensor<64xf32> {
  %0 = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 1>} : (tensor<64x1024xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// -----

// 1024 rows are cut into 16 chunks of 64, the chunks are summed up in a second stage.

// CHECK-LABEL: @column_sums
// CHECK: %[[CUT:.*]] = tensor.expand_shape %{{.*}} {{\[\[}}0, 1], [2]] {{.*}} : tensor<1024x256xf32> into tensor<16x64x256xf32>
// CHECK: %[[PART:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "parallel"]} ins(%[[CUT]]
// CHECK: -> tensor<16x256xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%[[PART]]
func.func @column_sums(%x: tensor<1024x256xf32>) -> tensor<256xf32> {
  %0 = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<1024x256xf32>) -> tensor<256xf32>
  return %0 : tensor<256xf32>
}

// -----

// Sums of bf16 accumulate in f32.

// CHECK-LABEL: @narrow_sum
// CHECK: linalg.generic
// CHECK-SAME: outs(%{{.*}} : tensor<4xf32>)
// CHECK: arith.extf
// CHECK: linalg.generic
// CHECK: arith.truncf
func.func @narrow_sum(%x: tensor<4x8xbf16>) -> tensor<4xbf16> {
  %0 = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 1>} : (tensor<4x8xbf16>) -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// -----

// Channels last: each image is a chunk with its mean and squared deviations; then both are merged.

// CHECK-LABEL: @batch_norm
// CHECK: %[[SUMS:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "reduction", "parallel"]
// CHECK: -> tensor<16x64xf32>
// CHECK: %[[MEANS:.*]] = linalg.generic {{.*}} ins(%[[SUMS]]
// CHECK: %[[SQUARES:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[MEANS]] : tensor<16x24x24x64xf32>, tensor<16x64xf32>)
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%[[MEANS]]
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%[[SQUARES]]
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel"]
func.func @batch_norm(%x: tensor<16x24x24x64xf32>, %s: tensor<64xf32>, %o: tensor<64xf32>)
    -> (tensor<16x24x24x64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %y, %m, %v = memopt.batch_norm %x, %s, %o {eps = 1.0e-5 : f64, axis = 3 : i64, operandSegmentSizes = array<i32: 1, 1, 1>}
    : (tensor<16x24x24x64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<16x24x24x64xf32>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<16x24x24x64xf32>, tensor<64xf32>, tensor<64xf32>
}

// -----

// Taps run backwards and an equal one takes over: the first among equals wins. Of two taps the second
// lies outside of the last window, where it is masked.

// CHECK-LABEL: @max_pool
// CHECK: linalg.generic
// CHECK: %[[BEST:.*]] = arith.constant 0xFF800000 : f32
// CHECK: %[[INSIDE:.*]] = arith.andi
// CHECK: %[[VALUE:.*]] = tensor.extract
// CHECK: %[[GREATER:.*]] = arith.cmpf oge, %[[VALUE]], %[[BEST]]
// CHECK: %[[NAN:.*]] = arith.cmpf uno, %[[VALUE]], %[[VALUE]]
// CHECK: arith.ori %[[GREATER]], %[[NAN]]
// CHECK: arith.constant 1 : i8
// CHECK: arith.constant 0 : i8
func.func @max_pool(%x: tensor<2x3x5xf32>) -> (tensor<2x3x3xf32>, tensor<2x3x3xi8>) {
  %y, %t = memopt.max_pool %x {kernel = array<i64: 2>, strides = array<i64: 2>, padding_low = array<i64: 0>,
    padding_high = array<i64: 1>, dilations = array<i64: 1>} : (tensor<2x3x5xf32>) -> (tensor<2x3x3xf32>, tensor<2x3x3xi8>)
  return %y, %t : tensor<2x3x3xf32>, tensor<2x3x3xi8>
}

// -----

// Bias corrections are f64 tensors of rank 0, apart from the loop over the parameter.

// CHECK-LABEL: @adam
// CHECK: linalg.generic {{.*}} iterator_types = []
// CHECK: math.powf %{{.*}}, %{{.*}} : f64
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel"]
// CHECK-NOT: f64
// CHECK: math.sqrt %{{.*}} : f32
// CHECK: linalg.yield %{{.*}}, %{{.*}}, %{{.*}} : f32, f32, f32
func.func @adam(%p: tensor<8xf32>, %g: tensor<8xf32>, %m: tensor<8xf32>, %v: tensor<8xf32>, %lr: tensor<f64>,
    %step: tensor<i64>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0:3 = memopt.optimizer_step %p, %g, %lr, %step, %m, %v {optimizer = "adam", state = ["exp_avg", "exp_avg_sq"],
      settings = {betas = array<f64: 0.9, 0.999>, eps = 1.0e-8 : f64, weight_decay = 0.0 : f64, amsgrad = 0.0 : f64}}
    : (tensor<8xf32>, tensor<8xf32>, tensor<f64>, tensor<i64>, tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
  return %0#0, %0#1, %0#2 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// What libraries compute stays, and so do views that nobody reads through a map.

// CHECK-LABEL: @stays
// CHECK: memopt.matmul
// CHECK: memopt.transpose
func.func @stays(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x4xf32> {
  %0 = memopt.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = memopt.transpose %0 {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// -----

// How many elements a mean divides by is known from the shape alone, and stands where it is used.
// CHECK-LABEL: func.func @mean
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>
// CHECK-NOT: memopt.count
// CHECK: linalg.generic
// CHECK-SAME: "reduction"
// CHECK: linalg.generic
// CHECK: %[[N:.*]] = arith.constant 3.200000e+01 : f32
// CHECK: arith.divf %{{.*}}, %[[N]]
func.func @mean(%x: tensor<4x8xf32>) -> tensor<f32> {
  %sum = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  %n = memopt.count %x {dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  %mean = arith.divf %sum, %n : tensor<f32>
  return %mean : tensor<f32>
}

// -----

// Parameters that change and a buffer that keeps what one was need a copy; so do two that change places.
memopt.variable @a : tensor<4xf32> role <buffer>
memopt.variable @b : tensor<2x2xf32> role <buffer>
// CHECK-LABEL: func.func @exchange
// CHECK: %[[A:.*]] = memopt.read @a
// CHECK: %[[B:.*]] = memopt.read @b
// CHECK: %[[SQUARE:.*]] = tensor.expand_shape %[[A]]
// CHECK: %[[COPY:.*]] = linalg.generic {{.*}} ins(%[[SQUARE]]
// CHECK: memopt.write %[[COPY]], @b
// CHECK: %[[OTHER:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<4xf32>)
// CHECK: memopt.write %[[OTHER]], @a
func.func @exchange() {
  %a = memopt.read @a : tensor<4xf32>
  %b = memopt.read @b : tensor<2x2xf32>
  %square = tensor.expand_shape %a [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
  %row = tensor.collapse_shape %b [[0, 1]] : tensor<2x2xf32> into tensor<4xf32>
  memopt.write %square, @b : tensor<2x2xf32>
  memopt.write %row, @a : tensor<4xf32>
  return
}

// -----

// A vector of small tensors is their concatenation, with zeros between and behind them.
// CHECK-LABEL: func.func @pack
func.func @pack(%a: tensor<2x5xf32>, %b: tensor<16xf32>) -> (tensor<48xf32>, tensor<4x4xf32>) {
  // CHECK: %[[A:.*]] = tensor.collapse_shape %arg0
  // CHECK-DAG: %[[GAP:.*]] = arith.constant dense<0.000000e+00> : tensor<6xf32>
  // CHECK-DAG: %[[END:.*]] = arith.constant dense<0.000000e+00> : tensor<16xf32>
  // CHECK: %[[ALL:.*]] = tensor.concat dim(0) %[[A]], %[[GAP]], %arg1, %[[END]]
  %0 = memopt.pack %a, %b at [0, 16] : (tensor<2x5xf32>, tensor<16xf32>) -> tensor<48xf32>
  // CHECK: %[[PART:.*]] = tensor.extract_slice %[[ALL]][16] [16] [1]
  // CHECK: tensor.expand_shape %[[PART]]
  %1 = memopt.unpack %0 from 16 : tensor<48xf32> -> tensor<4x4xf32>
  return %0, %1 : tensor<48xf32>, tensor<4x4xf32>
}
