//===- NarrowActivations.cpp - bf16 between forward and backward -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever is computed stays f32; what an activation waits in for the backward pass is bf16: it is
// rounded behind its producer and widened in front of its readers, once for all that stand close to
// each other. Forms of activations compressed between the passes: Gist (Jain et al., ISCA 2018).
//
// Input:  a step of linalg.generic, views and library ops, behind recompute-elementwise, so that
//         all of forward that backward still reads is kept for it.
// Chosen: results of products, convolutions and attention, and pointwise ones, that follow from
//         the step's inputs. What statistics and sums give stays f32 (means, deviations, the
//         logarithms that attention and losses keep): few bytes, on which every element depends.
//         Of these the first made, up to a share of their bytes: they wait longest, and a byte
//         costs as much time to narrow in one as in another.
// Bits:   of forward values and of the loss of a step never change.
//
//===----------------------------------------------------------------------===//

#include "BackwardReaders.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_NARROWACTIVATIONSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// Bytes below which two more kernels cost more than they free.
static constexpr int64_t kLeastNarrowedBytes = 4096;

/// Whether the op makes activations in its first result, element by element or as products.
static bool makesActivations(Operation *op) {
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return generic.getNumReductionLoops() == 0;
  return op->hasTrait<OpTrait::ComputedByLibrary>();
}

static bool isLargeSingle(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getElementType().isF32() && getTensorBytes(type) >= kLeastNarrowedBytes;
}

namespace {
/// Narrows what one block of the program keeps.
class Narrower {
public:
  Narrower(Block &block, Type type) : block(block), type(type), readers(block) {
    findReached();
    for (Operation &op : block)
      if (!isAfterForward(&op) && makesActivations(&op) && reached.contains(&op))
        if (SmallVector<BackwardReaders::Group> groups = getGroups(&op); !groups.empty())
          candidates.push_back({op.getResult(0), std::move(groups)});
  }

  /// Of all that can wait in the narrow type.
  int64_t getCandidateBytes() const {
    int64_t bytes = 0;
    for (const Candidate &candidate : candidates)
      bytes += getTensorBytes(candidate.wide.getType());
    return bytes;
  }

  /// Narrows candidates, the first made first, until they have so many bytes.
  void run(int64_t bytes) {
    for (const Candidate &candidate : candidates)
      if (bytesBefore < bytes)
        narrow(candidate);
  }

  int64_t getValues() const { return values; }
  int64_t getBytesBefore() const { return bytesBefore; }
  int64_t getBytesAfter() const { return bytesAfter; }

private:
  struct Candidate {
    Value wide;
    SmallVector<BackwardReaders::Group> groups; ///< not empty
  };

  void findReached();
  SmallVector<BackwardReaders::Group> getGroups(Operation *op);
  void narrow(const Candidate &candidate);
  Value convert(ImplicitLocOpBuilder &b, Value value, Type elementType, Phase phase);

  Block &block;
  Type type;
  BackwardReaders readers;
  DenseSet<Operation *> reached; ///< ops that follow from inputs of the block
  SmallVector<Candidate> candidates;
  int64_t values = 0, bytesBefore = 0, bytesAfter = 0;
};
} // namespace

void Narrower::findReached() {
  auto isReached = [&](Value value) {
    Operation *maker = value.getDefiningOp();
    return maker ? reached.contains(maker) : isa<RankedTensorType>(value.getType());
  };
  for (Operation &op : block)
    if (llvm::any_of(getTensorsRead(&op), isReached))
      reached.insert(&op);
}

Value Narrower::convert(ImplicitLocOpBuilder &b, Value value, Type elementType, Phase phase) {
  auto from = cast<RankedTensorType>(value.getType());
  AffineMap identity = b.getMultiDimIdentityMap(from.getRank());
  Value made = createPointwise(b, from.getShape(), Read{value, identity}, elementType,
                               [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                                 return SmallVector<Value>{convertTo(inner, x[0], elementType)};
                               })[0];
  if (phase != Phase::Forward) // of which nobody speaks
    setPhase(made.getDefiningOp(), phase);
  return made;
}

/// The readers in the backward pass of the first result of `op`; none where something keeps it as
/// it is.
SmallVector<BackwardReaders::Group> Narrower::getGroups(Operation *op) {
  Value wide = op->getResult(0);
  bool isReturned = llvm::any_of(wide.getUsers(), [](Operation *user) {
    return user->hasTrait<OpTrait::IsTerminator>() || isa<WriteOp>(user);
  });
  if (!isLargeSingle(wide) || isReturned)
    return {};
  SmallVector<BackwardReaders::Group> groups = readers.getGroups(op);
  for (BackwardReaders::Group &group : groups)
    llvm::erase_if(group, [&](OpOperand *use) { return use->get() != wide; });
  llvm::erase_if(groups, [](const BackwardReaders::Group &group) { return group.empty(); });
  return groups;
}

void Narrower::narrow(const Candidate &candidate) {
  Value wide = candidate.wide;
  ImplicitLocOpBuilder b(wide.getLoc(), wide.getContext());
  b.setInsertionPointAfterValue(wide);
  Value kept = convert(b, wide, type, Phase::Forward);
  for (const BackwardReaders::Group &group : candidate.groups) {
    b.setInsertionPoint(readers.getReader(*group.front()));
    Value again = convert(b, kept, b.getF32Type(), Phase::Backward);
    for (OpOperand *use : group)
      use->set(again);
  }
  ++values;
  bytesBefore += getTensorBytes(wide.getType());
  bytesAfter += getTensorBytes(kept.getType());
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct NarrowActivationsPass
    : mlir::memopt::impl::NarrowActivationsPassBase<NarrowActivationsPass> {
  using NarrowActivationsPassBase::NarrowActivationsPassBase;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (type != "f32" && type != "bf16") {
      func.emitError() << "expected f32 or bf16 as the type of kept activations, found '" << type
                       << "'";
      return signalPassFailure();
    }
    if (share < 0 || share > 100) {
      func.emitError() << "expected a share of kept activations of 0 to 100 percent, found "
                       << share.getValue();
      return signalPassFailure();
    }
    if (failed(verifyTensorGraph(func)))
      return signalPassFailure();
    if (type == "f32" || func.isExternal())
      return markAllAnalysesPreserved();
    int64_t values = 0, before = 0, after = 0;
    for (Block *block : getProgramBlocks(func.getBody().front())) {
      Narrower narrower(*block, BFloat16Type::get(&getContext()));
      narrower.run(llvm::divideCeil(narrower.getCandidateBytes() * share, 100));
      values += narrower.getValues();
      before += narrower.getBytesBefore();
      after += narrower.getBytesAfter();
    }
    emitRemark(func.getLoc()) << "keeps " << values << " activations in " << type << ": " << after
                              << " bytes instead of " << before;
  }
};
} // namespace
