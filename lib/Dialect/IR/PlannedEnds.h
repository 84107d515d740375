//===- PlannedEnds.h - where what is sent lies -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_DIALECT_IR_PLANNEDENDS_H
#define MEMOPT_LIB_DIALECT_IR_PLANNEDENDS_H

#include "memopt/Dialect/Memopt.h"

#include "llvm/Support/JSON.h"

namespace mlir::memopt {

/// The space and the offset of a planned value, as lists of a package have them.
inline llvm::json::Object describeEnd(Value value) {
  FailureOr<int64_t> offset = getPlannedOffset(value);
  return llvm::json::Object{{"space", stringifySpace(getSpace(value.getType()))},
                            {"offset", offset.value_or(-1)}};
}

} // namespace mlir::memopt

#endif // MEMOPT_LIB_DIALECT_IR_PLANNEDENDS_H
