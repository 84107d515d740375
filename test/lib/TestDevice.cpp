//===- TestDevice.cpp - a family of GPUs of nobody's, for tests -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestDevice.h"

#include "memopt/Conversion/Objects/KernelPasses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;
using namespace mlir::memopt;

static Value call(ImplicitLocOpBuilder &b, Type type, StringRef intrinsic,
                  ValueRange operands = {}) {
  auto op = LLVM::CallIntrinsicOp::create(b, type, b.getStringAttr(intrinsic), operands);
  return op.getResult(0);
}

static void callVoid(ImplicitLocOpBuilder &b, StringRef intrinsic) {
  LLVM::CallIntrinsicOp::create(b, b.getStringAttr(intrinsic), ValueRange());
}

static Value createI32(ImplicitLocOpBuilder &b, int32_t value) {
  return LLVM::ConstantOp::create(b, b.getI32Type(), b.getI32IntegerAttr(value));
}

static Value widen(ImplicitLocOpBuilder &b, Value number) {
  return LLVM::ZExtOp::create(b, b.getI64Type(), number);
}

namespace {
/// Warps of 32 threads, as gfx10 and later have them.
class TestDeviceOps : public DeviceOps {
public:
  Value createThreadId(ImplicitLocOpBuilder &b) const override {
    return widen(b, call(b, b.getI32Type(), "llvm.amdgcn.workitem.id.x"));
  }
  Value createBlockId(ImplicitLocOpBuilder &b) const override {
    return widen(b, call(b, b.getI32Type(), "llvm.amdgcn.workgroup.id.x"));
  }
  /// Threads of the grid by those of a block: the packet of a launch has both.
  Value createGridSize(ImplicitLocOpBuilder &b) const override {
    constexpr int32_t blockPlace = 4, gridPlace = 12;
    constexpr unsigned constants = 4;
    auto pointer = LLVM::LLVMPointerType::get(b.getContext(), constants);
    Value packet = call(b, pointer, "llvm.amdgcn.dispatch.ptr");
    auto load = [&](int32_t place, Type type) -> Value {
      Value address =
          LLVM::GEPOp::create(b, pointer, b.getI8Type(), packet, ArrayRef<LLVM::GEPArg>{place});
      return widen(b, LLVM::LoadOp::create(b, type, address));
    };
    Value threads = load(gridPlace, b.getI32Type()), block = load(blockPlace, b.getI16Type());
    return LLVM::UDivOp::create(b, threads, block);
  }

  void synchronizeBlock(ImplicitLocOpBuilder &b) const override {
    LLVM::FenceOp::create(b, LLVM::AtomicOrdering::release, b.getStringAttr("workgroup"));
    callVoid(b, "llvm.amdgcn.s.barrier");
    LLVM::FenceOp::create(b, LLVM::AtomicOrdering::acquire, b.getStringAttr("workgroup"));
  }
  void synchronizeWarp(ImplicitLocOpBuilder &b, Value) const override {
    callVoid(b, "llvm.amdgcn.wave.barrier");
  }
  /// The permutation of a wavefront takes a thread by four times its number.
  Value shuffle(ImplicitLocOpBuilder &b, Value, Value word, int64_t distance) const override {
    Type i32 = b.getI32Type();
    Value thread = call(b, i32, "llvm.amdgcn.mbcnt.lo", {createI32(b, -1), createI32(b, 0)});
    Value other = LLVM::XOrOp::create(b, thread, createI32(b, static_cast<int32_t>(distance)));
    Value place = LLVM::ShlOp::create(b, other, createI32(b, 2));
    Value bits = word.getType() == i32 ? word : LLVM::BitcastOp::create(b, i32, word);
    Value moved = call(b, i32, "llvm.amdgcn.ds.bpermute", {place, bits});
    return word.getType() == i32 ? moved : LLVM::BitcastOp::create(b, word.getType(), moved);
  }
  Value isAny(ImplicitLocOpBuilder &b, Value mask, Value condition) const override {
    return LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, getVotes(b, mask, condition),
                                createI32(b, 0));
  }
  Value getVotes(ImplicitLocOpBuilder &b, Value mask, Value condition) const override {
    Value votes = call(b, b.getI32Type(), "llvm.amdgcn.ballot.i32", condition);
    return LLVM::AndOp::create(b, votes, mask);
  }

  // Only attention copies ahead and multiplies matrices, which this family leaves to ops.
  void copyAhead(ImplicitLocOpBuilder &, Value, Value, int64_t, Value) const override {
    llvm_unreachable("attention is written out");
  }
  void awaitCopies(ImplicitLocOpBuilder &) const override {
    llvm_unreachable("attention is written out");
  }
  std::array<Value, 4> loadMatrices(ImplicitLocOpBuilder &, Value, bool) const override {
    llvm_unreachable("attention is written out");
  }
  std::array<Value, 4> multiplyMatrices(ImplicitLocOpBuilder &, Type, ArrayRef<Value>,
                                        ArrayRef<Value>, ArrayRef<Value>) const override {
    llvm_unreachable("attention is written out");
  }
  Value exponentiate(ImplicitLocOpBuilder &b, Value power) const override {
    return call(b, b.getF32Type(), "llvm.amdgcn.exp2", power);
  }

  unsigned getGlobalSpace() const override { return 1; }
  unsigned getSharedSpace() const override { return 3; }
  void markKernel(LLVM::LLVMFuncOp function, int64_t threads, int32_t) const override {
    function.setCConv(LLVM::cconv::CConv::AMDGPU_KERNEL);
    Builder builder(function.getContext());
    std::string sizes = "1," + std::to_string(threads);
    function.setPassthroughAttr(
        builder.getArrayAttr(builder.getStrArrayAttr({"amdgpu-flat-work-group-size", sizes})));
  }
};
} // namespace

const DeviceOps &memopt_test::getTestDeviceOps() {
  static const TestDeviceOps ops;
  return ops;
}

static std::unique_ptr<llvm::TargetMachine> createMachine() {
  LLVMInitializeAMDGPUTargetInfo();
  LLVMInitializeAMDGPUTarget();
  LLVMInitializeAMDGPUTargetMC();
  LLVMInitializeAMDGPUAsmPrinter();
  llvm::Triple triple("amdgcn-amd-amdhsa");
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, "gfx1030", "", {}, std::nullopt));
}

static llvm::Error write(llvm::Module &module, llvm::TargetMachine &machine, std::string &text) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  if (llvm::Error error = optimizeKernels(module, machine, /*inlines=*/true))
    return error;
  SmallString<0> buffer;
  llvm::raw_svector_ostream os(buffer);
  llvm::legacy::PassManager codegen;
  if (machine.addPassesToEmitFile(codegen, os, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return llvm::createStringError("LLVM's AMDGPU target writes no text");
  codegen.run(module);
  text = buffer.str().str();
  return llvm::Error::success();
}

Emission memopt_test::emitTestDeviceText(ModuleOp kernels, std::string &text) {
  if (failed(convertToLLVMDialect(kernels)))
    return Emission::BadProgram;
  registerBuiltinDialectTranslation(*kernels.getContext());
  registerLLVMDialectTranslation(*kernels.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(kernels, context);
  std::unique_ptr<llvm::TargetMachine> machine = createMachine();
  if (!module || !machine) {
    kernels.emitError("no translation to LLVM IR for gfx1030");
    return Emission::Environment;
  }
  if (llvm::Error error = write(*module, *machine, text)) {
    kernels.emitError(llvm::toString(std::move(error)));
    return Emission::BadProgram;
  }
  return Emission::Done;
}
