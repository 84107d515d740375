//===- SharedState.cpp - several programs over the same variables -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/SharedState.h"

#include "StateNames.h"
#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Dialect/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// What is the same
//===----------------------------------------------------------------------===//

static bool haveSameElements(ElementsAttr a, ElementsAttr b) {
  if (a == b)
    return true;
  auto first = dyn_cast<DenseResourceElementsAttr>(a),
       second = dyn_cast<DenseResourceElementsAttr>(b);
  if (!first || !second || first.getType() != second.getType())
    return false;
  AsmResourceBlob *ours = first.getRawHandle().getBlob(), *theirs = second.getRawHandle().getBlob();
  return ours && theirs && ours->getData() == theirs->getData();
}

/// Codes are the same where they and their scales are.
static bool haveSameEncoding(VariableOp a, VariableOp b) {
  std::optional<FrozenVariable> first = FrozenVariable::get(a), second = FrozenVariable::get(b);
  if (!first || !second)
    return !first && !second;
  return first->code == second->code && first->wholeType == second->wholeType &&
         first->scales == second->scales && first->scaleScales == second->scaleScales;
}

static bool haveSameType(VariableOp a, VariableOp b) {
  return a.getType() == b.getType() && a.getShard() == b.getShard() && a.getRole() == b.getRole() &&
         a.getUnit() == b.getUnit() && haveSameEncoding(a, b) &&
         a->getAttr(MemoptDialect::kDtypeAttr) == b->getAttr(MemoptDialect::kDtypeAttr);
}

/// Of what is kept in codes the first values are those of the whole.
static ElementsAttr getFirstValues(VariableOp variable) {
  std::optional<FrozenVariable> frozen = FrozenVariable::get(variable);
  return frozen ? frozen->initial : variable.getInitialAttr();
}

/// Values that one program does not give are those of another that does.
static bool haveSameValues(VariableOp a, VariableOp b) {
  ElementsAttr first = getFirstValues(a), second = getFirstValues(b);
  return !first || !second || haveSameElements(first, second);
}

static void giveFirstValues(VariableOp variable, ElementsAttr values) {
  if (!values)
    return;
  std::optional<FrozenVariable> frozen = FrozenVariable::get(variable);
  if (!frozen)
    return variable.setInitialAttr(values);
  frozen->initial = values;
  frozen->attachTo(variable);
}

/// What a message says that a variable is.
static std::string describeKept(VariableOp variable) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << getKeptType(variable);
  if (std::optional<FrozenVariable> frozen = FrozenVariable::get(variable))
    stream << " kept in " << ::memopt::getName(frozen->code)
           << (frozen->scaleScales.empty() ? "" : " with scales in int8");
  if (std::optional<ShardAttr> shard = variable.getShard())
    stream << " shared out over " << shard->getRanks() << " ranks in parts of "
           << variable.getTensorType().getNumElements() << " elements";
  return text;
}

namespace {
/// One program, and its variables by name.
class Member {
public:
  explicit Member(const StateProgram &program)
      : program(program), module(program.module), symbols(program.module) {
    for (auto function : module.getOps<func::FuncOp>())
      function.walk([&](WriteOp op) { written.insert(op.getVariableAttr().getAttr()); });
  }

  /// A tensor of the traced code, which no module has by a name: that of two programs may be two.
  bool isConstant(VariableOp variable) const {
    std::optional<ArrayAttr> names = variable.getNames();
    return variable.getRole() == Role::Buffer && variable.getTransient() && variable.getInitial() &&
           names && names->empty() && !written.contains(variable.getSymNameAttr());
  }

  bool isRead(VariableOp variable) const {
    return !SymbolTable::symbolKnownUseEmpty(variable, module);
  }

  VariableOp find(StringRef name) const { return symbols.lookup<VariableOp>(name); }

  /// Keeps a constant out of the state, under a name that is no other program's.
  LogicalResult own(VariableOp variable) {
    std::string name = (variable.getSymName() + "@" + program.name).str();
    if (failed(renameVariable(symbols, variable, name)))
      return failure();
    variable->setAttr(kOwnAttr, UnitAttr::get(variable.getContext()));
    return success();
  }

  /// Declares the state in front of all else, in its order.
  void declare(ArrayRef<VariableOp> state) {
    Block *body = module.getBody();
    Operation *last = nullptr;
    for (VariableOp variable : state) {
      VariableOp mine = find(variable.getSymName());
      if (!mine) {
        mine = variable.clone();
        mine.removeOffsetAttr();
        if (program.ranks == 1 && mine.getShard()) {
          mine.removeShardAttr();
          mine.removeInitialAttr();
        }
        body->push_front(mine);
        symbols.insert(mine);
      }
      mine.setTrainable(variable.getTrainable());
      if (auto restore = variable->getAttr(kRestoreAttr))
        mine->setAttr(kRestoreAttr, restore);
      if (last)
        mine->moveAfter(last);
      else
        mine->moveBefore(body, body->begin());
      last = mine;
    }
    module->setAttr(kSharesStateAttr, UnitAttr::get(module.getContext()));
  }

