//===- NvidiaCode.cpp - code of NVIDIA's GPUs --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NvidiaCode.h"

#include "memopt-runtime/base/Files.h"
#include "memopt/Conversion/Targets/TargetCode.h"
#include "memopt/Conversion/Threads/Nvvm/DeviceCode.h"
#include "memopt/Conversion/Threads/Nvvm/NvvmOps.h"
#include "memopt/Dialect/Memopt.h"

#include <filesystem>

using namespace mlir;
using namespace mlir::memopt;

static Emission writeFile(ModuleOp kernels, const std::filesystem::path &path, StringRef text) {
  ::memopt::Status status = ::memopt::writeFileAtomically(path, text);
  if (status.isOk())
    return Emission::Done;
  kernels.emitError() << status.getMessage();
  return Emission::Environment;
}

/// Local memory is kept for every thread that the device can hold, which no plan counts.
static LogicalResult checkResources(ModuleOp kernels, ArrayRef<KernelResources> resources) {
  for (const KernelResources &kernel : resources)
    if (kernel.stackBytes || kernel.spillBytes)
      return kernels.emitError() << "kernel " << kernel.name << " needs " << kernel.stackBytes
                                 << " bytes of stack and moves " << kernel.spillBytes
                                 << " bytes of registers that do not fit, expected none";
  return success();
}

/// Nothing where the target does not say all of them.
static std::optional<MultiprocessorLimits> getLimits(CudaAttr target) {
  DictionaryAttr properties = target.getProperties();
  auto get = [&](StringRef name) {
    auto number = properties ? properties.getAs<IntegerAttr>(name) : IntegerAttr();
    return number ? number.getInt() : 0;
  };
  int64_t reserved = get("reservedSharedMemoryPerBlock");
  MultiprocessorLimits limits{get("maxThreadsPerSM"), get("maxCtasPerSM"), get("maxRegistersPerSM"),
                              get("maxSharedMemoryPerBlockOptin") + reserved, reserved};
  bool areKnown = limits.threads && limits.blocks && limits.registers && limits.sharedBytes;
  return areKnown ? std::optional(limits) : std::nullopt;
}

/// A strided launch of whole waves has no last one that leaves the device half empty.
static void limitToOneWave(CudaAttr target, ArrayRef<KernelResources> resources,
                           MutableArrayRef<KernelLaunch> launches) {
  std::optional<MultiprocessorLimits> limits = getLimits(target);
  if (!limits)
    return;
  llvm::StringMap<const KernelResources *> known;
  for (const KernelResources &kernel : resources)
    known[kernel.name] = &kernel;
  for (KernelLaunch &launch : launches)
    if (const KernelResources *kernel = known.lookup(launch.symbol); kernel && launch.isStrided)
      launch.blocks =
          std::min(launch.blocks, target.getSms() * limits->countResidentBlocks(*kernel, launch));
}

namespace {
struct NvidiaCode : TargetCodeAttrInterface::ExternalModel<NvidiaCode, CudaAttr> {
  FailureOr<KernelOptions> getKernelOptions(Attribute self,
                                            function_ref<InFlightDiagnostic()>) const {
    auto target = cast<CudaAttr>(self);
    KernelOptions options;
    options.deviceOps = &getNvvmOps();
    DeviceMachine &machine = options.device.emplace();
    machine.sms = target.getSms();
    if (DictionaryAttr properties = target.getProperties())
      if (auto threads = properties.getAs<IntegerAttr>("maxThreadsPerSM"))
        machine.threadsOfSm = threads.getInt();
    return options;
  }

  LogicalResult convertKernels(Attribute, ModuleOp kernels) const {
    return convertToDeviceDialects(kernels);
  }

  /// PTX, of an emulated device too.
  Emission emitText(Attribute self, ModuleOp kernels, std::string &text) const {
    return emitDeviceCode(kernels, {cast<CudaAttr>(self).getChip().str()}, text);
  }

  /// kernels.bc, or kernels.cubin with the PTX that it comes from beside it.
  Emission writeImage(Attribute self, ModuleOp kernels, StringRef folder,
                      MutableArrayRef<KernelLaunch> launches) const {
    auto target = cast<CudaAttr>(self);
    std::string code, message;
    std::filesystem::path place = folder.str();
    std::filesystem::path image = place / cast<TargetAttrInterface>(self).getImageName().str();
    Emission end = emitDeviceCode(kernels, {target.getChip().str(), target.isEmulated()}, code);
    if (end != Emission::Done)
      return end;
    if (target.isEmulated())
      return writeFile(kernels, image, code);
    auto resources = assemblePtx(code, target.getChip(), image.string(), message);
    if (failed(resources)) {
      kernels.emitError() << message;
      return Emission::Environment;
    }
    limitToOneWave(target, *resources, launches);
    end = writeFile(kernels, place / "kernels.ptx", code);
    if (end == Emission::Done && failed(checkResources(kernels, *resources)))
      return Emission::BadProgram;
    return end;
  }
};
} // namespace

void mlir::memopt::attachNvidiaCode(MLIRContext &context) {
  CudaAttr::attachInterface<NvidiaCode>(context);
}
