// RUN: memopt-opt %s -memopt-verify-planned -split-input-file -verify-diagnostics

// One block for each way in which a planned program can clobber itself. Buffers are 1024 bytes.

// expected-error @+1 {{'memopt.variable' op has no offset in the planned program}}
memopt.variable @w : tensor<256xf32> role <buffer>
func.func @variable_without_place() {
  return
}

// -----

// expected-error @+1 {{'memopt.variable' op shares bytes with another variable}}
memopt.variable @a : tensor<256xf32> role <buffer> {offset = 0 : i64}
memopt.variable @b : tensor<256xf32> role <buffer> {offset = 1020 : i64}
func.func @shared_variables() {
  return
}

// -----

// expected-error @+1 {{'func.func' op argument 0 has no offset}}
func.func @input_without_place(%x: tensor<256xf32>) {
  return
}

// -----

func.func @offsets_missing(%x: tensor<256xf32> {memopt.offset = 0 : i64}) -> tensor<256xf32> {
  // expected-error @+1 {{'test.run' op has no offsets in the planned program}}
  %a = test.run(%x) {scratch = array<i64: 64>} : (tensor<256xf32>) -> tensor<256xf32>
  return %a : tensor<256xf32>
}

// -----

// The result takes the operand's bytes, which libraries do not bear.
func.func @over_operand(%x: tensor<256xf32> {memopt.offset = 0 : i64}) -> tensor<256xf32> {
  // expected-error @+1 {{'test.run' op writes result 0 over operand 0, which it does not allow}}
  %a = test.run(%x) {offsets = array<i64: 512>} : (tensor<256xf32>) -> tensor<256xf32>
  return %a : tensor<256xf32>
}

// -----

// So does the workspace.
func.func @workspace_over_operand(%x: tensor<256xf32> {memopt.offset = 0 : i64}) -> tensor<256xf32> {
  // expected-error @+1 {{'test.run' op writes a workspace over operand 0, which it does not allow}}
  %a = test.run(%x) {scratch = array<i64: 64>, offsets = array<i64: 1024, 960>} : (tensor<256xf32>) -> tensor<256xf32>
  return %a : tensor<256xf32>
}

// -----

func.func @two_results_at_one_place(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  // expected-error @+1 {{'test.run' op makes two buffers at 1024 and 2044 that overlap}}
  %a:2 = test.run(%x) {offsets = array<i64: 1024, 2044>} : (tensor<256xf32>) -> (tensor<256xf32>, tensor<256xf32>)
  return
}

// -----

// The second call overwrites what the third reads.
func.func @overwritten(%x: tensor<256xf32> {memopt.offset = 0 : i64}) -> tensor<256xf32> {
  %a = test.run(%x) {offsets = array<i64: 1024>} : (tensor<256xf32>) -> tensor<256xf32>
  %b = test.run(%x) {offsets = array<i64: 1024>} : (tensor<256xf32>) -> tensor<256xf32>
  // expected-error @+1 {{'test.run' op uses a value of type 'tensor<256xf32>' whose bytes were overwritten or never placed}}
  %c = test.run(%a) {offsets = array<i64: 2048>} : (tensor<256xf32>) -> tensor<256xf32>
  return %c : tensor<256xf32>
}

// -----

// A workspace kills what lies under it, too.
func.func @workspace_over_value(%x: tensor<256xf32> {memopt.offset = 0 : i64}) -> tensor<256xf32> {
  %a = test.run(%x) {offsets = array<i64: 1024>} : (tensor<256xf32>) -> tensor<256xf32>
  %b = test.run(%x) {scratch = array<i64: 8>, offsets = array<i64: 2048, 1024>} : (tensor<256xf32>) -> tensor<256xf32>
  // expected-error @+1 {{'func.return' op uses a value of type 'tensor<256xf32>' whose bytes were overwritten or never placed}}
  return %a : tensor<256xf32>
}

// -----

// A variable's bytes are its own: a result that is no new value of it may not lie there.
memopt.variable @w : tensor<256xf32> role <buffer> {offset = 1024 : i64}
func.func @over_variable(%x: tensor<256xf32> {memopt.offset = 0 : i64}) -> tensor<256xf32> {
  %a = test.run(%x) {offsets = array<i64: 1024>} : (tensor<256xf32>) -> tensor<256xf32>
  %w = memopt.read @w : tensor<256xf32>
  // expected-error @+1 {{'test.run' op uses a value of type 'tensor<256xf32>' whose bytes were overwritten or never placed}}
  %b = test.run(%w) {offsets = array<i64: 2048>} : (tensor<256xf32>) -> tensor<256xf32>
  return %b : tensor<256xf32>
}

