//===- SplitBatch.cpp - accumulate gradients over micro-batches -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Idea:    MicroBatches says what runs for each micro-batch; here that becomes the body of a
// repeat,
//          and what it sums up goes through variables:
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

#include "MicroBatches.h"
#include "RankUpdates.h"
#include "Rebatch.h"

#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_SPLITBATCHPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

namespace {
/// Makes the variables through which iterations talk, and accesses to them.
class LoopVariables {
public:
  explicit LoopVariables(const StepModel &step) : module(step.getModule()), symbols(module) {}

  VariableOp create(const Twine &name, RankedTensorType type, Role role) {
    OpBuilder builder(module.getContext());
    auto variable = VariableOp::create(builder, module.getLoc(), name.str(), type, role);
    symbols.insert(variable, step());
    variable.setNamesAttr(builder.getStrArrayAttr({variable.getSymName()}));
    return variable;
  }

  static Value read(OpBuilder &builder, Location location, VariableOp variable, Phase phase) {
    auto read = ReadOp::create(builder, location, variable.getTensorType(), variable.getSymName());
    setPhase(read, phase);
    return read;
  }
  static void write(OpBuilder &builder, Location location, Value value, VariableOp variable,
                    Phase phase) {
    setPhase(WriteOp::create(builder, location, value, variable.getSymName()), phase);
  }
  VariableOp lookUp(FlatSymbolRefAttr name) const {
    return symbols.lookup<VariableOp>(name.getAttr());
  }

private:
  Block::iterator step() { return Block::iterator(*module.getOps<func::FuncOp>().begin()); }

  ModuleOp module;
  SymbolTable symbols;
};
} // namespace

//===----------------------------------------------------------------------===//
// One loop
//===----------------------------------------------------------------------===//

namespace {
/// What one update's samples are cut into.
struct Cut {
  int64_t iterations; ///< micro-batches of a rank
  int64_t ranks;

  int64_t getParts() const { return iterations * ranks; }
};

/// Sums up one value over the iterations of a loop.
struct Accumulator {
  Value value; ///< in the graph as it was
  VariableOp sum;
  /// Of this rank's part of the sum over ranks, where each iteration adds up that alone; or null.
  RankedTensorType shard;
};

/// Builds the body of one repeat out of ops of the graph as it was.
class BodyBuilder {
public:
  BodyBuilder(const MicroBatches &plan, const BatchModel &batch, RepeatOp repeat, Cut cut,
              const DenseMap<StringAttr, VariableOp> &shadows)
      : plan(plan), batch(batch), repeat(repeat), cut(cut), shadows(shadows),
        builder(OpBuilder::atBlockTerminator(&repeat.getBody().front())) {
    mapping.map(repeat.getInputs(), repeat.getBody().getArguments());
  }

  void add(Operation *op) {
    for (Value operand : op->getOperands())
      provide(operand, op);
    Operation *copy = builder.clone(*op, mapping);
    redirect(copy);
    if (auto mask = dyn_cast<DropoutMaskOp>(copy))
      placeDraw(mask, op->getResult(0));
    else if (auto random = dyn_cast<RandomOp>(copy))
      placeDraw(random, op->getResult(0));
    else if (auto attention = dyn_cast<AttentionOp>(copy))
      placeScores(attention, op->getResult(0));
    else if (auto backward = dyn_cast<AttentionBackwardOp>(copy))
      placeScores(backward, op->getResult(0));
  }

  void accumulate(const Accumulator &accumulator);
  /// Updates of buffers, as if the ranks came one after the other.
  void addUpdatesOfRanks(ArrayRef<Operation *> updates);
  Value lookUp(Value original) const { return mapping.lookup(original); }

private:
  template <typename OpType> void placeDraw(OpType draw, Value original);
  template <typename OpType> void placeScores(OpType attention, Value original);
  Value createFirstElement(Operation *draw, int64_t perSample);
  Value readFirstSample(Location location, Phase phase);
  void provide(Value value, Operation *user);
  Value createCounted(Value value, int64_t batches);
  void redirect(Operation *copy);

  const MicroBatches &plan;
  const BatchModel &batch;
  RepeatOp repeat;
  Cut cut;
  const DenseMap<StringAttr, VariableOp> &shadows;
  OpBuilder builder;
  IRMapping mapping;
};
} // namespace

