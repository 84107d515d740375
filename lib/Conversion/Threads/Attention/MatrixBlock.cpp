//===- MatrixBlock.cpp - warps at products of matrices --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatrixBlock.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::memopt;

using Values = MatrixBlock::Values;

/// Of vectors, what is copied and swizzled as a whole: 16 bytes.
static constexpr int64_t kPiece = 16, kPieceFeatures = kPiece / 2;
static constexpr int64_t kWarpThreads = 32;

MatrixBlock::MatrixBlock(OpBuilder &builder, Location location, const DeviceOps &ops,
                         const MatrixTiles &tiles, Type element)
    : BlockBuilder(builder, location, ops, builder.getI32Type(), builder.getF32Type()),
      tiles(tiles), element(element) {
  auto narrow = [&](Value wide) -> Value {
    return arith::TruncIOp::create(b, b.getI32Type(), wide);
  };
  block = narrow(ops.createBlockId(b));
  thread = narrow(ops.createThreadId(b));
  lane = remainder(thread, kWarpThreads);
  warp = divide(thread, kWarpThreads);
  ofRow = add(multiply(warp, tiles.getRowsOfWarp()), divide(lane, 4));
  ofColumn = multiply(remainder(lane, 4), 2);
  shared = getSharedMemory(ops, b);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value MatrixBlock::subtract(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
Value MatrixBlock::shiftRight(Value x, Value y) { return arith::ShRUIOp::create(b, x, y); }
Value MatrixBlock::both(Value x, Value y) {
  return !x ? y : !y ? x : arith::AndIOp::create(b, x, y).getResult();
}
Value MatrixBlock::widen(Value x) { return arith::ExtSIOp::create(b, b.getI64Type(), x); }
Value MatrixBlock::multiplyAdd(Value x, Value y, Value z) {
  return math::FmaOp::create(b, x, y, z);
}
Value MatrixBlock::larger(Value x, Value y) { return arith::MaxNumFOp::create(b, x, y); }
Value MatrixBlock::negate(Value x) { return arith::NegFOp::create(b, x); }
Value MatrixBlock::toNumber(Value x) { return arith::ExtFOp::create(b, type, x); }

/// Two numbers as an operand of a product has them.
Value MatrixBlock::round(Value low, Value high) {
  auto pair = VectorType::get({2}, type);
  Value numbers = arith::ConstantOp::create(b, b.getZeroAttr(pair));
  numbers = vector::InsertOp::create(b, low, numbers, 0);
  numbers = vector::InsertOp::create(b, high, numbers, 1);
  Value rounded = arith::TruncFOp::create(b, pair.clone(element), numbers);
  return LLVM::BitcastOp::create(b, b.getI32Type(), rounded);
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

Values MatrixBlock::choose(Value condition, TypeRange types, llvm::function_ref<Values()> yes,
                           llvm::function_ref<Values()> no) {
  auto branch = scf::IfOp::create(b, types, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, yes());
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, no());
  return branch.getResults();
}

Value MatrixBlock::shuffle(Value value, int64_t distance) {
  return ops.shuffle(b, getWholeWarp(), value, distance);
}
Value MatrixBlock::sumOverRow(Value value) {
  value = addNumbers(value, shuffle(value, 1));
  return addNumbers(value, shuffle(value, 2));
}
Value MatrixBlock::maximumOverRow(Value value) {
  value = larger(value, shuffle(value, 1));
  return larger(value, shuffle(value, 2));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static Value multiplyWide(ImplicitLocOpBuilder &b, Value x, int64_t y) {
  Value wide = arith::ExtSIOp::create(b, b.getI64Type(), x);
  return arith::MulIOp::create(b, wide, arith::ConstantOp::create(b, b.getI64IntegerAttr(y)));
}

Value MatrixBlock::getHead(const MatrixView &view, Value batch, Value head) {
  Value offset = arith::AddIOp::create(b, multiplyWide(b, batch, view.strides[0]),
                                       multiplyWide(b, head, view.strides[1]));
  return getAddress(view.base, element, offset);
}
Value MatrixBlock::getToken(const MatrixView &view, Value ofHead, Value token) {
  return getAddress(ofHead, element, multiplyWide(b, token, view.strides[2]));
}

int64_t MatrixBlock::addBytes(int64_t bytes) {
  sharedBytes += bytes;
  return sharedBytes - bytes;
}
MatrixTile MatrixBlock::addTile(int64_t rows, int64_t features, int64_t buffers) {
  MatrixTile tile{0, rows, features};
  tile.begin = addBytes(tile.getBytes() * buffers);
  return tile;
}

Value MatrixBlock::getShared(Value offset) {
  return getAddress(shared, b.getI8Type(), widen(offset));
}
Value MatrixBlock::getBegin(const MatrixTile &tile, Value buffer) {
  return buffer ? add(multiply(buffer, tile.getBytes()), tile.begin) : integer(tile.begin);
}

/// The place of a piece in its line.
Value MatrixBlock::swizzle(const MatrixTile &tile, Value row, Value piece) {
  if (swizzlesMatrixLines(tile.features))
    piece = arith::XOrIOp::create(b, piece, remainder(row, 8));
  return multiply(piece, kPiece);
}
Value MatrixBlock::getPiece(const MatrixTile &tile, Value begin, Value row, Value piece) {
  return add(add(begin, multiply(row, tile.getLine())), swizzle(tile, row, piece));
}

/// A thread has one place in its lines, and every so many lines, so that its addresses are a constant
/// apart: where lines are no power of two some threads have nothing to do. Addresses behind the last
/// token are that of the last one, and nothing is read from there.
void MatrixBlock::fetch(const MatrixTile &tile, Value buffer, const MatrixView &view, Value ofHead,
                        Value first) {
  int64_t pieces = tile.features / kPieceFeatures;
  auto threadsOfRow = static_cast<int64_t>(llvm::PowerOf2Ceil(pieces));
  int64_t rows = tiles.getThreads() / threadsOfRow;
  bool isRagged = view.tokens % tile.rows != 0;
  auto global = LLVM::LLVMPointerType::get(b.getContext(), ops.getGlobalSpace());
  Value begin = getBegin(tile, buffer), piece = remainder(thread, threadsOfRow);
  auto copyPiece = [&](Value row) {
    Value token = add(first, row), valid = integer(kPiece);
    if (isRagged) {
      valid = select(isBelow(token, view.tokens), valid, integer(0));
      token = smaller(token, view.tokens - 1);
    }
    Value from =
        getAddress(getToken(view, ofHead, token), element, widen(multiply(piece, kPieceFeatures)));
    from = LLVM::AddrSpaceCastOp::create(b, global, from);
    ops.copyAhead(b, getShared(getPiece(tile, begin, row, piece)), from, kPiece, valid);
  };
  where(threadsOfRow > pieces ? isBelow(piece, pieces) : Value(), [&] {
    for (int64_t done = 0; done < tile.rows; done += rows) {
      Value row = add(divide(thread, threadsOfRow), done);
      where(done + rows > tile.rows ? isBelow(row, tile.rows) : Value(), [&] { copyPiece(row); });
    }
  });
}

void MatrixBlock::storeRows(const MatrixView &view, Value ofHead, Value first, ValueRange sums,
                            ValueRange factors) {
  for (int64_t matrix = 0; matrix < getMatrices(); ++matrix)
    for (int64_t half = 0; half < 2; ++half) {
      MatrixPlace at{matrix, half, 0, 0};
      Value token = add(first, getRow(at));
      bool isRagged = view.tokens % tiles.rows != 0;
      where(isRagged ? isBelow(token, view.tokens) : Value(), [&] {
        Value to = getToken(view, ofHead, token);
        for (at.column = 0; at.column < view.features / 8; ++at.column) {
          int64_t number = getNumber(at, view.features);
          Value factor = factors[at.getRowNumber()];
          Value pair = round(multiplyNumbers(sums[number], factor),
                             multiplyNumbers(sums[number + 1], factor));
          store(getAddress(to, element, widen(getColumn(at))), pair, 4);
        }
      });
    }
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void MatrixBlock::forEach(int64_t columns, llvm::function_ref<void(const MatrixPlace &)> visit) {
  for (int64_t matrix = 0; matrix < getMatrices(); ++matrix)
    for (int64_t column = 0; column < columns / 8; ++column)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t parity = 0; parity < 2; ++parity)
          visit({matrix, half, column, parity});
}

/// From where a thread reads for the tile's first matrices to those `row` rows and `feature`
/// features, multiples of 8 and 16, further. Of a swizzled line only the lowest bits of a piece's
/// number change places, in which `feature` and the thread's own piece, 0 or 1, have no bit in
/// common.
std::array<Value, 4> MatrixBlock::loadMatrices(const MatrixTile &tile, Value piece, int64_t row,
                                               int64_t feature, bool isTransposed) {
  constexpr int64_t kSwizzled = 128;
  int64_t bytes = feature * 2, moved = row * tile.getLine();
  if (swizzlesMatrixLines(tile.features)) {
    if (bytes % kSwizzled)
      piece = arith::XOrIOp::create(b, piece, integer(bytes % kSwizzled));
    bytes = bytes / kSwizzled * kSwizzled;
  }
  Value offset = arith::ConstantOp::create(b, b.getI64IntegerAttr(moved + bytes));
  Value from = getAddress(getShared(piece), b.getI8Type(), offset);
  return ops.loadMatrices(b, from, isTransposed);
}

void MatrixBlock::multiplyAdd(MutableArrayRef<Value> sums, ArrayRef<Value> left,
                              ArrayRef<Value> right) {
  llvm::copy(ops.multiplyMatrices(b, element, left, right, sums), sums.begin());
}

/// Adds the products of the warp's matrices and of two on the right to 16 of `columns` columns of the
/// sums, from `first` on.
void MatrixBlock::multiplyColumns(MutableArrayRef<Value> sums, int64_t columns, int64_t first,
                                  ArrayRef<std::array<Value, 4>> left,
                                  const std::array<Value, 4> &right) {
  for (int64_t matrix = 0; matrix < getMatrices(); ++matrix)
    for (int64_t part = 0; part < 2; ++part) {
      MatrixPlace at{matrix, 0, first / 8 + part, 0};
      multiplyAdd(sums.slice(getNumber(at, columns), 4), left[matrix],
                  ArrayRef(right).slice(part * 2, 2));
    }
}

Values MatrixBlock::multiplyRows(const MatrixTile &rows, const MatrixTile &columns, Value buffer) {
  Values sums = getZeros(columns.rows);
  // Four matrices on the left: 16 rows, first of 8 features, then of 8 more. On the right the
  // features come first, then 8 more rows.
  Value row = add(multiply(warp, tiles.getRowsOfWarp()), remainder(lane, 16));
  Value ofRows = getPiece(rows, getBegin(rows, Value()), row, divide(lane, 16));
  Value column = add(remainder(lane, 8), multiply(divide(lane, 16), 8));
  Value ofColumns =
      getPiece(columns, getBegin(columns, buffer), column, remainder(divide(lane, 8), 2));
  for (int64_t feature = 0; feature < rows.features; feature += 16) {
    SmallVector<std::array<Value, 4>> left;
    for (int64_t matrix = 0; matrix < getMatrices(); ++matrix)
      left.push_back(loadMatrices(rows, ofRows, matrix * 16, feature, /*isTransposed=*/false));
    for (int64_t first = 0; first < columns.rows; first += 16) {
      std::array<Value, 4> right =
          loadMatrices(columns, ofColumns, first, feature, /*isTransposed=*/false);
      multiplyColumns(sums, columns.rows, first, left, right);
    }
  }
  return sums;
}

Values MatrixBlock::accumulate(ValueRange before, ValueRange scores, const MatrixTile &vectors,
                               Value buffer) {
  Values sums(before);
  Value piece = getPiece(vectors, getBegin(vectors, buffer), remainder(lane, 16), divide(lane, 16));
  for (int64_t column = 0; column < vectors.rows; column += 16) {
    SmallVector<std::array<Value, 4>> left(getMatrices());
    for (auto [matrix, words] : llvm::enumerate(left))
      for (int64_t word = 0; word < 4; ++word) {
        MatrixPlace at{static_cast<int64_t>(matrix), word % 2, column / 8 + word / 2, 0};
        int64_t number = getNumber(at, vectors.rows);
        words[word] = round(scores[number], scores[number + 1]);
      }
    for (int64_t feature = 0; feature < vectors.features; feature += 16) {
      std::array<Value, 4> right =
          loadMatrices(vectors, piece, column, feature, /*isTransposed=*/true);
      multiplyColumns(sums, vectors.features, feature, left, right);
    }
  }
  return sums;
}
