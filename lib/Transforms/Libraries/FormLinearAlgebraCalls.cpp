//===- FormLinearAlgebraCalls.cpp - decompositions to library calls -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/FormLibraryCalls.h"
#include "memopt/Transforms/Libraries/LibraryCallBuilder.h"

using namespace mlir;
using namespace mlir::memopt;

LogicalResult mlir::memopt::formLinearAlgebraCall(LinearAlgebraOp op) {
  if (!getTarget(op).computesLinearAlgebra())
    return op.emitOpError("has no library on this target; loops of the program compute it where "
                          "the graph is imported for the target");
  LibraryCallBuilder builder(op);
  for (Value input : op.getInputs())
    builder.addPacked(input);
  for (Value output : op.getOutputs())
    builder.addResult(output, /*mayPermute=*/false);
  LinearAlgebraAttr call = op.getCall([&] { return op.emitOpError(); });
  FailureOr<LibraryCallOp> made = call ? builder.create(call) : FailureOr<LibraryCallOp>(failure());
  if (failed(made))
    return failure();
  for (auto [old, result] : llvm::zip_equal(op->getResults(), made->getResults()))
    builder.replaceResult(old, result);
  op->erase();
  return success();
}
