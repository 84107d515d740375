//===- ChooseLayout.cpp - channels-last around convolutions --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Idea:    LayoutPlan decides for each value in which order its dimensions lie in memory; here ops
//          are rewritten, in program order, to work on tensors whose dimensions come in that order.
// Input:   the joint graph, row-major.
// Output:  the same with types permuted and `layout`, axes, dimensions, offsets changed to suit.
//          memopt.transpose (or a reshape, when only dimensions of size 1 move) where an op needs
//          a value in another order than it has.
// Where:   before memopt-lower-to-linalg, whose chunks of reductions are reshapes of leading
//          dimensions in memory and would stand in the way afterwards.
// Bits:    sums are taken in another order.
//
//===----------------------------------------------------------------------===//

#include "LayoutPlan.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_CHOOSELAYOUTPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

static RankedTensorType permuteType(RankedTensorType type, ArrayRef<int64_t> order) {
  return RankedTensorType::get(applyPermutation(type.getShape(), order), type.getElementType());
}

//===----------------------------------------------------------------------===//
// Reshapes
//===----------------------------------------------------------------------===//

namespace {
/// Two shapes of as many elements, runs of dimensions glued together until both are `common`.
struct GluedShapes {
  SmallVector<int64_t> common;
  SmallVector<ReassociationIndices> fromGroups, toGroups;
};
} // namespace

static ReassociationIndices getRange(size_t begin, size_t end) {
  return llvm::to_vector_of<int64_t, 2>(llvm::seq(begin, end));
}

static GluedShapes glueShapes(ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  GluedShapes glued;
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    size_t firstFrom = i, firstTo = j;
    int64_t fromSize = from[i++], toSize = to[j++];
    while (fromSize != toSize && (fromSize < toSize ? i < from.size() : j < to.size())) {
      if (fromSize < toSize)
        fromSize *= from[i++];
      else
        toSize *= to[j++];
    }
    // Sizes stay different at the end when there are no elements at all.
    bool isLast = i == from.size() || j == to.size() || fromSize != toSize;
    glued.fromGroups.push_back(getRange(firstFrom, isLast ? from.size() : i));
    glued.toGroups.push_back(getRange(firstTo, isLast ? to.size() : j));
    glued.common.push_back(std::min(fromSize, toSize));
    if (isLast)
      break;
  }
  return glued;
}

