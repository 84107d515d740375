//===- ActivationCheckpointing.cpp - recompute inside named modules, by hand -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What users of other frameworks do (Chen et al., Training Deep Nets with Sublinear Memory Cost,
// 2016): of each named module only the inputs are kept; when the backward pass first needs a value
// from inside, the module's forward instructions run again. `segments` cuts the forward pass into
// that many pieces instead. The same order-with-repeats as the search's, only chosen by hand, so
// that both are measured alike.
//
// An instruction that may run only once (it updates state) is not repeated; what it made is kept.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Memory/OrderProblem.h"
#include "memopt/Transforms/Utils/ModulePatterns.h"

#include "memopt/Transforms/Passes.h"

#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_ACTIVATIONCHECKPOINTINGPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Which segment each instruction belongs to; -1 for none.
class Segments {
public:
  Segments(ArrayRef<Operation *> instructions)
      : instructions(instructions), of(instructions.size(), -1) {}

  /// An instruction belongs to the outermost module around it that a pattern matches.
  LogicalResult fromModules(ArrayRef<std::string> names, Operation *reportAt) {
    FailureOr<ModulePatterns> patterns = ModulePatterns::parse(names, reportAt);
    if (failed(patterns))
      return failure();
    llvm::StringMap<int> numbers;
    for (auto [index, op] : llvm::enumerate(instructions))
      if (isForward(op))
        if (std::optional<StringRef> module = patterns->match(getModulePath(op->getLoc())))
          of[index] = numbers.try_emplace(*module, static_cast<int>(numbers.size())).first->second;
    if (std::optional<StringRef> pattern = patterns->getUnmet())
      return reportAt->emitError()
             << "no module matches '" << *pattern << "'" << patterns->describeModules(*pattern);
    return success();
  }

  /// Equal runs of the forward instructions, the last one left alone: its values are needed at
  /// once.
  void fromCount(int64_t count) {
    SmallVector<size_t> forward;
    for (auto [index, op] : llvm::enumerate(instructions))
      if (isForward(op))
        forward.push_back(index);
    for (auto [position, index] : llvm::enumerate(forward)) {
      int64_t segment =
          static_cast<int64_t>(position) * count / static_cast<int64_t>(forward.size());
      of[index] = segment + 1 < count ? static_cast<int>(segment) : -1;
    }
  }

  int getSegment(size_t index) const { return of[index]; }
  Phase getPhase(size_t index) const { return mlir::memopt::getPhase(instructions[index]); }

private:
  static bool isForward(Operation *op) { return mlir::memopt::getPhase(op) == Phase::Forward; }

  ArrayRef<Operation *> instructions;
  SmallVector<int> of;
};

struct ActivationCheckpointingPass
    : public mlir::memopt::impl::ActivationCheckpointingPassBase<ActivationCheckpointingPass> {
  using ActivationCheckpointingPassBase::ActivationCheckpointingPassBase;

  void runOnOperation() override {
    if (modules.empty() && segments <= 1)
      return;
    FailureOr<StepModel> step = createPlannableStep(getOperation());
    if (failed(step))
      return signalPassFailure();
    OrderProblem problem(*step, CostModel(getOperation()));
    Segments parts(problem.getInstructions());
    if (!modules.empty() &&
        failed(parts.fromModules(llvm::to_vector_of<std::string>(modules), getOperation())))
      return signalPassFailure();
    if (modules.empty())
      parts.fromCount(segments);
    problem.apply(repeatSegments(problem.getProblem(), parts));
  }

  /// What a segment's forward instructions take from others is kept, and what updates of state take
  /// from the forward pass, such as the statistics of a batch: they stand in front of the backward
  /// pass, which would begin with all segments at once.
  static llvm::DenseSet<std::pair<int32_t, int32_t>>
  collectKept(const ::memopt::planning::PlanProblem &problem,
              llvm::function_ref<int(int32_t)> segmentOf,
              llvm::function_ref<bool(int32_t)> isBackward) {
    llvm::DenseSet<std::pair<int32_t, int32_t>> kept;
    for (auto [op, item] : llvm::enumerate(problem.ops))
      if (!isBackward(static_cast<int32_t>(op)))
        for (const auto &input : item.inputs)
          if (segmentOf(input.op) != segmentOf(static_cast<int32_t>(op)))
            kept.insert({input.op, input.result});
    return kept;
  }

  /// The given order, with the needed instructions of a segment in front of the first instruction
  /// of the backward pass that uses a value from inside.
  static std::vector<int32_t> repeatSegments(const ::memopt::planning::PlanProblem &problem,
                                             const Segments &parts) {
    int32_t last = static_cast<int32_t>(problem.ops.size()) - 1;
    auto isBackward = [&](int32_t op) {
      return op != 0 && op != last && parts.getPhase(op - 1) == Phase::Backward;
    };
    auto segmentOf = [&](int32_t op) {
      return op == 0 || op == last ? -1 : parts.getSegment(op - 1);
    };
    auto kept = collectKept(problem, segmentOf, isBackward);
    std::vector<int32_t> order;
    llvm::DenseSet<int32_t> again;
    for (int32_t op = 0; op <= last; ++op) {
      if (isBackward(op)) {
        llvm::SetVector<int32_t> needed;
        SmallVector<int32_t> open{op};
        while (!open.empty())
          for (const auto &input : problem.ops[open.pop_back_val()].inputs)
            if (segmentOf(input.op) >= 0 && !problem.ops[input.op].pinned &&
                !kept.contains({input.op, input.result}) && !again.contains(input.op) &&
                needed.insert(input.op))
              open.push_back(input.op);
        SmallVector<int32_t> sorted(needed.begin(), needed.end());
        llvm::sort(sorted);
        llvm::append_range(order, sorted);
        again.insert(sorted.begin(), sorted.end());
      }
      order.push_back(op);
    }
    return order;
  }
};
} // namespace
