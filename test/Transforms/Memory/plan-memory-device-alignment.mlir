// On a device every buffer begins at a multiple of 16 bytes, be it as small as a step's number, for libraries and kernels
// load so much at a time; workspaces of library calls begin at multiples of 256.

// RUN: memopt-opt %s --memopt-form-kernels --memopt-plan-memory --memopt-verify-planned | FileCheck %s

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-DAG: memopt.variable @step {{.*}}offset = {{[0-9]*(0|16|32|48|64|80|96|112)}} : i64
memopt.variable @step : tensor<i64> role <buffer>
// CHECK-DAG: memopt.variable @seed {{.*}}offset = {{[0-9]*(0|16|32|48|64|80|96|112)}} : i64
memopt.variable @seed : tensor<i64> role <buffer>
memopt.variable @bias : tensor<2xf32> role <parameter> {trainable}

// Variables take 48 bytes, so the workspace does not begin behind them at once.
// CHECK: memopt.library_call #memopt.matmul<{{.*}} offsets = array<i64: {{[0-9]+}}, 256>
func.func @product(%x: tensor<32x96xf32>, %w: tensor<96x64xf32>) -> tensor<32x64xf32> {
  %0 = memopt.matmul %x, %w : (tensor<32x96xf32>, tensor<96x64xf32>) -> tensor<32x64xf32>
  return %0 : tensor<32x64xf32>
}
}
