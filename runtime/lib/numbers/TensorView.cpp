//===- TensorView.cpp - a tensor of the caller's --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/numbers/TensorView.h"

using namespace memopt;

std::vector<int64_t> memopt::getRowMajorStrides(const Shape &shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0; stride *= shape[dim])
    strides[dim] = stride;
  return strides;
}

TensorView TensorView::slice(size_t dim, int64_t begin, int64_t size) const {
  TensorView part = *this;
  part.data += begin * strides[dim] * getByteSize(dtype);
  part.shape[dim] = size;
  return part;
}

namespace {
/// Walks over the outer dimensions; the inner ones without gaps are runs, copied at once.
class StridedCopy {
public:
  StridedCopy(const TensorView &view, DType type, char *target)
      : view(view), type(type), target(target), outerDims(view.shape.size()) {
    while (outerDims > 0 &&
           (view.strides[outerDims - 1] == runLength || view.shape[outerDims - 1] == 1))
      runLength *= view.shape[--outerDims];
  }

  Status copyFrom(size_t dim, const char *data) {
    if (dim == outerDims)
      return copyRun(data);
    for (int64_t i = 0; i < view.shape[dim]; ++i)
      MEMOPT_RETURN_IF_ERROR(
          copyFrom(dim + 1, data + i * view.strides[dim] * getByteSize(view.dtype)));
    return Status::ok();
  }

private:
  Status copyRun(const char *data) {
    if (Status status = convertElements(view.dtype, data, type, target, runLength); !status.isOk())
      return outerDims == 0
                 ? std::move(status)
                 : std::move(status).withContext("from " + toIndexText(view.shape, done) + " on");
    target += runLength * getByteSize(type);
    done += runLength;
    return Status::ok();
  }

  const TensorView &view;
  DType type;
  char *target;
  size_t outerDims;
  int64_t runLength = 1, done = 0; ///< elements
};
} // namespace

Status TensorView::copyTo(DType type, char *target) const {
  if (getElementCount(shape) == 0)
    return Status::ok();
  return StridedCopy(*this, type, target).copyFrom(0, data);
}
