//===- PruneElements.cpp - compute no element that is not read ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A Fourier operator transforms an image, reads a few of its frequencies, writes as many into zeros, and
// transforms these back. Its transforms are products:
//
//   slice(x w)       ->  x slice(w)
//   pad(x) w         ->  x slice(w)        where w is a constant without infinities
//
// LiveElements says which elements of each value count. Here each op is written anew for these: a
// Rewriter goes forward, and between an op and its operands puts what is left between their boxes,
// slices and zeros.
//
// Refused, by computing all: what other ops than those of one result read; what saves a product less
// than half of its length.
//
//===----------------------------------------------------------------------===//

#include "LiveElements.h"

#include "memopt/Transforms/TilePasses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_PRUNEELEMENTSPASS
#include "memopt/Transforms/TilePasses.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
using tensor::CollapseShapeOp;
using tensor::ConcatOp;
using tensor::ExpandShapeOp;
using tensor::ExtractSliceOp;

//===----------------------------------------------------------------------===//
// From one box to another
//===----------------------------------------------------------------------===//

static Value makeZeros(ImplicitLocOpBuilder &b, Type elementType, ArrayRef<int64_t> shape) {
  auto type = RankedTensorType::get(shape, elementType);
  return arith::ConstantOp::create(b, DenseElementsAttr::get(type, b.getZeroAttr(elementType)));
}

static Value takeAlong(ImplicitLocOpBuilder &b, Value value, int64_t dim, int64_t begin,
                       int64_t count) {
  if (count == tensorType(value).getDimSize(dim))
    return value;
  SmallVector<int64_t> sizes(tensorType(value).getShape());
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0)),
      strides(sizes.size(), b.getIndexAttr(1));
  offsets[dim] = b.getIndexAttr(begin);
  sizes[dim] = count;
  return ExtractSliceOp::create(b, tensorType(value).clone(sizes), value, offsets,
                                getAsIndexOpFoldResult(b.getContext(), sizes), strides);
}

/// `value` has the places `from` along `dim`; those of `to` that it lacks are zeros.
static Value pickAlong(ImplicitLocOpBuilder &b, Value value, int64_t dim, const Factor &from,
                       const Factor &to) {
  struct Part {
    std::optional<int64_t> begin; ///< in `value`; zeros without it
    int64_t count;
  };
  SmallVector<Part> parts;
  auto add = [&](std::optional<int64_t> begin, int64_t count) {
    bool goesOn = !parts.empty() && parts.back().begin.has_value() == begin.has_value() &&
                  (!begin || *parts.back().begin + parts.back().count == *begin);
    if (goesOn)
      parts.back().count += count;
    else if (count)
      parts.push_back({begin, count});
  };
  for (auto [begin, end] : to.runs) {
    int64_t at = begin, inFront = 0; // of the run, in `value`
    for (auto [first, last] : from.runs) {
      int64_t next = std::max(first, at), behind = std::min(last, end);
      if (next < behind) {
        add(std::nullopt, next - at);
        add(inFront + next - first, behind - next);
        at = behind;
      }
      inFront += last - first;
    }
    add(std::nullopt, end - at);
  }
  SmallVector<Value> values;
  SmallVector<int64_t> shape(tensorType(value).getShape());
  for (const Part &part : parts) {
    shape[dim] = part.count;
    values.push_back(part.begin ? takeAlong(b, value, dim, *part.begin, part.count)
                                : makeZeros(b, tensorType(value).getElementType(), shape));
  }
  return values.size() == 1 ? values.front() : ConcatOp::create(b, dim, values).getResult();
}

/// One dimension as several, or several as one.
static Value splitDim(ImplicitLocOpBuilder &b, Value value, int64_t dim, ArrayRef<int64_t> sizes,
                      bool joins) {
  SmallVector<int64_t> shape(tensorType(value).getShape());
  SmallVector<ReassociationIndices> groups;
  int64_t next = 0, numGroups = shape.size() - (joins ? sizes.size() - 1 : 0);
  for (int64_t group = 0; group < numGroups; ++group) {
    int64_t count = group == dim ? sizes.size() : 1;
    groups.push_back(llvm::to_vector<2>(llvm::seq(next, next + count)));
    next += count;
  }
  auto first = shape.begin() + dim;
  shape.erase(first, first + (joins ? sizes.size() : 1));
  if (joins) {
    shape.insert(shape.begin() + dim, multiplyCounts(sizes));
    return CollapseShapeOp::create(b, tensorType(value).clone(shape), value, groups);
  }
  shape.insert(shape.begin() + dim, sizes.begin(), sizes.end());
  return ExpandShapeOp::create(b, tensorType(value).clone(shape), value, groups);
}

