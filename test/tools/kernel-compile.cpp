//===- kernel-compile.cpp - kernels alone, as a shared object -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each function of the input holds one memopt.kernel. The shared object exports a function of that
// name, which takes a pointer to a memopt_step and then pointers to the kernel's operands and
// results. In a function of several kernels the others get numbers behind the name. An attribute
// `test.result_buffers` on the function says which operand's buffer each result takes.
//
// With --chip the kernels are a device's, those of library calls among them: the output is PTX, bitcode (--bitcode) or a cubin
// (--cubin), and --print-schedule also prints what is launched for each kernel. With --of-target they are those of the device
// that the module's memopt.target names, whose text is the output,
// or whose image goes to the folder that -o names.
//
//===----------------------------------------------------------------------===//

#include "TestDialect.h"
#include "memopt/Conversion/Kernels/KernelLowering.h"
#include "memopt/Conversion/Objects/ObjectEmission.h"
#include "memopt/Conversion/Targets/TargetCode.h"
#include "memopt/Conversion/Threads/Nvvm/DeviceCode.h"
#include "memopt/Conversion/Threads/Nvvm/NvvmOps.h"
#include "memopt/Target/Cuda/CudaTarget.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/Timing.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include <chrono>

using namespace mlir;
using namespace mlir::memopt;
namespace cl = llvm::cl;

/// @name(step, pointers...) { @kernel(step, pointers..., ids...) }, with addresses of elements
/// where the kernel wants them, behind them the word in which it reports what it checks, and the
/// ids of its random numbers.
static void addExport(ModuleOp program, StringRef name, KernelOp kernel,
                      const KernelFunction &callee) {
  unsigned count =
      1 + kernel.getNumOperands() + kernel.getNumResults() + (hasChecks(kernel) ? 1 : 0);
  OpBuilder builder = OpBuilder::atBlockEnd(program.getBody());
  Location location = program.getLoc();
  SmallVector<Type> pointers(count, LLVM::LLVMPointerType::get(program.getContext()));
  auto none = LLVM::LLVMVoidType::get(program.getContext());
  auto function = LLVM::LLVMFuncOp::create(builder, location, name,
                                           LLVM::LLVMFunctionType::get(none, pointers));
  Block *entry = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  SmallVector<Value> addresses(entry->getArguments());
  for (auto [address, operand, element] : llvm::zip(MutableArrayRef(addresses).drop_front(),
                                                    kernel.getInputs(), callee.operandOffsets)) {
    auto type = cast<RankedTensorType>(operand.getType());
    int64_t bytes = element * (getTensorBytes(type) / type.getNumElements());
    address = LLVM::GEPOp::create(builder, location, address.getType(), builder.getI8Type(),
                                  address, ArrayRef<LLVM::GEPArg>{int32_t(bytes)});
  }
  for (int64_t id : callee.randomIds)
    addresses.push_back(LLVM::ConstantOp::create(builder, location, builder.getI64IntegerAttr(id)));
  LLVM::CallOp::create(builder, location, TypeRange{}, callee.symbol, addresses);
  LLVM::ReturnOp::create(builder, location, ValueRange{});
}

static void printLaunches(StringRef name, const KernelFunction &function) {
  for (const KernelLaunch &launch : function.launches) {
    llvm::outs() << "launch " << launch.symbol << " for " << name << ": " << launch.blocks
                 << " blocks of " << launch.threads;
    if (launch.sharedBytes)
      llvm::outs() << " with " << launch.sharedBytes << " bytes";
    for (int64_t offset : function.operandOffsets)
      llvm::outs() << " " << offset;
    for (int64_t id : function.randomIds)
      llvm::outs() << " id " << id;
    llvm::outs() << "\n";
  }
}

