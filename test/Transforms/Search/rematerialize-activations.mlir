// RUN: memopt-opt %s -split-input-file -memopt-rematerialize="budget=4800000 activations=bf16" 2>/dev/null | FileCheck %s
// RUN: memopt-opt %s -split-input-file -memopt-rematerialize="budget=4800000" 2>/dev/null | FileCheck %s --check-prefix=OFF
// RUN: memopt-opt %s -split-input-file -memopt-rematerialize="budget=6000000 activations=bf16" 2>/dev/null | FileCheck %s --check-prefix=OFF
// RUN: not memopt-opt %s -split-input-file -memopt-rematerialize="budget=4800000 activations=f16" 2>&1 | FileCheck %s --check-prefix=TYPE

// TYPE: expected f32, bf16, int8 or fp8 as the type of kept activations, found 'f16'

// The first value, 1 MiB and expensive, is wanted at the end; between lie two of 2 MiB. In half of its bytes it fits, so
// that a step in which it is narrowed would not compute it again. This step does, and is the same whoever asks.

// CHECK: module attributes {memopt.chosen_activations = array<i64: 7>}
// CHECK: func.func @narrow
// CHECK-NOT: memopt.activations
// CHECK: test.run(%arg0) {clone = 1
// OFF-NOT: memopt.{{.*}}activations
// OFF: func.func @narrow
// OFF-NOT: memopt.activations
func.func @narrow(%x: tensor<256xf32>) -> tensor<256xf32> {
  %a = test.run(%x) {flops = 10000000000, memopt.activations = array<i64: 7>} : (tensor<256xf32>) -> tensor<262144xf32>
  %b = test.run(%a) {flops = 1000000000} : (tensor<262144xf32>) -> tensor<524288xf32>
  %c = test.run(%b) {flops = 1000000000} : (tensor<524288xf32>) -> tensor<524288xf32>
  %d = test.run(%c) {flops = 1000000000} : (tensor<524288xf32>) -> tensor<256xf32>
  %e = test.run(%d, %a) {phase = #memopt.phase<backward>} : (tensor<256xf32>, tensor<262144xf32>) -> tensor<256xf32>
  return %e : tensor<256xf32>
}

// -----

// The forward pass reads the value once more, behind the peak, as the decoder of a U-Net does. What it reads has all bits,
// so nothing is won by fewer of them in between.

// CHECK: module
// CHECK-NOT: memopt.chosen_activations
// CHECK: func.func @skip
// CHECK: test.run(%arg0) {clone = 1
func.func @skip(%x: tensor<256xf32>) -> tensor<256xf32> {
  %a = test.run(%x) {flops = 10000000000, memopt.activations = array<i64: 0>} : (tensor<256xf32>) -> tensor<262144xf32>
  %b = test.run(%a) {flops = 1000000000} : (tensor<262144xf32>) -> tensor<524288xf32>
  %c = test.run(%b) {flops = 1000000000} : (tensor<524288xf32>) -> tensor<524288xf32>
  %d = test.run(%c, %a) {flops = 1000000000} : (tensor<524288xf32>, tensor<262144xf32>) -> tensor<256xf32>
  %e = test.run(%d, %a) {phase = #memopt.phase<backward>} : (tensor<256xf32>, tensor<262144xf32>) -> tensor<256xf32>
  return %e : tensor<256xf32>
}
