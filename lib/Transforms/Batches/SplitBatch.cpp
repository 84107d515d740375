//===- SplitBatch.cpp - accumulate gradients over micro-batches -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Idea:    MicroBatches says what runs for each micro-batch; here that becomes the body of a repeat
//          (BodyBuilder), and what it sums up goes through variables:
//
//            write 0, @sum
//            repeat count(K) next_batch (%x = %input) {
//              ... %g = ... ; %old = read @sum ; write %old + %g, @sum
//            }
//            %total = read @sum ; ... update
//
// Ranks:   are the outermost cut. What a rank has summed up is summed up over the ranks, in their
//          order. With one micro-batch a rank there is no loop:
//
//            ... %g = ... ; %total = collective <all_reduce> %g ; ... update
//
// Input:   the joint graph behind guard-state. State is not written before the loss is known, so
//          running statistics move in variables of their own inside of the loop, and are state
//          again behind the commit.
// Copies:  of what depends on no sample (parameters read, constants, masks) the body has its own;
//          whether to hoist it is for the planner to say.
//
//===----------------------------------------------------------------------===//

#include "BodyBuilder.h"
#include "Rebatch.h"
#include "SyncBatchNorm.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "memopt/Transforms/Passes.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_SPLITBATCHPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

namespace {
class BatchSplitter {
public:
  BatchSplitter(const StepModel &step, const BatchModel &batch, const MicroBatches &plan, Cut cut,
                std::optional<Type> elementType, bool scatters)
      : step(step), batch(batch), plan(plan), cut(cut), elementType(elementType),
        scatters(scatters), variables(step), builder(step.getReturn()) {}

  void run() {
    if (cut.iterations > 1)
      createShadows();
    for (Operation &op : step.getBody().without_terminator())
      if (!plan.isRepeated(&op))
        once.push_back(&op);
    for (unsigned stage = 0; stage <= plan.getLastStage(); ++stage) {
      moveToEnd(stage);
      if (cut.iterations > 1)
        createLoop(stage);
      else
        createOnce(stage);
    }
    moveToEnd(plan.getLastStage() + 1);
    commitShadows();
    resolveCounts();
    eraseDead();
  }

private:
  void createShadows();
  void moveToEnd(unsigned stage);
  void createLoop(unsigned stage);
  void createOnce(unsigned stage);
  void addUpdates(BodyBuilder &body, unsigned stage);
  DenseMap<Value, PackOp> findPacks(const llvm::SetVector<Value> &totals) const;
  SmallVector<LoopSum> createAccumulators(unsigned stage);
  void readTotals(ArrayRef<LoopSum> accumulators);
  Value sumOverRanks(Value value, Phase phase);
  void useTotal(Value value, Value total);
  void useShard(Value value, Value shard);
  void commitShadows();
  void resolveCounts();
  void eraseDead();

  const StepModel &step;
  const BatchModel &batch;
  const MicroBatches &plan;
  Cut cut;
  std::optional<Type> elementType;
  bool scatters; ///< gradients whose updates are shared out are accumulated in shards
  LoopVariables variables;
  OpBuilder builder;             ///< at the end of the step
  SmallVector<Operation *> once; ///< ops that are not repeated, in program order
  /// Updates of state that were built where the loop would be.
  SmallVector<Operation *> early;
  DenseMap<StringAttr, VariableOp> shadows;
  DenseMap<Value, Value> totals;                           ///< of the loops that are there
  SmallVector<std::pair<VariableOp, VariableOp>> shadowed; ///< state, and its name in the loop
};
} // namespace

void BatchSplitter::createShadows() {
  for (Operation *op : plan.getOps())
    if (auto write = dyn_cast<WriteOp>(op)) {
      VariableOp state = variables.lookUp(write.getVariableAttr());
      VariableOp shadow =
          variables.create("loop." + state.getSymName(), state.getTensorType(), Role::Gradient);
      shadows[state.getSymNameAttr()] = shadow;
      shadowed.push_back({state, shadow});
    }
}

/// The body of a loop that runs once takes its place.
static void inlineBody(RepeatOp repeat) {
  Block &body = repeat.getBody().front();
  for (auto [argument, input] : llvm::zip_equal(body.getArguments(), repeat.getInputs()))
    argument.replaceAllUsesWith(input);
  body.getTerminator()->erase();
  repeat->getBlock()->getOperations().splice(Block::iterator(repeat), body.getOperations());
  repeat.erase();
}

void BatchSplitter::moveToEnd(unsigned stage) {
  for (Operation *op : once)
    if (plan.getStage(op) == stage)
      op->moveBefore(step.getReturn());
}

