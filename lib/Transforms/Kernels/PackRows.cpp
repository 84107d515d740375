//===- PackRows.cpp - rows that count wait without the others ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an expert makes has a row for each token, of which those count that its mask chooses
// (memopt.fill_rows). Each token has `choices` experts at most, so the rows of all experts that
// count fit into choices * tokens rows:
//
//   forward    packed' = scatter(packed, rows of the expert that count, row -> place)
//   backward   rows    = gather(packed, row -> place)          the others are the first, as before
//
// The place of row t of expert e is t * choices + j for the first j with table[t, j] = e. Masks of
// different e share no place (ChosenRows.h).
//
// Input:  a step of linalg.generic, views and library ops, behind recompute-elementwise, so that all
//         of forward that backward still reads is kept for it.
// Output: the same; backward readers of filled rows read gathered ones.
// Bits:   never change.
//
//===----------------------------------------------------------------------===//

#include "BackwardReaders.h"
#include "ChosenRows.h"

#include "memopt/Transforms/Utils/FilledRows.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/TilePasses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_PACKROWSPASS
#include "memopt/Transforms/TilePasses.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// Bytes below which a kernel more costs more than it frees.
static constexpr int64_t kLeastRowBytes = 4096;

namespace {
/// Rows that a mask chooses, and that the backward pass reads.
struct KeptRows {
  Operation *fill;
  Value rows, mask, first; ///< what it reads
  ChosenRows chosen;
  SmallVector<BackwardReaders::Group> groups; ///< not empty

  RankedTensorType getType() const { return tensorType(fill->getResult(0)); }
};

/// Packs what one block of the program keeps.
class RowPacker {
public:
  explicit RowPacker(Block &block) : readers(block) { find(block); }
  void pack() {
    for (auto &[key, kept] : together)
      if (isWorthIt(kept))
        pack(kept);
  }

  int64_t getValues() const { return values; }
  int64_t getBytesBefore() const { return bytesBefore; }
  int64_t getBytesAfter() const { return bytesAfter; }

private:
  /// Rows that may lie in one buffer: by the table, how it is read, and the type. The last says how many
  /// others of the same mask there are in front.
  using Key = std::tuple<Value, AffineMap, int64_t, Type, int64_t>;

  void find(Block &block);
  static bool isWorthIt(ArrayRef<KeptRows> kept);
  Value getPlaces(const KeptRows &kept);
  void pack(MutableArrayRef<KeptRows> kept);
  void unpack(const KeptRows &kept, Value packed, Value places);

  BackwardReaders readers;
  llvm::MapVector<Key, SmallVector<KeptRows>> together;
  DenseMap<std::pair<Value, int64_t>, Value> places; ///< by mask and the number that it stands for
  int64_t values = 0, bytesBefore = 0, bytesAfter = 0;
};
} // namespace

/// The rows of a matrix that the op fills by a mask with an element for each; null for other ops.
static Value findFilledRows(linalg::GenericOp generic) {
  if (!generic.getOperation()->hasAttr(kFilledRowsAttr) || generic.getNumDpsInputs() != 2 ||
      generic.getNumLoops() != 2)
    return Value();
  MLIRContext *context = generic.getContext();
  SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
  auto taken = llvm::to_vector(generic.getBody()->getOps<tensor::ExtractOp>());
  bool isFill = maps[0] == AffineMap::get(2, 0, getAffineDimExpr(0, context)) &&
                maps[1].getNumResults() == 0 && maps[2].isIdentity() && taken.size() == 1;
  return isFill ? taken.front().getTensor() : Value();
}

