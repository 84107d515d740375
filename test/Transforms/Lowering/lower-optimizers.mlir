// RUN: memopt-opt %s --split-input-file --memopt-lower-to-linalg --cse | FileCheck %s
// RUN: memopt-opt %s --split-input-file --memopt-lower-to-linalg --cse --memopt-form-kernels | FileCheck %s --check-prefix=KERNEL

// In 8 bits a block's scale is a reduction of its row, which computes the new state anew; then one loop decodes,
// updates and encodes. Both are one kernel.

// CHECK-LABEL: @blocks
// CHECK-DAG: %[[CODES:.*]] = arith.constant dense<{{.*}}> : tensor<256xf32>
// CHECK: %[[SCALE:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK:   tensor.extract %[[CODES]]
// CHECK:   math.absf
// CHECK:   arith.maximumf
// CHECK: } -> tensor<2xf32>
// CHECK: %[[NEW:.*]]:2 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]
// CHECK:   arith.fptosi
// CHECK: } -> (tensor<2x256xf32>, tensor<2x256xi8>)
// CHECK-NOT: linalg.generic
// CHECK: return

// KERNEL-LABEL: @blocks
// KERNEL: memopt.kernel
// KERNEL-NOT: memopt.kernel {{.*}}tensor<2xf32>
// KERNEL: return
func.func @blocks(%p: tensor<16x32xf32>, %g: tensor<16x32xf32>, %m: tensor<16x32xi8>, %s: tensor<2xf32>, %lr: tensor<f64>,
    %step: tensor<i64>) -> (tensor<16x32xf32>, tensor<16x32xi8>, tensor<2xf32>) {
  %0:3 = memopt.optimizer_step %p, %g, %lr, %step, %m, %s {optimizer = "lion", state = ["exp_avg", "exp_avg.scale"],
      settings = {betas = array<f64: 0.9, 0.99>, weight_decay = 0.0 : f64}}
    : (tensor<16x32xf32>, tensor<16x32xf32>, tensor<f64>, tensor<i64>, tensor<16x32xi8>, tensor<2xf32>)
    -> (tensor<16x32xf32>, tensor<16x32xi8>, tensor<2xf32>)
  return %0#0, %0#1, %0#2 : tensor<16x32xf32>, tensor<16x32xi8>, tensor<2xf32>
}

// -----

// A last block that is short is padded for its scale alone; the update runs over the elements that there are.

// CHECK-LABEL: @short
// CHECK: memopt.pad {{.*}} (tensor<300xi8>) -> tensor<512xi8>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK: } -> tensor<2xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel"]
// CHECK: } -> (tensor<300xf32>, tensor<300xi8>)
func.func @short(%p: tensor<300xf32>, %g: tensor<300xf32>, %m: tensor<300xi8>, %s: tensor<2xf32>, %lr: tensor<f64>,
    %step: tensor<i64>) -> (tensor<300xf32>, tensor<300xi8>, tensor<2xf32>) {
  %0:3 = memopt.optimizer_step %p, %g, %lr, %step, %m, %s {optimizer = "lion", state = ["exp_avg", "exp_avg.scale"],
      settings = {betas = array<f64: 0.9, 0.99>, weight_decay = 0.0 : f64}}
    : (tensor<300xf32>, tensor<300xf32>, tensor<f64>, tensor<i64>, tensor<300xi8>, tensor<2xf32>)
    -> (tensor<300xf32>, tensor<300xi8>, tensor<2xf32>)
  return %0#0, %0#1, %0#2 : tensor<300xf32>, tensor<300xi8>, tensor<2xf32>
}

// -----

// In 16 bits state is widened when read and rounded when written, in the same loop.

// CHECK-LABEL: @narrow
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: } -> (tensor<8xf32>, tensor<8xbf16>)
func.func @narrow(%p: tensor<8xf32>, %g: tensor<8xf32>, %m: tensor<8xbf16>, %lr: tensor<f64>, %step: tensor<i64>)
    -> (tensor<8xf32>, tensor<8xbf16>) {
  %0:2 = memopt.optimizer_step %p, %g, %lr, %step, %m {optimizer = "lion", state = ["exp_avg"],
      settings = {betas = array<f64: 0.9, 0.99>, weight_decay = 0.0 : f64}}
    : (tensor<8xf32>, tensor<8xf32>, tensor<f64>, tensor<i64>, tensor<8xbf16>) -> (tensor<8xf32>, tensor<8xbf16>)
  return %0#0, %0#1 : tensor<8xf32>, tensor<8xbf16>
}

// -----

// Muon's iterations are products, which a library computes. A tall matrix takes the Gram matrix of its columns.

// CHECK-LABEL: @muon
// CHECK-COUNT-6: memopt.matmul
// CHECK-NOT: memopt.matmul
// CHECK: return
func.func @muon(%p: tensor<8x4xf32>, %g: tensor<8x4xf32>, %m: tensor<8x4xf32>, %lr: tensor<f64>, %step: tensor<i64>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0:2 = memopt.optimizer_step %p, %g, %lr, %step, %m {optimizer = "muon", state = ["momentum_buffer"],
      settings = {weight_decay = 0.1 : f64, momentum = 0.95 : f64, nesterov = 1.0 : f64, ns_steps = 2.0 : f64, eps = 1.0e-7 : f64,
                  adjust_lr_fn = "original"}}
    : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<f64>, tensor<i64>, tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>)
  return %0#0, %0#1 : tensor<8x4xf32>, tensor<8x4xf32>
}
