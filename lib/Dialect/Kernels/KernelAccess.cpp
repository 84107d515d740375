//===- KernelAccess.cpp - what a kernel reads where it writes --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Answers for memopt.kernel: its cost, and which result may take which operand's buffer. The latter
// follows every read of an operand back from the results. Code generation stores all results of one
// shape in one loop nest, after everything that the iteration loads, and computes what belongs to a
// row (reductions along its last dimensions) before it stores the row; so two kinds of reads allow
// taking over the buffer: of the very element that the iteration writes, and of the row that it
// writes. Anything else refuses.
//
//===----------------------------------------------------------------------===//

#include "../IR/Verification.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// One coordinate of a read, seen from the element that is written: the number of the written
/// element's dimension, all of a dimension (a reduction), or anything.
constexpr int64_t kWholeDim = -1, kUnknown = -2;
using Coordinates = SmallVector<int64_t>;

/// Where a value is read on the way to the written element, and the last dimension of that which a
/// sum on the way varies along, or -1: such a sum is taken anew for each of its elements.
struct Place {
  Coordinates at;
  int64_t summedAlong;
  bool operator==(const Place &other) const {
    return at == other.at && summedAlong == other.summedAlong;
  }
};

/// How one operand is read on the way to one result.
struct Access {
  bool isRead = false;
  /// Whether all reads are of the element that is written.
  bool isSameElement = true;
  /// Whether all reads are of that element or of a row that holds it.
  bool isSameRow = true;
};

/// All reads of a kernel's operands on the way to one result.
class AccessWalk {
public:
  /// By the value at whose element a walk began.
  using Finished = llvm::DenseMap<Value, SmallVector<Access>>;

  AccessWalk(Block &kernel, Value result, Finished &finished)
      : kernel(kernel), result(result), finished(finished), accesses(kernel.getNumArguments()) {}

  const Access &of(BlockArgument operand) const { return accesses[operand.getArgNumber()]; }

  void run() {
    Coordinates identity;
    for (int64_t dim = 0, rank = shapeOf(result).size(); dim < rank; ++dim)
      identity.push_back(dim);
    visit(result, {identity, -1});
  }

private:
  void visit(Value value, const Place &place) {
    if (auto operand = dyn_cast<BlockArgument>(value))
      return record(operand, place);
    Operation *op = value.getDefiningOp();
    SmallVector<Place, 1> &seenAt = seen[value];
    if (llvm::is_contained(seenAt, place))
      return;
    seenAt.push_back(place);
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      return visitGeneric(generic, cast<OpResult>(value).getResultNumber(), place);
    if (op->hasTrait<OpTrait::FillsKernel>())
      return visitIrregular(op, place);
    if (auto view = dyn_cast<ViewOpInterface>(op))
      return visitView(view, place);
    for (Value source : op->getOperands())
      if (isa<RankedTensorType>(source.getType()))
        visit(source, anywhere(source, place));
  }

  static Place anywhere(Value value, const Place &place) {
    return {Coordinates(shapeOf(value).size(), kUnknown), place.summedAlong};
  }

  void visitView(ViewOpInterface view, Place place) {
    if (view.getViewKind() == ViewKind::Reshape && isWrittenElement(view->getResult(0), place.at))
      return visitReshaped(view->getOperand(0));
    // Where there is one element, that one is read, wherever the iteration stands: it may be a part
    // of a longer dimension, joined with others.
    for (auto [coordinate, size] : llvm::zip_equal(place.at, shapeOf(view->getResult(0))))
      if (size == 1 && coordinate >= 0 && shapeOf(result)[coordinate] != 1)
        coordinate = kUnknown;
    for (const ViewPart &part : view.getViewParts()) {
      Value source = view->getOperand(part.operand);
      visit(source, part.map.isPermutation() ? Place{readAt(part.map, place.at), place.summedAlong}
                                             : anywhere(source, place));
    }
  }

  /// What has loops of its own reads at any time while it writes. But a scatter's input is copied
  /// before anything is scattered.
  void visitIrregular(Operation *op, const Place &place) {
    auto scatter = dyn_cast<ScatterOp>(op);
    if (scatter)
      visit(scatter.getInput(), place);
    for (Value source : op->getOperands().drop_front(scatter ? 1 : 0)) {
      SmallVector<Access> inner = walkFrom(source);
      for (auto [access, there] : llvm::zip_equal(accesses, inner))
        if (there.isRead)
          access = {true, false, false};
    }
  }

  SmallVector<Access> walkFrom(Value source) {
    if (auto known = finished.find(source); known != finished.end())
      return known->second;
    AccessWalk inner(kernel, source, finished);
    inner.run();
    return finished[source] = std::move(inner.accesses);
  }

  /// Behind a reshape the same element has other coordinates: those of a result of that shape.
  void visitReshaped(Value source) {
    SmallVector<Access> inner = walkFrom(source);
    for (auto [access, there] : llvm::zip_equal(accesses, inner)) {
      access.isRead |= there.isRead;
      access.isSameElement &= there.isSameElement;
      access.isSameRow &= there.isSameElement;
    }
  }