/// Prints the code, or writes it to `path`. What ptxas says of each kernel is printed.
static bool writeDeviceCode(ModuleOp kernels, const DeviceCodeOptions &options, bool isCubin,
                            const std::string &path) {
  std::string code, message;
  if (emitDeviceCode(kernels, options, code) != Emission::Done)
    return false;
  if (isCubin) {
    FailureOr<SmallVector<KernelResources>> resources =
        assemblePtx(code, options.chip, path, message);
    if (failed(resources)) {
      llvm::errs() << message << "\n";
      return false;
    }
    for (const KernelResources &kernel : *resources)
      llvm::outs() << kernel.name << ": " << kernel.registers << " registers, " << kernel.stackBytes
                   << " bytes of stack, " << kernel.spillBytes << " bytes spilled, "
                   << kernel.sharedBytes << " bytes shared\n";
    return true;
  }
  if (path.empty()) {
    llvm::outs() << code;
    return true;
  }
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << code;
  return !error;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::opt<std::string> input(cl::Positional, cl::init("-")), output("o", cl::init(""));
  cl::opt<bool> reference("reference"), printSchedule("print-schedule"),
      printLLVM("print-llvm-dialect"), printLoops("print-loops"), alwaysParallel("always-parallel"),
      timing("timing");
  cl::opt<std::string> processor("processor", cl::init("native")), chip("chip", cl::init(""));
  cl::opt<bool> bitcode("bitcode"), cubin("cubin"), ofTarget("of-target");
  cl::opt<int> sms("sms", cl::init(132));
  cl::opt<unsigned> threads("jobs", cl::init(2));
  cl::ParseCommandLineOptions(argc, argv, "compiles memopt kernels alone\n");
  auto start = std::chrono::steady_clock::now();
  auto lap = [&](StringRef what) {
    auto now = std::chrono::steady_clock::now();
    if (timing)
      llvm::errs() << what << " " << std::chrono::duration<double, std::milli>(now - start).count()
                   << " ms\n";
    start = now;
  };

  DialectRegistry registry;
  registry.insert<MemoptDialect, arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                  linalg::LinalgDialect, LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect,
                  scf::SCFDialect, tensor::TensorDialect, vector::VectorDialect>();
  registerUpstreamInterfaces(registry);
  registerCudaTarget(registry);
  registerTargetCode(registry);
  memopt_test::registerTestDialect(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> source = parseSourceFile<ModuleOp>(input, &context);
  if (!source)
    return 1;
  lap("parse");
  std::string message;
  FailureOr<std::string> cpu = resolveProcessor(processor, message);
  if (failed(cpu)) {
    llvm::errs() << message << "\n";
    return 1;
  }
  KernelOptions options;
  options.isReference = reference;
  if (alwaysParallel)
    options.serialCost = 0;
  options.vectorBytes = getVectorBytes(*cpu);
  if (!chip.empty()) {
    options.device.emplace().sms = sms;
    options.deviceOps = &getNvvmOps();
  }
  TargetCodeAttrInterface target;
  if (ofTarget) {
    auto found = getTargetCode(*source);
    if (failed(found))
      return 1;
    target = *found;
    FailureOr<KernelOptions> own = target.getKernelOptions([&] { return source->emitError(); });
    if (failed(own))
      return 1;
    options = *own;
  }
  options.scheduleOutput = printSchedule ? &llvm::outs() : nullptr;
  OwningOpRef<ModuleOp> program = ModuleOp::create(UnknownLoc::get(&context));
  KernelLowering lowering(*program, options);
  for (auto function : source->getOps<func::FuncOp>()) {
    auto buffers = function->getAttrOfType<DenseI64ArrayAttr>("test.result_buffers");
    for (auto [number, kernel] : llvm::enumerate(function.getOps<KernelOp>())) {
      FailureOr<KernelFunction> callee =
          lowering.lower(kernel, buffers ? buffers.asArrayRef() : ArrayRef<int64_t>());
      if (failed(callee))
        return 1;
      std::string name = function.getName().str();
      if (number)
        name += "_" + std::to_string(number);
      if (printSchedule)
        printLaunches(name, *callee);
      if (!options.device)
        addExport(*program, name, kernel, *callee);
    }
    for (auto call : function.getOps<LibraryCallOp>()) {
      FailureOr<KernelFunction> callee = lowering.lower(call);
      if (failed(callee))
        return 1;
      if (printSchedule)
        printLaunches(function.getName(), *callee);
    }
  }
  if (timing)
    llvm::errs() << lowering.getNumFunctions() << " different kernels\n";
  lap("lower");
  if (printLoops)
    program->print(llvm::outs());
  if (printLLVM) {
    if (failed(chip.empty() ? convertToLLVMDialect(*program) : convertToDeviceDialects(*program)))
      return 1;
    lap("convert");
    program->print(llvm::outs());
  }
  if (target) {
    if (!output.empty()) {
      std::vector<KernelLaunch> launches = lowering.getDeviceKernels().vec();
      return target.writeImage(*program, output, launches) == Emission::Done ? 0 : 1;
    }
    std::string text;
    Emission end = target.emitText(*program, text);
    llvm::outs() << text;
    return end == Emission::Done ? 0 : 1;
  }
  if (!chip.empty())
    return writeDeviceCode(*program, {chip, bitcode}, cubin, output) ? 0 : 1;
  if (!output.empty() && emitSharedObject(*program, {*cpu, threads}, output) != Emission::Done)
    return 1;
  lap("emit");
  return 0;
}
