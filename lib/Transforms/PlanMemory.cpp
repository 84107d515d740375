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

#include "OrderProblem.h"

#include "memopt/Transforms/Passes.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

//===----------------------------------------------------------------------===//
// Answer
//===----------------------------------------------------------------------===//

static void writeOffsets(ModuleOp module, func::FuncOp function, const KernelGraph &graph,
                         const planning::ArenaSolution &solution) {
  Builder builder(module.getContext());
  for (auto [index, buffer] : llvm::enumerate(graph.getBuffers())) {
    IntegerAttr offset = builder.getI64IntegerAttr(solution.offsets[index]);
    if (buffer.kind == Buffer::Kind::Variable)
      buffer.variable->setAttr(MemoptDialect::kOffsetAttr, offset);
    if (buffer.kind == Buffer::Kind::Input)
      function.setArgAttr(cast<BlockArgument>(buffer.value).getArgNumber(),
                          MemoptDialect::kOffsetAttr, offset);
  }
  for (Operation *op : graph.getInstructions()) {
    SmallVector<int64_t> offsets;
    for (Value result : op->getResults())
      offsets.push_back(solution.offsets[graph.getBufferOf(result)]);
    if (int64_t workspace = graph.getWorkspaceOf(op); workspace >= 0)
      offsets.push_back(solution.offsets[workspace]);
    op->setAttr(MemoptDialect::kOffsetsAttr, builder.getDenseI64ArrayAttr(offsets));
  }
  module->setAttr(MemoptDialect::kArenaBytesAttr, builder.getI64IntegerAttr(solution.height));
  module->setAttr(MemoptDialect::kLowerBoundAttr, builder.getI64IntegerAttr(solution.lowerBound));
}

/// The refusal: what would do, and what stands in the way.
static LogicalResult refuse(ModuleOp module, const KernelGraph &graph,
                            const planning::ArenaProblem &problem,
                            const planning::ArenaSolution &solution, int64_t budget) {
  InFlightDiagnostic diagnostic = emitError(module.getLoc())
                                  << "does not fit: the plan needs " << solution.height
                                  << " bytes of device memory, the budget is " << budget
                                  << "; the smallest budget that would do is " << solution.height;
  std::vector<int32_t> binding = planning::arenaBindingBuffers(problem);
  std::string list = "largest values alive at the peak:";
  for (int32_t index : ArrayRef<int32_t>(binding).take_front(10)) {
    const Buffer &buffer = graph.getBuffers()[index];
    list += llvm::formatv("\n  {0} bytes: {1}", buffer.bytes, buffer.describe()).str();
  }
  diagnostic.attachNote() << list;
  return diagnostic;
}

/// The lowest layout found. The same search judged the order (BudgetSearch), so what was said to
/// fit does; one that aims at the budget is for orders that nobody judged.
static llvm::Expected<planning::ArenaSolution> place(const planning::ArenaProblem &problem,
                                                     int64_t iterations, int64_t budget) {
  planning::ArenaOptions options;
  options.iterations = iterations;
  llvm::Expected<planning::ArenaSolution> best = planning::solveArena(problem, options);
  if (!best || budget < 0 || best->height <= budget)
    return best;
  options.capacity = budget;
  llvm::Expected<planning::ArenaSolution> aimed = planning::solveArena(problem, options);
  return !aimed || aimed->height < best->height ? std::move(aimed) : std::move(best);
}

namespace {
struct PlanMemoryPass : public mlir::memopt::impl::PlanMemoryPassBase<PlanMemoryPass> {
  using PlanMemoryPassBase::PlanMemoryPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    func::FuncOp function = getStepFunction(module);
    if (!function)
      return;
    insertVariableCopies(function);
    KernelGraph graph(function);
    planning::ArenaProblem problem = buildArenaProblem(graph);
    llvm::Expected<planning::ArenaSolution> solution = place(problem, iterations, budget);
    llvm::Error invalid =
        solution ? planning::verifyArena(problem, *solution) : solution.takeError();
    if (invalid) {
      emitError(module.getLoc()) << "memory planning failed: "
                                 << llvm::toString(std::move(invalid));
      return signalPassFailure();
    }
    writeOffsets(module, function, graph, *solution);
    if (budget >= 0 && solution->height > budget &&
        failed(refuse(module, graph, problem, *solution, budget)))
      signalPassFailure();
  }
};
} // namespace
