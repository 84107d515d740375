//===- AttentionGradients.cpp - the gradients of attention ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

using Values = AttentionBlock::Values;

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// What the gradients of a row's probabilities have in common: the sum over j of p_j dp_j, which is
/// that over the features of out and its gradient.
void AttentionEmitter::writeDeltas(const SharedTile &gradients, const ScorePlace &place) {
  VectorView output = getOutput();
  int64_t elementBytes = output.element.getIntOrFloatBitWidth() / 8;
  for (int64_t row = 0; row < getRows(); ++row) {
    Value query = add(place.firstQuery, rowOf(row));
    Value from = getToken(output, place.batch, place.head, smaller(query, queries - 1));
    Value line = multiply(rowOf(row), gradients.stride);
    Values sum = loop(
        x, integer(value), tiles.threadColumns, number(0), [&](Value feature, ValueRange before) {
          Value out = load(getAddress(from, output.element, feature), output.element, elementBytes);
          Value gradient = load(getAddress(gradients.base, type, add(line, feature)), type, bytes);
          Value product = multiplyNumbers(convert(out, type), gradient);
          return Values{addNumbers(before.front(), product)};
        });
    Value delta = sumOverRow(sum.front());
    Value stores = arith::AndIOp::create(b, isBelow(query, queries), isBelow(x, 1));
    where(stores,
          [&] { store(getOfQuery(getWorkspace(), place.batch, place.head, query), delta, bytes); });
  }
}

void AttentionEmitter::emitQueryGradient() {
  tile = addTiles(/*isBackward=*/true, /*rowsAreQueries=*/true);
  ScorePlace place = openQueryRows();
  Value keyHead = getKeyHead(place.head);
  fill(tile.queries, getQueries(), place.batch, place.head, place.firstQuery);
  fill(tile.gradients, getGradientView(), place.batch, place.head, place.firstQuery);
  synchronizeBlock();
  writeDeltas(tile.gradients, place);
  Values parts =
      loop(integer(0), getKeyEnd(place.firstQuery), tiles.columns, getZeros(head),
           [&](Value firstKey, ValueRange before) {
             synchronizeBlock();
             fill(tile.keys, getKeys(), place.batch, keyHead, firstKey);
             fill(tile.values, getValues(), place.batch, keyHead, firstKey);
             synchronizeBlock();
             ScorePlace here = place;
             here.firstKey = firstKey;
             Values probabilities = getProbabilities(multiplyRows(tile.queries, tile.keys), here);
             Values products = multiplyRows(tile.gradients, tile.values);
             putScores(tile.scores, getGradients(probabilities, products, drawKept(here), here));
             synchronizeRows();
             return accumulate(tile.scores, tile.keys, before);
           });
  Value scale = repeat(number(call.getScale().getValueAsDouble()));
  for (Value &part : parts)
    part = multiplyNumbers(part, scale);
  storeVectors(getView(getResult(0), call.getDqStrides(), queries, head), place.batch, place.head,
               place.firstQuery, parts);
}

/// All heads of queries that a head of keys has, one after the other.
void AttentionEmitter::emitKeyGradient() {
  tile = addTiles(/*isBackward=*/true, /*rowsAreQueries=*/false);
  Value ofHead = remainder(block, batch * groups);
  Value ofBatch = divide(ofHead, groups), keyHead = remainder(ofHead, groups);
  Value firstKey = multiply(divide(block, batch * groups), tiles.rows);
  fill(tile.keys, getKeys(), ofBatch, keyHead, firstKey);
  fill(tile.values, getValues(), ofBatch, keyHead, firstKey);
  Value begin = integer(0);
  if (call.getCausal())
    begin = multiply(divide(firstKey, tiles.columns), tiles.columns);
  Values zeros = getZeros(head);
  size_t ofKeys = zeros.size();
  zeros.append(getZeros(value));
  auto addQueries = [&](const ScorePlace &place, ValueRange before) {
    synchronizeBlock();
    fill(tile.queries, getQueries(), place.batch, place.head, place.firstQuery);
    fill(tile.gradients, getGradientView(), place.batch, place.head, place.firstQuery);
    synchronizeBlock();
    Values probabilities = getProbabilities(multiplyRows(tile.keys, tile.queries), place);
    Value kept = drawKept(place);
    putScores(tile.scores, mapScores(place, [&](const ScoreElement &at) {
                return drop(probabilities[numberOf(at)], kept, at);
              }));
    synchronizeRows();
    Values values = accumulate(tile.scores, tile.gradients, before.drop_front(ofKeys));
    Values products = multiplyRows(tile.values, tile.gradients);
    Values gradients = getGradients(probabilities, products, kept, place);
    synchronizeRows();
    putScores(tile.scores, gradients);
    synchronizeRows();
    Values after = accumulate(tile.scores, tile.queries, before.take_front(ofKeys));
    after.append(values);
    return after;
  };
  int64_t queryHeads = heads / groups;
  Values parts =
      loop(integer(0), integer(queryHeads), 1, zeros, [&](Value number, ValueRange before) {
        Value queryHead = add(multiply(keyHead, queryHeads), number);
        return loop(
            begin, integer(queries), tiles.columns, before, [&](Value firstQuery, ValueRange sums) {
              return addQueries(
                  {ofBatch, queryHead, firstQuery, firstKey, /*rowsAreQueries=*/false}, sums);
            });
      });
  MutableArrayRef<Value> all(parts);
  Value scale = repeat(number(call.getScale().getValueAsDouble()));
  for (Value &part : all.take_front(ofKeys))
    part = multiplyNumbers(part, scale);
  storeVectors(getView(getResult(1), call.getDkStrides(), keys, head), ofBatch, keyHead, firstKey,
               ValueRange(parts).take_front(ofKeys));
  storeVectors(getView(getResult(2), call.getDvStrides(), keys, value), ofBatch, keyHead, firstKey,
               ValueRange(parts).drop_front(ofKeys));
}

