//===- ParameterKind.cpp - what a parameter is for its model -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Optimizers/ParameterKind.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

static ParameterRole getRole(OpOperand &use) {
  auto op = dyn_cast<ParameterOpInterface>(use.getOwner());
  return op ? op.getParameterRole(use.getOperandNumber()) : ParameterRole::None;
}

/// Uses of a parameter in any precision.
static SmallVector<OpOperand *> getUses(Value value) {
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : value.getUses()) {
    uses.push_back(&use);
    if (isa<arith::ExtFOp, arith::TruncFOp>(use.getOwner()))
      llvm::append_range(uses, getUses(use.getOwner()->getResult(0)));
  }
  return uses;
}

static ParameterKind classify(VariableOp variable, ArrayRef<ReadOp> reads) {
  StringRef owner = variable.getModuleClass().value_or("");
  owner = owner.drop_front(owner.rfind('.') + 1);
  // Of a table that is read as a whole, as positions are, only its owner says what it is.
  bool isNorm = owner.contains("Norm"), isEmbedding = owner.contains("Embedding");
  for (ReadOp read : reads)
    for (OpOperand *use : getUses(read.getResult())) {
      isNorm |= owner.empty() && getRole(*use) == ParameterRole::Norm;
      isEmbedding |= getRole(*use) == ParameterRole::Table;
    }
  if (isNorm)
    return ParameterKind::Norm;
  if (isEmbedding)
    return ParameterKind::Embedding;
  return variable.getSymName().ends_with("bias") ? ParameterKind::Bias : ParameterKind::Other;
}

ParameterInfo mlir::memopt::describeParameter(VariableOp variable, ArrayRef<ReadOp> reads) {
  ParameterInfo info{{}, classify(variable, reads), variable.getTensorType()};
  if (auto names = variable.getNames())
    llvm::append_range(info.names, names->getAsValueRange<StringAttr>());
  if (info.names.empty())
    info.names.push_back(variable.getSymName());
  return info;
}
