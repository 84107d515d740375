//===- Program.cpp - planned program to machine code -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/Program.h"

#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Conversion/Host/HostProgram.h"
#include "memopt/Conversion/Targets/TargetCode.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Path.h"

#include <thread>

using namespace mlir;
using namespace mlir::memopt;

/// For each result the operand whose bytes the plan lets it take over, or -1.
static SmallVector<int64_t> getTakenOperands(const KernelGraph &graph, KernelOp kernel) {
  SmallVector<int64_t> taken;
  DenseI64ArrayAttr offsets = kernel.getOffsetsAttr();
  for (unsigned result = 0; result < kernel.getNumResults(); ++result) {
    taken.push_back(-1);
    for (auto [number, operand] : llvm::enumerate(kernel.getInputs())) {
      FailureOr<int64_t> offset = graph.getOffset(operand);
      if (succeeded(offset) && *offset == offsets[result]) {
        taken.back() = static_cast<int64_t>(number);
        break;
      }
    }
  }
  return taken;
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

namespace {
/// The programs as functions of llvm and the dialects of loops and vectors.
struct ProgramModules {
  TargetCodeAttrInterface target;
  OwningOpRef<ModuleOp> host;
  OwningOpRef<ModuleOp> device; ///< null for a processor
  DeviceLaunches launches;
};
} // namespace

/// Adds a program's step, and those of its kernels that no program before had.
static LogicalResult addProgram(ProgramModules &modules, KernelLowering &lowering,
                                const ProgramSource &program, size_t number) {
  FailureOr<StepModel> step = StepModel::create(program.planned);
  if (failed(step))
    return failure();
  HostOptions options;
  options.isInstrumented = program.options.isInstrumented;
  options.launchesKernels = static_cast<bool>(modules.device);
  options.suffix = ::memopt::getStepSuffix(number);
  KernelGraph graph(step->getFunction());
  DenseMap<Operation *, SmallVector<int64_t, 1>> launches;
  auto lower = [&](Operation *op) {
    auto call = dyn_cast<LibraryCallOp>(op);
    FailureOr<KernelFunction> function =
        call ? lowering.lower(call)
             : lowering.lower(cast<KernelOp>(op), getTakenOperands(graph, cast<KernelOp>(op)));
    if (succeeded(function))
      for (const KernelLaunch &launch : function->launches)
        launches[op].push_back(launch.number);
    return function;
  };
  if (failed(buildHostProgram(*step, *modules.host, lower, options)))
    return failure();
  auto &ofInstructions = modules.launches.ofInstructions.emplace_back();
  for (Operation *op : graph.getInstructions())
    ofInstructions.push_back(launches.lookup(op));
  return success();
}

static FailureOr<ProgramModules> buildPrograms(ArrayRef<ProgramSource> programs) {
  ModuleOp first = programs.front().planned;
  FailureOr<TargetCodeAttrInterface> target = getTargetCode(first);
  if (failed(target))
    return failure();
  FailureOr<KernelOptions> options = target->getKernelOptions([&] { return first.emitError(); });
  if (failed(options))
    return failure();
  ProgramModules modules{*target, ModuleOp::create(first.getLoc()), nullptr, {}};
  if (options->device)
    modules.device = ModuleOp::create(first.getLoc());
  KernelLowering lowering(modules.device ? *modules.device : *modules.host, *options);
  addPackageSymbols(*modules.host);
  for (auto [number, program] : llvm::enumerate(programs))
    if (failed(addProgram(modules, lowering, program, number)))
      return failure();
  modules.launches.kernels = lowering.getDeviceKernels().vec();
  return modules;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static ::memopt::StatusCode toStatus(Emission emission) {
  switch (emission) {
  case Emission::Done:
    return ::memopt::StatusCode::Ok;
  case Emission::BadProgram:
    return ::memopt::StatusCode::BadInput;
  case Emission::Environment:
    return ::memopt::StatusCode::Environment;
  }
  llvm_unreachable("all ends are named");
}

std::string mlir::memopt::getPathIn(StringRef folder, StringRef name) {
  SmallString<128> path(folder);
  llvm::sys::path::append(path, name);
  return path.str().str();
}

/// The host starts the blocks that launches have now.
static void setBlocks(ModuleOp host, ArrayRef<KernelLaunch> launches) {
  host.walk([&](LLVM::ConstantOp blocks) {
    auto number = blocks->getAttrOfType<IntegerAttr>(kBlocksOfLaunchAttr);
    if (!number)
      return;
    blocks.setValueAttr(IntegerAttr::get(blocks.getType(), launches[number.getInt()].blocks));
    blocks->removeAttr(kBlocksOfLaunchAttr);
  });
}

::memopt::StatusCode mlir::memopt::writePrograms(ArrayRef<ProgramSource> programs,
                                                 StringRef directory, DeviceLaunches &launches) {
  FailureOr<ProgramModules> modules = buildPrograms(programs);
  if (failed(modules))
    return ::memopt::StatusCode::BadInput;
  const ProgramOptions &options = programs.front().options;
  ObjectOptions object;
  object.processor = modules->target.getHostProcessor();
  object.cache = options.cache;
  object.threads =
      options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  launches = std::move(modules->launches);
  if (modules->device) {
    Emission end = modules->target.writeImage(*modules->device, directory, launches.kernels);
    if (end != Emission::Done)
      return toStatus(end);
    setBlocks(*modules->host, launches.kernels);
  }
  return toStatus(
      emitSharedObject(*modules->host, object, getPathIn(directory, ::memopt::programFile)));
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

LogicalResult mlir::memopt::printProgram(ModuleOp planned, const ProgramOptions &options,
                                         raw_ostream &out) {
  FailureOr<ProgramModules> modules = buildPrograms(ProgramSource{planned, options});
  if (failed(modules))
    return failure();
  if (failed(convertToLLVMDialect(*modules->host)) ||
      (modules->device && failed(modules->target.convertKernels(*modules->device))))
    return failure();
  for (OwningOpRef<ModuleOp> *module : {&modules->host, &modules->device}) {
    if (!*module)
      continue;
    (*module)->print(out);
    out << "\n";
  }
  return success();
}

::memopt::StatusCode mlir::memopt::printDeviceText(ModuleOp planned, raw_ostream &out) {
  FailureOr<ProgramModules> modules = buildPrograms(ProgramSource{planned, {}});
  if (failed(modules))
    return ::memopt::StatusCode::BadInput;
  if (!modules->device) {
    planned.emitError("is compiled for a processor, which has no kernels of a device to print");
    return ::memopt::StatusCode::BadInput;
  }
  std::string text;
  Emission end = modules->target.emitText(*modules->device, text);
  out << text;
  return toStatus(end);
}
