//===- AttentionScores.cpp - tiles of scores and their gradients ----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionScores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

unsigned mlir::memopt::countAttentionInputs(AttentionAttr call) {
  return kMaskBuffer + (call.getMaskType() ? 1 : 0) + (call.getDropout() ? 2 : 0) +
         (call.getFirst() ? 1 : 0);
}

AttentionScores::AttentionScores(OpBuilder &builder, Location location, AttentionAttr call,
                                 const AttentionTiles &tiles, const AttentionArguments &arguments)
    : CallBlock(builder, location, call, tiles, call.getAccumulator(), arguments),
      offsets(arguments.offsets) {}

VectorView AttentionScores::getView(unsigned number, ArrayRef<int64_t> strides, int64_t tokens,
                                    int64_t features) {
  auto isWhole = [&](int64_t elements) { return elements % lanes == 0; };
  int64_t offset = number < offsets.size() ? offsets[number] : 0;
  return {buffers[number],
          SmallVector<int64_t, 4>(strides),
          tokens,
          features,
          call.getType(),
          isWhole(offset) && isWhole(features) && llvm::all_of(strides.drop_back(), isWhole)};
}

Value AttentionScores::getOfQuery(unsigned buffer, Value ofBatch, Value ofHead, Value query) {
  Value row = add(multiply(ofBatch, heads), ofHead);
  return getAddress(buffers[buffer], type, add(multiply(row, queries), query));
}
Value AttentionScores::loadOfQuery(unsigned buffer, Value ofBatch, Value ofHead, Value query) {
  return load(getOfQuery(buffer, ofBatch, ofHead, smaller(query, queries - 1)), type, bytes);
}

//===----------------------------------------------------------------------===//
// Elements of a tile
//===----------------------------------------------------------------------===//

AttentionScores::Values
AttentionScores::mapScores(const ScorePlace &place,
                           llvm::function_ref<Value(const ScoreElement &)> body) {
  Values results;
  for (int64_t row = 0; row < getRows(); ++row)
    for (int64_t column = 0; column < getColumns(); ++column) {
      Value ofRow = rowOf(row), ofColumn = columnOf(column);
      Value query = add(place.firstQuery, place.rowsAreQueries ? ofRow : ofColumn);
      Value key = add(place.firstKey, place.rowsAreQueries ? ofColumn : ofRow);
      results.push_back(body({row, column, query, key}));
    }
  return results;
}

Value AttentionScores::getInMask(unsigned buffer, ArrayRef<int64_t> strides,
                                 const ScorePlace &place, const ScoreElement &at, Type element) {
  Value offset = getOffset(strides, {place.batch, place.head, smaller(at.query, queries - 1),
                                     smaller(at.key, keys - 1)});
  return getAddress(buffers[buffer], element, offset);
}

Value AttentionScores::scaleScore(Value product, const ScorePlace &place, const ScoreElement &at) {
  Value score = multiplyNumbers(product, number(call.getScale().getValueAsDouble()));
  Type mask = call.getMaskType();
  if (!mask || mask.isInteger(1))
    return score;
  Value from = getInMask(kMaskBuffer, call.getMaskStrides(), place, at, mask);
  return addNumbers(score, convert(load(from, mask, mask.getIntOrFloatBitWidth() / 8), type));
}

/// Vectors beyond the last token are zeros, but their scores are not hidden by that. Rows beyond
/// the last are not stored; they are looked at where somebody sums over them.
Value AttentionScores::isVisible(const ScorePlace &place, const ScoreElement &at) {
  Value visible;
  auto require = [&](Value condition) {
    visible = visible ? arith::AndIOp::create(b, visible, condition).getResult() : condition;
  };
  int64_t queryTile = place.rowsAreQueries ? tiles.rows : tiles.columns;
  int64_t keyTile = place.rowsAreQueries ? tiles.columns : tiles.rows;
  if (queries % queryTile)
    require(isBelow(at.query, queries));
  if (keys % keyTile)
    require(isBelow(at.key, keys));
  if (call.getCausal())
    require(arith::CmpIOp::create(b, arith::CmpIPredicate::sle, at.key, at.query));
  if (Type mask = call.getMaskType(); mask && mask.isInteger(1)) {
    Type byte = b.getI8Type();
    Value stored = load(getInMask(kMaskBuffer, call.getMaskStrides(), place, at, byte), byte, 1);
    Value zero = arith::ConstantOp::create(b, b.getI8IntegerAttr(0));
    require(arith::CmpIOp::create(b, arith::CmpIPredicate::ne, stored, zero));
  }
  return visible;
}

