//===- ScatterEmitter.cpp - scatters of kernels ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/ScatterEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::memopt;

/// Lanes of the block of columns that is being emitted; 0 when elements are alone.
int64_t ScatterEmitter::getLanesOf(const KernelPoints &points) {
  return points.column ? nodes.findVectorScope(*points.column)->lanes : 0;
}

void ScatterEmitter::emitTokens(const KernelScatter &scatter, size_t level,
                                llvm::function_ref<void()> body) {
  if (level == scatter.tokens.size())
    return body();
  nodes.emitScalarLoop(scatter.tokens[level], {}, [&](ValueRange) {
    emitTokens(scatter, level + 1, body);
    return SmallVector<Value>();
  });
}

Value ScatterEmitter::emitWideIndex(NodeId node) {
  Value value = nodes.emitNode(node);
  Type wide = builder.getI64Type();
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    wide = vector.clone(wide);
  return value.getType() == wide ? value : arith::ExtSIOp::create(builder, location, wide, value);
}

/// `a` and `b` combined, as vectors of `lanes` if one is; just `b` without `a`.
Value ScatterEmitter::join(StringRef name, Value a, Value b, int64_t lanes) {
  if (!a)
    return b;
  if (isa<VectorType>(a.getType()) || isa<VectorType>(b.getType())) {
    a = splat(a, lanes);
    b = splat(b, lanes);
  }
  OperationState state(location, name);
  state.addOperands({a, b});
  state.addTypes(a.getType());
  return builder.create(state)->getResult(0);
}

/// Where the indices point, and whether they do; both null without indices.
ScatterEmitter::Place ScatterEmitter::emitPlace(const KernelScatter &scatter, int64_t lanes) {
  using P = arith::CmpIPredicate;
  auto number = [&](int64_t value, Value like) {
    Value scalar = constant(value);
    return isa<VectorType>(like.getType()) ? splat(scalar, lanes) : scalar;
  };
  auto test = [&](P predicate, Value a, int64_t b) -> Value {
    return arith::CmpIOp::create(builder, location, predicate, a, number(b, a));
  };
  StringRef both = arith::AndIOp::getOperationName(), add = arith::AddIOp::getOperationName();
  Value inside, offset;
  for (auto [i, index] : llvm::enumerate(scatter.indices)) {
    Value value = emitWideIndex(index.node);
    // Seen as unsigned, what is below zero lies above all sizes.
    inside = join(both, inside, test(P::ult, value, index.size), lanes);
    if (scatter.padding && i == 0)
      inside = join(both, inside, test(P::ne, value, *scatter.padding), lanes);
    Value scaled = arith::MulIOp::create(builder, location, value, number(index.stride, value));
    offset = join(add, offset, scaled, lanes);
  }
  return {inside, offset};
}

/// One element, or one block of lanes, of the result; nothing where an index lies outside.
void ScatterEmitter::emitUpdate(const KernelScatter &scatter) {
  StringRef add = arith::AddIOp::getOperationName();
  int64_t lanes = getLanesOf(scatter.points);
  auto [inside, offset] = emitPlace(scatter, lanes);
  if (inside && isa<VectorType>(inside.getType())) {
    Value address =
        nodes.emitVectorIndex(scatter.address, nodes.findVectorScope(*scatter.points.column));
    return emitCombined(scatter, join(add, address, offset, lanes), inside);
  }
  auto update = [&, offset = offset] {
    Value address = nodes.emitIndex(scatter.address, nullptr);
    emitCombined(scatter, join(add, offset, address, lanes), nullptr);
  };
  if (!inside)
    return update();
  auto branch = scf::IfOp::create(builder, location, inside, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  update();
}

/// What the steps of indices leave of the alignment of columns.
unsigned ScatterEmitter::getAlignmentOf(const KernelScatter &scatter, Type element) {
  Scope *scope = scatter.points.column ? nodes.findVectorScope(*scatter.points.column) : nullptr;
  uint64_t alignment = nodes.getAlignment(scatter.address, element, scope);
  for (const KernelScatter::Index &index : scatter.indices)
    alignment = std::gcd(alignment, uint64_t(index.stride) * nodes.getAlignment(element));
  return static_cast<unsigned>(alignment);
}

/// Loads what is at element `address` (of lane 0, or one for each lane), combines and stores.
void ScatterEmitter::emitCombined(const KernelScatter &scatter, Value address, Value mask) {
  Type element = graph.getNode(scatter.value).type, type = element;
  Value value = nodes.emitNode(scatter.value);
  if (int64_t lanes = getLanesOf(scatter.points)) {
    value = splat(value, lanes);
    type = getVectorType(element, lanes);
  }
  Value pointer = nodes.getAddress(nodes.arguments.results[scatter.result], element, address);
  bool isTogether = !isa<VectorType>(pointer.getType());
  unsigned alignment = isTogether ? getAlignmentOf(scatter, element) : nodes.getAlignment(element);
  if (scatter.combiner) {
    Value old = nodes.loadFrom(pointer, type, alignment, mask);
    OperationState state(location, *scatter.combiner);
    state.addOperands({old, value});
    state.addTypes(type);
    value = builder.create(state)->getResult(0);
  }
  nodes.storeTo(pointer, value, alignment, mask);
}
