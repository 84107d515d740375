// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message about what a library is asked to compute.

// expected-error @+1 {{m, n and k must lie in [1, 2^48], found 0}}
module attributes {test.call = #memopt.matmul<m = 0, n = 4, k = 8, a_strides = [8, 1], b_strides = [4, 1], c_strides = [4, 1], type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{one mask counts rows or terms, not both}}
module attributes {test.call = #memopt.matmul<m = 4, n = 4, k = 8, a_strides = [8, 1], b_strides = [4, 1], c_strides = [4, 1], type = f32, accumulator = f32, counts_rows = true, counts_terms = true>} {}

// -----

// expected-error @+1 {{a mask takes no batch}}
module attributes {test.call = #memopt.matmul<batch = [2], m = 4, n = 4, k = 8, a_strides = [32, 8, 1], b_strides = [32, 4, 1], c_strides = [16, 4, 1], type = f32, accumulator = f32, counts_terms = true>} {}

// -----

// expected-error @+1 {{a_strides needs 2 numbers, found 1}}
module attributes {test.call = #memopt.matmul<m = 4, n = 4, k = 8, a_strides = [8], b_strides = [4, 1], c_strides = [4, 1], type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{a_strides must lie in [0, 2^48], found -8}}
module attributes {test.call = #memopt.matmul<m = 4, n = 4, k = 8, a_strides = [-8, 1], b_strides = [4, 1], c_strides = [4, 1], type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{expects floating-point types, found i32 and f32}}
module attributes {test.call = #memopt.matmul<m = 4, n = 4, k = 8, a_strides = [8, 1], b_strides = [4, 1], c_strides = [4, 1], type = i32, accumulator = f32>} {}

// -----

// expected-error @+1 {{accumulator f32 is narrower than f64}}
module attributes {test.call = #memopt.matmul<m = 4, n = 4, k = 8, a_strides = [8, 1], b_strides = [4, 1], c_strides = [4, 1], type = f64, accumulator = f32>} {}

// -----

// expected-error @+1 {{m, n and k has more than 2^48 elements}}
module attributes {test.call = #memopt.matmul<m = 281474976710656, n = 4, k = 8, a_strides = [8, 1], b_strides = [4, 1], c_strides = [4, 1], type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{input needs a batch, channels and one to three spatial dimensions}}
module attributes {test.call = #memopt.convolution<kind = forward, layout = channels_last, input = [1, 3], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{strides needs 2 numbers, found 1}}
module attributes {test.call = #memopt.convolution<kind = forward, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{strides must lie in [1, 2^48], found 0}}
module attributes {test.call = #memopt.convolution<kind = forward, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 0], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{padding_lower must lie in [0, 2^48], found -1}}
module attributes {test.call = #memopt.convolution<kind = forward, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [-1, 0], padding_upper = [1, 1], dilations = [1, 1], groups = 1, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{only a forward call has a bias}}
module attributes {test.call = #memopt.convolution<kind = backward_data, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, bias = true, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{only a forward call has a relu}}
module attributes {test.call = #memopt.convolution<kind = backward_data, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, relu = true, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{only a gradient of weights is accumulated}}
module attributes {test.call = #memopt.convolution<kind = backward_data, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, accumulate = true, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{a gradient of weights reads no packed ones}}
module attributes {test.call = #memopt.convolution<kind = backward_weights, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, packed = 864, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{packed must be bytes of whole elements, found 866}}
module attributes {test.call = #memopt.convolution<kind = forward, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, packed = 866, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{packed weights take no batch}}
module attributes {test.call = #memopt.matmul<batch = [2], m = 4, n = 8, k = 16, a_strides = [64, 16, 1], b_strides = [128, 8, 1], c_strides = [32, 8, 1], type = f32, accumulator = f32, packed = 512>} {}

// -----

// expected-error @+1 {{packed must be bytes of whole elements, found 514}}
module attributes {test.call = #memopt.matmul<m = 4, n = 8, k = 16, a_strides = [16, 1], b_strides = [8, 1], c_strides = [8, 1], type = f32, accumulator = f32, packed = 514>} {}

// -----

// expected-error @+1 {{expects a call that reads packed weights}}
module attributes {test.call = #memopt.pack_weights<#memopt.attention<kind = forward, batch = 2, heads = 4, kv_heads = 4, query_length = 16, key_length = 16, head_dim = 8, value_dim = 8, scale = 0.5 : f64, causal = true, q_strides = [512, 128, 8, 1], k_strides = [512, 128, 8, 1], v_strides = [512, 128, 8, 1], o_strides = [512, 128, 8, 1], type = f32, accumulator = f32>>} {}

// -----

// expected-error @+1 {{expects a call that reads packed weights}}
module attributes {test.call = #memopt.pack_weights<#memopt.convolution<kind = forward, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, type = f32, accumulator = f32>>} {}

// -----

// expected-error @+1 {{kv_heads must divide heads}}
module attributes {test.call = #memopt.attention<kind = forward, batch = 2, heads = 4, kv_heads = 3, query_length = 16, key_length = 16, head_dim = 8, value_dim = 8, scale = 0.5 : f64, q_strides = [512, 128, 8, 1], k_strides = [512, 128, 8, 1], v_strides = [512, 128, 8, 1], o_strides = [512, 128, 8, 1], type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{do_strides needs 4 numbers, found 0}}
module attributes {test.call = #memopt.attention<kind = backward, batch = 2, heads = 4, kv_heads = 4, query_length = 16, key_length = 16, head_dim = 8, value_dim = 8, scale = 0.5 : f64, q_strides = [512, 128, 8, 1], k_strides = [512, 128, 8, 1], v_strides = [512, 128, 8, 1], o_strides = [512, 128, 8, 1], type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{mask_strides needs 4 numbers, found 0}}
module attributes {test.call = #memopt.attention<kind = forward, batch = 2, heads = 4, kv_heads = 4, query_length = 16, key_length = 16, head_dim = 8, value_dim = 8, scale = 0.5 : f64, q_strides = [512, 128, 8, 1], k_strides = [512, 128, 8, 1], v_strides = [512, 128, 8, 1], o_strides = [512, 128, 8, 1], mask_type = i1, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{mask_type must be i1 or a floating-point type}}
module attributes {test.call = #memopt.attention<kind = forward, batch = 2, heads = 4, kv_heads = 4, query_length = 16, key_length = 16, head_dim = 8, value_dim = 8, scale = 0.5 : f64, q_strides = [512, 128, 8, 1], k_strides = [512, 128, 8, 1], v_strides = [512, 128, 8, 1], o_strides = [512, 128, 8, 1], mask_type = i64, mask_strides = [0, 0, 16, 1], type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{dropout must lie in [0, 1)}}
module attributes {test.call = #memopt.attention<kind = forward, batch = 2, heads = 4, kv_heads = 4, query_length = 16, key_length = 16, head_dim = 8, value_dim = 8, scale = 0.5 : f64, q_strides = [512, 128, 8, 1], k_strides = [512, 128, 8, 1], v_strides = [512, 128, 8, 1], o_strides = [512, 128, 8, 1], dropout = 1.0 : f64, type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{dmask_strides need a mask of f32 and kind = backward}}
module attributes {test.call = #memopt.attention<kind = forward, batch = 2, heads = 4, kv_heads = 4, query_length = 16, key_length = 16, head_dim = 8, value_dim = 8, scale = 0.5 : f64, q_strides = [512, 128, 8, 1], k_strides = [512, 128, 8, 1], v_strides = [512, 128, 8, 1], o_strides = [512, 128, 8, 1], mask_type = f32, mask_strides = [0, 256, 16, 1], dmask_strides = [0, 256, 16, 1], type = f32, accumulator = f32>} {}

// -----

// expected-error @+1 {{result_type must be bf16 or f32, found f16}}
module attributes {test.call = #memopt.matmul<m = 4, n = 8, k = 16, a_strides = [16, 1], b_strides = [8, 1], c_strides = [8, 1], type = bf16, accumulator = f32, result_type = f16>} {}

// -----

// expected-error @+1 {{result_type must be f32, found bf16}}
module attributes {test.call = #memopt.convolution<kind = forward, layout = channels_last, input = [1, 3, 8, 8], weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1], dilations = [1, 1], groups = 1, type = f32, accumulator = f32, result_type = bf16>} {}