static Value createSplat(OpBuilder &builder, Location location, RankedTensorType type,
                         double number) {
  Type element = type.getElementType();
  TypedAttr value = isa<FloatType>(element)
                        ? TypedAttr(builder.getFloatAttr(element, number))
                        : TypedAttr(builder.getIntegerAttr(element, static_cast<int64_t>(number)));
  return arith::ConstantOp::create(builder, location,
                                   DenseElementsAttr::get(type, Attribute(value)));
}

/// What counts no samples is the same number for any of them.
static Value createCount(OpBuilder &builder, const BatchModel &batch, CountOp op, int64_t batches) {
  auto type = cast<RankedTensorType>(op.getType());
  bool countsSamples = batch.getReach(op.getResult()) != Reach::Shared;
  return createSplat(builder, op.getLoc(), type,
                     static_cast<double>(op.getCount() * (countsSamples ? batches : 1)));
}

/// Whether a value follows from counts and constants alone.
static bool isCounted(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || isa<CountOp>(op))
    return op;
  bool counts = false;
  for (Value operand : op->getOperands()) {
    if (matchPattern(operand, m_Constant()))
      continue;
    if (!isCounted(operand))
      return false;
    counts = true;
  }
  return counts && isPure(op);
}

/// The number of the first sample of an iteration among all samples of the step, which the runtime
/// writes with each batch.
Value BodyBuilder::readFirstSample(Location location, Phase phase) {
  constexpr StringLiteral name = "sample_offset";
  auto module = repeat->getParentOfType<ModuleOp>();
  auto variable = module.lookupSymbol<VariableOp>(name);
  auto type = RankedTensorType::get({}, builder.getI64Type());
  if (!variable) {
    OpBuilder atStart(repeat->getParentOfType<func::FuncOp>());
    variable = VariableOp::create(atStart, location, name, type, Role::Hyperparameter);
    variable.setNamesAttr(builder.getStrArrayAttr({name}));
  }
  return LoopVariables::read(builder, location, variable, phase);
}

/// A draw for the samples of one iteration is that part of the draw for all of them.
template <typename OpType> void BodyBuilder::placeDraw(OpType draw, Value original) {
  std::optional<BatchDimension> samples = batch.getDimension(original);
  if (!samples)
    return;
  SmallVector<int64_t> shape(cast<RankedTensorType>(original.getType()).getShape());
  shape[samples->dim] *= cut.getParts();
  SmallVector<int64_t> strides = computeStrides(shape);
  draw.getFirstMutable().assign(createFirstElement(draw, samples->inner * strides[samples->dim]));
  draw.setStrides(strides);
}

/// Likewise the scores that attention drops; its samples are the outermost dimension.
template <typename OpType> void BodyBuilder::placeScores(OpType attention, Value original) {
  std::optional<BatchDimension> samples = batch.getDimension(original);
  if (!samples || !attention.getSeed())
    return;
  ArrayRef<int64_t> query = cast<RankedTensorType>(attention.getQuery().getType()).getShape();
  ArrayRef<int64_t> key = cast<RankedTensorType>(attention.getKey().getType()).getShape();
  int64_t scores = query[1] * query[2] * key[2]; // heads, queries, keys
  attention.getFirstMutable().assign(createFirstElement(attention, samples->inner * scores));
}

/// The number of the first element that `draw` draws for the samples of an iteration.
Value BodyBuilder::createFirstElement(Operation *draw, int64_t perSample) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(draw);
  Phase phase = getPhase(draw);
  Value sample = readFirstSample(draw->getLoc(), phase);
  Value factor = createSplat(builder, draw->getLoc(), cast<RankedTensorType>(sample.getType()),
                             static_cast<double>(perSample));
  auto first = arith::MulIOp::create(builder, draw->getLoc(), sample, factor);
  setPhase(first, phase);
  return first;
}

