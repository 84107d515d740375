// RUN: memopt-opt %s -memopt-set-batch=size=6 -split-input-file -verify-diagnostics | FileCheck %s

// What counts samples gets another size, behind reshapes that merge it with other dimensions too; parameters, positions
// and other dimensions of the same size stay. A mean's count follows.

memopt.variable @w : tensor<4x4xf32> role <parameter>
// expected-remark @+2 {{compiled for 6 samples instead of 4}}
// CHECK-LABEL: func.func @merged(%arg0: tensor<6x4x4xf32> {memopt.batch_dim = 0 : i64}, %arg1: tensor<4x4xf32>) -> tensor<f32>
func.func @merged(%x: tensor<4x4x4xf32>, %positions: tensor<4x4xf32>) -> tensor<f32> {
  // CHECK: memopt.read @w : tensor<4x4xf32>
  %w = memopt.read @w : tensor<4x4xf32>
  // CHECK: memopt.broadcast %arg1 {{.*}} : (tensor<4x4xf32>) -> tensor<6x4x4xf32>
  %all = memopt.broadcast %positions {dimensions = array<i64: 1, 2>} : (tensor<4x4xf32>) -> tensor<4x4x4xf32>
  // CHECK: arith.constant dense<2.000000e+00> : tensor<6x4x4xf32>
  %two = arith.constant dense<2.0> : tensor<4x4x4xf32>
  %sum = arith.addf %x, %all : tensor<4x4x4xf32>
  %doubled = arith.mulf %sum, %two : tensor<4x4x4xf32>
  // CHECK: tensor.collapse_shape {{.*}} : tensor<6x4x4xf32> into tensor<24x4xf32>
  %flat = tensor.collapse_shape %doubled [[0, 1], [2]] : tensor<4x4x4xf32> into tensor<16x4xf32>
  // CHECK: memopt.matmul {{.*}} : (tensor<24x4xf32>, tensor<4x4xf32>) -> tensor<24x4xf32>
  %y = memopt.matmul %flat, %w : (tensor<16x4xf32>, tensor<4x4xf32>) -> tensor<16x4xf32>
  // CHECK: tensor.expand_shape {{.*}} output_shape [6, 4, 4] : tensor<24x4xf32> into tensor<6x4x4xf32>
  %back = tensor.expand_shape %y [[0, 1], [2]] output_shape [4, 4, 4] : tensor<16x4xf32> into tensor<4x4x4xf32>
  %total = memopt.reduce %back {dimensions = array<i64: 0, 1, 2>, kind = #memopt.reduce<add>} : (tensor<4x4x4xf32>) -> tensor<f32>
  // CHECK: memopt.count {{.*}} : (tensor<6x4x4xf32>) -> tensor<f32>
  %count = memopt.count %back {dimensions = array<i64: 0, 1, 2>} : (tensor<4x4x4xf32>) -> tensor<f32>
  %loss = arith.divf %total, %count : tensor<f32>
  return %loss : tensor<f32>
}

// -----

func.func @attends(%x: tensor<4x8xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // expected-error @unknown {{'memopt.matmul' in module 'net.scores' pairs samples with other samples: the samples of a batch cannot be told apart}}
  %scores = memopt.matmul %x, %x {transpose_b} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32> loc("net.scores")
  %loss = memopt.reduce %scores {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A backward formula of its own: samples of the value and of what the gradient goes to are counted apart.

// expected-remark @+2 {{compiled for 6 samples instead of 4}}
// CHECK-LABEL: func.func @backward_formula
func.func @backward_formula(%x: tensor<4x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  %square = arith.mulf %x, %x : tensor<4x3xf32>
  %y = memopt.reduce %square {dimensions = array<i64: 1>, kind = #memopt.reduce<add>} : (tensor<4x3xf32>) -> tensor<4xf32>
  // CHECK: memopt.incoming_gradient {{.*}} : (tensor<6xf32>) -> tensor<6xf32>
  %g = memopt.incoming_gradient %y {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %wide = memopt.broadcast %g {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x3xf32>
  // CHECK: memopt.custom_gradient {{.*}} : (tensor<6xf32>, tensor<6xf32>, tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<6xf32>
  %z = memopt.custom_gradient %y, %g, %x, %wide {operandSegmentSizes = array<i32: 1, 1, 1, 1>}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4xf32>
  %loss = memopt.reduce %z {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A loss that has one: what it is a sum of is still known.

// expected-remark @+2 {{compiled for 6 samples instead of 4}}
// CHECK-LABEL: func.func @loss_with_a_formula
func.func @loss_with_a_formula(%x: tensor<4x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  %y = memopt.reduce %x {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x3xf32>) -> tensor<f32>
  %g = memopt.incoming_gradient %y {result_number = 0 : i64} : (tensor<f32>) -> tensor<f32>
  %wide = memopt.broadcast %g {dimensions = array<i64>} : (tensor<f32>) -> tensor<4x3xf32>
  // CHECK: memopt.custom_gradient {{.*}} : (tensor<f32>, tensor<f32>, tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<f32>
  %z = memopt.custom_gradient %y, %g, %x, %wide {operandSegmentSizes = array<i32: 1, 1, 1, 1>}
    : (tensor<f32>, tensor<f32>, tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
  return %z : tensor<f32>
}

// -----

// Of one sample, what all samples share may look like one; with more it is repeated.

memopt.variable @positions : tensor<1x3xf32> role <parameter>
// expected-remark @+2 {{compiled for 6 samples instead of 1}}
// CHECK-LABEL: func.func @one_sample
func.func @one_sample(%x: tensor<1x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // CHECK: %[[P:.*]] = memopt.read @positions : tensor<1x3xf32>
  %p = memopt.read @positions : tensor<1x3xf32>
  // CHECK: %[[ALL:.*]] = memopt.broadcast %[[P]] {dimensions = array<i64: 1, 2>} : (tensor<1x3xf32>) -> tensor<6x1x3xf32>
  // CHECK: %[[R:.*]] = tensor.collapse_shape %[[ALL]] {{.*}} : tensor<6x1x3xf32> into tensor<6x3xf32>
  // CHECK: arith.addf %arg0, %[[R]] : tensor<6x3xf32>
  %y = arith.addf %x, %p : tensor<1x3xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<1x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// The same where the sample was merged with a dimension behind it.

memopt.variable @positions : tensor<5x3xf32> role <parameter>
// expected-remark @+2 {{compiled for 6 samples instead of 1}}
// CHECK-LABEL: func.func @one_sample_merged
func.func @one_sample_merged(%x: tensor<1x5x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // CHECK: memopt.broadcast {{.*}} {dimensions = array<i64: 1, 2>} : (tensor<5x3xf32>) -> tensor<6x5x3xf32>
  // CHECK: tensor.collapse_shape {{.*}} : tensor<6x5x3xf32> into tensor<30x3xf32>
  %p = memopt.read @positions : tensor<5x3xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<1x5x3xf32> into tensor<5x3xf32>
  // CHECK: arith.addf {{.*}} : tensor<30x3xf32>
  %y = arith.addf %flat, %p : tensor<5x3xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<5x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A bias that is repeated along tokens is repeated along samples at once: its gradient is one sum, of which ranks and
// micro-batches have their terms.

memopt.variable @bias : tensor<3xf32> role <parameter>
// expected-remark @+2 {{compiled for 6 samples instead of 1}}
// CHECK-LABEL: func.func @one_sample_of_tokens
func.func @one_sample_of_tokens(%x: tensor<1x5x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // CHECK: %[[B:.*]] = memopt.read @bias : tensor<3xf32>
  %b = memopt.read @bias : tensor<3xf32>
  %all = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<5x3xf32>
  // CHECK: memopt.broadcast %[[B]] {dimensions = array<i64: 2>} : (tensor<3xf32>) -> tensor<6x5x3xf32>
  // CHECK: tensor.collapse_shape {{.*}} : tensor<6x5x3xf32> into tensor<30x3xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<1x5x3xf32> into tensor<5x3xf32>
  %y = arith.addf %flat, %all : tensor<5x3xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<5x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Samples behind another dimension, as in [time, batch, features]: merged with it, each has a row in every step of time.

memopt.variable @w : tensor<3x3xf32> role <parameter>
// expected-remark @+2 {{compiled for 6 samples instead of 4}}
// CHECK-LABEL: func.func @time_first
func.func @time_first(%x: tensor<5x4x3xf32> {memopt.batch_dim = 1 : i64}) -> tensor<f32> {
  %w = memopt.read @w : tensor<3x3xf32>
  // CHECK: tensor.collapse_shape {{.*}} : tensor<5x6x3xf32> into tensor<30x3xf32>
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<5x4x3xf32> into tensor<20x3xf32>
  // CHECK: memopt.matmul {{.*}} : (tensor<30x3xf32>, tensor<3x3xf32>) -> tensor<30x3xf32>
  %y = memopt.matmul %rows, %w : (tensor<20x3xf32>, tensor<3x3xf32>) -> tensor<20x3xf32>
  // CHECK: tensor.expand_shape {{.*}} output_shape [5, 6, 3] : tensor<30x3xf32> into tensor<5x6x3xf32>
  %back = tensor.expand_shape %y [[0, 1], [2]] output_shape [5, 4, 3] : tensor<20x3xf32> into tensor<5x4x3xf32>
  %loss = memopt.reduce %back {dimensions = array<i64: 0, 1, 2>, kind = #memopt.reduce<add>} : (tensor<5x4x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Joined along their samples, tensors have each sample several times; so has what comes of them.

memopt.variable @w : tensor<3x3xf32> role <parameter>
// expected-remark @+2 {{compiled for 6 samples instead of 4}}
// CHECK-LABEL: func.func @joined
func.func @joined(%x: tensor<4x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  %w = memopt.read @w : tensor<3x3xf32>
  %y = memopt.matmul %x, %w : (tensor<4x3xf32>, tensor<3x3xf32>) -> tensor<4x3xf32>
  // CHECK: tensor.concat dim(0) {{.*}} : (tensor<6x3xf32>, tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<18x3xf32>
  %all = tensor.concat dim(0) %x, %y, %x : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<12x3xf32>
  %loss = memopt.reduce %all {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<12x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// What all samples share is no sample.

memopt.variable @bank : tensor<4x3xf32> role <buffer>
func.func @joined_with_a_bank(%x: tensor<4x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // expected-error @+1 {{'memopt.read' keeps something for each sample: the samples of a batch cannot be told apart}}
  %bank = memopt.read @bank : tensor<4x3xf32>
  %all = tensor.concat dim(0) %x, %bank : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<8x3xf32>
  %loss = memopt.reduce %all {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<8x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

func.func @joined_with_a_row(%x: tensor<4x3xf32> {memopt.batch_dim = 0 : i64}, %row: tensor<1x3xf32>) -> tensor<f32> {
  // expected-error @+1 {{'tensor.concat' mixes samples: the samples of a batch cannot be told apart}}
  %all = tensor.concat dim(0) %x, %row : (tensor<4x3xf32>, tensor<1x3xf32>) -> tensor<5x3xf32>
  %loss = memopt.reduce %all {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<5x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Rows of time and samples are not rows of samples.

func.func @time_for_samples(%x: tensor<5x4x3xf32> {memopt.batch_dim = 1 : i64}) -> tensor<f32> {
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<5x4x3xf32> into tensor<20x3xf32>
  // expected-error @unknown {{'tensor.expand_shape' in module 'net.mixed' takes apart what belongs to one sample: the samples of a batch cannot be told apart}}
  %back = tensor.expand_shape %rows [[0, 1], [2]] output_shape [4, 5, 3] : tensor<20x3xf32> into tensor<4x5x3xf32> loc("net.mixed")
  %loss = memopt.reduce %back {dimensions = array<i64: 0, 1, 2>, kind = #memopt.reduce<add>} : (tensor<4x5x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Of one sample, what all share is repeated where the samples are: for each step of time.

memopt.variable @positions : tensor<5x3xf32> role <parameter>
// expected-remark @+2 {{compiled for 6 samples instead of 1}}
// CHECK-LABEL: func.func @one_sample_time_first
func.func @one_sample_time_first(%x: tensor<5x1x3xf32> {memopt.batch_dim = 1 : i64}) -> tensor<f32> {
  // CHECK: %[[SPLIT:.*]] = tensor.expand_shape {{.*}} output_shape [5, 1, 3] : tensor<5x3xf32> into tensor<5x1x3xf32>
  // CHECK: %[[ALL:.*]] = memopt.broadcast %[[SPLIT]] {dimensions = array<i64: 0, 2, 3>} : (tensor<5x1x3xf32>) -> tensor<5x6x1x3xf32>
  // CHECK: tensor.collapse_shape %[[ALL]] {{\[\[}}0, 1, 2], [3]] : tensor<5x6x1x3xf32> into tensor<30x3xf32>
  %p = memopt.read @positions : tensor<5x3xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<5x1x3xf32> into tensor<5x3xf32>
  // CHECK: arith.addf {{.*}} : tensor<30x3xf32>
  %y = arith.addf %flat, %p : tensor<5x3xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<5x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A recurrent layer cuts [time * batch, features] between two times all samples, and its gradient puts zeros around a
// step: places follow the number of samples. A bias that has been repeated for all rows is cut alike.

memopt.variable @bias : tensor<3xf32> role <parameter>
// expected-remark @+2 {{compiled for 6 samples instead of 4}}
// CHECK-LABEL: func.func @steps_of_time
func.func @steps_of_time(%x: tensor<5x4x3xf32> {memopt.batch_dim = 1 : i64}) -> tensor<f32> {
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<5x4x3xf32> into tensor<20x3xf32>
  // CHECK: tensor.extract_slice %{{.*}}[6, 0] [6, 3] [1, 1] : tensor<30x3xf32> to tensor<6x3xf32>
  %step = tensor.extract_slice %rows[4, 0] [4, 3] [1, 1] : tensor<20x3xf32> to tensor<4x3xf32>
  %bias = memopt.read @bias : tensor<3xf32>
  // CHECK: memopt.broadcast {{.*}} -> tensor<30x3xf32>
  %biases = memopt.broadcast %bias {dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<20x3xf32>
  // CHECK: tensor.extract_slice %{{.*}}[12, 1] [12, 2] [1, 1] : tensor<30x3xf32> to tensor<12x2xf32>
  // CHECK: tensor.extract_slice %{{.*}}[6, 0] [6, 2] [1, 1] : tensor<12x2xf32> to tensor<6x2xf32>
  %part = tensor.extract_slice %biases[8, 1] [8, 2] [1, 1] : tensor<20x3xf32> to tensor<8x2xf32>
  %own = tensor.extract_slice %part[4, 0] [4, 2] [1, 1] : tensor<8x2xf32> to tensor<4x2xf32>
  %features = tensor.extract_slice %step[0, 1] [4, 2] [1, 1] : tensor<4x3xf32> to tensor<4x2xf32>
  %sum = arith.addf %features, %own : tensor<4x2xf32>
  // CHECK: memopt.pad %{{.*}} {high = array<i64: 18, 1>, low = array<i64: 6, 0>} : (tensor<6x2xf32>) -> tensor<30x3xf32>
  %back = memopt.pad %sum {low = array<i64: 4, 0>, high = array<i64: 12, 1>} : (tensor<4x2xf32>) -> tensor<20x3xf32>
  %loss = memopt.reduce %back {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<20x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

func.func @half_of_the_samples(%x: tensor<4x3xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // expected-error @unknown {{'tensor.extract_slice' in module 'net.half' mixes samples: the samples of a batch cannot be told apart}}
  %half = tensor.extract_slice %x[2, 0] [2, 3] [1, 1] : tensor<4x3xf32> to tensor<2x3xf32> loc("net.half")
  %loss = memopt.reduce %half {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

func.func @steps_wherever(%x: tensor<5x4x3xf32> {memopt.batch_dim = 1 : i64}) -> tensor<f32> {
  %at = arith.constant 4 : index
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<5x4x3xf32> into tensor<20x3xf32>
  // expected-error @unknown {{'tensor.extract_slice' in module 'net.step' mixes samples: the samples of a batch cannot be told apart}}
  %step = tensor.extract_slice %rows[%at, 0] [4, 3] [1, 1] : tensor<20x3xf32> to tensor<4x3xf32> loc("net.step")
  %loss = memopt.reduce %step {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
