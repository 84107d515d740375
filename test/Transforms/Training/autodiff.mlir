// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s

// Gradients flow back through the chain; each is marked where it is complete. The input needs none, so the
// first layer has no product for it.

// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[X:.*]]: tensor<2x8xf32>
func.func @train_step(%x: tensor<2x8xf32>) -> tensor<f32> {
  // CHECK: %[[W1:.*]] = memopt.read @w1
  // CHECK: %[[W2:.*]] = memopt.read @w2
  %w1 = memopt.read @w1 : tensor<16x8xf32>
  %w2 = memopt.read @w2 : tensor<4x16xf32>
  // CHECK: %[[H:.*]] = memopt.matmul %[[X]], %[[W1]]
  %0 = memopt.matmul %x, %w1 {transpose_b} : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %1 = memopt.matmul %0, %w2 {transpose_b} : (tensor<2x16xf32>, tensor<4x16xf32>) -> tensor<2x4xf32>
  %2 = arith.mulf %1, %1 : tensor<2x4xf32>
  %3 = memopt.reduce %2 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  // The square uses its operand twice: two contributions are added up, those of a constant one folded.
  // CHECK: %[[G:.*]] = arith.addf %[[Y:.*]], %[[Y]] {memopt.phase = #memopt.phase<backward>} : tensor<2x4xf32>
  // CHECK: %[[DH:.*]] = memopt.matmul %[[G]], %[[W2]]
  // CHECK: %[[DW2:.*]] = memopt.matmul %[[G]], %[[H]] {{.*}}transpose_a
  // CHECK-NEXT: memopt.gradient %[[DW2]], @w2
  // CHECK: %[[DW1:.*]] = memopt.matmul %[[DH]], %[[X]] {{.*}}transpose_a
  // CHECK-NEXT: memopt.gradient %[[DW1]], @w1
  // CHECK-NEXT: return %{{.*}} : tensor<f32>
  return %3 : tensor<f32>
}
memopt.variable @w1 : tensor<16x8xf32> role <parameter> {trainable}
memopt.variable @w2 : tensor<4x16xf32> role <parameter> {trainable}

// -----

// A tied weight is one variable: the gradients of all reads and uses add up.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[A:.*]]: tensor<4xf32>, %[[B:.*]]: tensor<4xf32>
func.func @train_step(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<f32> {
  %0 = memopt.read @w : tensor<4xf32>
  %1 = arith.mulf %0, %a : tensor<4xf32>
  %2 = memopt.read @w : tensor<4xf32>
  %3 = arith.mulf %2, %b : tensor<4xf32>
  %4 = arith.addf %1, %3 : tensor<4xf32>
  %5 = memopt.reduce %4 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: %[[SUM:.*]] = arith.addf %[[B]], %[[A]] {memopt.phase = #memopt.phase<backward>}
  // CHECK-NEXT: memopt.gradient %[[SUM]], @w
  // CHECK-NOT: memopt.gradient
  return %5 : tensor<f32>
}

// -----

// What is frozen, a buffer, or not on the way to the loss gets no gradient. Buffers updated in the forward
// pass stay as they are.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
memopt.variable @frozen : tensor<4xf32> role <parameter>
memopt.variable @elsewhere : tensor<4xf32> role <parameter> {trainable}
memopt.variable @running : tensor<4xf32> role <buffer>
// CHECK-LABEL: func.func @train_step
func.func @train_step() -> (tensor<f32> {memopt.role = "loss"}, tensor<4xf32>) {
  %0 = memopt.read @w : tensor<4xf32>
  // CHECK: %[[FROZEN:.*]] = memopt.read @frozen
  %1 = memopt.read @frozen : tensor<4xf32>
  %2 = memopt.read @elsewhere : tensor<4xf32>
  %3 = memopt.read @running : tensor<4xf32>
  %4 = arith.mulf %0, %1 : tensor<4xf32>
  %5 = arith.addf %3, %4 : tensor<4xf32>
  // CHECK: memopt.write %{{.*}}, @running
  memopt.write %5, @running : tensor<4xf32>
  %6 = memopt.reduce %4 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %7 = arith.addf %2, %4 : tensor<4xf32>
  // CHECK-NOT: memopt.gradient
  // CHECK-NOT: arith.mulf {{.*}}backward
  // The gradient is the frozen parameter itself; it is marked where that value begins to exist.
  return %6, %7 : tensor<f32>, tensor<4xf32>
}

// -----

// Operands that hold no real numbers have no gradient, and a comparison ends the way: the gradient of
// select reaches its two values only.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step(%x: tensor<4xf32>, %n: tensor<4xi64>) -> tensor<f32> {
  %0 = memopt.read @w : tensor<4xf32>
  // CHECK: %[[LESS:.*]] = arith.cmpf olt
  %1 = arith.cmpf olt, %0, %x : tensor<4xf32>
  %2 = arith.sitofp %n : tensor<4xi64> to tensor<4xf32>
  %3 = arith.select %1, %0, %2 : tensor<4xi1>, tensor<4xf32>
  %4 = memopt.reduce %3 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: %[[D:.*]] = arith.select %[[LESS]], %{{.*}}, %{{.*}} {memopt.phase = #memopt.phase<backward>}
  // CHECK-NEXT: memopt.gradient %[[D]], @w
  // CHECK-NOT: arith.select
  return %4 : tensor<f32>
}

// -----

// A parameter whose gradient is zero everywhere gets zeros, as in PyTorch, so that weight decay acts on it.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<4xf32>
  %1 = math.floor %0 : tensor<4xf32>
  %2 = memopt.reduce %1 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<4xf32>
  // CHECK-NEXT: memopt.gradient %[[ZERO]], @w
  return %2 : tensor<f32>
}

// -----

// Gradients of slices that make up the whole are put side by side, not padded and added up.

memopt.variable @w : tensor<2x6xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<2x6xf32>
  // CHECK: %[[Q:.*]] = math.exp
  // CHECK: %[[V:.*]] = math.exp
  %1 = tensor.extract_slice %0[0, 0] [2, 2] [1, 1] : tensor<2x6xf32> to tensor<2x2xf32>
  %2 = tensor.extract_slice %0[0, 2] [2, 4] [1, 1] : tensor<2x6xf32> to tensor<2x4xf32>
  %3 = math.exp %1 : tensor<2x2xf32>
  %4 = math.exp %2 : tensor<2x4xf32>
  %5 = memopt.reduce %3 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x2xf32>) -> tensor<f32>
  %6 = memopt.reduce %4 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  %7 = arith.addf %5, %6 : tensor<f32>
  // CHECK-NOT: memopt.pad
  // CHECK: %[[D:.*]] = tensor.concat dim(1) %[[Q]], %[[V]] {memopt.phase = #memopt.phase<backward>}
  // CHECK-NEXT: memopt.gradient %[[D]], @w
  return %7 : tensor<f32>
}

