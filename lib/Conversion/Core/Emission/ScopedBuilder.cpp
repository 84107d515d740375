//===- ScopedBuilder.cpp - loops, and where in them values are made -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/ScopedBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Scopes
//===----------------------------------------------------------------------===//

ScopedBuilder::Scope *ScopedBuilder::findHome(ArrayRef<AtomId> variables) {
  for (Scope *scope = current; scope->parent; scope = scope->parent)
    for (auto [variable, value] : scope->variables)
      if (llvm::is_contained(variables, variable))
        return scope;
  return outermost;
}

bool ScopedBuilder::bindsAll(Scope *scope, ArrayRef<AtomId> variables) {
  return llvm::all_of(variables, [&](AtomId variable) {
    for (Scope *outer = scope; outer; outer = outer->parent)
      for (auto [bound, value] : outer->variables)
        if (bound == variable)
          return true;
    return false;
  });
}

ScopedBuilder::Scope *ScopedBuilder::findVectorScope(ArrayRef<AtomId> variables) {
  for (Scope *scope = current; scope; scope = scope->parent)
    if (scope->vector && llvm::is_contained(variables, *scope->vector))
      return scope;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Value ScopedBuilder::constant(int64_t value) {
  return arith::ConstantOp::create(builder, location, builder.getI64IntegerAttr(value));
}

Value ScopedBuilder::isBelow(Value a, int64_t b) {
  return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, a, constant(b));
}

int64_t ScopedBuilder::getLanes(Value value) {
  auto vector = dyn_cast<VectorType>(value.getType());
  return vector ? vector.getNumElements() : 1;
}

Value ScopedBuilder::splat(Value value, int64_t lanes) {
  if (isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(builder, location, getVectorType(value.getType(), lanes),
                                     value);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

SmallVector<Value> ScopedBuilder::emitLoop(Value lower, Value upper, Value step, ValueRange carried,
                                           LoopFn body) {
  auto loop = scf::ForOp::create(builder, location, lower, upper, step, carried);
  Scope *outer = current;
  Operation *previous = outer->child;
  outer->child = loop;
  {
    OpBuilder::InsertionGuard guard(builder);
    // Without carried values the builder has made the terminator already.
    if (carried.empty())
      builder.setInsertionPoint(loop.getBody()->getTerminator());
    else
      builder.setInsertionPointToEnd(loop.getBody());
    SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
    if (!carried.empty())
      scf::YieldOp::create(builder, location, next);
  }
  outer->child = previous;
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value> ScopedBuilder::emitScalarLoop(AtomId variable, ValueRange carried, BodyFn body) {
  return emitLoop(constant(0), constant(table.getSize(variable)), 1, carried,
                  [&](Value iteration, ValueRange arguments) {
                    ScopeGuard scope(*this);
                    scope->variables.push_back({variable, iteration});
                    return body(arguments);
                  });
}

SmallVector<Value> ScopedBuilder::emitBlock(AtomId variable, Value first, int64_t lanes,
                                            int64_t step, ValueRange carried, BodyFn body) {
  ScopeGuard scope(*this);
  scope->variables.push_back({variable, first});
  scope->vector = variable;
  scope->lanes = lanes;
  scope->step = step;
  return body(carried);
}

/// Full blocks, then the rest; both are static.
SmallVector<Value> ScopedBuilder::emitLaneBlocks(int64_t size, int64_t lanes, ValueRange carried,
                                                 LanesFn body) {
  int64_t full = size / lanes * lanes;
  SmallVector<Value> values(carried);
  if (full == lanes) {
    values = body(constant(0), lanes, values);
  } else if (full) {
    values =
        emitLoop(constant(0), constant(full), lanes, values,
                 [&](Value first, ValueRange arguments) { return body(first, lanes, arguments); });
  }
  if (full != size)
    values = body(constant(full), size - full, values);
  return values;
}

/// What does not depend on variables bound inside is computed before, whatever the condition.
void ScopedBuilder::emitWhere(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(builder, location, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  Operation *previous = current->child;
  Scope *outer = current;
  outer->child = branch;
  builder.setInsertionPointToStart(branch.thenBlock());
  body();
  outer->child = previous;
}
