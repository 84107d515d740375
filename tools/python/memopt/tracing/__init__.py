# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch.export drops or decides by itself, kept in the program: gradients of the model's own, `no_grad`, draws."""
