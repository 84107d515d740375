//===- LowerToLinalgPooling.cpp - pooling and its gradients --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Windows are read through tensor.extract with indices clamped into the tensor, and what lies
// outside is masked, so that padding is never stored and never wins. A gradient gathers from the
// windows that contain an input element instead of scattering to it: no two iterations write the
// same element, and the order of additions is fixed.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"
#include "memopt/Dialect/Formula.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Where a window's elements lie, in one spatial dimension.
struct WindowDim {
  unsigned loop; ///< dimension of the tensors
  int64_t size;  ///< of the input
  int64_t windows, kernel, stride, padding, dilation;

  int64_t getExtent() const { return (kernel - 1) * dilation + 1; }
  /// How many windows an element can lie in.
  int64_t getOverlap() const { return llvm::divideCeil(getExtent(), stride); }
};
} // namespace

template <typename OpType>
static SmallVector<WindowDim> getWindowDims(OpType op, RankedTensorType input,
                                            RankedTensorType output, ArrayRef<int64_t> dilations) {
  SmallVector<WindowDim> dims;
  unsigned first = op.getLayout() == Layout::ChannelsLast ? 1 : 2;
  for (size_t i = 0; i < op.getKernel().size(); ++i)
    dims.push_back({static_cast<unsigned>(first + i), input.getDimSize(first + i),
                    output.getDimSize(first + i), op.getKernel()[i], op.getStrides()[i],
                    op.getPaddingLow()[i], dilations.empty() ? 1 : dilations[i]});
  return dims;
}

/// Bodies name every element of a window; huge windows are other ops (reductions).
template <typename OpType> static LogicalResult checkWindow(OpType op) {
  int64_t taps = ShapedType::getNumElements(op.getKernel());
  if (taps <= 1024)
    return success();
  return op.emitOpError() << "has windows of " << taps << " elements; at most 1024 are supported";
}

/// Calls `visit` with the indices of each element of a window, row-major.
static void forEachTap(ArrayRef<int64_t> sizes,
                       llvm::function_ref<void(ArrayRef<int64_t> tap, int64_t number)> visit) {
  SmallVector<int64_t> tap(sizes.size(), 0);
  int64_t count = ShapedType::getNumElements(sizes);
  for (int64_t number = 0; number < count; ++number) {
    int64_t rest = number;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      tap[dim] = rest % sizes[dim];
      rest /= sizes[dim];
    }
    visit(tap, number);
  }
}

namespace {
/// Index arithmetic inside a body.
struct Indices {
  ImplicitLocOpBuilder &b;

  Value constant(int64_t value) { return arith::ConstantIndexOp::create(b, value); }
  Value loop(unsigned dim) { return linalg::IndexOp::create(b, dim); }
  Value add(Value l, Value r) { return arith::AddIOp::create(b, l, r); }
  Value sub(Value l, Value r) { return arith::SubIOp::create(b, l, r); }
  Value mul(Value l, int64_t factor) { return arith::MulIOp::create(b, l, constant(factor)); }
  Value both(Value l, Value r) { return l ? Value(arith::AndIOp::create(b, l, r)) : r; }
  Value compare(arith::CmpIPredicate predicate, Value l, int64_t r) {
    return arith::CmpIOp::create(b, predicate, l, constant(r));
  }
  Value isInside(Value index, int64_t size) {
    return both(compare(arith::CmpIPredicate::sge, index, 0),
                compare(arith::CmpIPredicate::slt, index, size));
  }
  Value clamp(Value index, int64_t size) {
    Value low = arith::MaxSIOp::create(b, index, constant(0));
    return arith::MinSIOp::create(b, low, constant(size - 1));
  }
  SmallVector<Value> allLoops(int64_t rank) {
    SmallVector<Value> loops;
    for (int64_t dim = 0; dim < rank; ++dim)
      loops.push_back(loop(dim));
    return loops;
  }
};

/// One element of a window, or one window of an element.
struct Place {
  SmallVector<Value> at; ///< clamped indices of the whole tensor
  Value isInside;        ///< i1
};
} // namespace

/// Element `tap` of the window that the current point of the output stands for.
static Place getWindowElement(Indices &indices, ArrayRef<WindowDim> dims, ArrayRef<int64_t> tap,
                              int64_t rank) {
  Place place{indices.allLoops(rank), Value()};
  for (auto [dim, t] : llvm::zip_equal(dims, tap)) {
    Value start = indices.mul(indices.loop(dim.loop), dim.stride);
    Value index = indices.add(start, indices.constant(t * dim.dilation - dim.padding));
    place.isInside = indices.both(place.isInside, indices.isInside(index, dim.size));
    place.at[dim.loop] = indices.clamp(index, dim.size);
  }
  return place;
}

