//===- LiveElements.cpp - which elements are read and are no zeros ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LiveElements.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;
using tensor::CollapseShapeOp;
using tensor::ConcatOp;
using tensor::ExpandShapeOp;
using tensor::ExtractSliceOp;

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

static bool usesKinds(AffineMap map, const IterationSpace &space, ArrayRef<LoopKind> kinds) {
  for (auto [loop, kind] : llvm::enumerate(space.kinds))
    if (llvm::is_contained(kinds, kind) && map.isFunctionOfDim(loop))
      return true;
  return false;
}

/// Whether `map` has the loop once at most, as an index of its own.
static bool usesPlainly(AffineMap map, unsigned loop) {
  unsigned plain = 0, other = 0;
  for (AffineExpr expr : map.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      plain += dim.getPosition() == loop;
    else
      other += expr.isFunctionOfDim(loop);
  return plain <= 1 && other == 0;
}

/// A loop that what is mixed lacks is the other side of the mixed dimension: the rows of a softmax are
/// cut, its columns are not. Of sums only those of products are cut.
CuttableLoops::CuttableLoops(IterationOpInterface op) : space(op.getIterationSpace()) {
  for (unsigned loop = 0; loop < space.getNumLoops(); ++loop) {
    bool isCut = space.kinds[loop] == LoopKind::Parallel ||
                 (space.kinds[loop] == LoopKind::Sum && isa<MatmulOp>(op));
    for (AffineMap map : space.maps)
      isCut &= !map || (usesPlainly(map, loop) &&
                        (map.isFunctionOfDim(loop) ||
                         !usesKinds(map, space, {LoopKind::Mix, LoopKind::Statistic})));
    mayCut.push_back(isCut);
  }
}

std::optional<unsigned> CuttableLoops::find(unsigned value, unsigned dim) const {
  AffineMap map = space.maps[value];
  auto plain = map ? dyn_cast<AffineDimExpr>(map.getResult(dim)) : AffineDimExpr(nullptr);
  if (!plain || !mayCut[plain.getPosition()])
    return std::nullopt;
  return plain.getPosition();
}

//===----------------------------------------------------------------------===//
// Kinds of ops
//===----------------------------------------------------------------------===//

static bool hasElements(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() && tensor.getNumElements() > 0;
}

/// A slice with a step of one, in the dimensions of its source.
static bool isPlainSlice(ExtractSliceOp slice) {
  return slice.hasUnitStride() && !ShapedType::isDynamicShape(slice.getStaticOffsets()) &&
         slice.getSourceType().getRank() == slice.getType().getRank();
}

bool LiveElements::mayRewrite(Operation *op) const {
  if (op->getNumResults() != 1 || op->getNumRegions() != 0 || !isPure(op) ||
      !llvm::all_of(op->getOperandTypes(), hasElements) || !hasElements(op->getResult(0).getType()))
    return false;
  if (auto slice = dyn_cast<ExtractSliceOp>(op))
    return isPlainSlice(slice);
  if (isa<CollapseShapeOp, ExpandShapeOp, ConcatOp, PadOp>(op))
    return true;
  // What numbers its elements, and what stands for the gradient of a value.
  auto draw = dyn_cast<DrawOpInterface>(op);
  return isa<IterationOpInterface>(op) && !isa<IncomingGradientOp, CustomGradientOp, ReadOp>(op) &&
         !(draw && draw.drawsNumbers());
}

SmallVector<Piece> mlir::memopt::getPieces(Operation *op) {
  if (auto pad = dyn_cast<PadOp>(op))
    return {{0, SmallVector<int64_t>(pad.getLow())}};
  SmallVector<Piece> pieces;
  auto concat = cast<ConcatOp>(op);
  SmallVector<int64_t> offsets(concat.getResultType().getRank(), 0);
  for (OpOperand &operand : op->getOpOperands()) {
    pieces.push_back({operand.getOperandNumber(), offsets});
    offsets[concat.getDim()] += tensorType(operand.get()).getDimSize(concat.getDim());
  }
  return pieces;
}

SmallVector<ReassociationIndices> mlir::memopt::getGroups(Operation *op) {
  if (auto collapse = dyn_cast<CollapseShapeOp>(op))
    return collapse.getReassociationIndices();
  return cast<ExpandShapeOp>(op).getReassociationIndices();
}

Box mlir::memopt::collapseBox(ArrayRef<ReassociationIndices> groups, ArrayRef<Places> box) {
  Box collapsed;
  for (const ReassociationIndices &group : groups)
    collapsed.push_back(Places::collapse(box.slice(group.front(), group.size())));
  return collapsed;
}

Box mlir::memopt::expandBox(ArrayRef<ReassociationIndices> groups, ArrayRef<Places> box,
                            ArrayRef<int64_t> shape) {
  if (groups.empty()) // a single element
    return getWholeBox(shape);
  Box expanded;
  for (auto [group, places] : llvm::zip_equal(groups, box)) {
    ArrayRef<int64_t> sizes = shape.slice(group.front(), group.size());
    llvm::append_range(expanded, places.expand(sizes).value_or(getWholeBox(sizes)));
  }
  return expanded;
}

static ArrayRef<int64_t> shapeOf(Value value) { return tensorType(value).getShape(); }

//===----------------------------------------------------------------------===//
// Dimensions that are cut together
//===----------------------------------------------------------------------===//

void LiveElements::number(Value value) {
  if (!isa<RankedTensorType>(value.getType()))
    return;
  axes[value] = numAxes;
  numAxes += tensorType(value).getRank();
}

void LiveElements::join(Value a, unsigned dimOfA, Value b, unsigned dimOfB) {
  classes.join(getAxis(a, dimOfA), getAxis(b, dimOfB));
}

void LiveElements::joinAxes(Operation *op) {
  Value result = op->getResult(0);
  if (isa<CollapseShapeOp, ExpandShapeOp>(op)) {
    bool collapses = isa<CollapseShapeOp>(op);
    Value fine = collapses ? op->getOperand(0) : result,
          coarse = collapses ? result : op->getOperand(0);
    for (auto [number, group] : llvm::enumerate(getGroups(op)))
      for (int64_t dim : group)
        join(coarse, number, fine, dim);
    return;
  }
  if (isa<ExtractSliceOp, ConcatOp, PadOp>(op)) {
    for (Value operand : op->getOperands())
      for (int64_t dim = 0; dim < tensorType(result).getRank(); ++dim)
        join(operand, dim, result, dim);
    return;
  }
  CuttableLoops loops(cast<IterationOpInterface>(op));
  SmallVector<std::optional<Axis>> first(loops.space.getNumLoops());
  SmallVector<Value> values(op->getOperands());
  values.push_back(result);
  for (auto [number, value] : llvm::enumerate(values))
    for (int64_t dim = 0; dim < tensorType(value).getRank(); ++dim)
      if (std::optional<unsigned> loop = loops.find(number, dim)) {
        Axis axis = getAxis(value, dim);
        if (first[*loop])
          classes.join(*first[*loop], axis);
        first[*loop] = axis;
      }
}

bool LiveElements::isWanted(Value value, unsigned dim) const {
  return wantsAll || wanted.contains(classes.findLeader(getAxis(value, dim)));
}

//===----------------------------------------------------------------------===//
// Readers
//===----------------------------------------------------------------------===//

void LiveElements::read(Value value, ArrayRef<Places> box) {
  if (!isa<RankedTensorType>(value.getType()))
    return;
  auto [known, isNew] = readBoxes.try_emplace(value, box);
  if (!isNew)
    known->second = unite(known->second, box);
}

/// The least box that the op can be written for that holds `box`.
Box LiveElements::coarsen(Operation *op, Box box) const {
  Value result = op->getResult(0);
  auto isOneFactor = [](const Places &places) { return places.getFactors().size() == 1; };
  auto hasSize = [&](Value operand, size_t dim) {
    return tensorType(operand).getDimSize(dim) == tensorType(result).getDimSize(dim);
  };
  std::optional<CuttableLoops> loops;
  if (!isa<CollapseShapeOp, ExpandShapeOp, ExtractSliceOp, ConcatOp, PadOp>(op))
    loops.emplace(cast<IterationOpInterface>(op));
  for (auto [dim, places] : llvm::enumerate(box)) {
    bool mayCut = isWanted(result, dim);
    if (isa<ExtractSliceOp, ConcatOp, PadOp>(op))
      mayCut &= isOneFactor(places) ||
                llvm::all_of(op->getOperands(),
                             [&, dim = dim](Value operand) { return hasSize(operand, dim); });
    if (isa<CollapseShapeOp>(op))
      mayCut &= places
                    .expand(shapeOf(op->getOperand(0))
                                .slice(getGroups(op)[dim].front(), getGroups(op)[dim].size()))
                    .has_value();
    if (loops)
      mayCut &= loops->find(loops->space.maps.size() - 1, dim).has_value();
    if (!mayCut)
      places = Places::all(places.getSize());
  }
  return box;
}

Box LiveElements::getLoopPlaces(Operation *op) const {
  CuttableLoops loops(cast<IterationOpInterface>(op));
  Box places = getWholeBox(loops.space.sizes);
  const Box &box = getBox(op->getResult(0));
  for (size_t dim = 0; dim < box.size(); ++dim)
    if (auto loop = loops.find(loops.space.maps.size() - 1, dim))
      places[*loop] = box[dim];
  if (!isa<MatmulOp>(op))
    return places;
  // What one side has only zeros for is left out of the sum.
  for (unsigned number : {0, 1}) {
    Value value = op->getOperand(number);
    Box zeros = getSupport(value);
    if (!isFinite(op->getOperand(1 - number)) || isEmpty(zeros))
      continue;
    for (size_t dim = 0; dim < zeros.size(); ++dim)
      if (auto loop = loops.find(number, dim);
          loop && loops.space.kinds[*loop] == LoopKind::Sum && isWanted(value, dim))
        places[*loop] = places[*loop].intersect(zeros[dim]);
  }
  if (isEmpty(places)) // no two elements that are not zero meet
    for (auto [loop, kind] : llvm::enumerate(loops.space.kinds))
      if (kind == LoopKind::Sum)
        places[loop] = Places::all(loops.space.sizes[loop]);
  return places;
}

void LiveElements::readOperands(Operation *op, ArrayRef<Places> box) {
  if (isa<CollapseShapeOp>(op))
    return read(op->getOperand(0), expandBox(getGroups(op), box, shapeOf(op->getOperand(0))));
  if (isa<ExpandShapeOp>(op))
    return read(op->getOperand(0), collapseBox(getGroups(op), box));
  if (auto slice = dyn_cast<ExtractSliceOp>(op)) {
    Box source(box);
    for (auto [dim, places] : llvm::enumerate(source))
      if (int64_t size = slice.getSourceType().getDimSize(dim); size != places.getSize())
        places = places.shift(slice.getStaticOffsets()[dim], size);
    return read(slice.getSource(), source);
  }
  if (isa<ConcatOp, PadOp>(op)) {
    for (const Piece &piece : getPieces(op)) {
      Value operand = op->getOperand(piece.operand);
      Box part(box);
      for (auto [dim, places] : llvm::enumerate(part))
        if (int64_t size = tensorType(operand).getDimSize(dim); size != places.getSize())
          places = places.cut(piece.offsets[dim], piece.offsets[dim] + size);
      if (!isEmpty(part))
        read(operand, part);
    }
    return;
  }
  CuttableLoops loops(cast<IterationOpInterface>(op));
  Box places = getLoopPlaces(op);
  for (auto [number, operand] : llvm::enumerate(op->getOperands())) {
    Box part = getWholeBox(shapeOf(operand));
    for (size_t dim = 0; dim < part.size(); ++dim)
      if (auto loop = loops.find(number, dim))
        part[dim] = places[*loop];
    read(operand, part);
  }
}

void LiveElements::findReaders() {
  readBoxes.clear();
  live.clear();
  isAnythingCut = false;
  for (Operation &op : llvm::reverse(block)) {
    if (!mayRewrite(&op)) {
      op.walk([&](Operation *inner) {
        for (Value operand : inner->getOperands())
          if (isa<RankedTensorType>(operand.getType()) && axes.contains(operand))
            read(operand, getWholeBox(shapeOf(operand)));
      });
      for (Value result : op.getResults())
        if (isa<RankedTensorType>(result.getType()))
          live[result] = getWholeBox(shapeOf(result));
      continue;
    }
    Value result = op.getResult(0);
    auto known = readBoxes.find(result);
    Box zeros = getSupport(result), box = getEmptyBox(shapeOf(result));
    if (known != readBoxes.end() && !isEmpty(zeros)) {
      box = known->second;
      for (auto [places, other] : llvm::zip_equal(box, zeros))
        places = places.intersect(other);
      if (!isEmpty(box))
        box = coarsen(&op, std::move(box));
    }
    isAnythingCut |= !isWhole(box) && !isEmpty(box);
    bool isRead = known != readBoxes.end() && !isEmpty(box);
    const Box &kept = live[result] = std::move(box);
    if (isRead)
      readOperands(&op, kept);
  }
  for (Value argument : block.getArguments())
    if (isa<RankedTensorType>(argument.getType()))
      live[argument] = getWholeBox(shapeOf(argument));
}

//===----------------------------------------------------------------------===//
// What is worth it
//===----------------------------------------------------------------------===//

/// Iterations of a product, of all places and of those that are live.
static std::pair<int64_t, int64_t> countIterations(ArrayRef<Places> loops) {
  int64_t all = 1, cut = 1;
  for (const Places &places : loops) {
    all = multiplyCounts({all, places.getSize()});
    cut = multiplyCounts({cut, places.count()});
  }
  return {all, cut};
}

/// Only dimensions along which some product has at most half of its iterations.
void LiveElements::want() {
  for (MatmulOp op : block.getOps<MatmulOp>()) {
    if (!mayRewrite(op) || isEmpty(getBox(op.getResult())))
      continue;
    Box places = getLoopPlaces(op);
    auto [all, cut] = countIterations(places);
    if (2 * cut > all)
      continue;
    CuttableLoops loops(cast<IterationOpInterface>(op.getOperation()));
    SmallVector<Value> values{op.getA(), op.getB(), op.getResult()};
    for (auto [number, value] : llvm::enumerate(values))
      for (int64_t dim = 0; dim < tensorType(value).getRank(); ++dim)
        if (auto loop = loops.find(number, dim); loop && !places[*loop].isAll())
          wanted.insert(classes.findLeader(getAxis(value, dim)));
  }
}

std::pair<int64_t, int64_t> LiveElements::countProducts() const {
  int64_t all = 0, cut = 0;
  for (MatmulOp op : block.getOps<MatmulOp>()) {
    if (!mayRewrite(op))
      continue;
    auto [before, after] = countIterations(getLoopPlaces(op));
    all = addCounts(all, before);
    cut = addCounts(cut, after);
  }
  return {all, cut};
}

LiveElements::LiveElements(Block &block, const SymbolTable &symbols)
    : block(block), symbols(symbols) {
  for (Value argument : block.getArguments())
    number(argument);
  for (Operation &op : block)
    for (Value result : op.getResults())
      number(result);
  classes.grow(numAxes);
  for (Operation &op : block)
    if (mayRewrite(&op)) {
      joinAxes(&op);
      findZeros(&op);
    }
  findReaders();
  if (!isAnythingCut)
    return;
  want();
  wantsAll = false;
  findReaders();
}
