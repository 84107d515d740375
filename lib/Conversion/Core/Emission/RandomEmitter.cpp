//===- RandomEmitter.cpp - random words of kernels ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Four neighbours share a counter (Philox.h). Where lanes run along the words of a stream and begin
// with a counter's first, a quarter of the lanes computes the words of all; anywhere else each lane
// computes the four words of its counter and takes one.
//
//===----------------------------------------------------------------------===//

#include "RandomEmitter.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::memopt;

static constexpr int64_t kWordsOfCounter = 4;

/// Whether a number that is the same in all lanes is known to be a multiple.
bool RandomEmitter::isMultiple(NodeId id, int64_t divisor) {
  const ElementNode &node = graph.getNode(id);
  if (node.kind == ElementNode::Constant)
    return cast<IntegerAttr>(node.attribute).getInt() % divisor == 0;
  auto isMultipleTerm = [&](std::pair<AtomId, int64_t> term) { return term.second % divisor == 0; };
  return node.kind == ElementNode::Index && node.address.constant % divisor == 0 &&
         llvm::all_of(node.address.terms, isMultipleTerm);
}

/// The words of `lanes` neighbours, whose first is a counter's first.
Value RandomEmitter::emitNeighbours(const RandomStream &stream, Value first, int64_t lanes) {
  ImplicitLocOpBuilder b(location, builder);
  int64_t counters = llvm::divideCeil(lanes, kWordsOfCounter);
  auto type = cast<VectorType>(getVectorType(b.getI64Type(), counters));
  auto steps = llvm::to_vector(llvm::seq<int64_t>(0, counters));
  Value counter = arith::ShRUIOp::create(b, first, constant(llvm::Log2_64(kWordsOfCounter)));
  counter = arith::AddIOp::create(
      b, splat(counter, counters),
      arith::ConstantOp::create(b, DenseElementsAttr::get(type, ArrayRef(steps))));
  auto words = createRandomWords(b, stream, counter);
  auto interleave = [&](Value even, Value odd, int64_t count) -> Value {
    SmallVector<int64_t> order;
    for (int64_t i = 0; i < count; ++i)
      order.push_back(i / 2 + (i % 2) * getLanes(even));
    return vector::ShuffleOp::create(b, even, odd, order);
  };
  return interleave(interleave(words[0], words[2], 2 * counters),
                    interleave(words[1], words[3], 2 * counters), lanes);
}

/// The word of each lane, or of one element, from a counter of its own.
Value RandomEmitter::emitWords(const RandomStream &stream, Value first, Value number) {
  int64_t lanes = std::max(getLanes(first), getLanes(number));
  if (isa<VectorType>(first.getType()) || isa<VectorType>(number.getType())) {
    first = splat(first, lanes);
    number = splat(number, lanes);
  }
  ImplicitLocOpBuilder b(location, builder);
  return createRandomWord(b, stream, arith::AddIOp::create(b, first, number));
}

/// Words from `first`, of which only the run knows whether it is a counter's first: that of a part
/// of a batch.
Value RandomEmitter::emitWordsOfPart(const RandomStream &stream, Value first, Value begin,
                                     Value numbers, int64_t lanes) {
  Value place = arith::AndIOp::create(builder, location, first, constant(kWordsOfCounter - 1));
  Value isWhole =
      arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq, place, constant(0));
  auto branch =
      scf::IfOp::create(builder, location, getVectorType(builder.getI32Type(), lanes), isWhole,
                        /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  Value neighbours = emitNeighbours(stream, begin, lanes);
  scf::YieldOp::create(builder, location, neighbours);
  builder.setInsertionPointToStart(branch.elseBlock());
  Value each = emitWords(stream, first, numbers);
  scf::YieldOp::create(builder, location, each);
  return branch.getResult(0);
}

Value RandomEmitter::emit(const ElementNode &node) {
  ArrayRef<NodeId> operands = node.operands; // first, number, seed, step
  const ElementNode &number = graph.getNode(operands[1]);
  Scope *scope = nodes.findVectorScope(node.variables);
  Value first = nodes.emitNode(operands[0]);
  int64_t id = cast<DictionaryAttr>(node.attribute).getAs<IntegerAttr>("id").getInt();
  RandomStream stream{nodes.emitNode(operands[2]), nodes.emitNode(operands[3]),
                      nodes.arguments.randomIds[id]};
  bool areNeighbours = scope && !isa<VectorType>(first.getType()) &&
                       number.kind == ElementNode::Index &&
                       nodes.beginWithMultiple(number.address, scope, kWordsOfCounter);
  if (!areNeighbours)
    return emitWords(stream, first, nodes.emitNode(operands[1]));
  Value begin =
      arith::AddIOp::create(builder, location, first, nodes.emitIndex(number.address, nullptr));
  if (isMultiple(operands[0], kWordsOfCounter))
    return emitNeighbours(stream, begin, scope->lanes);
  return emitWordsOfPart(stream, first, begin, nodes.emitNode(operands[1]), scope->lanes);
}
