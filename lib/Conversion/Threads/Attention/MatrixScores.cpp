//===- MatrixScores.cpp - scores of 16-bit vectors ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatrixScores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;
using namespace mlir::memopt;

using Values = MatrixBlock::Values;

MatrixScores::MatrixScores(OpBuilder &builder, Location location, AttentionAttr call,
                           const MatrixTiles &tiles, const AttentionArguments &arguments)
    : CallBlock(builder, location, call, tiles, call.getType(), arguments) {}

static Value wide(ImplicitLocOpBuilder &b, int64_t number) {
  return arith::ConstantOp::create(b, b.getI64IntegerAttr(number));
}

Value MatrixScores::getOfQueries(unsigned buffer, const MatrixScorePlace &place) {
  Value row = add(multiply(place.batch, heads), place.head);
  return getAddress(buffers[buffer], type, arith::MulIOp::create(b, widen(row), wide(b, queries)));
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

Value MatrixScores::getQuery(const MatrixScorePlace &place, const MatrixPlace &at) {
  return place.rowsAreQueries ? add(place.firstRow, getRow(at))
                              : add(place.firstColumn, getColumn(at));
}
Value MatrixScores::getKey(const MatrixScorePlace &place, const MatrixPlace &at) {
  return place.rowsAreQueries ? add(place.firstColumn, getColumn(at))
                              : add(place.firstRow, getRow(at));
}

/// Of what is beyond the last token the last one's is read.
Value MatrixScores::loadMask(const MatrixScorePlace &place, const MatrixPlace &at, Type stored) {
  Value indices[] = {place.batch, place.head, smaller(getQuery(place, at), queries - 1),
                     smaller(getKey(place, at), keys - 1)};
  Value offset;
  for (auto [index, stride] : llvm::zip_equal(indices, call.getMaskStrides())) {
    if (stride == 0)
      continue;
    Value part = arith::MulIOp::create(b, widen(index), wide(b, stride));
    offset = offset ? arith::AddIOp::create(b, offset, part).getResult() : part;
  }
  Value from = offset ? getAddress(buffers[kMaskBuffer], stored, offset) : buffers[kMaskBuffer];
  return load(from, stored, stored.getIntOrFloatBitWidth() / 8);
}

Values MatrixScores::getScores(Values products, const MatrixScorePlace &place) {
  if (isScaledLate())
    return products;
  Value scale = number(call.getScale().getValueAsDouble());
  Values scores;
  forEach(tiles.columns, [&](const MatrixPlace &at) {
    Value product = products[scores.size()];
    scores.push_back(hasNumbers()
                         ? multiplyAdd(product, scale, loadMask(place, at, call.getMaskType()))
                         : multiplyNumbers(product, scale));
  });
  return scores;
}

Value MatrixScores::toLogarithm(Value score) {
  return isScaledLate() ? multiplyNumbers(score, number(call.getScale().getValueAsDouble()))
                        : score;
}
/// A mask may hide by the lowest of all numbers, which has no product with a factor above 1: then
/// differences come first.
Value MatrixScores::prepare(Value subtracted) {
  if (!isScaledLate())
    return subtracted;
  return multiplyNumbers(subtracted, number(-call.getScale().getValueAsDouble() * kLog2OfE));
}
Value MatrixScores::prepareLogarithm(Value subtracted) {
  return isScaledLate() ? multiplyNumbers(subtracted, number(-kLog2OfE)) : subtracted;
}
Value MatrixScores::exponentiate(Value score, Value prepared) {
  Value power =
      isScaledLate()
          ? multiplyAdd(score, number(call.getScale().getValueAsDouble() * kLog2OfE), prepared)
          : multiplyNumbers(subtractNumbers(score, prepared), number(kLog2OfE));
  return ops.exponentiate(b, power);
}

//===----------------------------------------------------------------------===//
// What takes part
//===----------------------------------------------------------------------===//

/// Vectors behind the last token are zeros, and so are the logarithm and the sum of a query that is
/// not there: the products that it takes part in are zeros, unless a mask adds to its scores.
bool MatrixScores::cutsKeys(const MatrixScorePlace &place) const {
  return place.rowsAreQueries ? keys % tiles.columns != 0
                              : hasNumbers() && queries % tiles.columns != 0;
}

Value MatrixScores::isVisible(const MatrixScorePlace &place, const MatrixPlace &at) {
  Value visible;
  if (cutsKeys(place))
    visible = isBelow(add(place.firstColumn, getColumn(at)), place.rowsAreQueries ? keys : queries);
  if (call.getCausal())
    visible = both(visible, arith::CmpIOp::create(b, arith::CmpIPredicate::sle, getKey(place, at),
                                                  getQuery(place, at)));
  if (hasBits()) {
    Value stored = loadMask(place, at, b.getI8Type());
    Value zero = arith::ConstantOp::create(b, b.getI8IntegerAttr(0));
    visible = both(visible, arith::CmpIOp::create(b, arith::CmpIPredicate::ne, stored, zero));
  }
  return visible;
}

/// Whether all scores of the warp take part by their place alone; null where they always do.
Value MatrixScores::isWhole(const MatrixScorePlace &place) {
  Value whole;
  Value end = add(place.firstColumn, tiles.columns);
  if (cutsKeys(place))
    whole = isBelow(end, (place.rowsAreQueries ? keys : queries) + 1);
  if (call.getCausal()) {
    Value first = add(place.firstRow, multiply(warp, tiles.getRowsOfWarp()));
    // The last key is no larger than the first query.
    whole = both(whole, place.rowsAreQueries ? isBelow(end, add(first, 2))
                                             : isBelow(add(first, tiles.getRowsOfWarp()),
                                                       add(place.firstColumn, 2)));
  }
  return whole;
}

Values MatrixScores::hide(Values scores, const MatrixScorePlace &place) {
  Value lowest = number(-std::numeric_limits<double>::infinity());
  auto hideEach = [&] {
    Values hidden;
    forEach(tiles.columns, [&](const MatrixPlace &at) {
      hidden.push_back(select(isVisible(place, at), scores[hidden.size()], lowest));
    });
    return hidden;
  };
  if (hasBits())
    return hideEach();
  Value whole = isWhole(place);
  if (!whole)
    return scores;
  return choose(whole, TypeRange(ValueRange(scores)), [&] { return scores; }, hideEach);
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

double MatrixScores::getKeepFactor() const {
  double dropped = call.getDropout() ? call.getDropout().getValueAsDouble() : 0;
  return dropped < 1 ? 1 / (1 - dropped) : 0;
}

/// The score's among all of the call, or of the whole step.
Value MatrixScores::getScoreNumber(const MatrixScorePlace &place, Value query, Value key) {
  Value row = widen(add(multiply(place.batch, heads), place.head));
  row = arith::AddIOp::create(b, arith::MulIOp::create(b, row, wide(b, queries)), widen(query));
  Value number = arith::AddIOp::create(b, arith::MulIOp::create(b, row, wide(b, keys)), widen(key));
  return firstScore ? arith::AddIOp::create(b, number, firstScore).getResult() : number;
}

/// What `draw` gives for `count` parts of a tile, `bits` of each, one after the other in a loop: side
/// by side they would take all registers, and most of the kernel's code.
Value MatrixScores::drawBits(int64_t count, int64_t bits, DrawFn draw) {
  auto addBits = [&](Value part, ValueRange before) {
    Value drawn = arith::ShLIOp::create(b, draw(part), multiply(part, bits));
    return Values{arith::OrIOp::create(b, before.front(), drawn)};
  };
  return loop(integer(0), integer(count), 1, integer(0), addBits).front();
}

/// A bit for each word of a counter.
Value MatrixScores::drawFour(Value counter, Value threshold) {
  Value bits;
  for (auto [number, word] : llvm::enumerate(createRandomWords(b, random, counter))) {
    Value kept = arith::CmpIOp::create(b, arith::CmpIPredicate::uge, word, threshold);
    Value bit = select(kept, integer(int64_t(1) << number), integer(0));
    bits = bits ? arith::OrIOp::create(b, bits, bit).getResult() : bit;
  }
  return bits;
}

/// Four keys that follow each other have one counter. They belong to two threads, which have the
/// same two queries: each draws for one of them.
std::array<Value, 4> MatrixScores::drawOfQueries(const MatrixScorePlace &place, int64_t matrix,
                                                 Value threshold) {
  Value odd = remainder(lane, 2);
  Value query = add(add(place.firstRow, getRow({matrix, 0, 0, 0})), multiply(odd, 8));
  Value four = multiply(divide(remainder(lane, 4), 2), 4);
  Value counter = arith::ShRUIOp::create(
      b, getScoreNumber(place, query, add(place.firstColumn, four)), wide(b, 2));
  Value own = drawBits(tiles.columns / 8, 4, [&](Value column) {
    return drawFour(arith::AddIOp::create(b, counter, widen(multiply(column, 2))), threshold);
  });
  Value other = shuffle(own, 1), isOdd = isBelow(integer(0), odd);
  std::array<Value, 4> words;
  for (int64_t half = 0; half < 2; ++half) {
    Value ofHalf = half ? select(isOdd, own, other) : select(isOdd, other, own);
    ofHalf = shiftRight(ofHalf, multiply(odd, 2));
    for (int64_t parity = 0; parity < 2; ++parity)
      words[half * 2 + parity] = shiftRight(ofHalf, integer(parity));
  }
  return words;
}

/// Four keys belong to four threads, which have four of their scores each, of two queries: each
/// draws for one half and parity.
std::array<Value, 4> MatrixScores::drawOfKeys(const MatrixScorePlace &place, int64_t matrix,
                                              Value threshold) {
  Value owned = remainder(divide(lane, 4), 4);
  Value key = add(place.firstRow, multiply(warp, tiles.getRowsOfWarp()));
  key = add(add(key, matrix * 16), multiply(divide(owned, 2), 8));
  key = add(key, multiply(divide(lane, 16), 4));
  Value query = add(place.firstColumn, add(ofColumn, remainder(owned, 2)));
  Value counter = arith::ShRUIOp::create(b, getScoreNumber(place, query, key), wide(b, 2));
  Value own = drawBits(tiles.columns / 8, 4, [&](Value column) {
    Value further = arith::MulIOp::create(b, widen(column), wide(b, keys * 2));
    return drawFour(arith::AddIOp::create(b, counter, further), threshold);
  });
  Value all[] = {own, shuffle(own, 4), shuffle(own, 8), shuffle(own, 12)};
  Value isOdd = isBelow(integer(0), remainder(owned, 2)), isHigh = isBelow(integer(1), owned);
  std::array<Value, 4> words;
  for (unsigned word = 0; word < 4; ++word) {
    // What thread `word` has drawn came from across the distance between the two.
    auto pick = [&](unsigned high) {
      return select(isOdd, all[high | ((word & 1) ^ 1)], all[high | (word & 1)]);
    };
    unsigned high = word & 2;
    words[word] = shiftRight(select(isHigh, pick(high ^ 2), pick(high)), owned);
  }
  return words;
}

/// Where lines of scores begin in the middle of a counter.
std::array<Value, 4> MatrixScores::drawEach(const MatrixScorePlace &place, int64_t matrix,
                                            Value threshold) {
  Value own = drawBits(tiles.columns / 2, 1, [&](Value part) {
    Value word = remainder(part, 4);
    Value row = add(getRow({matrix, 0, 0, 0}), multiply(divide(word, 2), 8));
    Value column = add(add(ofColumn, multiply(divide(part, 4), 8)), remainder(word, 2));
    row = add(place.firstRow, row);
    column = add(place.firstColumn, column);
    Value number = place.rowsAreQueries ? getScoreNumber(place, row, column)
                                        : getScoreNumber(place, column, row);
    Value kept = arith::CmpIOp::create(b, arith::CmpIPredicate::uge,
                                       createRandomWord(b, random, number), threshold);
    return select(kept, integer(1), integer(0));
  });
  std::array<Value, 4> words;
  for (int64_t word = 0; word < 4; ++word)
    words[word] = shiftRight(own, integer(word));
  return words;
}

KeptScores MatrixScores::drawKept(const MatrixScorePlace &place) {
  if (!call.getDropout())
    return {};
  std::optional<uint32_t> threshold = getDropoutThreshold(call.getDropout().getValueAsDouble());
  KeptScores kept(getMatrices());
  for (auto [matrix, words] : llvm::enumerate(kept)) {
    auto number = static_cast<int64_t>(matrix);
    if (!threshold)
      words.fill(integer(0));
    else if (keys % 4)
      words = drawEach(place, number, integer(*threshold));
    else if (place.rowsAreQueries)
      words = drawOfQueries(place, number, integer(*threshold));
    else
      words = drawOfKeys(place, number, integer(*threshold));
  }
  return kept;
}

Value MatrixScores::drop(Value whole, const KeptScores &kept, const MatrixPlace &at) {
  if (kept.empty())
    return whole;
  Value word = kept[at.matrix][at.half * 2 + at.parity];
  Value bit = arith::AndIOp::create(b, word, integer(int64_t(1) << (4 * at.column)));
  Value isKept = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, bit, integer(0));
  return select(isKept, whole, number(0));
}