namespace {
struct WindowOfElement : Place {
  Value tap; ///< i32: which element of that window the current point is
};
} // namespace

/// The `back[i]`-th last window in dimension i that can contain the current point of the input.
static WindowOfElement getWindow(Indices &indices, ArrayRef<WindowDim> dims, ArrayRef<int64_t> back,
                                 int64_t rank) {
  WindowOfElement window{{indices.allLoops(rank), Value()}, Value()};
  ImplicitLocOpBuilder &b = indices.b;
  Value number = indices.constant(0);
  for (auto [dim, steps] : llvm::zip_equal(dims, back)) {
    Value padded = indices.add(indices.loop(dim.loop), indices.constant(dim.padding));
    Value last = arith::DivUIOp::create(b, padded, indices.constant(dim.stride));
    Value index = indices.sub(last, indices.constant(steps));
    Value distance = indices.sub(padded, indices.mul(index, dim.stride));
    Value tap = distance;
    if (dim.dilation != 1) {
      tap = arith::DivUIOp::create(b, distance, indices.constant(dim.dilation));
      Value rest = arith::RemUIOp::create(b, distance, indices.constant(dim.dilation));
      window.isInside =
          indices.both(window.isInside, indices.compare(arith::CmpIPredicate::eq, rest, 0));
    }
    window.isInside =
        indices.both(window.isInside, indices.compare(arith::CmpIPredicate::slt, tap, dim.kernel));
    window.isInside = indices.both(window.isInside, indices.isInside(index, dim.windows));
    window.at[dim.loop] = indices.clamp(index, dim.windows);
    number = indices.add(indices.mul(number, dim.kernel), tap);
  }
  window.tap = convertTo(b, number, b.getI32Type());
  return window;
}

static SmallVector<int64_t> getOverlaps(ArrayRef<WindowDim> dims) {
  return llvm::map_to_vector(dims, [](const WindowDim &dim) { return dim.getOverlap(); });
}

//===----------------------------------------------------------------------===//
// Maximum
//===----------------------------------------------------------------------===//

static Lowered lowerMaxPool(MaxPoolOp op, ImplicitLocOpBuilder &b) {
  if (failed(checkWindow(op)))
    return failure();
  RankedTensorType input = tensorType(op.getInput()), output = tensorType(op.getResult());
  Type tapType = tensorType(op.getTaps()).getElementType();
  SmallVector<WindowDim> dims = getWindowDims(op, input, output, op.getDilations());
  Type element = input.getElementType();
  return createPointwise(
      b, output.getShape(), {}, {element, tapType}, [&](ImplicitLocOpBuilder &inner, ValueRange) {
        Indices indices{inner};
        Value best =
            arith::ConstantOp::create(inner, getNeutralElement(inner, ReduceKind::Max, element));
        Value winner = createIntConstant(inner, tapType, 0);
        // Backwards, where an equal element takes over: the first among equals wins in the end, and
        // an element of the tensor even where all are minus infinity.
        SmallVector<SmallVector<int64_t>> taps;
        forEachTap(op.getKernel(), [&](ArrayRef<int64_t> tap, int64_t) { taps.emplace_back(tap); });
        for (int64_t number = taps.size(); number-- > 0;) {
          Place place = getWindowElement(indices, dims, taps[number], input.getRank());
          Value value = tensor::ExtractOp::create(inner, op.getInput(), place.at);
          Value isNew = arith::OrIOp::create(
              inner, arith::CmpFOp::create(inner, arith::CmpFPredicate::OGE, value, best),
              arith::CmpFOp::create(inner, arith::CmpFPredicate::UNO, value, value));
          isNew = arith::AndIOp::create(inner, isNew, place.isInside);
          best = arith::SelectOp::create(inner, isNew, value, best);
          winner = arith::SelectOp::create(inner, isNew, createIntConstant(inner, tapType, number),
                                           winner);
        }
        return SmallVector<Value>{best, winner};
      });
}

static Lowered lowerMaxPoolBackward(MaxPoolBackwardOp op, ImplicitLocOpBuilder &b) {
  if (failed(checkWindow(op)))
    return failure();
  RankedTensorType input = tensorType(op.getResult()), output = tensorType(op.getGradient());
  SmallVector<WindowDim> dims = getWindowDims(op, input, output, op.getDilations());
  Type element = input.getElementType(), compute = getComputeType(element);
  return createPointwise(
      b, input.getShape(), {}, {element}, [&](ImplicitLocOpBuilder &inner, ValueRange) {
        Indices indices{inner};
        Formula f{inner, compute};
        Value sum = f.number(0.0);
        forEachTap(getOverlaps(dims), [&](ArrayRef<int64_t> back, int64_t) {
          WindowOfElement window = getWindow(indices, dims, back, input.getRank());
          Value winner = tensor::ExtractOp::create(inner, op.getTaps(), window.at);
          Value gradient = tensor::ExtractOp::create(inner, op.getGradient(), window.at);
          Value own =
              arith::CmpIOp::create(inner, arith::CmpIPredicate::eq,
                                    convertTo(inner, winner, inner.getI32Type()), window.tap);
          own = arith::AndIOp::create(inner, own, window.isInside);
          sum = f.add(sum, arith::SelectOp::create(inner, own, f.wide(gradient), f.number(0.0)));
        });
        return SmallVector<Value>{convertTo(inner, sum, element)};
      });
}

