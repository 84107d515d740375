# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of torch.export, written anew in the operators that memopt has.

A program is run once more, node by node, on values of its own: tensors, rows chosen by a mask (`ragged`), complex numbers as
pairs (`complex_values`). Each node is called as it is, or through a rule. torch.export traces that run, which gives the new
program: of the same parameters, buffers, inputs and results.
"""
