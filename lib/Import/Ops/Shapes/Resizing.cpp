//===- Resizing.cpp - images of another size -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpContext.h"

using namespace llvm;
using namespace memopt::pt2;

//===----------------------------------------------------------------------===//
// Resizing
//===----------------------------------------------------------------------===//

/// The factors that the caller gave, one for each spatial dimension, or none. They come as a list
/// or, in other overloads, as one number a dimension, 0 where it is not given.
static Expected<SmallVector<double>> getFactors(OpContext &op, int64_t rank) {
  SmallVector<double> factors;
  if (op.hasParameter("scale_factors")) {
    if (op.has("scale_factors"))
      append_range(factors, op.numbers("scale_factors"));
  } else {
    constexpr StringLiteral names[] = {"scales_d", "scales_h", "scales_w", "scales"};
    for (StringRef name : names)
      if (op.hasParameter(name))
        factors.push_back(op.has(name) ? op.number(name) : 0); // not given
  }
  if (!factors.empty() && int64_t(factors.size()) != rank)
    return op.error("expected " + Twine(rank) + " scale factors, found " + Twine(factors.size()));
  return factors;
}

/// Source steps per result element, as ATen's area_pixel_compute_scale has them.
static Error resize(OpContext &op, mlir::memopt::Resampling mode, bool alignCorners) {
  Tensor input = op.tensor(op.hasParameter("input") ? "input" : "self");
  const TensorMeta &meta = op.resultMeta(0);
  int64_t rank = input.rank() - 2;
  if (rank < 1 || rank > 3 || int64_t(meta.sizes.size()) != input.rank() || !isFloat(input.dtype) ||
      input.getNumElements() == 0 || meta.getNumElements() == 0)
    return op.error("expected a floating-point input and a result of one rank from 3 to 5, found " +
                    getName(input.dtype) + toString(input.sizes) + " and " + toString(meta.sizes));
  ASSIGN_OR_RETURN(SmallVector<double> factors, getFactors(op, rank));
  SmallVector<double> scales;
  for (int64_t i = 0; i != rank; ++i) {
    double from = double(input.sizes[i + 2]), to = double(meta.sizes[i + 2]);
    if (alignCorners)
      scales.push_back(to > 1 ? (from - 1) / (to - 1) : 0);
    else if (!factors.empty() && factors[i] > 0)
      scales.push_back(1 / factors[i]);
    else
      scales.push_back(from / to);
  }
  return setResult(op, op.wrap(input.dtype, mlir::memopt::InterpolateOp::create(
                                                op.b, op.resultType(0), op.get(input), scales, mode,
                                                alignCorners)));
}

template <mlir::memopt::Resampling mode> static Error lowerResize(OpContext &op) {
  return resize(op, mode, op.hasParameter("align_corners") && op.flag("align_corners"));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerResizing(OpTable &table) {
  using mlir::memopt::Resampling;
  constexpr StringLiteral byList = "Tensor input, int[]? output_size, float[]? scale_factors";
  constexpr StringLiteral withCorners =
      "Tensor input, int[]? output_size, bool align_corners, float[]? scale_factors";
  constexpr StringLiteral one = "Tensor self, int[] output_size, float? scales=None";
  constexpr StringLiteral two =
      "Tensor self, int[] output_size, float? scales_h=None, float? scales_w=None";
  constexpr StringLiteral three = "Tensor self, int[] output_size, float? scales_d=None, float? "
                                  "scales_h=None, float? scales_w=None";
  constexpr StringLiteral oneWithCorners =
      "Tensor self, int[] output_size, bool align_corners, float? scales=None";
  constexpr StringLiteral twoWithCorners = "Tensor self, int[] output_size, bool align_corners, "
                                           "float? scales_h=None, float? scales_w=None";
  constexpr StringLiteral threeWithCorners =
      "Tensor self, int[] output_size, bool align_corners, float? scales_d=None, float? "
      "scales_h=None, float? scales_w=None";
  table.add("aten.upsample_nearest1d.vec", byList, lowerResize<Resampling::Nearest>);
  table.add("aten.upsample_nearest2d.vec", byList, lowerResize<Resampling::Nearest>);
  table.add("aten.upsample_nearest3d.vec", byList, lowerResize<Resampling::Nearest>);
  table.add("aten.upsample_nearest1d.default", one, lowerResize<Resampling::Nearest>);
  table.add("aten.upsample_nearest2d.default", two, lowerResize<Resampling::Nearest>);
  table.add("aten.upsample_nearest3d.default", three, lowerResize<Resampling::Nearest>);
  table.add("aten._upsample_nearest_exact1d.vec", byList, lowerResize<Resampling::NearestExact>);
  table.add("aten._upsample_nearest_exact2d.vec", byList, lowerResize<Resampling::NearestExact>);
  table.add("aten._upsample_nearest_exact3d.vec", byList, lowerResize<Resampling::NearestExact>);
  table.add("aten._upsample_nearest_exact1d.default", one, lowerResize<Resampling::NearestExact>);
  table.add("aten._upsample_nearest_exact2d.default", two, lowerResize<Resampling::NearestExact>);
  table.add("aten._upsample_nearest_exact3d.default", three, lowerResize<Resampling::NearestExact>);
  table.add("aten.upsample_linear1d.vec", withCorners, lowerResize<Resampling::Linear>);
  table.add("aten.upsample_bilinear2d.vec", withCorners, lowerResize<Resampling::Linear>);
  table.add("aten.upsample_trilinear3d.vec", withCorners, lowerResize<Resampling::Linear>);
  table.add("aten.upsample_linear1d.default", oneWithCorners, lowerResize<Resampling::Linear>);
  table.add("aten.upsample_bilinear2d.default", twoWithCorners, lowerResize<Resampling::Linear>);
  table.add("aten.upsample_trilinear3d.default", threeWithCorners, lowerResize<Resampling::Linear>);
  table.add("aten.upsample_bicubic2d.vec", withCorners, lowerResize<Resampling::Cubic>);
  table.add("aten.upsample_bicubic2d.default", twoWithCorners, lowerResize<Resampling::Cubic>);
  table.add("aten._upsample_bilinear2d_aa.vec", withCorners,
            lowerResize<Resampling::LinearAntialias>);
  table.add("aten._upsample_bilinear2d_aa.default", twoWithCorners,
            lowerResize<Resampling::LinearAntialias>);
  table.add("aten._upsample_bicubic2d_aa.vec", withCorners,
            lowerResize<Resampling::CubicAntialias>);
  table.add("aten._upsample_bicubic2d_aa.default", twoWithCorners,
            lowerResize<Resampling::CubicAntialias>);
}