/// Makes an operand of `user` known in the body: what depends on no sample is computed there, and
/// what follows from totals comes from outside.
void BodyBuilder::provide(Value value, Operation *user) {
  Operation *op = value.getDefiningOp();
  if (!plan.isRepeated(op) && isCounted(value)) {
    // For each user anew, for another may count otherwise; what is alike folds into one.
    mapping.map(value, createCounted(value, plan.isLocal(user) ? 1 : cut.getParts()));
    return;
  }
  if (mapping.contains(value))
    return;
  if (batch.getReach(value) == Reach::Shared && op) {
    for (Value operand : op->getOperands())
      provide(operand, op);
    redirect(builder.clone(*op, mapping));
    return;
  }
  repeat.getInputsMutable().append(value);
  mapping.map(value, repeat.getBody().addArgument(value.getType(), value.getLoc()));
}

/// A value that isCounted, for the samples of so many batches.
Value BodyBuilder::createCounted(Value value, int64_t batches) {
  Operation *op = value.getDefiningOp();
  if (auto counted = dyn_cast<CountOp>(op))
    return createCount(builder, batch, counted, batches);
  IRMapping operands;
  for (Value operand : op->getOperands())
    operands.map(operand, isCounted(operand)
                              ? createCounted(operand, batches)
                              : builder.clone(*operand.getDefiningOp())->getResult(0));
  return builder.clone(*op, operands)->getResult(cast<OpResult>(value).getResultNumber());
}

/// State that the body changes is a variable of the loop there.
void BodyBuilder::redirect(Operation *copy) {
  if (auto read = dyn_cast<ReadOp>(copy)) {
    if (VariableOp shadow = shadows.lookup(read.getVariableAttr().getAttr()))
      read.setVariable(shadow.getSymName());
  } else if (auto write = dyn_cast<WriteOp>(copy)) {
    if (VariableOp shadow = shadows.lookup(write.getVariableAttr().getAttr()))
      write.setVariable(shadow.getSymName());
  }
}

static Value convert(OpBuilder &builder, Location location, Value value, RankedTensorType type) {
  unsigned from = cast<RankedTensorType>(value.getType()).getElementTypeBitWidth(),
           to = type.getElementTypeBitWidth();
  if (from == to)
    return value;
  return from < to ? arith::ExtFOp::create(builder, location, type, value).getResult()
                   : arith::TruncFOp::create(builder, location, type, value).getResult();
}

void BodyBuilder::addUpdatesOfRanks(ArrayRef<Operation *> updates) {
  RankUpdates chain(updates, cut.ranks, builder);
  for (Operation *op : updates)
    for (Value operand : op->getOperands())
      if (chain.isMadeOutside(operand)) {
        Operation *maker = operand.getDefiningOp();
        if (!plan.isRepeated(maker)) {
          provide(operand, op);
          chain.setShared(operand, mapping.lookup(operand));
        } else {
          chain.setOfRank(operand, mapping.lookup(operand));
        }
      }
  chain.build([&](Operation *copy) { redirect(copy); });
}

/// The sum is taken in the wider of the two types, and rounded where the accumulator is narrower.
void BodyBuilder::accumulate(const Accumulator &accumulator) {
  Location location = accumulator.value.getLoc();
  Phase phase = getPhase(accumulator.value.getDefiningOp());
  Value value = mapping.lookup(accumulator.value);
  VariableOp sum = accumulator.sum;
  Operation *before = builder.getInsertionBlock()->getTerminator()->getPrevNode();
  if (accumulator.shard)
    value = CollectiveOp::create(builder, location, accumulator.shard,
                                 CollectiveKind::ReduceScatter, value, cut.ranks);
  auto type = cast<RankedTensorType>(value.getType()), stored = sum.getTensorType();
  RankedTensorType wide =
      type.getElementTypeBitWidth() > stored.getElementTypeBitWidth() ? type : stored;
  Value old = LoopVariables::read(builder, location, sum, phase);
  Value terms[] = {convert(builder, location, old, wide), convert(builder, location, value, wide)};
  Value next = isa<FloatType>(type.getElementType())
                   ? AccumulateOp::create(builder, location, wide, terms[0], terms[1]).getResult()
                   : arith::AddIOp::create(builder, location, terms[0], terms[1]).getResult();
  next = convert(builder, location, next, stored);
  LoopVariables::write(builder, location, next, sum, phase);
  for (Operation *made = before->getNextNode(); !made->hasTrait<OpTrait::IsTerminator>();
       made = made->getNextNode())
    setPhase(made, phase);
}

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
  SmallVector<Accumulator> createAccumulators(unsigned stage);
  void readTotals(ArrayRef<Accumulator> accumulators);
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

