# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""make_profile.py FILE FACTOR NAME: a machine profile whose rates are FACTOR times round numbers."""

import json
import sys

path, factor, name = sys.argv[1], float(sys.argv[2]), sys.argv[3]
rates = {
    "matmul_operations_per_second": 1e11,
    "convolution_operations_per_second": 1e11,
    "convolution_weight_operations_per_second": 1e11,
    "group_convolution_operations_per_second": 1e10,
    "attention_forward_operations_per_second": 1e11,
    "attention_backward_operations_per_second": 1e11,
    "attention_scores_per_second": 1e9,
    "kernel_operations_per_second": 1e10,
    "kernel_functions_per_second": 1e9,
    "cache_bytes_per_second": 1e11,
    "memory_bytes_per_second": 1e10,
}
rates = {key: factor * rate for key, rate in rates.items()}
rates.update({"cache_bytes": 1e6, "kernel_start_seconds": 1e-6, "call_start_seconds": 1e-6, "convolution_start_seconds": 1e-6})
with open(path, "w", encoding="utf-8") as file:
    json.dump({"format": "memopt-machine-profile", "version": 1, "target": "cpu", "machine": name, "threads": 3, "rates": rates}, file)
