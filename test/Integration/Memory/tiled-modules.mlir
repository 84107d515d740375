// RUN: rm -rf %t && mkdir %t
// RUN: %python -c "import numpy, sys; sys.path.insert(0, '%support'); import tensor_files; tensor_files.write_safetensors('%t/data.safetensors', {'x': numpy.random.default_rng(0).standard_normal((12, 48, 16), dtype='f4')})"
// RUN: memopt-compile %s --optimizer=sgd --tile=net.mlp:1 -o %t/1.memopt --quiet
// RUN: memopt-run %t/1.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/1.json --save=%t/1
// RUN: memopt-compile %s --optimizer=sgd --tile=net.mlp:2 -o %t/2.memopt --quiet
// RUN: memopt-run %t/2.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/2.json --save=%t/2
// RUN: memopt-compile %s --optimizer=sgd --tile=net.mlp:6 -o %t/6.memopt --quiet
// RUN: memopt-run %t/6.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/6.json --save=%t/6
// RUN: cmp %t/1/model.safetensors %t/2/model.safetensors
// RUN: %python %support/compare_runs.py %t/1.json %t/2.json
// RUN: cmp %t/1/model.safetensors %t/6/model.safetensors
// RUN: %python %support/compare_runs.py %t/1.json %t/6.json
// RUN: memopt-compile %s --optimizer=sgd --batch=3 --tile=net.mlp:1 -o %t/odd1.memopt --quiet
// RUN: memopt-run %t/odd1.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/odd1.json --save=%t/odd1
// RUN: memopt-compile %s --optimizer=sgd --batch=3 --tile=net.mlp:2 -o %t/odd2.memopt --quiet
// RUN: memopt-run %t/odd2.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/odd2.json --save=%t/odd2
// RUN: memopt-compile %s --optimizer=sgd --batch=3 --tile=net.mlp:6 -o %t/odd6.memopt --quiet
// RUN: memopt-run %t/odd6.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/odd6.json --save=%t/odd6
// RUN: cmp %t/odd1/model.safetensors %t/odd2/model.safetensors
// RUN: %python %support/compare_runs.py %t/odd1.json %t/odd2.json
// RUN: cmp %t/odd1/model.safetensors %t/odd6/model.safetensors
// RUN: %python %support/compare_runs.py %t/odd1.json %t/odd6.json
// RUN: memopt-compile %s --optimizer=sgd --micro-batches=2 --tile=net.mlp:1 -o %t/micro1.memopt --quiet
// RUN: memopt-run %t/micro1.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/micro1.json --save=%t/micro1
// RUN: memopt-compile %s --optimizer=sgd --micro-batches=2 --tile=net.mlp:2 -o %t/micro2.memopt --quiet
// RUN: memopt-run %t/micro2.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/micro2.json --save=%t/micro2
// RUN: memopt-compile %s --optimizer=sgd --micro-batches=2 --tile=net.mlp:6 -o %t/micro6.memopt --quiet
// RUN: memopt-run %t/micro6.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --check-memory --report=%t/micro6.json --save=%t/micro6
// RUN: cmp %t/micro1/model.safetensors %t/micro2/model.safetensors
// RUN: %python %support/compare_runs.py %t/micro1.json %t/micro2.json
// RUN: cmp %t/micro1/model.safetensors %t/micro6/model.safetensors
// RUN: %python %support/compare_runs.py %t/micro1.json %t/micro6.json
// RUN: memopt-compile %s --optimizer=sgd --reference --tile=net.mlp:1 -o %t/reference1.memopt --quiet
// RUN: memopt-run %t/reference1.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --save=%t/reference1
// RUN: memopt-compile %s --optimizer=sgd --reference --tile=net.mlp:6 -o %t/reference6.memopt --quiet
// RUN: memopt-run %t/reference6.memopt --data=%t/data.safetensors --steps=3 --lr=0.5 --init=random --quiet --save=%t/reference6
// RUN: cmp %t/reference1/model.safetensors %t/reference6/model.safetensors
// RUN: memopt-compile %s --optimizer=sgd --batch=3 --tile=net.mlp:6 --emit=kernels | FileCheck %s
// RUN: memopt-compile %s --optimizer=sgd --micro-batches=2 --tile=net.mlp:6 --emit=planned | FileCheck %s --check-prefix=SUMS

// The gradient waits for a sum over all tokens, so that forward and backward pass run apart, each as a loop over parts of
// 192 tokens; of 144 tokens four turns have 32, what is left is written out. Bits are the same in any number of parts,
// also where a part of one tile has its bias added by the product's call, and larger ones by a kernel.

// CHECK: memopt.scan count(4) {{.*}} slices(
// CHECK: memopt.library_call #memopt.matmul<m = 16, n = 64, k = 16
// CHECK: memopt.scan count(4) {{.*}} carried(
// CHECK: accumulate = true, {{.*}}memopt.phase<backward>
// CHECK: memopt.yield

// In a loop over micro-batches the sums go on in place: the loop overwrites what it read.
// SUMS: memopt.repeat count(2)
// SUMS: %[[OLD:.*]] = memopt.read @sum.w2
// SUMS: memopt.scan count(3) {{.*}} carried({{.*}}= %[[OLD]]

memopt.variable @w1 : tensor<64x16xf32> role <parameter> {trainable, names = ["w1"]}
memopt.variable @b1 : tensor<64xf32> role <parameter> {trainable, names = ["b1"]}
memopt.variable @w2 : tensor<16x64xf32> role <parameter> {trainable, names = ["w2"]}
func.func @train_step(%x: tensor<4x48x16xf32> {memopt.name = "x", memopt.batch_dim = 0 : i64}) -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %w1 = memopt.read @w1 : tensor<64x16xf32>
  %b1 = memopt.read @b1 : tensor<64xf32>
  %w2 = memopt.read @w2 : tensor<16x64xf32>
  %tokens = tensor.collapse_shape %x [[0, 1], [2]] : tensor<4x48x16xf32> into tensor<192x16xf32>
  %wide = memopt.matmul %tokens, %w1 {transpose_b} : (tensor<192x16xf32>, tensor<64x16xf32>) -> tensor<192x64xf32> loc(#mlp)
  %biases = memopt.broadcast %b1 {dimensions = array<i64: 1>} : (tensor<64xf32>) -> tensor<192x64xf32> loc(#mlp)
  %biased = arith.addf %wide, %biases : tensor<192x64xf32> loc(#mlp)
  %bent = math.tanh %biased : tensor<192x64xf32> loc(#mlp)
  %narrow = memopt.matmul %bent, %w2 {transpose_b} : (tensor<192x64xf32>, tensor<16x64xf32>) -> tensor<192x16xf32> loc(#mlp)
  %samples = tensor.expand_shape %narrow [[0, 1], [2]] output_shape [4, 48, 16] : tensor<192x16xf32> into tensor<4x48x16xf32>
  %sums = memopt.reduce %samples {kind = #memopt.reduce<add>, dimensions = array<i64: 1>} : (tensor<4x48x16xf32>) -> tensor<4x16xf32>
  %squares = arith.mulf %sums, %sums : tensor<4x16xf32>
  %total = memopt.reduce %squares {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<4x16xf32>) -> tensor<f32>
  %count = arith.constant dense<3072.0> : tensor<f32>
  %loss = arith.divf %total, %count : tensor<f32>
  return %loss : tensor<f32>
}
#mlp = loc("net.mlp")
