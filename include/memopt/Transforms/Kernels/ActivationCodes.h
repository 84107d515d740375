//===- ActivationCodes.h - activations in 8 bits ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How an activation waits for the backward pass: rounded to bf16, or as a code of 8 bits for each
// element and the largest magnitude of each block. A block is as many of the last dimensions as
// have 64 elements, so that whoever reads an element finds its scale by its place alone.
//
//   int8  element = code * largest / 127
//   fp8   element = code * largest / 448, the code of four exponent and three mantissa bits, with
//         denormal numbers (Micikevicius et al., FP8 Formats for Deep Learning, 2022: E4M3)
//
// Codes are rounded up or down at random, right on average, by words that are counted
// (memopt.random_word): gradients of rounded activations have no bias, and the same step the same
// bits.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_KERNELS_ACTIVATIONCODES_H
#define MEMOPT_TRANSFORMS_KERNELS_ACTIVATIONCODES_H

#include "memopt/Transforms/Utils/GenericBuilder.h"

#include <optional>

namespace mlir::memopt {

enum class ActivationForm { BF16, Int8, FP8 };

/// Nothing for other words.
std::optional<ActivationForm> parseActivationForm(StringRef name);
/// The same of a pass's option; fails with an error on `op` for words that are not f32 either.
FailureOr<std::optional<ActivationForm>> readActivationForm(Operation *op, StringRef name);

/// Whether an element has more bits than the form.
bool isWide(Type elementType, ActivationForm form);

/// Ids of random words, apart from those of the model's own draws, which count from 0.
inline constexpr int64_t kFirstActivationId = int64_t(1) << 30;

/// What random words follow from, scalars of i64, and what tells those of an activation.
struct RoundingWords {
  Value seed, step;
  int64_t id;
};

/// An activation as it waits: one tensor, or codes and scales.
struct KeptActivation {
  Value codes, scales;

  int64_t getBytes() const;
};

KeptActivation narrowActivation(ImplicitLocOpBuilder &b, Value wide, ActivationForm form,
                                const RoundingWords &words);
Value widenActivation(ImplicitLocOpBuilder &b, const KeptActivation &kept, ActivationForm form,
                      Type elementType);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_KERNELS_ACTIVATIONCODES_H