// -----

memopt.variable @w : tensor<256xf32> role <buffer> {offset = 1024 : i64}
func.func @not_at_home(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  %a = test.run(%x) {offsets = array<i64: 2048>} : (tensor<256xf32>) -> tensor<256xf32>
  // expected-error @+1 {{'memopt.write' op writes a value that lies at 2048, expected the variable's 1024}}
  memopt.write %a, @w : tensor<256xf32>
  return
}

// -----

// Nobody reads the variable later in this step, but the next step will.
// expected-error @+1 {{'memopt.variable' op is overwritten by a value that is not written to it}}
memopt.variable @w : tensor<256xf32> role <buffer> {offset = 1024 : i64}
func.func @lost_variable(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  %a = test.run(%x) {offsets = array<i64: 1024>} : (tensor<256xf32>) -> tensor<256xf32>
  return
}

// -----

// expected-error @+1 {{has no 'memopt.planned' in the planned program}}
module {
  func.func @no_arena(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
    return
  }
}

// -----

// expected-error @+1 {{places buffers from byte 0 to 2048 of device memory, expected 0 to 2040}}
module attributes {memopt.planned = #memopt.planned<arena_bytes = [2040, 0, 0], lower_bound_bytes = [0, 0, 0]>} {
  func.func @above_the_arena(%x: tensor<256xf32> {memopt.offset = 1024 : i64}) {
    return
  }
}

// -----

// State changes behind the commit and nowhere else.

module attributes {memopt.planned = #memopt.planned<arena_bytes = [2048, 0, 0], lower_bound_bytes = [0, 0, 0]>} {
  memopt.variable @w : tensor<256xf32> role <parameter> {offset = 0 : i64}
  func.func @early(%x: tensor<f32> {memopt.offset = 1024 : i64}) {
    // expected-error @+1 {{'test.run' op writes into 'w' before the loss was committed}}
    %new = test.run() {offsets = array<i64: 0>} : () -> tensor<256xf32>
    memopt.commit %x {offsets = array<i64>} : tensor<f32>
    memopt.write %new, @w : tensor<256xf32>
    return
  }
}

// -----

// A copy in flight owns where it goes to: another value may not be there in between.

func.func @destination(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  %t = memopt.transfer_start %x to <host> {number = 0 : i64, offsets = array<i64>} : tensor<256xf32>
  %other = test.run() {offsets = array<i64: 512>} : () -> tensor<256xf32, #memopt.space<host>>
  // expected-error @+1 {{'memopt.transfer_wait' op waits for bytes that were written while they were in flight}}
  %y = memopt.transfer_wait %t {offsets = array<i64: 0>} : tensor<256xf32, #memopt.space<host>>
  return
}

// -----

// And it owns where it comes from.

func.func @source(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  %t = memopt.transfer_start %x to <host> {number = 0 : i64, offsets = array<i64>} : tensor<256xf32>
  %other = test.run() {offsets = array<i64: 512>} : () -> tensor<256xf32>
  // expected-error @+1 {{'memopt.transfer_wait' op waits for bytes whose source was written while in flight}}
  %y = memopt.transfer_wait %t {offsets = array<i64: 0>} : tensor<256xf32, #memopt.space<host>>
  return
}

// -----

func.func @never(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  // expected-error @+1 {{'memopt.transfer_start' op starts something that its block does not wait for once}}
  %t = memopt.transfer_start %x to <host> {number = 0 : i64, offsets = array<i64>} : tensor<256xf32>
  return
}

// -----

// The second iteration reads what the first has written over: the value comes from outside of the loop.

func.func @iteration(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  memopt.repeat count(2) (%in = %x : tensor<256xf32>) {
    // expected-error @+1 {{'test.run' op uses a value of type 'tensor<256xf32>' whose bytes were overwritten or never placed}}
    %a = test.run(%in) {in_place = array<i64: 0>, offsets = array<i64: 0>} : (tensor<256xf32>) -> tensor<256xf32>
  } {offsets = array<i64>}
  return
}

// -----

module attributes {memopt.planned = #memopt.planned<arena_bytes = [1024, 1024, 0], lower_bound_bytes = [0, 0, 0]>} {
  func.func @number(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
    // expected-error @+1 {{'memopt.transfer_start' op has no number of its own in the planned program}}
    %t = memopt.transfer_start %x to <host> {offsets = array<i64>} : tensor<256xf32>
    %y = memopt.transfer_wait %t {offsets = array<i64: 0>} : tensor<256xf32, #memopt.space<host>>
    return
  }
}

