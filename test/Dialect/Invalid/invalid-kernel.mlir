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

func.func @offsets(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{'memopt.library_call' op has 1 operand offsets, expected 2}}
  %0 = memopt.library_call #memopt.matmul<m = 2, n = 2, k = 2, a_strides = [2, 1], b_strides = [2, 1],
      c_strides = [2, 1], type = f32, accumulator = f32> (%x, %x) {operand_offsets = array<i64: 0>, workspace = 0 : i64}
    : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @outside(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{'memopt.library_call' op buffer 1 is read or written from element 1 to 4, outside 'tensor<2x2xf32>'}}
  %0 = memopt.library_call #memopt.matmul<m = 2, n = 2, k = 2, a_strides = [2, 1], b_strides = [2, 1],
      c_strides = [2, 1], type = f32, accumulator = f32> (%x, %x) {operand_offsets = array<i64: 0, 1>, workspace = 0 : i64}
    : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @before(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{'memopt.library_call' op buffer 0 is read or written from element -1 to 2, outside 'tensor<2x2xf32>'}}
  %0 = memopt.library_call #memopt.matmul<m = 2, n = 2, k = 2, a_strides = [2, 1], b_strides = [2, 1],
      c_strides = [2, 1], type = f32, accumulator = f32> (%x, %x) {operand_offsets = array<i64: -1, 0>, workspace = 0 : i64}
    : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @element_type(%x: tensor<2x2xf64>) {
  // expected-error @+1 {{'memopt.library_call' op buffer 0 has element type 'f64', expected 'f32'}}
  %0 = memopt.library_call #memopt.matmul<m = 2, n = 2, k = 2, a_strides = [2, 1], b_strides = [2, 1],
      c_strides = [2, 1], type = f32, accumulator = f32> (%x, %x) {operand_offsets = array<i64: 0, 0>, workspace = 0 : i64}
    : (tensor<2x2xf64>, tensor<2x2xf64>) -> tensor<2x2xf32>
  return
}

// -----

func.func @workspace(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{'memopt.library_call' op workspace must not be negative, found -64}}
  %0 = memopt.library_call #memopt.matmul<m = 2, n = 2, k = 2, a_strides = [2, 1], b_strides = [2, 1],
      c_strides = [2, 1], type = f32, accumulator = f32> (%x, %x) {operand_offsets = array<i64: 0, 0>, workspace = -64 : i64}
    : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @workspace_slow(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{'memopt.library_call' op slowdown must be at least 1, found 5.000000e-01}}
  %0 = memopt.library_call #memopt.matmul<m = 2, n = 2, k = 2, a_strides = [2, 1], b_strides = [2, 1],
      c_strides = [2, 1], type = f32, accumulator = f32> (%x, %x) {operand_offsets = array<i64: 0, 0>, workspace = 64 : i64, slowdown = 0.5 : f64}
    : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @operands(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{'memopt.library_call' op has 1 operands and 1 results, expected 2 and 1}}
  %0 = memopt.library_call #memopt.matmul<m = 2, n = 2, k = 2, a_strides = [2, 1], b_strides = [2, 1],
      c_strides = [2, 1], type = f32, accumulator = f32> (%x) {operand_offsets = array<i64: 0>, workspace = 0 : i64}
    : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @planned(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.kernel' op has 2 offsets, expected 1: one for each result and each workspace}}
  %0 = memopt.kernel (%a = %x : tensor<8xf32>) -> tensor<8xf32> attributes {offsets = array<i64: 0, 64>} {
    memopt.yield %a : tensor<8xf32>
  }
  return
}

// -----

func.func @planned(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.kernel' op offsets must not be negative, found -64}}
  %0 = memopt.kernel (%a = %x : tensor<8xf32>) -> tensor<8xf32> attributes {offsets = array<i64: -64>} {
    memopt.yield %a : tensor<8xf32>
  }
  return
}

// -----

// Nothing but transfers goes from space to space.
func.func @spaces(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.kernel' op computes on 'tensor<8xf32>' and 'tensor<8xf32, #memopt.space<host>>', expected one space}}
  %0 = memopt.kernel (%a = %x : tensor<8xf32>) -> tensor<8xf32, #memopt.space<host>> {
    memopt.yield %a : tensor<8xf32>
  }
  return
}

// -----

func.func @disk() {
  // expected-error @+1 {{'memopt.kernel' op computes on the disk, where nothing runs}}
  %0 = memopt.kernel () -> tensor<8xi64, #memopt.space<disk>> {
    %1 = memopt.iota {dimension = 0 : i64} : () -> tensor<8xi64>
    memopt.yield %1 : tensor<8xi64>
  }
  return
}

// -----

// The body knows no spaces.
func.func @inner(%x: tensor<8xf32>) {
  %t = memopt.transfer_start %x to <host> : tensor<8xf32>
  %y = memopt.transfer_wait %t : tensor<8xf32, #memopt.space<host>>
  // expected-error @+1 {{'memopt.kernel' op expects one block argument for each operand, of its type}}
  %0 = "memopt.kernel"(%y) ({
  ^bb0(%a: tensor<8xf32, #memopt.space<host>>):
    "memopt.yield"(%a) : (tensor<8xf32, #memopt.space<host>>) -> ()
  }) : (tensor<8xf32, #memopt.space<host>>) -> tensor<8xf32, #memopt.space<host>>
  return
}
