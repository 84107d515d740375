//===- GridSample.cpp - images read at computed positions -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Spelled out: positions, the neighbours of each as gathers, and their weights (Jaderberg et al.,
// Spatial Transformer Networks, 2015). The gradient of the image is then a scatter, that of the
// positions flows through the weights. Formulas are those of ATen's GridSampler.h.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

namespace {
enum SampleMode { Linear, Nearest, Cubic };
enum Border { Zeros, Edge, Reflection };

/// One spatial dimension of the image, and positions along it, [N, out...].
struct Axis {
  int64_t size;
  Value position;
};

class GridSampler {
public:
  GridSampler(OpContext &op, int64_t rank) : op(op), b(op.b), rank(rank) {}
  Error run();

private:
  Error readArguments();
  Value number(double value) { return splat(b, type, value); }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value floor(Value x) { return math::FloorOp::create(b, x); }
  Value clip(Value x, int64_t size);
  Value reflect(Value x, double twiceLow, double twiceHigh);
  Value settle(Value x, int64_t size);
  Value isInside(Value x, int64_t size);

  struct Tap {
    Value position; ///< a whole number, perhaps outside
    Value weight;   ///< null: 1
  };
  SmallVector<SmallVector<Tap>> getTaps();
  Expected<Value> read(ArrayRef<Tap> taps);

  OpContext &op;
  Builder &b;
  int64_t rank;
  Tensor image;
  SampleMode mode = Linear;
  Border border = Zeros;
  bool alignCorners = false;
  SmallVector<Axis> axes;
  RankedTensorType type; ///< of positions
  Shape sizes;           ///< of the result
};
} // namespace

Error GridSampler::readArguments() {
  image = op.tensor("input");
  Tensor grid = op.tensor("grid");
  int64_t interpolation = op.integer("interpolation_mode"), padding = op.integer("padding_mode");
  bool fits = image.rank() == rank + 2 && grid.rank() == rank + 2 && isFloat(image.dtype) &&
              image.dtype == grid.dtype && image.getNumElements() && grid.getNumElements() &&
              image.sizes[0] == grid.sizes[0] && grid.sizes.back() == rank;
  if (!fits || interpolation < 0 || interpolation > (rank == 2 ? 2 : 1) || padding < 0 ||
      padding > 2)
    return op.error("expected a floating-point image and positions in it, found " +
                    toString(image.sizes) + " and " + toString(grid.sizes));
  mode = SampleMode(interpolation);
  border = Border(padding);
  alignCorners = op.has("align_corners") && op.flag("align_corners");
  Shape places(ArrayRef(grid.sizes).drop_back());
  sizes.assign({image.sizes[0], image.sizes[1]});
  append_range(sizes, ArrayRef(places).drop_front());
  type = op.tensorType(image.dtype, places);
  for (int64_t dim = 0; dim != rank; ++dim) {
    // The grid has x first, which is the last dimension.
    ASSIGN_OR_RETURN(Tensor part, slice(op, grid, rank + 1, rank - 1 - dim, 1, 1));
    ASSIGN_OR_RETURN(part, reshape(op, part, places));
    int64_t size = image.sizes[dim + 2];
    Value x = op.get(part);
    // From [-1, 1] to elements: between the centres of corners, or between their outer edges.
    Value position =
        alignCorners
            ? mul(add(x, number(1)), number(double(size - 1) / 2))
            : mul(sub(mul(add(x, number(1)), number(double(size))), number(1)), number(0.5));
    axes.push_back({size, position});
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

/// Inside; no gradient flows at the ends and beyond.
Value GridSampler::clip(Value x, int64_t size) {
  Value low = number(0), high = number(double(size - 1));
  auto select = [&](Value condition, Value a, Value c) -> Value {
    return arith::SelectOp::create(b, condition, a, c);
  };
  Value isBelow = arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, x, low);
  Value isAbove = arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, x, high);
  return select(isBelow, low, select(isAbove, high, x));
}

