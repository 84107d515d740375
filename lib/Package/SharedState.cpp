//===- SharedState.cpp - several programs over the same variables -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/SharedState.h"

#include "memopt/Dialect/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

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

static bool haveSameType(VariableOp a, VariableOp b) {
  return a.getType() == b.getType() && a.getShard() == b.getShard() && a.getRole() == b.getRole() &&
         a->getAttr(MemoptDialect::kDtypeAttr) == b->getAttr(MemoptDialect::kDtypeAttr);
}

/// Values that one program does not give are those of another that does.
static bool haveSameValues(VariableOp a, VariableOp b) {
  return !a.getInitial() || !b.getInitial() || haveSameElements(*a.getInitial(), *b.getInitial());
}

namespace {
/// One program, and its variables by name.
class Member {
public:
  explicit Member(const StateProgram &program)
      : program(program), module(program.module), symbols(program.module) {
    nameVariables();
    nameOptimizer();
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
    if (failed(rename(variable, name)))
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
  LogicalResult rename(VariableOp variable, StringRef name) {
    if (failed(symbols.rename(variable, name)))
      return variable.emitOpError() << "cannot be called '" << name << "'";
    return success();
  }

  /// In two turns, for two variables may have each other's names.
  void nameVariables() {
    SmallVector<std::pair<VariableOp, StringRef>> renamed;
    for (const auto &[own, shared] : program.names)
      if (VariableOp variable = find(own)) {
        (void)rename(variable, own + "@own");
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
      (void)rename(variable, shared);
    }
  }

  /// What an optimizer keeps of a parameter ends with the parameter's name.
  void nameStateOf(VariableOp parameter, StringRef own, StringRef shared) {
    for (auto variable : llvm::to_vector(module.getOps<VariableOp>())) {
      StringRef name = variable.getSymName();
      if (variable.getOf() != parameter.getSymName() || !name.consume_back(own))
        continue;
      std::string changed = (name + shared).str();
      (void)rename(variable, changed);
      if (variable.getNames())
        variable.setNamesAttr(Builder(variable.getContext()).getStrArrayAttr(StringRef(changed)));
    }
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
        (void)rename(variable, name); // nothing else has a name with an @
        if (variable.getNames())
          variable.setNamesAttr(Builder(variable.getContext()).getStrArrayAttr(StringRef(name)));
      }
  }

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
             << "is " << variable.getType() << ", and in " << found->second.program << " "
             << first.getType() << ": programs of one package share what has one name";
    if (!haveSameValues(first, variable))
      return refuse(member, variable)
             << "begins with other values than in " << found->second.program
             << ": programs of one package share what has one name";
    if (variable.getTrainable())
      first.setTrainable(true);
    if (!first.getInitial() && !first.getInitValue() && variable.getInitial() && !isGiven)
      first.setInitialAttr(*variable.getInitial());
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

//===----------------------------------------------------------------------===//
// The state of a package
//===----------------------------------------------------------------------===//

static Type parseDtype(MLIRContext &context, StringRef name) {
  Builder builder(&context);
  for (Type type :
       {Type(builder.getF64Type()), Type(builder.getF32Type()), Type(builder.getF16Type()),
        Type(builder.getBF16Type()), Type(builder.getI64Type()), Type(builder.getI32Type()),
        Type(builder.getIntegerType(16)), Type(builder.getI8Type()), Type(builder.getI1Type())})
    if (getDtypeName(type) == name)
      return type;
  return name == "u8" ? Type(builder.getI8Type()) : Type();
}

static llvm::Error fail(const Twine &what) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), what);
}

/// Whether all sizes are sizes.
static bool parseShape(const json::Array *numbers, SmallVectorImpl<int64_t> &shape) {
  if (!numbers)
    return false;
  for (const json::Value &number : *numbers) {
    std::optional<int64_t> size = number.getAsInteger();
    if (!size || *size < 0)
      return false;
    shape.push_back(*size);
  }
  return true;
}

static std::vector<StringRef> parseNames(const json::Object &entry) {
  std::vector<StringRef> names;
  if (const json::Array *list = entry.getArray("names"))
    for (const json::Value &name : *list)
      if (std::optional<StringRef> text = name.getAsString())
        names.push_back(*text);
  return names;
}

static llvm::Error declare(OpBuilder &builder, const json::Object &entry, int64_t ranks) {
  std::optional<StringRef> name = entry.getString("name"), role = entry.getString("role"),
                           dtype = entry.getString("dtype"),
                           placement = entry.getString("placement");
  std::optional<int64_t> offset = entry.getInteger("offset");
  SmallVector<int64_t> shape, whole;
  if (!name || !role || !dtype || !placement || !offset ||
      !parseShape(entry.getArray("shape"), shape))
    return fail("a variable of the manifest lacks its name, role, type or place");
  std::optional<Role> kind = symbolizeRole(*role);
  std::optional<Space> space = symbolizeSpace(*placement);
  Type element = parseDtype(*builder.getContext(), *dtype);
  if (!kind || !space || !element)
    return fail("variable '" + *name + "' of the manifest is of an unknown role, type or place");
  auto variable = VariableOp::create(builder, builder.getUnknownLoc(), *name,
                                     RankedTensorType::get(shape, element), *kind);
  if (!variable.isState() || entry.getBoolean("own").value_or(false)) {
    variable.erase();
    return llvm::Error::success();
  }
  variable.setPlacement(*space);
  variable.setOffset(*offset);
  variable.setTrainable(entry.getBoolean("trainable").value_or(false));
  if (std::optional<StringRef> of = entry.getString("of"))
    variable.setOf(*of);
  if (std::optional<StringRef> slot = entry.getString("slot"))
    variable.setSlot(*slot);
  variable.setNamesAttr(builder.getStrArrayAttr(parseNames(entry)));
  if (*dtype == "u8")
    variable->setAttr(MemoptDialect::kDtypeAttr, builder.getStringAttr("u8"));
  if (entry.get("whole_shape")) {
    if (!parseShape(entry.getArray("whole_shape"), whole))
      return fail("variable '" + *name + "' of the manifest has a wrong whole_shape");
    variable.setShardAttr(ShardAttr::get(builder.getContext(), ranks, whole));
  }
  if (std::optional<StringRef> restore = entry.getString("restore")) {
    variable.setTransient(true);
    variable->setAttr(kRestoreAttr, builder.getStringAttr(*restore));
  }
  return llvm::Error::success();
}

llvm::Expected<OwningOpRef<ModuleOp>> mlir::memopt::readState(MLIRContext &context,
                                                              const json::Object &manifest) {
  OwningOpRef<ModuleOp> state = ModuleOp::create(UnknownLoc::get(&context));
  OpBuilder builder = OpBuilder::atBlockEnd(state->getBody());
  const json::Array *variables = manifest.getArray("variables");
  if (!variables || !manifest.getArray("programs"))
    return fail("it is a package of one program, whose arena has no place for others");
  for (const json::Value &entry : *variables) {
    const json::Object *variable = entry.getAsObject();
    if (!variable)
      return fail("a variable of its manifest is no object");
    if (llvm::Error error = declare(builder, *variable, manifest.getInteger("ranks").value_or(1)))
      return std::move(error);
  }
  return std::move(state);
}
