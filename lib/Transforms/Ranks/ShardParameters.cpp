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
// Units:   parameters that are updated as one vector are one variable, which is gathered once for all
//          of them:
//
//            %a = read @a ; %b = read @b            %own = read @a@unit
//            ... %a                                 %all = collective <all_gather> %own
//            ... %b                                 %a = unpack %all ; %b = unpack %all ; ...
//            %own = own_shard(pack(%a, %b))         %new = optimizer_step %own, ...
//            %new = optimizer_step %own, ...        write %new, @a@unit
//            %all = collective <all_gather> %new
//            write (unpack %all), @a ; ... @b
//
//          Small frozen parameters are cut together in the same way.
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
#include "mlir/Support/DebugStringHelper.h"
#include "llvm/ADT/MapVector.h"

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

//===----------------------------------------------------------------------===//
// Units
//===----------------------------------------------------------------------===//

namespace {
/// Parameters that are one vector, and a rank's part of it.
struct ParameterUnit {
  struct Member {
    VariableOp variable;
    RankedTensorType type; ///< whole
    int64_t first;
  };
  SmallVector<Member> members;
  std::string name;
  RankedTensorType piece;
  int64_t ranks;
};

/// Accesses of the parameters of a unit.
class UnitRewriter {
public:
  UnitRewriter(const ParameterUnit &unit, const StepModel &step, bool gathersAgain)
      : unit(unit), step(step), gathersAgain(gathersAgain) {}

  void rewrite() {
    const ParameterUnit::Member &first = unit.members.front();
    joined = createJoined(first.variable, unit.name, unit.piece);
    for (ParameterUnit::Member member : unit.members) {
      joined.setTrainable(joined.getTrainable() || member.variable.getTrainable());
      placeInUnit(member.variable, joined, member.type, unit.ranks, member.first);
    }
    rewriteReads();
    rewriteWrites();
  }

private:
  /// A use of a member, as it is read or narrowed.
  struct Use {
    Operation *user;
    Value value;
    size_t member;
  };

  void rewriteReads();
  void rewriteBlock(ArrayRef<std::pair<ReadOp, size_t>> reads);
  void takeShards(PackOp pack, Value own);
  void gather(SmallVector<Use> &uses, Value own);
  void rewriteWrites();
  RankedTensorType getVector(Type element) const {
    const ParameterUnit::Member &last = unit.members.back();
    return RankedTensorType::get({last.first + last.type.getNumElements()}, element);
  }
  template <typename Op, typename... Args> Op create(Operation *user, Value value, Args &&...args) {
    OpBuilder builder(user);
    auto op = Op::create(builder, value.getLoc(), std::forward<Args>(args)...);
    setPhase(op, getPhase(user));
    return op;
  }

  const ParameterUnit &unit;
  const StepModel &step;
  bool gathersAgain;
  VariableOp joined;
};
} // namespace

void UnitRewriter::rewriteReads() {
  llvm::MapVector<Block *, SmallVector<std::pair<ReadOp, size_t>>> byBlock;
  for (auto [number, member] : llvm::enumerate(unit.members))
    for (ReadOp read : step.getReads(VariableOp(member.variable).getSymNameAttr()))
      byBlock[read->getBlock()].push_back({read, number});
  for (auto &[block, reads] : byBlock)
    rewriteBlock(reads);
}

/// What an update takes of the vector is there.
void UnitRewriter::takeShards(PackOp pack, Value own) {
  for (Operation *user : llvm::make_early_inc_range(pack->getUsers()))
    if (CollectiveOp shard = getCollective(user, CollectiveKind::OwnShard)) {
      shard.getResult().replaceAllUsesWith(own);
      shard.erase();
    }
  if (pack->use_empty())
    pack.erase();
}

void UnitRewriter::rewriteBlock(ArrayRef<std::pair<ReadOp, size_t>> reads) {
  ReadOp first = reads.front().first;
  for (auto [read, member] : reads)
    if (read->isBeforeInBlock(first))
      first = read;
  Value own = create<ReadOp>(first, first.getResult(), unit.piece, FlatSymbolRefAttr::get(joined));
  for (auto [read, member] : reads)
    for (Operation *user : getOrderedUsers(read))
      if (auto pack = dyn_cast<PackOp>(user))
        takeShards(pack, own);
  SmallVector<Use> plain;
  llvm::MapVector<Type, SmallVector<Use>> narrow; // by element type
  llvm::MapVector<Type, Operation *> casts;       // the first of each
  for (auto [read, member] : reads)
    for (Operation *user : getOrderedUsers(read)) {
      if (!isa<arith::TruncFOp>(user)) {
        plain.push_back({user, read.getResult(), member});
        continue;
      }
      Value cast = user->getResult(0);
      Type element = getElementTypeOrSelf(cast.getType());
      Operation *&front = casts.insert({element, user}).first->second;
      if (user->isBeforeInBlock(front))
        front = user;
      for (Operation *reader : getOrderedUsers(cast))
        narrow[element].push_back({reader, cast, member});
    }
  gather(plain, own);
  for (auto &[element, uses] : narrow)
    gather(uses, create<arith::TruncFOp>(casts.lookup(element), own,
                                         unit.piece.clone(unit.piece.getShape(), element), own)
                     .getResult());
  for (auto [read, member] : reads) {
    for (Operation *user : llvm::make_early_inc_range(read->getUsers()))
      user->erase(); // casts
    read.erase();
  }
}

