//===- RollLoops.cpp - finds loops that are written out ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// torch.export writes out each loop of a model: a cell that is called step by step, a scan in plain
// PyTorch, the steps of a solver. This pass finds them again. Compile time, the size of the program
// and what a budget has to search then depend on the body, not on the number of turns.
//
// Found:  repetitions in the order of the ops, by name, attributes and types; ops that only move
//         elements are looked through. What the front end wrote in the order of turns stands so here.
// Proven: WrittenOutLoop, operand by operand.
//
//===----------------------------------------------------------------------===//

#include "JoinedSlices.h"
#include "LoopBody.h"
#include "RepeatedOps.h"
#include "WrittenOutLoop.h"

#include "memopt/Analysis/BatchModel.h"
#include "memopt/Analysis/IntegerRanges.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_ROLLLOOPSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Ops are alike whatever values they read and wherever they come from.
struct AlikeOps : DenseMapInfo<Operation *> {
  static unsigned getHashValue(Operation *op) {
    return OperationEquivalence::computeHash(op, OperationEquivalence::ignoreHashValue,
                                             OperationEquivalence::ignoreHashValue,
                                             OperationEquivalence::IgnoreLocations);
  }
  static bool isEqual(Operation *a, Operation *b) {
    if (a == b || a == getEmptyKey() || a == getTombstoneKey() || b == getEmptyKey() ||
        b == getTombstoneKey())
      return a == b;
    return a->getOperandTypes() == b->getOperandTypes() &&
           OperationEquivalence::isEquivalentTo(a, b, OperationEquivalence::ignoreValueEquivalence,
                                                nullptr, OperationEquivalence::IgnoreLocations);
  }
};
} // namespace

/// A number for each op; alike ops have the same.
static SmallVector<unsigned> nameOps(ArrayRef<Operation *> ops) {
  DenseMap<Operation *, unsigned, AlikeOps> names;
  return llvm::map_to_vector(ops, [&](Operation *op) {
    return names.try_emplace(op, static_cast<unsigned>(names.size())).first->second;
  });
}

/// Concatenations of the slices that loops left are those loops' results.
static void joinSlices(func::FuncOp step) {
  for (auto concat : llvm::make_early_inc_range(step.getOps<tensor::ConcatOp>())) {
    SmallVector<SliceRun> runs = findSliceRuns(concat.getInputs());
    if (runs.size() == concat.getInputs().size())
      continue;
    OpBuilder builder(concat);
    concat.replaceAllUsesWith(
        joinRuns(builder, concat.getLoc(), runs, static_cast<int64_t>(concat.getDim())));
    concat.erase();
  }
}

namespace {
/// Which ops may stand in the body of a loop.
class BodyOps {
public:
  explicit BodyOps(ModuleOp module) {
    // Where samples are mixed anyway, a loop may mix them, too.
    ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
    FailureOr<StepModel> step = StepModel::create(module);
    FailureOr<BatchModel> model =
        failed(step) ? FailureOr<BatchModel>() : BatchModel::create(*step);
    if (succeeded(model))
      samples = std::move(*model);
  }

  /// Numbers that are drawn, and indices and divisors that need a check, have a place in the step. What is made of
  /// all samples stays outside, where batches may be cut.
  bool allow(Operation *op) const {
    auto draw = dyn_cast<DrawOpInterface>(op);
    if (op->getNumRegions() || op->getNumResults() == 0 || !isPure(op) || getIntegerDivisor(op) ||
        (draw && draw.drawsNumbers()) || isa<BatchStatisticsOpInterface, IndexingOpInterface>(op))
      return false;
    return llvm::all_of(op->getOperands(), [&](Value value) { return keepsSamples(value); }) &&
           llvm::all_of(op->getResults(), [&](Value value) { return keepsSamples(value); });
  }

private:
  /// Whether samples are no part of `value`, or a dimension of it, unmerged with others: that is how a
  /// loop's dimensions are told apart.
  bool keepsSamples(Value value) const {
    if (!isa<RankedTensorType>(value.getType()))
      return false;
    if (!samples || samples->getReach(value) == Reach::Shared)
      return true;
    std::optional<BatchDimension> dimension = samples->getDimension(value);
    return dimension && dimension->inner == 1 && dimension->outer == 1;
  }

  std::optional<BatchModel> samples;
};

struct RollLoopsPass : mlir::memopt::impl::RollLoopsPassBase<RollLoopsPass> {
  using RollLoopsPassBase::RollLoopsPassBase;

  void runOnOperation() override {
    bool hasRolled = false;
    for (auto step : getOperation().getOps<func::FuncOp>())
      if (step.getBody().hasOneBlock() && leastTurns >= 2 && rollLoops(step)) {
        joinSlices(step);
        hasRolled = true;
      }
    if (!hasRolled)
      markAllAnalysesPreserved();
  }

private:
  bool rollLoops(func::FuncOp step) {
    SmallVector<Operation *> ops;
    for (Operation &op : step.getBody().front())
      if (!movesElements(&op))
        ops.push_back(&op);
    SmallVector<unsigned> names = nameOps(ops);
    RepetitionFinder finder(names, leastTurns);
    DenseMap<size_t, Run> runs; // by period
    std::optional<BodyOps> bodyOps;
    bool hasRolled = false;
    for (size_t first = 0; first < ops.size();) {
      SmallVector<Repetition> found = finder.findAt(first);
      if (!found.empty() && !bodyOps)
        bodyOps.emplace(getOperation());
      size_t size = 0;
      for (Repetition repetition : found)
        if (size == 0 && roll(ArrayRef(ops).drop_front(first), first, repetition, *bodyOps, runs))
          size = repetition.size();
      hasRolled |= size != 0;
      first += size ? size : 1;
    }
    return hasRolled;
  }

  /// Names that repeat themselves with one period. Where they are no loop from the first places on, nor
  /// from the first places of the next turns (a first turn may read its operands in another order), the
  /// rest is not tried.
  struct Run {
    size_t begin = 0, end = 0;
    bool isTriedAt(size_t place, size_t period) const {
      constexpr size_t mostPlaces = 4, mostTurns = 3;
      return (place - begin) % period < mostPlaces && (place - begin) / period < mostTurns;
    }
  };

  static bool roll(ArrayRef<Operation *> ops, size_t first, Repetition found,
                   const BodyOps &bodyOps, DenseMap<size_t, Run> &runs) {
    Run &run = runs[found.period];
    if (run.end <= first)
      run = {first, first + found.size()};
    auto isAllowed = [&](Operation *op) { return bodyOps.allow(op); };
    if (!run.isTriedAt(first, found.period) ||
        !llvm::all_of(ops.take_front(found.period), isAllowed))
      return false;
    Location location = ops.front()->getLoc();
    if (failed(rollLoop(ops.take_front(found.size()), found.period)))
      return false;
    remark::passed(location, remark::RemarkOpts::name("RollLoops").category("memopt-roll-loops"))
        << remark::metric("Turns", static_cast<int64_t>(found.count))
        << remark::metric("Ops", static_cast<int64_t>(found.period));
    return true;
  }
};
} // namespace
