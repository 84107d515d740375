//===- MatrixGradients.cpp - gradients of attention on tensor cores -------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatrixAttention.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::memopt;

using Values = MatrixBlock::Values;

/// Bytes of a logarithm, or of a delta.
static constexpr int64_t kNumberBytes = 4;

/// Of scores. `products`: those of values and the result's gradient.
Values MatrixAttention::getGradients(ValueRange probabilities, ValueRange products,
                                     const KeptScores &kept,
                                     llvm::function_ref<Value(const MatrixPlace &)> getDelta) {
  Values gradients;
  forEach(tiles.columns, [&](const MatrixPlace &at) {
    size_t place = gradients.size();
    Value product = products[place];
    if (!kept.empty())
      product = drop(multiplyNumbers(product, number(getKeepFactor())), kept, at);
    gradients.push_back(
        multiplyNumbers(probabilities[place], subtractNumbers(product, getDelta(at))));
  });
  return gradients;
}

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

/// The four threads of a row share its features, two of eight at a time.
Value MatrixAttention::sumProducts(const MatrixPlace &at, Value out, Value gradient) {
  auto pair = VectorType::get({2}, element);
  Values sum = loop(ofColumn, integer(value), 8, number(0), [&](Value feature, ValueRange before) {
    auto read = [&](Value from) {
      return load(getAddress(from, element, widen(feature)), pair, kNumberBytes);
    };
    Value left = read(out), right = read(gradient), all = before.front();
    for (int64_t lane = 0; lane < 2; ++lane)
      all = multiplyAdd(toNumber(vector::ExtractOp::create(b, left, lane)),
                        toNumber(vector::ExtractOp::create(b, right, lane)), all);
    return Values{all};
  });
  return sumOverRow(sum.front());
}

/// What the gradients of a row's probabilities have in common: the sum over j of p_j dp_j, which is
/// that over the features of out and its gradient.
MatrixAttention::OfRows MatrixAttention::openDeltas(const MatrixScorePlace &place) {
  OfRows rows;
  MatrixView output = getOutput(), gradient = getGradient();
  Value ofOutput = getHead(output, place.batch, place.head);
  Value ofGradient = getHead(gradient, place.batch, place.head);
  Value logarithms = getOfQueries(firstOut + 1, place),
        deltas = getOfQueries(getWorkspace(), place);
  for (int64_t row = 0; row < getRowCount(); ++row) {
    MatrixPlace at{row / 2, row % 2, 0, 0};
    Value query = add(place.firstRow, getRow(at)), there = smaller(query, queries - 1);
    Value delta =
        sumProducts(at, getToken(output, ofOutput, there), getToken(gradient, ofGradient, there));
    Value isFirst = isBelow(remainder(lane, 4), 1);
    where(both(isFirst, isBelow(query, queries)),
          [&] { store(getAddress(deltas, type, widen(query)), delta, kNumberBytes); });
    rows.deltas.push_back(delta);
    rows.logarithms.push_back(
        prepareLogarithm(load(getAddress(logarithms, type, widen(there)), type, kNumberBytes)));
  }
  return rows;
}

void MatrixAttention::emitQueryGradient() {
  MatrixScorePlace place = openQueryRows();
  Vectors ofQueries = openVectors(getQueries(), place.batch, place.head, tiles.rows, 1);
  Vectors ofGradients = openVectors(getGradient(), place.batch, place.head, tiles.rows, 1);
  Vectors ofKeys = openVectors(getKeys(), place.batch, place.keyHead, tiles.columns, 2);
  Vectors ofValues = openVectors(getValues(), place.batch, place.keyHead, tiles.columns, 2);
  fetch(ofQueries, Value(), place.firstRow);
  fetch(ofGradients, Value(), place.firstRow);
  OfRows rows = openDeltas(place);
  Values sums =
      forEachKeyTile(place, ofKeys, ofValues, getZeros(head),
                     [&](const MatrixScorePlace &here, Value buffer, ValueRange before) {
                       KeptScores kept = drawKept(here);
                       Values scores = multiplyRows(ofQueries.tile, ofKeys.tile, buffer);
                       scores = hide(getScores(scores, here), here);
                       forEach(tiles.columns, [&](const MatrixPlace &at) {
                         Value &score = scores[getNumber(at, tiles.columns)];
                         score = exponentiate(score, rows.logarithms[at.getRowNumber()]);
                       });
                       Values products = multiplyRows(ofGradients.tile, ofValues.tile, buffer);
                       scores = getGradients(scores, products, kept, [&](const MatrixPlace &at) {
                         return rows.deltas[at.getRowNumber()];
                       });
                       return accumulate(before, scores, ofKeys.tile, buffer);
                     });
  MatrixView result = getView(getResult(0), call.getDqStrides(), queries, head);
  Values factors(getRowCount(), number(call.getScale().getValueAsDouble()));
  storeRows(result, getHead(result, place.batch, place.head), place.firstRow, sums, factors);
}