/// The mark of a member of a unit, whose shard all members have.
static GradientOp findMarkInUnit(Value member, PackOp pack) {
  auto place = llvm::find(pack.getInputs(), member) - pack.getInputs().begin();
  for (Operation *own : pack->getUsers())
    for (Operation *user : own->getUsers())
      if (auto mark = dyn_cast<GradientOp>(user);
          mark && mark.getShard() && mark.getShard()->getFirst() == pack.getFirsts()[place])
        return mark;
  return nullptr;
}

/// The mark of a gradient that the value is, or that its shard is.
static GradientOp findMark(Value value) {
  for (Operation *user : value.getUsers()) {
    if (auto mark = dyn_cast<GradientOp>(user))
      return mark;
    if (auto own = dyn_cast<CollectiveOp>(user))
      if (GradientOp mark = findMark(own.getResult()))
        return mark;
    if (auto pack = dyn_cast<PackOp>(user))
      if (GradientOp mark = findMarkInUnit(value, pack))
        return mark;
  }
  return nullptr;
}

/// Named after the gradient's variable, where there is one.
static std::string getSumName(Value total) {
  GradientOp mark = findMark(total);
  return mark ? "sum." + mark.getVariable().str() : "sum";
}

/// Who uses a total, or a vector of totals, behind the loop; nothing where the loop reads it itself.
static SmallVector<Operation *> getUsersBehind(Value total, const MicroBatches &plan) {
  if (llvm::any_of(total.getUsers(), [&](Operation *user) { return plan.readsTotal(user, total); }))
    return {};
  return llvm::to_vector(llvm::make_filter_range(
      total.getUsers(), [&](Operation *user) { return !plan.isRepeated(user); }));
}

/// The type of the shards that a total, or a vector of totals, is used by, where nothing uses more
/// of it; else null.
static RankedTensorType getOnlyShard(Value total, const MicroBatches &plan) {
  RankedTensorType shard;
  for (Operation *user : getUsersBehind(total, plan)) {
    auto own = dyn_cast<CollectiveOp>(user);
    if (!own || own.getKind() != CollectiveKind::OwnShard)
      return nullptr;
    shard = cast<RankedTensorType>(own.getResult().getType());
  }
  return shard;
}

/// The vector of totals of a loop that is all that uses this one of them; else null.
static PackOp getOnlyPack(Value total, const MicroBatches &plan,
                          const llvm::SetVector<Value> &totals) {
  PackOp pack;
  for (Operation *user : getUsersBehind(total, plan)) {
    auto found = dyn_cast<PackOp>(user);
    if (!found || (pack && pack != found))
      return nullptr;
    pack = found;
  }
  bool isOfTotals =
      pack && llvm::all_of(pack.getInputs(), [&](Value input) { return totals.contains(input); });
  return isOfTotals ? pack : nullptr;
}

/// By total the vector whose shards are accumulated in the place of totals, with the last of them.
DenseMap<Value, PackOp> BatchSplitter::findPacks(const llvm::SetVector<Value> &totals) const {
  DenseMap<Value, PackOp> packOf;
  llvm::SetVector<PackOp> packs;
  for (Value total : totals)
    if (PackOp pack = scatters ? getOnlyPack(total, plan, totals) : nullptr) {
      packOf[total] = pack;
      packs.insert(pack);
    }
  for (PackOp pack : packs) {
    auto isMember = [&](Value total) { return packOf.lookup(total) == pack; };
    if (getOnlyShard(pack.getResult(), plan) && llvm::all_of(pack.getInputs(), isMember))
      continue;
    for (Value total : llvm::make_filter_range(pack.getInputs(), isMember))
      packOf.erase(total);
  }
  return packOf;
}

SmallVector<LoopSum> BatchSplitter::createAccumulators(unsigned stage) {
  SmallVector<LoopSum> accumulators;
  llvm::SetVector<Value> all;
  all.insert_range(plan.getTotals(stage));
  DenseMap<Value, PackOp> packOf = findPacks(all);
  DenseMap<PackOp, size_t> left; // totals of a vector that are still to come; members may be one
  for (PackOp pack : llvm::make_second_range(packOf))
    ++left[pack];
  for (Value total : all) {
    PackOp pack = packOf.lookup(total);
    if (pack && --left[pack] > 0)
      continue;
    RankedTensorType shard =
        scatters ? getOnlyShard(pack ? pack.getResult() : total, plan) : nullptr;
    auto type = shard ? shard : cast<RankedTensorType>(total.getType());
    if (auto number = dyn_cast<FloatType>(type.getElementType())) {
      bool isScalar = type.getNumElements() == 1;
      if (elementType && !isScalar)
        type = type.clone(*elementType);
      else if (number.getWidth() < 32)
        type = type.clone(builder.getF32Type()); // a sum of many rounded terms loses them
    }
    VariableOp sum = variables.create(getSumName(total), type, Role::Gradient);
    Value zero = createSplat(builder, total.getLoc(), type, 0);
    LoopVariables::write(builder, total.getLoc(), zero, sum, Phase::Forward);
    accumulators.push_back({total, sum, shard, pack});
  }
  return accumulators;
}

