//===- HoistInvariants.cpp - kernels that leave a loop ----------*- C++ -*-===//
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
// placement is unlucky.
//
// Input and output: a kernel graph in its order.
//
//===----------------------------------------------------------------------===//

#include "OrderProblem.h"

#include "memopt/Analysis/CostModel.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Remarks.h"

#include <map>

namespace mlir::memopt {
#define GEN_PASS_DEF_HOISTINVARIANTSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

//===----------------------------------------------------------------------===//
// Invariants
//===----------------------------------------------------------------------===//

namespace {
/// Kernels of a loop that compute the same: in forward and backward, say.
struct Invariant {
  RepeatOp loop;
  size_t number; ///< in the order of the program
  SmallVector<KernelOp, 2> kernels;
  int64_t bytes = 0, savedNanoseconds = 0;
};

/// Which values one loop does not change.
class LoopReads {
public:
  explicit LoopReads(RepeatOp loop) : loop(loop) {
    loop.walk([&](WriteOp write) { written.insert(write.getVariableAttr().getAttr()); });
  }

  /// What `value` is outside of the loop: a variable's name, or an operand of the loop; null where
  /// the loop changes it.
  const void *getSource(Value value) const {
    while (isReshape(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    if (auto read = value.getDefiningOp<ReadOp>()) {
      StringAttr name = read.getVariableAttr().getAttr();
      auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(read, name);
      // With the next batch the runtime says how many samples were before it.
      bool isFixed = !written.contains(name) && variable.getPlacement() == Space::Device &&
                     variable.getRole() != Role::Hyperparameter;
      return isFixed ? name.getAsOpaquePointer() : nullptr;
    }
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != &loop.getBody().front())
      return nullptr;
    // Each iteration may begin with another batch in the arguments of the step.
    Value outside = loop.getInputs()[argument.getArgNumber()];
    return isa<BlockArgument>(getBufferRoot(outside)) ? nullptr : outside.getAsOpaquePointer();
  }

private:
  mutable RepeatOp loop;
  llvm::DenseSet<StringAttr> written;
};
} // namespace

/// What a kernel computes, whatever pass it belongs to.
static std::string describeBody(KernelOp kernel) {
  OwningOpRef<KernelOp> copy = cast<KernelOp>(kernel->clone());
  copy->walk([](Operation *op) {
    op->removeDiscardableAttr(MemoptDialect::kPhaseAttr);
    op->removeDiscardableAttr(MemoptDialect::kCloneAttr);
  });
  std::string text;
  llvm::raw_string_ostream os(text);
  AsmState state(*copy, OpPrintingFlags().useLocalScope());
  llvm::interleaveComma(copy->getBody().getArgumentTypes(), os);
  for (Operation &op : copy->getBody().front()) {
    os << "\n";
    op.print(os, state);
  }
  return text;
}

/// Whether nothing happens in the kernel but its results, and these are read in the loop alone.
static bool mayLeave(KernelOp kernel) {
  bool hasChecks = kernel.walk([](CheckOp) { return WalkResult::interrupt(); }).wasInterrupted();
  return kernel.getNumOperands() != 0 && kernel.getResource() == Resource::Compute && !hasChecks &&
         llvm::all_of(kernel->getUsers(), [](Operation *user) {
           return isa<InstructionOpInterface>(user) || isReshape(user);
         });
}

/// Those of one loop, in the order of the kernels.
static void collectInvariants(RepeatOp loop, const CostModel &costs,
                              SmallVectorImpl<Invariant> &invariants) {
  LoopReads reads(loop);
  using Key = std::pair<std::string, std::vector<const void *>>;
  std::map<Key, size_t> known;
  for (auto kernel : loop.getBody().front().getOps<KernelOp>()) {
    if (!mayLeave(kernel))
      continue;
    std::vector<const void *> sources;
    for (Value input : kernel.getInputs())
      sources.push_back(reads.getSource(input));
    if (llvm::is_contained(sources, nullptr))
      continue;
    auto [entry, isNew] =
        known.try_emplace({describeBody(kernel), std::move(sources)}, invariants.size());
    if (isNew) {
      invariants.push_back({loop, invariants.size(), {}});
      for (Type type : kernel.getResultTypes())
        invariants.back().bytes += getTensorBytes(type);
    }
    Invariant &invariant = invariants[entry->second];
    int64_t nanoseconds = costs.getNanoseconds(kernel);
    invariant.savedNanoseconds += nanoseconds * loop.getRepeatCount() - (isNew ? nanoseconds : 0);
    invariant.kernels.push_back(kernel);
  }
}

//===----------------------------------------------------------------------===//
// Leaving
//===----------------------------------------------------------------------===//

/// The same value in front of the loop.
static Value getOutside(Value value, RepeatOp loop, OpBuilder &builder) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return loop.getInputs()[argument.getArgNumber()];
  Operation *op = value.getDefiningOp();
  IRMapping mapping;
  if (!isa<ReadOp>(op))
    mapping.map(op->getOperand(0), getOutside(op->getOperand(0), loop, builder));
  return builder.clone(*op, mapping)->getResult(0);
}

static void eraseUnusedViews(Operation *op) {
  if (!op || !op->use_empty() || !(isa<ReadOp>(op) || isReshape(op)))
    return;
  Operation *next = op->getNumOperands() ? op->getOperand(0).getDefiningOp() : nullptr;
  op->erase();
  eraseUnusedViews(next);
}

static void hoist(const Invariant &invariant) {
  RepeatOp loop = invariant.loop;
  OpBuilder builder(loop);
  IRMapping mapping;
  KernelOp first = invariant.kernels.front();
  for (Value input : first.getInputs())
    mapping.map(input, getOutside(input, loop, builder));
  Operation *outside = builder.clone(*first, mapping);
  for (auto [number, value] : llvm::enumerate(outside->getResults())) {
    loop->insertOperands(loop->getNumOperands(), value);
    Value inside = loop.getBody().front().addArgument(value.getType(), value.getLoc());
    for (KernelOp kernel : invariant.kernels)
      kernel->getResult(number).replaceAllUsesWith(inside);
  }
  for (KernelOp kernel : invariant.kernels) {
    SmallVector<Value> inputs(kernel.getInputs());
    kernel.erase();
    for (Value input : inputs)
      eraseUnusedViews(input.getDefiningOp());
  }
}

//===----------------------------------------------------------------------===//
// Choice
//===----------------------------------------------------------------------===//

/// All of the module, the one that saves most for its bytes first.
static SmallVector<Invariant> collectAll(const StepModel &step) {
  SmallVector<Invariant> invariants;
  CostModel costs(step.getModule());
  for (auto loop : step.getBody().getOps<RepeatOp>())
    collectInvariants(loop, costs, invariants);
  llvm::sort(invariants, [](const Invariant &a, const Invariant &b) {
    double left = double(a.savedNanoseconds) * double(b.bytes),
           right = double(b.savedNanoseconds) * double(a.bytes);
    return left != right ? left > right : a.number < b.number;
  });
  return invariants;
}

/// As plan-memory will place them.
static FailureOr<int64_t> getArenaBytes(const StepModel &step) {
  KernelGraph graph(step.getFunction());
  SpaceProblem device(graph, Space::Device);
  planning::ArenaOptions options;
  options.iterations = kArenaIterations;
  auto solution = planning::solveArena(device.problem, options);
  if (solution)
    return solution->height;
  return emitError(step.getModule().getLoc())
         << "memory planning failed: " << llvm::toString(solution.takeError());
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
    ModuleOp module = getOperation();
    FailureOr<StepModel> step = createPlannableStep(module);
    if (failed(step))
      return signalPassFailure();
    SmallVector<Invariant> invariants = collectAll(*step);
    if (invariants.empty())
      return markAllAnalysesPreserved();
    FailureOr<size_t> count = chooseCount(*step, invariants);
    if (failed(count))
      return signalPassFailure();
    if (*count == 0)
      return;
    int64_t kernels = 0, bytes = 0;
    for (const Invariant &invariant : ArrayRef(invariants).take_front(*count)) {
      kernels += static_cast<int64_t>(invariant.kernels.size());
      bytes += invariant.bytes;
      hoist(invariant);
    }
    remark::passed(module.getLoc(), remark::RemarkOpts::name("HoistInvariants")
                                        .category("memopt-hoist-invariants")
                                        .function(step->getFunction().getName()))
        << remark::metric("Kernels", kernels)
        << remark::metric("Results", static_cast<int64_t>(*count))
        << remark::metric("Bytes", bytes);
  }

private:
  FailureOr<size_t> chooseCount(const StepModel &step, ArrayRef<Invariant> invariants) {
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
      SmallVector<Invariant> copies = collectAll(*tried);
      for (const Invariant &invariant : ArrayRef(copies).take_front(count))
        hoist(invariant);
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
