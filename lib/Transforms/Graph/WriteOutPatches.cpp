//===- WriteOutPatches.cpp - convolutions of separate patches -*- C++ -*---===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For devices. Where windows neither overlap nor leave anything out, a convolution is one product:
//
//   patches = x as [N o..., C k...]        each element of the input once
//   result  = patches w^T                  [N o..., K], then [N, K, o...]
//
// cuDNN has no fast engine for the gradient of such filters: on an H100 that of ViT-L's 16-bit patch
// embedding (64 images) took 95 ms of a step of 263 ms, and the product takes less than one.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_WRITEOUTPATCHESPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// Whether each element of the input lies in exactly one window of more than one element.
static bool hasSeparatePatches(ConvolutionOp op) {
  ArrayRef<int64_t> input = tensorType(op.getInput()).getShape(),
                    kernel = tensorType(op.getFilter()).getShape().drop_front(2);
  auto isZero = [](int64_t value) { return value == 0; };
  auto isOne = [](int64_t value) { return value == 1; };
  if (op.getGroups() != 1 || op.getLayout() != Layout::ChannelsFirst ||
      !llvm::all_of(op.getPaddingLow(), isZero) || !llvm::all_of(op.getPaddingHigh(), isZero) ||
      !llvm::all_of(op.getDilations(), isOne) || llvm::all_of(kernel, isOne) ||
      kernel != op.getStrides())
    return false;
  return llvm::all_of(llvm::zip_equal(input.drop_front(2), kernel), [](auto pair) {
    auto [extent, size] = pair;
    return extent % size == 0;
  });
}

namespace {
class PatchWriter {
public:
  explicit PatchWriter(ConvolutionOp op) : op(op), b(op.getLoc(), op) {
    ArrayRef<int64_t> input = tensorType(op.getInput()).getShape();
    images = input[0];
    channels = input[1];
    kernel = llvm::to_vector(tensorType(op.getFilter()).getShape().drop_front(2));
    for (auto [extent, size] : llvm::zip_equal(input.drop_front(2), kernel))
      places.push_back(extent / size);
  }

  void write() {
    Value filters = collapse(op.getFilter(), {1, 1 + rank()});
    int64_t outputs = tensorType(filters).getDimSize(0);
    Value patches = gatherPatches();
    RankedTensorType type = typeOf(op.getResult(), {tensorType(patches).getDimSize(0), outputs});
    Value product = MatmulOp::create(b, type, patches, filters, /*transpose_a=*/false,
                                     /*transpose_b=*/true);
    // [N o..., K], [N, o..., K], [N, K, o...]
    SmallVector<int64_t> sizes{images}, order{0, 1 + rank()};
    sizes.append(places.begin(), places.end());
    sizes.push_back(outputs);
    for (int64_t dim = 1; dim <= rank(); ++dim)
      order.push_back(dim);
    op.getResult().replaceAllUsesWith(transpose(expand(product, sizes, {1 + rank(), 1}), order));
    op.erase();
  }

private:
  int64_t rank() const { return static_cast<int64_t>(kernel.size()); }

  static RankedTensorType typeOf(Value like, ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, tensorType(like).getElementType());
  }

  /// Dimensions in a row, so many of each group.
  static SmallVector<ReassociationIndices> group(ArrayRef<int64_t> counts) {
    SmallVector<ReassociationIndices> groups;
    int64_t dim = 0;
    for (int64_t count : counts) {
      ReassociationIndices &indices = groups.emplace_back();
      for (int64_t i = 0; i < count; ++i)
        indices.push_back(dim++);
    }
    return groups;
  }
  Value collapse(Value whole, ArrayRef<int64_t> counts) {
    return tensor::CollapseShapeOp::create(b, whole, group(counts));
  }
  Value expand(Value whole, ArrayRef<int64_t> shape, ArrayRef<int64_t> counts) {
    return tensor::ExpandShapeOp::create(b, typeOf(whole, shape), whole, group(counts));
  }
  Value transpose(Value whole, ArrayRef<int64_t> order) {
    SmallVector<int64_t> shape =
        llvm::map_to_vector(order, [&](int64_t dim) { return tensorType(whole).getDimSize(dim); });
    return TransposeOp::create(b, typeOf(whole, shape), whole, order);
  }

  /// [N, C, o1 k1, ...], [N, C, o1, k1, ...], [N, o..., C, k...], [N o..., C k...]
  Value gatherPatches() {
    SmallVector<int64_t> sizes{images, channels}, counts{1, 1}, order{0};
    for (auto [place, size] : llvm::zip_equal(places, kernel)) {
      sizes.append({place, size});
      counts.push_back(2);
    }
    for (int64_t dim = 0; dim < rank(); ++dim)
      order.push_back(2 + 2 * dim);
    order.push_back(1);
    for (int64_t dim = 0; dim < rank(); ++dim)
      order.push_back(3 + 2 * dim);
    Value patches = transpose(expand(op.getInput(), sizes, counts), order);
    return collapse(patches, {1 + rank(), 1 + rank()});
  }

  ConvolutionOp op;
  ImplicitLocOpBuilder b;
  int64_t images, channels;
  SmallVector<int64_t> kernel, places;
};

struct WriteOutPatchesPass : mlir::memopt::impl::WriteOutPatchesPassBase<WriteOutPatchesPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!getTarget(function).isDevice())
      return;
    SmallVector<ConvolutionOp> convolutions;
    function.walk([&](ConvolutionOp op) {
      if (hasSeparatePatches(op))
        convolutions.push_back(op);
    });
    for (ConvolutionOp op : convolutions) {
      remark::passed(op.getLoc(), remark::RemarkOpts::name("WriteOutPatches")
                                      .category("memopt-write-out-patches")
                                      .function(function.getName()))
          << remark::metric("PatchesBytes", getTensorBytes(tensorType(op.getInput())));
      PatchWriter(op).write();
    }
  }
};
} // namespace
