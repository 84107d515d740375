//===- Program.cpp - planned program to machine code -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/Program.h"

#include "memopt-runtime/base/Files.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Conversion/Host/HostProgram.h"
#include "memopt/Conversion/Kernels/KernelLowering.h"
#include "memopt/Conversion/Objects/ObjectEmission.h"
#include "memopt/Conversion/Threads/Nvvm/DeviceCode.h"

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
/// The program as functions of llvm and the dialects of loops and vectors.
struct ProgramModules {
  OwningOpRef<ModuleOp> host;
  OwningOpRef<ModuleOp> device; ///< null for a processor
  std::vector<std::string> deviceKernels;
};
} // namespace

/// What code of `planned` is generated for; its processor is resolved.
static FailureOr<KernelOptions> getKernelOptions(ModuleOp planned) {
  Attribute target = getTarget(planned);
  KernelOptions options;
  if (auto device = dyn_cast<CudaAttr>(target)) {
    DeviceMachine &machine = options.device.emplace();
    machine.sms = device.getSms();
    if (DictionaryAttr properties = device.getProperties())
      if (auto threads = properties.getAs<IntegerAttr>("maxThreadsPerSM"))
        machine.threadsOfSm = threads.getInt();
    return options;
  }
  auto cpu = dyn_cast<CpuAttr>(target);
  if (!cpu)
    return planned.emitError("is compiled for no machine that code is generated for");
  std::string message;
  FailureOr<std::string> processor = resolveProcessor(cpu.getProcessor(), message);
  if (failed(processor))
    return planned.emitError() << message;
  options.vectorBytes = getVectorBytes(*processor);
  options.isReference = cpu.getReference();
  return options;
}

static FailureOr<ProgramModules> buildProgram(ModuleOp planned, const ProgramOptions &options) {
  FailureOr<StepModel> step = StepModel::create(planned);
  FailureOr<KernelOptions> kernelOptions = getKernelOptions(planned);
  if (failed(step) || failed(kernelOptions))
    return failure();
  ProgramModules modules;
  modules.host = ModuleOp::create(planned.getLoc());
  if (kernelOptions->device)
    modules.device = ModuleOp::create(planned.getLoc());
  KernelLowering lowering(modules.device ? *modules.device : *modules.host, *kernelOptions);
  HostOptions hostOptions;
  hostOptions.isInstrumented = options.isInstrumented;
  hostOptions.launchesKernels = static_cast<bool>(modules.device);
  KernelGraph graph(step->getFunction());
  auto lower = [&](Operation *op) {
    if (auto call = dyn_cast<LibraryCallOp>(op))
      return lowering.lower(call);
    auto kernel = cast<KernelOp>(op);
    return lowering.lower(kernel, getTakenOperands(graph, kernel));
  };
  if (failed(buildHostProgram(*step, *modules.host, lower, hostOptions)))
    return failure();
  modules.deviceKernels = lowering.getDeviceKernels().vec();
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

static ::memopt::StatusCode writeFile(ModuleOp planned, const std::string &path, StringRef text) {
  ::memopt::Status status = ::memopt::writeFileAtomically(path, text);
  if (!status.isOk())
    planned.emitError() << status.getMessage();
  return status.getCode();
}

/// Local memory is kept for every thread that the device can hold, which no plan counts.
static LogicalResult checkResources(ModuleOp planned, ArrayRef<KernelResources> kernels) {
  for (const KernelResources &kernel : kernels)
    if (kernel.stackBytes || kernel.spillBytes)
      return planned.emitError() << "kernel " << kernel.name << " needs " << kernel.stackBytes
                                 << " bytes of stack and moves " << kernel.spillBytes
                                 << " bytes of registers that do not fit, expected none";
  return success();
}

/// kernels.bc, or kernels.cubin with the PTX that it comes from beside it.
static ::memopt::StatusCode writeImage(ModuleOp planned, ModuleOp kernels, StringRef directory) {
  auto device = cast<CudaAttr>(Attribute(getTarget(planned)));
  std::string code, message, image = getPathIn(directory, getTarget(planned).getImageName());
  Emission emission = emitDeviceCode(kernels, {device.getChip().str(), device.isEmulated()}, code);
  if (emission != Emission::Done)
    return toStatus(emission);
  if (device.isEmulated())
    return writeFile(planned, image, code);
  auto resources = assemblePtx(code, device.getChip(), image, message);
  if (failed(resources)) {
    planned.emitError() << message;
    return ::memopt::StatusCode::Environment;
  }
  if (auto status = writeFile(planned, getPathIn(directory, "kernels.ptx"), code);
      status != ::memopt::StatusCode::Ok)
    return status;
  return failed(checkResources(planned, *resources)) ? ::memopt::StatusCode::BadInput
                                                     : ::memopt::StatusCode::Ok;
}

::memopt::StatusCode mlir::memopt::writeProgram(ModuleOp planned, const ProgramOptions &options,
                                                StringRef directory,
                                                std::vector<std::string> &deviceKernels) {
  FailureOr<ProgramModules> modules = buildProgram(planned, options);
  if (failed(modules))
    return ::memopt::StatusCode::BadInput;
  ObjectOptions object;
  auto cpu = dyn_cast<CpuAttr>(Attribute(getTarget(planned)));
  // Beside a device the processor only launches: any will do.
  object.processor = cpu ? cpu.getProcessor().str() : "generic";
  object.cache = options.cache;
  object.threads =
      options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  if (modules->device)
    if (auto status = writeImage(planned, *modules->device, directory);
        status != ::memopt::StatusCode::Ok)
      return status;
  deviceKernels = modules->deviceKernels;
  return toStatus(emitSharedObject(*modules->host, object, getPathIn(directory, "program.so")));
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

LogicalResult mlir::memopt::printProgram(ModuleOp planned, const ProgramOptions &options,
                                         raw_ostream &out) {
  FailureOr<ProgramModules> modules = buildProgram(planned, options);
  if (failed(modules))
    return failure();
  if (failed(convertToLLVMDialect(*modules->host)) ||
      (modules->device && failed(convertToDeviceDialects(*modules->device))))
    return failure();
  for (OwningOpRef<ModuleOp> *module : {&modules->host, &modules->device}) {
    if (!*module)
      continue;
    (*module)->print(out);
    out << "\n";
  }
  return success();
}

::memopt::StatusCode mlir::memopt::printPtx(ModuleOp planned, raw_ostream &out) {
  auto device = cast<CudaAttr>(Attribute(getTarget(planned)));
  FailureOr<ProgramModules> modules = buildProgram(planned, {});
  if (failed(modules))
    return ::memopt::StatusCode::BadInput;
  std::string code;
  Emission emission = emitDeviceCode(*modules->device, {device.getChip().str()}, code);
  out << code;
  return toStatus(emission);
}