//===----------------------------------------------------------------------===//
// Mean
//===----------------------------------------------------------------------===//

/// By what the window at `windows` (one index per dimension of `dims`) divides its sum.
template <typename OpType>
static Value getDivisor(OpType op, Formula &f, Indices &indices, ArrayRef<WindowDim> dims,
                        ArrayRef<Value> windows) {
  if (int64_t divisor = op.getDivisorAttr().getInt(); divisor > 0)
    return f.number(divisor);
  if (op.getCountPadding())
    return f.number(ShapedType::getNumElements(op.getKernel()));
  Value count = indices.constant(1);
  for (auto [dim, window] : llvm::zip_equal(dims, windows)) {
    Value start = indices.sub(indices.mul(window, dim.stride), indices.constant(dim.padding));
    Value end = indices.add(start, indices.constant(dim.kernel));
    Value low = arith::MaxSIOp::create(f.b, start, indices.constant(0));
    Value high = arith::MinSIOp::create(f.b, end, indices.constant(dim.size));
    count = arith::MulIOp::create(f.b, count, indices.sub(high, low));
  }
  return convertTo(f.b, convertTo(f.b, count, f.b.getI32Type()), f.type);
}

static Lowered lowerAvgPool(AvgPoolOp op, ImplicitLocOpBuilder &b) {
  if (failed(checkWindow(op)))
    return failure();
  RankedTensorType input = tensorType(op.getInput()), output = tensorType(op.getResult());
  SmallVector<WindowDim> dims = getWindowDims(op, input, output, {});
  Type element = input.getElementType(), compute = getComputeType(element);
  return createPointwise(
      b, output.getShape(), {}, {element}, [&](ImplicitLocOpBuilder &inner, ValueRange) {
        Indices indices{inner};
        Formula f{inner, compute};
        Value sum = f.number(0.0);
        forEachTap(op.getKernel(), [&](ArrayRef<int64_t> tap, int64_t) {
          Place place = getWindowElement(indices, dims, tap, input.getRank());
          Value value = f.wide(tensor::ExtractOp::create(inner, op.getInput(), place.at));
          sum = f.add(sum, arith::SelectOp::create(inner, place.isInside, value, f.number(0.0)));
        });
        SmallVector<Value> windows;
        for (const WindowDim &dim : dims)
          windows.push_back(indices.loop(dim.loop));
        Value mean = f.div(sum, getDivisor(op, f, indices, dims, windows));
        return SmallVector<Value>{convertTo(inner, mean, element)};
      });
}

static Lowered lowerAvgPoolBackward(AvgPoolBackwardOp op, ImplicitLocOpBuilder &b) {
  if (failed(checkWindow(op)))
    return failure();
  RankedTensorType input = tensorType(op.getResult()), output = tensorType(op.getGradient());
  SmallVector<WindowDim> dims = getWindowDims(op, input, output, {});
  Type element = input.getElementType(), compute = getComputeType(element);
  return createPointwise(
      b, input.getShape(), {}, {element}, [&](ImplicitLocOpBuilder &inner, ValueRange) {
        Indices indices{inner};
        Formula f{inner, compute};
        Value sum = f.number(0.0);
        forEachTap(getOverlaps(dims), [&](ArrayRef<int64_t> back, int64_t) {
          WindowOfElement window = getWindow(indices, dims, back, input.getRank());
          Value gradient = f.wide(tensor::ExtractOp::create(inner, op.getGradient(), window.at));
          SmallVector<Value> windows;
          for (const WindowDim &dim : dims)
            windows.push_back(window.at[dim.loop]);
          Value share = f.div(gradient, getDivisor(op, f, indices, dims, windows));
          sum = f.add(sum, arith::SelectOp::create(inner, window.isInside, share, f.number(0.0)));
        });
        return SmallVector<Value>{convertTo(inner, sum, element)};
      });
}

void mlir::memopt::populatePoolingLowerings(LinalgLowerings &lowerings) {
  lowerings.add<MaxPoolOp>(lowerMaxPool);
  lowerings.add<MaxPoolBackwardOp>(lowerMaxPoolBackward);
  lowerings.add<AvgPoolOp>(lowerAvgPool);
  lowerings.add<AvgPoolBackwardOp>(lowerAvgPoolBackward);
}
