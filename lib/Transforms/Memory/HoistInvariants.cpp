//===- HoistInvariants.cpp - what a loop need not repeat --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs behind the search for a plan, on what the plan leaves of the budget: in a loop over
// micro-batches the search would pay for each of these values with bytes that live through it.
// Placed above everything else they fit where their bytes do, so the arena need not be solved for
// every choice; it is solved once, for the choice that was made, and half of that is tried where a
// placement is unlucky. Packed weights come after kernels, whose results they may be of. Those of
// loops over micro-batches are twice the parameters, so nobody gets them who has not said how many
// bytes there are. Those of a loop over slices live through this loop alone, which keeps more for
// its gradient, and each of its many products has few rows, so packing takes a share of its time.
//
// Input and output: a kernel graph in its order.
//
//===----------------------------------------------------------------------===//

#include "LoopInvariants.h"
#include "memopt/Transforms/Memory/OrderProblem.h"

#include "memopt/Transforms/Passes.h"

#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_HOISTINVARIANTSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

//===----------------------------------------------------------------------===//
// Choice
//===----------------------------------------------------------------------===//

using Collect =
    function_ref<void(const StepModel &, const CostModel &, SmallVectorImpl<Invariant> &)>;

static void collectFromRepeats(const StepModel &step, const CostModel &costs,
                               SmallVectorImpl<Invariant> &invariants) {
  for (auto loop : step.getBody().getOps<RepeatOp>())
    collectKernels(loop, costs, invariants);
}

/// Of loops over micro-batches.
static void collectPackingsOfRepeats(const StepModel &step, const CostModel &costs,
                                     SmallVectorImpl<Invariant> &invariants) {
  for (auto loop : step.getBody().getOps<RepeatOp>())
    collectPackings(loop, costs, invariants);
}

/// Of loops over slices, wherever they stand.
static void collectPackingsOfScans(const StepModel &step, const CostModel &costs,
                                   SmallVectorImpl<Invariant> &invariants) {
  step.getFunction()->walk([&](ScanOp scan) { collectPackings(scan, costs, invariants); });
}

/// All of the module, the one that saves most for its bytes first.
static SmallVector<Invariant> collectAll(const StepModel &step, Collect collect) {
  SmallVector<Invariant> invariants;
  CostModel costs(step.getModule());
  collect(step, costs, invariants);
  llvm::sort(invariants, [](const Invariant &a, const Invariant &b) {
    double left = double(a.savedNanoseconds) * double(b.bytes),
           right = double(b.savedNanoseconds) * double(a.bytes);
    return left != right ? left > right : a.number < b.number;
  });
  return invariants;
}

/// How many of `invariants`, the first ones, have their bytes within `room`.
static size_t countFitting(ArrayRef<Invariant> invariants, int64_t room) {
  size_t count = 0;
  for (int64_t sum = 0; count < invariants.size(); ++count) {
    sum += llvm::alignTo(invariants[count].bytes, 64);
    if (sum > room)
      break;
  }
  return count;
}

namespace {
struct HoistInvariantsPass
    : public mlir::memopt::impl::HoistInvariantsPassBase<HoistInvariantsPass> {
  using HoistInvariantsPassBase::HoistInvariantsPassBase;

  void runOnOperation() override {
    Hoisted hoisted;
    bool repeats = hasLoop<RepeatOp>(), scans = hasLoop<ScanOp>();
    if ((repeats && failed(hoistBest(collectFromRepeats, hoisted))) ||
        (scans && (failed(hoistBest(collectPackingsOfScans, hoisted)) || failed(share(hoisted)))) ||
        (repeats && budget >= 0 && failed(hoistBest(collectPackingsOfRepeats, hoisted))))
      return signalPassFailure();
    if (hoisted.results == 0)
      return markAllAnalysesPreserved();
    remark::passed(getOperation().getLoc(), remark::RemarkOpts::name("HoistInvariants")
                                                .category("memopt-hoist-invariants")
                                                .function(hoisted.function))
        << remark::metric("Kernels", hoisted.kernels)
        << remark::metric("PackedWeights", hoisted.packings)
        << remark::metric("Results", hoisted.results) << remark::metric("Bytes", hoisted.bytes);
  }

private:
  template <typename Loop> bool hasLoop() {
    auto stop = [](Loop) { return WalkResult::interrupt(); };
    return getOperation()->walk(stop).wasInterrupted();
  }

  struct Hoisted {
    StringRef function; ///< that it was found in
    int64_t kernels = 0, packings = 0, results = 0, bytes = 0;
  };

  /// As many as have room.
  LogicalResult hoistBest(Collect collect, Hoisted &hoisted) {
    FailureOr<StepModel> step = createPlannableStep(getOperation());
    if (failed(step))
      return failure();
    hoisted.function = step->getFunction().getName();
    SmallVector<Invariant> invariants = collectAll(*step, collect);
    if (invariants.empty())
      return success();
    FailureOr<size_t> count = chooseCount(*step, invariants, collect);
    if (failed(count))
      return failure();
    for (const Invariant &invariant : ArrayRef(invariants).take_front(*count)) {
      ++hoisted.results;
      hoisted.bytes += invariant.bytes;
      if (invariant.packing)
        ++hoisted.packings;
      else
        hoisted.kernels += static_cast<int64_t>(invariant.instructions.size());
      if (failed(hoist(invariant)))
        return failure();
    }
    return success();
  }

  /// Packs weights once for several loops where the arena has room.
  LogicalResult share(Hoisted &hoisted) {
    FailureOr<StepModel> step = createPlannableStep(getOperation());
    if (failed(step))
      return failure();
    if (findSharedPackings(step->getBody()).empty())
      return success();
    OwningOpRef<ModuleOp> trial = getOperation().clone();
    FailureOr<StepModel> tried = StepModel::create(*trial);
    if (failed(tried))
      return failure();
    sharePackings(tried->getBody());
    FailureOr<int64_t> before = getArenaBytes(*step), after = getArenaBytes(*tried);
    if (failed(before) || failed(after))
      return failure();
    if (*after <= getMostArenaBytes(*before, budget))
      hoisted.packings -= sharePackings(step->getBody());
    return success();
  }

  FailureOr<size_t> chooseCount(const StepModel &step, ArrayRef<Invariant> invariants,
                                Collect collect) {
    if (budget < 0)
      return invariants.size();
    FailureOr<int64_t> bytes = getArenaBytes(step);
    if (failed(bytes))
      return failure();
    size_t count = countFitting(invariants, budget - *bytes);
    for (; count > 0; count /= 2) {
      OwningOpRef<ModuleOp> trial = cast<ModuleOp>(step.getModule()->clone());
      FailureOr<StepModel> tried = StepModel::create(*trial);
      if (failed(tried))
        return failure();
      SmallVector<Invariant> copies = collectAll(*tried, collect);
      for (const Invariant &invariant : ArrayRef(copies).take_front(count))
        if (failed(hoist(invariant)))
          return failure();
      bytes = getArenaBytes(*tried);
      if (failed(bytes))
        return failure();
      if (*bytes <= budget)
        break;
    }
    return count;
  }
};
} // namespace
