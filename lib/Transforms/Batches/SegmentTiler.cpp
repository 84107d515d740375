//===- SegmentTiler.cpp - a segment written out tile by tile -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SegmentTiler.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/ViewBuilders.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"
#include "memopt/Transforms/Utils/TokenTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// So few tokens that a tile is a small part, and so many that its products are worth what each tile
/// costs: the weights are read, and their gradients added to, once more. 128 are worth an eighth of
/// all, and 256 are enough.
static SmallVector<Rows> cutIntoTiles(int64_t tokens) {
  constexpr int64_t step = 32, few = 128, enough = 256, most = 1024;
  auto getShare = [&](int64_t parts) { return llvm::divideCeil(tokens, parts); };
  int64_t size = getShare(8) >= few ? std::min<int64_t>(getShare(8), enough) : getShare(16);
  size = std::min<int64_t>(llvm::alignTo(std::max<int64_t>(size, getShare(32)), step), most);
  SmallVector<Rows> tiles;
  for (int64_t begin = 0; begin < tokens; begin += size)
    tiles.push_back({begin, std::min(begin + size, tokens)});
  return tiles;
}

/// Groups of tiles, as equal as they can be.
static SmallVector<SmallVector<Rows>> groupTiles(ArrayRef<Rows> tiles, int64_t parts) {
  auto count = static_cast<int64_t>(tiles.size());
  parts = std::min(parts, count);
  SmallVector<SmallVector<Rows>> groups;
  for (int64_t part = 0; part < parts; ++part)
    groups.emplace_back(
        tiles.slice(count * part / parts, count * (part + 1) / parts - count * part / parts));
  return groups;
}

/// What every op of a tile says: which it is, and its phase.
void SegmentTiler::note(Operation *op, Operation *like) {
  if (Phase phase = getPhase(like); phase != Phase::Forward) // of which nobody speaks
    setPhase(op, phase);
  op->setAttr(kTileAttr, builder.getI64IntegerAttr(number));
}

/// The first `dims` of `rank` dimensions as one.
static SmallVector<ReassociationIndices> groupTokens(int64_t rank, unsigned dims) {
  SmallVector<ReassociationIndices> groups(1);
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (dim >= static_cast<int64_t>(dims))
      groups.emplace_back();
    groups.back().push_back(dim);
  }
  return groups;
}

/// The piece of a concatenation that holds elements [begin, end) of `whole`, in the order of memory;
/// or null.
static Value findPiece(Value whole, int64_t begin, int64_t end) {
  while (Operation *reshape = whole.getDefiningOp()) {
    if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(reshape))
      break;
    whole = reshape->getOperand(0);
  }
  auto joined = whole.getDefiningOp<tensor::ConcatOp>();
  if (!joined || llvm::any_of(tensorType(whole).getShape().take_front(joined.getDim()),
                              [](int64_t size) { return size != 1; }))
    return nullptr;
  int64_t first = 0;
  for (Value piece : joined.getInputs()) {
    int64_t next = first + tensorType(piece).getNumElements();
    if (first == begin && next == end)
      return piece;
    first = next;
  }
  return nullptr;
}

/// Rows of `whole`, whose first `dims` dimensions count tokens, as `type`.
Value SegmentTiler::cut(Value whole, unsigned dims, Rows rows, RankedTensorType type) {
  Location location = whole.getLoc();
  Value flat = whole;
  SmallVector<ReassociationIndices> groups = groupTokens(tensorType(whole).getRank(), dims);
  if (dims > 1)
    flat = tensor::CollapseShapeOp::create(builder, location, whole, groups);
  RankedTensorType flatType = tensorType(flat);
  SmallVector<OpFoldResult> offsets, sizes, strides(flatType.getRank(), builder.getIndexAttr(1));
  for (int64_t size : flatType.getShape()) {
    offsets.push_back(builder.getIndexAttr(0));
    sizes.push_back(builder.getIndexAttr(size));
  }
  offsets[0] = builder.getIndexAttr(rows.begin);
  sizes[0] = builder.getIndexAttr(rows.size());
  Value slice = tensor::ExtractSliceOp::create(builder, location, flat, offsets, sizes, strides);
  if (dims > 1)
    slice = tensor::ExpandShapeOp::create(builder, location, type, slice, groups);
  return slice;
}