void BatchSplitter::createLoop(unsigned stage) {
  Location location = step.getFunction().getLoc();
  if (stage == plan.getLastStage())
    for (auto [state, shadow] : shadowed)
      LoopVariables::write(builder, location,
                           LoopVariables::read(builder, location, state, Phase::Forward), shadow,
                           Phase::Forward);
  SmallVector<LoopSum> accumulators = createAccumulators(stage);
  auto repeat = RepeatOp::create(builder, location, step.getBody().getArguments(), cut.iterations,
                                 /*nextBatch=*/true);
  BodyBuilder body(plan, batch, repeat, cut, shadows, totals);
  DenseMap<Operation *, SmallVector<LoopSum *>> sums;
  for (LoopSum &accumulator : accumulators)
    sums[accumulator.value.getDefiningOp()].push_back(&accumulator);
  for (Operation *op : plan.getOps(stage)) {
    if (cut.ranks > 1 && plan.isUpdate(op))
      continue;
    body.add(op);
    for (LoopSum *accumulator : sums.lookup(op))
      body.accumulate(*accumulator);
  }
  addUpdates(body, stage);
  readTotals(accumulators);
}

/// What runs once is its own body: no sum goes through a variable, and state is written behind the
/// commit.
void BatchSplitter::createOnce(unsigned stage) {
  auto repeat = RepeatOp::create(builder, step.getFunction().getLoc(),
                                 step.getBody().getArguments(), 1, /*nextBatch=*/true);
  BodyBuilder body(plan, batch, repeat, cut, shadows, totals);
  for (Operation *op : plan.getOps(stage))
    if (!plan.isUpdate(op))
      body.add(op);
  Block &block = repeat.getBody().front();
  size_t before = block.getOperations().size() - 1; // without the terminator
  addUpdates(body, stage);
  for (Operation &op : llvm::drop_begin(block.without_terminator(), before))
    early.push_back(&op);
  inlineBody(repeat);
  for (Value total : plan.getTotals(stage))
    useTotal(total, sumOverRanks(body.lookUp(total), getPhase(total.getDefiningOp())));
}

/// Of ranks, one after the other; without ranks they are in the loop already.
void BatchSplitter::addUpdates(BodyBuilder &body, unsigned stage) {
  if (cut.ranks > 1 && stage == plan.getLastStage())
    body.addUpdatesOfRanks(plan.getUpdates());
}

void BatchSplitter::readTotals(ArrayRef<LoopSum> accumulators) {
  for (const LoopSum &accumulator : accumulators) {
    Value value = accumulator.value;
    Phase phase = getPhase(value.getDefiningOp());
    Value total = LoopVariables::read(builder, value.getLoc(), accumulator.sum, phase);
    auto wanted = accumulator.shard ? accumulator.shard : cast<RankedTensorType>(value.getType());
    if (total.getType() != wanted) {
      total = convertFloats(builder, value.getLoc(), total, wanted.getElementType());
      setPhase(total.getDefiningOp(), phase);
    }
    if (PackOp pack = accumulator.pack)
      useShard(pack.getResult(), total);
    else if (accumulator.shard)
      useShard(value, total);
    else
      useTotal(value, sumOverRanks(total, phase));
  }
}

/// In the order of the ranks; a type that would round is widened for it, as accumulators are.
Value BatchSplitter::sumOverRanks(Value value, Phase phase) {
  if (cut.ranks == 1)
    return value;
  Location location = value.getLoc();
  auto type = cast<RankedTensorType>(value.getType()), wide = type;
  if (auto number = dyn_cast<FloatType>(type.getElementType()); number && number.getWidth() < 32)
    wide = type.clone(builder.getF32Type());
  Value widened = convertFloats(builder, location, value, wide.getElementType());
  Value sum =
      CollectiveOp::create(builder, location, wide, CollectiveKind::AllReduce, widened, cut.ranks);
  Value total = convertFloats(builder, location, sum, type.getElementType());
  for (Value made : {widened, sum, total})
    if (made != value)
      setPhase(made.getDefiningOp(), phase);
  return total;
}

