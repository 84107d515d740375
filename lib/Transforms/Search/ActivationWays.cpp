//===- ActivationWays.cpp - fewer bits as a way to keep a value ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ActivationWays.h"

#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Utils/UserGroups.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

namespace {
/// What rounding and widening an activation take, and what it waits in.
struct Narrowing {
  Work narrow, widen;
  SmallVector<int64_t, 2> buffers; ///< bytes of each
};
} // namespace

/// Forms a kernel of what has been built in `body`, and takes its work.
static Work takeWork(ImplicitLocOpBuilder &b, Block &around, std::unique_ptr<Block> body,
                     ValueRange results) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Value> inputs = llvm::map_to_vector(body->getArgumentTypes(), [&](Type type) {
    return Value(around.addArgument(type, b.getLoc()));
  });
  b.setInsertionPointToEnd(body.get());
  YieldOp::create(b, results);
  b.setInsertionPointToEnd(&around);
  auto kernel = KernelOp::create(b, results.getTypes(), inputs);
  kernel.getBody().push_back(body.release());
  return kernel.getWork();
}

/// Kernels of their own, made and thrown away.
static Narrowing measureNarrowing(RankedTensorType wide, Location loc, ActivationForm form) {
  ImplicitLocOpBuilder b(loc, wide.getContext());
  Narrowing narrowing;
  Block around;
  auto body = std::make_unique<Block>();
  auto word = RankedTensorType::get({}, b.getI64Type());
  Value value = body->addArgument(wide, loc);
  RoundingWords words{{}, {}, kFirstActivationId};
  if (form != ActivationForm::BF16)
    words = {body->addArgument(word, loc), body->addArgument(word, loc), kFirstActivationId};
  b.setInsertionPointToStart(body.get());
  KeptActivation kept = narrowActivation(b, value, form, words);
  SmallVector<Value> results{kept.codes};
  if (kept.scales)
    results.push_back(kept.scales);
  SmallVector<Type> types = llvm::to_vector(ValueRange(results).getTypes());
  for (Type type : types)
    narrowing.buffers.push_back(getTensorBytes(type));
  narrowing.narrow = takeWork(b, around, std::move(body), results);

  body = std::make_unique<Block>();
  kept.codes = body->addArgument(types.front(), loc);
  if (kept.scales)
    kept.scales = body->addArgument(types.back(), loc);
  b.setInsertionPointToStart(body.get());
  Value again = widenActivation(b, kept, form, wide.getElementType());
  narrowing.widen = takeWork(b, around, std::move(body), again);
  return narrowing;
}

/// Whoever makes or reads the value among kernels of the forward pass rounds it (KernelFusion).
static bool isRoundedInPassing(OpResult value) {
  return isa<KernelOp>(value.getOwner()) || llvm::any_of(value.getUsers(), [](Operation *user) {
           return isa<KernelOp>(user) && getPhase(user) == Phase::Forward;
         });
}

/// Kernels of the backward pass widen what they read.
static bool isWidenedInPassing(OpResult value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return isa<KernelOp>(user) || getPhase(user) == Phase::Forward;
  });
}

//===----------------------------------------------------------------------===//
// The problem
//===----------------------------------------------------------------------===//

ActivationWays::ActivationWays(const planning::PlanProblem &given,
                               ArrayRef<Operation *> instructions, const CostModel &costs,
                               ActivationForm form)
    : problem(given), numOtherWays(given.ways.size()) {
  for (auto [number, op] : llvm::enumerate(instructions))
    ops[op] = static_cast<int32_t>(number + 1);
  if (!instructions.empty())
    if (auto loop = dyn_cast<InstructionOpInterface>(instructions.front()->getParentOp()))
      repeats = loop.getRepeatCount();
  findLastReached(instructions);
  for (Operation *op : instructions) {
    auto instruction = cast<InstructionOpInterface>(op);
    if (instruction.getPhase() != Phase::Forward || instruction.getClone() > 0)
      continue;
    for (OpResult result : op->getResults())
      if (getActivationNumber(result) >= 0)
        addWay(result, costs, form);
  }
}

