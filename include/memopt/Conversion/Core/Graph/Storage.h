//===- Storage.h - how elements of an operand lie in memory -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_GRAPH_STORAGE_H
#define MEMOPT_CONVERSION_CORE_GRAPH_STORAGE_H

#include "mlir/IR/BuiltinTypes.h"

#include <climits>

namespace mlir::memopt {

/// Of an operand, a result or a constant of a kernel. Addresses count elements, whatever a unit
/// holds.
struct Storage {
  Type unit;            ///< what memory is read and written in
  int64_t elements = 1; ///< of a unit

  /// An element in a unit of its own; a boolean is one byte, 0 or 1.
  static Storage ofWhole(Type element) {
    return {element.isInteger(1) ? IntegerType::get(element.getContext(), 8) : element};
  }
  /// Eight booleans in a byte, the first in its lowest bit.
  static Storage ofBits(MLIRContext *context) { return {IntegerType::get(context, 8), CHAR_BIT}; }
  bool isShared() const { return elements != 1; }
  unsigned getUnitBytes() const { return unit.getIntOrFloatBitWidth() / CHAR_BIT; }
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_GRAPH_STORAGE_H