/// An operand of a member, for the tokens of `part`. What another segment has left in the same parts
/// is not put together first.
Value SegmentTiler::getOperand(Value value, Rows part) {
  if (Value made = values.lookupOrNull(value))
    return made;
  unsigned dims = segment.getTokenDims(value);
  if (dims == 0)
    return value;
  RankedTensorType type = segment.getTileType(value, part.size());
  int64_t ofToken = type.getNumElements() / part.size();
  Value piece = findPiece(value, part.begin * ofToken, part.end * ofToken);
  Value made = piece ? reshapeTo(builder, value.getLoc(), piece, type.getShape())
                     : cut(value, dims, part, type);
  values.map(value, made);
  return made;
}

Operation *SegmentTiler::clone(Operation *op, IRMapping &operands, int64_t tokens) {
  Operation *copy = builder.clone(*op, operands);
  SmallVector<Type> types = llvm::map_to_vector(
      op->getResults(), [&](Value result) -> Type { return segment.getTileType(result, tokens); });
  cast<IterationOpInterface>(copy).resize(types);
  note(copy, op);
  return copy;
}

void SegmentTiler::buildPointwise(Operation *op, Rows part) {
  for (Value operand : op->getOperands())
    if (Value made = getOperand(operand, part); made != operand)
      values.map(operand, made);
  Operation *copy = clone(op, values, part.size());
  values.map(op->getResults(), copy->getResults());
}

/// Products, reductions and sums: the same ops whatever tiles share a part.
void SegmentTiler::buildByTile(Operation *op, ArrayRef<Rows> tiles) {
  Rows part{tiles.front().begin, tiles.back().end};
  SmallVector<SmallVector<Value>> made(op->getNumResults());
  for (Rows tile : tiles) {
    IRMapping operands;
    for (Value operand : op->getOperands()) {
      Value whole = getOperand(operand, part);
      if (unsigned dims = segment.getTokenDims(operand); dims && tiles.size() > 1)
        whole = cut(whole, dims, {tile.begin - part.begin, tile.end - part.begin},
                    segment.getTileType(operand, tile.size()));
      operands.map(operand, whole);
    }
    Operation *copy = clone(op, operands, tile.size());
    for (OpResult result : op->getResults()) {
      Value value = copy->getResult(result.getResultNumber());
      if (segment.getTokenDims(result))
        made[result.getResultNumber()].push_back(value);
      else if (!result.use_empty())
        addUp(result, value);
    }
  }
  for (OpResult result : op->getResults())
    if (segment.getTokenDims(result))
      values.map(result, join(result, made[result.getResultNumber()]));
}

/// One value of pieces along tokens.
Value SegmentTiler::join(Value original, ArrayRef<Value> parts) {
  if (parts.size() == 1)
    return parts.front();
  RankedTensorType type = tensorType(parts.front());
  unsigned dim = segment.getTokenDims(original) - 1;
  while (dim > 0 && tensorType(original).getDimSize(dim) == 1)
    --dim;
  int64_t tokens = 0;
  for (Value part : parts)
    tokens += tensorType(part).getDimSize(dim);
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = tokens;
  auto joined = tensor::ConcatOp::create(builder, original.getLoc(), type.clone(shape), dim,
                                         ValueRange(parts));
  note(joined, original.getDefiningOp());
  return joined;
}

/// What adds the sum to that of other micro-batches, where nothing else reads it and the sum is made
/// in the type that it has there.
AccumulateOp SegmentTiler::findAccumulation(OpResult result) const {
  if (!result.hasOneUse() || getSumType(result) != result.getType())
    return nullptr;
  auto accumulation = dyn_cast<AccumulateOp>(*result.user_begin());
  return accumulation && accumulation->getBlock() == result.getOwner()->getBlock() &&
                 accumulation->getOperand(1) == result &&
                 accumulation.getResult().getType() == result.getType() &&
                 accumulation->getOperand(0).getDefiningOp<ReadOp>()
             ? accumulation
             : AccumulateOp();
}

