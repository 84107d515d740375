//===- DeviceCode.cpp - kernels as code of this machine -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/kernels/DeviceCode.h"
#include "emulator/kernels/DeviceLowering.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Verifier.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"

using namespace llvm;

namespace memopt::emulator {

struct DeviceCode::Engine {
  std::unique_ptr<orc::LLJIT> jit;
};

DeviceCode::DeviceCode() = default;
DeviceCode::~DeviceCode() = default;

/// A function that takes a kernel's arguments as a launch has them: by the address of each value.
static void addEntry(Function &kernel) {
  LLVMContext &context = kernel.getContext();
  auto *type = FunctionType::get(Type::getVoidTy(context), {PointerType::get(context, 0)}, false);
  auto *entry = Function::Create(type, GlobalValue::ExternalLinkage, kernel.getName() + ".run",
                                 kernel.getParent());
  IRBuilder<> builder(BasicBlock::Create(context, "", entry));
  std::vector<Value *> arguments;
  for (Argument &parameter : kernel.args()) {
    Value *place =
        builder.CreateConstGEP1_64(builder.getPtrTy(), entry->getArg(0), parameter.getArgNo());
    Value *address = builder.CreateLoad(builder.getPtrTy(), place);
    arguments.push_back(builder.CreateAlignedLoad(parameter.getType(), address, Align(1)));
  }
  builder.CreateCall(&kernel, arguments);
  builder.CreateRetVoid();
}

static std::vector<size_t> measureParameters(const Function &kernel) {
  std::vector<size_t> bytes;
  for (const Argument &parameter : kernel.args())
    bytes.push_back(
        size_t(kernel.getParent()->getDataLayout().getTypeAllocSize(parameter.getType())));
  return bytes;
}

static int getMostThreads(const Function &kernel) {
  StringRef text = kernel.getFnAttribute("nvvm.maxntid").getValueAsString();
  int product = text.empty() ? 0 : 1, extent;
  for (StringRef rest = text; !rest.empty();) {
    auto [first, others] = rest.split(',');
    product *= first.trim().getAsInteger(10, extent) ? 0 : extent;
    rest = others;
  }
  return product;
}

/// Takes the module over as code of this machine.
static Expected<std::unique_ptr<orc::LLJIT>> compile(std::unique_ptr<Module> module,
                                                     std::unique_ptr<LLVMContext> context) {
  auto machine = orc::JITTargetMachineBuilder::detectHost();
  if (!machine)
    return machine.takeError();
  auto layout = machine->getDefaultDataLayoutForTarget();
  if (!layout)
    return layout.takeError();
  module->setDataLayout(*layout);
  module->setTargetTriple(machine->getTargetTriple());
  auto jit = orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(*machine)).create();
  if (!jit)
    return jit.takeError();
  orc::SymbolMap symbols;
  for (auto [name, address] : getDeviceFunctions())
    symbols[(*jit)->mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(address),
                                              JITSymbolFlags::Exported};
  orc::JITDylib &library = (*jit)->getMainJITDylib();
  if (Error error = library.define(orc::absoluteSymbols(std::move(symbols))))
    return error;
  // memcpy, fmaf and the like.
  auto process =
      orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(layout->getGlobalPrefix());
  if (!process)
    return process.takeError();
  library.addGenerator(std::move(*process));
  if (Error error = (*jit)->addIRModule({std::move(module), std::move(context)}))
    return error;
  return std::move(*jit);
}

std::unique_ptr<DeviceCode> DeviceCode::load(const std::string &path, void *shared,
                                             std::string &message) {
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  auto context = std::make_unique<LLVMContext>();
  SMDiagnostic problem;
  std::unique_ptr<Module> module = parseIRFile(path, problem, *context);
  if (!module || !module->getTargetTriple().isNVPTX()) {
    message = "'" + path + "' is no LLVM IR for NVPTX: " + problem.getMessage().str();
    return nullptr;
  }
  std::unique_ptr<DeviceCode> code(new DeviceCode());
  std::vector<Function *> kernels;
  for (Function &function : *module)
    if (!function.isDeclaration() && function.getCallingConv() == CallingConv::PTX_Kernel)
      kernels.push_back(&function);
  for (Function *kernel : kernels)
    code->kernels.push_back(
        {kernel->getName().str(), nullptr, measureParameters(*kernel), 0, getMostThreads(*kernel)});
  size_t sharedBytes = placeSharedMemory(*module, shared);
  message = lowerDeviceCode(*module);
  if (!message.empty())
    return nullptr;
  for (Function *kernel : kernels)
    addEntry(*kernel);
  raw_string_ostream text(message);
  if (verifyModule(*module, &text))
    return nullptr;
  auto jit = compile(std::move(module), std::move(context));
  for (Kernel &kernel : code->kernels) {
    auto entry =
        jit ? (*jit)->lookup(kernel.name + ".run") : Expected<orc::ExecutorAddr>(jit.takeError());
    if (!entry) {
      message = toString(entry.takeError());
      return nullptr;
    }
    kernel.run = entry->toPtr<void(void **)>();
    kernel.sharedBytes = sharedBytes;
  }
  code->engine = std::make_unique<Engine>(Engine{std::move(*jit)});
  return code;
}

const Kernel *DeviceCode::find(const std::string &name) const {
  for (const Kernel &kernel : kernels)
    if (kernel.name == name)
      return &kernel;
  return nullptr;
}

} // namespace memopt::emulator
