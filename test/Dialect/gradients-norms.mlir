// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s

// Batch norm and layer norm have gradient ops; absent affine operands stay absent.

memopt.variable @a : tensor<2x3x4xf32> role <parameter> {trainable}
memopt.variable @s : tensor<3xf32> role <parameter> {trainable}
memopt.variable @o : tensor<3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x3x4xf32>
func.func @train_step(%g: tensor<2x3x4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x3x4xf32>
  // CHECK: %[[S:.*]] = memopt.read @s
  %s = memopt.read @s : tensor<3xf32>
  // CHECK: %[[O:.*]] = memopt.read @o
  %o = memopt.read @o : tensor<3xf32>
  // CHECK: %{{.*}}, %[[MEAN:.*]], %[[VAR:.*]] = memopt.batch_norm
  %y, %m, %v = memopt.batch_norm %a, %s, %o {eps = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, 1, 1>}
    : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
  %weighted = arith.mulf %y, %g : tensor<2x3x4xf32>
  // CHECK: %[[DA:[^,]*]], %[[DS:[^,]*]], %[[DO:[^,]*]] = memopt.batch_norm_backward %[[G]], %[[A]], %[[S]], %[[MEAN]], %[[VAR]]
  // CHECK-DAG: memopt.gradient %[[DA]], @a
  // CHECK-DAG: memopt.gradient %[[DS]], @s
  // CHECK-DAG: memopt.gradient %[[DO]], @o
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2>} : (tensor<2x3x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// The offset is operand 1 when there is no scale.

memopt.variable @o : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x4xf32>
func.func @train_step(%g: tensor<2x4xf32>, %x: tensor<2x4xf32>) -> tensor<f32> {
  // CHECK: %[[O:.*]] = memopt.read @o
  %o = memopt.read @o : tensor<4xf32>
  %y, %m, %v = memopt.layer_norm %x, %o {eps = 1.0e-5 : f64, begin = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 1>}
    : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>, tensor<2xf32>)
  %weighted = arith.mulf %y, %g : tensor<2x4xf32>
  // CHECK: %{{[^,]*}}, %{{[^,]*}}, %[[DO:[^,]*]] = memopt.layer_norm_backward %[[G]]
  // CHECK-NEXT: memopt.gradient %[[DO]], @o
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A group is two adjacent dimensions of a view; sums over it, then over all but the channel.

memopt.variable @s : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x4x3xf32>
func.func @train_step(%g: tensor<2x4x3xf32>, %x: tensor<2x4x3xf32>) -> tensor<f32> {
  // CHECK: %[[S:.*]] = memopt.read @s
  %s = memopt.read @s : tensor<4xf32>
  // CHECK: %{{.*}}, %[[MEAN:.*]], %[[R:.*]] = memopt.group_norm
  %y, %m, %r = memopt.group_norm %x, %s {eps = 1.0e-5 : f64, groups = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 0>}
    : (tensor<2x4x3xf32>, tensor<4xf32>) -> (tensor<2x4x3xf32>, tensor<2x2xf32>, tensor<2x2xf32>)
  %weighted = arith.mulf %y, %g : tensor<2x4x3xf32>
  // CHECK-DAG: %[[GV:.*]] = tensor.expand_shape %[[G]] {{\[\[}}0], [1, 2], [3]{{\]}} output_shape [2, 2, 2, 3]
  // CHECK-DAG: %[[RS:.*]] = memopt.broadcast %[[R]] {dimensions = array<i64: 0, 1>
  // CHECK-DAG: %[[MS:.*]] = memopt.broadcast %[[MEAN]] {dimensions = array<i64: 0, 1>
  // CHECK: %[[C:.*]] = arith.subf %{{.*}}, %[[MS]]
  // CHECK: %[[XHAT:.*]] = arith.mulf %[[C]], %[[RS]]
  // CHECK: %[[P:.*]] = arith.mulf %[[GV]], %[[XHAT]]
  // CHECK: %[[SUM:.*]] = memopt.reduce %[[P]] {dimensions = array<i64: 0, 3>
  // CHECK: %[[D:.*]] = tensor.collapse_shape %[[SUM]]
  // CHECK-NEXT: memopt.gradient %[[D]], @s
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2>} : (tensor<2x4x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// RMS norm computes its deviation again, from what must be kept anyway.

memopt.variable @s : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x4xf32>
func.func @train_step(%g: tensor<2x4xf32>, %x: tensor<2x4xf32>) -> tensor<f32> {
  // CHECK: %[[S:.*]] = memopt.read @s
  %s = memopt.read @s : tensor<4xf32>
  %y = memopt.rms_norm %x, %s {eps = 1.0e-5 : f64, begin = 1 : i64} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %weighted = arith.mulf %y, %g : tensor<2x4xf32>
  // CHECK: %[[SQ:.*]] = arith.mulf %arg1, %arg1
  // CHECK: memopt.reduce %[[SQ]] {dimensions = array<i64: 1>
  // CHECK: %[[R:.*]] = math.rsqrt
  // CHECK: %[[RS:.*]] = memopt.broadcast %[[R]] {dimensions = array<i64: 0>
  // CHECK: %[[XHAT:.*]] = arith.mulf %arg1, %[[RS]]
  // CHECK: %[[P:.*]] = arith.mulf %[[G]], %[[XHAT]]
  // CHECK: %[[D:.*]] = memopt.reduce %[[P]] {dimensions = array<i64: 0>
  // CHECK-NEXT: memopt.gradient %[[D]], @s
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Softmax: y (g - sum g y).

memopt.variable @a : tensor<2x4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x4xf32>
func.func @train_step(%g: tensor<2x4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x4xf32>
  // CHECK: %[[Y:.*]] = memopt.softmax
  %y = memopt.softmax %a {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %weighted = arith.mulf %y, %g : tensor<2x4xf32>
  // CHECK: %[[GY:.*]] = arith.mulf %[[G]], %[[Y]] {memopt.phase
  // CHECK: %[[S:.*]] = memopt.reduce %[[GY]] {dimensions = array<i64: 1>
  // CHECK: %[[SS:.*]] = memopt.broadcast %[[S]]
  // CHECK: %[[C:.*]] = arith.subf %[[G]], %[[SS]]
  // CHECK: %[[D:.*]] = arith.mulf %[[Y]], %[[C]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Log softmax: g - exp(y) sum g.

memopt.variable @a : tensor<2x4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x4xf32>
func.func @train_step(%g: tensor<2x4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x4xf32>
  // CHECK: %[[Y:.*]] = memopt.log_softmax
  %y = memopt.log_softmax %a {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %weighted = arith.mulf %y, %g : tensor<2x4xf32>
  // CHECK-DAG: %[[E:.*]] = math.exp %[[Y]]
  // CHECK-DAG: %[[S:.*]] = memopt.reduce %[[G]] {dimensions = array<i64: 1>
  // CHECK: %[[SS:.*]] = memopt.broadcast %[[S]]
  // CHECK: %[[P:.*]] = arith.mulf %[[E]], %[[SS]]
  // CHECK: %[[D:.*]] = arith.subf %[[G]], %[[P]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// The winners of max pooling are remembered as taps.

memopt.variable @a : tensor<1x2x6xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<1x2x3xf32>
func.func @train_step(%g: tensor<1x2x3xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<1x2x6xf32>
  // CHECK: %{{.*}}, %[[TAPS:.*]] = memopt.max_pool
  %y, %t = memopt.max_pool %a {kernel = array<i64: 2>, strides = array<i64: 2>, padding_low = array<i64: 0>, padding_high = array<i64: 0>, dilations = array<i64: 1>} : (tensor<1x2x6xf32>) -> (tensor<1x2x3xf32>, tensor<1x2x3xi8>)
  %weighted = arith.mulf %y, %g : tensor<1x2x3xf32>
  // CHECK: %[[D:.*]] = memopt.max_pool_backward %[[G]], %[[TAPS]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2>} : (tensor<1x2x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Average pooling and interpolation need nothing but their windows.

memopt.variable @a : tensor<1x2x6xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<1x2x6xf32>
func.func @train_step(%g: tensor<1x2x6xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<1x2x6xf32>
  %p = memopt.avg_pool %a {kernel = array<i64: 2>, strides = array<i64: 2>, padding_low = array<i64: 0>, padding_high = array<i64: 0>, count_padding} : (tensor<1x2x6xf32>) -> tensor<1x2x3xf32>
  %y = memopt.interpolate %p {scales = array<f64: 0.5>, mode = #memopt.resampling<linear>} : (tensor<1x2x3xf32>) -> tensor<1x2x6xf32>
  %weighted = arith.mulf %y, %g : tensor<1x2x6xf32>
  // CHECK: %[[DP:.*]] = memopt.interpolate_backward %[[G]] {memopt.phase = #memopt.phase<backward>, mode = #memopt.resampling<linear>, scales = array<f64: 5.000000e-01>}
  // CHECK-NEXT: %[[D:.*]] = memopt.avg_pool_backward %[[DP]] {count_padding,
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2>} : (tensor<1x2x6xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