/// Sums of what would be rounded are made in f32.
Type SegmentTiler::getSumType(OpResult result) const {
  RankedTensorType type = tensorType(result);
  auto number = dyn_cast<FloatType>(type.getElementType());
  return number && number.getWidth() < 32 ? type.clone(Float32Type::get(type.getContext())) : type;
}

/// The sum of other micro-batches, which that of this one continues; or null.
Value SegmentTiler::readOldSum(OpResult result) {
  AccumulateOp accumulation = findAccumulation(result);
  return accumulation ? builder.clone(*accumulation->getOperand(0).getDefiningOp())->getResult(0)
                      : Value();
}

void SegmentTiler::addUp(OpResult result, Value part) {
  Location location = result.getLoc();
  Operation *before = builder.getInsertionPoint()->getPrevNode();
  bool isOfFloats = isa<FloatType>(tensorType(part).getElementType());
  if (isOfFloats)
    part = convertFloats(builder, location, part, getElementTypeOrSelf(getSumType(result)));
  Value &sum = sums[result];
  if (!sum)
    sum = readOldSum(result);
  if (!sum)
    sum = part;
  else if (isOfFloats)
    sum = AccumulateOp::create(builder, location, part.getType(), sum, part);
  else
    sum = arith::AddIOp::create(builder, location, sum, part);
  for (Operation *op = before->getNextNode(); op != &*builder.getInsertionPoint();
       op = op->getNextNode())
    note(op, result.getOwner());
}

void SegmentTiler::build(Operation *op, ArrayRef<Rows> tiles) {
  if (TokenSegment::isPointwise(op))
    buildPointwise(op, {tiles.front().begin, tiles.back().end});
  else
    buildByTile(op, tiles);
}

void SegmentTiler::buildPart(ArrayRef<Rows> tiles) {
  values.clear();
  for (Operation *op : segment.getOps())
    build(op, tiles);
  for (Operation *op : segment.getOps())
    for (OpResult result : op->getResults())
      if (segment.getTokenDims(result))
        pieces[result].push_back(values.lookup(result));
  ++number;
}

/// The count of labels follows from them alone, and is there before the logits are.
static void separateCount(CrossEntropyOp loss) {
  if (loss.getCount().use_empty())
    return;
  OpBuilder builder(loss);
  auto type = cast<RankedTensorType>(loss.getLogits().getType());
  auto count = cast<CrossEntropyOp>(builder.clone(*loss));
  auto nothing =
      tensor::EmptyOp::create(builder, loss.getLoc(), type.getShape(), type.getElementType());
  nothing->moveBefore(count);
  count.getLogitsMutable().assign(nothing.getResult());
  loss.getCount().replaceAllUsesWith(count.getCount());
}

static void readNothing(OpOperand &use) {
  OpBuilder builder(use.getOwner());
  RankedTensorType type = tensorType(use.get());
  use.set(
      tensor::EmptyOp::create(builder, use.get().getLoc(), type.getShape(), type.getElementType())
          .getResult());
}

/// Who reads the shape of a value alone does not wait for it.
static void separateShapes(const TokenSegment &segment) {
  for (Operation *op : segment.getOps())
    for (OpResult result : op->getResults())
      for (OpOperand &use : llvm::make_early_inc_range(result.getUses()))
        if (!segment.contains(use.getOwner()) && !TokenSegment::isRead(use))
          readNothing(use);
  for (Operation *op = segment.getOps().front(); op != segment.getOps().back();
       op = op->getNextNode())
    for (OpOperand &use : op->getOpOperands())
      if (Operation *maker = use.get().getDefiningOp();
          maker && !isa<tensor::EmptyOp>(maker) && !TokenSegment::isRead(use))
        readNothing(use);
}

