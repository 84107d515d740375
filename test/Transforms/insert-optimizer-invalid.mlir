// RUN: not memopt-opt %s --memopt-insert-optimizer="optimizer=lamb" 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not memopt-opt %s --memopt-insert-optimizer="lr=-1" 2>&1 | FileCheck %s --check-prefix=RATE
// RUN: not memopt-opt %s --memopt-insert-optimizer="optimizer=adam betas=0.9,1" 2>&1 | FileCheck %s --check-prefix=BETA
// RUN: not memopt-opt %s --memopt-insert-optimizer="optimizer=adam betas=0.9" 2>&1 | FileCheck %s --check-prefix=BETAS
// RUN: not memopt-opt %s --memopt-insert-optimizer="weight-decay=-2" 2>&1 | FileCheck %s --check-prefix=DECAY
// RUN: not memopt-opt %s --memopt-insert-optimizer="dampening=inf" 2>&1 | FileCheck %s --check-prefix=DAMPENING
// RUN: not memopt-opt %s --memopt-insert-optimizer="nesterov" 2>&1 | FileCheck %s --check-prefix=NESTEROV
// RUN: not memopt-opt %s --memopt-insert-optimizer="max-grad-norm=-1" 2>&1 | FileCheck %s --check-prefix=NORM
// RUN: not memopt-opt %s --memopt-insert-optimizer="function=other" 2>&1 | FileCheck %s --check-prefix=FUNCTION
// RUN: not memopt-opt %s --memopt-insert-optimizer 2>&1 | FileCheck %s --check-prefix=GRADIENTS

// NAME: error: unknown optimizer 'lamb', expected sgd, adam or adamw
// RATE: error: optimizer option 'lr' must lie in [0, inf), found -1
// BETA: error: optimizer option 'betas' must lie in [0, 1), found 1
// BETAS: error: optimizer option 'betas' needs two numbers, found 1
// DECAY: error: optimizer option 'weight-decay' must lie in [0, inf), found -2
// DAMPENING: error: optimizer option 'dampening' must be finite, found inf
// NESTEROV: error: optimizer option 'nesterov' requires a momentum and zero dampening
// NORM: error: optimizer option 'max-grad-norm' must lie in [0, inf), found -1
// FUNCTION: error: 'builtin.module' op has no function 'other' of one block
// GRADIENTS: error: 'func.func' op has no gradients; expected the output of memopt-autodiff

func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
