// REQUIRES: emulator
// RUN: rm -rf %t && mkdir %t
// RUN: memopt-compile %s -o %t/cpu.memopt
// RUN: memopt-compile %s -o %t/cuda.memopt --target=cuda --target-features=%emulated_device
// RUN: memopt-run %t/cpu.memopt --steps=2 --lr=0.25 --quiet --save=%t/cpu
// RUN: memopt-emulate --seeds=2 memopt-run %t/cuda.memopt --device=cuda --steps=2 --lr=0.25 --quiet --check-memory --save=%t/cuda
// RUN: cmp %t/cpu/model.safetensors %t/cuda/model.safetensors

// The emulator knows a table inside of a kernel, whose elements lanes pick by addresses of their own, from the memory that a
// kernel is given. Elementwise arithmetic has a processor's bits.

memopt.variable @x : tensor<8x8xf32> role <parameter> {trainable, names = ["x"], initial = dense<0.3> : tensor<8x8xf32>}
func.func @train_step() -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %x = memopt.read @x : tensor<8x8xf32>
  %table = arith.constant dense<[1.0, 0.5, -2.0, 3.0, 0.25, 7.0, -1.5, 0.125]> : tensor<8xf32>
  %backwards = memopt.reverse %table {dimensions = array<i64: 0>} : (tensor<8xf32>) -> tensor<8xf32>
  %factors = memopt.broadcast %backwards {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<8x8xf32>
  %scaled = arith.mulf %x, %factors : tensor<8x8xf32>
  %loss = memopt.reduce %scaled {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