/// Lets the users read what is gathered of `own`, in front of the first of each group.
void UnitRewriter::gather(SmallVector<Use> &uses, Value own) {
  llvm::sort(uses, [](const Use &a, const Use &b) {
    return a.user == b.user ? a.member < b.member : a.user->isBeforeInBlock(b.user);
  });
  SmallVector<Operation *> users;
  for (const Use &use : uses)
    if (users.empty() || users.back() != use.user)
      users.push_back(use.user);
  Type element = getElementTypeOrSelf(own.getType());
  for (auto [number, group] : llvm::enumerate(groupUsers(users, gathersAgain))) {
    llvm::SmallPtrSet<Operation *, 8> chosen(group.begin(), group.end());
    auto all = create<CollectiveOp>(group.front(), own, getVector(element),
                                    CollectiveKind::AllGather, own, unit.ranks);
    all.setClone(number); // or two would be taken for one
    DenseMap<size_t, Value> parts;
    for (const Use &use : uses) {
      if (!chosen.contains(use.user))
        continue;
      const ParameterUnit::Member &member = unit.members[use.member];
      Value &part = parts[use.member];
      if (!part)
        part = create<UnpackOp>(use.user, use.value,
                                member.type.clone(member.type.getShape(), element), all.getResult(),
                                member.first);
      use.user->replaceUsesOfWith(use.value, part);
    }
  }
}

