// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-sink-relu))' | FileCheck %s
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-sink-relu))' --remarks-filter=memopt-sink-relu --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK

// The pool takes its maxima of all numbers; what it leaves is a quarter: 512 bytes instead of 2048.

// CHECK-LABEL: func.func @sink
// CHECK-SAME: %[[X:.*]]: tensor<1x2x16x16xf32>
// CHECK: %[[POOLED:.*]], %{{.*}} = memopt.max_pool %[[X]]
// CHECK: %[[POSITIVE:.*]] = memopt.relu %[[POOLED]] : tensor<1x2x8x8xf32>
// CHECK: math.tanh %[[POSITIVE]]
// REMARK: [Passed] SinkRelu | Category:memopt-sink-relu | Function=sink | BytesAfter=512, BytesBefore=2048
func.func @sink(%x: tensor<1x2x16x16xf32>) -> tensor<1x2x8x8xf32> {
  %positive = memopt.relu %x : tensor<1x2x16x16xf32>
  %pooled, %taps = memopt.max_pool %positive {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x2x16x16xf32>) -> (tensor<1x2x8x8xf32>, tensor<1x2x8x8xi8>)
  %next = math.tanh %pooled : tensor<1x2x8x8xf32>
  return %next : tensor<1x2x8x8xf32>
}

// -----

// Others read the rectified value: it is there in any case.

// CHECK-LABEL: func.func @other_reader
// CHECK: %[[POSITIVE:.*]] = memopt.relu
// CHECK: memopt.max_pool %[[POSITIVE]]
// REMARK-NOT: SinkRelu
func.func @other_reader(%x: tensor<1x2x16x16xf32>) -> (tensor<1x2x8x8xf32>, tensor<1x2x16x16xf32>) {
  %positive = memopt.relu %x : tensor<1x2x16x16xf32>
  %pooled, %taps = memopt.max_pool %positive {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x2x16x16xf32>) -> (tensor<1x2x8x8xf32>, tensor<1x2x8x8xi8>)
  return %pooled, %positive : tensor<1x2x8x8xf32>, tensor<1x2x16x16xf32>
}

// -----

// Among numbers that are not positive the winner would be another one.

// CHECK-LABEL: func.func @winners
// CHECK: %[[POSITIVE:.*]] = memopt.relu
// CHECK: memopt.max_pool %[[POSITIVE]]
func.func @winners(%x: tensor<1x2x16x16xf32>) -> (tensor<1x2x8x8xf32>, tensor<1x2x8x8xi8>) {
  %positive = memopt.relu %x : tensor<1x2x16x16xf32>
  %pooled, %taps = memopt.max_pool %positive {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x2x16x16xf32>) -> (tensor<1x2x8x8xf32>, tensor<1x2x8x8xi8>)
  return %pooled, %taps : tensor<1x2x8x8xf32>, tensor<1x2x8x8xi8>
}
