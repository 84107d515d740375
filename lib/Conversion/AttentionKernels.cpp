//===- AttentionKernels.cpp - attention on a device -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionKernels.h"

#include "AttentionScores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;
using namespace mlir::memopt;

using Values = AttentionBlock::Values;

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// Rows of tiles are keys, all others queries.
static bool ownsKeys(AttentionStage stage) { return stage == AttentionStage::KeyGradient; }

/// Sizes of a mask's gradient; 1 where it is summed up.
static SmallVector<int64_t, 4> getMaskShape(AttentionAttr call) {
  SmallVector<int64_t, 4> shape{call.getBatch(), call.getHeads(), call.getQueryLength(),
                                call.getKeyLength()};
  for (auto [size, stride] : llvm::zip_equal(shape, call.getDmaskStrides()))
    if (stride == 0)
      size = 1;
  return shape;
}

static int64_t countBlocks(AttentionAttr call, AttentionStage stage, const AttentionTiles &tiles) {
  if (stage == AttentionStage::MaskGradient) {
    SmallVector<int64_t, 4> shape = getMaskShape(call);
    return shape[0] * shape[1] * llvm::divideCeil(shape[2], tiles.rows) *
           llvm::divideCeil(shape[3], tiles.columns);
  }
  if (ownsKeys(stage))
    return call.getBatch() * call.getKvHeads() * llvm::divideCeil(call.getKeyLength(), tiles.rows);
  return call.getBatch() * call.getHeads() * llvm::divideCeil(call.getQueryLength(), tiles.rows);
}

