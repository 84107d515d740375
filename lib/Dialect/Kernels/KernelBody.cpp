//===- KernelBody.cpp - kernels that compute the same ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Kernels/KernelBody.h"

#include "mlir/IR/OperationSupport.h"

using namespace mlir;
using namespace mlir::memopt;

bool mlir::memopt::haveEqualBodies(KernelOp a, KernelOp b) {
  llvm::DenseMap<Value, Value> equals;
  auto mark = [&](Value x, Value y) { equals[x] = y; };
  auto check = [&](Value x, Value y) { return success(equals.lookup(x) == y); };
  return OperationEquivalence::isRegionEquivalentTo(&a.getBody(), &b.getBody(), check, mark,
                                                    OperationEquivalence::IgnoreLocations);
}

llvm::hash_code mlir::memopt::hashBody(KernelOp kernel) {
  llvm::hash_code hash(0);
  for (Type type : kernel.getBody().getArgumentTypes())
    hash = llvm::hash_combine(hash, type);
  for (Operation &op : kernel.getBody().front())
    hash = llvm::hash_combine(
        hash, OperationEquivalence::computeHash(&op, OperationEquivalence::ignoreHashValue,
                                                OperationEquivalence::ignoreHashValue,
                                                OperationEquivalence::IgnoreLocations));
  return hash;
}