/// The mark of a gradient that the value is, or that its shard is.
static GradientOp findMark(Value value) {
  for (Operation *user : value.getUsers()) {
    if (auto mark = dyn_cast<GradientOp>(user))
      return mark;
    if (auto own = dyn_cast<CollectiveOp>(user))
      if (GradientOp mark = findMark(own.getResult()))
        return mark;
  }
  return nullptr;
}

/// Named after the gradient's variable, where there is one.
static std::string getSumName(Value total) {
  GradientOp mark = findMark(total);
  return mark ? "sum." + mark.getVariable().str() : "sum";
}

/// The type of the shards that a total is used by, where nothing uses more of it; else null.
static RankedTensorType getOnlyShard(Value total, const MicroBatches &plan) {
  RankedTensorType shard;
  for (Operation *user : total.getUsers()) {
    if (plan.isRepeated(user))
      continue;
    auto own = dyn_cast<CollectiveOp>(user);
    if (!own || own.getKind() != CollectiveKind::OwnShard)
      return nullptr;
    shard = cast<RankedTensorType>(own.getResult().getType());
  }
  return shard;
}

SmallVector<Accumulator> BatchSplitter::createAccumulators(unsigned stage) {
  SmallVector<Accumulator> accumulators;
  for (Value total : plan.getTotals(stage)) {
    RankedTensorType shard = scatters ? getOnlyShard(total, plan) : nullptr;
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
    accumulators.push_back({total, sum, shard});
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
  SmallVector<Accumulator> accumulators = createAccumulators(stage);
  auto repeat = RepeatOp::create(builder, location, step.getBody().getArguments(), cut.iterations,
                                 /*nextBatch=*/true);
  BodyBuilder body(plan, batch, repeat, cut, shadows);
  DenseMap<Operation *, SmallVector<Accumulator *>> sums;
  for (Accumulator &accumulator : accumulators)
    sums[accumulator.value.getDefiningOp()].push_back(&accumulator);
  for (Operation *op : plan.getOps(stage)) {
    if (cut.ranks > 1 && plan.isUpdate(op))
      continue;
    body.add(op);
    for (Accumulator *accumulator : sums.lookup(op))
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
  BodyBuilder body(plan, batch, repeat, cut, shadows);
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

void BatchSplitter::readTotals(ArrayRef<Accumulator> accumulators) {
  for (const Accumulator &accumulator : accumulators) {
    Value value = accumulator.value;
    Phase phase = getPhase(value.getDefiningOp());
    Value total = LoopVariables::read(builder, value.getLoc(), accumulator.sum, phase);
    auto wanted = accumulator.shard ? accumulator.shard : cast<RankedTensorType>(value.getType());
    if (total.getType() != wanted) {
      total = convert(builder, value.getLoc(), total, wanted);
      setPhase(total.getDefiningOp(), phase);
    }
    if (accumulator.shard)
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
  Value widened = convert(builder, location, value, wide);
  Value sum =
      CollectiveOp::create(builder, location, wide, CollectiveKind::AllReduce, widened, cut.ranks);
  Value total = convert(builder, location, sum, type);
  for (Value made : {widened, sum, total})
    if (made != value)
      setPhase(made.getDefiningOp(), phase);
  return total;
}

void BatchSplitter::useTotal(Value value, Value total) {
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

static void remarkStatistics(const MicroBatches &plan, int64_t count) {
  llvm::SetVector<StringRef> modules;
  for (Operation *op : plan.getStatisticMakers())
    modules.insert(getModulePath(op->getLoc()));
  for (StringRef path : modules) {
    Operation *first = *llvm::find_if(plan.getStatisticMakers(), [&](Operation *op) {
      return getModulePath(op->getLoc()) == path;
    });
    first->emitRemark() << (path.empty() ? "an op" : "module '" + path.str() + "'")
                        << " takes statistics of each of " << count
                        << " micro-batches, where one batch of all samples would have one";
  }
}

namespace {
struct SplitBatchPass : memopt::impl::SplitBatchPassBase<SplitBatchPass> {
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
    Cut cut{batches * parts, ranks};
    remarkStatistics(*plan, cut.getParts());
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