/// One after the other, in a loop: side by side they would take all registers, and most of the
/// kernel's code.
Value AttentionScores::drawKept(const ScorePlace &place) {
  if (!call.getDropout())
    return nullptr;
  std::optional<uint32_t> threshold = getDropoutThreshold(call.getDropout().getValueAsDouble());
  Type i32 = b.getI32Type();
  auto word = [&](uint32_t bits) -> Value {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(bits)));
  };
  if (!threshold)
    return word(0);
  Value head = add(multiply(place.batch, heads), place.head);
  auto draw = [&](Value number, ValueRange bits) {
    Value row = add(y, multiply(divide(number, getColumns()), tiles.threadRows));
    Value column = add(x, multiply(remainder(number, getColumns()), tiles.threadColumns));
    Value query = add(place.firstQuery, place.rowsAreQueries ? row : column);
    Value key = add(place.firstKey, place.rowsAreQueries ? column : row);
    Value score = add(multiply(add(multiply(head, queries), query), keys), key);
    if (firstScore)
      score = add(score, firstScore);
    Value drawn = createRandomWord(b, random, score);
    Value isKept = arith::CmpIOp::create(b, arith::CmpIPredicate::uge, drawn, word(*threshold));
    Value bit = arith::ShLIOp::create(b, arith::ExtUIOp::create(b, i32, isKept),
                                      arith::TruncIOp::create(b, i32, number));
    return Values{arith::OrIOp::create(b, bits.front(), bit)};
  };
  return loop(integer(0), integer(getRows() * getColumns()), 1, word(0), draw).front();
}

Value AttentionScores::drop(Value whole, Value kept, const ScoreElement &at) {
  if (!kept)
    return whole;
  Value bit =
      arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(1 << numberOf(at))));
  Value zero = arith::ConstantOp::create(b, b.getI32IntegerAttr(0));
  Value isKept =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne, arith::AndIOp::create(b, kept, bit), zero);
  double scale = 1 / (1 - call.getDropout().getValueAsDouble());
  return select(isKept, multiplyNumbers(whole, number(scale)), number(0));
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

AttentionScores::Values AttentionScores::getProbabilities(ValueRange products,
                                                          const ScorePlace &place) {
  Values ofRow(getRows()), ofColumn(getColumns());
  return mapScores(place, [&](const ScoreElement &at) {
    Value &logsumexp = place.rowsAreQueries ? ofRow[at.row] : ofColumn[at.column];
    if (!logsumexp)
      logsumexp = loadOfQuery(firstOut + 1, place.batch, place.head, at.query);
    Value score = scaleScore(products[numberOf(at)], place, at);
    Value probability = exponentiate(subtractNumbers(score, logsumexp));
    Value visible = isVisible(place, at);
    return visible ? select(visible, probability, number(0)) : probability;
  });
}

AttentionScores::Values AttentionScores::getGradients(ValueRange probabilities, ValueRange products,
                                                      Value kept, const ScorePlace &place) {
  Values ofRow(getRows()), ofColumn(getColumns());
  return mapScores(place, [&](const ScoreElement &at) {
    Value &delta = place.rowsAreQueries ? ofRow[at.row] : ofColumn[at.column];
    if (!delta)
      delta = loadOfQuery(getWorkspace(), place.batch, place.head, at.query);
    Value gradient = subtractNumbers(drop(products[numberOf(at)], kept, at), delta);
    return multiplyNumbers(probabilities[numberOf(at)], gradient);
  });
}