void BatchSplitter::useTotal(Value value, Value total) {
  totals[value] = total;
  value.replaceUsesWithIf(total, [&](OpOperand &use) { return !plan.isRepeated(use.getOwner()); });
}

/// The shards that were to be taken of the total are there.
void BatchSplitter::useShard(Value value, Value shard) {
  for (Operation *user : llvm::make_early_inc_range(value.getUsers()))
    if (!plan.isRepeated(user)) {
      user->getResult(0).replaceAllUsesWith(shard);
      llvm::erase(once, user);
      user->erase();
    }
  if (auto pack = value.getDefiningOp<PackOp>()) {
    llvm::erase(once, pack.getOperation());
    pack.erase();
  }
}

void BatchSplitter::commitShadows() {
  if (CommitOp commit = step.getCommit()) {
    builder.setInsertionPointAfter(commit);
    for (Operation *op : early)
      op->moveBefore(commit->getBlock(), builder.getInsertionPoint());
  }
  for (auto [state, shadow] : shadowed) {
    Location location = state.getLoc();
    Value value = LoopVariables::read(builder, location, shadow, Phase::Optimizer);
    LoopVariables::write(builder, location, value, state, Phase::Optimizer);
  }
}

/// Outside of loops a count is that of all batches.
void BatchSplitter::resolveCounts() {
  for (CountOp op : llvm::make_early_inc_range(step.getBody().getOps<CountOp>())) {
    builder.setInsertionPoint(op);
    op.replaceAllUsesWith(createCount(builder, batch, op, cut.getParts()));
    op.erase();
  }
}

void BatchSplitter::eraseDead() {
  for (Operation *op : llvm::reverse(plan.getOps()))
    op->erase();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(step.getBody())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// Modules whose statistics are those of fewer samples than one batch of all would have.
static void remarkStatistics(const MicroBatches &plan, const BatchModel &batch, Cut cut) {
  llvm::MapVector<StringRef, Operation *> firsts;
  for (Operation *op : plan.getStatisticMakers())
    firsts.insert({getModulePath(op->getLoc()), op});
  for (auto [path, op] : firsts) {
    bool isOfAll = cut.syncsBatchNorm && isSynchronized(op, batch);
    int64_t count = isOfAll ? cut.iterations : cut.getParts();
    if (count > 1)
      op->emitRemark() << (path.empty() ? "an op" : "module '" + path.str() + "'")
                       << " takes statistics of each of " << count
                       << " micro-batches, where one batch of all samples would have one";
  }
}

namespace {
struct SplitBatchPass : mlir::memopt::impl::SplitBatchPassBase<SplitBatchPass> {
  using SplitBatchPassBase::SplitBatchPassBase;

  void runOnOperation() override {
    if (batches * parts * ranks > 1 && failed(split()))
      signalPassFailure();
  }

  LogicalResult split() {
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step))
      return failure();
    FailureOr<BatchModel> batch = BatchModel::create(*step);
    if (failed(batch))
      return failure();
    markBatchDimensions(*step, *batch);
    if (failed(cutBatch(*step, *batch)))
      return failure();
    FailureOr<std::optional<Type>> sumType = parseElementType();
    if (failed(sumType))
      return failure();
    FailureOr<MicroBatches> plan = MicroBatches::create(*step, *batch);
    if (failed(plan))
      return failure();
    if (ranks > 1 && failed(plan->verifyRanks()))
      return failure();
    Cut cut{batches * parts, ranks, syncBatchNorm && ranks > 1};
    if (cut.syncsBatchNorm && failed(verifySynchronized(*step, *batch, *plan)))
      return failure();
    remarkStatistics(*plan, *batch, cut);
    BatchSplitter(*step, *batch, *plan, cut, *sumType, scatter).run();
    return StepModel::create(getOperation())->verifyAccesses();
  }

  LogicalResult cutBatch(const StepModel &step, const BatchModel &batch) {
    int64_t whole = size ? size : batch.getBatchSize();
    if (whole % parts)
      return step.getFunction().emitError()
             << "--micro-batches=" << parts.getValue() << " does not divide the batch of " << whole
             << " samples";
    if (whole != batch.getBatchSize() * parts)
      rebatch(step, batch, whole / parts);
    if (size)
      remarkBatchSize(step, batch, size);
    return success();
  }

  FailureOr<std::optional<Type>> parseElementType() {
    Builder builder(&getContext());
    if (elementType == "fp32")
      return std::optional<Type>();
    if (elementType == "bf16")
      return std::optional<Type>(builder.getBF16Type());
    return emitError(getOperation().getLoc())
           << "expected fp32 or bf16 as the type of accumulators, found '" << elementType << "'";
  }
};
} // namespace
