//===- ActivationWays.h - fewer bits as a way to keep a value ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An activation may wait for the backward pass in fewer bits: a way of the planning problem whose
// copy lies on the device, and whose store and fetch are kernels that round and widen. A plan with
// such ways says which activations these pay for, beside recomputation and transfers. It is not
// applied: where an activation is narrowed before kernels are formed, rounding joins the kernel
// that makes it and widening those that read it, and that is what the costs here are estimates of.
//
// Forward values keep their bits, so a fetch comes behind every instruction of the forward pass
// that a fetched value could reach and that the backward pass waits for (PlanWay::behind).
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_SEARCH_ACTIVATIONWAYS_H
#define MEMOPT_LIB_TRANSFORMS_SEARCH_ACTIVATIONWAYS_H

#include "memopt/Analysis/CostModel.h"
#include "memopt/Planning/Problem/PlanProblem.h"
#include "memopt/Transforms/Kernels/ActivationCodes.h"

namespace mlir::memopt {

class ActivationWays {
public:
  /// Adds ways for the numbered activations among the results of `instructions`, of which number i
  /// is op i + 1 of `given`. What a plan of `given` means, it means here, too.
  ActivationWays(const ::memopt::planning::PlanProblem &given, ArrayRef<Operation *> instructions,
                 const CostModel &costs, ActivationForm form);

  const ::memopt::planning::PlanProblem &getProblem() const { return problem; }

  /// The numbers of the activations that a plan narrows, ascending.
  SmallVector<int64_t> getNarrowed(ArrayRef<int32_t> order) const;

private:
  void findLastReached(ArrayRef<Operation *> instructions);
  ::memopt::planning::PlanValue markOp(int32_t op);
  void addWay(OpResult value, const CostModel &costs, ActivationForm form);

  ::memopt::planning::PlanProblem problem;
  size_t numOtherWays;
  int64_t repeats = 1; ///< how often the instructions run in a step
  /// By op, the last of the forward pass that its results reach and that the backward pass waits
  /// for; 0 for none.
  std::vector<int32_t> lastReached;
  DenseMap<int32_t, ::memopt::planning::PlanValue> marks; ///< by op: a result of no bytes
  DenseMap<Operation *, int32_t> ops;
  SmallVector<int64_t> numbers; ///< by way, those of others not counted
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_SEARCH_ACTIVATIONWAYS_H