/// The same bytes as a tensor of `shape`: a collapse, an expansion, both or neither.
static Value createReshape(ImplicitLocOpBuilder &b, Value value, ArrayRef<int64_t> shape) {
  RankedTensorType type = tensorType(value);
  GluedShapes glued = glueShapes(type.getShape(), shape);
  if (ArrayRef(glued.common) != type.getShape())
    value = tensor::CollapseShapeOp::create(
        b, RankedTensorType::get(glued.common, type.getElementType()), value, glued.fromGroups);
  if (ArrayRef(glued.common) != shape)
    value = tensor::ExpandShapeOp::create(b, RankedTensorType::get(shape, type.getElementType()),
                                          value, glued.toGroups);
  return value;
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

namespace {
/// A value of the graph as it was: where it is now and in which order.
struct StoredValue {
  Value value;
  DimOrder order;
};

class LayoutRewriter {
public:
  explicit LayoutRewriter(const LayoutPlan &plan) : plan(plan) {}

  void rewrite(Block &block) {
    // What an op ties is read off its types, which change with its operands.
    std::vector<std::pair<Operation *, std::optional<TiedValues>>> ops;
    for (Operation &op : block)
      ops.emplace_back(&op, getTiedValues(&op));
    for (auto &[op, tied] : ops) {
      Operation *before = op->getPrevNode();
      if (!tied)
        makeOperandsRowMajor(op);
      else if (tied->rearranges)
        rewriteRearrangement(op, *tied);
      else
        rewriteTied(op, *tied);
      auto first = before ? std::next(before->getIterator()) : block.begin();
      for (Operation &made : llvm::make_range(first, op->getIterator()))
        for (NamedAttribute attribute : op->getDiscardableAttrs())
          made.setDiscardableAttr(attribute.getName(), attribute.getValue());
    }
    // Only now: a value of the old graph is known by its address.
    for (Operation *op : llvm::reverse(replaced))
      op->erase();
  }

private:
  void rewriteTied(Operation *op, const TiedValues &tied) {
    DimOrder order = chooseOrder(tied);
    for (auto [number, operand] : llvm::enumerate(tied.operands))
      operand->set(getIn(op, operand->get(), *getValueOrder(tied, number, order)));
    for (OpOperand &operand : op->getOpOperands())
      if (!llvm::is_contained(tied.operands, &operand))
        operand.set(getRowMajorIn(op, operand.get()));
    if (isRowMajor(order))
      return;
    for (auto [number, result] : llvm::enumerate(tied.results))
      setOrder(result, *getValueOrder(tied, tied.operands.size() + number, order));
    if (auto layout = dyn_cast<LayoutOpInterface>(op))
      layout.permuteDimensions(order);
  }

  /// Of the op's dimensions: what was decided for its result, or, where that lacks some, as its
  /// operand lies.
  DimOrder chooseOrder(const TiedValues &tied) const {
    int64_t rank = tied.shape.size();
    if (tied.prefersChannelsLast)
      return getChannelsLast(rank);
    std::optional<DimOrder> order =
        getOpOrder(tied, tied.operands.size(), plan.getOrder(tied.results.front()));
    if (!order)
      order = getOpOrder(tied, 0, getStored(tied.operands.front()->get()).order);
    return tied.hasLayoutAttribute && *order != getChannelsLast(rank) ? getRowMajor(rank) : *order;
  }

  /// Other numbers of the same bytes, or of the operand's after they were moved.
  void rewriteRearrangement(Operation *op, const TiedValues &tied) {
    Value result = op->getResult(0);
    StoredValue source = getStored(op->getOperand(0));
    DimOrder to = plan.getOrder(result), order = chooseOrder(tied);
    if (isRowMajor(source.order) && isRowMajor(to))
      return op->setOperand(0, source.value);
    DimOrder have = expandOrder(tied, 0, source.order);
    if (!areSameBytes(have, order, tied.shape)) {
      if (std::optional<DimOrder> want = getValueOrder(tied, 0, order))
        source.value = reorder(op, source, *want);
      else
        to = *getValueOrder(tied, 1, have);
    }
    ImplicitLocOpBuilder b(op->getLoc(), op);
    replace(op, createReshape(b, source.value, applyPermutation(tensorType(result).getShape(), to)),
            to);
  }

  /// For ops that know one order only. What ops in their regions read counts as well.
  void makeOperandsRowMajor(Operation *op) {
    op->walk([&](Operation *inner) {
      for (OpOperand &operand : inner->getOpOperands())
        operand.set(getRowMajorIn(op, operand.get()));
    });
  }

  //===--------------------------------------------------------------------===//
  // Values and their orders
  //===--------------------------------------------------------------------===//

  StoredValue getStored(Value old) const {
    auto found = stored.find(old);
    return found != stored.end() ? found->second
                                 : StoredValue{old, getRowMajor(tensorType(old).getRank())};
  }

  static SmallVector<int64_t> getLogicalShape(const StoredValue &value) {
    return applyPermutation(tensorType(value.value).getShape(),
                            invertPermutationVector(value.order));
  }

  /// `old` in `order`, converted in front of `user` unless it was converted before.
  Value getIn(Operation *user, Value old, ArrayRef<int64_t> order) {
    StoredValue have = getStored(old);
    if (ArrayRef(have.order) == order)
      return have.value;
    SmallVector<StoredValue> &known = conversions[old];
    for (const StoredValue &conversion : known)
      if (ArrayRef(conversion.order) == order)
        return conversion.value;
    known.push_back({reorder(user, have, order), DimOrder(order)});
    return known.back().value;
  }

  Value getRowMajorIn(Operation *user, Value old) {
    if (!stored.contains(old))
      return old;
    return getIn(user, old, getRowMajor(getStored(old).order.size()));
  }

  static Value reorder(Operation *user, const StoredValue &from, ArrayRef<int64_t> order) {
    if (ArrayRef(from.order) == order)
      return from.value;
    ImplicitLocOpBuilder b(user->getLoc(), user);
    SmallVector<int64_t> permutation = applyPermutation(invertPermutationVector(from.order), order);
    RankedTensorType type = permuteType(tensorType(from.value), permutation);
    DenseElementsAttr elements;
    if (matchPattern(from.value, m_Constant(&elements)) && elements.isSplat())
      return arith::ConstantOp::create(b, elements.resizeSplat(type));
    if (areSameBytes(from.order, order, getLogicalShape(from)))
      return createReshape(b, from.value, type.getShape());
    return TransposeOp::create(b, type, from.value, permutation);
  }

  /// Changes the type of a result that was row-major.
  void setOrder(Value result, ArrayRef<int64_t> order) {
    if (isRowMajor(order))
      return;
    result.setType(permuteType(tensorType(result), order));
    stored[result] = {result, DimOrder(order)};
  }

  void replace(Operation *op, Value made, ArrayRef<int64_t> order) {
    stored[op->getResult(0)] = {made, DimOrder(order)};
    replaced.push_back(op);
  }

  const LayoutPlan &plan;
  llvm::DenseMap<Value, StoredValue> stored;
  llvm::DenseMap<Value, SmallVector<StoredValue>> conversions;
  SmallVector<Operation *> replaced;
};

struct ChooseLayoutPass : mlir::memopt::impl::ChooseLayoutPassBase<ChooseLayoutPass> {
  using ChooseLayoutPassBase::ChooseLayoutPassBase;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (failed(verifyTensorGraph(func)))
      return signalPassFailure();
    if (func.isExternal())
      return;
    // What crosses the border of a block stays row-major, as all arguments do.
    for (Block *block : getProgramBlocks(func.getBody().front())) {
      LayoutPlan plan(*block);
      if (printPlan)
        plan.print(llvm::errs());
      if (plan.hasConvolutions())
        LayoutRewriter(plan).rewrite(*block);
    }
  }
};
} // namespace
