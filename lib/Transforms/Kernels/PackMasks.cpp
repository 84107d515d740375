//===- PackMasks.cpp - booleans that wait for backward as bits -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What kernels keep for each other is their own business: a mask that one makes and others read has
// its bits packed where it is stored and taken apart where it is loaded. Masks that a library
// reads, or that leave the step, stay bytes.
//
//===----------------------------------------------------------------------===//

#include "BackwardReaders.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Remarks.h"

#include <climits>

namespace mlir::memopt {
#define GEN_PASS_DEF_PACKMASKSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// Below this nothing is saved that is worth an instruction.
static constexpr int64_t kLeastPackedBytes = 4096;

static bool isWorthPacking(OpResult value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (!type.getElementType().isInteger(1) || getSpace(type) != Space::Device ||
      type.getRank() == 0 || type.getShape().back() % CHAR_BIT ||
      getTensorBytes(type) < kLeastPackedBytes)
    return false;
  return llvm::all_of(value.getUsers(), llvm::IsaPred<KernelOp>) &&
         llvm::any_of(value.getUsers(), isAfterForward);
}

/// Lets a result of a kernel, and the operands that it is, be bits.
static void pack(OpResult value) {
  auto maker = cast<KernelOp>(value.getOwner());
  auto wide = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(wide.getShape());
  shape.back() /= CHAR_BIT;
  OpBuilder builder(maker.getYield());
  auto packed = RankedTensorType::get(shape, builder.getI8Type());
  OpOperand &yielded = maker.getYield()->getOpOperand(value.getResultNumber());
  yielded.set(PackBitsOp::create(builder, maker.getLoc(), packed, yielded.get()));
  value.setType(packed);
  for (OpOperand &use : value.getUses()) {
    Block &body = cast<KernelOp>(use.getOwner()).getBody().front();
    BlockArgument argument = body.getArgument(use.getOperandNumber());
    argument.setType(packed);
    builder.setInsertionPointToStart(&body);
    auto unpack = UnpackBitsOp::create(builder, argument.getLoc(), wide, argument);
    argument.replaceAllUsesExcept(unpack, unpack);
  }
}

namespace {
struct PackMasksPass : mlir::memopt::impl::PackMasksPassBase<PackMasksPass> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isExternal())
      return markAllAnalysesPreserved();
    int64_t values = 0, before = 0, after = 0;
    for (Block *block : getProgramBlocks(func.getBody().front()))
      for (auto kernel : block->getOps<KernelOp>()) {
        if (isAfterForward(kernel))
          continue;
        for (OpResult value : kernel->getResults()) {
          if (!isWorthPacking(value))
            continue;
          before += getTensorBytes(value.getType());
          pack(value);
          after += getTensorBytes(value.getType());
          ++values;
        }
      }
    if (values)
      remark::passed(func.getLoc(), remark::RemarkOpts::name("PackMasks")
                                        .category("memopt-pack-masks")
                                        .function(func.getName()))
          << remark::metric("Values", values) << remark::metric("BytesBefore", before)
          << remark::metric("BytesAfter", after);
  }
};
} // namespace
