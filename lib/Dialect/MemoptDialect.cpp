//===- MemoptDialect.cpp - registration and attributes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::memopt;

#include "memopt/Dialect/MemoptDialect.cpp.inc"
#include "memopt/Dialect/MemoptEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "memopt/Dialect/MemoptAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "memopt/Dialect/MemoptOps.cpp.inc"

void MemoptDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "memopt/Dialect/MemoptOps.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "memopt/Dialect/MemoptAttributes.cpp.inc"
      >();
}

/// Rates are positive; a machine may leave some of them to the shipped profile.
static LogicalResult verifyMachine(Operation *op, Attribute attribute) {
  auto dictionary = dyn_cast<DictionaryAttr>(attribute);
  if (!dictionary)
    return op->emitOpError() << "'" << MemoptDialect::kMachineAttr
                             << "' must be a dictionary, found " << attribute;
  for (NamedAttribute entry : dictionary) {
    StringRef name = entry.getName();
    auto number = dyn_cast<FloatAttr>(entry.getValue());
    auto count = dyn_cast<IntegerAttr>(entry.getValue());
    if (name == "machine"   ? !isa<StringAttr>(entry.getValue())
        : name == "threads" ? !count || count.getInt() < 1
                            : !number || !number.getType().isF64() ||
                                  !number.getValue().isFinite() || number.getValueAsDouble() <= 0)
      return op->emitOpError() << "'" << MemoptDialect::kMachineAttr << "': '" << name
                               << "' must be "
                               << (name == "machine"   ? "a string"
                                   : name == "threads" ? "a count of at least 1"
                                                       : "a positive f64")
                               << ", found " << entry.getValue();
  }
  return success();
}

LogicalResult MemoptDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == kCloneAttr && !isa<IntegerAttr>(attribute.getValue()))
    return op->emitOpError() << "'" << name << "' must be an integer, found "
                             << attribute.getValue();
  if (name == kPhaseAttr && !isa<StringAttr>(attribute.getValue()))
    return op->emitOpError() << "'" << name << "' must be a string, found " << attribute.getValue();
  if (name == kMachineAttr)
    return verifyMachine(op, attribute.getValue());
  if (name != kOffsetsAttr)
    return success();
  auto offsets = dyn_cast<DenseI64ArrayAttr>(attribute.getValue());
  if (!offsets)
    return op->emitOpError() << "'" << name << "' must be an array of i64, found "
                             << attribute.getValue();
  for (int64_t offset : offsets.asArrayRef())
    if (offset < 0)
      return op->emitOpError() << "'" << name << "' must not be negative, found " << offset;
  return success();
}

LogicalResult ShardAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t ranks) {
  if (ranks < 1)
    return emitError() << "a shard needs at least one rank, found " << ranks;
  return success();
}