  const StateProgram &program;
  ModuleOp module;

private:
  SymbolTable symbols;
  llvm::DenseSet<StringAttr> written;
};

/// The variables of all programs.
class StateUnion {
public:
  StateUnion(ArrayRef<StateProgram> programs, ModuleOp given) : isGiven(given) {
    if (given)
      for (auto variable : given.getOps<VariableOp>())
        all.try_emplace(variable.getSymName(), Entry{variable, "the package"});
    for (const StateProgram &program : programs)
      members.push_back(std::make_unique<Member>(program));
  }

  LogicalResult build() {
    for (auto &member : members)
      for (auto variable : llvm::to_vector(member->module.getOps<VariableOp>()))
        if (variable.isState() && failed(add(*member, variable)))
          return failure();
    SmallVector<VariableOp> state;
    for (auto &[name, entry] : all)
      state.push_back(entry.variable);
    describe(state);
    for (auto &member : members)
      member->declare(state);
    return success();
  }

private:
  struct Entry {
    VariableOp variable;
    std::string program; ///< that it was first seen in
  };

  LogicalResult add(Member &member, VariableOp variable) {
    if (member.isConstant(variable) && !isOfAll(member, variable))
      return member.own(variable);
    auto found = all.find(variable.getSymName());
    if (found == all.end()) {
      if (isGiven)
        return refuse(member, variable) << "is no part of the package's state";
      all.try_emplace(variable.getSymName(), Entry{variable, member.program.name});
      return success();
    }
    VariableOp first = found->second.variable;
    if (isInPlaceOf(variable, first)) {
      variable.setRole(first.getRole());
      variable.setOfAttr(first.getOfAttr());
      variable.setSlotAttr(first.getSlotAttr());
      variable.setTrainable(false);
    }
    if (!haveSameType(first, variable))
      return refuse(member, variable)
             << "is " << describeKept(variable) << ", and in " << found->second.program << " "
             << describeKept(first) << ": programs of one package share what has one name";
    if (!haveSameValues(first, variable))
      return refuse(member, variable)
             << "begins with other values than in " << found->second.program
             << ": programs of one package share what has one name";
    if (variable.getTrainable())
      first.setTrainable(true);
    if (!getFirstValues(first) && !first.getInitValue() && !isGiven)
      giveFirstValues(first, getFirstValues(variable));
    return success();
  }

  /// Whether an evaluation reads what an optimizer keeps, an average, instead of a parameter.
  static bool isInPlaceOf(VariableOp variable, VariableOp state) {
    return variable.getRole() == Role::Parameter && state.getRole() == Role::OptimizerState;
  }

  static InFlightDiagnostic refuse(const Member &member, VariableOp variable) {
    return emitError(variable.getLoc()) << "program '" << member.program.name << "': variable '"
                                        << variable.getSymName() << "' ";
  }

  /// Whether all programs have the same constant.
  bool isOfAll(const Member &member, VariableOp variable) const {
    return !isGiven && llvm::all_of(members, [&](const auto &other) {
      VariableOp theirs = other->find(variable.getSymName());
      return theirs && other->isConstant(theirs) && haveSameType(variable, theirs) &&
             haveSameValues(variable, theirs);
    });
  }

  /// What a program that does not read a transient variable cannot know: whether another does.
  void describe(ArrayRef<VariableOp> state) {
    for (VariableOp variable : state) {
      if (!variable.getTransient())
        continue;
      bool isRead = isGiven || llvm::any_of(members, [&](const auto &member) {
                      VariableOp mine = member->find(variable.getSymName());
                      return mine && member->isRead(mine);
                    });
      if (!variable->hasAttr(kRestoreAttr))
        variable->setAttr(kRestoreAttr,
                          StringAttr::get(variable.getContext(), isRead ? "if_present" : "never"));
    }
  }

  bool isGiven;
  std::vector<std::unique_ptr<Member>> members;
  llvm::MapVector<StringRef, Entry> all;
};
} // namespace

LogicalResult mlir::memopt::shareState(ArrayRef<StateProgram> programs, ModuleOp given) {
  return StateUnion(programs, given).build();
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

static bool isPlacedAlike(VariableOp a, VariableOp b) {
  return a.getPlacement() == b.getPlacement() && a.getOffset() == b.getOffset();
}

LogicalResult mlir::memopt::verifySharedPlaces(ArrayRef<StateProgram> programs, ModuleOp given) {
  ModuleOp first = given ? given : programs.front().module;
  for (const StateProgram &program : programs) {
    SymbolTable symbols(program.module);
    for (auto variable : first.getOps<VariableOp>()) {
      if (!variable.isState() || variable->hasAttr(kOwnAttr))
        continue;
      auto mine = symbols.lookup<VariableOp>(variable.getSymName());
      if (!mine || !isPlacedAlike(variable, mine))
        return emitError(variable.getLoc())
               << "program '" << program.name << "' has variable '" << variable.getSymName()
               << "' at another place than " << (given ? "the package" : programs.front().name)
               << ": what is offloaded has to be the same in all programs of a package";
    }
  }
  return success();
}
