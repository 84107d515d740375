// Modules that parse and are nobody's training graph.

module {}

// -----
// Declarations alone.
func.func private @library(tensor<4xf32>) -> tensor<4xf32>

// -----
// A loop.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<4xf32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %y = scf.for %i = %zero to %three step %one iter_args(%acc = %w) -> tensor<4xf32> {
    %next = arith.mulf %acc, %x : tensor<4xf32>
    scf.yield %next : tensor<4xf32>
  }
  %loss = memopt.reduce %y {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----
// A choice.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<4xf32>
  %yes = arith.constant true
  %y = scf.if %yes -> tensor<4xf32> {
    scf.yield %w : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  %loss = memopt.reduce %y {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----
// Several blocks.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<f32>
  cf.br ^next(%w : tensor<f32>)
^next(%v: tensor<f32>):
  %y = arith.mulf %v, %x : tensor<f32>
  return %y : tensor<f32>
}

// -----
// A block that loops on itself.
func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  cf.br ^again
^again:
  cf.br ^again
}

// -----
// Complex elements.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xcomplex<f32>>, %y: tensor<4xf32>) -> (tensor<4xcomplex<f32>>, tensor<4xf32>) {
  %w = memopt.read @w : tensor<4xf32>
  %z = arith.mulf %w, %y : tensor<4xf32>
  return %x, %z : tensor<4xcomplex<f32>>, tensor<4xf32>
}

// -----
// Sizes that are not known.
func.func @train_step(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = arith.mulf %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----
// Sizes that are not known inside alone.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<f32>
  %y = tensor.cast %x : tensor<4xf32> to tensor<?xf32>
  %z = arith.mulf %y, %y : tensor<?xf32>
  %back = tensor.cast %z : tensor<?xf32> to tensor<4xf32>
  %sum = memopt.reduce %back {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4xf32>) -> tensor<f32>
  %loss = arith.mulf %sum, %w : tensor<f32>
  return %loss : tensor<f32>
}

// -----
// Not even a rank.
func.func @train_step(%x: tensor<*xf32>) -> tensor<*xf32> {
  return %x : tensor<*xf32>
}

// -----
// Memory as an argument.
func.func @train_step(%x: memref<4xf32>) -> tensor<f32> {
  %c = arith.constant 0 : index
  %v = memref.load %x[%c] : memref<4xf32>
  %t = tensor.from_elements %v : tensor<f32>
  return %t : tensor<f32>
}

// -----
// Scalars as arguments.
func.func @train_step(%x: f32, %i: index, %v: vector<4xf32>) -> f32 {
  %y = arith.mulf %x, %x : f32
  return %y : f32
}

// -----
// Constants alone.
func.func @train_step() -> (tensor<4xf32>, tensor<f32>) {
  %c = arith.constant dense<1.0> : tensor<4xf32>
  %loss = arith.constant dense<2.0> : tensor<f32>
  return %c, %loss : tensor<4xf32>, tensor<f32>
}

// -----
// A loss that is a constant, and a parameter that nobody reads.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %loss = arith.constant dense<2.0> : tensor<f32>
  return %loss : tensor<f32>
}

// -----
// A loss that is an input.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----
// A loss that is the parameter.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step() -> tensor<f32> {
  %w = memopt.read @w : tensor<f32>
  return %w : tensor<f32>
}

// -----
// Nothing returned.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step(%x: tensor<f32>) {
  return
}

// -----
// An integer loss.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step(%x: tensor<i64>) -> tensor<i64> {
  %y = arith.addi %x, %x : tensor<i64>
  return %y : tensor<i64>
}

// -----
// Two steps.
func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func @another(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----
// One variable written twice.
memopt.variable @v : tensor<4xf32> role <buffer>
func.func @train_step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.mulf %x, %x : tensor<4xf32>
  memopt.write %x, @v : tensor<4xf32>
  memopt.write %y, @v : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----
// A parameter that is written, then read.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  memopt.write %x, @w : tensor<f32>
  %w = memopt.read @w : tensor<f32>
  %y = arith.mulf %w, %x : tensor<f32>
  return %y : tensor<f32>
}

// -----
// More bytes than there are addresses.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4294967296x4294967296xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<f32>
  %y = arith.mulf %x, %x : tensor<4294967296x4294967296xf32>
  %sum = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4294967296x4294967296xf32>) -> tensor<f32>
  %loss = arith.mulf %sum, %w : tensor<f32>
  return %loss : tensor<f32>
}

// -----
// Tensors that are each possible, and together not.
func.func @train_step(%x: tensor<281474976710656xf64>) -> tensor<281474976710656xf64> {
  %y = arith.mulf %x, %x : tensor<281474976710656xf64>
  %z = arith.addf %y, %x : tensor<281474976710656xf64>
  return %z : tensor<281474976710656xf64>
}

// -----
// No elements.
memopt.variable @w : tensor<0x4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<0x4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<0x4xf32>
  %y = arith.mulf %x, %w : tensor<0x4xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<0x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----
