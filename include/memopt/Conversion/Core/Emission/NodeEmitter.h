//===- NodeEmitter.h - nodes of an element graph as operations -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_EMISSION_NODEEMITTER_H
#define MEMOPT_CONVERSION_CORE_EMISSION_NODEEMITTER_H

#include "memopt/Conversion/Core/Emission/ScopedBuilder.h"

#include <functional>
#include <memory>

namespace mlir::memopt {

class BitEmitter;
class RandomEmitter;
class SumEmitter;

/// What the function has that a stage is emitted in.
struct StageArguments {
  SmallVector<Value> buffers;   ///< pointers to operands and constants
  SmallVector<Value> results;   ///< pointers to results
  Value faults;                 ///< to the word in which memopt.check reports; null: there is none
  SmallVector<Value> randomIds; ///< those that moveRandomIds took from the kernel, as i64
};

class NodeEmitter : public ScopedBuilder {
public:
  /// Addresses of operands and results are multiples of `alignment`, where that is not 0; else of
  /// an element's bytes.
  NodeEmitter(OpBuilder &builder, Location location, const ElementGraph &graph,
              const StageArguments &arguments, int64_t alignment);
  ~NodeEmitter();

  /// The node's value where its variables are bound, as a vector where one of them is in lanes.
  Value emitNode(NodeId id);
  /// The node as a vector: a scalar is repeated, once where it is computed.
  Value emitLanesOf(NodeId id, int64_t lanes);

  // Indices.
  /// Lanes of `scope` when given, lane 0 otherwise. Parts that do not vary stay scalar.
  Value emitIndex(const IndexExpr &expr, Scope *scope);
  Value emitVectorIndex(const IndexExpr &expr, Scope *scope);
  /// Whether the first lane's number is known to be a multiple, and the others follow it.
  bool beginWithMultiple(const IndexExpr &number, Scope *scope, int64_t divisor);

  // Memory. Pointers are one address, of a scalar or of the first lane, or a vector of addresses.
  Value getAddress(Value buffer, Type element, Value index);
  Value loadFrom(Value pointer, Type type, unsigned alignment, Value mask);
  void storeTo(Value pointer, Value value, unsigned alignment, Value mask);
  static unsigned getAlignment(Type element);
  /// Of what `scope` has of a contiguous address, or of one element without a scope.
  unsigned getAlignment(const IndexExpr &address, Type element, Scope *scope);

  const ElementGraph &graph;
  const StageArguments &arguments;
  /// Emit the reductions of the graph, and the loads that have been staged: the latter gives null
  /// for others.
  SumEmitter *sums = nullptr;
  std::function<Value(NodeId)> loadStaged;

private:
  Value emitNodeHere(NodeId id);
  Value emitLoad(const ElementNode &node);
  Value emitSharedLoad(const ElementNode &node, Scope *scope, Value guard);
  Value emitApply(const ElementNode &node);
  Value emitCheck(const ElementNode &node);
  void reportFault(Value isBad, Value value, int64_t site);
  Value emitIndexNode(const ElementNode &node);
  Value emitAtom(AtomId atom);
  Value emitScalarIndex(const IndexExpr &expr);
  Value emitVectorAtom(AtomId atom, Scope *scope);

  int64_t alignment;
  std::unique_ptr<BitEmitter> bits;
  std::unique_ptr<RandomEmitter> randoms;
};

/// A part of an emitter: it builds where `nodes` stands.
class EmitterPart {
protected:
  using Scope = ScopedBuilder::Scope;
  using ScopeGuard = ScopedBuilder::ScopeGuard;
  using BodyFn = ScopedBuilder::BodyFn;
  using LoopFn = ScopedBuilder::LoopFn;

  explicit EmitterPart(NodeEmitter &nodes)
      : nodes(nodes), builder(nodes.builder), location(nodes.location), graph(nodes.graph),
        table(nodes.table) {}
  Value constant(int64_t value) { return nodes.constant(value); }
  Value splat(Value value, int64_t lanes) { return nodes.splat(value, lanes); }
  static Type getVectorType(Type element, int64_t lanes) {
    return ScopedBuilder::getVectorType(element, lanes);
  }
  static int64_t getLanes(Value value) { return ScopedBuilder::getLanes(value); }

  NodeEmitter &nodes;
  OpBuilder &builder;
  const Location location;
  const ElementGraph &graph;
  const IndexTable &table;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_EMISSION_NODEEMITTER_H
