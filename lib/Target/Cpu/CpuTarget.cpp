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
#include "RuntimeImplementations.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Target/Cpu/MachineProfile.h"

using namespace mlir;
using namespace mlir::memopt;

static std::string print(const llvm::json::Object &description) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(llvm::json::Object(description));
  return text;
}

FailureOr<SmallVector<CallImplementation>>
mlir::memopt::askRuntime(llvm::json::Object description, int threads,
                         function_ref<InFlightDiagnostic()> emitError) {
  LibraryAnswer answer = queryLibrary(print(description), threads);
  if (!answer.error.empty())
    return emitError() << "no library call can compute this: " << answer.error;
  return SmallVector<CallImplementation>{{answer.implementation, answer.workspaceBytes}};
}

static MachineProfile getProfile(Attribute target) {
  auto cpu = cast<CpuAttr>(target);
  return MachineProfile::of(cpu.getProfile(), MachineProfile::getShipped(cpu.getProcessor()));
}

namespace {
struct CpuTarget : TargetAttrInterface::ExternalModel<CpuTarget, CpuAttr> {
  llvm::json::Value describe(Attribute) const { return "cpu"; }
  std::string describeMachine(Attribute self) const {
    MachineProfile profile = getProfile(self);
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
    return askRuntime(describeCall(self, call), static_cast<int>(getThreads(self)), emitError);
  }

  SmallVector<CallImplementation> getLeanImplementations(Attribute self,
                                                         LibraryCallAttrInterface call) const {
    SmallVector<CallImplementation> lean;
    int threads = static_cast<int>(getThreads(self));
    llvm::json::Object description = describeCall(self, call);
    LibraryAnswer answer = queryLibrary(print(description), threads);
    while (answer.error.empty() && answer.workspaceBytes > 0) {
      description["workspace_limit"] = answer.workspaceBytes - 1;
      answer = queryLibrary(print(description), threads);
      if (answer.error.empty())
        lean.push_back({answer.implementation, answer.workspaceBytes, answer.slowdown});
    }
    return lean;
  }

  int64_t getPackedWeightBytes(Attribute self, LibraryCallAttrInterface call) const {
    return queryLibrary(print(describeCall(self, call)), static_cast<int>(getThreads(self)))
        .packedWeightBytes;
  }

  /// Where neither rows nor columns are contiguous a copy is faster.
  bool canReadMatrix(Attribute, int64_t rowStride, int64_t columnStride) const {
    return rowStride == 1 || columnStride == 1;
  }

  /// What belongs to a row is computed before the row is stored, but for plain loops: they take
  /// each element of a result by itself, reads and all.
  bool mayWriteOverRows(Attribute self) const { return !cast<CpuAttr>(self).getReference(); }

  std::function<double(const Work &)> getCostFunction(Attribute self) const {
    return getProfile(self).getCostFunction();
  }
};
} // namespace

void mlir::memopt::registerCpuTarget(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MemoptDialect *) {
    CpuAttr::attachInterface<CpuTarget>(*context);
  });
}
