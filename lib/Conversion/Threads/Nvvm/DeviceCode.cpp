//===- DeviceCode.cpp - PTX of a device's kernels ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Arithmetic is that of processors: contraction only where math.fma says so, divisions and square
// roots rounded to nearest, numbers below the normal ones kept.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/Nvvm/DeviceCode.h"

#include "HalfRounding.h"
#include "LoopUnrolling.h"
#include "memopt/Support/Toolkit.h"

#include "memopt/Conversion/Core/Emission/KernelFunction.h"
#include "memopt/Conversion/Core/Math/MathExpansion.h"
#include "memopt/Conversion/Core/Math/ScalarExpansion.h"
#include "memopt/Conversion/Objects/KernelPasses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"

#include <mutex>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Target
//===----------------------------------------------------------------------===//

static std::unique_ptr<llvm::TargetMachine> createDeviceMachine(StringRef chip) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, chip, "", options, std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Default));
  return machine;
}

//===----------------------------------------------------------------------===//
// libdevice
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral kLibdevice = "nvvm/libdevice/libdevice.10.bc";

/// libm's powf is libdevice's __nv_powf.
static std::string getDeviceName(StringRef function) { return ("__nv_" + function).str(); }

/// Calls of functions that the module only declares.
static SmallVector<LLVM::CallOp> collectLibmCalls(ModuleOp kernels) {
  SmallVector<LLVM::CallOp> calls;
  kernels.walk([&](LLVM::CallOp call) {
    auto callee = kernels.lookupSymbol<LLVM::LLVMFuncOp>(call.getCallee().value_or(""));
    if (callee && callee.isExternal())
      calls.push_back(call);
  });
  return calls;
}

/// The name of the function that `op` is in, for people.
static StringRef getKernelName(Operation *op) {
  return op->getParentOfType<LLVM::LLVMFuncOp>().getName();
}

/// A remainder is exact, as libm's; NVPTX would make a division and a product of it. A power of
/// floats by integers is a function of compilers' libraries, which devices lack.
static LogicalResult expandCalls(ModuleOp kernels) {
  WalkResult walk = kernels.walk([](Operation *op) {
    if (isa<math::FPowIOp>(op)) {
      op->emitError() << getKernelName(op) << " raises floats to integers (" << op->getName()
                      << "), which no device code computes; use math.powf";
      return WalkResult::interrupt();
    }
    auto remainder = dyn_cast<arith::RemFOp>(op);
    if (!remainder)
      return WalkResult::advance();
    OpBuilder builder(remainder);
    remainder.replaceAllUsesWith(callLibm(builder, remainder.getLoc(), "fmod", remainder.getType(),
                                          remainder.getOperands()));
    remainder.erase();
    return WalkResult::skip();
  });
  return failure(walk.wasInterrupted());
}

static Emission loadLibdevice(ArrayRef<LLVM::CallOp> calls, llvm::LLVMContext &context,
                              std::unique_ptr<llvm::Module> &library) {
  std::string path = ::memopt::findToolkitFile(kLibdevice);
  LLVM::CallOp first = calls.front();
  if (path.empty()) {
    first.emitError() << getKernelName(first) << " calls " << *first.getCallee()
                      << ", whose code for devices is in NVIDIA's " << kLibdevice
                      << ", which is not found; tools/install.sh --with-cuda installs it";
    return Emission::Environment;
  }
  llvm::SMDiagnostic error;
  library = llvm::getLazyIRFileModule(path, error, context);
  if (!library) {
    first.emitError() << path << ": " << error.getMessage();
    return Emission::Environment;
  }
  for (LLVM::CallOp call : calls)
    if (!library->getFunction(getDeviceName(*call.getCallee()))) {
      call.emitError() << getKernelName(call) << " calls " << *call.getCallee()
                       << ", which no device code computes: libdevice has no "
                       << getDeviceName(*call.getCallee());
      return Emission::BadProgram;
    }
  return Emission::Done;
}