/// Whoever stands between members and needs one comes behind the last, as does all that changes
/// state.
static void moveBehind(const TokenSegment &segment) {
  Operation *first = segment.getOps().front(), *last = segment.getOps().back(), *end = last;
  DenseSet<Operation *> moved;
  DenseSet<StringAttr> written;
  for (Operation *op = first; op != last;) {
    Operation *next = op->getNextNode();
    bool follows = llvm::any_of(op->getOpOperands(), [&](OpOperand &use) {
      Operation *maker = use.get().getDefiningOp();
      return maker &&
             (moved.contains(maker) || (segment.contains(maker) && !segment.isSameForAll(maker)));
    });
    auto read = dyn_cast<ReadOp>(op);
    follows |=
        isa<WriteOp, CommitOp>(op) || (read && written.contains(read.getVariableAttr().getAttr()));
    if (!segment.contains(op) && follows) {
      if (auto write = dyn_cast<WriteOp>(op))
        written.insert(write.getVariableAttr().getAttr());
      moved.insert(op);
      op->moveAfter(end);
      end = op;
    }
    op = next;
  }
}

/// `whole`, whose tokens lie along one dimension, as the value that it takes the place of.
Value SegmentTiler::shape(Value whole, OpResult original) {
  RankedTensorType type = tensorType(original);
  if (tensorType(whole) == type)
    return whole;
  SmallVector<ReassociationIndices> groups =
      groupTokens(type.getRank(), segment.getTokenDims(original));
  Value flat = tensor::CollapseShapeOp::create(builder, original.getLoc(), whole, groups);
  Value shaped = tensor::ExpandShapeOp::create(builder, original.getLoc(), type, flat, groups);
  if (Phase phase = getPhase(original.getOwner()); phase != Phase::Forward)
    for (Value made : {flat, shaped})
      setPhase(made.getDefiningOp(), phase);
  return shaped;
}

bool SegmentTiler::isNeededOutside(OpResult result) const {
  return llvm::any_of(result.getUses(),
                      [&](OpOperand &use) { return !segment.contains(use.getOwner()); });
}

/// Gives what is outside the whole values, and lets go of the members.
void SegmentTiler::finish() {
  number = -1;
  auto replace = [&](Value old, Value made) {
    old.replaceUsesWithIf(made, [&](OpOperand &use) { return !segment.contains(use.getOwner()); });
  };
  for (Operation *op : segment.getOps()) {
    if (segment.isSameForAll(op))
      continue;
    for (OpResult result : op->getResults()) {
      if (!isNeededOutside(result))
        continue;
      if (Value sum = sums.lookup(result)) {
        if (AccumulateOp accumulation = findAccumulation(result)) {
          auto old = accumulation->getOperand(0).getDefiningOp<ReadOp>();
          accumulation.replaceAllUsesWith(sum);
          accumulation.erase();
          if (old->use_empty())
            old->erase();
          continue;
        }
        if (sum.getType() != result.getType()) {
          sum = convertFloats(builder, result.getLoc(), sum, tensorType(result).getElementType());
          setPhase(sum.getDefiningOp(), getPhase(op));
        }
        replace(result, sum);
        continue;
      }
      replace(result, shape(join(result, pieces.lookup(result)), result));
    }
  }
  for (Operation *op : llvm::reverse(segment.getOps()))
    if (op->use_empty())
      op->erase();
}

void SegmentTiler::prepare() {
  for (Operation *op : segment.getOps())
    if (auto loss = dyn_cast<CrossEntropyOp>(op);
        loss && !segment.isOfTokens(cast<OpResult>(loss.getCount())))
      separateCount(loss);
  separateShapes(segment);
  moveBehind(segment);
  builder.setInsertionPoint(segment.getOps().back());
}

void SegmentTiler::writeOut(int64_t parts) {
  prepare();
  SmallVector<Rows> tiles = cutIntoTiles(segment.getTokens());
  for (ArrayRef<Rows> part : groupTiles(tiles, parts ? parts : static_cast<int64_t>(tiles.size())))
    buildPart(part);
  finish();
}

void SegmentTiler::runInLoop(int64_t parts) {
  prepare();
  SmallVector<Rows> tiles = cutIntoTiles(segment.getTokens());
  ArrayRef<Rows> left = tiles;
  size_t together = llvm::divideCeil(tiles.size(), parts);
  int64_t turns = segment.getTokens() / tiles[together - 1].end;
  if (turns > 1) {
    buildLoop(turns, left.take_front(together));
    left = left.drop_front(turns * together);
  }
  if (!left.empty())
    buildPart(left);
  finish();
}
