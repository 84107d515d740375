// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=lamb'" 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='lr=-1'" 2>&1 | FileCheck %s --check-prefix=RATE
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam betas=0.9,1'" 2>&1 | FileCheck %s --check-prefix=BETA
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam betas=0.9'" 2>&1 | FileCheck %s --check-prefix=BETAS
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='dampening=inf'" 2>&1 | FileCheck %s --check-prefix=DAMPENING
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='nesterov'" 2>&1 | FileCheck %s --check-prefix=NESTEROV
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='nesterov=yes'" 2>&1 | FileCheck %s --check-prefix=FLAG
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=muon ns-steps=2.5'" 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=muon adjust-lr-fn=none'" 2>&1 | FileCheck %s --check-prefix=CHOICE
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='rho=0.9'" 2>&1 | FileCheck %s --check-prefix=FOREIGN
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='rhino=0.9'" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam bias-decay-mult=0'" 2>&1 | FileCheck %s --check-prefix=NODECAY
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=sm3 norm-decay-mult=0'" 2>&1 | FileCheck %s --check-prefix=MULT
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adafactor optim-bits=8'" 2>&1 | FileCheck %s --check-prefix=BITS
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=rmsprop centered=on optim-bits=16'" 2>&1 | FileCheck %s --check-prefix=CENTERED
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam optim-bits=2'" 2>&1 | FileCheck %s --check-prefix=WIDTH
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=adam min-8bit-size=16'" 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='param-group=*.bias'" 2>&1 | FileCheck %s --check-prefix=GROUP
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='param-group=*:ema-decay=0.5'" 2>&1 | FileCheck %s --check-prefix=KEY
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='param-group=*:optimizer=sm3,weight-decay=1'" 2>&1 | FileCheck %s --check-prefix=GROUPOPTION
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='param-group=*:maximize=yes'" 2>&1 | FileCheck %s --check-prefix=UP
// RUN: not memopt-opt %s --memopt-insert-optimizer="settings='optimizer=rprop etas=0.5,0.9'" 2>&1 | FileCheck %s --check-prefix=ETAS
// RUN: not memopt-opt %s --memopt-insert-optimizer="max-grad-norm=-1" 2>&1 | FileCheck %s --check-prefix=NORM
// RUN: not memopt-opt %s --memopt-insert-optimizer 2>&1 | FileCheck %s --check-prefix=GRADIENTS

// NAME: error: unknown optimizer 'lamb', expected one of sgd, adam, adamw, rmsprop, adagrad, adadelta, adamax, nadam, radam, asgd, adafactor, muon, lion, sm3, adam-mini, apollo, apollo-mini, rprop
// RATE: error: --lr expects a number in [0, inf), found '-1'
// BETA: error: --betas expects two numbers in [0, 1), found '0.9,1'
// BETAS: error: --betas expects two numbers, found '0.9'
// DAMPENING: error: --dampening expects a number in (-inf, inf), found 'inf'
// NESTEROV: error: --nesterov needs a momentum and no dampening
// FLAG: error: --nesterov expects on or off, found 'yes'
// COUNT: error: --ns-steps expects a count in [0, 99], found '2.5'
// CHOICE: error: --adjust-lr-fn expects original, match-rms-adamw, spectral-unclamped, found 'none'
// FOREIGN: error: --rho is an option of adadelta; sgd has none such
// UNKNOWN: error: unknown option 'rhino' of an optimizer
// NODECAY: error: --bias-decay-mult changes weight decay, which is 0; give --weight-decay=X
// MULT: error: --norm-decay-mult changes weight decay, which sm3 does not have
// BITS: error: --optim-bits=8: the state of adafactor cannot be kept in 8 bits
// CENTERED: error: --optim-bits=16: the deviation that --centered divides by is lost in state of 16 bits
// WIDTH: error: --optim-bits expects 32, 16, 8, 4, found '2'
// SIZE: error: --min-8bit-size needs --optim-bits=8 or 4
// GROUP: error: --param-group expects GLOB,...:KEY=VALUE,..., found '*.bias'
// KEY: error: --param-group sets optimizer, optim-bits, maximize, step-count or an option of an optimizer, found 'ema-decay=0.5' in '*:ema-decay=0.5'
// UP: error: --maximize expects on or off, found 'yes'
// ETAS: error: --etas expects a number between 0 and 1, and one above 1
// GROUPOPTION: error: --param-group=...:weight-decay=1: sm3 has no such option
// NORM: error: --max-grad-norm expects a number in [0, inf], found -1
// GRADIENTS: error: 'func.func' op has no gradients; expected the output of memopt-autodiff

func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
