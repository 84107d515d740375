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
#include "RepeatedOps.h"
#include "WrittenOutLoop.h"

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/Remarks.h"

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
struct RollLoopsPass : mlir::memopt::impl::RollLoopsPassBase<RollLoopsPass> {
  using RollLoopsPassBase::RollLoopsPassBase;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!step.getBody().hasOneBlock() || leastTurns < 2)
      return;
    if (!rollLoops(step))
      return markAllAnalysesPreserved();
    joinSlices(step);
  }

private:
  bool rollLoops(func::FuncOp step) {
    SmallVector<Operation *> ops;
    for (Operation &op : step.getBody().front())
      if (!movesElements(&op))
        ops.push_back(&op);
    SmallVector<unsigned> names = nameOps(ops);
    RepetitionFinder finder(names, leastTurns);
    DenseMap<size_t, Failures> failures;
    bool hasRolled = false;
    for (size_t first = 0; first < ops.size();) {
      size_t size = rollAt(ArrayRef(ops).drop_front(first), first, finder, failures);
      hasRolled |= size != 0;
      first += size ? size : 1;
    }
    return hasRolled;
  }

  /// Of a run of one period that is no loop from its first places on, the rest is not tried.
  struct Failures {
    size_t end = 0;
    unsigned count = 0;
  };
  static constexpr unsigned kMostFailures = 4;

  /// The number of ops that became a loop, of those from `first` on.
  size_t rollAt(ArrayRef<Operation *> ops, size_t first, RepetitionFinder &finder,
                DenseMap<size_t, Failures> &failures) {
    if (!fitsIntoLoop(ops.front()))
      return 0;
    for (Repetition found : finder.findAt(first)) {
      Failures &failed = failures[found.period];
      if (failed.end < first)
        failed = Failures();
      if (failed.count >= kMostFailures)
        continue;
      ArrayRef<Operation *> turns = ops.take_front(found.size());
      Location location = turns.front()->getLoc();
      if (succeeded(rollLoop(turns, found.period))) {
        remark::passed(location,
                       remark::RemarkOpts::name("RollLoops").category("memopt-roll-loops"))
            << remark::metric("Turns", static_cast<int64_t>(found.count))
            << remark::metric("Ops", static_cast<int64_t>(found.period));
        return found.size();
      }
      failed = {first + found.size(), failed.count + 1};
    }
    return 0;
  }
};
} // namespace
