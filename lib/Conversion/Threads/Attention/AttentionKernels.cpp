//===- AttentionKernels.cpp - attention on a device -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionKernels.h"

#include "AttentionEmitter.h"
#include "MatrixAttention.h"

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

SmallVector<int64_t, 4> mlir::memopt::getMaskShape(AttentionAttr call) {
  SmallVector<int64_t, 4> shape{call.getBatch(), call.getHeads(), call.getQueryLength(),
                                call.getKeyLength()};
  for (auto [size, stride] : llvm::zip_equal(shape, call.getDmaskStrides()))
    if (stride == 0)
      size = 1;
  return shape;
}

static int64_t countAttentionBlocks(AttentionAttr call, const AttentionKernel &kernel) {
  const AttentionTiles &tiles = kernel.tiles;
  if (kernel.stage == AttentionStage::MaskGradient) {
    SmallVector<int64_t, 4> shape = getMaskShape(call);
    return shape[0] * shape[1] * llvm::divideCeil(shape[2], tiles.rows) *
           llvm::divideCeil(shape[3], tiles.columns);
  }
  int64_t rows = kernel.matrices ? kernel.matrices->rows : tiles.rows;
  if (ownsKeys(kernel.stage))
    return call.getBatch() * call.getKvHeads() * llvm::divideCeil(call.getKeyLength(), rows);
  return call.getBatch() * call.getHeads() * llvm::divideCeil(call.getQueryLength(), rows);
}

/// Whether vectors can be copied in pieces of 16 bytes.
static bool isInPieces(AttentionAttr call, ArrayRef<int64_t> offsets) {
  constexpr int64_t piece = 8;
  auto isWhole = [](int64_t elements) { return elements % piece == 0; };
  ArrayRef<int64_t> views[] = {call.getQStrides(),  call.getKStrides(),  call.getVStrides(),
                               call.getOStrides(),  call.getDoStrides(), call.getDqStrides(),
                               call.getDkStrides(), call.getDvStrides()};
  for (ArrayRef<int64_t> strides : views)
    if (!strides.empty() && (strides.back() != 1 || !llvm::all_of(strides.drop_back(), isWhole)))
      return false;
  unsigned out = countAttentionInputs(call);
  for (auto [number, offset] : llvm::enumerate(offsets))
    if ((number < kMaskBuffer || number >= out) && !isWhole(offset))
      return false;
  return true;
}

SmallVector<AttentionKernel> mlir::memopt::listAttentionKernels(AttentionAttr call,
                                                                ArrayRef<int64_t> offsets,
                                                                TargetAttrInterface target) {
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
    std::optional<AttentionTiles> tiles = chooseAttentionTiles(
        AttentionHeads::of(call), getBlockSharedBytes(target), rows, columns, isBackward);
    if (!tiles)
      return {};
    AttentionKernel kernel{stage, *tiles, std::nullopt, 0};
    if (isInPieces(call, offsets))
      kernel.matrices = chooseMatrixTiles(call, stage, target);
    kernel.blocks = countAttentionBlocks(call, kernel);
    kernels.push_back(kernel);
  }
  return kernels;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

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

/// The stages that kernels of both kinds have.
template <typename Emitter> static void emitStage(Emitter &&emitter, AttentionStage stage) {
  switch (stage) {
  case AttentionStage::Forward:
    return emitter.emitForward();
  case AttentionStage::QueryGradient:
    return emitter.emitQueryGradient();
  case AttentionStage::KeyGradient:
    return emitter.emitKeyGradient();
  case AttentionStage::MaskGradient:
    break; // has no product of matrices
  }
  llvm_unreachable("all stages are emitted");
}

void mlir::memopt::emitAttentionKernel(OpBuilder &builder, Location location, AttentionAttr call,
                                       const AttentionKernel &kernel,
                                       const AttentionArguments &arguments) {
  if (kernel.matrices)
    return emitStage(MatrixAttention(builder, location, call, *kernel.matrices, arguments),
                     kernel.stage);
  AttentionEmitter emitter(builder, location, call, kernel.tiles, arguments);
  if (kernel.stage == AttentionStage::MaskGradient)
    return emitter.emitMaskGradient();
  emitStage(emitter, kernel.stage);
}
