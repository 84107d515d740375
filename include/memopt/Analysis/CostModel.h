//===- CostModel.h - seconds of an instruction on a machine -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A roofline (Williams, Waterman and Patterson, CACM 2009): an instruction takes the longer of its
// arithmetic and its traffic, plus what it costs to start. The rates are those of a profile,
// measured once per machine.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_COSTMODEL_H
#define MEMOPT_ANALYSIS_COSTMODEL_H

#include "memopt/Dialect/Memopt.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace mlir::memopt {

/// Rates of a machine; the defaults are those of two cores with 512-bit vectors.
struct MachineProfile {
  double matmulFlops = 1.6e11;      ///< operations a second of matrix products
  double convolutionFlops = 1.2e11; ///< of convolutions
  double attentionFlops = 6.0e10;   ///< of attention
  double kernelFlops = 4.0e10;      ///< of generated code
  double bytes = 1.6e10;            ///< bytes a second between memory and processor
  double launchSeconds = 3e-6;      ///< to start an instruction

  llvm::json::Object toJson() const;
  /// Fails, naming the key, when a rate is missing or not positive.
  static llvm::Expected<MachineProfile> fromJson(const llvm::json::Value &value);
};

class CostModel {
public:
  explicit CostModel(MachineProfile profile = {}) : profile(profile) {}

  /// Predicted seconds of one execution.
  double getSeconds(Operation *instruction) const;
  /// The same in whole nanoseconds, at least 1, for solvers.
  int64_t getNanoseconds(Operation *instruction) const;

private:
  MachineProfile profile;
};

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_COSTMODEL_H
