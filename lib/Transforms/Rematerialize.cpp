//===- Rematerialize.cpp - meet a byte budget by running kernels again -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Input and output: the kernel graph, where a value is exactly a buffer and a recomputation is a clone of a kernel.
// Deciding is Planning's solveRemat on plain integers; this file asks it, places the answer in an arena, and moves the
// solver's budget until the arena, which knows of buffers taken over in place and of gaps between them, just meets the
// user's. Of the plans that fit, the cheapest is applied.
//
// Refused: a budget that no plan was found for. The error names the smallest arena that was found, a proven lower
// bound, and the values that bind.
//
//===----------------------------------------------------------------------===//

#include "OrderProblem.h"

#include "memopt/Transforms/Passes.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/FormatVariadic.h"

#include <numeric>

namespace mlir::memopt {
#define GEN_PASS_DEF_REMATERIALIZEPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

namespace {
/// An order with clones, and what it needs once every buffer has its place.
struct Candidate {
  std::vector<int32_t> order;
  int64_t height = std::numeric_limits<int64_t>::max();
  int64_t cost = std::numeric_limits<int64_t>::max();
};

/// Searches orders for one function.
class BudgetSearch {
public:
  BudgetSearch(ModuleOp module, int64_t budget, planning::RematOptions options)
      : module(module), function(getStepFunction(module)), budget(budget), options(options),
        problem(function, costs) {}

  LogicalResult run() {
    std::vector<int32_t> given(problem.getProblem().ops.size());
    std::iota(given.begin(), given.end(), 0);
    llvm::Expected<planning::RematMeasure> measure = planning::measureRemat(problem.getProblem(), given);
    if (!measure)
      return fail(measure.takeError());
    baseCost = measure->cost;
    if (failed(consider(std::move(given), measure->cost)))
      return failure();
    if (best.height <= budget)
      return success();
    if (failed(search(measure->peak)))
      return failure();
    if (best.height > budget)
      return refuse();
    problem.apply(best.order);
    report();
    return success();
  }

private:
  /// The solver counts every value whole, the arena lets results take over dying operands: the first guess scales the
  /// budget by what that is worth in the given order. Later guesses close in between what fitted and what did not.
  LogicalResult search(int64_t givenPeak) {
    double gain = std::max(1.0, static_cast<double>(givenPeak) / static_cast<double>(best.height));
    int64_t fits = 0, tooMuch = std::numeric_limits<int64_t>::max();
    int64_t guess = static_cast<int64_t>(static_cast<double>(budget) * gain);
    for (int round = 0; round < kRounds; ++round) {
      options.budget = guess;
      llvm::Expected<planning::RematSolution> solution = planning::solveRemat(problem.getProblem(), options);
      if (!solution)
        return fail(solution.takeError());
      if (llvm::Error wrong = planning::verifyRemat(problem.getProblem(), options, *solution))
        return fail(std::move(wrong));
      lowerBound = std::max(lowerBound, solution->peakLowerBound);
      int64_t height = std::numeric_limits<int64_t>::max();
      if (failed(consider(solution->order, solution->cost, &height)))
        return failure();
      if (height <= budget)
        fits = std::max(fits, guess);
      else
        tooMuch = std::min(tooMuch, guess);
      if (!solution->feasible && height > budget && guess <= budget)
        break; // the solver is at its smallest
      guess = height <= budget ? (tooMuch == std::numeric_limits<int64_t>::max()
                                      ? guess + std::max<int64_t>(1, budget - height)
                                      : fits + (tooMuch - fits) / 2)
              : fits           ? fits + (tooMuch - fits) / 2
                               : static_cast<int64_t>(static_cast<double>(guess) * budget / height);
      if (guess == fits || guess == tooMuch)
        break;
    }
    return success();
  }

  /// Places an order on a copy of the module and keeps it when it is better: within the budget the cheapest, above it
  /// the lowest.
  LogicalResult consider(std::vector<int32_t> order, int64_t cost, int64_t *heightOut = nullptr) {
    OwningOpRef<ModuleOp> copy(module.clone());
    func::FuncOp copied = getStepFunction(*copy);
    OrderProblem(copied, costs).apply(order);
    planning::ArenaOptions arena;
    arena.capacity = budget;
    llvm::Expected<planning::ArenaSolution> layout = planning::solveArena(buildArenaProblem(KernelGraph(copied)), arena);
    if (!layout)
      return fail(layout.takeError());
    if (heightOut)
      *heightOut = layout->height;
    bool fits = layout->height <= budget, bestFits = best.height <= budget;
    if (fits ? (!bestFits || cost < best.cost) : (!bestFits && layout->height < best.height))
      best = {std::move(order), layout->height, cost};
    return success();
  }

  LogicalResult fail(llvm::Error error) {
    return module.emitError() << "rematerialization failed: " << llvm::toString(std::move(error));
  }

  LogicalResult refuse() {
    module->setAttr(MemoptDialect::kArenaBytesAttr, Builder(module.getContext()).getI64IntegerAttr(best.height));
    problem.apply(best.order);
    KernelGraph graph(function);
    std::string list = "largest values alive at the peak of the smallest plan:";
    std::vector<int32_t> binding = planning::arenaBindingBuffers(buildArenaProblem(graph));
    for (int32_t index : ArrayRef<int32_t>(binding).take_front(10))
      list += llvm::formatv("\n  {0} bytes: {1}", graph.getBuffers()[index].bytes, graph.getBuffers()[index].describe()).str();
    InFlightDiagnostic diagnostic =
        module.emitError() << "does not fit: the budget is " << budget << " bytes of device memory; the smallest budget that "
                           << "would do is " << best.height << " (recomputation included; proven lower bound without reuse "
                           << "in place " << lowerBound << ")";
    diagnostic.attachNote() << list;
    return diagnostic;
  }

  void report() {
    int64_t clones = static_cast<int64_t>(best.order.size() - problem.getProblem().ops.size());
    module.emitRemark() << "rematerialized " << clones << " instructions: arena " << best.height << " bytes within "
                        << budget << ", predicted time +"
                        << llvm::formatv("{0:P2}", static_cast<double>(best.cost) / static_cast<double>(baseCost) - 1).str();
  }

  static constexpr int kRounds = 5;

  ModuleOp module;
  func::FuncOp function;
  int64_t budget;
  planning::RematOptions options;
  CostModel costs;
  OrderProblem problem;
  Candidate best;
  int64_t baseCost = 0, lowerBound = 0;
};

struct RematerializePass : public mlir::memopt::impl::RematerializePassBase<RematerializePass> {
  using RematerializePassBase::RematerializePassBase;

  void runOnOperation() override {
    func::FuncOp function = getStepFunction(getOperation());
    if (!function || budget < 0)
      return;
    insertVariableCopies(function);
    planning::RematOptions options;
    options.iterations = iterations;
    options.threads = threads;
    if (failed(BudgetSearch(getOperation(), budget, options).run()))
      signalPassFailure();
  }
};
} // namespace
