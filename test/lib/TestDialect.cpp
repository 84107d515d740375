//===- TestDialect.cpp - ops of nobody's, for tests -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestDialect.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/DialectImplementation.h"

#include "TestDialect.h.inc"

#define GET_OP_CLASSES
#include "TestOps.h.inc"

using namespace mlir;
using namespace mlir::memopt;
using namespace memopt_test;

#include "TestDialect.cpp.inc"

#define GET_OP_CLASSES
#include "TestOps.cpp.inc"

void TestDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "TestOps.cpp.inc"
      >();
}

void memopt_test::registerTestDialect(DialectRegistry &registry) { registry.insert<TestDialect>(); }

//===----------------------------------------------------------------------===//
// RunOp
//===----------------------------------------------------------------------===//

void RunOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (getPinned())
    effects.emplace_back(MemoryEffects::Write::get());
}

bool RunOp::isRecomputable() { return !getPinned(); }
std::string RunOp::getKindName() { return getKind().str(); }

Work RunOp::getWork() {
  Work work;
  work.workClass = getKind() == "convolution" ? WorkClass::Convolution : WorkClass::Matmul;
  work.operations = static_cast<double>(getFlops());
  work.bytes = static_cast<double>(getBytesMoved());
  return work;
}

SmallVector<Workspace> RunOp::getWorkspaces() {
  return llvm::map_to_vector(getScratch(), [](int64_t bytes) { return Workspace{bytes}; });
}

SmallVector<InPlaceOperand> RunOp::getInPlaceOperands(unsigned result) {
  ArrayRef<int64_t> operands = getInPlace();
  if (result >= operands.size() || operands[result] < 0)
    return {};
  return {{static_cast<unsigned>(operands[result]), /*byRow=*/false}};
}