// Element types of no package.
func.func @train_step(%x: tensor<4xindex>, %y: tensor<4xi4>, %z: tensor<4xf8E4M3FN>, %u: tensor<4xi128>, %v: tensor<4xui8>)
    -> (tensor<4xindex>, tensor<4xi4>, tensor<4xf8E4M3FN>, tensor<4xi128>, tensor<4xui8>) {
  %a = arith.addi %x, %x : tensor<4xindex>
  %b = arith.addi %y, %y : tensor<4xi4>
  %c = arith.addi %u, %u : tensor<4xi128>
  return %a, %b, %z, %c, %v : tensor<4xindex>, tensor<4xi4>, tensor<4xf8E4M3FN>, tensor<4xi128>, tensor<4xui8>
}

// -----
// Tensors of vectors.
func.func @train_step(%x: tensor<4xvector<2xf32>>) -> tensor<4xvector<2xf32>> {
  return %x : tensor<4xvector<2xf32>>
}

// -----
// A call.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func private @square(%x: tensor<f32>) -> tensor<f32> {
  %y = arith.mulf %x, %x : tensor<f32>
  return %y : tensor<f32>
}
func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<f32>
  %y = func.call @square(%w) : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}

// -----
// A call of itself.
func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  %y = func.call @train_step(%x) : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}

// -----
// A module in a module.
module {
  module @inner {
    memopt.variable @w : tensor<f32> role <parameter> {trainable}
    func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
      %w = memopt.read @w : tensor<f32>
      return %w : tensor<f32>
    }
  }
}

// -----
// Ops that build tensors element by element.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<4xf32>
  %c = arith.constant 1 : index
  %e = tensor.extract %w[%c] : tensor<4xf32>
  %f = arith.mulf %e, %e : f32
  %t = tensor.from_elements %f : tensor<f32>
  return %t : tensor<f32>
}

// -----
// A generator.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = memopt.read @w : tensor<4xf32>
  %g = tensor.generate {
  ^bb0(%i: index):
    %e = tensor.extract %w[%i] : tensor<4xf32>
    tensor.yield %e : f32
  } : tensor<4xf32>
  %y = arith.addf %g, %w : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----
// Linalg before it is time.
memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4x4xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----
// A generic op that reads backwards.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = memopt.read @w : tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (3 - i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x, %w : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----
// An encoding on a type.
func.func @train_step(%x: tensor<4xf32, "layout">) -> tensor<4xf32, "layout"> {
  %y = arith.mulf %x, %x : tensor<4xf32, "layout">
  return %y : tensor<4xf32, "layout">
}

// -----
// Kernels by hand: one that computes nothing, one that gives its operand back.
func.func @train_step(%x: tensor<4xf32>) -> tensor<4xf32> {
  memopt.kernel () {
    memopt.yield
  }
  %y = memopt.kernel (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    memopt.yield %a : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----
// A kernel whose results are one value, and constants.
func.func @train_step(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>) {
  %y:3 = memopt.kernel (%a = %x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>) {
    %c = arith.constant dense<3.0> : tensor<2xf32>
    memopt.yield %a, %a, %c : tensor<4xf32>, tensor<4xf32>, tensor<2xf32>
  }
  return %y#0, %y#1, %y#2 : tensor<4xf32>, tensor<4xf32>, tensor<2xf32>
}

// -----
// A kernel that reads outside of what it is given, by a slice of a slice.
func.func @train_step(%x: tensor<4xf32>) -> tensor<1xf32> {
  %y = memopt.kernel (%a = %x : tensor<4xf32>) -> tensor<1xf32> {
    %b = tensor.extract_slice %a[3] [1] [1] : tensor<4xf32> to tensor<1xf32>
    %e = tensor.empty() : tensor<1xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%b : tensor<1xf32>) outs(%e : tensor<1xf32>) {
    ^bb0(%in: f32, %o: f32):
      %i = linalg.index 0 : index
      %n = arith.negf %in : f32
      linalg.yield %n : f32
    } -> tensor<1xf32>
    memopt.yield %s : tensor<1xf32>
  }
  return %y : tensor<1xf32>
}

// -----
// Offsets that no plan gave.
module attributes {memopt.planned = #memopt.planned<arena_bytes = [16, 0, 0], lower_bound_bytes = [16, 0, 0]>} {
  func.func @train_step(%x: tensor<4xf32> {memopt.offset = 9223372036854775807 : i64}) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----
// Attributes of the wrong kind on arguments and results.
memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xi64> {memopt.name = 3 : i64, memopt.batch_dim = "zero", memopt.valid_range = 7 : i64, memopt.dtype = unit})
    -> (tensor<f32> {memopt.role = 3 : i64, memopt.name = unit}) {
  %w = memopt.read @w : tensor<f32>
  %y = arith.mulf %w, %w : tensor<f32>
  return %y : tensor<f32>
}

// -----
// A batch dimension that is not there.
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32> {memopt.batch_dim = 7 : i64}) -> tensor<4xf32> {
  %w = memopt.read @w : tensor<4xf32>
  %y = arith.mulf %x, %w : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----
// An unused value of every kind, and poison.
func.func @train_step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %p = ub.poison : tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  return %p : tensor<4xf32>
}

// -----

// A step by another name, and no op of the dialect.
func.func @evaluation(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