// -----

// With a hole between them, slices are padded and added up.

memopt.variable @w : tensor<6xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<6xf32>
  %1 = tensor.extract_slice %0[0] [2] [1] : tensor<6xf32> to tensor<2xf32>
  %2 = tensor.extract_slice %0[4] [2] [1] : tensor<6xf32> to tensor<2xf32>
  %3 = arith.mulf %1, %2 : tensor<2xf32>
  %4 = memopt.reduce %3 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  // CHECK-DAG: %[[A:.*]] = memopt.pad %{{.*}} {high = array<i64: 4>, low = array<i64: 0>
  // CHECK-DAG: %[[B:.*]] = memopt.pad %{{.*}} {high = array<i64: 0>, low = array<i64: 4>
  // CHECK: %[[D:.*]] = arith.addf %[[B]], %[[A]] {memopt.phase = #memopt.phase<backward>}
  // CHECK-NEXT: memopt.gradient %[[D]], @w
  return %4 : tensor<f32>
}

// -----

// The count of a cross entropy divides the gradient and gets none: what would compute it is gone.

memopt.variable @w : tensor<2x4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %{{.*}}: tensor<2xi64>
func.func @train_step(%t: tensor<2xi64>) -> (tensor<f32>, tensor<f32>) {
  %0 = memopt.read @w : tensor<2x4xf32>
  // CHECK: %{{.*}}, %[[COUNT:.*]], %[[MAX:.*]], %[[SUM:.*]] = memopt.cross_entropy
  %1, %2, %3:2 = memopt.cross_entropy %0, %t : (tensor<2x4xf32>, tensor<2xi64>) -> (tensor<f32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>)
  %4 = arith.divf %1, %2 : tensor<f32>
  // CHECK: %[[ONE:.*]] = arith.constant dense<1.000000e+00> : tensor<f32>
  // CHECK-NEXT: %[[G:.*]] = arith.divf %[[ONE]], %[[COUNT]] {memopt.phase = #memopt.phase<backward>}
  // CHECK-NEXT: %[[D:.*]] = memopt.cross_entropy_backward %{{.*}}, %{{.*}}, %[[MAX]], %[[SUM]], %[[G]]
  // CHECK-NEXT: memopt.gradient %[[D]], @w
  return %4, %1 : tensor<f32>, tensor<f32>
}
