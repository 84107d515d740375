//===- OrderProblem.h - a kernel graph as a problem of order and recomputation -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_MEMORY_ORDERPROBLEM_H
#define MEMOPT_TRANSFORMS_MEMORY_ORDERPROBLEM_H

#include "memopt/Analysis/CostModel.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Planning/Problem/PlanFile.h"
#include "memopt/Transforms/Memory/OrderArena.h"

namespace mlir::memopt {

/// The step of a kernel graph's module, in which every write whose value cannot be made in the
/// variable's bytes, and every yield of a scan whose value cannot be made where it belongs, has got
/// a copying kernel: the graph that solvers see is the one that runs.
FailureOr<StepModel> createPlannableStep(ModuleOp module);

/// The cache in a folder, or null for none. Fails with a diagnostic where there can be none.
FailureOr<::memopt::Cache *> openCache(ModuleOp module, StringRef folder);

/// The arena problem of one space, with the instructions in their present order.
struct SpaceProblem {
  SpaceProblem(const KernelGraph &graph, Space space);

  /// The largest buffers alive at the peak, one line each.
  std::string describeBinding(const KernelGraph &graph) const;

  ::memopt::planning::ArenaProblem problem;
  SmallVector<unsigned> buffers; ///< by buffer of the problem: the number in the kernel graph
};

/// The height of the device's arena, as plan-memory will place its buffers.
FailureOr<int64_t> getArenaBytes(const StepModel &step, ::memopt::Cache *cache = nullptr);

/// The bytes up to which a step whose arena has `before` may change, for speed: the budget, and where
/// there is none (-1) a fiftieth more, for a layout has gaps that live bytes do not show.
int64_t getMostArenaBytes(int64_t before, int64_t budget);

/// Bytes of the host for windows of the disk where no budget says more: those that an order needs,
/// this many times, so that transfers hide behind each other.
inline constexpr int64_t kWindowRoom = 2;

/// What a plan may do with the host.
struct HostRoom {
  int64_t budget = -1; ///< bytes that may be alive there; -1: no limit
  bool swaps = false;  ///< what the forward pass keeps may be stored there and fetched again
};

/// The instructions of one block as ops of Planning's rematerialization problem; what is outside
/// stays as it is. An instruction with a body is one op, whose scratch is the body's peak. Op 0
/// makes the inputs, the last op takes what the caller reads afterwards; instruction i is op i + 1.
/// Variables are residents, and so is what lives through the loop; what is made in a variable, or
/// in the bytes of what a scan carries or stacks, has no bytes of its own. Whatever writes over an
/// old value comes after every reader of it, and is pinned.
///
/// Spaces and resources have the numbers of their enums, as far as the graph uses them. What a wait
/// gives is a result of its start, for its bytes are taken from there on.
class OrderProblem {
public:
  /// Of the main block.
  OrderProblem(const StepModel &step, const CostModel &costs, HostRoom room = {});
  /// Of any block of the program.
  OrderProblem(const StepModel &step, const KernelGraph &graph, Block &block,
               const CostModel &costs, HostRoom room = {});

  /// The bodies of the step's loops over micro-batches.
  static SmallVector<Block *> getLoopBodies(const StepModel &step);
  /// Where the activations live: in the last of these, else in the step.
  static Block &getMainBlock(const StepModel &step);

  const ::memopt::planning::PlanProblem &getProblem() const { return problem; }
  ArrayRef<Operation *> getInstructions() const { return instructions; }
  /// The arena problems that orders of this problem, or of one with other workspaces, leave.
  const OrderArena &getArena() const { return arena; }

  /// Writes the problem for memopt-plan. Nothing is written where `path` is empty.
  LogicalResult write(StringRef path) const;

  /// Says on the module that `order`, in which each instruction is once, is about to be applied to
  /// the program's own.
  void noteProgramOrder(ModuleOp module, ArrayRef<int32_t> order) const;
  /// The order of that program, if there is such a note and all of its instructions are here.
  std::optional<std::vector<int32_t>> getProgramOrder(ModuleOp module) const;

  /// Puts the instructions into `order` (a solution's list, with repeats), clones where an op
  /// stands again, and makes the transfers of values that are swapped.
  void apply(ArrayRef<int32_t> order);

private:
  void addInputs(const KernelGraph &graph, const CostModel &costs);
  void addSpacesAndResources(const KernelGraph &graph, HostRoom room);
  void addInstruction(const KernelGraph &graph, Operation *op, const CostModel &costs);
  void addBodies(size_t number, ::memopt::planning::PlanOp &item);
  void addResult(const KernelGraph &graph, OpResult result);
  void addEnd();
  void addWays(const KernelGraph &graph, const CostModel &costs);
  bool isSwappable(const KernelGraph &graph, OpResult value) const;
  bool isOwn(Value root) const;
  void addBlocks();
  ::memopt::planning::PlanValue valueOf(Value root) const;

  Block &block;
  int64_t repeats = 1; ///< how often the block runs in a step
  SmallVector<Operation *> instructions;
  OrderArena arena;
  SmallVector<Value> swapped; ///< by way
  DenseMap<Operation *, int32_t> numbers;
  ::memopt::planning::PlanProblem problem;
};

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_MEMORY_ORDERPROBLEM_H
