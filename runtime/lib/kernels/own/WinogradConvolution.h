//===- WinogradConvolution.h - convolutions by minimal filtering --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADCONVOLUTION_H
#define MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADCONVOLUTION_H

#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"

namespace memopt::libraries {

/// The gradient of the filters of a convolution that createWinogradConvolution takes.
std::unique_ptr<LibraryCall> createWinogradFilterGradient(const ConvolutionDescriptor &descriptor,
                                                          int threads);

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADCONVOLUTION_H
