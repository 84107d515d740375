//===- Program.cpp - planned program to machine code -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/Program.h"

#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Conversion/HostProgram.h"
#include "memopt/Conversion/KernelLowering.h"
#include "memopt/Conversion/ObjectEmission.h"

#include "mlir/IR/OwningOpRef.h"

#include <thread>

using namespace mlir;
using namespace mlir::memopt;

/// For each result the operand whose bytes the plan lets it take over, or -1.
static SmallVector<int64_t> getTakenOperands(KernelOp kernel) {
  SmallVector<int64_t> taken;
  DenseI64ArrayAttr offsets = kernel.getOffsetsAttr();
  for (unsigned result = 0; result < kernel.getNumResults(); ++result) {
    taken.push_back(-1);
    for (auto [number, operand] : llvm::enumerate(kernel.getInputs())) {
      FailureOr<int64_t> offset = getPlannedOffset(operand);
      if (succeeded(offset) && *offset == offsets[result]) {
        taken.back() = static_cast<int64_t>(number);
        break;
      }
    }
  }
  return taken;
}

/// The program as functions of llvm and the dialects of loops and vectors.
static FailureOr<OwningOpRef<ModuleOp>> buildProgram(ModuleOp planned,
                                                     const ProgramOptions &options) {
  FailureOr<StepModel> step = StepModel::create(planned);
  auto target = dyn_cast<CpuAttr>(Attribute(getTarget(planned)));
  if (failed(step) || !target)
    return planned.emitError("is compiled for no processor");
  std::string message;
  FailureOr<std::string> processor = resolveProcessor(target.getProcessor(), message);
  if (failed(processor))
    return planned.emitError() << message;
  OwningOpRef<ModuleOp> program(ModuleOp::create(planned.getLoc()));
  KernelOptions kernelOptions;
  kernelOptions.vectorBytes = getVectorBytes(*processor);
  kernelOptions.isReference = target.getReference();
  KernelLowering lowering(*program, kernelOptions);
  HostOptions hostOptions;
  hostOptions.isInstrumented = options.isInstrumented;
  auto lower = [&](KernelOp kernel) { return lowering.lower(kernel, getTakenOperands(kernel)); };
  LogicalResult built = buildHostProgram(*step, *program, lower, hostOptions);
  if (failed(built))
    return failure();
  return program;
}

::memopt::StatusCode mlir::memopt::writeProgram(ModuleOp planned, const ProgramOptions &options,
                                                StringRef path) {
  FailureOr<OwningOpRef<ModuleOp>> program = buildProgram(planned, options);
  if (failed(program))
    return ::memopt::StatusCode::BadInput;
  ObjectOptions object;
  object.processor = cast<CpuAttr>(Attribute(getTarget(planned))).getProcessor().str();
  object.threads =
      options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  switch (emitSharedObject(**program, object, path)) {
  case Emission::Done:
    return ::memopt::StatusCode::Ok;
  case Emission::BadProgram:
    return ::memopt::StatusCode::BadInput;
  case Emission::Environment:
    return ::memopt::StatusCode::Environment;
  }
  llvm_unreachable("all ends are named");
}

LogicalResult mlir::memopt::printProgram(ModuleOp planned, const ProgramOptions &options,
                                         raw_ostream &out) {
  FailureOr<OwningOpRef<ModuleOp>> program = buildProgram(planned, options);
  if (failed(program) || failed(convertToLLVMDialect(**program)))
    return failure();
  (*program)->print(out);
  out << "\n";
  return success();
}
