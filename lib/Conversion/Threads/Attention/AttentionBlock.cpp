//===- AttentionBlock.cpp - a block of threads at attention ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"

#include "memopt/Conversion/Core/Math/MathExpansion.h"
#include "memopt/Conversion/Core/Math/ScalarExpansion.h"
#include "memopt/Conversion/Threads/DeviceMachine.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::memopt;

/// Of accesses to memory; buffers and tiles begin at multiples.
static constexpr int64_t kDeviceAlignment = DeviceMachine().accessBytes;

AttentionBlock::AttentionBlock(OpBuilder &builder, Location location, const DeviceOps &ops,
                               const AttentionTiles &tiles, Type type)
    : BlockBuilder(builder, location, ops, builder.getI64Type(), type), tiles(tiles),
      bytes(type.getIntOrFloatBitWidth() / 8), lanes(kDeviceAlignment / bytes) {
  block = ops.createBlockId(b);
  thread = ops.createThreadId(b);
  y = divide(thread, tiles.threadColumns);
  x = remainder(thread, tiles.threadColumns);
  shared = getSharedMemory(ops, b);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value AttentionBlock::callMath(StringRef name, Value operand) {
  return expandMath(b, b.getLoc(), OperationName(name, b.getContext()), operand.getType(), operand);
}

Value AttentionBlock::convert(Value value, Type element) {
  Type from = getElementTypeOrSelf(value.getType());
  if (from == element)
    return value;
  Type to = element;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    to = vector.clone(element);
  bool isWider = element.getIntOrFloatBitWidth() > from.getIntOrFloatBitWidth();
  return isWider ? arith::ExtFOp::create(b, to, value).getResult()
                 : arith::TruncFOp::create(b, to, value).getResult();
}

Value AttentionBlock::pickLane(Value vector, int64_t lane) {
  return vector::ExtractOp::create(b, vector, lane);
}
Value AttentionBlock::repeat(Value value) {
  return vector::BroadcastOp::create(b, getLanes(), value);
}

void AttentionBlock::synchronizeRows() { ops.synchronizeWarp(b, getWholeWarp()); }

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

SharedTile AttentionBlock::addTile(int64_t lines, int64_t features, int64_t stride) {
  Value base = getAddress(shared, type, integer(sharedElements));
  sharedElements += lines * stride;
  return {base, lines, features, stride};
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

int64_t AttentionBlock::getVectors(int64_t features) const {
  return llvm::divideCeil(llvm::divideCeil(features, lanes), tiles.threadColumns);
}

Value AttentionBlock::foldRow(Value value, llvm::function_ref<Value(Value, Value)> fold) {
  for (int64_t distance = tiles.threadColumns / 2; distance > 0; distance /= 2)
    value = fold(value, shuffleWarp(ops, b, getWholeWarp(), value, distance));
  return value;
}

Value AttentionBlock::sumOverRow(Value value) {
  return foldRow(value, [&](Value x, Value y) { return addNumbers(x, y); });
}
/// A score that is no number makes its row's sum none.
Value AttentionBlock::maximumOverRow(Value value) {
  return foldRow(value, [&](Value x, Value y) { return arith::MaxNumFOp::create(b, x, y); });
}

//===----------------------------------------------------------------------===//
// Vectors in memory
//===----------------------------------------------------------------------===//

Value AttentionBlock::getOffset(ArrayRef<int64_t> strides, ArrayRef<Value> indices) {
  Value offset = multiply(indices.front(), strides.front());
  for (auto [index, stride] : llvm::zip(indices.drop_front(), strides.drop_front()))
    offset = add(offset, multiply(index, stride));
  return offset;
}

Value AttentionBlock::getToken(const VectorView &view, Value batch, Value head, Value token) {
  return getAddress(view.base, view.element, getOffset(view.strides, {batch, head, token}));
}

/// Addresses stay inside: what is beyond the last token or feature is read from the last one, and
/// replaced.
void AttentionBlock::fill(const SharedTile &tile, const VectorView &view, Value batch, Value head,
                          Value first) {
  int64_t groups = llvm::divideCeil(tile.features, lanes);
  int64_t elementBytes = view.element.getIntOrFloatBitWidth() / 8;
  loop(thread, integer(tile.lines * groups), tiles.getThreads(), {}, [&](Value part, ValueRange) {
    Value line = divide(part, groups), feature = multiply(remainder(part, groups), lanes);
    Value token = add(first, line);
    Value from = getToken(view, batch, head, smaller(token, view.tokens - 1));
    Value vector;
    if (view.isAligned) {
      vector = load(getAddress(from, view.element, feature), VectorType::get({lanes}, view.element),
                    lanes * elementBytes);
      vector = convert(vector, type);
    } else {
      vector = number(0, lanes);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        Value at = add(feature, lane);
        Value one = load(getAddress(from, view.element, smaller(at, view.features - 1)),
                         view.element, elementBytes);
        one = select(isBelow(at, view.features), convert(one, type), number(0));
        vector = vector::InsertOp::create(b, one, vector, lane);
      }
    }
    vector = select(isBelow(token, view.tokens), vector, number(0, lanes));
    Value to = add(multiply(line, tile.stride), feature);
    store(getAddress(tile.base, type, to), vector, kDeviceAlignment);
    return Values();
  });
}

/// The access number `number` of this thread; one that is beyond the last feature goes where the
/// last one goes, and is not stored.
Value AttentionBlock::getGroup(int64_t number, int64_t groups) {
  Value group = columnOf(number);
  return (number + 1) * tiles.threadColumns > groups ? smaller(group, groups - 1) : group;
}

AttentionBlock::Values AttentionBlock::getZeros(int64_t features) {
  return Values(getRows() * getVectors(features), number(0, lanes));
}

void AttentionBlock::storeVectors(const VectorView &view, Value batch, Value head, Value first,
                                  ValueRange parts) {
  int64_t count = getVectors(view.features);
  int64_t elementBytes = view.element.getIntOrFloatBitWidth() / 8;
  auto storeOne = [&](Value to, Value feature, Value vector) {
    if (view.isAligned)
      return store(getAddress(to, view.element, feature), vector, lanes * elementBytes);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      Value at = add(feature, lane);
      where(isBelow(at, view.features),
            [&] { store(getAddress(to, view.element, at), pickLane(vector, lane), elementBytes); });
    }
  };
  for (int64_t row = 0; row < getRows(); ++row) {
    Value token = add(first, rowOf(row));
    where(isBelow(token, view.tokens), [&] {
      Value to = getToken(view, batch, head, token);
      for (int64_t number = 0; number < count; ++number) {
        Value feature = multiply(columnOf(number), lanes);
        Value vector = convert(parts[row * count + number], view.element);
        where(isBelow(feature, view.features), [&] { storeOne(to, feature, vector); });
      }
    });
  }
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

AttentionBlock::Values AttentionBlock::multiplyRows(const SharedTile &a, const SharedTile &other) {
  Values zeros(getRows() * getColumns(), number(0));
  Value ofRow = multiply(y, a.stride), ofColumn = multiply(x, other.stride);
  int64_t end = llvm::alignTo(a.features, lanes);
  return loop(integer(0), integer(end), lanes, zeros, [&](Value feature, ValueRange before) {
    auto read = [&](const SharedTile &tile, Value line, int64_t stride, int64_t count) {
      Values vectors;
      Value first = getAddress(tile.base, type, add(line, feature));
      for (int64_t i = 0; i < count; ++i)
        vectors.push_back(load(getAddress(first, type, integer(i * stride * tile.stride)),
                               getLanes(), kDeviceAlignment));
      return vectors;
    };
    Values rows = read(a, ofRow, tiles.threadRows, getRows());
    Values columns = read(other, ofColumn, tiles.threadColumns, getColumns());
    Values sums(before);
    for (int64_t lane = 0; lane < lanes; ++lane)
      for (int64_t row = 0; row < getRows(); ++row)
        for (int64_t column = 0; column < getColumns(); ++column) {
          Value &sum = sums[row * getColumns() + column];
          sum = math::FmaOp::create(b, pickLane(rows[row], lane), pickLane(columns[column], lane),
                                    sum);
        }
    return sums;
  });
}

void AttentionBlock::putScores(const SharedTile &tile, ValueRange scores) {
  for (int64_t row = 0; row < getRows(); ++row) {
    Value line = multiply(rowOf(row), tile.stride);
    for (int64_t column = 0; column < getColumns(); ++column)
      store(getAddress(tile.base, type, add(line, columnOf(column))),
            scores[row * getColumns() + column], bytes);
  }
}

AttentionBlock::Values AttentionBlock::accumulate(const SharedTile &scores,
                                                  const SharedTile &vectors, ValueRange sums) {
  int64_t count = getVectors(vectors.features);
  int64_t groups = llvm::divideCeil(vectors.features, lanes);
  Values features;
  for (int64_t number = 0; number < count; ++number)
    features.push_back(multiply(getGroup(number, groups), lanes));
  Value ofRow = multiply(y, scores.stride);
  return loop(integer(0), integer(scores.features), lanes, sums,
              [&](Value line, ValueRange before) {
                Values rows, after(before);
                Value first = getAddress(scores.base, type, add(ofRow, line));
                for (int64_t row = 0; row < getRows(); ++row)
                  rows.push_back(
                      load(getAddress(first, type, integer(row * tiles.threadRows * scores.stride)),
                           getLanes(), kDeviceAlignment));
                for (int64_t lane = 0; lane < lanes; ++lane) {
                  Value from = multiply(add(line, lane), vectors.stride);
                  for (int64_t number = 0; number < count; ++number) {
                    Value vector = load(getAddress(vectors.base, type, add(from, features[number])),
                                        getLanes(), kDeviceAlignment);
                    for (int64_t row = 0; row < getRows(); ++row) {
                      Value &sum = after[row * count + number];
                      sum = math::FmaOp::create(b, repeat(pickLane(rows[row], lane)), vector, sum);
                    }
                  }
                }
                return after;
              });
}
