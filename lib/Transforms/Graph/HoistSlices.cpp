//===- HoistSlices.cpp - compute no logits that are cut off ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A language model's last prediction has no label, so many losses begin with logits[:, :-1]. What a
// linear layer makes of one token follows from this token alone:
//
//   slice(linear(x))  ->  linear(slice(x))
//
// x is far smaller than its logits. In the first form all logits are kept for a copy of most of them;
// in the second the slice is of x, and the layer, its loss and their gradients can run for some
// tokens at a time (TileTokens.cpp).
//
// Refused: logits with other readers, which are computed whole anyway; and what saves less than half.
//
// A Slicing walks from the slice up to the values that are cut instead. A value is met in one of two
// forms: its leading dimensions are those of the slice ([batch, tokens, ...]), or one dimension stands
// for all of them ([batch * tokens, ...]), between a collapse_shape and an expand_shape.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/TilePasses.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_HOISTSLICESPASS
#include "memopt/Transforms/TilePasses.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
using tensor::CollapseShapeOp;
using tensor::ExpandShapeOp;
using tensor::ExtractSliceOp;

/// The dimensions that a slice cuts, apart or merged into one.
enum class Form { Apart, Merged };

namespace {
class Slicing {
public:
  /// Of the first `dims` dimensions; the others are whole.
  Slicing(ExtractSliceOp slice, unsigned dims)
      : slice(slice), dims(dims), leading(slice.getSourceType().getShape().take_front(dims)),
        kept(slice.getType().getShape().take_front(dims)) {}

  /// Whether a product lies in between, of less than half as many elements as it makes.
  bool find();
  /// Cuts what the ops follow from, and writes these ops for what is left.
  void apply();

private:
  bool visit(Value value, Form form, bool isBehindProduct);
  bool visitReshape(Operation *op, Form form, bool isBehindProduct);
  bool visitLoops(Operation *op, Form form, bool isBehindProduct);
  SmallVector<int64_t> getLeading(Form form) const { return getShape(leading, form); }
  static SmallVector<int64_t> getShape(ArrayRef<int64_t> shape, Form form) {
    return form == Form::Apart ? llvm::to_vector(shape)
                               : SmallVector<int64_t>{multiplyCounts(shape)};
  }
  RankedTensorType getCutType(Value value, Form form) const;
  Value cut(OpBuilder &builder, Value value) const;
  void rewrite(OpBuilder &builder, Operation *op, IRMapping &mapping) const;

  ExtractSliceOp slice;
  unsigned dims;
  SmallVector<int64_t> leading, kept;
  llvm::MapVector<Value, Form> values; ///< what ops in between make
  llvm::SetVector<Value> ends;         ///< what is cut
  bool hasProduct = false;
  unsigned depth = 0; ///< ops between the slice and the value that is visited
};
} // namespace

//===----------------------------------------------------------------------===//
// What lies in between
//===----------------------------------------------------------------------===//

bool Slicing::find() {
  if (!visit(slice.getSource(), Form::Apart, /*isBehindProduct=*/false) || !hasProduct)
    return false;
  int64_t elements = 0;
  for (Value value : ends)
    if (!getSplatConstant(value))
      elements += tensorType(value).getNumElements();
  return 2 * elements < slice.getSourceType().getNumElements();
}

/// What has other readers is not computed twice. Behind a product the walk ends as soon as it can, and
/// where a layer and what is done to its result cannot be that long.
bool Slicing::visit(Value value, Form form, bool isBehindProduct) {
  SmallVector<int64_t> shape = getLeading(form);
  if (tensorType(value).getShape().take_front(shape.size()) != ArrayRef<int64_t>(shape))
    return false;
  constexpr unsigned mostDepth = 32;
  bool mayEnd = form == Form::Apart;
  Operation *op = value.getDefiningOp();
  if (op && value.hasOneUse() && !(mayEnd && isBehindProduct) && depth < mostDepth) {
    size_t numValues = values.size(), numEnds = ends.size();
    bool hadProduct = hasProduct;
    ++depth;
    bool isFound = isa<ExpandShapeOp, CollapseShapeOp>(op) ? visitReshape(op, form, isBehindProduct)
                                                           : visitLoops(op, form, isBehindProduct);
    --depth;
    if (isFound) {
      values[value] = form;
      return true;
    }
    while (values.size() > numValues)
      values.pop_back();
    while (ends.size() > numEnds)
      ends.pop_back();
    hasProduct = hadProduct;
  }
  if (mayEnd)
    ends.insert(value);
  return mayEnd;
}

/// From one form to the other.
bool Slicing::visitReshape(Operation *op, Form form, bool isBehindProduct) {
  auto expand = dyn_cast<ExpandShapeOp>(op);
  auto collapse = dyn_cast<CollapseShapeOp>(op);
  if ((form == Form::Apart) != static_cast<bool>(expand))
    return false;
  auto groups = expand ? expand.getReassociationIndices() : collapse.getReassociationIndices();
  if (groups.empty() || groups.front().size() != dims)
    return false;
  return visit(op->getOperand(0), expand ? Form::Merged : Form::Apart, isBehindProduct);
}

/// Whether `map` begins with `loops`, in their order, and does not use them otherwise.
static bool isLedBy(AffineMap map, ArrayRef<unsigned> loops) {
  if (map.getNumResults() < loops.size())
    return false;
  for (auto [expr, loop] : llvm::zip(map.getResults(), loops)) {
    auto plain = dyn_cast<AffineDimExpr>(expr);
    if (!plain || plain.getPosition() != loop)
      return false;
  }
  return llvm::none_of(map.getResults().drop_front(loops.size()), [&](AffineExpr expr) {
    return llvm::any_of(loops, [&](unsigned loop) { return expr.isFunctionOfDim(loop); });
  });
}

