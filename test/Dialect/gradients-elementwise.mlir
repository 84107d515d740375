// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s

// A product: each factor gets the other one.

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
memopt.variable @b : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<4xf32>
  %y = arith.mulf %a, %b : tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK-DAG: %[[DA:.*]] = arith.mulf %[[G]], %[[B]] {memopt.phase = #memopt.phase<backward>}
  // CHECK-DAG: %[[DB:.*]] = arith.mulf %[[G]], %[[A]] {memopt.phase = #memopt.phase<backward>}
  // CHECK-DAG: memopt.gradient %[[DA]], @a
  // CHECK-DAG: memopt.gradient %[[DB]], @b
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A quotient: the denominator's gradient is taken from the result.

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
memopt.variable @b : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<4xf32>
  // CHECK: %[[Y:.*]] = arith.divf
  %y = arith.divf %a, %b : tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK: %[[DA:.*]] = arith.divf %[[G]], %[[B]]
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  // CHECK: %[[Q:.*]] = arith.divf %[[Y]], %[[B]]
  // CHECK: %[[GQ:.*]] = arith.mulf %[[G]], %[[Q]]
  // CHECK: %[[DB:.*]] = arith.negf %[[GQ]]
  // CHECK-NEXT: memopt.gradient %[[DB]], @b
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// The exponential is its own derivative: the operand may be forgotten.

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  // CHECK: %[[Y:.*]] = math.exp
  %y = math.exp %a : tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK: %[[D:.*]] = arith.mulf %[[G]], %[[Y]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// tanh: g (1 - y y).

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  // CHECK: %[[Y:.*]] = math.tanh
  %y = math.tanh %a : tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK-DAG: %[[YY:.*]] = arith.mulf %[[Y]], %[[Y]]
  // CHECK-DAG: %[[ONE:.*]] = arith.constant dense<1.000000e+00>
  // CHECK: %[[S:.*]] = arith.subf %[[ONE]], %[[YY]]
  // CHECK: %[[D:.*]] = arith.mulf %[[G]], %[[S]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Equal operands of a maximum share the gradient.

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>, %[[B:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  %y = arith.maximumf %a, %b : tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK: %[[LESS:.*]] = arith.cmpf olt, %[[A]], %[[B]]
  // CHECK: %[[TIE:.*]] = arith.cmpf oeq, %[[A]], %[[B]]
  // CHECK: %[[HALF:.*]] = arith.mulf %[[G]], %{{.*}}
  // CHECK: %[[S:.*]] = arith.select %[[TIE]], %[[HALF]], %[[G]]
  // CHECK: %[[D:.*]] = arith.select %[[LESS]], %{{.*}}, %[[S]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// The gradient of an absolute value is zero at zero.

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  %y = math.absf %a : tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK-DAG: %[[UP:.*]] = arith.cmpf ogt, %[[A]], %{{.*}}
  // CHECK-DAG: %[[DOWN:.*]] = arith.cmpf olt, %[[A]], %{{.*}}
  // CHECK-DAG: %[[MINUS:.*]] = arith.negf %[[G]]
  // CHECK: %[[S:.*]] = arith.select %[[DOWN]], %[[MINUS]], %{{.*}}
  // CHECK: %[[D:.*]] = arith.select %[[UP]], %[[G]], %[[S]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A cube needs no power of its own: 3 x x.

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  %n = arith.constant dense<3.0> : tensor<4xf32>
  %y = math.powf %a, %n : tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK-NOT: math.powf
  // CHECK-DAG: %[[SQUARE:.*]] = arith.mulf %[[A]], %[[A]]
  // CHECK-DAG: %[[THREE:.*]] = arith.constant dense<3.000000e+00>
  // CHECK: %[[F:.*]] = arith.mulf %[[SQUARE]], %[[THREE]]
  // CHECK: %[[D:.*]] = arith.mulf %[[G]], %[[F]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A conversion between floating-point types converts the gradient back.

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  %h = arith.truncf %a : tensor<4xf32> to tensor<4xbf16>
  %y = arith.extf %h : tensor<4xbf16> to tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK: %[[DOWN:.*]] = arith.truncf %[[G]]
  // CHECK: %[[D:.*]] = arith.extf %[[DOWN]]
  // CHECK-NEXT: memopt.gradient %[[D]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Ramps: relu and sigmoid use their results, softplus the sigmoid of its operand.

memopt.variable @a : tensor<4xf32> role <parameter> {trainable}
memopt.variable @b : tensor<4xf32> role <parameter> {trainable}
memopt.variable @c : tensor<4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<4xf32>
func.func @train_step(%g: tensor<4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<4xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<4xf32>
  // CHECK: %[[C:.*]] = memopt.read @c
  %c = memopt.read @c : tensor<4xf32>
  // CHECK: %[[R:.*]] = memopt.relu
  %r = memopt.relu %a : tensor<4xf32>
  // CHECK: %[[S:.*]] = memopt.sigmoid
  %s = memopt.sigmoid %b : tensor<4xf32>
  %p = memopt.softplus %c : tensor<4xf32>
  %t = arith.addf %r, %s : tensor<4xf32>
  %y = arith.addf %t, %p : tensor<4xf32>
  %weighted = arith.mulf %y, %g : tensor<4xf32>
  // CHECK: arith.mulf %{{.*}}, %[[G]]
  // CHECK: %[[SLOPE:.*]] = memopt.sigmoid %[[C]] {memopt.phase = #memopt.phase<backward>}
  // CHECK: %[[DC:.*]] = arith.mulf %[[G]], %[[SLOPE]]
  // CHECK: memopt.gradient %[[DC]], @c
  // CHECK: %[[REST:.*]] = arith.subf %{{.*}}, %[[S]]
  // CHECK: %[[SR:.*]] = arith.mulf %[[S]], %[[REST]]
  // CHECK: %[[DB:.*]] = arith.mulf %[[G]], %[[SR]]
  // CHECK: memopt.gradient %[[DB]], @b
  // CHECK: %[[OFF:.*]] = arith.cmpf ole, %[[R]], %[[ZERO:.*]] {{{.*}}
  // CHECK: %[[DA:.*]] = arith.select %[[OFF]], %{{.*}}, %[[G]]
  // CHECK: memopt.gradient %[[DA]], @a
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
