//===- TargetCode.cpp - code of a kind of machine -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Targets/TargetCode.h"

#include "NvidiaCode.h"
#include "memopt/Dialect/Memopt.h"

using namespace mlir;
using namespace mlir::memopt;

#include "memopt/Conversion/Targets/TargetCode.cpp.inc"

namespace {
struct ProcessorCode : TargetCodeAttrInterface::ExternalModel<ProcessorCode, CpuAttr> {
  FailureOr<KernelOptions> getKernelOptions(Attribute self,
                                            function_ref<InFlightDiagnostic()> emitError) const {
    auto target = cast<CpuAttr>(self);
    std::string message;
    FailureOr<std::string> processor = resolveProcessor(target.getProcessor(), message);
    if (failed(processor))
      return emitError() << message;
    KernelOptions options;
    options.vectorBytes = getVectorBytes(*processor);
    options.isReference = target.getReference();
    return options;
  }
  std::string getHostProcessor(Attribute self) const {
    return cast<CpuAttr>(self).getProcessor().str();
  }
};
} // namespace

void mlir::memopt::registerTargetCode(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MemoptDialect *) {
    CpuAttr::attachInterface<ProcessorCode>(*context);
    attachNvidiaCode(*context);
  });
}

FailureOr<TargetCodeAttrInterface> mlir::memopt::getTargetCode(ModuleOp planned) {
  if (auto code = dyn_cast<TargetCodeAttrInterface>(Attribute(getTarget(planned))))
    return code;
  return planned.emitError("is compiled for no machine that code is generated for");
}
