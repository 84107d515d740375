// RUN: memopt-opt %s --memopt-mixed-precision="type=bf16" --split-input-file | FileCheck %s
// RUN: memopt-opt %s --memopt-mixed-precision="type=fp16" --split-input-file | FileCheck %s --check-prefix=HALF
// RUN: memopt-opt %s --memopt-mixed-precision="type=f32" --split-input-file | FileCheck %s --check-prefix=SAME

// Operands of a product are rounded where they are, the result behind its bias. Parameters stay f32.

memopt.variable @w : tensor<8x4xf32> role <parameter> {trainable}
memopt.variable @b : tensor<8xf32> role <parameter> {trainable}

// CHECK: memopt.variable @w : tensor<8x4xf32>
// CHECK-LABEL: func.func @linear(
// CHECK-SAME:  %[[X:.*]]: tensor<2x4xf32>
// HALF-LABEL: func.func @linear(
// SAME-LABEL: func.func @linear(
func.func @linear(%x: tensor<2x4xf32>) -> tensor<2x8xf32> {
  // CHECK-DAG: %[[XN:.*]] = arith.truncf %[[X]] : tensor<2x4xf32> to tensor<2x4xbf16>
  // CHECK-DAG: %[[W:.*]] = memopt.read @w
  // CHECK-DAG: %[[WN:.*]] = arith.truncf %[[W]] : tensor<8x4xf32> to tensor<8x4xbf16>
  %w = memopt.read @w : tensor<8x4xf32>
  %b = memopt.read @b : tensor<8xf32>
  // CHECK: %[[P:.*]] = memopt.matmul %[[XN]], %[[WN]] {transpose_b} : (tensor<2x4xbf16>, tensor<8x4xbf16>) -> tensor<2x8xf32>
  // HALF: memopt.matmul {{.*}} : (tensor<2x4xf16>, tensor<8x4xf16>) -> tensor<2x8xf32>
  // SAME: memopt.matmul {{.*}} : (tensor<2x4xf32>, tensor<8x4xf32>) -> tensor<2x8xf32>
  // SAME-NOT: truncf
  %0 = memopt.matmul %x, %w {transpose_b} : (tensor<2x4xf32>, tensor<8x4xf32>) -> tensor<2x8xf32>
  %1 = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<2x8xf32>
  // CHECK: %[[S:.*]] = arith.addf %[[P]], %{{.*}} : tensor<2x8xf32>
  // CHECK: %[[R:.*]] = arith.truncf %[[S]] : tensor<2x8xf32> to tensor<2x8xbf16>
  // CHECK: %[[Y:.*]] = arith.extf %[[R]]
  %2 = arith.addf %0, %1 : tensor<2x8xf32>
  // CHECK: return %[[Y]]
  return %2 : tensor<2x8xf32>
}

// -----

// Ops with a narrow form take it when all that they read is rounded, and hand it on without a cast.
// A batch norm's scale and statistics stay f32.

memopt.variable @w : tensor<4x4x1x1xf32> role <parameter> {trainable}
memopt.variable @s : tensor<4xf32> role <parameter> {trainable}

// CHECK-LABEL: func.func @followers(
func.func @followers(%x: tensor<2x4x6x6xf32>) -> (tensor<2x4x6x6xf32>, tensor<4xf32>) {
  %w = memopt.read @w : tensor<4x4x1x1xf32>
  %s = memopt.read @s : tensor<4xf32>
  // CHECK: %[[C:.*]] = memopt.convolution {{.*}} -> tensor<2x4x6x6xf32>
  // CHECK: %[[CN:.*]] = arith.truncf %[[C]]
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x4x6x6xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x6x6xf32>
  // CHECK: %[[N:[^,]*]], %{{.*}}, %{{.*}} = memopt.batch_norm %[[CN]], {{.*}} : (tensor<2x4x6x6xbf16>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4x6x6xbf16>, tensor<4xf32>, tensor<4xf32>)
  %1:3 = memopt.batch_norm %0, %s, %s {eps = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<2x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: %[[R:.*]] = memopt.relu %[[N]] : tensor<2x4x6x6xbf16>
  %2 = memopt.relu %1#0 : tensor<2x4x6x6xf32>
  // CHECK-NOT: truncf
  // CHECK: memopt.convolution %[[R]], {{.*}} : (tensor<2x4x6x6xbf16>, tensor<4x4x1x1xbf16>) -> tensor<2x4x6x6xf32>
  %3 = memopt.convolution %2, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x4x6x6xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x6x6xf32>
  return %3, %1#1 : tensor<2x4x6x6xf32>, tensor<4xf32>
}

// -----

// A sum with an f32 value is f32: its reader in f32 reads it as it is, only the product a rounded one.

memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable}

// CHECK-LABEL: func.func @residual(
// CHECK-SAME:  %[[X:.*]]: tensor<2x4xf32>
func.func @residual(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %0 = memopt.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  // CHECK: %[[SUM:.*]] = arith.addf %[[X]], %{{.*}} : tensor<2x4xf32>
  // CHECK: %[[NARROW:.*]] = arith.truncf %[[SUM]]
  %1 = arith.addf %x, %0 : tensor<2x4xf32>
  // CHECK: memopt.matmul %[[NARROW]]
  %2 = memopt.matmul %1, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  // CHECK: arith.addf %[[SUM]], %{{.*}} : tensor<2x4xf32>
  %3 = arith.addf %1, %2 : tensor<2x4xf32>
  return %3 : tensor<2x4xf32>
}

// -----

// A sum of rounded values alone is rounded where a product reads it, and everybody reads the same one.

memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable}