/// Takes what `module` calls out of `library`, and puts it where it is called: calls would keep
/// their arguments on a stack.
static llvm::Error linkLibdevice(llvm::Module &module, std::unique_ptr<llvm::Module> library,
                                 ArrayRef<std::string> functions) {
  for (const std::string &name : functions)
    module.getFunction(name)->setName(getDeviceName(name));
  library->setTargetTriple(module.getTargetTriple());
  library->setDataLayout(module.getDataLayout());
  if (llvm::Linker::linkModules(module, std::move(library), llvm::Linker::Flags::LinkOnlyNeeded))
    return llvm::createStringError("libdevice does not link");
  for (llvm::Function &function : module) {
    if (function.isDeclaration() || function.getCallingConv() == llvm::CallingConv::PTX_Kernel)
      continue;
    function.setLinkage(llvm::GlobalValue::InternalLinkage);
    function.removeFnAttr(llvm::Attribute::NoInline);
    function.addFnAttr(llvm::Attribute::AlwaysInline);
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

static llvm::Error writePtx(llvm::Module &module, llvm::TargetMachine &machine, std::string &code) {
  SmallString<0> buffer;
  llvm::raw_svector_ostream os(buffer);
  llvm::legacy::PassManager codegen;
  if (machine.addPassesToEmitFile(codegen, os, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return llvm::createStringError("LLVM's NVPTX target writes no text");
  codegen.run(module);
  code = forbidUnrolling(buffer);
  return llvm::Error::success();
}

/// All threads of a warp multiply matrices together, which LLVM does not know: it would move the
/// instruction to where its result is used, behind a branch of some threads.
static void keepTogether(llvm::Module &module) {
  for (llvm::Function &function : module)
    if (function.getName().starts_with("llvm.nvvm.mma."))
      for (llvm::User *user : function.users())
        if (auto *call = llvm::dyn_cast<llvm::CallBase>(user))
          call->addFnAttr(llvm::Attribute::Convergent);
}

static llvm::Error compile(llvm::Module &module, llvm::TargetMachine &machine,
                           const DeviceCodeOptions &options, std::string &code) {
  for (llvm::Function &function : module)
    if (!function.isDeclaration())
      function.addFnAttr(llvm::Attribute::NoUnwind);
  keepTogether(module);
  if (llvm::Error error = optimizeKernels(module, machine, /*inlines=*/true))
    return error;
  if (!options.isBitcode) {
    unrollLoops(module, machine);
    if (hasPairedRoundings(options.chip))
      pairRoundings(module);
    return writePtx(module, machine, code);
  }
  llvm::raw_string_ostream os(code);
  llvm::WriteBitcodeToFile(module, os);
  return llvm::Error::success();
}

LogicalResult mlir::memopt::convertToDeviceDialects(ModuleOp kernels) {
  return convertToLLVMDialect(kernels, NVVM::NVVMDialect::getDialectNamespace());
}

Emission mlir::memopt::emitDeviceCode(ModuleOp kernels, const DeviceCodeOptions &options,
                                      std::string &code) {
  kernels.walk([](Operation *op) { op->removeAttr(kKernelNumberAttr); });
  if (failed(expandCalls(kernels)))
    return Emission::BadProgram;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> library;
  SmallVector<LLVM::CallOp> calls = collectLibmCalls(kernels);
  std::vector<std::string> functions;
  if (!options.isBitcode && !calls.empty()) {
    if (Emission end = loadLibdevice(calls, context, library); end != Emission::Done)
      return end;
    llvm::SetVector<StringRef> names;
    for (LLVM::CallOp call : calls)
      names.insert(*call.getCallee());
    functions.assign(names.begin(), names.end());
  }
  // An emulated device has a processor's bits, NaN included.
  if (options.isBitcode)
    expandHalves(kernels, /*isDevice=*/false);
  if (failed(convertToDeviceDialects(kernels))) {
    kernels.emitError("kernels do not convert to the LLVM dialect");
    return Emission::BadProgram;
  }
  registerBuiltinDialectTranslation(*kernels.getContext());
  registerLLVMDialectTranslation(*kernels.getContext());
  registerNVVMDialectTranslation(*kernels.getContext());
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(kernels, context);
  std::unique_ptr<llvm::TargetMachine> machine = createDeviceMachine(options.chip);
  if (!module || !machine) {
    kernels.emitError("no translation to LLVM IR for " + options.chip);
    return Emission::Environment;
  }
  module->setTargetTriple(machine->getTargetTriple());
  module->setDataLayout(machine->createDataLayout());
  llvm::Error error = llvm::Error::success();
  if (library)
    error = linkLibdevice(*module, std::move(library), functions);
  if (!error)
    error = compile(*module, *machine, options, code);
  if (!error)
    return Emission::Done;
  kernels.emitError(llvm::toString(std::move(error)));
  return Emission::BadProgram;
}
