//===- MatrixAttention.cpp - attention on tensor cores --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatrixAttention.h"

#include "memopt/Conversion/Core/Math/MathExpansion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;
using namespace mlir::memopt;

using Values = MatrixBlock::Values;

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

MatrixAttention::Vectors MatrixAttention::openVectors(const MatrixView &view, Value ofBatch,
                                                      Value ofHead, int64_t rows, int64_t buffers) {
  return {view, getHead(view, ofBatch, ofHead), MatrixBlock::addTile(rows, view.features, buffers)};
}

MatrixScorePlace MatrixAttention::openQueryRows() {
  int64_t count = llvm::divideCeil(queries, tiles.rows);
  Value ofHead = divide(block, count), number = remainder(block, count);
  if (call.getCausal())
    number = subtract(integer(count - 1), number);
  Value queryHead = remainder(ofHead, heads);
  return {divide(ofHead, heads),        queryHead,  divide(queryHead, heads / groups),
          multiply(number, tiles.rows), integer(0),
          /*rowsAreQueries=*/true};
}

Values MatrixAttention::forEachKeyTile(const MatrixScorePlace &place, const Vectors &ofKeys,
                                       const Vectors &ofValues, ValueRange carried, TileFn body) {
  Value end = integer(keys);
  if (call.getCausal())
    end = smaller(add(place.firstRow, tiles.rows), keys);
  auto fetchBoth = [&](Value buffer, Value firstKey) {
    fetch(ofKeys, buffer, firstKey);
    fetch(ofValues, buffer, firstKey);
  };
  fetchBoth(integer(0), integer(0));
  Values all{integer(0)};
  llvm::append_range(all, carried);
  auto compute = [&](Value firstKey, ValueRange before) {
    Value buffer = before.front(), next = add(firstKey, tiles.columns);
    Value other = subtract(integer(1), buffer);
    // The tile is there for all, and nobody reads the one before.
    awaitCopies();
    synchronizeBlock();
    where(isBelow(next, end), [&] { fetchBoth(other, next); });
    MatrixScorePlace here = place;
    here.firstColumn = firstKey;
    Values after{other};
    after.append(body(here, buffer, before.drop_front()));
    return after;
  };
  Values ends = loop(integer(0), end, tiles.columns, all, compute);
  ends.erase(ends.begin());
  return ends;
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

/// As long as nothing is visible all differences are to be minus infinity, not none.
Value MatrixAttention::replaceBlind(Value maximum, Value lowest) {
  Value isBlind = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, maximum, lowest);
  return select(isBlind, number(0), maximum);
}

void MatrixAttention::emitForward() {
  MatrixScorePlace place = openQueryRows();
  Vectors ofQueries = openVectors(getQueries(), place.batch, place.head, tiles.rows, 1);
  Vectors ofKeys = openVectors(getKeys(), place.batch, place.keyHead, tiles.columns, 2);
  Vectors ofValues = openVectors(getValues(), place.batch, place.keyHead, tiles.columns, 2);
  fetch(ofQueries, Value(), place.firstRow);
  // Maxima, sums and vectors of the thread's rows.
  Values carried(getRowCount(), number(-std::numeric_limits<double>::infinity()));
  carried.append(getRowCount(), number(0));
  carried.append(getZeros(value));
  Values ends = forEachKeyTile(place, ofKeys, ofValues, carried,
                               [&](const MatrixScorePlace &here, Value buffer, ValueRange before) {
                                 KeptScores kept = drawKept(here);
                                 Values scores = multiplyRows(ofQueries.tile, ofKeys.tile, buffer);
                                 return addTile(before, hide(getScores(scores, here), here), kept,
                                                ofValues, buffer);
                               });
  finish(ends, place);
}

