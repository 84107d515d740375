//===- StateOps.cpp - variables, reads and writes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace mlir::memopt;

void VariableOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                       RankedTensorType type, Role role) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.type = TypeAttr::get(type);
  properties.role = RoleAttr::get(builder.getContext(), role);
}

/// What has a shard's attribute has the type of a piece that is large enough.
static LogicalResult verifyShard(Operation *op, ShardAttr shard, RankedTensorType type) {
  int64_t whole = shard.getFirst() + ShapedType::getNumElements(shard.getShape());
  auto least = static_cast<int64_t>(llvm::divideCeil(whole, shard.getRanks()));
  if (type.getRank() == 1 && type.getNumElements() >= least)
    return success();
  return op->emitOpError() << "has type " << type << ", which is none of " << shard.getRanks()
                           << " shards of " << whole << " elements";
}

LogicalResult VariableOp::verify() {
  if (std::optional<ShardAttr> shard = getShard())
    if (failed(verifyShard(*this, *shard, getTensorType())))
      return failure();
  if (auto initial = getInitial(); initial && (*initial).getShapedType() != getWholeType())
    return emitOpError() << "initial value has type " << (*initial).getShapedType() << ", expected "
                         << getWholeType();
  if (getInitial() && getInitValue())
    return emitOpError("has both 'initial' and 'init_value'");
  if (getTrainable() && getRole() != Role::Parameter)
    return emitOpError() << "only parameters are trainable, found role "
                         << stringifyRole(getRole());
  if (getTrainable() && !isa<FloatType>(getTensorType().getElementType()))
    return emitOpError() << "trainable variables hold floating-point numbers, found "
                         << getTensorType().getElementType();
  if (getOffset() && getOffsetAttr().getInt() < 0)
    return emitOpError() << "offset must not be negative, found " << getOffsetAttr().getInt();
  if (getRole() == Role::OptimizerState && !getJoined() && (!getOf() || !getSlot()))
    return emitOpError("optimizer state names its parameter in 'of' and its part in 'slot'");
  return success();
}

LogicalResult VariableOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!liesInUnit())
    return success();
  auto unit = symbols.lookupNearestSymbolFrom<VariableOp>(*this, getUnitAttr());
  if (unit && unit.getJoined() && unit.getType() == getType() && !getOffset())
    return success();
  return emitOpError() << "lies in " << getUnitAttr()
                       << ", which is no joined variable of its type that has the place of both";
}

/// All accesses: the variable exists and has the accessed type, in its space unless the op only
/// `names` it.
static LogicalResult verifyAccess(Operation *op, FlatSymbolRefAttr name, Type type,
                                  SymbolTableCollection &symbols, bool names = false) {
  auto variable = symbols.lookupNearestSymbolFrom<VariableOp>(op, name);
  if (!variable)
    return op->emitOpError() << "names no variable: " << name;
  RankedTensorType expected = variable.getPlacedType();
  if (names)
    expected = inSpace(expected, getSpace(type));
  if (type == expected)
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError()
                                  << "has type " << type << ", expected " << expected;
  diagnostic.attachNote(variable.getLoc()) << "declared here";
  return diagnostic;
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getVariableAttr(), getResult().getType(), symbols);
}

LogicalResult WriteOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getVariableAttr(), getValue().getType(), symbols);
}

void GradientOp::build(OpBuilder &, OperationState &state, Value value,
                       FlatSymbolRefAttr variable) {
  state.addOperands(value);
  state.getOrAddProperties<Properties>().variable = variable;
}

LogicalResult GradientOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (std::optional<ShardAttr> shard = getShard()) {
    auto variable = symbols.lookupNearestSymbolFrom<VariableOp>(*this, getVariableAttr());
    return variable ? verifyShard(*this, *shard, cast<RankedTensorType>(getValue().getType()))
                    : emitOpError() << "names no variable: " << getVariableAttr();
  }
  return verifyAccess(*this, getVariableAttr(), getValue().getType(), symbols, /*names=*/true);
}

LogicalResult UpdatedWhereOp::verify() {
  auto type = cast<RankedTensorType>(getCount().getType());
  return type.getRank() == 0 ? success()
                             : emitOpError() << "expected a single number, found " << type;
}

LogicalResult UpdatedWhereOp::verifySymbolUses(SymbolTableCollection &symbols) {
  for (auto name : getVariables().getAsRange<FlatSymbolRefAttr>()) {
    auto variable = symbols.lookupNearestSymbolFrom<VariableOp>(*this, name);
    if (!variable || !variable.getTrainable())
      return emitOpError() << "names no trainable variable: " << name;
  }
  return success();
}

/// A mark, which stays although it computes nothing.
void UpdatedWhereOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Write::get());
}

void ReadOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), getVariableAttr());
}

void WriteOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Write::get(), getVariableAttr());
}

/// A mark that somebody outside may look at the value: it must not be thrown away.
void GradientOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Write::get());
}
