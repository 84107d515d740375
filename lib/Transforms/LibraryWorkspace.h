//===- LibraryWorkspace.h - asking libraries for their scratch --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_LIBRARYWORKSPACE_H
#define MEMOPT_LIB_TRANSFORMS_LIBRARYWORKSPACE_H

#include <cstdint>
#include <string>

namespace mlir::memopt {

/// Bytes of scratch that the call described by `json` needs with `threads` threads on this machine,
/// or -1 with the reason in `error`. The one place of the compiler that talks to the runtime's
/// libraries; compiled with exceptions, since they throw.
int64_t queryLibraryWorkspace(const std::string &json, int threads, std::string &error);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_LIBRARYWORKSPACE_H
