// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of FlowOps.cpp.

func.func @count() {
  // expected-error @+1 {{attribute 'count' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  memopt.repeat count(0) {
  }
  return
}

// -----

func.func @arguments(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.repeat' op expects one block argument for each operand, of its type}}
  "memopt.repeat"(%x) <{count = 2 : i64, phase = #memopt.phase<forward>, clone = 0 : i64}> ({
    "memopt.yield"() : () -> ()
  }) : (tensor<8xf32>) -> ()
  return
}

// -----

func.func @values(%x: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.repeat' op gives no values; state passes through variables}}
  memopt.repeat count(2) (%in = %x : tensor<8xf32>) {
    memopt.yield %in : tensor<8xf32>
  }
  return
}

// -----

func.func @loss(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.commit' op expects a loss of one element, found 'tensor<2xf32>'}}
  memopt.commit %x : tensor<2xf32>
  return
}

// -----

func.func @nowhere(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.transfer_start' op goes to the space that it comes from, device}}
  %0 = memopt.transfer_start %x to <device> : tensor<2xf32>
  return
}

// -----

func.func @type(%x: tensor<2xf32>) {
  %0 = memopt.transfer_start %x to <host> : tensor<2xf32>
  // expected-error @+1 {{'memopt.transfer_wait' op has type 'tensor<2xf32>', expected 'tensor<2xf32, #memopt.space<host>>'}}
  %1 = memopt.transfer_wait %0 : tensor<2xf32>
  return
}

// -----

func.func @token(%token: !memopt.token) {
  // expected-error @+1 {{'memopt.transfer_wait' op expects the token of a transfer_start}}
  %1 = memopt.transfer_wait %token : tensor<2xf32>
  return
}