  void visitGeneric(linalg::GenericOp generic, unsigned number, const Place &place) {
    auto mapOf = [&](unsigned operand) {
      return cast<AffineMapAttr>(generic.getIndexingMaps()[operand]).getValue();
    };
    AffineMap out = mapOf(generic->getNumOperands() - generic->getNumResults() + number);
    Coordinates loops(out.getNumDims(), kWholeDim);
    for (auto [dim, expr] : llvm::enumerate(out.getResults()))
      if (auto loop = dyn_cast<AffineDimExpr>(expr))
        loops[loop.getPosition()] = place.at[dim];
    int64_t summedAlong = place.summedAlong;
    if (generic.getNumReductionLoops() > 0)
      for (int64_t coordinate : place.at)
        summedAlong = std::max(summedAlong, coordinate);
    for (OpOperand &input : generic->getOpOperands()) {
      unsigned index = input.getOperandNumber();
      if (!generic.getBody()->getArgument(index).use_empty())
        visit(input.get(), {readAt(mapOf(index), loops), summedAlong});
    }
    generic.getBody()->walk([&](tensor::ExtractOp extract) {
      visit(extract.getTensor(), anywhere(extract.getTensor(), place));
    });
  }

  static Coordinates readAt(AffineMap map, const Coordinates &loops) {
    Coordinates at;
    for (AffineExpr expr : map.getResults()) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      at.push_back(loop ? loops[loop.getPosition()] : kUnknown);
    }
    return at;
  }

  bool isWrittenElement(Value value, const Coordinates &at) const {
    if (shapeOf(value) != shapeOf(result))
      return false;
    for (auto [dim, coordinate] : llvm::enumerate(at))
      if (coordinate != static_cast<int64_t>(dim) && shapeOf(value)[dim] != 1)
        return false;
    return true;
  }

  void record(BlockArgument operand, const Place &place) {
    Access &access = accesses[operand.getArgNumber()];
    access.isRead = true;
    if (isWrittenElement(operand, place.at))
      return;
    access.isSameElement = false;
    access.isSameRow &= isWrittenRow(operand, place);
  }

  /// The written element's leading coordinates, at least one, then all of the others, summed once
  /// for all elements of the row.
  bool isWrittenRow(Value operand, const Place &place) const {
    if (shapeOf(operand) != shapeOf(result))
      return false;
    ArrayRef<int64_t> at = place.at;
    int64_t fixed = 0, rank = at.size();
    while (fixed < rank && at[fixed] == fixed)
      ++fixed;
    return fixed > 0 && place.summedAlong < fixed &&
           llvm::all_of(
               at.drop_front(fixed), [](int64_t coordinate) { return coordinate == kWholeDim; });
  }

  Block &kernel;
  Value result;
  Finished &finished;
  SmallVector<Access> accesses; ///< by the kernel's argument
  /// By value the coordinates that it was visited at: what is used twice is walked once.
  llvm::DenseMap<Value, SmallVector<Place, 1>> seen;
};
} // namespace

SmallVector<InPlaceOperand> KernelOp::getInPlaceOperands(unsigned result) {
  Block &body = getBody().front();
  auto yield = cast<YieldOp>(body.getTerminator());
  Value written = yield.getValues()[result];
  auto isAsLarge = [&](BlockArgument argument) {
    return getTensorBytes(argument.getType()) == getTensorBytes(written.getType()) &&
           cast<RankedTensorType>(argument.getType()).getNumElements() ==
               cast<RankedTensorType>(written.getType()).getNumElements();
  };
  SmallVector<InPlaceOperand> operands;
  if (llvm::none_of(body.getArguments(), isAsLarge))
    return operands;
  AccessWalk::Finished finished;
  SmallVector<AccessWalk> walks;
  for (Value value : yield.getValues())
    walks.emplace_back(body, value, finished).run();
  for (BlockArgument argument : body.getArguments()) {
    if (!isAsLarge(argument))
      continue;
    bool allowed = true, byRow = false;
    for (auto [number, value] : llvm::enumerate(yield.getValues())) {
      const Access &access = walks[number].of(argument);
      bool isOwn = number == result;
      // Other results share the loop nest only when they have the same shape; what is joined of
      // several is written piece by piece.
      bool sharesNest = shapeOf(value) == shapeOf(written) &&
                        !value.getDefiningOp<tensor::ConcatOp>() &&
                        !written.getDefiningOp<tensor::ConcatOp>();
      allowed &= !access.isRead || (isOwn ? access.isSameRow : sharesNest && access.isSameElement);
      byRow |= access.isRead && !access.isSameElement;
    }
    if (allowed)
      operands.push_back({argument.getArgNumber(), byRow});
  }
  return operands;
}

//===----------------------------------------------------------------------===//
// Cost
//===----------------------------------------------------------------------===//

int64_t KernelOp::getFlops() {
  int64_t flops = 0;
  for (auto generic : getBody().front().getOps<linalg::GenericOp>()) {
    int64_t points = multiplyCounts(generic.getStaticLoopRanges()), ops = 0;
    for (Operation &op : generic.getBody()->without_terminator())
      if (op.getNumResults() == 1 && isa<FloatType>(op.getResult(0).getType()) &&
          !isa<arith::ConstantOp, arith::SelectOp, tensor::ExtractOp>(op))
        ++ops;
    flops = addCounts(flops, multiplyCounts({points, ops}));
  }
  return flops;
}

int64_t KernelOp::getBytesMoved() { return getOperandAndResultBytes(*this); }