// CHECK-LABEL: func.func @narrow_residual(
func.func @narrow_residual(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %0 = memopt.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = math.tanh %0 : tensor<2x4xf32>
  // CHECK: %[[SUM:.*]] = arith.addf %{{.*}}, %{{.*}} : tensor<2x4xf32>
  // CHECK: %[[NARROW:.*]] = arith.truncf %[[SUM]]
  // CHECK: %[[WIDE:.*]] = arith.extf %[[NARROW]]
  %2 = arith.addf %0, %1 : tensor<2x4xf32>
  // CHECK: memopt.matmul %[[NARROW]]
  %3 = memopt.matmul %2, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  // CHECK: arith.addf %[[WIDE]], %{{.*}} : tensor<2x4xf32>
  %4 = arith.addf %2, %3 : tensor<2x4xf32>
  return %4 : tensor<2x4xf32>
}

// -----

// Views are taken of the rounded value: the cast is made once, where the value is.

memopt.variable @w : tensor<8x24xf32> role <parameter> {trainable}

// CHECK-LABEL: func.func @views(
func.func @views(%x: tensor<4x8xf32>) -> tensor<1x4x2x4xf32> {
  %w = memopt.read @w : tensor<8x24xf32>
  %0 = memopt.matmul %x, %w : (tensor<4x8xf32>, tensor<8x24xf32>) -> tensor<4x24xf32>
  // CHECK: memopt.matmul
  // CHECK: %[[QKV:.*]] = arith.truncf
  // CHECK-NOT: truncf
  // CHECK: tensor.extract_slice {{.*}} : tensor<4x24xbf16> to tensor<4x8xbf16>
  %q = tensor.extract_slice %0[0, 0] [4, 8] [1, 1] : tensor<4x24xf32> to tensor<4x8xf32>
  %k = tensor.extract_slice %0[0, 8] [4, 8] [1, 1] : tensor<4x24xf32> to tensor<4x8xf32>
  %v = tensor.extract_slice %0[0, 16] [4, 8] [1, 1] : tensor<4x24xf32> to tensor<4x8xf32>
  %q4 = tensor.expand_shape %q [[0, 1, 2], [3]] output_shape [1, 2, 2, 8] : tensor<4x8xf32> into tensor<1x2x2x8xf32>
  %k4 = tensor.expand_shape %k [[0, 1, 2], [3]] output_shape [1, 2, 2, 8] : tensor<4x8xf32> into tensor<1x2x2x8xf32>
  %v4 = tensor.expand_shape %v [[0, 1, 2], [3]] output_shape [1, 2, 2, 8] : tensor<4x8xf32> into tensor<1x2x2x8xf32>
  // CHECK: memopt.attention {{.*}} -> (tensor<1x2x2x8xbf16>, tensor<1x2x2xf32>)
  %1:2 = memopt.attention %q4, %k4, %v4 {causal, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 0.5 : f64} : (tensor<1x2x2x8xf32>, tensor<1x2x2x8xf32>, tensor<1x2x2x8xf32>) -> (tensor<1x2x2x8xf32>, tensor<1x2x2xf32>)
  %2 = memopt.transpose %1#0 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<1x2x2x8xf32>) -> tensor<1x2x2x8xf32>
  %3 = tensor.collapse_shape %2 [[0, 1], [2, 3]] : tensor<1x2x2x8xf32> into tensor<2x16xf32>
  %4 = tensor.expand_shape %3 [[0, 1], [2, 3]] output_shape [1, 2, 4, 4] : tensor<2x16xf32> into tensor<1x2x4x4xf32>
  %5 = memopt.transpose %4 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<1x2x4x4xf32>) -> tensor<1x4x2x4xf32>
  return %5 : tensor<1x4x2x4xf32>
}

// -----

// A product of what no parameter and no input of numbers reaches is left alone: positions up to
// thousands are no bf16 numbers.

// CHECK-LABEL: func.func @tables(
func.func @tables(%positions: tensor<4x1xi64>) -> tensor<4x8xf32> {
  %frequencies = arith.constant dense<0.5> : tensor<1x8xf32>
  %0 = arith.sitofp %positions : tensor<4x1xi64> to tensor<4x1xf32>
  // CHECK: memopt.matmul {{.*}} : (tensor<4x1xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
  %1 = memopt.matmul %0, %frequencies : (tensor<4x1xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func.func @double(
func.func @double(%x: tensor<4x4xf64>) -> tensor<4x4xf64> {
  // CHECK: memopt.matmul {{.*}} -> tensor<4x4xf64>
  %0 = memopt.matmul %x, %x : (tensor<4x4xf64>, tensor<4x4xf64>) -> tensor<4x4xf64>
  return %0 : tensor<4x4xf64>
}

// -----

// Values that are joined for a product, of which one is a product's: that one is rounded once, for all who read it.

// CHECK-LABEL: func.func @joined(
// CHECK-SAME:  %[[X:.*]]: tensor<4x4xf32>
func.func @joined(%x: tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {
  // CHECK-DAG: %[[NARROW:.*]] = arith.truncf %[[X]]
  // CHECK: %[[PRODUCT:.*]] = memopt.matmul
  // CHECK: %[[ROUNDED:.*]] = arith.truncf %{{.*}} : tensor<4x4xf32> to tensor<4x4xbf16>
  %0 = memopt.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = math.cos %0 : tensor<4x4xf32>
  // CHECK: tensor.concat dim(1) %{{.*}}, %[[NARROW]] : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x8xbf16>
  %2 = tensor.concat dim(1) %1, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
  %w = arith.constant dense<0.5> : tensor<8x8xf32>
  %3 = memopt.matmul %2, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %3, %1 : tensor<4x8xf32>, tensor<4x4xf32>
}