SmallVector<AttentionKernel> mlir::memopt::listAttentionKernels(AttentionAttr call) {
  SmallVector<AttentionStage> stages{AttentionStage::Forward};
  bool isBackward = call.getKind() == AttentionKind::Backward;
  if (isBackward) // the first leaves in the workspace what the others need
    stages = {AttentionStage::QueryGradient, AttentionStage::KeyGradient};
  if (!call.getDmaskStrides().empty())
    stages.push_back(AttentionStage::MaskGradient);
  SmallVector<AttentionKernel> kernels;
  for (AttentionStage stage : stages) {
    int64_t rows = call.getQueryLength(), columns = call.getKeyLength();
    if (ownsKeys(stage))
      std::swap(rows, columns);
    std::optional<AttentionTiles> tiles =
        chooseAttentionTiles(AttentionHeads::of(call), rows, columns, isBackward);
    if (!tiles)
      return {};
    kernels.push_back({stage, *tiles, countBlocks(call, stage, *tiles)});
  }
  return kernels;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {
class AttentionEmitter : public AttentionScores {
public:
  using AttentionScores::AttentionScores;

  void emitForward();
  void emitQueryGradient();
  void emitKeyGradient();
  void emitMaskGradient();

private:
  // Forward.
  struct Sums {
    MutableArrayRef<Value> maxima, sums, parts; ///< of this thread's rows, and vectors
  };
  void addTile(const Sums &sums, Values &scores, const ScorePlace &place);
  void finish(const Sums &sums, const ScorePlace &place);

  // Backward.
  void writeDeltas(const SharedTile &gradients, const ScorePlace &place);
  Values addMaskTile(ValueRange before, const ScorePlace &place);
  void storeMaskGradient(Values sums, const ScorePlace &place);

  /// The block's rows of one head. Heads follow each other, so that blocks with most work, the last
  /// under a causal mask, begin first.
  ScorePlace openQueryRows();
  /// Where the keys end that rows from `first` on see.
  Value getKeyEnd(Value firstQuery);

  struct Tiles {
    SharedTile queries, keys, values, gradients, scores;
  };
  Tiles addTiles(bool isBackward, bool rowsAreQueries);
  VectorView getGradientView() {
    return getView(firstOut + 2, call.getDoStrides(), queries, value);
  }
  unsigned getResult(unsigned number) const { return firstOut + 3 + number; }

  Tiles tile;
};
} // namespace

AttentionEmitter::Tiles AttentionEmitter::addTiles(bool isBackward, bool rowsAreQueries) {
  int64_t ofQueries = rowsAreQueries ? tiles.rows : tiles.columns;
  int64_t ofKeys = rowsAreQueries ? tiles.columns : tiles.rows;
  Tiles made{};
  made.queries = AttentionBlock::addTile(ofQueries, head, tiles.headLine);
  made.keys = AttentionBlock::addTile(ofKeys, head, tiles.headLine);
  made.values = AttentionBlock::addTile(ofKeys, value, tiles.valueLine);
  if (isBackward)
    made.gradients = AttentionBlock::addTile(ofQueries, value, tiles.valueLine);
  made.scores = AttentionBlock::addTile(tiles.rows, tiles.columns, tiles.line);
  return made;
}

ScorePlace AttentionEmitter::openQueryRows() {
  Value ofHead = remainder(block, batch * heads), number = divide(block, batch * heads);
  int64_t count = llvm::divideCeil(queries, tiles.rows);
  if (call.getCausal())
    number = arith::SubIOp::create(b, integer(count - 1), number);
  return {divide(ofHead, heads), remainder(ofHead, heads), multiply(number, tiles.rows), integer(0),
          /*rowsAreQueries=*/true};
}

Value AttentionEmitter::getKeyEnd(Value firstQuery) {
  return call.getCausal() ? smaller(add(firstQuery, tiles.rows), keys) : integer(keys);
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

void AttentionEmitter::emitForward() {
  tile = addTiles(/*isBackward=*/false, /*rowsAreQueries=*/true);
  ScorePlace place = openQueryRows();
  Value keyHead = getKeyHead(place.head);
  fill(tile.queries, getQueries(), place.batch, place.head, place.firstQuery);
  auto rows = static_cast<size_t>(getRows());
  Values carried(rows, number(-std::numeric_limits<double>::infinity()));
  carried.append(rows, number(0));
  carried.append(getZeros(value));
  auto split = [&](Values &all) {
    MutableArrayRef<Value> whole(all);
    return Sums{whole.take_front(rows), whole.slice(rows, rows), whole.drop_front(2 * rows)};
  };
  Values ends = loop(integer(0), getKeyEnd(place.firstQuery), tiles.columns, carried,
                     [&](Value firstKey, ValueRange before) {
                       synchronizeBlock();
                       fill(tile.keys, getKeys(), place.batch, keyHead, firstKey);
                       fill(tile.values, getValues(), place.batch, keyHead, firstKey);
                       synchronizeBlock();
                       Values scores = multiplyRows(tile.queries, tile.keys), after(before);
                       ScorePlace here = place;
                       here.firstKey = firstKey;
                       addTile(split(after), scores, here);
                       return after;
                     });
  finish(split(ends), place);
}

/// Scores become probabilities against the largest score so far; what was summed before is brought
/// to a new largest score.
void AttentionEmitter::addTile(const Sums &sums, Values &scores, const ScorePlace &place) {
  Value lowest = number(-std::numeric_limits<double>::infinity());
  scores = mapScores(place, [&](const ScoreElement &at) {
    Value score = scaleScore(scores[numberOf(at)], place, at);
    Value visible = isVisible(place, at);
    return visible ? select(visible, score, lowest) : score;
  });
  int64_t columns = getColumns(), vectors = getVectors(value);
  Values subtracted;
  for (auto [row, maximum] : llvm::enumerate(sums.maxima)) {
    Value largest = scores[row * columns];
    for (int64_t column = 1; column < columns; ++column)
      largest = arith::MaxNumFOp::create(b, largest, scores[row * columns + column]);
    largest = arith::MaxNumFOp::create(b, maximum, maximumOverRow(largest));
    // As long as nothing is visible all differences are to be minus infinity, not none.
    Value isBlind = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, largest, lowest);
    subtracted.push_back(select(isBlind, number(0), largest));
    Value factor = exponentiate(subtractNumbers(maximum, subtracted.back()));
    maximum = largest;
    sums.sums[row] = multiplyNumbers(sums.sums[row], factor);
    for (Value &part : sums.parts.slice(row * vectors, vectors))
      part = multiplyNumbers(part, repeat(factor));
  }
  Values ofThread(sums.sums.size());
  Value kept = drawKept(place);
  scores = mapScores(place, [&](const ScoreElement &at) {
    Value probability = exponentiate(subtractNumbers(scores[numberOf(at)], subtracted[at.row]));
    Value &sum = ofThread[at.row];
    sum = sum ? addNumbers(sum, probability) : probability;
    return drop(probability, kept, at);
  });
  for (auto [sum, more] : llvm::zip_equal(sums.sums, ofThread))
    sum = addNumbers(sum, sumOverRow(more));
  putScores(tile.scores, scores);
  synchronizeRows();
  llvm::copy(accumulate(tile.scores, tile.values, sums.parts), sums.parts.begin());
}

/// A query that sees nothing gets zeros, and a logarithm that gives zero gradients.
void AttentionEmitter::finish(const Sums &sums, const ScorePlace &place) {
  int64_t vectors = getVectors(value);
  for (int64_t row = 0; row < getRows(); ++row) {
    Value sum = sums.sums[row];
    Value isBlind = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, number(0));
    Value factor = arith::DivFOp::create(b, number(1), select(isBlind, number(1), sum));
    for (Value &part : sums.parts.slice(row * vectors, vectors))
      part = multiplyNumbers(part, repeat(factor));
    Value logarithm = addNumbers(sums.maxima[row], AttentionBlock::logarithm(sum));
    logarithm = select(isBlind, number(std::numeric_limits<double>::infinity()), logarithm);
    Value query = add(place.firstQuery, rowOf(row));
    Value stores = arith::AndIOp::create(b, isBelow(query, queries), isBelow(x, 1));
    where(stores, [&] {
      store(getOfQuery(firstOut + 1, place.batch, place.head, query), logarithm, bytes);
    });
  }
  storeVectors(getOutput(), place.batch, place.head, place.firstQuery, sums.parts);
}

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
        Value offset = multiply(place.batch, strides[0]);
        offset = add(offset, multiply(place.head, strides[1]));
        offset = add(offset, multiply(query, strides[2]));
        offset = add(offset, multiply(key, strides[3]));
        store(getAddress(getBuffer(getResult(3)), type, offset), sums[row * columns + column],
              bytes);
      });
    }
}

void mlir::memopt::emitAttentionKernel(OpBuilder &builder, Location location, AttentionAttr call,
                                       const AttentionKernel &kernel, ValueRange buffers,
                                       ArrayRef<int64_t> offsets) {
  AttentionEmitter emitter(builder, location, call, kernel.tiles, buffers, offsets);
  switch (kernel.stage) {
  case AttentionStage::Forward:
    return emitter.emitForward();
  case AttentionStage::QueryGradient:
    return emitter.emitQueryGradient();
  case AttentionStage::KeyGradient:
    return emitter.emitKeyGradient();
  case AttentionStage::MaskGradient:
    return emitter.emitMaskGradient();
  }
  llvm_unreachable("all stages are emitted");
}
