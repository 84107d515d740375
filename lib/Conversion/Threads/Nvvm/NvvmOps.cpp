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

  void copyAhead(ImplicitLocOpBuilder &b, Value to, Value from, int64_t bytes,
                 Value valid) const override {
    // Only whole pieces of 16 bytes go past the first cache, which what is read once does not help.
    auto cache = bytes == 16 ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA;
    NVVM::CpAsyncOp::create(b, to, from, static_cast<uint32_t>(bytes), cache, valid);
  }
  void awaitCopies(ImplicitLocOpBuilder &b) const override {
    NVVM::CpAsyncCommitGroupOp::create(b);
    NVVM::CpAsyncWaitGroupOp::create(b, 0);
  }

  std::array<Value, 4> loadMatrices(ImplicitLocOpBuilder &b, Value row,
                                    bool isTransposed) const override {
    MLIRContext *context = b.getContext();
    Type loaded = LLVM::LLVMStructType::getLiteral(context, SmallVector<Type>(4, b.getI32Type()));
    auto layout = isTransposed ? NVVM::MMALayout::col : NVVM::MMALayout::row;
    auto shape = NVVM::LdStMatrixShapeAttr::get(context, 8, 8);
    return unpack(b, NVVM::LdMatrixOp::create(b, loaded, row, 4, layout, shape,
                                              NVVM::LdStMatrixEltType::B16));
  }
  std::array<Value, 4> multiplyMatrices(ImplicitLocOpBuilder &b, Type element, ArrayRef<Value> left,
                                        ArrayRef<Value> right,
                                        ArrayRef<Value> sums) const override {
    auto type = element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
    auto convert = [&](ArrayRef<Value> words) {
      if (element.isBF16())
        return SmallVector<Value>(words);
      return llvm::map_to_vector(words, [&](Value word) -> Value {
        return LLVM::BitcastOp::create(b, VectorType::get({2}, element), word);
      });
    };
    Type made =
        LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getF32Type()));
    constexpr int64_t shape[] = {16, 8, 16};
    return unpack(b, NVVM::MmaOp::create(b, made, convert(left), convert(right), sums, shape,
                                         std::nullopt, std::nullopt, std::array{type, type},
                                         std::array{NVVM::MMALayout::row, NVVM::MMALayout::col}));
  }
  Value exponentiate(ImplicitLocOpBuilder &b, Value power) const override {
    auto call = LLVM::CallIntrinsicOp::create(
        b, b.getF32Type(), b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f32"), power);
    return call.getResult(0);
  }

  unsigned getGlobalSpace() const override {
    return static_cast<unsigned>(NVVM::NVVMMemorySpace::Global);
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

private:
  static std::array<Value, 4> unpack(ImplicitLocOpBuilder &b, Value four) {
    std::array<Value, 4> values;
    for (auto [number, value] : llvm::enumerate(values))
      value = LLVM::ExtractValueOp::create(b, four, static_cast<int64_t>(number));
    return values;
  }
};
} // namespace

const DeviceOps &mlir::memopt::getNvvmOps() {
  static const NvvmOps ops;
  return ops;
}
