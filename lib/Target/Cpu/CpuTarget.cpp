//===- CpuTarget.cpp - processors with oneDNN -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Library calls are those of the runtime, which is asked for the code that it would run and the
// workspace that it would need. The answer holds for the processor at hand.
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cpu/CpuTarget.h"

#include "LibraryQuery.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Target/Cpu/MachineProfile.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
struct CpuTarget : TargetAttrInterface::ExternalModel<CpuTarget, CpuAttr> {
  llvm::json::Value describe(Attribute) const { return "cpu"; }
  std::string describeMachine(Attribute self) const {
    MachineProfile profile = MachineProfile::of(cast<CpuAttr>(self).getProfile());
    return profile.machine + " with " + std::to_string(profile.threads) + " threads";
  }
  int64_t getThreads(Attribute self) const { return cast<CpuAttr>(self).getThreads(); }

  llvm::json::Object describeCall(Attribute self, LibraryCallAttrInterface call) const {
    llvm::json::Object object = call.toJson();
    if (cast<CpuAttr>(self).getReference())
      object["reference"] = true;
    return object;
  }

  FailureOr<SmallVector<CallImplementation>>
  getImplementations(Attribute self, LibraryCallAttrInterface call,
                     function_ref<InFlightDiagnostic()> emitError) const {
    std::string json;
    llvm::raw_string_ostream(json) << llvm::json::Value(describeCall(self, call));
    LibraryAnswer answer = queryLibrary(json, static_cast<int>(getThreads(self)));
    if (!answer.error.empty())
      return emitError() << "no library call can compute this: " << answer.error;
    return SmallVector<CallImplementation>{{answer.implementation, answer.workspaceBytes}};
  }

  /// Where neither rows nor columns are contiguous a copy is faster.
  bool canReadMatrix(Attribute, int64_t rowStride, int64_t columnStride) const {
    return rowStride == 1 || columnStride == 1;
  }

  /// What belongs to a row is computed before the row is stored, but for plain loops: they take
  /// each element of a result by itself, reads and all.
  bool mayWriteOverRows(Attribute self) const { return !cast<CpuAttr>(self).getReference(); }

  std::function<double(const Work &)> getCostFunction(Attribute self) const {
    MachineProfile profile = MachineProfile::of(cast<CpuAttr>(self).getProfile());
    return [profile = std::move(profile)](const Work &work) { return profile.getSeconds(work); };
  }
};
} // namespace

void memopt::registerCpuTarget(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MemoptDialect *) {
    CpuAttr::attachInterface<CpuTarget>(*context);
  });
}
