//===- Failure.h - errors of plans and problems -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_UTILS_FAILURE_H
#define MEMOPT_PLANNING_UTILS_FAILURE_H

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

namespace memopt::planning {

inline llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_UTILS_FAILURE_H