static Value moveAlong(ImplicitLocOpBuilder &b, Value value, int64_t dim, const Places &from,
                       const Places &to) {
  if (from == to)
    return value;
  if (!from.isAlignedWith(to)) {
    Places all = Places::all(from.getSize());
    return moveAlong(b, moveAlong(b, value, dim, from, all), dim, all, to);
  }
  SmallVector<Factor, 1> before = from.splitAs(to), after = to.splitAs(from);
  auto count = [](const Factor &factor) { return factor.count(); };
  if (before.size() > 1)
    value = splitDim(b, value, dim, llvm::map_to_vector(before, count), /*joins=*/false);
  for (auto [place, factors] : llvm::enumerate(llvm::zip_equal(before, after)))
    if (auto &[old, next] = factors; !(old == next))
      value = pickAlong(b, value, dim + place, old, next);
  if (before.size() > 1)
    value = splitDim(b, value, dim, llvm::map_to_vector(after, count), /*joins=*/true);
  return value;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

namespace {
class Rewriter {
public:
  Rewriter(Block &block, const LiveElements &elements) : block(block), elements(elements) {}

  void run();

private:
  const Box &getBox(Value value) const { return elements.getBox(value); }
  Value getRewritten(Value value) const { return rewritten.lookup_or(value, value); }
  Value move(ImplicitLocOpBuilder &b, Value value, ArrayRef<Places> to);
  bool isUnchanged(Operation *op) const;
  Value rewrite(ImplicitLocOpBuilder &b, Operation *op);
  Value rewritePieces(ImplicitLocOpBuilder &b, Operation *op);
  void giveToOthers(ImplicitLocOpBuilder &b, Value value);

  Block &block;
  const LiveElements &elements;
  DenseMap<Value, Value> rewritten;
  struct Move {
    Box to;
    Value result;
  };
  DenseMap<Value, SmallVector<Move>> moves; ///< that there are
  SetVector<Operation *> replaced;          ///< ops that were written anew, or that nobody needs
};
} // namespace

/// The elements of the graph's `value` that lie in `to`.
Value Rewriter::move(ImplicitLocOpBuilder &b, Value value, ArrayRef<Places> to) {
  const Box &from = getBox(value);
  if (ArrayRef<Places>(from) == to)
    return getRewritten(value);
  SmallVector<Move> &known = moves[value];
  for (const Move &move : known)
    if (ArrayRef<Places>(move.to) == to)
      return move.result;
  Value result = getRewritten(value);
  bool meet = !isEmpty(from);
  for (auto [places, other] : llvm::zip_equal(from, to))
    meet &= !places.isAlignedWith(other) || !places.intersect(other).isNone();
  if (meet)
    for (auto [dim, places] : llvm::enumerate(to))
      result = moveAlong(b, result, dim, from[dim], places);
  else
    result = makeZeros(b, tensorType(value).getElementType(), getCounts(to));
  known.push_back({Box(to), result});
  return result;
}

bool Rewriter::isUnchanged(Operation *op) const {
  return isWhole(getBox(op->getResult(0))) &&
         (isa<CollapseShapeOp, ExpandShapeOp, ExtractSliceOp, ConcatOp, PadOp>(op)
              ? llvm::all_of(op->getOperands(), [&](Value value) { return isWhole(getBox(value)); })
              : isWhole(elements.getLoopPlaces(op)));
}

/// A concatenation of the pieces that are left, each without what it lacks.
Value Rewriter::rewritePieces(ImplicitLocOpBuilder &b, Operation *op) {
  const Box &box = getBox(op->getResult(0));
  auto concat = dyn_cast<ConcatOp>(op);
  if (!concat) { // of a dimension after the other
    auto pad = cast<PadOp>(op);
    Value value = pad.getInput(), result;
    Box inside(box);
    for (auto [dim, places] : llvm::enumerate(inside))
      if (int64_t low = pad.getLow()[dim], size = tensorType(value).getDimSize(dim);
          size != places.getSize())
        places = places.cut(low, low + size);
    if (isEmpty(inside))
      return makeZeros(b, tensorType(value).getElementType(), getCounts(box));
    result = move(b, value, inside);
    for (auto [dim, places] : llvm::enumerate(inside))
      if (places.getSize() != box[dim].getSize())
        result = moveAlong(b, result, dim, places.shift(pad.getLow()[dim], box[dim].getSize()),
                           box[dim]);
    return result;
  }
  SmallVector<Value> parts;
  size_t along = concat.getDim();
  int64_t begin = 0;
  for (Value operand : op->getOperands()) {
    int64_t size = tensorType(operand).getDimSize(along);
    Box part(box);
    if (concat.getInputs().size() > 1)
      part[along] = box[along].cut(begin, begin + size);
    begin += size;
    if (!part[along].isNone())
      parts.push_back(move(b, operand, part));
  }
  return parts.size() == 1 ? parts.front() : ConcatOp::create(b, along, parts).getResult();
}

Value Rewriter::rewrite(ImplicitLocOpBuilder &b, Operation *op) {
  Value result = op->getResult(0);
  const Box &box = getBox(result);
  RankedTensorType type = tensorType(result).clone(getCounts(box));
  if (isa<ConcatOp, PadOp>(op))
    return rewritePieces(b, op);
  if (auto slice = dyn_cast<ExtractSliceOp>(op)) {
    Box source(box);
    for (auto [dim, places] : llvm::enumerate(source))
      if (int64_t size = slice.getSourceType().getDimSize(dim); size != places.getSize())
        places = places.shift(slice.getStaticOffsets()[dim], size);
    return move(b, slice.getSource(), source);
  }
  if (isa<CollapseShapeOp, ExpandShapeOp>(op)) {
    bool collapses = isa<CollapseShapeOp>(op);
    SmallVector<ReassociationIndices> groups = getGroups(op);
    Value operand = op->getOperand(0);
    Box from = collapses ? expandBox(groups, box, tensorType(operand).getShape())
                         : collapseBox(groups, box);
    Value moved = move(b, operand, from);
    return collapses ? CollapseShapeOp::create(b, type, moved, groups).getResult()
                     : ExpandShapeOp::create(b, type, moved, groups).getResult();
  }
  CuttableLoops loops(cast<IterationOpInterface>(op));
  Box places = elements.getLoopPlaces(op);
  SmallVector<Value> operands;
  for (auto [number, operand] : llvm::enumerate(op->getOperands())) {
    Box part = getWholeBox(tensorType(operand).getShape());
    for (size_t dim = 0; dim < part.size(); ++dim)
      if (std::optional<unsigned> loop = loops.find(number, dim))
        part[dim] = places[*loop];
    operands.push_back(move(b, operand, part));
  }
  Operation *clone = b.clone(*op);
  clone->setOperands(operands);
  cast<IterationOpInterface>(clone).resize(TypeRange(type));
  return clone->getResult(0);
}

/// Ops that stay as they are read `value` whole.
void Rewriter::giveToOthers(ImplicitLocOpBuilder &b, Value value) {
  auto isOther = [&](OpOperand &use) {
    return !replaced.contains(block.findAncestorOpInBlock(*use.getOwner()));
  };
  Value whole;
  for (OpOperand &use : llvm::make_early_inc_range(value.getUses())) {
    if (!isOther(use))
      continue;
    if (!whole)
      whole = move(b, value, getWholeBox(tensorType(value).getShape()));
    use.set(whole);
  }
}

void Rewriter::run() {
  SmallVector<Operation *> ops = llvm::to_vector(llvm::make_pointer_range(block));
  for (Operation *op : ops)
    if (elements.mayRewrite(op) && (isEmpty(getBox(op->getResult(0))) || !isUnchanged(op)))
      replaced.insert(op);
  for (Operation *op : replaced) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Value result = op->getResult(0);
    if (!isEmpty(getBox(result)))
      rewritten[result] = rewrite(b, op);
    giveToOthers(b, result);
  }
  for (Operation *op : llvm::reverse(replaced)) {
    assert(op->use_empty() && "whoever read it reads what took its place");
    op->erase();
  }
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct PruneElementsPass : mlir::memopt::impl::PruneElementsPassBase<PruneElementsPass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        prune(function, symbols);
  }

private:
  void prune(func::FuncOp function, const SymbolTable &symbols) {
    Block &block = function.getBody().front();
    LiveElements elements(block, symbols);
    if (!elements.hasCuts())
      return;
    auto [before, after] = elements.countProducts();
    remark::passed(function.getLoc(), remark::RemarkOpts::name("PruneElements")
                                          .category("memopt-prune-elements")
                                          .function(function.getName()))
        << remark::metric("MultiplyAddsBefore", before)
        << remark::metric("MultiplyAddsAfter", after);
    Rewriter(block, elements).run();
  }
};
} // namespace