//===----------------------------------------------------------------------===//
// The gradient of a mask
//===----------------------------------------------------------------------===//

/// A block owns a tile of the gradient, and goes through all that shares it.
void AttentionEmitter::emitMaskGradient() {
  tile = addTiles(/*isBackward=*/true, /*rowsAreQueries=*/true);
  SmallVector<int64_t, 4> shape = getMaskShape(call);
  int64_t steps[] = {1, 1, tiles.rows, tiles.columns};
  int64_t extents[] = {batch, heads, queries, keys};
  SmallVector<Value, 4> owned(4);
  Value rest = block;
  for (int dim = 3; dim >= 0; --dim) {
    int64_t count = llvm::divideCeil(shape[dim], steps[dim]);
    owned[dim] = multiply(remainder(rest, count), steps[dim]);
    rest = divide(rest, count);
  }
  SmallVector<Value, 4> at = owned;
  auto visit = [&](auto &self, size_t dim, ValueRange before) -> Values {
    if (dim == at.size())
      return addMaskTile(before, {at[0], at[1], at[2], at[3], /*rowsAreQueries=*/true});
    if (call.getDmaskStrides()[dim])
      return self(self, dim + 1, before);
    return loop(integer(0), integer(extents[dim]), steps[dim], before,
                [&](Value index, ValueRange sums) {
                  at[dim] = index;
                  return self(self, dim + 1, sums);
                });
  };
  Values sums = visit(visit, 0, Values(getRows() * getColumns(), number(0)));
  storeMaskGradient(sums, {owned[0], owned[1], owned[2], owned[3], /*rowsAreQueries=*/true});
}

Values AttentionEmitter::addMaskTile(ValueRange before, const ScorePlace &place) {
  Value keyHead = getKeyHead(place.head);
  synchronizeBlock();
  fill(tile.queries, getQueries(), place.batch, place.head, place.firstQuery);
  fill(tile.gradients, getGradientView(), place.batch, place.head, place.firstQuery);
  fill(tile.keys, getKeys(), place.batch, keyHead, place.firstKey);
  fill(tile.values, getValues(), place.batch, keyHead, place.firstKey);
  synchronizeBlock();
  Values probabilities = getProbabilities(multiplyRows(tile.queries, tile.keys), place);
  Values products = multiplyRows(tile.gradients, tile.values);
  Values sums;
  Values gradients = getGradients(probabilities, products, drawKept(place), place);
  for (auto [sum, gradient] : llvm::zip_equal(before, gradients))
    sums.push_back(addNumbers(sum, gradient));
  return sums;
}

/// Sums over columns are those of a row's threads; sums over rows go through shared memory.
void AttentionEmitter::storeMaskGradient(Values sums, const ScorePlace &place) {
  ArrayRef<int64_t> strides = call.getDmaskStrides();
  bool sumsRows = strides[2] == 0, sumsColumns = strides[3] == 0;
  int64_t rows = getRows(), columns = getColumns();
  auto fold = [&](int64_t count, auto numberOfTerm) {
    Value sum = sums[numberOfTerm(0)];
    for (int64_t term = 1; term < count; ++term)
      sum = addNumbers(sum, sums[numberOfTerm(term)]);
    return sum;
  };
  if (sumsColumns) {
    Values folded;
    for (int64_t row = 0; row < rows; ++row)
      folded.push_back(sumOverRow(fold(columns, [&](int64_t i) { return row * columns + i; })));
    sums = folded;
    columns = 1;
  }
  Value owner = sumsColumns ? isBelow(x, 1) : isBelow(x, tiles.threadColumns);
  if (sumsRows) {
    Values folded;
    for (int64_t column = 0; column < columns; ++column)
      folded.push_back(fold(rows, [&](int64_t i) { return i * columns + column; }));
    for (int64_t column = 0; column < columns; ++column) {
      Value line = multiply(y, tile.scores.stride);
      store(getAddress(tile.scores.base, type, add(line, columnOf(column))), folded[column], bytes);
    }
    synchronizeBlock();
    sums.clear();
    for (int64_t column = 0; column < columns; ++column) {
      Value sum = number(0);
      for (int64_t line = 0; line < tiles.threadRows; ++line) {
        Value from = add(integer(line * tile.scores.stride), columnOf(column));
        sum = addNumbers(sum, load(getAddress(tile.scores.base, type, from), type, bytes));
      }
      sums.push_back(sum);
    }
    rows = 1;
    owner = arith::AndIOp::create(b, owner, isBelow(y, 1));
  }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      Value query = sumsRows ? integer(0) : add(place.firstQuery, rowOf(row));
      Value key = sumsColumns ? integer(0) : add(place.firstKey, columnOf(column));
      Value stores = arith::AndIOp::create(b, isBelow(query, queries), isBelow(key, keys));
      where(arith::AndIOp::create(b, owner, stores), [&] {
        Value offset = getOffset(strides, {place.batch, place.head, query, key});
        store(getAddress(getBuffer(getResult(3)), type, offset), sums[row * columns + column],
              bytes);
      });
    }
}