void RowPacker::find(Block &block) {
  DenseMap<std::tuple<Value, AffineMap, Type, int64_t>, int64_t> seen;
  for (linalg::GenericOp generic : block.getOps<linalg::GenericOp>()) {
    Value rows = isAfterForward(generic) ? Value() : findFilledRows(generic);
    if (!rows || getTensorBytes(generic.getResult(0).getType()) < kLeastRowBytes)
      continue;
    SmallVector<BackwardReaders::Group> groups = readers.getGroups(generic);
    if (groups.empty())
      continue;
    std::optional<ChosenRows> chosen = findChosenRows(generic.getDpsInputs()[0]);
    if (!chosen)
      continue;
    Type type = generic.getResult(0).getType();
    int64_t number = seen[{chosen->table, chosen->access, type, chosen->number}]++;
    together[{chosen->table, chosen->access, chosen->choices, type, number}].push_back(
        {generic, rows, generic.getDpsInputs()[0], generic.getDpsInputs()[1], *chosen,
         std::move(groups)});
  }
}

/// Half of the bytes, or fewer; and all rows are made before any is read.
bool RowPacker::isWorthIt(ArrayRef<KeptRows> kept) {
  Operation *last = kept.back().fill;
  auto isBehind = [&](const BackwardReaders::Group &group) {
    Operation *reader = last->getBlock()->findAncestorOpInBlock(*group.front()->getOwner());
    return last->isBeforeInBlock(reader);
  };
  return static_cast<int64_t>(kept.size()) >= 2 * kept.front().chosen.choices &&
         llvm::all_of(kept,
                      [&](const KeptRows &each) { return llvm::all_of(each.groups, isBehind); });
}

/// The place of each row that counts; of the others one behind all.
Value RowPacker::getPlaces(const KeptRows &kept) {
  Value &known = places[{kept.mask, kept.chosen.number}];
  if (known)
    return known;
  ImplicitLocOpBuilder b(kept.fill->getLoc(), kept.fill);
  int64_t rows = kept.getType().getDimSize(0), choices = kept.chosen.choices;
  Type index = b.getI64Type(), element = getElementTypeOrSelf(kept.chosen.table);
  AffineMap each = b.getMultiDimIdentityMap(1);
  auto placeOf = [&](ImplicitLocOpBuilder &inner, Value choice, Value j) -> Value {
    Value number = createIntConstant(inner, element, kept.chosen.number);
    Value isIt = arith::CmpIOp::create(inner, arith::CmpIPredicate::eq, choice, number);
    Value place = convertTo(inner, linalg::IndexOp::create(inner, 0), index);
    if (j) {
      place = arith::MulIOp::create(inner, place, createIntConstant(inner, index, choices));
      place = arith::AddIOp::create(inner, place, j);
    }
    return arith::SelectOp::create(inner, isIt, place,
                                   createIntConstant(inner, index, rows * choices));
  };
  AffineMap access = kept.chosen.access;
  bool isOne = !access.isFunctionOfDim(1);
  Value found = kept.chosen.table;
  if (!isOne)
    found =
        createPlainReduction(b, {rows, choices}, {1}, {{found, access}}, {{ReduceKind::Min, index}},
                             [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                               Value j = convertTo(inner, linalg::IndexOp::create(inner, 1), index);
                               return SmallVector<Value>{placeOf(inner, x[0], j)};
                             })
            .front();
  AffineMap ofRow = isOne ? AffineMap::get(1, 0, access.getResults(), b.getContext()) : each;
  known = createPointwise(b, {rows}, {{kept.mask, each}, {found, ofRow}}, {index},
                          [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                            Value place = isOne ? placeOf(inner, x[1], Value()) : x[1];
                            Value none = createIntConstant(inner, index, rows * choices);
                            return SmallVector<Value>{
                                arith::SelectOp::create(inner, x[0], place, none)};
                          })
              .front();
  return known;
}