/// Scores become probabilities against a score that is the largest so far, or less than it by a
/// factor that neither sums nor rounded probabilities mind. So what was summed before is brought to a
/// larger score in the first tiles, and seldom in later ones: all rows of the warp, or none. Sums stay
/// those of a thread until the end.
Values MatrixAttention::addTile(ValueRange before, Values scores, const KeptScores &kept,
                                const Vectors &ofValues, Value buffer) {
  constexpr double mostPowers = 8;
  Value lowest = number(-std::numeric_limits<double>::infinity());
  auto rows = static_cast<size_t>(getRowCount());
  Values largest(rows);
  forEach(tiles.columns, [&](const MatrixPlace &at) {
    Value &sofar = largest[at.getRowNumber()];
    Value score = scores[getNumber(at, tiles.columns)];
    sofar = sofar ? larger(sofar, score) : score;
  });
  Value isLarger;
  for (auto [maximum, ofTile] : llvm::zip(before, largest)) {
    ofTile = larger(maximum, maximumOverRow(ofTile));
    Value powers = multiplyNumbers(toLogarithm(subtractNumbers(ofTile, maximum)), number(kLog2OfE));
    Value isFar = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, powers, number(mostPowers));
    isLarger = isLarger ? arith::OrIOp::create(b, isLarger, isFar).getResult() : isFar;
  }
  auto rescale = [&] {
    Values scaled(before), factors;
    for (size_t row = 0; row < rows; ++row) {
      factors.push_back(exponentiate(before[row], prepare(replaceBlind(largest[row], lowest))));
      scaled[row] = largest[row];
      scaled[rows + row] = multiplyNumbers(before[rows + row], factors[row]);
    }
    forEach(value, [&](const MatrixPlace &at) {
      Value &part = scaled[2 * rows + getNumber(at, value)];
      part = multiplyNumbers(part, factors[at.getRowNumber()]);
    });
    return scaled;
  };
  Value isAny = ops.isAny(b, getWholeWarp(), isLarger);
  Values after = choose(isAny, before.getTypes(), rescale, [&] { return Values(before); });
  MutableArrayRef<Value> sums = MutableArrayRef(after).slice(rows, rows);
  MutableArrayRef<Value> parts = MutableArrayRef(after).drop_front(2 * rows);
  Values subtracted;
  for (Value maximum : ArrayRef(after).take_front(rows))
    subtracted.push_back(prepare(replaceBlind(maximum, lowest)));
  forEach(tiles.columns, [&](const MatrixPlace &at) {
    Value &score = scores[getNumber(at, tiles.columns)], &sum = sums[at.getRowNumber()];
    Value probability = exponentiate(score, subtracted[at.getRowNumber()]);
    sum = addNumbers(sum, probability);
    score = drop(probability, kept, at);
  });
  llvm::copy(accumulate(parts, scores, ofValues.tile, buffer), parts.begin());
  return after;
}

/// A query that sees nothing gets zeros, and a logarithm that gives zero gradients.
void MatrixAttention::finish(ValueRange ends, const MatrixScorePlace &place) {
  Values factors;
  Value ofQueries = getOfQueries(firstOut + 1, place);
  for (int64_t row = 0; row < getRowCount(); ++row) {
    Value sum = sumOverRow(ends[getRowCount() + row]);
    Value isBlind = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, number(0));
    factors.push_back(
        arith::DivFOp::create(b, number(getKeepFactor()), select(isBlind, number(1), sum)));
    Value logarithm =
        expandMath(b, b.getLoc(), OperationName("math.log", b.getContext()), type, sum);
    logarithm = addNumbers(toLogarithm(ends[row]), logarithm);
    logarithm = select(isBlind, number(std::numeric_limits<double>::infinity()), logarithm);
    Value query = add(place.firstRow, getRow({row / 2, row % 2, 0, 0}));
    Value isFirst = isBelow(remainder(lane, 4), 1);
    where(both(isFirst, isBelow(query, queries)),
          [&] { store(getAddress(ofQueries, type, widen(query)), logarithm, 4); });
  }
  MatrixView output = getOutput();
  storeRows(output, getHead(output, place.batch, place.head), place.firstRow,
            ends.drop_front(2 * getRowCount()), factors);
}
