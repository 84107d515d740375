// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of KernelOps.cpp.

func.func @arguments(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.kernel' op expects one block argument for each operand, of its type}}
  %0 = "memopt.kernel"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "memopt.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @yield(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.kernel' op expects the body to yield one value for each result, of its type}}
  %0 = memopt.kernel (%a = %x : tensor<8xf32>) -> tensor<4xf32> {
    memopt.yield %a : tensor<8xf32>
  }
  return
}

// -----

// A kernel without a terminator is no kernel.
func.func @empty() {
  // expected-error @+1 {{'memopt.kernel' op expects a non-empty block}}
  "memopt.kernel"() ({
  ^bb0:
  }) : () -> ()
  return
}

// -----

// Matmuls are calls of a library; they never hide in a generated kernel.
func.func @body(%x: tensor<8x8xf32>) {
  // expected-error @+1 {{'memopt.kernel' op holds 'memopt.matmul', which no kernel computes}}
  %0 = memopt.kernel (%a = %x : tensor<8x8xf32>) -> tensor<8x8xf32> {
    // expected-note @+1 {{here}}
    %1 = memopt.matmul %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    memopt.yield %1 : tensor<8x8xf32>
  }
  return
}

// -----

func.func @isolated(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-note @+1 {{required by region isolation constraints}}
  %0 = memopt.kernel (%a = %x : tensor<8xf32>) -> tensor<8xf32> {
    // expected-error @+1 {{using value defined outside the region}}
    memopt.yield %y : tensor<8xf32>
  }
  return
}

// -----

func.func @kind(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.library_call' op descriptor lacks a string 'kind'}}
  %0 = memopt.library_call %x {descriptor = {kind = 3 : i64}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @offsets(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.library_call' op has 2 operand offsets, expected 1}}
  %0 = memopt.library_call %x {descriptor = {kind = "matmul"}, operand_offsets = array<i64: 0, 0>, workspace = 0 : i64,
    flop_count = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @outside(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.library_call' op operand offset 8 lies outside 'tensor<8xf32>'}}
  %0 = memopt.library_call %x {descriptor = {kind = "matmul"}, operand_offsets = array<i64: 8>, workspace = 0 : i64,
    flop_count = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @workspace(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.library_call' op workspace must not be negative, found -64}}
  %0 = memopt.library_call %x {descriptor = {kind = "matmul"}, operand_offsets = array<i64: 0>, workspace = -64 : i64,
    flop_count = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
  return
}
