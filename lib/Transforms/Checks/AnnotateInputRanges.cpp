//===- AnnotateInputRanges.cpp - which input values would index outside a tensor -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Forward only: from each integer argument through reshapes, transposes, copies of elements and
// casts to wider integers to the ops that index by it. The runtime checks each batch against the
// range that is noted here. A slice leaves elements behind that may have any value, and arithmetic
// changes them; what comes of those is checked while the program runs (memopt-check-indices).
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

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

/// Whether the result holds all elements of the operand; zeros beside them are always in range.
bool keepsElements(OpOperand &use) {
  auto view = dyn_cast<ViewOpInterface>(use.getOwner());
  return view ? view.showsWhole(use.getOperandNumber())
              : isa<arith::ExtSIOp, arith::ExtUIOp>(use.getOwner());
}

std::string describeUse(StringRef what, Operation *op) {
  StringRef path = getModulePath(op->getLoc());
  return path.empty() ? what.str() : (what + " in " + path).str();
}

/// From the uses that need an index inside, or from those that leave out what lies outside.
void collect(Value value, Range &range, bool skips) {
  SmallVector<OpOperand *> todo;
  DenseSet<Value> seen;
  auto open = [&](Value next) {
    if (!seen.insert(next).second)
      return;
    size_t first = todo.size();
    llvm::append_range(todo, llvm::make_pointer_range(next.getUses()));
    std::reverse(todo.begin() + first, todo.end());
  };
  open(value);
  while (!todo.empty()) {
    OpOperand &use = *todo.pop_back_val();
    Operation *op = use.getOwner();
    if (auto indexing = dyn_cast<IndexingOpInterface>(op))
      for (const IndexUse &index : indexing.getIndexUses())
        if (index.operand == &use && index.skips == skips)
          range.restrict(index.size - 1, index.ignore, describeUse(index.what, op));
    if (keepsElements(use))
      open(op->getResult(0));
    if (auto repeat = dyn_cast<RepeatOp>(op))
      open(repeat.getBody().getArgument(use.getOperandNumber()));
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
      // The former first: they say why. A backward pass skips where its forward pass reads.
      for (bool skips : {false, true})
        collect(argument, range, skips);
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