//===----------------------------------------------------------------------===//
// Keys and values
//===----------------------------------------------------------------------===//

/// Zeros stand for the numbers of queries that are not there.
void MatrixAttention::fetchQueries(const QueryBuffers &buffers, MatrixScorePlace place,
                                   const QueryTile &tile, Value buffer) {
  place.head = tile.head;
  for (Vectors vectors : {buffers.queries, buffers.gradients}) {
    vectors.ofHead = getHead(vectors.view, place.batch, tile.head);
    fetch(vectors, buffer, tile.first);
  }
  auto global = LLVM::LLVMPointerType::get(b.getContext(), ops.getGlobalSpace());
  Value begin = add(multiply(buffer, 2 * tiles.columns * kNumberBytes), buffers.numbers);
  for (unsigned kind = 0; kind < 2; ++kind) {
    Value numbers = getOfQueries(kind ? getWorkspace() : firstOut + 1, place);
    for (int64_t done = 0; done < tiles.columns; done += tiles.getThreads()) {
      Value column = add(thread, done), query = add(tile.first, column);
      bool isAll = done + tiles.getThreads() <= tiles.columns;
      where(isAll ? Value() : isBelow(column, tiles.columns), [&] {
        Value valid = select(isBelow(query, queries), integer(kNumberBytes), integer(0));
        Value from = getAddress(numbers, type, widen(smaller(query, queries - 1)));
        Value to = add(begin, multiply(add(column, kind * tiles.columns), kNumberBytes));
        ops.copyAhead(b, getShared(to), LLVM::AddrSpaceCastOp::create(b, global, from),
                      kNumberBytes, valid);
      });
    }
  }
}

/// `before`: sums of dk, then of dv.
Values MatrixAttention::addQueries(ValueRange before, const MatrixScorePlace &place,
                                   const Vectors &ofKeys, const Vectors &ofValues,
                                   const QueryBuffers &buffers, Value buffer) {
  size_t ofDk = getZeros(head).size();
  Value begin = add(multiply(buffer, 2 * tiles.columns * kNumberBytes), buffers.numbers);
  begin = add(begin, multiply(ofColumn, kNumberBytes));
  auto readPair = [&](int64_t kind, int64_t column) {
    Value from = getShared(add(begin, (kind * tiles.columns + column * 8) * kNumberBytes));
    return load(from, VectorType::get({2}, type), 2 * kNumberBytes);
  };
  auto pick = [&](ArrayRef<Value> pairs, const MatrixPlace &at) -> Value {
    return vector::ExtractOp::create(b, pairs[at.column], at.parity);
  };
  KeptScores kept = drawKept(place);
  Values scores = multiplyRows(ofKeys.tile, buffers.queries.tile, buffer), logarithms, deltas;
  for (int64_t column = 0; column < tiles.columns / 8; ++column)
    logarithms.push_back(readPair(0, column));
  scores = hide(getScores(scores, place), place);
  Values dropped;
  forEach(tiles.columns, [&](const MatrixPlace &at) {
    Value &score = scores[getNumber(at, tiles.columns)];
    score = exponentiate(score, prepareLogarithm(pick(logarithms, at)));
    dropped.push_back(score);
  });
  forEach(tiles.columns, [&](const MatrixPlace &at) {
    Value &score = dropped[getNumber(at, tiles.columns)];
    score = drop(score, kept, at);
  });
  Values ofResults = accumulate(before.drop_front(ofDk), dropped, buffers.gradients.tile, buffer);
  Values products = multiplyRows(ofValues.tile, buffers.gradients.tile, buffer);
  for (int64_t column = 0; column < tiles.columns / 8; ++column)
    deltas.push_back(readPair(1, column));
  scores =
      getGradients(scores, products, kept, [&](const MatrixPlace &at) { return pick(deltas, at); });
  Values after = accumulate(before.take_front(ofDk), scores, buffers.queries.tile, buffer);
  after.append(ofResults);
  return after;
}

