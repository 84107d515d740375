// RUN: memopt-opt %s --memopt-narrow-frozen --verify-diagnostics

// expected-error @below {{is shared out over ranks, and kept in nf4: blocks of codes are not cut}}
memopt.variable @w : tensor<2112xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [70, 60]>, memopt.state_code = {code = "nf4"}}
func.func @step() -> tensor<70x60xf32> {
  %own = memopt.read @w : tensor<2112xf32>
  %w = memopt.collective <all_gather> %own over 2 : tensor<2112xf32> -> tensor<70x60xf32>
  return %w : tensor<70x60xf32>
}
