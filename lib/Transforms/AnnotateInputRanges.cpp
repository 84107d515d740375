//===- AnnotateInputRanges.cpp - which input values would index outside a tensor -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Forward only: from each integer argument through reshapes, slices, transposes and copies of
// elements to the ops that index by it. The generated code does not check indices; the runtime
// checks each batch against the range that is noted here. An index that is computed by arithmetic
// from an input has no range here, and code generation clamps it.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <limits>

namespace mlir::memopt {
#define GEN_PASS_DEF_ANNOTATEINPUTRANGESPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
struct Range {
  int64_t max = std::numeric_limits<int64_t>::max();
  std::optional<int64_t> ignore;
  std::string reason;

  /// Keeps the tighter of two ranges; values to ignore must be ignored by every user.
  void restrict(int64_t newMax, std::optional<int64_t> newIgnore, std::string newReason) {
    bool first = reason.empty();
    ignore = first || ignore == newIgnore ? newIgnore : std::nullopt;
    if (first || newMax < max) {
      max = newMax;
      reason = std::move(newReason);
    }
  }
};

/// Ops whose result holds elements of operand 0 and perhaps zeros, which are always in range.
bool movesElements(Operation *op) {
  return isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp, TransposeOp,
             BroadcastOp, PadOp, ReverseOp>(op);
}

std::string describeUse(StringRef what, Operation *op) {
  StringRef path = getModulePath(op->getLoc());
  return path.empty() ? what.str() : (what + " in " + path).str();
}

void collect(Value value, Range &range) {
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    if (auto embedding = dyn_cast<EmbeddingOp>(op); embedding && use.getOperandNumber() == 1) {
      int64_t rows = cast<RankedTensorType>(embedding.getTable().getType()).getDimSize(0);
      range.restrict(rows - 1, std::nullopt, describeUse("rows of an embedding", op));
    } else if (auto loss = dyn_cast<CrossEntropyOp>(op); loss && use.getOperandNumber() == 1) {
      int64_t classes = cast<RankedTensorType>(loss.getLogits().getType()).getDimSize(1);
      range.restrict(classes - 1, loss.getIgnoreIndex(),
                     describeUse("classes of a cross entropy", op));
    } else if (auto gather = dyn_cast<GatherOp>(op); gather && use.getOperandNumber() > 0) {
      int64_t dim = gather.getIndexed()[use.getOperandNumber() - 1];
      range.restrict(cast<RankedTensorType>(gather.getSource().getType()).getDimSize(dim) - 1,
                     std::nullopt, describeUse("elements of a gather", op));
    } else if (auto scatter = dyn_cast<ScatterOp>(op); scatter && use.getOperandNumber() > 1) {
      int64_t dim = scatter.getIndexed()[use.getOperandNumber() - 2];
      range.restrict(cast<RankedTensorType>(scatter.getInput().getType()).getDimSize(dim) - 1,
                     std::nullopt, describeUse("elements of a scatter", op));
    } else if (movesElements(op)) {
      collect(op->getResult(0), range);
    } else if (auto repeat = dyn_cast<RepeatOp>(op)) {
      collect(repeat.getBody().getArgument(use.getOperandNumber()), range);
    }
  }
}

struct AnnotateInputRangesPass
    : public mlir::memopt::impl::AnnotateInputRangesPassBase<AnnotateInputRangesPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (failed(verifyTensorGraph(function)))
      return signalPassFailure();
    Builder builder(&getContext());
    for (BlockArgument argument : function.getArguments()) {
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      if (!type || !isa<IntegerType>(type.getElementType()))
        continue;
      Range range;
      collect(argument, range);
      if (range.reason.empty())
        continue;
      NamedAttrList entries;
      entries.set("min", builder.getI64IntegerAttr(0));
      entries.set("max", builder.getI64IntegerAttr(range.max));
      if (range.ignore)
        entries.set("ignore", builder.getI64IntegerAttr(*range.ignore));
      entries.set("reason", builder.getStringAttr(range.reason));
      function.setArgAttr(argument.getArgNumber(), MemoptDialect::kValidRangeAttr,
                          builder.getDictionaryAttr(entries));
    }
  }
};
} // namespace