/// Back and forth between two mirrors, which are at halves of the given numbers.
Value GridSampler::reflect(Value x, double twiceLow, double twiceHigh) {
  if (twiceLow == twiceHigh)
    return number(0);
  double low = twiceLow / 2, span = (twiceHigh - twiceLow) / 2;
  Value distance = math::AbsFOp::create(b, sub(x, number(low)));
  Value flips = floor(arith::DivFOp::create(b, distance, number(span)));
  Value extra = sub(distance, mul(flips, number(span)));
  Value half = mul(flips, number(0.5));
  Value isEven = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, half, floor(half));
  return arith::SelectOp::create(b, isEven, add(extra, number(low)),
                                 add(sub(number(span), extra), number(low)));
}

/// What the border makes of a position.
Value GridSampler::settle(Value x, int64_t size) {
  if (border == Reflection)
    x = alignCorners ? reflect(x, 0, 2 * double(size - 1)) : reflect(x, -1, 2 * double(size) - 1);
  return border == Zeros ? x : clip(x, size);
}

Value GridSampler::isInside(Value x, int64_t size) {
  Value above = arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, x, number(0));
  Value below = arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, x, number(double(size - 1)));
  return arith::AndIOp::create(b, above, below);
}

/// The elements along each axis that make a result.
SmallVector<SmallVector<GridSampler::Tap>> GridSampler::getTaps() {
  SmallVector<SmallVector<Tap>> taps;
  for (const Axis &axis : axes) {
    SmallVector<Tap> &own = taps.emplace_back();
    // The border moves a cubic's neighbours, and otherwise the position itself.
    Value x = mode == Cubic ? axis.position : settle(axis.position, axis.size);
    if (mode == Nearest) {
      own.push_back({math::RoundEvenOp::create(b, x), Value()});
      continue;
    }
    Value low = floor(x), t = sub(x, low);
    if (mode == Linear) {
      own.push_back({low, sub(number(1), t)});
      own.push_back({add(low, number(1)), t});
      continue;
    }
    // Keys' cubic convolution with a = -3/4: near taps and far ones.
    constexpr double a = -0.75;
    auto near = [&](Value d) {
      return add(mul(mul(sub(mul(d, number(a + 2)), number(a + 3)), d), d), number(1));
    };
    auto far = [&](Value d) {
      Value inner = sub(mul(add(mul(sub(d, number(5)), d), number(8)), d), number(4));
      return mul(inner, number(a));
    };
    Value rest = sub(number(1), t);
    Value weights[] = {far(add(t, number(1))), near(t), near(rest), far(add(rest, number(1)))};
    for (auto [i, weight] : enumerate(weights))
      own.push_back({settle(add(low, number(double(i) - 1)), axis.size), weight});
  }
  return taps;
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// The elements [N, C, out...] at one combination of taps, with its weight.
Expected<Value> GridSampler::read(ArrayRef<Tap> taps) {
  Places places = Places::identity(sizes);
  Value inside, weight;
  Shape narrow(type.getShape());
  narrow.insert(narrow.begin() + 1, 1);
  for (auto [dim, tap] : enumerate(taps)) {
    int64_t size = axes[dim].size;
    Value own = isInside(tap.position, size);
    inside = inside ? arith::AndIOp::create(b, inside, own).getResult() : own;
    if (tap.weight)
      weight = weight ? mul(weight, tap.weight) : tap.weight;
    // Outside, and where positions are no numbers, element 0 stands in.
    Value safe = arith::SelectOp::create(b, own, tap.position, number(0));
    Value index = arith::FPToSIOp::create(b, type.clone(b.getI64Type()), safe);
    ASSIGN_OR_RETURN(places.indices[dim + 2], reshape(op, op.wrap(DType::I64, index), narrow));
  }
  ASSIGN_OR_RETURN(Tensor picked, gather(op, image, places));
  auto spread = [&](Value value) {
    return broadcastValue(b, reshapeValue(b, value, narrow), sizes);
  };
  // Outside neither what stands in nor a weight that is no number reaches the sum or a gradient.
  auto mask = [&](Value value, Value keep) -> Value {
    return arith::SelectOp::create(b, keep, value, splat(b, value.getType(), 0.0));
  };
  Value value = mask(op.get(picked), spread(inside));
  return weight ? mul(value, spread(mask(weight, inside))) : value;
}

Error GridSampler::run() {
  RETURN_IF_ERROR(readArguments());
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  SmallVector<SmallVector<Tap>> taps = getTaps();
  Value sum;
  SmallVector<size_t> choice(rank, 0);
  while (true) {
    SmallVector<Tap> chosen;
    for (int64_t dim = 0; dim != rank; ++dim)
      chosen.push_back(taps[dim][choice[dim]]);
    ASSIGN_OR_RETURN(Value value, read(chosen));
    sum = sum ? add(sum, value) : value;
    int64_t dim = rank;
    while (dim > 0 && ++choice[dim - 1] == taps[dim - 1].size())
      choice[--dim] = 0;
    if (dim == 0)
      break;
  }
  return setResult(op, op.wrap(image.dtype, sum));
}

static Error lowerGridSampler(OpContext &op) {
  return GridSampler(op, op.tensor("input").rank() - 2 == 3 ? 3 : 2).run();
}

//===----------------------------------------------------------------------===//
// Affine grids
//===----------------------------------------------------------------------===//

/// Coordinate i of `count` in [-1, 1], at the centres of elements or with the corners at the ends.
static Value getCoordinates(OpContext &op, RankedTensorType type, int64_t dim, bool alignCorners) {
  Builder &b = op.b;
  int64_t count = type.getDimSize(dim);
  Value place = mlir::memopt::IotaOp::create(b, type.clone(b.getI64Type()), dim);
  Value x = arith::SIToFPOp::create(b, type, place);
  double step = alignCorners ? (count > 1 ? 2.0 / double(count - 1) : 0.0) : 2.0 / double(count);
  double begin = alignCorners ? (count > 1 ? -1.0 : 0.0) : -1.0 + 1.0 / double(count);
  return arith::AddFOp::create(b, arith::MulFOp::create(b, x, splat(b, type, step)),
                               splat(b, type, begin));
}

/// grid[n, h, w, i] = theta[n, i, 0] x(w) + theta[n, i, 1] y(h) + theta[n, i, 2], and in space.
static Error lowerAffineGrid(OpContext &op) {
  Builder &b = op.b;
  Tensor theta = op.tensor("theta");
  ArrayRef<int64_t> size = op.integers("size");
  int64_t rank = int64_t(size.size()) - 2;
  if ((rank != 2 && rank != 3) || theta.sizes != Shape{size[0], rank, rank + 1} ||
      !isFloat(theta.dtype))
    return op.error("expected one matrix of [" + Twine(rank) + ", " + Twine(rank + 1) +
                    "] for each image, found " + toString(theta.sizes));
  Shape sizes{size[0]};
  append_range(sizes, size.drop_front(2));
  sizes.push_back(rank);
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  auto type = op.tensorType(theta.dtype, sizes);
  Value sum;
  for (int64_t column = 0; column <= rank; ++column) {
    ASSIGN_OR_RETURN(Tensor part, slice(op, theta, 2, column, 1, 1));
    Shape spread(sizes.size(), 1);
    spread.front() = size[0];
    spread.back() = rank;
    ASSIGN_OR_RETURN(part, reshape(op, part, spread));
    Value term = broadcastValue(b, op.get(part), sizes);
    if (column < rank)
      term = arith::MulFOp::create(
          b, term, getCoordinates(op, type, rank - column, op.flag("align_corners")));
    sum = sum ? arith::AddFOp::create(b, sum, term).getResult() : term;
  }
  return setResult(op, op.wrap(theta.dtype, sum));
}

void memopt::pt2::registerGridSample(OpTable &table) {
  constexpr StringLiteral parameters = "Tensor input, Tensor grid, int interpolation_mode, int "
                                       "padding_mode, bool? align_corners=None";
  table.add("aten.grid_sampler.default", parameters, lowerGridSampler);
  table.add("aten.grid_sampler_2d.default", parameters, lowerGridSampler);
  table.add("aten.grid_sampler_3d.default", parameters, lowerGridSampler);
  table.add("aten.affine_grid_generator.default", "Tensor theta, int[] size, bool align_corners",
            lowerAffineGrid);
}
