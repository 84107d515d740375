//===- CallChoices.h - library calls in less workspace ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A library may have several implementations of a call, of which the fastest wants the largest
// workspace. Workspaces live while their call runs, so for a given order and a given number of
// bytes the best choice is simple: each call takes the fastest whose workspace fits beside what is
// alive then. Orders are therefore searched with the smallest workspaces, and each is judged by the
// time that its calls take within the budget.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_SEARCH_CALLCHOICES_H
#define MEMOPT_LIB_TRANSFORMS_SEARCH_CALLCHOICES_H

#include "memopt/Dialect/Memopt.h"
#include "memopt/Planning/Problem/PlanProblem.h"

namespace mlir::memopt {

/// The calls of a graph that have a choice.
class CallChoices {
public:
  /// Which implementation each call takes: 0 is the preferred one, larger ones want less workspace.
  using Choice = SmallVector<int32_t>;

  /// Instruction i is op i + 1 of `problem`, whose workspaces and costs are the preferred ones'.
  CallChoices(ArrayRef<Operation *> instructions, const ::memopt::planning::PlanProblem &problem);

  bool empty() const { return calls.empty(); }
  Choice getPreferred() const { return Choice(calls.size(), 0); }
  Choice getLeanest() const;
  static int64_t countChosen(const Choice &choice) {
    return llvm::count_if(choice, [](int32_t way) { return way != 0; });
  }

  /// The calls by number, those first beside which the fewest bytes of the first space would be
  /// alive if they took the preferred implementation and all others the leanest.
  llvm::Expected<SmallVector<int32_t>> orderByLoad(const ::memopt::planning::PlanProblem &problem,
                                                   ArrayRef<int32_t> order) const;

  /// Takes the next smaller workspace for the call that runs as `op`, and returns by how many bytes
  /// it is smaller; none where there is none.
  std::optional<int64_t> lower(Choice &choice, int32_t op) const;

  /// `problem` with the workspaces and the costs of a choice.
  ::memopt::planning::PlanProblem getProblem(const ::memopt::planning::PlanProblem &problem,
                                             const Choice &choice) const;
  /// The same for searches, whose calls are as fast as the preferred ones: it is judged later which
  /// may be.
  ::memopt::planning::PlanProblem
  getSearchProblem(const ::memopt::planning::PlanProblem &problem) const;

  void apply(const Choice &choice) const;

private:
  struct Call {
    LibraryCallOp call;
    int32_t op;
    SmallVector<CallImplementation> implementations; ///< the preferred one first
  };
  SmallVector<Call> calls;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_SEARCH_CALLCHOICES_H
