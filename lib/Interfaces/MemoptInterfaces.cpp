//===- MemoptInterfaces.cpp - contracts between ops and passes --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Interfaces/MemoptInterfaces.h"

#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

#include "memopt/Interfaces/MemoptInterfaces.cpp.inc"

int64_t memopt::getTensorBytes(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return 0;
  unsigned bits = tensor.getElementType().isIndex() ? 64 : tensor.getElementTypeBitWidth();
  return tensor.getNumElements() * static_cast<int64_t>((bits + 7) / 8);
}

int64_t memopt::getOperandAndResultBytes(Operation *op) {
  int64_t bytes = 0;
  for (Type type : op->getOperandTypes())
    bytes += getTensorBytes(type);
  for (Type type : op->getResultTypes())
    bytes += getTensorBytes(type);
  return bytes;
}
