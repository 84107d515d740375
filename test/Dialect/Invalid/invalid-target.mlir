// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message about memopt.target, memopt.planned and memopt.efficient_conv_bn_eval.

// expected-error @+1 {{'memopt.target' must be a target such as #memopt.cpu, found 3 : i64}}
module attributes {memopt.target = 3 : i64} {}

// -----

// expected-error @+1 {{a processor runs at least one thread, found 0}}
module attributes {memopt.target = #memopt.cpu<threads = 0>} {}

// -----

// expected-error @+1 {{profile: 'cache_bytes' must be a positive f64, found -1.000000e+00 : f64}}
module attributes {memopt.target = #memopt.cpu<profile = {cache_bytes = -1.0 : f64}>} {}

// -----

// expected-error @+1 {{profile: 'cache_bytes' must be a positive f64, found 4 : i64}}
module attributes {memopt.target = #memopt.cpu<profile = {cache_bytes = 4 : i64}>} {}

// -----

// expected-error @+1 {{profile: 'threads' must be a count of at least 1, found 0 : i64}}
module attributes {memopt.target = #memopt.cpu<profile = {threads = 0 : i64}>} {}

// -----

// expected-error @+1 {{profile: 'machine' must be a string, found 1 : i64}}
module attributes {memopt.target = #memopt.cpu<profile = {machine = 1 : i64}>} {}

// -----

// expected-error @+1 {{a chip is sm_75 or newer, for CUDA 13 has dropped those before, found 'sm_70'}}
module attributes {memopt.target = #memopt.cuda<"sm_70", sms = 80>} {}

// -----

// expected-error @+1 {{a chip is sm_75 or newer, for CUDA 13 has dropped those before, found 'h100'}}
module attributes {memopt.target = #memopt.cuda<"h100", sms = 132>} {}

// -----

// expected-error @+1 {{a device has at least one multiprocessor, found 0}}
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 0>} {}

// -----

// expected-error @+1 {{an image is 'cubin' or 'bitcode', found 'ptx'}}
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132, image = "ptx">} {}

// -----

// expected-error @+1 {{profile: 'cache_bytes' must be a positive f64, found -1.000000e+00 : f64}}
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132, profile = {cache_bytes = -1.0 : f64}>} {}

// -----

// expected-error @+1 {{'memopt.planned' must be a #memopt.planned, found 1 : i64}}
module attributes {memopt.planned = 1 : i64} {}

// -----

// expected-error @+1 {{expects bytes of 3 spaces, found 1}}
module attributes {memopt.planned = #memopt.planned<arena_bytes = [1], lower_bound_bytes = [1, 0, 0]>} {}

// -----

// expected-error @+1 {{bytes must not be negative, found -1}}
module attributes {memopt.planned = #memopt.planned<arena_bytes = [1, 0, 0], lower_bound_bytes = [-1, 0, 0]>} {}

// -----

// expected-error @+1 {{'memopt.efficient_conv_bn_eval' must be a dictionary {fused, refused, result_bytes, filter_bytes}, found {fused = ["bn"]}}}
module attributes {memopt.efficient_conv_bn_eval = {fused = ["bn"]}} {}
