//===- CostModel.h - seconds of an instruction on a machine -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an instruction does (Work) by what the module's target makes of it; a collective by what the
// module's network takes to send it, where the module names one.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_COSTMODEL_H
#define MEMOPT_ANALYSIS_COSTMODEL_H

#include "memopt/Dialect/Memopt.h"
#include "memopt/Planning/Ranks/RankModel.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>

namespace mlir::memopt {

class CostModel {
public:
  /// For the target and the network that the module names.
  explicit CostModel(ModuleOp module);

  /// Predicted seconds of one execution; of an instruction with bodies, what it takes besides them.
  double getSeconds(Operation *instruction) const;
  /// The same in whole nanoseconds, at least 1, for solvers.
  int64_t getNanoseconds(Operation *instruction) const;
  int64_t getNanoseconds(const Work &work) const;
  /// The same for a transfer of so many bytes.
  int64_t getTransferNanoseconds(int64_t bytes) const;

private:
  std::function<double(const Work &)> secondsOf;
  ::memopt::planning::RankNetwork network; ///< without levels where the module names none
};

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_COSTMODEL_H
