//===- CallChoices.cpp - library calls in less workspace --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CallChoices.h"

#include "memopt/Planning/Arena/Arena.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

CallChoices::CallChoices(ArrayRef<Operation *> instructions, const planning::PlanProblem &problem) {
  DenseMap<Attribute, SmallVector<CallImplementation>> known;
  for (auto [number, op] : llvm::enumerate(instructions)) {
    auto call = dyn_cast<LibraryCallOp>(op);
    if (!call || call.getSlowdown() || call.getWorkspaceAttr().getInt() == 0)
      continue;
    auto [entry, isNew] = known.try_emplace(call.getCallAttr());
    if (isNew)
      entry->second = getTarget(op).getLeanImplementations(call.getCall());
    Call choice{call, static_cast<int32_t>(number + 1), {}};
    choice.implementations.push_back(
        {call.getImplementation().value_or("").str(), call.getWorkspaceAttr().getInt()});
    // The call may stand with a workspace that another machine named.
    for (const CallImplementation &lean : entry->second)
      if (lean.workspaceBytes < choice.implementations.back().workspaceBytes)
        choice.implementations.push_back(lean);
    if (choice.implementations.size() > 1)
      calls.push_back(std::move(choice));
  }
}

CallChoices::Choice CallChoices::getLeanest() const {
  return llvm::map_to_vector(calls, [](const Call &call) {
    return static_cast<int32_t>(call.implementations.size()) - 1;
  });
}

llvm::Expected<SmallVector<int32_t>> CallChoices::orderByLoad(const planning::PlanProblem &problem,
                                                              ArrayRef<int32_t> order) const {
  llvm::Expected<planning::ArenaProblem> arena =
      planning::buildArenaProblem(getProblem(problem, getLeanest()), order);
  if (!arena)
    return arena.takeError();
  std::vector<int64_t> loads(order.size() + 1);
  for (const planning::ArenaBuffer &buffer : arena->buffers) {
    loads[buffer.lower] += buffer.size;
    loads[buffer.upper] -= buffer.size;
  }
  DenseMap<int32_t, int64_t> highest; // by op
  int64_t load = 0;
  for (auto [change, op] : llvm::zip(loads, order)) {
    load += change;
    highest[op] = std::max(highest[op], load);
  }
  SmallVector<std::pair<int64_t, int32_t>> byLoad;
  for (auto [number, call] : llvm::enumerate(calls))
    byLoad.push_back({highest[call.op] + call.implementations.front().workspaceBytes -
                          call.implementations.back().workspaceBytes,
                      static_cast<int32_t>(number)});
  llvm::sort(byLoad);
  return llvm::map_to_vector(byLoad, [](auto entry) { return entry.second; });
}

std::optional<int64_t> CallChoices::lower(Choice &choice, int32_t op) const {
  const auto *call = llvm::find_if(calls, [op](const Call &one) { return one.op == op; });
  if (call == calls.end())
    return std::nullopt;
  int32_t &way = choice[call - calls.begin()];
  if (way + 1 == static_cast<int32_t>(call->implementations.size()))
    return std::nullopt;
  ++way;
  return call->implementations[way - 1].workspaceBytes - call->implementations[way].workspaceBytes;
}

planning::PlanProblem CallChoices::getProblem(const planning::PlanProblem &problem,
                                              const Choice &choice) const {
  planning::PlanProblem chosen = problem;
  for (auto [call, way] : llvm::zip_equal(calls, choice)) {
    planning::PlanOp &op = chosen.ops[call.op];
    op.workspaces.front().bytes = call.implementations[way].workspaceBytes;
    op.cost = std::llround(static_cast<double>(op.cost) * call.implementations[way].slowdown);
  }
  return chosen;
}

planning::PlanProblem CallChoices::getSearchProblem(const planning::PlanProblem &problem) const {
  planning::PlanProblem lean = getProblem(problem, getLeanest());
  for (const Call &call : calls)
    lean.ops[call.op].cost = problem.ops[call.op].cost;
  return lean;
}

void CallChoices::apply(const Choice &choice) const {
  for (auto [call, way] : llvm::zip_equal(calls, choice)) {
    if (!way)
      continue;
    LibraryCallOp op = call.call;
    Builder builder(op.getContext());
    const CallImplementation &chosen = call.implementations[way];
    op.setImplementation(StringRef(chosen.name));
    op.setWorkspaceAttr(builder.getI64IntegerAttr(chosen.workspaceBytes));
    op.setSlowdownAttr(builder.getF64FloatAttr(chosen.slowdown));
  }
}
