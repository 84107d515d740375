//===- Transforms.cpp - Fourier transforms that stay real ----- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What irfft and hfft make of real numbers: half a spectrum without imaginary part, whose transform
// is a sum of cosines. Over several dimensions all but the last are transforms of whole spectra, as
// pairs of real and imaginary part. Each is a product with the matrix of cosines (and sines) of its
// length; memopt.export writes longer ones by their factors.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpTable.h"
#include "memopt/Import/Ops/LinearAlgebra/Matrices.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;

constexpr int64_t kMostFrequencies = 4096;

namespace {
/// A tensor of complex numbers; no imaginary part where there is none.
struct Spectrum {
  Tensor real;
  std::optional<Tensor> imaginary;
};

struct Transforms {
  bool forward;
  Shape dims, sizes; ///< in the order of transforms; the last is that of half a spectrum
  double scale;
};
} // namespace

/// cos and sin of 2 pi k t / n, [1, rows k, columns t].
static std::pair<Element, Element> makeWaves(OpContext &op, DType type, int64_t rows,
                                             int64_t columns, int64_t n) {
  Element like(op.b, splat(op.b, op.tensorType(DType::I64, {1, rows, columns}), 0.0));
  Element turns = rowNumbers(like) * columnNumbers(like);
  Value rest = mlir::arith::RemSIOp::create(op.b, turns, like.like(double(n)));
  Element angle(op.b, convert(op.b, rest, DType::I64, DType::F64));
  angle = angle * (6.28318530717958647692 / double(n));
  auto finish = [&](Element wave) { return Element(op.b, convert(op.b, wave, DType::F64, type)); };
  return {finish(cos(angle)), finish(sin(angle))};
}

/// The first `count` elements along the last dimension, or zeros behind them.
static Element fit(Element x, int64_t count) {
  return countColumns(x) >= count ? take(x, 2, 0, count) : padTo(x, countRows(x), count);
}

/// Applies `transform` to the rows [1, others, size] along a dimension.
static Expected<Spectrum> transformAlong(
    OpContext &op, const Spectrum &from, int64_t dim,
    function_ref<std::pair<Element, std::optional<Element>>(Element, std::optional<Element>)>
        transform) {
  int64_t rank = from.real.rank();
  Shape order;
  for (int64_t other = 0; other != rank; ++other)
    if (other != dim)
      order.push_back(other);
  order.push_back(dim);
  Tensor turned = permute(op, from.real, order);
  Shape sizes(turned.sizes);
  int64_t size = sizes.back(), others = turned.getNumElements() / size;
  auto rows = [&](const Tensor &part) {
    Value value = op.get(permute(op, part, order));
    return Element(op.b, reshapeValue(op.b, value, {1, others, size}));
  };
  std::optional<Element> imaginary;
  if (from.imaginary)
    imaginary = rows(*from.imaginary);
  auto [real, other] = transform(rows(from.real), imaginary);
  sizes.back() = countColumns(real);
  Shape back(rank);
  for (auto [place, dimension] : enumerate(order))
    back[dimension] = place;
  auto finish = [&](Element part) {
    Value value = reshapeValue(op.b, part, sizes);
    return permute(op, op.wrap(from.real.dtype, value), back);
  };
  Spectrum result{finish(real), std::nullopt};
  if (other)
    result.imaginary = finish(*other);
  return result;
}

