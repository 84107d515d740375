// RUN: memopt-opt %s --memopt-reserve-exchange --split-input-file | FileCheck %s

// Inputs of 24 and 16 bytes and the samples' number lie at multiples of 64; on the host outputs and numbers follow.
// Both stand behind all other variables: programs of a package share the places of those.
// CHECK: memopt.variable @index_fault
// CHECK-NEXT: memopt.variable @next_samples : tensor<136xi8> role <hyperparameter> {transient}
// CHECK-NEXT: memopt.variable @exchange : tensor<328xi8> role <hyperparameter> {placement = #memopt.space<host>, transient}
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
  memopt.variable @w : tensor<6xf32> role <parameter>
  memopt.variable @lr : tensor<f64> role <hyperparameter>
  memopt.variable @sample_offset : tensor<i64> role <hyperparameter>
  memopt.variable @index_fault : tensor<i64> role <index_fault>
  func.func @step(%x: tensor<6xf32>, %y: tensor<2xi64>) -> tensor<f32> {
    %loss = arith.constant dense<0.0> : tensor<f32>
    return %loss : tensor<f32>
  }
}

// -----

// A processor reads what its host writes.
// CHECK: {{^}}// -----
// CHECK-NOT: memopt.variable
module {
  func.func @step(%x: tensor<6xf32>) -> tensor<6xf32> {
    return %x : tensor<6xf32>
  }
}
