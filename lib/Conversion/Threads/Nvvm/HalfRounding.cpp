//===- HalfRounding.cpp - two floats rounded to f16 at a time -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HalfRounding.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

using namespace mlir::memopt;

bool mlir::memopt::hasPairedRoundings(llvm::StringRef chip) {
  constexpr unsigned ampere = 80;
  unsigned number = 0;
  return chip.consume_front("sm_") && !chip.consumeInteger(10, number) && number >= ampere;
}

/// A vector of an even number of floats that becomes f16.
static bool isOfPairs(const llvm::Instruction &instruction) {
  auto *type = llvm::dyn_cast<llvm::FixedVectorType>(instruction.getType());
  return llvm::isa<llvm::FPTruncInst>(instruction) && type && type->getNumElements() % 2 == 0 &&
         type->getElementType()->isHalfTy() &&
         instruction.getOperand(0)->getType()->getScalarType()->isFloatTy();
}

static void pair(llvm::Instruction &rounding) {
  llvm::IRBuilder<> builder(&rounding);
  auto *type = llvm::cast<llvm::FixedVectorType>(rounding.getType());
  llvm::Value *result = llvm::PoisonValue::get(type), *from = rounding.getOperand(0);
  for (unsigned lane = 0; lane < type->getNumElements(); lane += 2) {
    // The first operand becomes the upper half.
    llvm::Value *both = builder.CreateIntrinsic(
        llvm::Intrinsic::nvvm_ff2f16x2_rn,
        {builder.CreateExtractElement(from, lane + 1), builder.CreateExtractElement(from, lane)});
    for (unsigned half = 0; half < 2; ++half)
      result = builder.CreateInsertElement(result, builder.CreateExtractElement(both, half),
                                           lane + half);
  }
  rounding.replaceAllUsesWith(result);
  rounding.eraseFromParent();
}

void mlir::memopt::pairRoundings(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::make_early_inc_range(llvm::instructions(function)))
      if (isOfPairs(instruction))
        pair(instruction);
}
