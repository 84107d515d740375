//===- Optimizers.h - the choice of optimizers --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which optimizer updates which parameter, with which hyperparameters and in how many bits: from
// the options of a command line. Descriptors of the optimizers lie in lib/Transforms/Optimizers.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_OPTIMIZERS_OPTIMIZERS_H
#define MEMOPT_TRANSFORMS_OPTIMIZERS_OPTIMIZERS_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/Error.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mlir::memopt {

class Optimizer;

/// Adds an optimizer that lives as long as the process to those that options may name. Before
/// anything is parsed, as passes are registered.
void registerOptimizer(const Optimizer &optimizer);

/// Hyperparameters by option name.
class OptimizerSettings {
public:
  double getNumber(StringRef name) const { return getNumbers(name).front(); }
  ArrayRef<double> getNumbers(StringRef name) const;
  bool isOn(StringRef name) const { return has(name) && getNumber(name) != 0; }
  StringRef getWord(StringRef name) const;
  bool has(StringRef name) const;
  void setNumbers(StringRef name, ArrayRef<double> numbers);
  void setWord(StringRef name, StringRef word);
  void erase(StringRef name);

  /// Names with underscores.
  DictionaryAttr toAttribute(MLIRContext *context) const;
  static OptimizerSettings fromAttribute(DictionaryAttr attribute);

private:
  struct Value {
    SmallVector<double, 2> numbers;
    std::string word;
  };
  std::map<std::string, Value> values;
};

/// What a parameter is for its model. A norm's is what a module of a class with "Norm" in its name
/// owns; of the others, what indices look up is an embedding, what ends in "bias" a bias.
enum class ParameterKind { Other, Norm, Embedding, Bias };

struct ParameterInfo {
  SmallVector<StringRef> names; ///< tied weights have several
  ParameterKind kind;
  RankedTensorType type;

  StringRef getName() const { return names.front(); }
};

/// What the option of an optimizer is called as an input of the program: `weight_decay`, or `beta1`
/// and `beta2` of the pair `betas`.
std::string getInputName(StringRef option, unsigned place = 0);

/// A hyperparameter of an update that the program reads anew in each step.
struct HyperparameterInput {
  std::string name;
  double initial;
  /// Of this parameter; its decay may be a part of the group's.
  double factor = 1;
};

/// How one parameter is updated.
struct ParameterUpdate {
  const Optimizer *optimizer;
  OptimizerSettings settings; ///< without "lr"
  /// The group's own learning rate; without it that of the run.
  std::optional<double> rate;
  /// Of state that has the parameter's shape.
  unsigned stateBits = 32;
  /// Whether its updates have a count of their own, and not that of the run's steps.
  bool hasOwnCount = false;
  /// What of the settings is no constant of the program.
  std::vector<HyperparameterInput> inputs{};
};

/// A row of an option table; a metavariable is missing in flags and stands in brackets where it may
/// be left out.
struct OptimizerOptionRow {
  std::string name, metavariable, initial, help;
};

/// Everything that the command line says about updates.
class OptimizerPlan {
public:
  /// `text` has options separated by blanks, such as `optimizer=adamw lr=0.1 amsgrad`. What no
  /// optimizer in use has is refused by name.
  static llvm::Expected<OptimizerPlan> parse(StringRef text);
  /// All options that `parse` knows, of all optimizers.
  static std::vector<OptimizerOptionRow> getOptionRows();

  /// Of the parameters that no group gives another one.
  const Optimizer &getOptimizer() const { return *optimizer; }
  StringRef getOptimizerName() const;
  double getRate() const { return rate; }
  /// The settings of the average of weights, if there is to be one.
  std::optional<OptimizerSettings> getAverageSettings() const;
  /// Whether a run may change what `--hyperparameters` speaks of.
  bool hasInputs() const;
  /// Whether these and the rates are placeholders, for which a host program has the numbers.
  bool isSetByHost() const;

  /// Chooses for all trainable parameters. A glob that names none of them is an error, unless a
  /// host program wrote it.
  llvm::Expected<std::vector<ParameterUpdate>> choose(ArrayRef<ParameterInfo> parameters) const;

private:
  using Words = std::vector<std::pair<std::string, std::string>>;
  struct Group {
    std::vector<std::string> globs;
    Words words;
    const Optimizer *optimizer = nullptr;
  };

  llvm::Error readWord(StringRef name, StringRef value);
  llvm::Error readGroup(StringRef text);
  llvm::Error finish();
  llvm::Error checkOptions() const;
  llvm::Error checkAverage() const;
  llvm::Error checkBits() const;
  std::vector<const Optimizer *> getOptimizersInUse() const;
  const Group *findGroup(const ParameterInfo &parameter, std::vector<bool> &used) const;
  llvm::Expected<ParameterUpdate> chooseOne(const ParameterInfo &parameter,
                                            const Group *group) const;
  void scaleDecay(const ParameterInfo &parameter, OptimizerSettings &settings) const;
  /// The settings, as given by the words and as they are for the parameter.
  llvm::Expected<OptimizerSettings> adaptSettings(const Optimizer &own,
                                                  const ParameterInfo &parameter,
                                                  const Group *group,
                                                  OptimizerSettings settings) const;
  llvm::Expected<std::vector<HyperparameterInput>> listInputs(const Optimizer &own,
                                                              const ParameterInfo &parameter,
                                                              const Group *group,
                                                              const OptimizerSettings &given) const;

  const Optimizer *optimizer = nullptr;
  double rate = 0;
  /// Options as given, the last of a name, in order; groups apart.
  Words words;
  std::vector<Group> groups;
};

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_OPTIMIZERS_OPTIMIZERS_H
