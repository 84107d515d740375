//===- Strides.cpp - elements named by strides -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"

using namespace llvm;
using namespace memopt::pt2;

namespace {
/// Elements of a tensor laid flat in the order in which it is stored, by sizes and strides.
struct Strided {
  Tensor flat;
  Shape sizes, strides;
  int64_t offset;
  Shape order;   ///< the tensor's dimensions as they are stored
  bool isPacked; ///< they follow each other
};
} // namespace

static Expected<Strided> getStrided(OpContext &op) {
  Tensor self = op.tensor("self");
  Strided part{{}, Shape(op.integers("size")), Shape(op.integers("stride")), 0, {}, true};
  part.offset = op.optionalInteger("storage_offset").value_or(0);
  std::optional<Shape> order = op.getStorageOrder("self");
  if (part.sizes.size() != part.strides.size() || !order)
    return op.error("expected a tensor without gaps, and one stride for each size");
  part.order = *order;
  ASSIGN_OR_RETURN(int64_t count, countElements(op, part.sizes));
  int64_t last = part.offset, elements = self.getNumElements();
  auto outside = [&] {
    return op.error("sizes " + toString(part.sizes) + " and strides " + toString(part.strides) +
                    " leave a tensor of " + Twine(elements) + " elements");
  };
  for (auto [size, stride] : zip_equal(part.sizes, part.strides)) {
    if (stride < 0 || stride > elements || (size && stride > limits::elements / size))
      return outside();
    last += (size - 1) * stride;
  }
  if (count == 0 || part.offset < 0 || last >= elements)
    return outside();
  int64_t packed = 1;
  for (auto [size, stride] : reverse(zip_equal(part.sizes, part.strides))) {
    part.isPacked &= size == 1 || stride == packed;
    packed *= size;
  }
  ASSIGN_OR_RETURN(part.flat, reshape(op, permute(op, self, part.order), elements));
  return part;
}

static Expected<Places> getPlaces(OpContext &op, const Strided &part) {
  RETURN_IF_ERROR(checkFoldable(op, part.sizes));
  Places places;
  places.sizes = part.sizes;
  places.positions.push_back(0);
  places.indices.push_back(
      op.wrap(ConstantTensor::generate(DType::I64, part.sizes, [&](ArrayRef<int64_t> at) {
        int64_t index = part.offset;
        for (auto [coordinate, stride] : zip_equal(at, part.strides))
          index += coordinate * stride;
        return index;
      })));
  return places;
}

/// A plain part is a slice.
static Error lowerAsStrided(OpContext &op) {
  ASSIGN_OR_RETURN(Strided part, getStrided(op));
  if (part.isPacked) {
    ASSIGN_OR_RETURN(int64_t count, countElements(op, part.sizes));
    ASSIGN_OR_RETURN(Tensor run, slice(op, part.flat, 0, part.offset, 1, count));
    return setResult(op, reshape(op, run, part.sizes));
  }
  ASSIGN_OR_RETURN(Places places, getPlaces(op, part));
  return setResult(op, gather(op, part.flat, std::move(places)));
}

static Error lowerAsStridedScatter(OpContext &op) {
  Tensor self = op.tensor("self"), source = castTo(op, op.tensor("src"), self.dtype);
  ASSIGN_OR_RETURN(Strided part, getStrided(op));
  if (source.sizes != part.sizes)
    return op.error("expected a source of shape " + toString(part.sizes) + ", found " +
                    toString(source.sizes));
  ASSIGN_OR_RETURN(Places places, getPlaces(op, part));
  ASSIGN_OR_RETURN(Tensor result,
                   scatter(op, mlir::memopt::ScatterKind::Set, part.flat, source, places));
  Shape stored, inverse(part.order.size());
  for (auto [place, dim] : enumerate(part.order)) {
    stored.push_back(self.sizes[dim]);
    inverse[dim] = static_cast<int64_t>(place);
  }
  ASSIGN_OR_RETURN(result, reshape(op, result, stored));
  return setResult(op, permute(op, result, inverse));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerStrides(OpTable &table) {
  constexpr StringLiteral strided =
      "Tensor self, int[] size, int[] stride, int? storage_offset=None";
  table.add("aten.as_strided.default", strided, lowerAsStrided);
  table.add("aten.as_strided_copy.default", strided, lowerAsStrided);
  table.add("aten.as_strided_scatter.default",
            "Tensor self, Tensor src, int[] size, int[] stride, int? storage_offset=None",
            lowerAsStridedScatter);
}
