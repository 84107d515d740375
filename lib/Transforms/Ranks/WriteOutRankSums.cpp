//===- WriteOutRankSums.cpp - sums over ranks, added up by kernels -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A library that adds up while it sends does so in an order of its own, which follows from how many
// ranks there are and how they are wired. Sums in the order of the ranks have the bits of one rank
// that takes their batches in turn, so here only what adds nothing is sent:
//
//   reduce_scatter x   ->   %terms = all_to_all x          [N s]
//                           0 + %terms[0, s) + %terms[s, 2 s) + ...
//   all_reduce x       ->   all_gather of that, with shards of s = n / N elements
//   all_reduce x, small ->  %terms = all_gather x          [N n]
//                           0 + %terms[0, n) + %terms[n, 2 n) + ...
//
// The terms of many ranks are added in a loop, a few in each iteration, so that the program does not
// grow with the ranks: the order is the same.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_WRITEOUTRANKSUMSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// One message is faster than two up to here.
static constexpr int64_t kOneMessageBytes = 4096;
/// Terms that one kernel adds.
static constexpr int64_t kMostTerms = 8;
/// Elements of a shard are a multiple of it, so that shards begin where vectors do.
static constexpr int64_t kShardUnit = 16;

namespace {
class SumWriter {
public:
  explicit SumWriter(CollectiveOp op)
      : op(op), b(op.getLoc(), op), type(cast<RankedTensorType>(op.getInput().getType())),
        ranks(op.getRanksAttr().getInt()) {}

  void write() {
    Value sum;
    if (op.getKind() == CollectiveKind::ReduceScatter)
      sum = reshape(exchange(getResultType().getNumElements()), getResultType());
    else if (getTensorBytes(type) <= kOneMessageBytes)
      sum = reshape(addTerms(send(CollectiveKind::AllGather, type.getNumElements())), type);
    else
      sum = note(CollectiveOp::create(
          b, type, CollectiveKind::AllGather,
          exchange(llvm::alignTo(llvm::divideCeil(type.getNumElements(), ranks), kShardUnit)),
          ranks));
    op.getResult().replaceAllUsesWith(sum);
    op.erase();
  }

private:
  RankedTensorType getResultType() { return cast<RankedTensorType>(op.getResult().getType()); }
  RankedTensorType vector(int64_t size) { return type.clone({size}); }

  /// All that replaces the op belongs to its phase.
  template <typename Op> Value note(Op made) {
    setPhase(made, getPhase(op));
    return made->getResult(0);
  }

  Value send(CollectiveKind kind, int64_t shard) {
    return note(CollectiveOp::create(b, vector(ranks * shard), kind, op.getInput(), ranks));
  }

  /// This rank's shard of the sum.
  Value exchange(int64_t shard) { return addTerms(send(CollectiveKind::AllToAll, shard)); }

  Value addTerms(Value terms) {
    int64_t size = cast<RankedTensorType>(terms.getType()).getNumElements() / ranks;
    Value sum = createSplat(b, b.getLoc(), vector(size), 0);
    if (ranks <= kMostTerms)
      return addTerms(b, sum, terms, ranks);
    int64_t together = kMostTerms;
    while (ranks % together != 0)
      --together;
    int64_t count = ranks / together;
    Value groups = reshape(terms, type.clone({count, together * size}));
    auto scan = ScanOp::create(b, ValueRange(), groups, {0}, sum, count, /*reverse=*/false);
    auto inside = ImplicitLocOpBuilder::atBlockEnd(b.getLoc(), &scan.getBody().front());
    YieldOp::create(inside, addTerms(inside, scan.getCarriedArguments().front(),
                                     scan.getSliceArguments().front(), together));
    return note(ScanOp::finish(b, scan));
  }

  /// The first `count` terms added to a sum, one after the other.
  Value addTerms(ImplicitLocOpBuilder &at, Value sum, Value terms, int64_t count) {
    int64_t size = cast<RankedTensorType>(sum.getType()).getNumElements();
    for (int64_t number = 0; number < count; ++number) {
      Value term = note(tensor::ExtractSliceOp::create(
          at, vector(size), terms, ValueRange(), ValueRange(), ValueRange(),
          ArrayRef<int64_t>{number * size}, ArrayRef<int64_t>{size}, ArrayRef<int64_t>{1}));
      sum = isa<FloatType>(type.getElementType()) ? note(arith::AddFOp::create(at, sum, term))
                                                  : note(arith::AddIOp::create(at, sum, term));
    }
    return sum;
  }

  /// A vector as another shape of as many elements.
  Value reshape(Value flat, RankedTensorType shaped) {
    if (flat.getType() == shaped)
      return flat;
    SmallVector<ReassociationIndices> groups;
    if (shaped.getRank() == 0)
      return note(tensor::CollapseShapeOp::create(b, shaped, flat, groups));
    groups.push_back(llvm::to_vector(llvm::seq<int64_t>(0, shaped.getRank())));
    return note(tensor::ExpandShapeOp::create(b, shaped, flat, groups));
  }

  CollectiveOp op;
  ImplicitLocOpBuilder b;
  RankedTensorType type;
  int64_t ranks;
};

struct WriteOutRankSumsPass : mlir::memopt::impl::WriteOutRankSumsPassBase<WriteOutRankSumsPass> {
  using WriteOutRankSumsPassBase::WriteOutRankSumsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!getTarget(function).isDevice())
      return;
    SmallVector<CollectiveOp> sums;
    function.walk([&](CollectiveOp op) {
      if (isWrittenOut(op))
        sums.push_back(op);
    });
    for (CollectiveOp op : sums)
      SumWriter(op).write();
  }

  bool isWrittenOut(CollectiveOp op) {
    if (op.getKind() == CollectiveKind::AllReduce)
      return !library;
    // A library wants operands that are whole shards.
    auto input = cast<RankedTensorType>(op.getInput().getType()),
         result = cast<RankedTensorType>(op.getResult().getType());
    bool isWhole = input.getNumElements() == result.getNumElements() * op.getRanksAttr().getInt();
    return op.getKind() == CollectiveKind::ReduceScatter && !(library && isWhole);
  }
};
} // namespace
