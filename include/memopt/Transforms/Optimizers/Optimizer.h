//===- Optimizer.h - what describes an optimizer ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One descriptor says everything about an optimizer: name, source, options, state and the rule of
// its update. Command line, insert-optimizer, lower-to-linalg and the manifest follow from it. Each
// lives in its own file; Registry.cpp lists them.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_OPTIMIZERS_OPTIMIZER_H
#define MEMOPT_TRANSFORMS_OPTIMIZERS_OPTIMIZER_H

#include "memopt/Transforms/Optimizers/Optimizers.h"

#include "llvm/Support/Error.h"

#include <cmath>

namespace mlir::memopt {

class Update;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

/// The setting with which an update goes up the gradient, not down.
inline constexpr StringLiteral kMaximize = "maximize";

/// An option of an optimizer, without the dashes in front. Names and defaults are PyTorch's.
struct OptimizerOption {
  enum Kind { Number, Count, Pair, Flag, Choice };

  StringRef name, metavariable, help;
  Kind kind = Number;
  /// One number, two of a pair, 0 or 1 of a flag.
  SmallVector<double, 2> initial;
  /// Numbers lie in [low, high], or [low, high) when `isHighOpen`. Infinity is never allowed.
  double low = 0, high = INFINITY;
  bool isHighOpen = false;
  /// Of a choice; the first is the default.
  SmallVector<StringRef> words{};
};

namespace options {
OptimizerOption learningRate(double initial);
OptimizerOption weightDecay(double initial);
OptimizerOption betas(double first, double second);
OptimizerOption eps(double initial);
OptimizerOption momentum(double initial);
OptimizerOption decoupledWeightDecay();
} // namespace options

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

/// A tensor that the optimizer keeps for a parameter.
struct StateSlot {
  std::string name;
  /// The parameter's dimensions that it has; the others have size 1.
  SmallVector<int64_t> dims{};
  double initial = 0;
  /// Without dimensions and in f64, whatever the parameter's type.
  bool isScalar = false;
  /// Another shape than the above, as the rule cuts the parameter.
  std::optional<SmallVector<int64_t>> shape{};
};

//===----------------------------------------------------------------------===//
// Descriptor
//===----------------------------------------------------------------------===//

class Optimizer {
public:
  virtual ~Optimizer() = default;

  virtual StringRef getName() const = 0;
  /// Where the algorithm was published.
  virtual StringRef getSource() const = 0;
  virtual SmallVector<OptimizerOption> getOptions() const = 0;
  /// What does not go together, as one sentence.
  virtual llvm::Error check(const OptimizerSettings &settings) const {
    return llvm::Error::success();
  }

  /// The optimizer that updates a parameter which this one does not; null when this one does.
  virtual const Optimizer *getSubstitute(const ParameterInfo &parameter) const { return nullptr; }
  /// All that may come from getSubstitute.
  virtual SmallVector<const Optimizer *> getSubstitutes() const { return {}; }
  /// Adapts the settings to one parameter.
  virtual llvm::Error adapt(const ParameterInfo &parameter, OptimizerSettings &settings) const {
    return llvm::Error::success();
  }

  virtual SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                          const OptimizerSettings &settings) const = 0;
  /// Bits in which state of the parameter's shape may be kept. 8 and 4 are for rules that treat
  /// each element on its own, for they then see the parameter in blocks.
  virtual SmallVector<unsigned> getStateBits() const { return {32, 16, 8, 4}; }
  /// Why state may not be kept in these bits with these settings; empty where it may.
  virtual std::string refuseBits(const OptimizerSettings &settings, unsigned bits) const {
    return llvm::is_contained(getStateBits(), bits)
               ? ""
               : "the state of " + getName().str() + " cannot be kept in " + std::to_string(bits) +
                     " bits";
  }
  /// Whether state is never negative, which decides its 8-bit code.
  virtual bool isNonNegative(StringRef slot) const { return false; }

  /// Builds the update; `update` has the settings.
  virtual void build(Update &update) const = 0;
};

/// State of the parameter's shape.
StateSlot fullSlot(StringRef name, const ParameterInfo &parameter, double initial = 0);
/// One f64.
StateSlot scalarSlot(StringRef name, double initial);

/// A variable in which state is kept: a slot, or with 8 or 4 bits its codes and their scales.
struct StateTensor {
  std::string name;
  RankedTensorType type;
  double initial;
};

/// The tensors of all slots for one parameter; `bits` are those of state that has its shape.
SmallVector<StateTensor> getStateTensors(const Optimizer &optimizer, const ParameterInfo &parameter,
                                         const OptimizerSettings &settings, unsigned bits);

ArrayRef<const Optimizer *> getOptimizers();
/// Null when there is none of that name.
const Optimizer *findOptimizer(StringRef name);

/// What keeps an average of a parameter, beside the optimizer that updates it; no optimizer that
/// may be named.
const Optimizer &getAverage();
inline constexpr StringLiteral kAverageName = "average", kAverageSlot = "average";

const Optimizer &getAdadelta();
const Optimizer &getAdafactor();
const Optimizer &getAdagrad();
const Optimizer &getAdam();
const Optimizer &getAdamMini();
const Optimizer &getAdamW();
const Optimizer &getAdamax();
const Optimizer &getApollo();
const Optimizer &getApolloMini();
const Optimizer &getAsgd();
const Optimizer &getLion();
const Optimizer &getMuon();
const Optimizer &getNadam();
const Optimizer &getRadam();
const Optimizer &getRmsprop();
const Optimizer &getRprop();
const Optimizer &getSgd();
const Optimizer &getSm3();

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_OPTIMIZERS_OPTIMIZER_H