static Expected<Tensor> transformAll(OpContext &op, Tensor self, const Transforms &plan) {
  DType type = self.dtype;
  double sign = plan.forward ? -1 : 1;
  Spectrum spectrum{self, std::nullopt};
  for (auto [dim, n] :
       zip_equal(ArrayRef(plan.dims).drop_back(), ArrayRef(plan.sizes).drop_back())) {
    ASSIGN_OR_RETURN(spectrum,
                     transformAlong(op, spectrum, dim,
                                    [&, n = n](Element real, std::optional<Element> imaginary)
                                        -> std::pair<Element, std::optional<Element>> {
                                      auto [cosines, sines] = makeWaves(op, type, n, n, n);
                                      real = fit(real, n);
                                      Element even = product(real, cosines);
                                      Element odd = sign * product(real, sines);
                                      if (!imaginary)
                                        return {even, odd};
                                      Element other = fit(*imaginary, n);
                                      even = even - sign * product(other, sines);
                                      return {even, odd + product(other, cosines)};
                                    }));
  }
  int64_t n = plan.sizes.back(), half = n / 2 + 1;
  ASSIGN_OR_RETURN(spectrum,
                   transformAlong(op, spectrum, plan.dims.back(),
                                  [&](Element real, std::optional<Element> imaginary)
                                      -> std::pair<Element, std::optional<Element>> {
                                    auto [cosines, sines] = makeWaves(op, type, half, n, n);
                                    // Each frequency stands for itself and its mirror image.
                                    Element row = rowNumbers(cosines);
                                    Element isSingle = equals(row, 0);
                                    if (n % 2 == 0)
                                      isSingle = isSingle | equals(row, double(n / 2));
                                    Element weights = select(isSingle, cosines.like(plan.scale),
                                                             cosines.like(2 * plan.scale));
                                    Element sum = product(fit(real, half), weights * cosines);
                                    if (imaginary)
                                      sum = sum -
                                            sign * product(fit(*imaginary, half), weights * sines);
                                    return {sum, std::nullopt};
                                  }));
  return spectrum.real;
}

template <bool forward> static Error lowerTransform(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  Tensor self = castTo(op, op.tensor("self"), type);
  int64_t rank = self.rank();
  bool isSingle = op.hasParameter("n");
  SmallVector<int64_t> sizes, dims;
  if (isSingle) {
    dims.push_back(op.integer("dim"));
    if (op.has("n"))
      sizes.push_back(op.integer("n"));
  } else {
    if (op.has("s"))
      sizes.append(op.integers("s").begin(), op.integers("s").end());
    if (op.has("dim"))
      dims.append(op.integers("dim").begin(), op.integers("dim").end());
    else
      append_range(dims, seq<int64_t>(op.has("s") ? rank - int64_t(sizes.size()) : 0, rank));
  }
  Transforms plan{forward, {}, {}, 1};
  double total = 1;
  for (auto [place, value] : enumerate(dims)) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", value, rank));
    if (rank == 0 || is_contained(plan.dims, dim))
      return op.error("expected different dimensions of a tensor of rank " + Twine(rank));
    bool isLast = place + 1 == dims.size();
    int64_t size = place < sizes.size() ? sizes[place] : -1;
    if (size == -1)
      size = isLast ? 2 * (self.sizes[dim] - 1) : self.sizes[dim];
    if (size < 1 || size > kMostFrequencies)
      return op.error("transforms of length " + Twine(size) +
                      " are not supported, only from 1 to " + Twine(kMostFrequencies));
    plan.dims.push_back(dim);
    plan.sizes.push_back(size);
    total *= double(size);
  }
  if (plan.dims.empty() || self.getNumElements() == 0 ||
      (!sizes.empty() && sizes.size() != dims.size()))
    return op.error("expected a size for each dimension of a tensor with elements");
  StringRef norm = op.has("norm") ? op.text("norm") : "backward";
  if (norm == "ortho")
    plan.scale = 1 / std::sqrt(total);
  else if ((norm == "forward") == forward)
    plan.scale = 1 / total;
  return setResult(op, transformAll(op, self, plan));
}

void memopt::pt2::registerTransforms(OpTable &table) {
  constexpr StringLiteral single = "Tensor self, int? n=None, int dim=-1, str? norm=None";
  constexpr StringLiteral plane = "Tensor self, int[]? s=None, int[] dim=[-2 -1], str? norm=None";
  constexpr StringLiteral space = "Tensor self, int[]? s=None, int[]? dim=None, str? norm=None";
  table.add("aten.fft_irfft.default", single, lowerTransform<false>);
  table.add("aten.fft_hfft.default", single, lowerTransform<true>);
  table.add("aten.fft_irfft2.default", plane, lowerTransform<false>);
  table.add("aten.fft_hfft2.default", plane, lowerTransform<true>);
  table.add("aten.fft_irfftn.default", space, lowerTransform<false>);
  table.add("aten.fft_hfftn.default", space, lowerTransform<true>);
}
