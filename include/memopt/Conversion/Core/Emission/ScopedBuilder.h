//===- ScopedBuilder.h - loops, and where in them values are made -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scopes mirror the loops around the insertion point. A value is made in the innermost scope that
// binds one of its variables, before the loops inside that scope, and remembered there. So what
// does not change in a loop is computed before it, and nothing twice.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_EMISSION_SCOPEDBUILDER_H
#define MEMOPT_CONVERSION_CORE_EMISSION_SCOPEDBUILDER_H

#include "memopt/Conversion/Core/Graph/ElementGraph.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::memopt {

class ScopedBuilder {
public:
  struct Scope {
    Scope *parent = nullptr;
    /// The loop that is being filled directly inside this scope.
    Operation *child = nullptr;
    SmallVector<std::pair<AtomId, Value>, 2> variables;
    std::optional<AtomId> vector; ///< which of them runs over lanes; its value is that of lane 0
    int64_t lanes = 1;
    int64_t step = 1; ///< divides the number of the first lane
    llvm::DenseMap<NodeId, Value> nodes, splats;
    llvm::DenseMap<AtomId, Value> atoms;
    llvm::DenseMap<unsigned, SmallVector<Value>> reductions;
  };
  class ScopeGuard;
  using BodyFn = llvm::function_ref<SmallVector<Value>(ValueRange)>;
  using LoopFn = llvm::function_ref<SmallVector<Value>(Value, ValueRange)>;
  using LanesFn = llvm::function_ref<SmallVector<Value>(Value first, int64_t lanes, ValueRange)>;

  ScopedBuilder(OpBuilder &builder, Location location, const IndexTable &table)
      : builder(builder), location(location), table(table) {}
  ScopedBuilder(const ScopedBuilder &) = delete;

  // Scopes.
  Scope *findHome(ArrayRef<AtomId> variables);
  bool bindsAll(Scope *scope, ArrayRef<AtomId> variables);
  /// The scope, at or around the current one, whose lanes a node with these variables has.
  Scope *findVectorScope(ArrayRef<AtomId> variables);
  /// Runs `emit` with the builder before whatever loop is being filled inside `scope`.
  template <typename Fn> auto emitIn(Scope *scope, Fn emit);

  // Loops. Values carried through the loop go in and come out.
  SmallVector<Value> emitLoop(Value lower, Value upper, Value step, ValueRange carried,
                              LoopFn body);
  SmallVector<Value> emitLoop(Value lower, Value upper, int64_t step, ValueRange carried,
                              LoopFn body) {
    return emitLoop(lower, upper, constant(step), carried, body);
  }
  SmallVector<Value> emitScalarLoop(AtomId variable, ValueRange carried, BodyFn body);
  /// Full blocks of lanes of `size` iterations, then one of what is left.
  SmallVector<Value> emitLaneBlocks(int64_t size, int64_t lanes, ValueRange carried, LanesFn body);
  /// `lanes` from `first` on, which is a multiple of `step`.
  SmallVector<Value> emitBlock(AtomId variable, Value first, int64_t lanes, int64_t step,
                               ValueRange carried, BodyFn body);
  /// `body` where `condition` holds.
  void emitWhere(Value condition, llvm::function_ref<void()> body);

  // Values.
  Value constant(int64_t value);
  Value isBelow(Value a, int64_t b);
  Value splat(Value value, int64_t lanes);
  static Type getVectorType(Type element, int64_t lanes) {
    return VectorType::get({lanes}, element);
  }
  static int64_t getLanes(Value value);

  OpBuilder &builder;
  const Location location;
  const IndexTable &table;
  Scope root;
  Scope *current = &root;
  /// Of what depends on no loop.
  Scope *outermost = &root;
};

/// Enters a scope inside the current one for as long as it lives.
class ScopedBuilder::ScopeGuard {
public:
  explicit ScopeGuard(ScopedBuilder &builder) : builder(builder) {
    scope.parent = builder.current;
    builder.current = &scope;
  }
  ~ScopeGuard() { builder.current = scope.parent; }
  Scope *operator->() { return &scope; }

private:
  ScopedBuilder &builder;
  Scope scope;
};

template <typename Fn> auto ScopedBuilder::emitIn(Scope *scope, Fn emit) {
  OpBuilder::InsertionGuard guard(builder);
  Operation *loop = nullptr;
  for (Scope *inner = current; inner != scope->parent; inner = inner->parent)
    if (inner->child)
      loop = inner->child;
  if (loop)
    builder.setInsertionPoint(loop);
  Scope *previous = current;
  Operation *previousChild = scope->child;
  current = scope;
  scope->child = nullptr;
  auto result = emit();
  scope->child = previousChild;
  current = previous;
  return result;
}

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_EMISSION_SCOPEDBUILDER_H
