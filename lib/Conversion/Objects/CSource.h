//===- CSource.h - C source to an object file -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_OBJECTS_CSOURCE_H
#define MEMOPT_LIB_CONVERSION_OBJECTS_CSOURCE_H

#include "llvm/ADT/StringRef.h"
#include <string>

namespace mlir::memopt {

/// Compiles `source` by the C compiler of the machine: that of the variable CC, or else cc, clang or
/// gcc. It may use <stdint.h> and <math.h> without including them; the compiler calls it `name`.
/// Returns what failed, or nothing.
std::string compileC(llvm::StringRef source, llvm::StringRef name, llvm::StringRef object);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_OBJECTS_CSOURCE_H
