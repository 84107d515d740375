//===- KernelArguments.cpp - what callers say to equal kernels ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Graph/KernelArguments.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::memopt;

bool mlir::memopt::hasChecks(KernelOp kernel) {
  return kernel.walk([](CheckOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// The slices that are all readers of `argument`, or none.
static SmallVector<tensor::ExtractSliceOp> getSlices(BlockArgument argument) {
  SmallVector<tensor::ExtractSliceOp> slices;
  for (Operation *user : argument.getUsers()) {
    auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
    if (!slice || ShapedType::isDynamicShape(slice.getStaticOffsets()))
      return {};
    slices.push_back(slice);
  }
  return slices;
}

/// Takes the least offset of all slices off each, and gives its place in the buffer.
static int64_t moveOffsets(BlockArgument argument, int64_t alignment) {
  SmallVector<tensor::ExtractSliceOp> slices = getSlices(argument);
  if (slices.empty())
    return 0;
  SmallVector<int64_t> base(slices.front().getStaticOffsets());
  for (tensor::ExtractSliceOp slice : slices)
    for (auto [least, offset] : llvm::zip_equal(base, slice.getStaticOffsets()))
      least = std::min(least, offset);
  auto type = cast<RankedTensorType>(argument.getType());
  int64_t place = linearize(base, computeStrides(type.getShape()));
  if (place * (getTensorBytes(type) / type.getNumElements()) % alignment)
    return 0;
  for (tensor::ExtractSliceOp slice : slices) {
    SmallVector<int64_t> offsets(slice.getStaticOffsets());
    for (auto [offset, moved] : llvm::zip_equal(offsets, base))
      offset -= moved;
    slice.setStaticOffsets(offsets);
  }
  return place;
}

SmallVector<int64_t> mlir::memopt::moveSliceOffsets(KernelOp kernel,
                                                    ArrayRef<int64_t> resultBuffers,
                                                    int64_t alignment) {
  SmallVector<int64_t> offsets;
  for (BlockArgument argument : kernel.getBody().getArguments()) {
    bool isTaken = llvm::is_contained(resultBuffers, int64_t(argument.getArgNumber()));
    offsets.push_back(isTaken ? 0 : moveOffsets(argument, alignment));
  }
  return offsets;
}

SmallVector<int64_t> mlir::memopt::moveRandomIds(KernelOp kernel) {
  llvm::SmallSetVector<int64_t, 2> ids;
  kernel.walk([&](RandomWordOp op) {
    auto id = static_cast<int64_t>(op.getId());
    ids.insert(id);
    op.setId(llvm::find(ids, id) - ids.begin());
  });
  return SmallVector<int64_t>(ids.getArrayRef());
}
