//===- NvvmOps.cpp - operations of NVIDIA's GPUs -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/Nvvm/NvvmOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace mlir::memopt;

template <typename Op> static Value createNumber(ImplicitLocOpBuilder &b) {
  Value number = Op::create(b, b.getI32Type());
  return arith::ExtUIOp::create(b, b.getI64Type(), number);
}

namespace {
class NvvmOps : public DeviceOps {
public:
  Value createThreadId(ImplicitLocOpBuilder &b) const override {
    return createNumber<NVVM::ThreadIdXOp>(b);
  }
  Value createBlockId(ImplicitLocOpBuilder &b) const override {
    return createNumber<NVVM::BlockIdXOp>(b);
  }
  Value createGridSize(ImplicitLocOpBuilder &b) const override {
    return createNumber<NVVM::GridDimXOp>(b);
  }

  void synchronizeBlock(ImplicitLocOpBuilder &b) const override { NVVM::Barrier0Op::create(b); }
  void synchronizeWarp(ImplicitLocOpBuilder &b, Value mask) const override {
    NVVM::SyncWarpOp::create(b, mask);
  }
  Value shuffle(ImplicitLocOpBuilder &b, Value mask, Value word, int64_t distance) const override {
    constexpr int64_t kLastLane = 31;
    auto number = [&](int64_t value) -> Value {
      return LLVM::ConstantOp::create(b, b.getI32Type(),
                                      b.getI32IntegerAttr(static_cast<int32_t>(value)));
    };
    Value across = number(distance), last = number(kLastLane);
    return NVVM::ShflOp::create(b, word.getType(), mask, word, across, last, NVVM::ShflKind::bfly,
                                UnitAttr());
  }
  Value isAny(ImplicitLocOpBuilder &b, Value mask, Value condition) const override {
    return NVVM::VoteSyncOp::create(b, b.getI1Type(), mask, condition, NVVM::VoteSyncKind::any);
  }
  Value getVotes(ImplicitLocOpBuilder &b, Value mask, Value condition) const override {
    return NVVM::VoteSyncOp::create(b, b.getI32Type(), mask, condition, NVVM::VoteSyncKind::ballot);
  }

  unsigned getSharedSpace() const override {
    return static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);
  }
  void markKernel(LLVM::LLVMFuncOp function, int64_t threads, int32_t blocks) const override {
    Builder builder(function.getContext());
    function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), builder.getUnitAttr());
    function->setAttr(NVVM::NVVMDialect::getMaxntidAttrName(),
                      builder.getDenseI32ArrayAttr({static_cast<int32_t>(threads)}));
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), builder.getI32IntegerAttr(blocks));
  }
};
} // namespace

const DeviceOps &mlir::memopt::getNvvmOps() {
  static const NvvmOps ops;
  return ops;
}
