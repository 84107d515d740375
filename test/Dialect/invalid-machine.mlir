// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message about memopt.machine.

// expected-error @+1 {{'memopt.machine' must be a dictionary, found 3 : i64}}
module attributes {memopt.machine = 3 : i64} {}

// -----

// expected-error @+1 {{'memopt.machine': 'cache_bytes' must be a positive f64, found -1.000000e+00 : f64}}
module attributes {memopt.machine = {cache_bytes = -1.0 : f64}} {}

// -----

// expected-error @+1 {{'memopt.machine': 'cache_bytes' must be a positive f64, found 4 : i64}}
module attributes {memopt.machine = {cache_bytes = 4 : i64}} {}

// -----

// expected-error @+1 {{'memopt.machine': 'threads' must be a count of at least 1, found 0 : i64}}
module attributes {memopt.machine = {threads = 0 : i64}} {}

// -----

// expected-error @+1 {{'memopt.machine': 'machine' must be a string, found 1 : i64}}
module attributes {memopt.machine = {machine = 1 : i64}} {}