/// All heads of queries that a head of keys has, one after the other, and their tiles of queries from
/// the first that sees one of the block's keys on.
void MatrixAttention::emitKeyGradient() {
  int64_t count = llvm::divideCeil(keys, tiles.rows), share = heads / groups;
  Value ofHead = divide(block, count), ofBatch = divide(ofHead, groups);
  Value keyHead = remainder(ofHead, groups), firstHead = multiply(keyHead, share);
  Value firstKey = multiply(remainder(block, count), tiles.rows);
  MatrixScorePlace place{ofBatch,
                         firstHead,
                         keyHead,
                         firstKey,
                         integer(0),
                         /*rowsAreQueries=*/false};
  Vectors ofKeys = openVectors(getKeys(), ofBatch, keyHead, tiles.rows, 1);
  Vectors ofValues = openVectors(getValues(), ofBatch, keyHead, tiles.rows, 1);
  QueryBuffers buffers{openVectors(getQueries(), ofBatch, firstHead, tiles.columns, 2),
                       openVectors(getGradient(), ofBatch, firstHead, tiles.columns, 2),
                       addBytes(2 * 2 * tiles.columns * kNumberBytes)};
  Value begin = integer(0);
  if (call.getCausal())
    begin = multiply(divide(firstKey, tiles.columns), tiles.columns);
  fetch(ofKeys, Value(), firstKey);
  fetch(ofValues, Value(), firstKey);
  // Keys behind the last query are seen by none.
  bool isSeen = !call.getCausal() || keys <= queries;
  where(isSeen ? Value() : isBelow(begin, queries),
        [&] { fetchQueries(buffers, place, {firstHead, begin}, integer(0)); });
  Values carried{integer(0)};
  carried.append(getZeros(head));
  carried.append(getZeros(value));
  Value end = add(firstHead, share);
  auto addTile = [&](Value queryHead, Value firstQuery, ValueRange before) {
    Value buffer = before.front(), other = subtract(integer(1), buffer);
    Value next = add(firstQuery, tiles.columns), isLast = isBelow(integer(queries - 1), next);
    Value nextHead = select(isLast, add(queryHead, 1), queryHead);
    Value nextQuery = select(isLast, begin, next);
    awaitCopies();
    synchronizeBlock();
    where(isBelow(nextHead, end),
          [&] { fetchQueries(buffers, place, {nextHead, nextQuery}, other); });
    MatrixScorePlace here = place;
    here.head = queryHead;
    here.firstColumn = firstQuery;
    Values after{other};
    after.append(addQueries(before.drop_front(), here, ofKeys, ofValues, buffers, buffer));
    return after;
  };
  Values ends = loop(firstHead, end, 1, carried, [&](Value queryHead, ValueRange before) {
    return loop(
        begin, integer(queries), tiles.columns, before,
        [&](Value firstQuery, ValueRange sums) { return addTile(queryHead, firstQuery, sums); });
  });
  ValueRange sums = ValueRange(ends).drop_front();
  size_t ofDk = getZeros(head).size();
  auto storeSums = [&](unsigned result, ArrayRef<int64_t> strides, ValueRange parts,
                       double factor) {
    MatrixView view = getView(getResult(result), strides, keys,
                              static_cast<int64_t>(parts.size()) * 2 / getMatrices());
    storeRows(view, getHead(view, ofBatch, keyHead), firstKey, parts,
              Values(getRowCount(), number(factor)));
  };
  storeSums(1, call.getDkStrides(), sums.take_front(ofDk), call.getScale().getValueAsDouble());
  storeSums(2, call.getDvStrides(), sums.drop_front(ofDk), getKeepFactor());
}
