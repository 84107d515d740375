// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of StateOps.cpp and of the dialect's attributes.

// expected-error @+1 {{'memopt.variable' op initial value has type 'tensor<3xf32>', expected 'tensor<2xf32>'}}
memopt.variable @w : tensor<2xf32> role <parameter> {initial = dense<0.0> : tensor<3xf32>}

// -----

// expected-error @+1 {{'memopt.variable' op has both 'initial' and 'init_value'}}
memopt.variable @w : tensor<2xf32> role <parameter> {initial = dense<0.0> : tensor<2xf32>, init_value = 0.0 : f64}

// -----

// expected-error @+1 {{'memopt.variable' op only parameters are trainable, found role buffer}}
memopt.variable @w : tensor<2xf32> role <buffer> {trainable}

// -----

// expected-error @+1 {{'memopt.variable' op trainable variables hold floating-point numbers, found 'i64'}}
memopt.variable @w : tensor<2xi64> role <parameter> {trainable}

// -----

// expected-error @+1 {{'memopt.variable' op optimizer state names its parameter in 'of' and its part in 'slot'}}
memopt.variable @m : tensor<2xf32> role <optimizer_state> {slot = "momentum"}

// -----

func.func @read() {
  // expected-error @+1 {{'memopt.read' op names no variable: @w}}
  %0 = memopt.read @w : tensor<2xf32>
  return
}

// -----

// expected-note @+1 {{declared here}}
memopt.variable @w : tensor<2xf32> role <parameter>
func.func @read() {
  // expected-error @+1 {{'memopt.read' op has type 'tensor<3xf32>', expected 'tensor<2xf32>'}}
  %0 = memopt.read @w : tensor<3xf32>
  return
}

// -----

func.func @write(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.write' op names no variable: @w}}
  memopt.write %x, @w : tensor<2xf32>
  return
}

// -----

// expected-note @+1 {{declared here}}
memopt.variable @w : tensor<2xf32> role <parameter>
func.func @write(%x: tensor<2xf64>) {
  // expected-error @+1 {{'memopt.write' op has type 'tensor<2xf64>', expected 'tensor<2xf32>'}}
  memopt.write %x, @w : tensor<2xf64>
  return
}

// -----

func.func @gradient(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.gradient' op names no variable: @w}}
  memopt.gradient %x, @w : tensor<2xf32>
  return
}

// -----

// expected-note @+1 {{declared here}}
memopt.variable @w : tensor<2xf32> role <parameter>
func.func @gradient(%x: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.gradient' op has type 'tensor<3xf32>', expected 'tensor<2xf32>'}}
  memopt.gradient %x, @w : tensor<3xf32>
  return
}

// -----

func.func @clone(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.relu' op 'memopt.clone' must be an integer, found "second"}}
  %0 = memopt.relu %x {memopt.clone = "second"} : tensor<2xf32>
  return
}

// -----

func.func @phase(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.relu' op 'memopt.phase' must be a phase, found 2 : i64}}
  %0 = memopt.relu %x {memopt.phase = 2 : i64} : tensor<2xf32>
  return
}

// -----

// expected-error @+1 {{a shard needs at least one rank, found 0}}
memopt.variable @w : tensor<2xf32> role <parameter> {shard = #memopt.shard<ranks = 0, shape = [2]>}

// -----

// expected-error @+1 {{'memopt.variable' op offset must not be negative, found -8}}
memopt.variable @w : tensor<2xf32> role <parameter> {offset = -8 : i64}

// -----

// A value on the host is read from a variable on the host.

// expected-note @+1 {{declared here}}
memopt.variable @w : tensor<2xf32> role <parameter> {placement = #memopt.space<host>}
func.func @placement() {
  // expected-error @+1 {{'memopt.read' op has type 'tensor<2xf32>', expected 'tensor<2xf32, #memopt.space<host>>'}}
  %0 = memopt.read @w : tensor<2xf32>
  return
}

// -----

// expected-error @+1 {{'memopt.variable' op has type 'tensor<2xf32>', which is none of 2 shards of 6 elements}}
memopt.variable @w : tensor<2xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [2, 3]>}

// -----

memopt.variable @w : tensor<2x3xf32> role <parameter>
func.func @gradient(%g: tensor<1x3xf32>) {
  // expected-error @+1 {{'memopt.gradient' op has type 'tensor<1x3xf32>', which is none of 2 shards of 6 elements}}
  memopt.gradient %g, @w {shard = #memopt.shard<ranks = 2, shape = [2, 3]>} : tensor<1x3xf32>
  return
}

// -----

// expected-error @+1 {{'memopt.variable' op initial value has type 'tensor<3xf32>', expected 'tensor<2x3xf32>'}}
memopt.variable @w : tensor<3xf32> role <parameter> {initial = dense<0.0> : tensor<3xf32>, shard = #memopt.shard<ranks = 2, shape = [2, 3]>}

// -----

// expected-error @+1 {{a shard is one of a tensor of positive sizes}}
memopt.variable @w : tensor<3xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [2, 0]>}

// -----

// expected-error @+1 {{'memopt.variable' op lies in @unit, which is no joined variable of its type that has the place of both}}
memopt.variable @w : tensor<16xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [3]>, unit = @unit}
memopt.variable @unit : tensor<16xf32> role <parameter>

// -----

// A tensor ends where its unit does at the latest.
// expected-error @+1 {{'memopt.variable' op has type 'tensor<16xf32>', which is none of 2 shards of 33 elements}}
memopt.variable @w : tensor<16xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [3], first = 30>}

// -----

// expected-error @+1 {{a tensor begins at an element of its unit, found -1}}
memopt.variable @w : tensor<16xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [3], first = -1>}

// -----

memopt.variable @w : tensor<2xf32> role <parameter> {trainable}
func.func @step(%count: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.updated_where' op expected a single number, found 'tensor<2xf32>'}}
  memopt.updated_where %count, [@w] : tensor<2xf32>
  return
}

// -----

memopt.variable @w : tensor<2xf32> role <parameter>
func.func @step(%count: tensor<f32>) {
  // expected-error @+1 {{'memopt.updated_where' op names no trainable variable: @w}}
  memopt.updated_where %count, [@w] : tensor<f32>
  return
}
