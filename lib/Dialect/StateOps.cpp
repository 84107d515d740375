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

LogicalResult VariableOp::verify() {
  if (auto initial = getInitial(); initial && (*initial).getShapedType() != getTensorType())
    return emitOpError() << "initial value has type " << (*initial).getShapedType() << ", expected "
                         << getTensorType();
  if (getInitial() && getInitValue())
    return emitOpError("has both 'initial' and 'init_value'");
  if (getTrainable() && getRole() != Role::Parameter)
    return emitOpError() << "only parameters are trainable, found role "
                         << stringifyRole(getRole());
  if (getTrainable() && !isa<FloatType>(getTensorType().getElementType()))
    return emitOpError() << "trainable variables hold floating-point numbers, found "
                         << getTensorType().getElementType();
  if (getRole() == Role::OptimizerState && (!getOf() || !getSlot()))
    return emitOpError("optimizer state names its parameter in 'of' and its part in 'slot'");
  return success();
}

/// Both accesses: the variable exists and has the accessed type.
static LogicalResult verifyAccess(Operation *op, FlatSymbolRefAttr name, Type type,
                                  SymbolTableCollection &symbols) {
  auto variable = symbols.lookupNearestSymbolFrom<VariableOp>(op, name);
  if (!variable)
    return op->emitOpError() << "names no variable: " << name;
  if (variable.getTensorType() == type)
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError() << "has type " << type << ", expected "
                                                    << variable.getTensorType();
  diagnostic.attachNote(variable.getLoc()) << "declared here";
  return diagnostic;
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getVariableAttr(), getResult().getType(), symbols);
}

LogicalResult WriteOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getVariableAttr(), getValue().getType(), symbols);
}

LogicalResult GradientOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getVariableAttr(), getValue().getType(), symbols);
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
