//===- ReserveExchange.cpp - memory between a device and its host -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Samples reach a device by way of memory of the host that it can copy from, and into memory that
// no kernel of the step before reads any more. Both are bytes like others: a budget that is kept
// must know them. So they are variables, which all that plans counts.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Program.h"
#include "memopt/Transforms/Passes.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_RESERVEEXCHANGEPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// Whether the host writes or reads a variable with every step.
static bool isExchanged(VariableOp variable) {
  switch (variable.getRole()) {
  case Role::Hyperparameter:
  case Role::IndexFault:
  case Role::LossScale:
    return true;
  case Role::Gradient:
    return variable.getSymName() == "gradient_norm";
  default:
    return false;
  }
}

namespace {
struct ReserveExchangePass : mlir::memopt::impl::ReserveExchangePassBase<ReserveExchangePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!getTarget(module).isDevice())
      return;
    FailureOr<StepModel> step = StepModel::create(module);
    if (failed(step) ||
        failed(declare(::memopt::nextSamplesName, Space::Device, countSamples(*step))) ||
        failed(declare(::memopt::exchangeName, Space::Host, countExchanged(*step))))
      signalPassFailure();
  }

  static int64_t countSamples(StepModel &step) {
    int64_t end = 0;
    for (BlockArgument input : step.getBody().getArguments())
      ::memopt::placeInExchange(end, getTensorBytes(input.getType()));
    if (VariableOp offset = findHyperparameter(step.getModule(), "sample_offset"))
      ::memopt::placeInExchange(end, getTensorBytes(offset.getPlacedType()));
    return end;
  }

  static int64_t countExchanged(StepModel &step) {
    int64_t end = 0;
    for (BlockArgument input : step.getBody().getArguments())
      ::memopt::placeInExchange(end, getTensorBytes(input.getType()));
    for (Value output : step.getReturn()->getOperands())
      ::memopt::placeInExchange(end, getTensorBytes(output.getType()));
    for (auto variable : step.getModule().getOps<VariableOp>())
      if (isExchanged(variable) && variable.getSymName() != ::memopt::nextSamplesName)
        ::memopt::placeInExchange(end, getTensorBytes(variable.getPlacedType()));
    return end;
  }

  LogicalResult declare(StringRef name, Space space, int64_t bytes) {
    ModuleOp module = getOperation();
    if (Operation *other = module.lookupSymbol(name))
      return other->emitOpError() << "has the name '" << name << "', which programs of the target "
                                  << "need for what they exchange with the host";
    if (bytes == 0)
      return success();
    // Behind all state, whose places programs of a package share: this has another size in each.
    auto builder = OpBuilder::atBlockBegin(module.getBody());
    for (auto variable : module.getOps<VariableOp>())
      builder.setInsertionPointAfter(variable);
    auto type = RankedTensorType::get({bytes}, builder.getI8Type());
    auto variable = VariableOp::create(builder, module.getLoc(), name, type, Role::Hyperparameter);
    variable.setPlacement(space);
    variable.setTransient(true);
    return success();
  }
};
} // namespace
