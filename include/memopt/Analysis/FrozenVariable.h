//===- FrozenVariable.h - parameters in few bits ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parameters that no optimizer has may be kept as codes and scales by block
// (memopt-runtime/numbers/BlockCodes.h). The variable of the parameter then has the codes, and the
// attribute `memopt.frozen` says what they stand for: {code, shape, scales, scale_scales, initial}.
// Its scales are variables of their own, with the attribute `memopt.frozen_scale`.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_FROZENVARIABLE_H
#define MEMOPT_ANALYSIS_FROZENVARIABLE_H

#include "memopt-runtime/numbers/BlockCodes.h"
#include "memopt/Dialect/Memopt.h"

#include <optional>
#include <string>

namespace mlir::memopt {

using ::memopt::BlockCode;

/// What `--frozen-weights` and `--frozen-scales` ask for.
struct FrozenForm {
  BlockCode code;
  bool hasNarrowScales = false; ///< bytes instead of f32

  /// Null for "f32"; an error for words that are none.
  static FailureOr<std::optional<FrozenForm>>
  parse(StringRef code, StringRef scales, llvm::function_ref<InFlightDiagnostic()> emitError);
  /// Whether a parameter gets it: one in f32 that is not trained; with blocks matrices, embeddings
  /// and filters of at least 4,096 elements, as a norm's weights and biases are few bytes, on which
  /// much depends.
  bool suits(VariableOp variable) const;
  /// Bytes of so many elements, scales included.
  int64_t getBytes(int64_t elements) const;

  /// What a training's state has a variable in, as the declaration of an evaluation that reads it
  /// there says (StateForm.h): attribute `memopt.state_code`, {code, narrow_scales}.
  static std::optional<FrozenForm> getOfState(VariableOp variable);
  void attachOfState(VariableOp variable) const;
  static void removeOfState(VariableOp variable);
};

/// What the codes of a variable stand for.
struct FrozenVariable {
  BlockCode code;
  RankedTensorType wholeType;
  std::string scales, scaleScales; ///< variables; empty where there are none
  ElementsAttr initial;            ///< of the whole; may be null

  /// Nothing where the variable holds no codes.
  static std::optional<FrozenVariable> get(VariableOp variable);
  void attachTo(VariableOp variable) const;
  FrozenForm getForm() const { return {code, !scaleScales.empty()}; }
};

/// The type of the tensor that a variable has, in codes or in parts as it may be.
RankedTensorType getKeptType(VariableOp variable);

/// What manifests call a variable of scales.
inline constexpr llvm::StringLiteral kFrozenScaleRole = "frozen_scale";

bool isFrozenScale(VariableOp variable);
void markFrozenScale(VariableOp variable);

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_FROZENVARIABLE_H