/// The update wrote what all ranks have gathered; it stays this rank's part.
void UnitRewriter::rewriteWrites() {
  SmallVector<WriteOp> writes;
  for (ParameterUnit::Member member : unit.members)
    llvm::append_range(writes, step.getWrites(member.variable.getSymNameAttr()));
  if (writes.empty())
    return;
  auto getGather = [&](WriteOp write) {
    auto part = write.getValue().getDefiningOp<UnpackOp>();
    CollectiveOp all =
        part ? getCollective(part.getInput().getDefiningOp(), CollectiveKind::AllGather)
             : CollectiveOp();
    return all && all.getInput().getType() == unit.piece ? all : CollectiveOp();
  };
  WriteOp last = *llvm::max_element(
      writes, [](WriteOp a, WriteOp b) { return a != b && a->isBeforeInBlock(b); });
  CollectiveOp gathered = getGather(last);
  Value own;
  if (gathered &&
      llvm::all_of(writes, [&](WriteOp write) { return getGather(write) == gathered; })) {
    own = gathered.getInput();
  } else {
    SmallVector<Value> values;
    SmallVector<int64_t> firsts;
    for (auto [write, member] : llvm::zip_equal(writes, unit.members)) {
      values.push_back(write.getValue());
      firsts.push_back(member.first);
    }
    Value whole = create<PackOp>(last, values.front(), getVector(unit.piece.getElementType()),
                                 values, firsts);
    own = create<CollectiveOp>(last, whole, unit.piece, CollectiveKind::OwnShard, whole, unit.ranks)
              .getResult();
  }
  create<WriteOp>(last, own, own, FlatSymbolRefAttr::get(joined));
  for (WriteOp write : writes) {
    Operation *part = write.getValue().getDefiningOp();
    write.erase();
    if (isOpTriviallyDead(part))
      part->erase();
  }
  if (gathered && isOpTriviallyDead(gathered))
    gathered.erase();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct ShardParametersPass : mlir::memopt::impl::ShardParametersPassBase<ShardParametersPass> {
  using ShardParametersPassBase::ShardParametersPassBase;

  void runOnOperation() override {
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step))
      return signalPassFailure();
    // All are found before any is rewritten: the model knows the reads as they were.
    SmallVector<ParameterUnit> units = findUnitsOfState();
    llvm::append_range(units, findUnitsOfUpdates(*step));
    llvm::append_range(units, formFrozenUnits(*step));
    llvm::SmallPtrSet<Operation *, 16> inUnits;
    for (const ParameterUnit &unit : units)
      for (const ParameterUnit::Member &member : unit.members)
        inUnits.insert(member.variable);
    for (auto variable : getOperation().getOps<VariableOp>()) {
      if (inUnits.contains(variable))
        continue;
      if (std::optional<StateShard> own = StateShard::get(variable)) {
        StateShard::removeFrom(variable);
        shard(variable, own->type, own->shard, *step);
      } else if (isShared(variable, *step)) {
        shardAsUpdated(variable, *step);
      }
    }
    for (const ParameterUnit &unit : units)
      UnitRewriter(unit, *step, gathersAgain).rewrite();
  }

  bool isShared(VariableOp variable, const StepModel &step) const {
    return ranks > 1 && variable.getRole() == Role::Parameter && !variable.getShard() &&
           !willBeCodes(variable, step);
  }

  /// Those that the state of a training has.
  SmallVector<ParameterUnit> findUnitsOfState() {
    llvm::MapVector<StringAttr, ParameterUnit> units;
    for (auto variable : getOperation().getOps<VariableOp>())
      if (std::optional<StateShard> own = StateShard::get(variable); own && !own->unit.empty()) {
        ParameterUnit &unit = units[StringAttr::get(&getContext(), own->unit)];
        unit.members.push_back({variable, variable.getTensorType(), own->shard.getFirst()});
        unit.name = own->unit;
        unit.piece = own->type;
        unit.ranks = own->shard.getRanks();
        StateShard::removeFrom(variable);
      }
    SmallVector<ParameterUnit> found = llvm::to_vector(llvm::make_second_range(units.takeVector()));
    for (ParameterUnit &unit : found)
      llvm::sort(unit.members, [](auto &a, auto &b) { return a.first < b.first; });
    return found;
  }

  /// Those that are updated as one vector.
  SmallVector<ParameterUnit> findUnitsOfUpdates(const StepModel &step) {
    SmallVector<ParameterUnit> units;
    for (PackOp pack : step.getFunction().getOps<PackOp>()) {
      auto isRead = [](Value value) { return value.getDefiningOp<ReadOp>() != nullptr; };
      if (ranks < 2 || !llvm::all_of(pack.getInputs(), isRead))
        continue;
      ParameterUnit unit;
      for (auto [value, first] : llvm::zip_equal(pack.getInputs(), pack.getFirsts())) {
        VariableOp variable =
            step.getVariable(value.getDefiningOp<ReadOp>().getVariableAttr().getAttr());
        unit.members.push_back({variable, variable.getTensorType(), first});
      }
      for (Operation *user : pack->getUsers())
        if (CollectiveOp own = getCollective(user, CollectiveKind::OwnShard))
          unit.piece = cast<RankedTensorType>(own.getResult().getType());
      finish(unit, units);
    }
    return units;
  }

  SmallVector<ParameterUnit> formFrozenUnits(const StepModel &step) {
    namespace planning = ::memopt::planning;
    ShardGroups groups;
    SmallVector<VariableOp> variables;
    std::vector<planning::ShardTensor> tensors;
    for (auto variable : getOperation().getOps<VariableOp>()) {
      ArrayRef<ReadOp> reads = step.getReads(variable.getSymNameAttr());
      if (!isShared(variable, step) || StateShard::get(variable) || reads.empty() ||
          !step.getWrites(variable.getSymNameAttr()).empty() || isUpdated(reads))
        continue;
      RankedTensorType type = variable.getTensorType();
      planning::ShardTensor tensor{type.getNumElements(),
                                   std::max<int64_t>(1, type.getElementTypeBitWidth() / 8), 16,
                                   std::nullopt};
      if (formsUnits)
        tensor.group = groups.get(debugString(type.getElementType()) + " " + describeReads(reads));
      tensors.push_back(tensor);
      variables.push_back(variable);
    }
    SmallVector<ParameterUnit> units;
    for (const planning::ShardUnit &made : planning::formShardUnits(tensors, ranks)) {
      ParameterUnit unit;
      for (auto [member, first] : llvm::zip_equal(made.members, made.firsts))
        unit.members.push_back({variables[member], variables[member].getTensorType(), first});
      unit.piece = getPieceType(unit.members.front().type.clone(made.elements), ranks);
      finish(unit, units);
    }
    return units;
  }

  static bool isUpdated(ArrayRef<ReadOp> reads) {
    return llvm::any_of(reads, [](ReadOp read) {
      return llvm::any_of(read->getUsers(), [](Operation *user) {
        return isa<PackOp>(user) || getCollective(user, CollectiveKind::OwnShard);
      });
    });
  }

  void finish(ParameterUnit &unit, SmallVectorImpl<ParameterUnit> &units) const {
    unit.name = getUnitName(unit.members.front().variable.getSymName());
    unit.ranks = ranks;
    units.push_back(std::move(unit));
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
