//===- StateNames.cpp - variables of one program among those of all -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StateNames.h"
#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Analysis/StateForm.h"
#include "memopt/Package/SharedState.h"
#include "memopt/Transforms/Optimizers/Optimizer.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

namespace {
/// Renames the variables of one program.
class StateNames {
public:
  explicit StateNames(const StateProgram &program)
      : program(program), module(program.module), symbols(program.module) {
    nameVariables();
    nameOptimizer();
    nameUnits();
  }

private:
  /// In two turns, for two variables may have each other's names.
  void nameVariables() {
    SmallVector<std::pair<VariableOp, StringRef>> renamed;
    for (const auto &[own, shared] : program.names)
      if (auto variable = symbols.lookup<VariableOp>(own)) {
        (void)renameVariable(symbols, variable, own + "@own");
        renamed.push_back({variable, shared});
      }
    for (auto [variable, shared] : renamed) {
      StringRef own = StringRef(variable.getSymName()).drop_back(strlen("@own"));
      SmallVector<std::string> names;
      if (variable.getNames())
        for (StringRef name : variable.getNames()->getAsValueRange<StringAttr>())
          names.push_back(name == own ? shared.str() : name.str());
      SmallVector<StringRef> views(names.begin(), names.end());
      variable.setNamesAttr(Builder(variable.getContext()).getStrArrayAttr(views));
      nameStateOf(variable, own, shared);
      nameScalesOf(variable, own, shared);
      (void)renameVariable(symbols, variable, shared);
    }
  }

  /// What an optimizer keeps of a parameter ends with the parameter's name.
  void nameStateOf(VariableOp parameter, StringRef own, StringRef shared) {
    for (auto variable : llvm::to_vector(module.getOps<VariableOp>())) {
      StringRef name = variable.getSymName();
      if (variable.getOf() != parameter.getSymName() || !name.consume_back(own))
        continue;
      std::string changed = (name + shared).str();
      (void)renameVariable(symbols, variable, changed);
      if (variable.getNames())
        variable.setNamesAttr(Builder(variable.getContext()).getStrArrayAttr(StringRef(changed)));
    }
  }

  /// So do the scales of codes, of which the variable says the names.
  void nameScalesOf(VariableOp codes, StringRef own, StringRef shared) {
    std::optional<FrozenVariable> frozen = FrozenVariable::get(codes);
    if (!frozen)
      return;
    for (std::string *name : {&frozen->scales, &frozen->scaleScales}) {
      auto variable = symbols.lookup<VariableOp>(*name);
      StringRef front = *name;
      if (!variable || !front.consume_back(own))
        continue;
      *name = (front + shared).str();
      (void)renameVariable(symbols, variable, *name);
    }
    frozen->attachTo(codes);
  }

  /// State of an optimizer with a name has it in its names.
  void nameOptimizer() {
    if (program.optimizer.empty())
      return;
    for (auto variable : llvm::to_vector(module.getOps<VariableOp>()))
      if (variable.getRole() == Role::OptimizerState) {
        StringRef rest = variable.getSymName();
        rest.consume_front("optimizer.");
        std::string name = ("optimizer@" + Twine(program.optimizer) + "." + rest).str();
        (void)renameVariable(symbols, variable, name); // nothing else has a name with an @
        if (variable.getNames())
          variable.setNamesAttr(Builder(variable.getContext()).getStrArrayAttr(StringRef(name)));
      }
  }

  /// A unit has the name of its first tensor.
  void nameUnits() {
    for (auto variable : llvm::to_vector(module.getOps<VariableOp>()))
      if (variable.liesInUnit() && variable.getShard() && variable.getShard()->getFirst() == 0) {
        std::string name = getUnitName(variable.getSymName());
        if (*variable.getUnit() != name)
          (void)renameVariable(symbols, symbols.lookup<VariableOp>(*variable.getUnit()), name);
      }
  }

  const StateProgram &program;
  ModuleOp module;
  SymbolTable symbols;
};
} // namespace

void mlir::memopt::nameState(const StateProgram &program) { StateNames names(program); }

LogicalResult mlir::memopt::renameVariable(SymbolTable &symbols, VariableOp variable,
                                           StringRef name) {
  if (failed(symbols.rename(variable, name)))
    return variable.emitOpError() << "cannot be called '" << name << "'";
  return success();
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

void mlir::memopt::adoptForms(const StateProgram &evaluation, ArrayRef<ModuleOp> states) {
  llvm::StringMap<StringRef> names;
  for (const auto &[own, shared] : evaluation.names)
    names[own] = shared;
  for (auto variable : ModuleOp(evaluation.module).getOps<VariableOp>()) {
    auto renamed = names.find(variable.getSymName());
    StringRef name = renamed == names.end() ? variable.getSymName() : renamed->second;
    for (ModuleOp state : states) {
      auto kept = dyn_cast_or_null<VariableOp>(SymbolTable::lookupSymbolIn(state, name));
      if (!kept || getKeptType(kept) != variable.getTensorType())
        continue;
      if (std::optional<FrozenVariable> frozen = FrozenVariable::get(kept))
        frozen->getForm().attachOfState(variable);
      else if (std::optional<ShardAttr> shard = kept.getShard())
        StateShard{kept.getTensorType(), *shard, kept.getUnit().value_or("").str()}.attachTo(
            variable);
      else
        continue;
      break;
    }
  }
}

void mlir::memopt::adoptSpaces(ModuleOp evaluation, ModuleOp planned) {
  SymbolTable symbols(planned);
  for (auto variable : evaluation.getOps<VariableOp>())
    if (auto kept = symbols.lookup<VariableOp>(variable.getSymName());
        kept && kept.getPlacement() != variable.getPlacement())
      setStateSpace(variable, kept.getPlacement());
}

LogicalResult mlir::memopt::readAverages(StateProgram &evaluation, ArrayRef<ModuleOp> states) {
  llvm::StringMap<std::string> averages; // by the parameter's name among all programs
  for (ModuleOp state : states)
    for (auto variable : state.getOps<VariableOp>())
      if (variable.getOf() && variable.getSlot() == kAverageSlot)
        averages.try_emplace(*variable.getOf(), variable.getSymName().str());
  llvm::StringMap<std::pair<std::string, std::string> *> renamed;
  for (auto &entry : evaluation.names)
    renamed[entry.first] = &entry;
  std::vector<std::pair<std::string, std::string>> added;
  bool isFound = false;
  for (auto variable : evaluation.module.getOps<VariableOp>()) {
    if (variable.getRole() != Role::Parameter)
      continue;
    std::pair<std::string, std::string> *entry = renamed.lookup(variable.getSymName());
    auto average = averages.find(entry ? StringRef(entry->second) : variable.getSymName());
    if (average == averages.end())
      continue;
    isFound = true;
    if (entry)
      entry->second = average->second;
    else
      added.push_back({variable.getSymName().str(), average->second});
  }
  llvm::append_range(evaluation.names, added);
  if (!isFound)
    return emitError(evaluation.module.getLoc())
           << "it evaluates an average of the weights, and the training keeps none; compile that "
              "with --ema-decay=X";
  return success();
}

int64_t mlir::memopt::countRanks(ModuleOp module) {
  int64_t ranks = 1;
  for (auto variable : module.getOps<VariableOp>())
    if (std::optional<ShardAttr> shard = variable.getShard())
      ranks = std::max(ranks, shard->getRanks());
  return ranks;
}
