// RUN: memopt-opt %s -memopt-insert-optimizer="ranks=3 zero-stage=1 max-grad-norm=1.0 settings='optimizer=sgd momentum=0.9'" -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-insert-optimizer="ranks=3 zero-stage=1 settings='optimizer=adam optim-bits=8 min-8bit-size=1'" -split-input-file | FileCheck %s --check-prefix=CODES
// RUN: memopt-opt %s -memopt-insert-optimizer="ranks=3 zero-stage=1 settings='optimizer=nadam'" -split-input-file | FileCheck %s --check-prefix=NUMBER
// RUN: memopt-opt %s -memopt-insert-optimizer="ranks=3 zero-stage=0" -split-input-file | FileCheck %s --check-prefix=WHOLE

// An update is that of the rank's own part: vectors of a multiple of 16 elements go in, and the new parameter is gathered.

// CHECK: memopt.variable @optimizer.momentum.w : tensor<32xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [7, 10]>
// State in 8 bits is cut at blocks of 256, and so are their scales.
// CODES: memopt.variable @optimizer.exp_avg.w : tensor<256xi8> {{.*}}shard = #memopt.shard<ranks = 3, shape = [7, 10]>
// CODES: memopt.variable @optimizer.exp_avg.scale.w : tensor<1xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [1]>
// A number for the whole parameter is the same on all ranks.
// NUMBER: memopt.variable @optimizer.exp_avg.w : tensor<32xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [7, 10]>
// NUMBER: memopt.variable @optimizer.mu_product.w : tensor<f64> role <optimizer_state> {init_value = 1.000000e+00 : f64, names = ["optimizer.mu_product.w"], of = @w, slot
// WHOLE: memopt.variable @w
// WHOLE-NOT: memopt.collective
memopt.variable @w : tensor<7x10xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step(%g: tensor<7x10xf32>) -> tensor<7x10xf32> {
  // CHECK: %[[OWN:.*]] = memopt.collective <own_shard> %arg0 over 3 {{.*}} : tensor<7x10xf32> -> tensor<32xf32>
  // CHECK: memopt.gradient %[[OWN]], @w {{.*}}shard = #memopt.shard<ranks = 3, shape = [7, 10]>
  // The norm is that of all parts.
  // CHECK: %[[NORM:.*]] = memopt.global_norm %[[OWN]]
  // CHECK: %[[WIDE:.*]] = arith.extf %[[NORM]]
  // CHECK: %[[SQUARE:.*]] = arith.mulf %[[WIDE]], %[[WIDE]]
  // CHECK: %[[SUM:.*]] = memopt.collective <all_reduce> %[[SQUARE]] over 3
  // CHECK: math.sqrt %[[SUM]]
  // CHECK: %[[OLD:.*]] = memopt.read @w
  // CHECK: %[[PART:.*]] = memopt.collective <own_shard> %[[OLD]] over 3
  // CHECK: %[[NEW:.*]], %{{.*}} = memopt.optimizer_step %[[PART]]
  // CHECK: %[[ALL:.*]] = memopt.collective <all_gather> %[[NEW]] over 3 {{.*}} : tensor<32xf32> -> tensor<7x10xf32>
  // CHECK: memopt.write %[[ALL]], @w
  memopt.gradient %g, @w {memopt.phase = #memopt.phase<backward>} : tensor<7x10xf32>
  return %g : tensor<7x10xf32>
}

// -----

// A shard may have the type of the whole, which the first rank has then: the others have padding.

memopt.variable @b : tensor<16xf32> role <parameter> {trainable}
// NUMBER-LABEL: func.func @train_step
func.func @train_step(%g: tensor<16xf32>) -> tensor<16xf32> {
  // NUMBER: %[[OLD:.*]] = memopt.read @b
  // NUMBER: %[[PART:.*]] = memopt.collective <own_shard> %[[OLD]] over 3 {{.*}} : tensor<16xf32> -> tensor<16xf32>
  // NUMBER: %[[NEW:.*]], %{{.*}} = memopt.optimizer_step %[[PART]]
  // NUMBER: %[[ALL:.*]] = memopt.collective <all_gather> %[[NEW]] over 3 {{.*}} : tensor<16xf32> -> tensor<16xf32>
  // NUMBER: memopt.write %[[ALL]], @b
  memopt.gradient %g, @b {memopt.phase = #memopt.phase<backward>} : tensor<16xf32>
  return %g : tensor<16xf32>
}

// -----

// One that is smaller than a vector is not rounded up to it, but in blocks of 8 bits.

// CODES: memopt.variable @optimizer.exp_avg.c : tensor<256xi8>
// NUMBER: memopt.variable @optimizer.exp_avg.c : tensor<14xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [40]>
memopt.variable @c : tensor<40xf32> role <parameter> {trainable}
func.func @train_step(%g: tensor<40xf32>) -> tensor<40xf32> {
  memopt.gradient %g, @c {memopt.phase = #memopt.phase<backward>} : tensor<40xf32>
  return %g : tensor<40xf32>
}

// -----

// Small parameters that are updated alike are one vector: each begins at a multiple of 16 elements, or at a block of codes. An
// optimizer with a number for each parameter has no such vectors.

// CHECK: memopt.variable @"optimizer.momentum.a@unit" : tensor<32xf32> {{.*}}joined
// CHECK: memopt.variable @optimizer.momentum.a : tensor<32xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [7, 10]>, slot = "momentum", unit = @"optimizer.momentum.a@unit"
// CHECK: memopt.variable @optimizer.momentum.b : tensor<32xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [3], first = 80>, slot = "momentum", unit = @"optimizer.momentum.a@unit"
// CODES: memopt.variable @optimizer.exp_avg.b : tensor<256xi8> {{.*}}shard = #memopt.shard<ranks = 3, shape = [3], first = 256>
// CODES: memopt.variable @optimizer.exp_avg.scale.b : tensor<1xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [1], first = 1>
// NUMBER-NOT: memopt.pack
memopt.variable @a : tensor<7x10xf32> role <parameter> {trainable}
memopt.variable @b : tensor<3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @together
// NUMBER-LABEL: func.func @together
func.func @together(%g: tensor<7x10xf32>, %h: tensor<3xf32>) -> tensor<7x10xf32> {
  // CHECK: %[[ALL:.*]] = memopt.pack %arg0, %arg1 at [0, 80] {{.*}} : (tensor<7x10xf32>, tensor<3xf32>) -> tensor<83xf32>
  // CHECK: %[[OWN:.*]] = memopt.collective <own_shard> %[[ALL]] over 3 {{.*}} : tensor<83xf32> -> tensor<32xf32>
  // CHECK-DAG: memopt.gradient %[[OWN]], @a {{.*}}shard = #memopt.shard<ranks = 3, shape = [7, 10]>
  // CHECK-DAG: memopt.gradient %[[OWN]], @b {{.*}}shard = #memopt.shard<ranks = 3, shape = [3], first = 80>
  // CHECK: memopt.read @"optimizer.momentum.a@unit"
  // CHECK: memopt.pack
  // CHECK: memopt.optimizer_step
  // CHECK-NOT: memopt.optimizer_step
  // CHECK: %[[NEW:.*]] = memopt.collective <all_gather> %{{.*}} over 3 {{.*}} : tensor<32xf32> -> tensor<83xf32>
  // CHECK: %[[A:.*]] = memopt.unpack %[[NEW]] from 0 {{.*}} -> tensor<7x10xf32>
  // CHECK: memopt.write %[[A]], @a
  // CHECK: %[[B:.*]] = memopt.unpack %[[NEW]] from 80 {{.*}} -> tensor<3xf32>
  // CHECK: memopt.write %[[B]], @b
  // CHECK: memopt.write %{{.*}}, @"optimizer.momentum.a@unit"
  memopt.gradient %g, @a {memopt.phase = #memopt.phase<backward>} : tensor<7x10xf32>
  memopt.gradient %h, @b {memopt.phase = #memopt.phase<backward>} : tensor<3xf32>
  return %g : tensor<7x10xf32>
}