void RowPacker::pack(MutableArrayRef<KeptRows> kept) {
  RankedTensorType type = kept.front().getType();
  int64_t rows = type.getDimSize(0), width = type.getDimSize(1),
          choices = kept.front().chosen.choices;
  RankedTensorType packedType = type.clone({rows * choices, width});
  Value packed;
  SmallVector<Value> placesOf;
  for (const KeptRows &each : kept) {
    placesOf.push_back(getPlaces(each));
    ImplicitLocOpBuilder b(each.fill->getLoc(), each.fill);
    if (!packed)
      packed = arith::ConstantOp::create(
          b, DenseElementsAttr::get(packedType, b.getZeroAttr(type.getElementType())));
    Value index =
        tensor::ExpandShapeOp::create(b, RankedTensorType::get({rows, 1}, b.getI64Type()),
                                      placesOf.back(), ArrayRef<ReassociationIndices>{{0, 1}});
    packed = ScatterOp::create(b, packedType, packed, each.rows, index, ScatterKind::Set,
                               /*indexed=*/ArrayRef<int64_t>{0},
                               /*positions=*/ArrayRef<int64_t>{1});
  }
  for (auto [each, index] : llvm::zip_equal(kept, placesOf))
    unpack(each, packed, index);
  values += kept.size();
  bytesBefore += kept.size() * getTensorBytes(kept.front().getType());
  bytesAfter += getTensorBytes(packedType);
}

/// What memopt.fill_rows gives, of the packed rows, in front of each group of readers.
void RowPacker::unpack(const KeptRows &kept, Value packed, Value places) {
  RankedTensorType type = kept.getType();
  int64_t rows = type.getDimSize(0), packedRows = tensorType(packed).getDimSize(0);
  for (const BackwardReaders::Group &group : kept.groups) {
    ImplicitLocOpBuilder b(kept.fill->getLoc(), readers.getReader(*group.front()));
    Type index = b.getI64Type();
    auto toIndex = [&](ImplicitLocOpBuilder &inner, Value value) {
      return convertTo(inner, value, inner.getIndexType());
    };
    AffineMap ofRow = AffineMap::get(2, 0, b.getAffineDimExpr(0)),
              ofAll = AffineMap::get(2, 0, b.getContext());
    Value again =
        createPointwise(
            b, type.getShape(), {{places, ofRow}, {kept.first, ofAll}}, {type.getElementType()},
            [&](ImplicitLocOpBuilder &inner, ValueRange x) {
              auto isBelow = [&](Value value, int64_t end) -> Value {
                return arith::CmpIOp::create(inner, arith::CmpIPredicate::slt, value,
                                             createIntConstant(inner, index, end));
              };
              Value lastRow = createIntConstant(inner, index, rows - 1),
                    lastPlace = createIntConstant(inner, index, packedRows - 1);
              Value first = arith::MinSIOp::create(inner, x[1], lastRow);
              Value lent = tensor::ExtractOp::create(inner, places, toIndex(inner, first));
              Value place = arith::SelectOp::create(inner, isBelow(x[0], packedRows), x[0], lent);
              place = arith::MinSIOp::create(inner, place, lastPlace);
              SmallVector<Value> at{toIndex(inner, place), linalg::IndexOp::create(inner, 1)};
              Value found = tensor::ExtractOp::create(inner, packed, at);
              Value one = createConstant(inner, type.getElementType(), 1.0);
              return SmallVector<Value>{
                  arith::SelectOp::create(inner, isBelow(x[1], rows), found, one)};
            })
            .front();
    setPhase(again.getDefiningOp(), Phase::Backward);
    for (OpOperand *use : group)
      use->set(again);
  }
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct PackRowsPass : mlir::memopt::impl::PackRowsPassBase<PackRowsPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isExternal())
      return markAllAnalysesPreserved();
    for (Block *block : getProgramBlocks(function.getBody().front())) {
      RowPacker packer(*block);
      packer.pack();
      if (packer.getValues())
        remark::passed(function.getLoc(), remark::RemarkOpts::name("PackRows")
                                              .category("memopt-pack-rows")
                                              .function(function.getName()))
            << remark::metric("Values", packer.getValues())
            << remark::metric("BytesBefore", packer.getBytesBefore())
            << remark::metric("BytesAfter", packer.getBytesAfter());
    }
  }
};
} // namespace