/// Readers stand behind what they read. Of what nobody behind the forward pass waits for, such as a
/// loss that is only returned, it does not matter when it runs.
void ActivationWays::findLastReached(ArrayRef<Operation *> instructions) {
  auto isForward = [&](int32_t op) {
    return op > 0 && op <= static_cast<int32_t>(instructions.size()) &&
           getPhase(instructions[op - 1]) == Phase::Forward;
  };
  std::vector<bool> isAwaited(problem.ops.size());
  lastReached.assign(problem.ops.size(), 0);
  for (auto op = static_cast<int32_t>(problem.ops.size()) - 2; op > 0; --op)
    for (const planning::PlanValue &input : problem.ops[op].inputs) {
      if (!isForward(op)) {
        isAwaited[input.op] = true;
      } else if (isAwaited[op]) {
        isAwaited[input.op] = true;
        lastReached[input.op] = std::max({lastReached[input.op], lastReached[op], op});
      }
    }
}

/// A result of no bytes, which can be read once the op is done: a wait makes nothing, so that its
/// start has it.
planning::PlanValue ActivationWays::markOp(int32_t op) {
  int32_t start = problem.ops[op].waitsFor;
  planning::PlanOp &maker = problem.ops[start < 0 ? op : start];
  auto [mark, isNew] = marks.try_emplace(
      op, planning::PlanValue{start < 0 ? op : start, static_cast<int32_t>(maker.results.size())});
  if (isNew)
    maker.results.emplace_back();
  return mark->second;
}

void ActivationWays::addWay(OpResult value, const CostModel &costs, ActivationForm form) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  int32_t op = ops.lookup(value.getOwner());
  auto result = static_cast<int32_t>(value.getResultNumber());
  if (!type || !isWide(type.getElementType(), form) || getSpace(type) != Space::Device ||
      !hasBackwardUser(value) || getStart(value.getOwner()) ||
      problem.ops[op].results[result].bytes == 0)
    return;
  Narrowing narrowing = measureNarrowing(type, value.getLoc(), form);
  auto wide = static_cast<double>(getTensorBytes(type));
  auto getCost = [&](Work work, bool isInPassing, double spared) {
    if (!isInPassing)
      return costs.getNanoseconds(work) * repeats;
    work.bytes = std::max(0.0, work.bytes - spared);
    return std::max<int64_t>(1, costs.getNanoseconds(work) - costs.getNanoseconds(Work())) *
           repeats;
  };
  planning::PlanWay &way = problem.ways.emplace_back();
  way.value = {op, result};
  way.store = planning::PlanTransfer{static_cast<int32_t>(Resource::Compute),
                                     getCost(narrowing.narrow, isRoundedInPassing(value), wide),
                                     {}};
  way.fetch = planning::PlanTransfer{static_cast<int32_t>(Resource::Compute),
                                     getCost(narrowing.widen, isWidenedInPassing(value), 2 * wide),
                                     {}};
  for (int64_t bytes : narrowing.buffers) {
    int64_t alignment = getBufferAlignment(bytes, getTarget(value.getOwner()).getLeastAlignment());
    way.copy.bytes += llvm::alignTo(bytes, alignment);
    way.copy.alignment = std::max(way.copy.alignment, alignment);
  }
  if (int32_t last = lastReached[op])
    way.behind = markOp(last);
  numbers.push_back(getActivationNumber(value));
}

SmallVector<int64_t> ActivationWays::getNarrowed(ArrayRef<int32_t> order) const {
  SmallVector<int64_t> narrowed;
  for (int32_t number : order) {
    planning::PlanAction action = planning::getAction(problem, number);
    if (action.kind == planning::PlanAction::StoreStart &&
        action.index >= static_cast<int32_t>(numOtherWays))
      narrowed.push_back(numbers[action.index - numOtherWays]);
  }
  llvm::sort(narrowed);
  narrowed.erase(llvm::unique(narrowed), narrowed.end());
  return narrowed;
}
