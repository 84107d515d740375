//===- Shards.cpp - the pieces of a tensor on ranks -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Ranks/Shards.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Support/DebugStringHelper.h"
#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;
using namespace mlir::memopt;

std::string mlir::memopt::describeReads(ArrayRef<ReadOp> reads) {
  std::set<std::string> types;
  for (ReadOp read : reads)
    for (Operation *user : read->getUsers()) {
      bool isNarrowed = isa<arith::TruncFOp>(user);
      if (isNarrowed || getPhase(user) != Phase::Optimizer)
        types.insert(debugString(
            getElementTypeOrSelf(isNarrowed ? user->getResult(0).getType() : read.getType())));
    }
  return llvm::join(types, " ");
}

void mlir::memopt::placeInUnit(VariableOp variable, VariableOp joined, RankedTensorType whole,
                               int64_t ranks, int64_t first) {
  variable.setType(joined.getTensorType());
  variable.setShardAttr(ShardAttr::getOf(whole, ranks, first));
  variable.setUnitAttr(FlatSymbolRefAttr::get(joined));
}
