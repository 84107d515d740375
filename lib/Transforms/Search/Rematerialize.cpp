//===- Rematerialize.cpp - meet a byte budget by running kernels again -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Input and output: the kernel graph, where a value is exactly a buffer and a recomputation is a
// clone of a kernel. Deciding is BudgetSearch's; this pass obeys and reports.
//
// Refused: a budget that no plan was found for. The error names the smallest arena that was found,
// a proven lower bound, and the values that bind.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Memory/OrderProblem.h"

#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Search/BudgetSearch.h"

#include "llvm/Support/FormatVariadic.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_REMATERIALIZEPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

namespace {
struct RematerializePass : public mlir::memopt::impl::RematerializePassBase<RematerializePass> {
  using RematerializePassBase::RematerializePassBase;

  void runOnOperation() override {
    plan();
    // What is compiled does not depend on who has asked.
    getOperation().walk(
        [](Operation *op) { op->removeDiscardableAttr(MemoptDialect::kActivationsAttr); });
  }

  void plan() {
    ModuleOp module = getOperation();
    if (budget < 0 && problem.empty())
      return;
    FailureOr<StepModel> step = createPlannableStep(module);
    if (failed(step) || failed(OrderProblem(*step, CostModel(module)).write(problem)))
      return signalPassFailure();
    if (budget < 0)
      return;
    FailureOr<::memopt::Cache *> folder = openCache(module, cache);
    if (failed(folder))
      return signalPassFailure();
    BudgetOptions options;
    options.cache = *folder;
    options.iterations = iterations;
    options.threads = threads;
    options.hostBudget = hostBudget;
    options.swaps = swaps;
    FailureOr<std::optional<ActivationForm>> form = readActivationForm(module, activations);
    if (failed(form))
      return signalPassFailure();
    options.activations = *form;
    FailureOr<BudgetPlan> given = BudgetSearch(*step, options).getGivenPlan();
    if (failed(given))
      return signalPassFailure();
    if (hostBudget < 0 && usesDisk(*step))
      options.hostBudget = kWindowRoom * given->hostBytes;
    if (BudgetSearch(*step, options).fits(*given, budget))
      return;
    FailureOr<LoopsInFront> inFront = searchLoopsInFront(step, options);
    if (failed(inFront))
      return signalPassFailure();
    BudgetSearch search(*step, options);
    FailureOr<BudgetPlan> plan = search.findPlan(budget);
    FailureOr<SmallVector<int64_t>> narrowed = search.findActivations(budget);
    if (failed(plan) || failed(narrowed))
      return signalPassFailure();
    if (!narrowed->empty())
      module->setAttr(MemoptDialect::kChosenActivationsAttr,
                      DenseI64ArrayAttr::get(module.getContext(), *narrowed));
    search.apply(*plan);
    assert(isAsJudged(module, *plan) && "plan-memory sees another arena than the search");
    if (!search.fits(*plan, budget)) {
      refuse(*step, *plan, std::max(search.getLowerBound(), inFront->lowerBound));
      return signalPassFailure();
    }
    double more = double(plan->nanoseconds) / double(given->nanoseconds) - 1;
    emitRemark(module.getLoc())
        << "rematerialized " << inFront->clones + plan->clones << " instructions: arena "
        << given->bytes << " -> " << plan->bytes << " bytes within " << budget.getValue()
        << ", predicted time " << llvm::formatv("{0}{1:P2}", more < 0 ? "" : "+", more).str()
        << (plan->inlined ? "; " + std::to_string(plan->inlined) + " values computed where read"
                          : std::string())
        << (plan->swapped ? "; " + std::to_string(plan->swapped) + " values swapped, " +
                                std::to_string(plan->hostBytes) + " bytes on the host"
                          : std::string())
        << (plan->leanCalls
                ? "; " + std::to_string(plan->leanCalls) + " library calls in less workspace"
                : std::string());
  }

  struct LoopsInFront {
    int64_t clones = 0;     ///< instructions that run again
    int64_t lowerBound = 0; ///< no order of any of them needs less
  };

  /// Gives each loop over micro-batches but the last the cheapest plan found within the budget while
  /// it runs, or else the lowest. `step` becomes the step with these.
  FailureOr<LoopsInFront> searchLoopsInFront(FailureOr<StepModel> &step, BudgetOptions options) {
    options.swaps = false; // what such a loop makes no backward pass reads
    options.activations.reset();
    LoopsInFront found;
    size_t last = OrderProblem::getLoopBodies(*step).size();
    for (size_t loop = 0; loop + 1 < last; ++loop) {
      options.loop = loop;
      BudgetSearch search(*step, options);
      FailureOr<BudgetPlan> given = search.getGivenPlan();
      if (failed(given))
        return failure();
      if (search.fits(*given, budget))
        continue;
      FailureOr<BudgetPlan> plan = search.findPlan(budget);
      if (failed(plan))
        return failure();
      found.clones += plan->clones;
      found.lowerBound = std::max(found.lowerBound, search.getLowerBound());
      search.apply(*plan);
      step = createPlannableStep(getOperation());
      if (failed(step))
        return failure();
    }
    return found;
  }

  /// Whether plan-memory will find the height by which the search judged the plan.
  static bool isAsJudged(ModuleOp module, const BudgetPlan &plan) {
    OwningOpRef<ModuleOp> copy = module.clone(); // a step that can be planned may have more copies
    FailureOr<StepModel> step = createPlannableStep(*copy);
    if (failed(step))
      return false;
    FailureOr<int64_t> bytes = getArenaBytes(*step);
    return succeeded(bytes) && *bytes == plan.bytes;
  }

  /// Its windows on the host are there to be few (kWindowRoom).
  static bool usesDisk(const StepModel &step) {
    return llvm::any_of(step.getModule().getOps<VariableOp>(),
                        [](VariableOp variable) { return variable.getPlacement() == Space::Disk; });
  }

  /// The smallest plan is in place by now: its peak names what binds.
  void refuse(const StepModel &step, const BudgetPlan &plan, int64_t lowerBound) {
    ModuleOp module = step.getModule();
    int64_t arenaBytes[kNumSpaces] = {plan.bytes, plan.hostBytes};
    int64_t bounds[kNumSpaces] = {lowerBound};
    module->setAttr(MemoptDialect::kPlannedAttr,
                    PlannedAttr::get(module.getContext(), arenaBytes, bounds));
    KernelGraph graph(step.getFunction());
    SpaceProblem device(graph, Space::Device);
    InFlightDiagnostic diagnostic =
        emitError(module.getLoc())
        << "does not fit: the budget is " << budget.getValue()
        << " bytes of device memory; the smallest budget that would do is " << plan.bytes
        << ", recomputation included; no order of these instructions needs less than "
        << lowerBound;
    if (plan.hostBytes > hostBudget && hostBudget >= 0)
      diagnostic << "; with " << plan.hostBytes << " bytes of host memory, of which the budget is "
                 << hostBudget.getValue();
    diagnostic.attachNote() << "largest values alive at the peak of the smallest plan:"
                            << device.describeBinding(graph);
  }
};
} // namespace
