// What passes over a step's tensors do not take is a diagnostic at the op that breaks it.
// RUN: memopt-opt %s --memopt-lower-to-linalg --split-input-file --verify-diagnostics
// RUN: memopt-opt %s --memopt-choose-layout --split-input-file --verify-diagnostics
// RUN: memopt-opt %s --memopt-recompute-elementwise --split-input-file --verify-diagnostics
// RUN: memopt-opt %s --memopt-form-kernels --split-input-file --verify-diagnostics
// RUN: memopt-opt %s --memopt-annotate-input-ranges --split-input-file --verify-diagnostics

// A declaration has nothing to verify.
func.func private @library(tensor<?xf32>) -> tensor<4xcomplex<f32>>

// -----

// expected-error@below {{has several blocks; a step is one}}
func.func @jumps(%x: tensor<f32>) -> tensor<f32> {
  cf.br ^next
^next:
  return %x : tensor<f32>
}

// -----

func.func @chooses(%x: tensor<4xf32>) -> tensor<4xf32> {
  %yes = arith.constant true
  // expected-error@below {{'scf.if' op holds a region, which no step does: its control flow is unrolled}}
  %y = scf.if %yes -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

func.func private @library(tensor<4xf32>) -> tensor<4xf32>
func.func @calls(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@below {{'func.call' op has effects; a step changes variables alone, by memopt.write}}
  %y = func.call @library(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// expected-error@below {{has a value of type 'memref<4xf32>', expected a tensor of known rank}}
func.func @memory(%x: memref<4xf32>, %y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}

// -----

// expected-error@below {{has a value of type 'tensor<4xcomplex<f32>>', whose elements no package holds}}
func.func @complex(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  return %x : tensor<4xcomplex<f32>>
}

// -----

func.func @unknown_inside(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@below {{has a value of type 'tensor<?xf32>', expected sizes that are known, and at most 2^48 elements}}
  %y = tensor.cast %x : tensor<4xf32> to tensor<?xf32>
  %z = tensor.cast %y : tensor<?xf32> to tensor<4xf32>
  return %z : tensor<4xf32>
}

// -----

// expected-error@below {{has a value of type 'tensor<4294967296x4294967296xf32>', expected sizes that are known, and at most 2^48 elements}}
func.func @large(%x: tensor<4294967296x4294967296xf32>, %y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}

// -----

// expected-error@below {{has a value of type 'tensor<0x4xf32>', which has no elements}}
func.func @empty(%x: tensor<0x4xf32>, %y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}