bool Slicing::visitLoops(Operation *op, Form form, bool isBehindProduct) {
  auto iteration = dyn_cast<IterationOpInterface>(op);
  auto draw = dyn_cast<DrawOpInterface>(op);
  if (!iteration || op->getNumResults() != 1 || op->getNumRegions() != 0 || !isPure(op) ||
      (draw && draw.drawsNumbers()))
    return false;
  IterationSpace space = iteration.getIterationSpace();
  SmallVector<unsigned> loops;
  AffineMap ofResult = space.maps.back(); // of a tensor, which the slice reads
  for (unsigned dim = 0; dim < getLeading(form).size(); ++dim) {
    auto plain = dyn_cast<AffineDimExpr>(ofResult.getResult(dim));
    if (!plain || space.kinds[plain.getPosition()] != LoopKind::Parallel)
      return false;
    loops.push_back(plain.getPosition());
  }
  if (!isLedBy(ofResult, loops))
    return false;
  bool isProduct = llvm::is_contained(space.kinds, LoopKind::Sum);
  hasProduct |= isProduct;
  for (auto [operand, map] : llvm::zip(op->getOperands(), space.maps)) {
    bool isCut = map && llvm::any_of(loops, [map = map](unsigned loop) {
                   return map.isFunctionOfDim(loop);
                 });
    if (isCut && (!isLedBy(map, loops) || !visit(operand, form, isBehindProduct || isProduct)))
      return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

RankedTensorType Slicing::getCutType(Value value, Form form) const {
  RankedTensorType type = tensorType(value);
  SmallVector<int64_t> shape = getShape(kept, form);
  llvm::append_range(shape, type.getShape().drop_front(shape.size()));
  return type.clone(shape);
}

Value Slicing::cut(OpBuilder &builder, Value value) const {
  RankedTensorType type = getCutType(value, Form::Apart);
  if (TypedAttr number = getSplatConstant(value))
    return arith::ConstantOp::create(builder, value.getLoc(),
                                     DenseElementsAttr::get(type, Attribute(number)));
  SmallVector<OpFoldResult> offsets = ExtractSliceOp(slice).getMixedOffsets(),
                            strides = ExtractSliceOp(slice).getMixedStrides();
  offsets.truncate(dims);
  strides.truncate(dims);
  offsets.resize(type.getRank(), builder.getIndexAttr(0));
  strides.resize(type.getRank(), builder.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = getAsIndexOpFoldResult(builder.getContext(), type.getShape());
  return ExtractSliceOp::create(builder, value.getLoc(), type, value, offsets, sizes, strides);
}

void Slicing::rewrite(OpBuilder &builder, Operation *op, IRMapping &mapping) const {
  Value value = op->getResult(0);
  RankedTensorType type = getCutType(value, values.lookup(value));
  if (auto expand = dyn_cast<ExpandShapeOp>(op)) {
    mapping.map(value,
                ExpandShapeOp::create(builder, op->getLoc(), type, mapping.lookup(expand.getSrc()),
                                      expand.getReassociationIndices()));
  } else if (auto collapse = dyn_cast<CollapseShapeOp>(op)) {
    mapping.map(value, CollapseShapeOp::create(builder, op->getLoc(), type,
                                               mapping.lookup(collapse.getSrc()),
                                               collapse.getReassociationIndices()));
  } else {
    cast<IterationOpInterface>(builder.clone(*op, mapping)).resize(TypeRange(type));
  }
}

void Slicing::apply() {
  OpBuilder builder(slice);
  IRMapping mapping;
  for (Value value : ends)
    mapping.map(value, cut(builder, value));
  for (auto [value, form] : values) // operands first
    rewrite(builder, value.getDefiningOp(), mapping);
  slice.replaceAllUsesWith(mapping.lookup(slice.getSource()));
  slice.erase();
  for (auto [value, form] : llvm::reverse(values))
    value.getDefiningOp()->erase();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// Of the fewest leading dimensions that hold all cut ones, and that ops in front allow.
static std::optional<Slicing> findSlicing(ExtractSliceOp slice) {
  RankedTensorType source = slice.getSourceType(), type = slice.getType();
  if (source.getRank() != type.getRank() || source.getShape() == type.getShape() ||
      !slice.getSource().hasOneUse() || llvm::is_contained(type.getShape(), 0))
    return std::nullopt;
  unsigned dims = source.getRank();
  while (source.getDimSize(dims - 1) == type.getDimSize(dims - 1))
    --dims;
  for (; static_cast<int64_t>(dims) < source.getRank(); ++dims)
    if (Slicing slicing(slice, dims); slicing.find())
      return slicing;
  return std::nullopt;
}

namespace {
struct HoistSlicesPass : mlir::memopt::impl::HoistSlicesPassBase<HoistSlicesPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    SmallVector<ExtractSliceOp> slices(function.getOps<ExtractSliceOp>());
    for (ExtractSliceOp slice : slices)
      if (std::optional<Slicing> slicing = findSlicing(slice)) {
        remark::passed(slice.getLoc(), remark::RemarkOpts::name("HoistSlices")
                                           .category("memopt-hoist-slices")
                                           .function(function.getName()))
            << remark::metric("BytesBefore", getTensorBytes(slice.getSourceType()))
            << remark::metric("BytesAfter", getTensorBytes(slice.getType()));
        slicing->apply();
      }
  }
};
} // namespace
