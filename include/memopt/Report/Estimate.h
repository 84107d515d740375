//===- Estimate.h - what a training step will hold, before it is planned -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_REPORT_ESTIMATE_H
#define MEMOPT_REPORT_ESTIMATE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace mlir::memopt {

/// Bytes of a training step by what they are for, summed over a module of the model.
struct EstimatedBytes {
  int64_t parameters = 0, buffers = 0, gradients = 0, optimizerState = 0;
  int64_t activations = 0; ///< that the backward pass takes from the forward pass

  EstimatedBytes &operator+=(const EstimatedBytes &other);
  int64_t getState() const { return parameters + buffers + gradients + optimizerState; }
};

/// What an optimizer would keep with its defaults for all trainable parameters of the step.
struct OptimizerEstimate {
  std::string name;
  int64_t stateBytes = 0;
  std::string refusal; ///< why it cannot update this model; empty where it can
};

/// What a step consists of before any planning: exact bytes of state, of gradients as if all lived
/// at once, and of what the backward pass reads of the forward pass.
class Estimate {
public:
  /// Takes down parameters, gradients and state, and tries all optimizers. `module` is a joint
  /// graph. Fails with a diagnostic where it has no step or no gradients.
  static FailureOr<Estimate> create(ModuleOp module);
  /// Adds activations; `module` is the kernel graph of the same step, which says what of the
  /// parameters is kept in codes.
  LogicalResult addActivations(ModuleOp module);

  /// {"format": "memopt-estimate", "version": 1, "total": {...}, "modules": [{"module", ...}, ...],
  /// "optimizers": [{"name", "state_bytes"}, ...], "classical": [{"name", "bytes"}, ...],
  /// "zero": [{"ranks", "stage", "bytes"}, ...]}
  llvm::json::Object toJson() const;
  /// Tables for people: modules are summed up until they fit a page.
  std::string toText() const;

private:
  void countFrozen(ModuleOp module);
  EstimatedBytes getTotal() const;
  /// By the first `depth` parts of modules' names.
  llvm::MapVector<StringRef, EstimatedBytes> getModules(int depth) const;
  std::vector<std::pair<std::string, int64_t>> getClassical() const;

  int64_t elements = 0; ///< of trainable parameters
  std::string optimizer;
  llvm::MapVector<StringAttr, EstimatedBytes> modules;
  std::vector<OptimizerEstimate> optimizers;
};

/// Bytes of each of `ranks` data-parallel ranks at a stage of ZeRO (Rajbhandari et al., ZeRO:
/// Memory Optimizations Toward Training Trillion Parameter Models, SC 2020, figure 1): stage 1
/// partitions optimizer state, 2 gradients too, 3 parameters too.
int64_t getZeroBytes(const EstimatedBytes &bytes, int stage, int64_t ranks);

} // namespace mlir::memopt

#endif // MEMOPT_REPORT_ESTIMATE_H
