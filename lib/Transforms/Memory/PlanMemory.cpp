//===- PlanMemory.cpp - give every buffer an offset in one arena -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Input: the kernel graph, in the order in which it will run. Output: the same ops with offsets.
//
// First every write gets a value that can be made in the variable's own bytes (a copy is inserted
// where that is not safe). Then live ranges go to the arena solver of Planning, its answer is
// checked by the validator, and the offsets are written onto the ops. Deciding is in
// Analysis/KernelGraph and Planning/Arena; this file translates.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Memory/OrderProblem.h"

#include "memopt/Transforms/Passes.h"

#include "mlir/IR/Builders.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

namespace {
/// One space of the step, placed.
struct SpaceLayout {
  Space space;
  SpaceProblem problem;
  planning::ArenaSolution solution;
};
} // namespace

//===----------------------------------------------------------------------===//
// Answer
//===----------------------------------------------------------------------===//

/// By buffer of the kernel graph, its offset in the arena of its space.
static SmallVector<int64_t> collectOffsets(const KernelGraph &graph,
                                           ArrayRef<SpaceLayout> layouts) {
  SmallVector<int64_t> offsets(graph.getBuffers().size(), 0);
  for (const SpaceLayout &layout : layouts)
    for (auto [item, buffer] : llvm::enumerate(layout.problem.buffers))
      offsets[buffer] = layout.solution.offsets[item];
  return offsets;
}

static void writeOffsets(const StepModel &step, const KernelGraph &graph,
                         ArrayRef<int64_t> offsets) {
  Builder builder(step.getModule().getContext());
  func::FuncOp function = step.getFunction();
  for (auto [index, buffer] : llvm::enumerate(graph.getBuffers())) {
    IntegerAttr offset = builder.getI64IntegerAttr(offsets[index]);
    if (buffer.kind == Buffer::Kind::Variable)
      VariableOp(buffer.variable).setOffsetAttr(offset);
    if (buffer.kind == Buffer::Kind::Input)
      function.setArgAttr(cast<BlockArgument>(buffer.value).getArgNumber(),
                          MemoptDialect::kOffsetAttr, offset);
  }
  llvm::StringMap<uint64_t> numbers; ///< next of each list
  for (Operation *op : graph.getInstructions()) {
    SmallVector<int64_t> own;
    for (Value result : op->getResults())
      if (isa<RankedTensorType>(result.getType()))
        own.push_back(offsets[graph.getBufferOf(result)]);
    for (unsigned workspace : graph.getWorkspacesOf(op))
      own.push_back(offsets[workspace]);
    cast<InstructionOpInterface>(op).setOffsetsAttr(builder.getDenseI64ArrayAttr(own));
    if (auto listed = dyn_cast<ListedOpInterface>(op))
      listed.setNumber(numbers[listed.getListName()]++);
  }
}

static void writeSums(ModuleOp module, ArrayRef<SpaceLayout> layouts) {
  SmallVector<int64_t> heights, bounds;
  for (const SpaceLayout &layout : layouts) {
    heights.push_back(layout.solution.height);
    bounds.push_back(layout.solution.lowerBound);
  }
  module->setAttr(MemoptDialect::kPlannedAttr,
                  PlannedAttr::get(module.getContext(), heights, bounds));
}

/// The refusal: what would do, and what stands in the way.
static LogicalResult refuse(ModuleOp module, const KernelGraph &graph, const SpaceLayout &layout,
                            int64_t budget) {
  InFlightDiagnostic diagnostic = emitError(module.getLoc())
                                  << "does not fit: the plan needs " << layout.solution.height
                                  << " bytes of " << stringifySpace(layout.space)
                                  << " memory, the budget is " << budget
                                  << "; the smallest budget that would do is "
                                  << layout.solution.height;
  diagnostic.attachNote() << "largest values alive at the peak:"
                          << layout.problem.describeBinding(graph);
  return diagnostic;
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// The lowest layout found. The same search judged the order (BudgetSearch), so what was said to
/// fit does. Searches that aim at the budget, each with more work, are for orders that nobody
/// judged, and for those that were changed afterwards.
static llvm::Expected<planning::ArenaSolution>
place(const planning::ArenaProblem &problem, planning::ArenaOptions options, int64_t budget) {
  llvm::Expected<planning::ArenaSolution> best = planning::solveArena(problem, options);
  constexpr int kAttempts = 3, kMoreWork = 2;
  options.capacity = budget;
  for (int attempt = 0; attempt < kAttempts && best && budget >= 0 && best->height > budget &&
                        best->lowerBound <= budget;
       ++attempt) {
    llvm::Expected<planning::ArenaSolution> aimed = planning::solveArena(problem, options);
    if (!aimed || aimed->height < best->height)
      best = std::move(aimed);
    options.iterations *= kMoreWork;
    ++options.seed;
  }
  if (best)
    if (llvm::Error invalid = planning::verifyArena(problem, *best))
      return std::move(invalid);
  return best;
}

namespace {
struct PlanMemoryPass : public mlir::memopt::impl::PlanMemoryPassBase<PlanMemoryPass> {
  using PlanMemoryPassBase::PlanMemoryPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    module->removeAttr(MemoptDialect::kProgramOrderAttr); // orders are settled
    FailureOr<StepModel> step = createPlannableStep(module);
    FailureOr<::memopt::Cache *> folder = openCache(module, cache);
    if (failed(step) || failed(folder))
      return signalPassFailure();
    planning::ArenaOptions options;
    options.iterations = iterations;
    options.cache = *folder;
    KernelGraph graph(step->getFunction());
    SmallVector<SpaceLayout> layouts;
    for (unsigned number = 0; number < kNumSpaces; ++number) {
      auto space = static_cast<Space>(number);
      SpaceProblem problem(graph, space);
      auto solution = place(problem.problem, options, getBudget(space));
      if (!solution) {
        emitError(module.getLoc())
            << "memory planning failed: " << llvm::toString(solution.takeError());
        return signalPassFailure();
      }
      layouts.push_back({space, std::move(problem), std::move(*solution)});
    }
    writeOffsets(*step, graph, collectOffsets(graph, layouts));
    writeSums(module, layouts);
    for (const SpaceLayout &layout : layouts)
      if (int64_t budget = getBudget(layout.space); budget >= 0 &&
                                                    layout.solution.height > budget &&
                                                    failed(refuse(module, graph, layout, budget)))
        return signalPassFailure();
  }

  /// Bytes; negative for no limit.
  int64_t getBudget(Space space) const {
    switch (space) {
    case Space::Device:
      return budget;
    case Space::Host:
      return hostBudget;
    case Space::Disk:
      return diskBudget;
    }
    return -1;
  }
};
} // namespace
