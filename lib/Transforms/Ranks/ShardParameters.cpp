//===- ShardParameters.cpp - ranks keep parts of parameters -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Idea:    stage 3 of Rajbhandari et al., ZeRO, section 5.3. From step to step a rank keeps its
//          shard of a parameter; where the tensor is read, it is gathered, and what an update makes
//          stays where it is:
//
//            %w = read @w                           %own = read @w
//            ... %w                                 %w = collective <all_gather> %own ; ... %w
//            %own = collective <own_shard> %w       %new = optimizer_step %own, ...
//            %new = optimizer_step %own, ...        write %new, @w
//            %all = collective <all_gather> %new
//            write %all, @w
//
//          A gather is an instruction like any other, which the planner may run again: under a
//          budget it says what stays between forward and backward pass. Without one each pass
//          gathers for itself.
// Input:   the joint graph behind split-batch, so that a loop's body gathers what it reads.
//          An evaluation that reads a training's shards says of each which it is
//          (StateForm.h); its graph has reads alone.
// Casts:   what is read narrower is narrowed before it is sent.
// Left:    parameters of which a shard takes no fewer bytes than the whole; frozen ones that will be
//          codes, which have few bytes, and blocks that a shard would cut.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Analysis/StateForm.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Ranks/Shards.h"
#include "memopt/Transforms/Utils/UserGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_SHARDPARAMETERSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

static CollectiveOp getCollective(Operation *op, CollectiveKind kind) {
  auto collective = dyn_cast_or_null<CollectiveOp>(op);
  return collective && collective.getKind() == kind ? collective : CollectiveOp();
}

/// The type of the shards that updates take of the parameter, or, where nothing updates it, of the
/// smallest.
static RankedTensorType getShardType(VariableOp parameter, ArrayRef<ReadOp> reads, int64_t ranks) {
  for (ReadOp read : reads)
    for (Operation *user : read->getUsers())
      if (auto own = getCollective(user, CollectiveKind::OwnShard))
        return cast<RankedTensorType>(own.getResult().getType());
  return getPieceType(parameter.getTensorType(), ranks);
}

namespace {
/// Accesses of one parameter, which is a shard by now.
class AccessRewriter {
public:
  AccessRewriter(RankedTensorType shard, int64_t ranks, bool gathersAgain)
      : shard(shard), ranks(ranks), gathersAgain(gathersAgain) {}

  void rewrite(ReadOp read);
  void rewrite(WriteOp write);

private:
  /// Lets users of `own` read what is gathered of it, in front of the first.
  void gather(ArrayRef<Operation *> users, Value own, RankedTensorType whole);
  CollectiveOp create(Operation *user, CollectiveKind kind, Value value, RankedTensorType type);

  RankedTensorType shard;
  int64_t ranks;
  bool gathersAgain;
};
} // namespace

CollectiveOp AccessRewriter::create(Operation *user, CollectiveKind kind, Value value,
                                    RankedTensorType type) {
  OpBuilder builder(user);
  auto op = CollectiveOp::create(builder, value.getLoc(), type, kind, value, ranks);
  setPhase(op, getPhase(user));
  return op;
}

void AccessRewriter::gather(ArrayRef<Operation *> users, Value own, RankedTensorType whole) {
  for (auto [number, group] : llvm::enumerate(groupUsers(users, gathersAgain))) {
    CollectiveOp gathered = create(group.front(), CollectiveKind::AllGather, own, whole);
    gathered.setClone(number); // or two would be taken for one
    for (Operation *user : group)
      user->replaceUsesOfWith(own, gathered.getResult());
  }
}

void AccessRewriter::rewrite(ReadOp read) {
  auto whole = cast<RankedTensorType>(read.getType());
  Value own = read.getResult();
  SmallVector<Operation *> others;
  for (Operation *user : getOrderedUsers(own)) {
    if (getCollective(user, CollectiveKind::OwnShard)) {
      user->getResult(0).replaceAllUsesWith(own);
      user->erase();
    } else if (isa<arith::TruncFOp>(user)) {
      Value narrow = user->getResult(0);
      auto type = cast<RankedTensorType>(narrow.getType());
      narrow.setType(shard.clone(type.getElementType()));
      gather(getOrderedUsers(narrow), narrow, type);
    } else {
      others.push_back(user);
    }
  }
  own.setType(shard);
  gather(others, own, whole);
}

void AccessRewriter::rewrite(WriteOp write) {
  Value value = write.getValue();
  if (auto all = getCollective(value.getDefiningOp(), CollectiveKind::AllGather);
      all && all.getInput().getType() == shard) {
    write.getValueMutable().assign(all.getInput());
    if (all->use_empty())
      all->erase();
    return;
  }
  write.getValueMutable().assign(create(write, CollectiveKind::OwnShard, value, shard).getResult());
}

namespace {
struct ShardParametersPass : mlir::memopt::impl::ShardParametersPassBase<ShardParametersPass> {
  using ShardParametersPassBase::ShardParametersPassBase;

  void runOnOperation() override {
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step))
      return signalPassFailure();
    for (auto variable : getOperation().getOps<VariableOp>()) {
      if (std::optional<StateShard> own = StateShard::get(variable)) {
        StateShard::removeFrom(variable);
        shard(variable, own->type, own->shard, *step);
      } else if (ranks > 1 && variable.getRole() == Role::Parameter && !variable.getShard() &&
                 !willBeCodes(variable, *step)) {
        shardAsUpdated(variable, *step);
      }
    }
  }

  static bool willBeCodes(VariableOp parameter, const StepModel &step) {
    return FrozenForm::getOfState(parameter) && step.getWrites(parameter.getSymNameAttr()).empty();
  }

  void shardAsUpdated(VariableOp parameter, const StepModel &step) {
    RankedTensorType whole = parameter.getTensorType();
    RankedTensorType type =
        getShardType(parameter, step.getReads(parameter.getSymNameAttr()), ranks);
    if (type.getNumElements() < whole.getNumElements())
      shard(parameter, type, ShardAttr::getOf(whole, ranks), step);
  }

  void shard(VariableOp parameter, RankedTensorType type, ShardAttr attribute,
             const StepModel &step) {
    parameter.setType(type);
    parameter.setShardAttr(attribute);
    AccessRewriter rewriter(type, attribute.getRanks(), gathersAgain);
    for (ReadOp read : step.getReads(parameter.getSymNameAttr()))
      rewriter.rewrite(read);
    for (WriteOp write : step.getWrites(parameter.getSymNameAttr()))
      rewriter.rewrite(write);
  }
};
} // namespace
