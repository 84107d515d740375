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

func.func @past_the_host(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.transfer_start' op goes past the host: between the device and the disk lies a window there}}
  %0 = memopt.transfer_start %x to <disk> : tensor<2xf32>
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

// -----

func.func @elements(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.collective' op gives elements of 'f64' for such of 'f32'}}
  %0 = memopt.collective <all_gather> %x over 2 : tensor<2xf32> -> tensor<4xf64>
  return
}

// -----

func.func @flags(%x: tensor<2xi1>) {
  // expected-error @+1 {{'memopt.collective' op adds up f32, f64, i32 or i64, found 'i1'}}
  %0 = memopt.collective <all_reduce> %x over 2 : tensor<2xi1> -> tensor<2xi1>
  return
}

// -----

func.func @shape(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.collective' op gives 'tensor<1x2xf32>', expected 'tensor<2xf32>'}}
  %0 = memopt.collective <all_reduce> %x over 2 : tensor<2xf32> -> tensor<1x2xf32>
  return
}

// -----

func.func @small(%x: tensor<9xf32>) {
  // expected-error @+1 {{'memopt.collective' op has shards of 4 elements, but 2 of them do not hold 9}}
  %0 = memopt.collective <reduce_scatter> %x over 2 : tensor<9xf32> -> tensor<4xf32>
  return
}

// -----

func.func @uneven(%x: tensor<9xf32>) {
  // expected-error @+1 {{'memopt.collective' op gives 11 elements, which are no 2 shards of one size}}
  %0 = memopt.collective <all_to_all> %x over 2 : tensor<9xf32> -> tensor<11xf32>
  return
}

// -----

func.func @space(%x: tensor<2xf32, #memopt.space<host>>) {
  // expected-error @+1 {{'memopt.collective' op works on the device alone}}
  %0 = memopt.collective <all_reduce> %x over 2 : tensor<2xf32, #memopt.space<host>> -> tensor<2xf32, #memopt.space<host>>
  return
}

// -----

func.func @not_sent(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.collective_start' op sends nothing that could be in flight}}
  %0 = memopt.collective_start <own_shard> %x over 2 : tensor<2xf32>
  return
}

// -----

func.func @gather_in_place(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.collective_start' op makes its result in the bytes of its operand, as all_reduce alone can}}
  %0 = memopt.collective_start <all_gather> %x over 2 in_place : tensor<2xf32>
  return
}

// -----

func.func @argument_in_place(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.collective_start' op writes over an operand that no instruction of its block makes}}
  %0 = memopt.collective_start <all_reduce> %x over 2 in_place : tensor<2xf32>
  return
}

// -----

func.func @wrong_result(%x: tensor<9xf32>) {
  %0 = memopt.collective_start <reduce_scatter> %x over 2 : tensor<9xf32>
  // expected-error @+1 {{'memopt.collective_wait' op has shards of 4 elements, but 2 of them do not hold 9}}
  %1 = memopt.collective_wait %0 : tensor<4xf32>
  return
}

// -----

func.func @token_of_a_transfer(%x: tensor<2xf32>) {
  %0 = memopt.transfer_start %x to <host> : tensor<2xf32>
  // expected-error @+1 {{'memopt.collective_wait' op expects the token of a collective_start}}
  %1 = memopt.collective_wait %0 : tensor<2xf32>
  return
}

// -----

func.func @pack(%a: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.pack' op has 1 tensors and 2 places for them}}
  %0 = memopt.pack %a at [0, 16] : (tensor<3xf32>) -> tensor<32xf32>
  return
}

// -----

func.func @pack(%a: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.pack' op puts 'tensor<3xf32>' at element 2 of 'tensor<32xf32>', where elements before it end at 3}}
  %0 = memopt.pack %a, %a at [0, 2] : (tensor<3xf32>, tensor<3xf32>) -> tensor<32xf32>
  return
}

// -----

func.func @pack(%a: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.pack' op gives 'tensor<4xf32>' for 5 elements}}
  %0 = memopt.pack %a at [2] : (tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @unpack(%a: tensor<8xf32>) {
  // expected-error @+1 {{'memopt.unpack' op gives 'tensor<3xf32>' from element 6 of 'tensor<8xf32>'}}
  %0 = memopt.unpack %a from 6 : tensor<8xf32> -> tensor<3xf32>
  return
}
