// RUN: memopt-opt %s --split-input-file --verify-diagnostics --memopt-insert-optimizer="settings='momentum=0.9'"

memopt.variable @w : tensor<f32> role <parameter> {trainable}
// expected-error @below {{'memopt.variable' op has type 'tensor<f32>', but the optimizer expects 'tensor<f64>'}}
memopt.variable @lr : tensor<f32> role <hyperparameter>
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<f32>
  memopt.gradient %0, @w : tensor<f32>
  return %0 : tensor<f32>
}

// -----

memopt.variable @w : tensor<f32> role <parameter> {trainable}
// expected-error @below {{'memopt.variable' op has the name of optimizer state of 'w'}}
memopt.variable @optimizer.momentum.w : tensor<f32> role <buffer>
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<f32>
  memopt.gradient %0, @w : tensor<f32>
  return %0 : tensor<f32>
}

// -----

memopt.variable @w : tensor<f32> role <parameter> {trainable}
// expected-error @below {{'func.func' op has the name 'step', which the optimizer needs}}
func.func private @step()
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<f32>
  memopt.gradient %0, @w : tensor<f32>
  return %0 : tensor<f32>
}

// -----

memopt.variable @w : tensor<f32> role <parameter> {trainable}
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<f32>
  memopt.gradient %0, @w : tensor<f32>
  // expected-error @below {{'memopt.gradient' op is the second of its variable}}
  memopt.gradient %0, @w : tensor<f32>
  return %0 : tensor<f32>
}
