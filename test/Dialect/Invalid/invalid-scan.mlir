// RUN: memopt-opt %s --split-input-file --verify-diagnostics

func.func @beyond(%xs: tensor<5x4xf32>) {
  // expected-error @below {{'memopt.scan' op reads slices 3 to 5 of 5}}
  %0 = memopt.scan count(3) slices(%x = %xs[3] : tensor<4xf32> of tensor<5x4xf32>) {
    memopt.yield %x : tensor<4xf32>
  } -> tensor<3x4xf32>
  return
}

// -----

func.func @other_type(%h0: tensor<4xf32>) {
  // expected-error @below {{'memopt.scan' op yields carried values of other types than it begins with}}
  %0 = memopt.scan count(3) carried(%h = %h0 : tensor<4xf32>) {
    %1 = memopt.reduce %h {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
    memopt.yield %1 : tensor<f32>
  } -> tensor<4xf32>
  return
}

// -----

func.func @stacked_type(%h0: tensor<4xf32>) {
  // expected-error @below {{'memopt.scan' op has results of other types than its body yields}}
  %0:2 = memopt.scan count(3) carried(%h = %h0 : tensor<4xf32>) {
    memopt.yield %h, %h : tensor<4xf32>, tensor<4xf32>
  } -> tensor<4xf32>, tensor<2x4xf32>
  return
}

// -----

func.func @slice_type(%xs: tensor<3x4xf32>) {
  // expected-error @below {{'memopt.scan' op has a block argument 0 of type 'tensor<5xf32>', expected 'tensor<4xf32>'}}
  %0 = memopt.scan count(3) slices(%x = %xs : tensor<5xf32> of tensor<3x4xf32>) {
    memopt.yield %x : tensor<5xf32>
  } -> tensor<3x5xf32>
  return
}

// -----

func.func @scalars(%xs: tensor<f32>) {
  // expected-error @below {{'memopt.scan' op slices a tensor of rank 0}}
  "memopt.scan"(%xs) <{count = 1 : i64, firsts = array<i64: 0>, operandSegmentSizes = array<i32: 0, 1, 0>}> ({
  ^bb0(%x: tensor<f32>):
    "memopt.yield"() : () -> ()
  }) : (tensor<f32>) -> ()
  return
}

// -----

func.func @too_few(%h0: tensor<4xf32>) {
  // expected-error @below {{'memopt.scan' op expects a yield of the next carried values and of slices}}
  memopt.scan count(3) carried(%h = %h0 : tensor<4xf32>) {
    memopt.yield
  }
  return
}

// -----

memopt.variable @w : tensor<4xf32> role <parameter>
func.func @variables(%h0: tensor<4xf32>) {
  // expected-error @below {{'memopt.scan' op reads or writes variables; its body is a function of its arguments}}
  %0 = memopt.scan count(3) carried(%h = %h0 : tensor<4xf32>) {
    %1 = memopt.read @w : tensor<4xf32>
    memopt.yield %1 : tensor<4xf32>
  } -> tensor<4xf32>
  return
}

// -----

func.func @arguments(%h0: tensor<4xf32>) {
  // expected-error @below {{'memopt.scan' op has 0 block arguments, expected 1}}
  "memopt.scan"(%h0) <{count = 1 : i64, firsts = array<i64>, operandSegmentSizes = array<i32: 1, 0, 0>}> ({
    "memopt.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @firsts(%xs: tensor<3x4xf32>) {
  // expected-error @below {{'memopt.scan' op has 0 first slices, expected 1}}
  "memopt.scan"(%xs) <{count = 1 : i64, firsts = array<i64>, operandSegmentSizes = array<i32: 0, 1, 0>}> ({
  ^bb0(%x: tensor<4xf32>):
    "memopt.yield"() : () -> ()
  }) : (tensor<3x4xf32>) -> ()
  return
}
