//===- ManifestState.cpp - the state of a package, read back -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Analysis/StateForm.h"
#include "memopt/Dialect/Program.h"
#include "memopt/Package/SharedState.h"

using namespace mlir;
using namespace mlir::memopt;

namespace json = llvm::json;

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

/// Says of a variable what its codes stand for.
static llvm::Error encode(VariableOp variable, const json::Object &encoding) {
  std::optional<BlockCode> code =
      ::memopt::parseBlockCode(encoding.getString("code").value_or("").str());
  SmallVector<int64_t> shape;
  if (!code || !parseShape(encoding.getArray("shape"), shape))
    return fail("variable '" + variable.getSymName() + "' of the manifest is in unknown codes");
  FrozenVariable{*code, RankedTensorType::get(shape, Float32Type::get(variable.getContext())),
                 encoding.getString("scales").value_or("").str(),
                 encoding.getString("scale_scales").value_or("").str(), ElementsAttr()}
      .attachTo(variable);
  return llvm::Error::success();
}

/// Declares the variable of the unit with the first of its tensors.
static void placeInUnit(VariableOp variable, StringRef unit) {
  auto module = variable->getParentOfType<ModuleOp>();
  if (!SymbolTable::lookupSymbolIn(module, unit))
    createJoined(variable, unit, variable.getTensorType());
  variable.setUnit(unit);
  variable.removeOffsetAttr();
  variable.setPlacement(Space::Device);
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
  bool isScale = *role == kFrozenScaleRole;
  std::optional<Role> kind = isScale ? Role::Buffer : symbolizeRole(*role);
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
  if (isScale)
    markFrozenScale(variable);
  if (const json::Object *encoding = entry.getObject("encoding"))
    if (llvm::Error error = encode(variable, *encoding))
      return error;
  if (*dtype == "u8")
    variable->setAttr(MemoptDialect::kDtypeAttr, builder.getStringAttr("u8"));
  if (entry.get("whole_shape")) {
    if (!parseShape(entry.getArray("whole_shape"), whole))
      return fail("variable '" + *name + "' of the manifest has a wrong whole_shape");
    variable.setShardAttr(ShardAttr::get(builder.getContext(), ranks, whole,
                                         entry.getInteger("unit_first").value_or(0)));
  }
  if (std::optional<StringRef> unit = entry.getString("unit"))
    placeInUnit(variable, *unit);
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
