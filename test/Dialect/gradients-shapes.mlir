// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s

// What was repeated is summed, sizes of one come back.

memopt.variable @a : tensor<2x1x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<5x2x4x3xf32>
func.func @train_step(%g: tensor<5x2x4x3xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x1x3xf32>
  %y = memopt.broadcast %a {dimensions = array<i64: 1, 2, 3>} : (tensor<2x1x3xf32>) -> tensor<5x2x4x3xf32>
  %weighted = arith.mulf %y, %g : tensor<5x2x4x3xf32>
  // CHECK: %[[S:.*]] = memopt.reduce %[[G]] {dimensions = array<i64: 0, 2>, kind = #memopt.reduce<add>
  // CHECK-NEXT: %[[D:.*]] = tensor.expand_shape %[[S]] {{\[\[}}0], [1, 2]{{\]}}
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : (tensor<5x2x4x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A transposition is undone.

memopt.variable @a : tensor<2x3x4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4x2x3xf32>
func.func @train_step(%g: tensor<4x2x3xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x3x4xf32>
  %y = memopt.transpose %a {permutation = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %weighted = arith.mulf %y, %g : tensor<4x2x3xf32>
  // CHECK: %[[D:.*]] = memopt.transpose %[[G]] {memopt.phase = #memopt.phase<backward>, permutation = array<i64: 1, 2, 0>}
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2>} : (tensor<4x2x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A sum repeats the gradient.

memopt.variable @a : tensor<2x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<3xf32>
func.func @train_step(%g: tensor<3xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x3xf32>
  %y = memopt.reduce %a {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<3xf32>
  %weighted = arith.mulf %y, %g : tensor<3xf32>
  // CHECK: %[[D:.*]] = memopt.broadcast %[[G]] {dimensions = array<i64: 1>
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// The gradient of a maximum is shared equally among ties, and among NaNs where there are any: their number divides it.

memopt.variable @a : tensor<2x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2xf32>
func.func @train_step(%g: tensor<2xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x3xf32>
  // CHECK: %[[Y:.*]] = memopt.reduce
  %y = memopt.reduce %a {kind = #memopt.reduce<max>, dimensions = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  %weighted = arith.mulf %y, %g : tensor<2xf32>
  // CHECK: %[[ALL:.*]] = memopt.broadcast %[[Y]]
  // CHECK: %[[EQUAL:.*]] = arith.cmpf oeq, %[[A]], %[[ALL]]
  // CHECK: %[[NAN:.*]] = arith.cmpf uno, %[[A]], %[[A]]
  // CHECK: %[[TIE:.*]] = arith.ori %[[EQUAL]], %[[NAN]]
  // CHECK: %[[ONES:.*]] = arith.select %[[TIE]]
  // CHECK: %[[COUNT:.*]] = memopt.reduce %[[ONES]]
  // CHECK: %[[SHARE:.*]] = arith.divf %[[G]], %[[COUNT]]
  // CHECK: %[[SHARES:.*]] = memopt.broadcast %[[SHARE]]
  // CHECK: %[[D:.*]] = arith.select %[[TIE]], %[[SHARES]], %{{.*}}
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Padding is cut off.

memopt.variable @a : tensor<2x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<3x5xf32>
func.func @train_step(%g: tensor<3x5xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x3xf32>
  %y = memopt.pad %a {low = array<i64: 1, 0>, high = array<i64: 0, 2>} : (tensor<2x3xf32>) -> tensor<3x5xf32>
  %weighted = arith.mulf %y, %g : tensor<3x5xf32>
  // CHECK: %[[D:.*]] = tensor.extract_slice %[[G]][1, 0] [2, 3] [1, 1]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<3x5xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A slice is padded, after its dropped dimension came back.

memopt.variable @a : tensor<4x5xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<3xf32>
func.func @train_step(%g: tensor<3xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4x5xf32>
  %y = tensor.extract_slice %a[2, 1] [1, 3] [1, 1] : tensor<4x5xf32> to tensor<3xf32>
  %weighted = arith.mulf %y, %g : tensor<3xf32>
  // CHECK: %[[ROW:.*]] = tensor.expand_shape %[[G]]
  // CHECK: %[[D:.*]] = memopt.pad %[[ROW]] {high = array<i64: 1, 1>, low = array<i64: 2, 1>
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// The elements of a strided slice move apart again: each gets its zeros as a dimension of its own. What
// would reach beyond the source is cut off.

memopt.variable @a : tensor<5xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2xf32>
func.func @train_step(%g: tensor<2xf32>) -> tensor<f32> {
  %a = memopt.read @a : tensor<5xf32>
  %y = tensor.extract_slice %a[1] [2] [3] : tensor<5xf32> to tensor<2xf32>
  %weighted = arith.mulf %y, %g : tensor<2xf32>
  // CHECK: %[[APART:.*]] = tensor.expand_shape %[[G]] {{.*}} into tensor<2x1xf32>
  // CHECK: %[[ZEROS:.*]] = memopt.pad %[[APART]] {high = array<i64: 0, 2>, low = array<i64: 0, 0>
  // CHECK: %[[LONG:.*]] = tensor.collapse_shape %[[ZEROS]] {{.*}} into tensor<6xf32>
  // CHECK: %[[PART:.*]] = tensor.extract_slice %[[LONG]][0] [4] [1]
  // CHECK: %[[D:.*]] = memopt.pad %[[PART]] {high = array<i64: 0>, low = array<i64: 1>
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Reshapes rename.

memopt.variable @a : tensor<6x4xf32> role <parameter> {trainable}
memopt.variable @b : tensor<2x3x4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x12xf32>
func.func @train_step(%g: tensor<2x12xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<6x4xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<2x3x4xf32>
  %e = tensor.expand_shape %a [[0, 1], [2]] output_shape [2, 3, 4] : tensor<6x4xf32> into tensor<2x3x4xf32>
  %s = arith.addf %e, %b : tensor<2x3x4xf32>
  %y = tensor.collapse_shape %s [[0], [1, 2]] : tensor<2x3x4xf32> into tensor<2x12xf32>
  %weighted = arith.mulf %y, %g : tensor<2x12xf32>
  // CHECK: %[[DB:.*]] = tensor.expand_shape %[[G]] {{\[\[}}0], [1, 2]{{\]}}
  // CHECK-NEXT: memopt.gradient %[[DB]], @b
  // CHECK-NEXT: %[[DA:.*]] = tensor.collapse_shape %[[DB]] {{\[\[}}0, 1], [2]{{\]}}
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x12xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// What was put side by side is cut apart; nobody cuts out what needs no gradient.

memopt.variable @a : tensor<2x1xf32> role <parameter> {trainable}
memopt.variable @b : tensor<2x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x6xf32>
func.func @train_step(%g: tensor<2x6xf32>, %x: tensor<2x2xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x1xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<2x3xf32>
  %y = tensor.concat dim(1) %a, %x, %b : (tensor<2x1xf32>, tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  %weighted = arith.mulf %y, %g : tensor<2x6xf32>
  // CHECK: %[[DA:.*]] = tensor.extract_slice %[[G]][0, 0] [2, 1] [1, 1]
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  // CHECK-NEXT: %[[DB:.*]] = tensor.extract_slice %[[G]][0, 3] [2, 3] [1, 1]
  // CHECK-NEXT: memopt.gradient %[[DB]], @b
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x6xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Rows that were picked collect their gradients in the table.

memopt.variable @a : tensor<5x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4x3xf32>
func.func @train_step(%g: tensor<4x3xf32>, %i: tensor<4xi64>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<5x3xf32>
  %y = memopt.embedding %a, %i {padding_index = 2 : i64} : (tensor<5x3xf32>, tensor<4xi64>) -> tensor<4x3xf32>
  %weighted = arith.mulf %y, %g : tensor<4x3xf32>
  // CHECK: %[[D:.*]] = memopt.embedding_backward %[[G]], %{{.*}} {memopt.phase = #memopt.phase<backward>, padding_index = 2 : i64} : (tensor<4x3xf32>, tensor<4xi64>) -> tensor<5x3xf32>
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
