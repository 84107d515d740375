// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of the attention ops.

func.func @f(%q: tensor<4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>) {
  // expected-error @+1 {{'memopt.attention' op expects query, key and value of rank 4}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf64>) {
  // expected-error @+1 {{'memopt.attention' op expects equal element types, found 'f32' and 'f64'}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf64>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x3x7x8xf32>, %v: tensor<2x3x7x6xf32>) {
  // expected-error @+1 {{'memopt.attention' op key heads must divide query heads 4, found 3}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x3x7x8xf32>, tensor<2x3x7x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x9xf32>, %v: tensor<2x2x7x6xf32>) {
  // expected-error @+1 {{'memopt.attention' op key has shape [2, 2, 7, 9], expected [2, 2, 7, 8]}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x9xf32>, tensor<2x2x7x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x6x6xf32>) {
  // expected-error @+1 {{'memopt.attention' op value has shape [2, 2, 6, 6], expected [2, 2, 7, 6]}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x6x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>) {
  // expected-error @+1 {{'memopt.attention' op logsumexp has shape [2, 4], expected [2, 4, 5]}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>, %m: tensor<5x7xi1>) {
  // expected-error @+1 {{'memopt.attention' op expects a mask of rank 4, found 'tensor<5x7xi1>'}}
  %0:2 = memopt.attention %q, %k, %v, %m {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<5x7xi1>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>, %m: tensor<1x1x6x7xi1>) {
  // expected-error @+1 {{'memopt.attention' op mask dimension 2 has size 6, expected 1 or 5}}
  %0:2 = memopt.attention %q, %k, %v, %m {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<1x1x6x7xi1>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>, %m: tensor<1x1x5x7xi64>) {
  // expected-error @+1 {{'memopt.attention' op mask holds 'i64', expected i1 or 'f32'}}
  %0:2 = memopt.attention %q, %k, %v, %m {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<1x1x5x7xi64>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>) {
  // expected-error @+1 {{'memopt.attention' op dropout must lie in [0, 1), found 1}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64, dropout = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>) {
  // expected-error @+1 {{'memopt.attention' op expects seed and step exactly when there is dropout}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64, dropout = 0.1 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>, %s: tensor<i64>) {
  // expected-error @+1 {{'memopt.attention' op expects seed and step exactly when there is dropout}}
  %0:2 = memopt.attention %q, %k, %v, %s, %s {operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<i64>, tensor<i64>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>, %s: tensor<i64>) {
  // expected-error @+1 {{'memopt.attention' op expects the number of a first score only when there is dropout}}
  %0:2 = memopt.attention %q, %k, %v, %s {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<i64>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}

// -----

// The result is as wide as the values.
func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>) {
  // expected-error @+1 {{'memopt.attention' op result has shape [2, 4, 5, 8], expected [2, 4, 5, 6]}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>, %o: tensor<2x4x5x6xf32>, %l: tensor<2x4x5xf32>,
             %g: tensor<2x4x5x8xf32>) {
  // expected-error @+1 {{'memopt.attention_backward' op gradient has type 'tensor<2x4x5x8xf32>', expected the output's 'tensor<2x4x5x6xf32>'}}
  %0:3 = memopt.attention_backward %q, %k, %v, %o, %l, %g
    {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 1, 1, 1>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<2x4x5x6xf32>, tensor<2x4x5xf32>,
       tensor<2x4x5x8xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>, %o: tensor<2x4x5x6xf32>, %l: tensor<2x4x5xf32>,
             %g: tensor<2x4x5x6xf32>) {
  // expected-error @+1 {{'memopt.attention_backward' op gradient result has type 'tensor<2x4x5x6xf32>', expected 'tensor<2x4x5x8xf32>'}}
  %0:3 = memopt.attention_backward %q, %k, %v, %o, %l, %g
    {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 1, 1, 1>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<2x4x5x6xf32>, tensor<2x4x5xf32>,
       tensor<2x4x5x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %l: tensor<2x4x5xf32>, %m: tensor<1x4x5x5xi1>) {
  // expected-error @+1 {{'memopt.attention_backward' op mask gradient has type 'tensor<1x4x5x5xf32>', expected that of a mask of numbers}}
  %0:4 = memopt.attention_backward %q, %q, %q, %m, %q, %l, %q
    {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 1, 1, 1>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<1x4x5x5xi1>, tensor<2x4x5x8xf32>,
       tensor<2x4x5xf32>, tensor<2x4x5x8xf32>)
    -> (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<1x4x5x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xbf16>, %k: tensor<2x2x7x8xbf16>, %v: tensor<2x2x7x6xbf16>) {
  // expected-error @+1 {{'memopt.attention' op has logarithms of sums in 'bf16', expected 'f32'}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xbf16>, tensor<2x2x7x8xbf16>, tensor<2x2x7x6xbf16>) -> (tensor<2x4x5x6xbf16>, tensor<2x4x5xbf16>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xbf16>, %k: tensor<2x2x7x8xbf16>, %v: tensor<2x2x7x6xbf16>, %m: tensor<1x1x5x7xbf16>) {
  // expected-error @+1 {{'memopt.attention' op mask holds 'bf16', expected i1 or 'f32'}}
  %0:2 = memopt.attention %q, %k, %v, %m {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xbf16>, tensor<2x2x7x8xbf16>, tensor<2x2x7x6xbf16>, tensor<1x1x5x7xbf16>) -> (tensor<2x4x5x6xbf16>, tensor<2x4x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xbf16>, %k: tensor<2x2x7x8xbf16>, %v: tensor<2x2x7x6xbf16>) {
  // expected-error @+1 {{'memopt.attention' op expects equal element types, found 'bf16' and 'f32'}}
  %0:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64}
    : (tensor<2x4x5x8xbf16>, tensor<2x2x7x8xbf16>, tensor<2x2x7x6xbf16>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  return
}
