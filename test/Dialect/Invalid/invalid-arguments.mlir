// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// What attributes of the dialect on arguments of a function must be.

// expected-error @+1 {{argument 1: 'memopt.batch_dim' must be one of the 2 dimensions of its tensor, found 2 : i64}}
func.func @outside(%x: tensor<4xf32> {memopt.batch_dim = 0 : i64}, %y: tensor<4x2xf32> {memopt.batch_dim = 2 : i64}) {
  return
}

// -----

// expected-error @+1 {{argument 0: 'memopt.batch_dim' must be one of the 1 dimensions of its tensor, found -1 : i64}}
func.func @negative(%x: tensor<4xf32> {memopt.batch_dim = -1 : i64}) {
  return
}

// -----

// expected-error @+1 {{argument 0: 'memopt.batch_dim' must be one of the 0 dimensions of its tensor, found 0 : i64}}
func.func @number(%x: tensor<f32> {memopt.batch_dim = 0 : i64}) {
  return
}

// -----

// expected-error @+1 {{argument 0: 'memopt.batch_dim' must be one of the 1 dimensions of its tensor, found "first"}}
func.func @word(%x: tensor<4xf32> {memopt.batch_dim = "first"}) {
  return
}

// -----

// expected-error @+1 {{argument 0: 'memopt.name' must be a string, found 3 : i64}}
func.func @name(%x: tensor<4xf32> {memopt.name = 3 : i64}) {
  return
}

// -----

// expected-error @+1 {{argument 0: 'memopt.dtype' must be a string, found unit}}
func.func @dtype(%x: tensor<4xi8> {memopt.dtype}) {
  return
}

// -----

// expected-error @+1 {{argument 0: 'memopt.valid_range' must be a dictionary {min, max, ignore, reason}, found {max = 7 : i32}}}
func.func @range(%x: tensor<4xi64> {memopt.valid_range = {max = 7 : i32}}) {
  return
}

// -----

// expected-error @+1 {{argument 0: 'memopt.offset' must be an i64 of at least 0, found -8 : i64}}
func.func @offset(%x: tensor<4xf32> {memopt.offset = -8 : i64}) {
  return
}
