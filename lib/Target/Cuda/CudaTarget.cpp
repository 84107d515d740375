//===- CudaTarget.cpp - NVIDIA GPUs -----------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matrix products are cuBLASLt's. Which of its kernels runs is chosen on the device, among those
// that the planned workspace is enough for: the cap is what NVIDIA recommends for the chip
// (cuBLAS, "cublasSetWorkspace"). What cuDNN would compute needs plans, which are not made here
// yet; an emulated device computes it by the runtime's plain loops.
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cuda/CudaTarget.h"

#include "../Cpu/LibraryQuery.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Target/Cpu/MachineProfile.h"

using namespace mlir;
using namespace mlir::memopt;

static int64_t getMatmulCap(CudaAttr target) {
  constexpr unsigned hopper = 90;
  return int64_t(target.getCapability() >= hopper ? 32 : 4) << 20;
}

namespace {
struct CudaTarget : TargetAttrInterface::ExternalModel<CudaTarget, CudaAttr> {
  using Implementations = SmallVector<CallImplementation>;

  llvm::json::Value describe(Attribute self) const {
    auto target = cast<CudaAttr>(self);
    return llvm::json::Object{{"name", "cuda"},
                              {"chip", target.getChip()},
                              {"sms", target.getSms()},
                              {"image", getImageName(self)}};
  }
  StringRef getImageName(Attribute self) const {
    return cast<CudaAttr>(self).isEmulated() ? "kernels.bc" : "kernels.cubin";
  }
  std::string describeMachine(Attribute self) const {
    auto target = cast<CudaAttr>(self);
    StringRef device = target.getDevice().empty() ? target.getChip() : target.getDevice();
    return (device + " with " + Twine(target.getSms()) + " multiprocessors").str();
  }
  /// Those of the process, which only launches.
  int64_t getThreads(Attribute) const { return 1; }

  llvm::json::Object describeCall(Attribute self, LibraryCallAttrInterface call) const {
    llvm::json::Object object = call.toJson();
    if (cast<CudaAttr>(self).isEmulated())
      object["reference"] = true;
    return object;
  }

  FailureOr<Implementations>
  getImplementations(Attribute self, LibraryCallAttrInterface call,
                     function_ref<InFlightDiagnostic()> emitError) const {
    auto target = cast<CudaAttr>(self);
    if (target.isEmulated())
      return askRuntime(self, call, emitError);
    if (isa<MatmulAttr>(call))
      return Implementations{{"cublaslt", getMatmulCap(target)}};
    return emitError() << "no library call can compute this on " << target.getChip() << ": a "
                       << call.getKindName()
                       << " needs a plan of cuDNN's, which this version does not make; an emulated "
                          "device, whose description says \"image\": \"bitcode\", needs none";
  }

  /// Where neither rows nor columns are contiguous a copy is needed.
  bool canReadMatrix(Attribute, int64_t rowStride, int64_t columnStride) const {
    return rowStride == 1 || columnStride == 1;
  }
  /// What belongs to a row is computed before the row is stored, with a barrier between.
  bool mayWriteOverRows(Attribute) const { return true; }

  std::function<double(const Work &)> getCostFunction(Attribute self) const {
    MachineProfile profile = MachineProfile::of(cast<CudaAttr>(self).getProfile());
    return [profile = std::move(profile)](const Work &work) { return profile.getSeconds(work); };
  }

private:
  FailureOr<Implementations> askRuntime(Attribute self, LibraryCallAttrInterface call,
                                        function_ref<InFlightDiagnostic()> emitError) const {
    std::string text;
    llvm::raw_string_ostream(text) << llvm::json::Value(describeCall(self, call));
    LibraryAnswer answer = queryLibrary(text, /*threads=*/1);
    if (!answer.error.empty())
      return emitError() << "no library call can compute this: " << answer.error;
    return Implementations{{answer.implementation, answer.workspaceBytes}};
  }
};
} // namespace

void memopt::registerCudaTarget(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MemoptDialect *) {
    CudaAttr::attachInterface<CudaTarget>(*context);
  });
}