// -----

// expected-error @+1 {{numbers the 1 entries of 'transfers' up to 1}}
module attributes {memopt.planned = #memopt.planned<arena_bytes = [1024, 1024, 0], lower_bound_bytes = [0, 0, 0]>} {
  func.func @gap(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
    %t = memopt.transfer_start %x to <host> {number = 1 : i64, offsets = array<i64>} : tensor<256xf32>
    %y = memopt.transfer_wait %t {offsets = array<i64: 0>} : tensor<256xf32, #memopt.space<host>>
    return
  }
}

// -----

// What is in flight needs its staging until somebody has waited for it, wherever the token stands among the results.
func.func @staging_overwritten() -> tensor<128xf32> {
  %t = test.run() {scratch = array<i64: 512>, offsets = array<i64: 0>} : () -> !memopt.token
  %a = test.run() {offsets = array<i64: 0>} : () -> tensor<128xf32>
  // expected-error @+1 {{'test.run' op waits for bytes whose staging was written while in flight}}
  %b = test.run(%t) {offsets = array<i64: 1024>} : (!memopt.token) -> tensor<128xf32>
  return %b : tensor<128xf32>
}

// -----

// cuBLAS does not take a workspace that begins at any multiple of 64.
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
func.func @workspace_between(%a: tensor<4x8xf32> {memopt.offset = 0 : i64}, %b: tensor<8x4xf32> {memopt.offset = 128 : i64}) -> tensor<4x4xf32> {
  // expected-error @+1 {{'memopt.library_call' op has a workspace at 320, expected a multiple of 256}}
  %0 = memopt.library_call #memopt.matmul<m = 4, n = 4, k = 8, a_strides = [8, 1], b_strides = [4, 1], c_strides = [4, 1], type = f32, accumulator = f32> (%a, %b) {implementation = "cublaslt", offsets = array<i64: 256, 320>, operand_offsets = array<i64: 0, 0>, workspace = 64 : i64} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
}

// -----

// A collective in flight owns both ends, like a transfer.

func.func @gathered_into(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  %t = memopt.collective_start <all_gather> %x over 2 {number = 0 : i64, offsets = array<i64>} : tensor<256xf32>
  %other = test.run() {offsets = array<i64: 2048>} : () -> tensor<256xf32>
  // expected-error @+1 {{'memopt.collective_wait' op waits for bytes that were written while they were in flight}}
  %y = memopt.collective_wait %t {offsets = array<i64: 1024>} : tensor<512xf32>
  return
}

// -----

func.func @gathered_from(%x: tensor<256xf32> {memopt.offset = 0 : i64}) {
  %t = memopt.collective_start <all_gather> %x over 2 {number = 0 : i64, offsets = array<i64>} : tensor<256xf32>
  %other = test.run() {offsets = array<i64: 512>} : () -> tensor<64xf32>
  // expected-error @+1 {{'memopt.collective_wait' op waits for bytes whose source was written while in flight}}
  %y = memopt.collective_wait %t {offsets = array<i64: 1024>} : tensor<512xf32>
  return
}

// -----

// A sum in place lies where its operand lies, and nowhere else.

func.func @elsewhere() {
  %g = test.run() {offsets = array<i64: 0>} : () -> tensor<256xf32>
  // expected-error @+1 {{'memopt.collective_start' op goes to byte 1024, expected its operand's 0}}
  %t = memopt.collective_start <all_reduce> %g over 2 in_place {number = 0 : i64, offsets = array<i64>} : tensor<256xf32>
  %y = memopt.collective_wait %t {offsets = array<i64: 1024>} : tensor<256xf32>
  return
}

// -----

// What arrives in a variable changes state from the start on.

module attributes {memopt.planned = #memopt.planned<arena_bytes = [4096, 0, 0], lower_bound_bytes = [0, 0, 0]>} {
  memopt.variable @w : tensor<512xf32> role <parameter> {offset = 0 : i64}
  func.func @early_start(%x: tensor<f32> {memopt.offset = 3072 : i64}, %own: tensor<256xf32> {memopt.offset = 2048 : i64}) {
    // expected-error @+1 {{'memopt.collective_start' op writes into 'w' before the loss was committed}}
    %t = memopt.collective_start <all_gather> %own over 2 {number = 0 : i64, offsets = array<i64>} : tensor<256xf32>
    memopt.commit %x {offsets = array<i64>} : tensor<f32>
    %new = memopt.collective_wait %t {offsets = array<i64: 0>} : tensor<512xf32>
    memopt.write %new, @w : tensor<512xf32>
    return
  }
}
