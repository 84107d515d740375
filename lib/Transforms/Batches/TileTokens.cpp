//===- TileTokens.cpp - run what is wide for some tokens at a time -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Idea:    the logits of a large vocabulary are read by a loss and its gradient alone, and those
//          follow from the logits of one token and from the count of labels. So a segment of the
//          step (TokenSegment) is written out once for each tile of tokens:
//
//            %l0 = matmul %h[0:32], %w ; %s0 = loss %l0 ; %g0 = gradient %l0
//            %d0 = matmul %g0, %w      ; %w0 = matmul %g0, %h[0:32]
//            %l1 = matmul %h[32:64], %w ; ... ; %w1 = accumulate %w0, matmul %g1, %h[32:64]
//            %d  = concat %d0, %d1, ...
//
//          A tile's logits are never needed beside another's, which is for the planner to find.
// Bits:    the tiles follow from the shapes alone, sums are added tile by tile, and what a tile's
//          products and reductions are is the same however many tiles a part has (`parts`). So all
//          parts give the same bits.
// Input:   the joint graph behind split-batch. What is in the body of a loop is tiled there.
//
//===----------------------------------------------------------------------===//

#include "TokenSegment.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/TilePasses.h"
#include "memopt/Transforms/Utils/ModulePatterns.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"
#include "memopt/Transforms/Utils/TokenTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_TILETOKENSPASS
#include "memopt/Transforms/TilePasses.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

namespace {
struct Rows {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
} // namespace

/// So few tokens that a tile is a small part, and so many that a product of them is worth its
/// reads of the weights.
static SmallVector<Rows> cutIntoTiles(int64_t tokens) {
  constexpr int64_t step = 32, enough = 128, most = 1024;
  auto getShare = [&](int64_t parts) { return llvm::divideCeil(tokens, parts); };
  int64_t size = std::max<int64_t>(std::min<int64_t>(getShare(16), enough), getShare(32));
  size = std::min<int64_t>(llvm::alignTo(size, step), most);
  SmallVector<Rows> tiles;
  for (int64_t begin = 0; begin < tokens; begin += size)
    tiles.push_back({begin, std::min(begin + size, tokens)});
  return tiles;
}

/// Groups of tiles, as equal as they can be.
static SmallVector<SmallVector<Rows>> groupTiles(ArrayRef<Rows> tiles, int64_t parts) {
  auto count = static_cast<int64_t>(tiles.size());
  parts = std::min(parts, count);
  SmallVector<SmallVector<Rows>> groups;
  for (int64_t part = 0; part < parts; ++part)
    groups.emplace_back(
        tiles.slice(count * part / parts, count * (part + 1) / parts - count * part / parts));
  return groups;
}

//===----------------------------------------------------------------------===//
// One segment
//===----------------------------------------------------------------------===//

namespace {
class SegmentTiler {
public:
  explicit SegmentTiler(const TokenSegment &segment)
      : segment(segment), builder(segment.getOps().back()) {}

  /// In `parts` parts; 0: one for each tile.
  void run(int64_t parts);

private:
  void buildPart(ArrayRef<Rows> tiles);
  void buildPointwise(Operation *op, Rows part);
  void buildByTile(Operation *op, ArrayRef<Rows> tiles);
  Operation *clone(Operation *op, IRMapping &values, int64_t tokens);
  Value getOperand(Value value, Rows part);
  Value cut(Value whole, unsigned dims, Rows rows, RankedTensorType type);
  Value join(Value original, ArrayRef<Value> parts);
  Value shape(Value whole, OpResult original);
  void addUp(OpResult result, Value part);
  AccumulateOp findAccumulation(OpResult result) const;
  void finish();
  void note(Operation *op, Operation *like);

  const TokenSegment &segment;
  OpBuilder builder;                          ///< in front of the segment's last op
  IRMapping values;                           ///< of the part that is being built
  int64_t number = 0;                         ///< of that part
  DenseMap<Value, SmallVector<Value>> pieces; ///< of results that count tokens, by part
  llvm::MapVector<Value, Value> sums;         ///< of results that do not
};
} // namespace

/// What every op of a tile says: which it is, and its phase.
void SegmentTiler::note(Operation *op, Operation *like) {
  if (Phase phase = getPhase(like); phase != Phase::Forward) // of which nobody speaks
    setPhase(op, phase);
  op->setAttr(kTileAttr, builder.getI64IntegerAttr(number));
}

/// The first `dims` of `rank` dimensions as one.
static SmallVector<ReassociationIndices> groupTokens(int64_t rank, unsigned dims) {
  SmallVector<ReassociationIndices> groups(1);
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (dim >= static_cast<int64_t>(dims))
      groups.emplace_back();
    groups.back().push_back(dim);
  }
  return groups;
}

/// Rows of `whole`, whose first `dims` dimensions count tokens, as `type`.
Value SegmentTiler::cut(Value whole, unsigned dims, Rows rows, RankedTensorType type) {
  Location location = whole.getLoc();
  Value flat = whole;
  SmallVector<ReassociationIndices> groups = groupTokens(tensorType(whole).getRank(), dims);
  if (dims > 1)
    flat = tensor::CollapseShapeOp::create(builder, location, whole, groups);
  RankedTensorType flatType = tensorType(flat);
  SmallVector<OpFoldResult> offsets, sizes, strides(flatType.getRank(), builder.getIndexAttr(1));
  for (int64_t size : flatType.getShape()) {
    offsets.push_back(builder.getIndexAttr(0));
    sizes.push_back(builder.getIndexAttr(size));
  }
  offsets[0] = builder.getIndexAttr(rows.begin);
  sizes[0] = builder.getIndexAttr(rows.size());
  Value slice = tensor::ExtractSliceOp::create(builder, location, flat, offsets, sizes, strides);
  if (dims > 1)
    slice = tensor::ExpandShapeOp::create(builder, location, type, slice, groups);
  return slice;
}

/// An operand of a member, for the tokens of `part`.
Value SegmentTiler::getOperand(Value value, Rows part) {
  if (Value made = values.lookupOrNull(value))
    return made;
  unsigned dims = segment.getTokenDims(value);
  if (dims == 0)
    return value;
  Value made = cut(value, dims, part, segment.getTileType(value, part.size()));
  values.map(value, made);
  return made;
}

Operation *SegmentTiler::clone(Operation *op, IRMapping &operands, int64_t tokens) {
  Operation *copy = builder.clone(*op, operands);
  SmallVector<Type> types = llvm::map_to_vector(
      op->getResults(), [&](Value result) -> Type { return segment.getTileType(result, tokens); });
  cast<IterationOpInterface>(copy).resize(types);
  note(copy, op);
  return copy;
}

void SegmentTiler::buildPointwise(Operation *op, Rows part) {
  for (Value operand : op->getOperands())
    if (Value made = getOperand(operand, part); made != operand)
      values.map(operand, made);
  Operation *copy = clone(op, values, part.size());
  values.map(op->getResults(), copy->getResults());
}

/// Products, reductions and sums: the same ops whatever tiles share a part.
void SegmentTiler::buildByTile(Operation *op, ArrayRef<Rows> tiles) {
  Rows part{tiles.front().begin, tiles.back().end};
  SmallVector<SmallVector<Value>> made(op->getNumResults());
  for (Rows tile : tiles) {
    IRMapping operands;
    for (Value operand : op->getOperands()) {
      Value whole = getOperand(operand, part);
      if (unsigned dims = segment.getTokenDims(operand); dims && tiles.size() > 1)
        whole = cut(whole, dims, {tile.begin - part.begin, tile.end - part.begin},
                    segment.getTileType(operand, tile.size()));
      operands.map(operand, whole);
    }
    Operation *copy = clone(op, operands, tile.size());
    for (OpResult result : op->getResults()) {
      Value value = copy->getResult(result.getResultNumber());
      if (segment.getTokenDims(result))
        made[result.getResultNumber()].push_back(value);
      else if (!result.use_empty())
        addUp(result, value);
    }
  }
  for (OpResult result : op->getResults())
    if (segment.getTokenDims(result))
      values.map(result, join(result, made[result.getResultNumber()]));
}

/// One value of pieces along tokens.
Value SegmentTiler::join(Value original, ArrayRef<Value> parts) {
  if (parts.size() == 1)
    return parts.front();
  RankedTensorType type = tensorType(parts.front());
  unsigned dim = segment.getTokenDims(original) - 1;
  while (dim > 0 && tensorType(original).getDimSize(dim) == 1)
    --dim;
  int64_t tokens = 0;
  for (Value part : parts)
    tokens += tensorType(part).getDimSize(dim);
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = tokens;
  auto joined = tensor::ConcatOp::create(builder, original.getLoc(), type.clone(shape), dim,
                                         ValueRange(parts));
  note(joined, original.getDefiningOp());
  return joined;
}

/// What adds the sum to that of other micro-batches, where nothing else reads it.
AccumulateOp SegmentTiler::findAccumulation(OpResult result) const {
  if (!result.hasOneUse())
    return nullptr;
  auto accumulation = dyn_cast<AccumulateOp>(*result.user_begin());
  return accumulation && accumulation->getBlock() == result.getOwner()->getBlock() &&
                 accumulation->getOperand(1) == result &&
                 accumulation.getResult().getType() == result.getType() &&
                 accumulation->getOperand(0).getDefiningOp<ReadOp>()
             ? accumulation
             : AccumulateOp();
}

/// Sums of what would be rounded are made in f32.
void SegmentTiler::addUp(OpResult result, Value part) {
  Location location = result.getLoc();
  Operation *before = builder.getInsertionPoint()->getPrevNode();
  auto type = tensorType(part);
  auto number = dyn_cast<FloatType>(type.getElementType());
  if (number && number.getWidth() < 32)
    part = convertFloats(builder, location, part, builder.getF32Type());
  Value &sum = sums[result];
  if (!sum)
    if (AccumulateOp accumulation = findAccumulation(result)) {
      auto old = accumulation->getOperand(0).getDefiningOp<ReadOp>();
      sum = builder.clone(*old)->getResult(0);
    }
  if (!sum)
    sum = part;
  else if (number)
    sum = AccumulateOp::create(builder, location, part.getType(), sum, part);
  else
    sum = arith::AddIOp::create(builder, location, sum, part);
  for (Operation *op = before->getNextNode(); op != &*builder.getInsertionPoint();
       op = op->getNextNode())
    note(op, result.getOwner());
}

void SegmentTiler::buildPart(ArrayRef<Rows> tiles) {
  values.clear();
  Rows part{tiles.front().begin, tiles.back().end};
  for (Operation *op : segment.getOps())
    if (TokenSegment::isPointwise(op))
      buildPointwise(op, part);
    else
      buildByTile(op, tiles);
  for (Operation *op : segment.getOps())
    for (OpResult result : op->getResults())
      if (segment.getTokenDims(result))
        pieces[result].push_back(values.lookup(result));
  ++number;
}

/// The count of labels follows from them alone, and is there before the logits are.
static void separateCount(CrossEntropyOp loss) {
  if (loss.getCount().use_empty())
    return;
  OpBuilder builder(loss);
  auto type = cast<RankedTensorType>(loss.getLogits().getType());
  auto count = cast<CrossEntropyOp>(builder.clone(*loss));
  auto nothing =
      tensor::EmptyOp::create(builder, loss.getLoc(), type.getShape(), type.getElementType());
  nothing->moveBefore(count);
  count.getLogitsMutable().assign(nothing.getResult());
  loss.getCount().replaceAllUsesWith(count.getCount());
}

static void readNothing(OpOperand &use) {
  OpBuilder builder(use.getOwner());
  RankedTensorType type = tensorType(use.get());
  use.set(
      tensor::EmptyOp::create(builder, use.get().getLoc(), type.getShape(), type.getElementType())
          .getResult());
}

/// Who reads the shape of a value alone does not wait for it.
static void separateShapes(const TokenSegment &segment) {
  for (Operation *op : segment.getOps())
    for (OpResult result : op->getResults())
      for (OpOperand &use : llvm::make_early_inc_range(result.getUses()))
        if (!segment.contains(use.getOwner()) && !TokenSegment::isRead(use))
          readNothing(use);
  for (Operation *op = segment.getOps().front(); op != segment.getOps().back();
       op = op->getNextNode())
    for (OpOperand &use : op->getOpOperands())
      if (Operation *maker = use.get().getDefiningOp();
          maker && !isa<tensor::EmptyOp>(maker) && !TokenSegment::isRead(use))
        readNothing(use);
}

/// Whoever stands between members and needs one comes behind the last, as does all that changes
/// state.
static void moveBehind(const TokenSegment &segment) {
  Operation *first = segment.getOps().front(), *last = segment.getOps().back(), *end = last;
  DenseSet<Operation *> moved;
  DenseSet<StringAttr> written;
  for (Operation *op = first; op != last;) {
    Operation *next = op->getNextNode();
    bool follows = llvm::any_of(op->getOpOperands(), [&](OpOperand &use) {
      Operation *maker = use.get().getDefiningOp();
      return maker &&
             (moved.contains(maker) || (segment.contains(maker) && !segment.isSameForAll(maker)));
    });
    auto read = dyn_cast<ReadOp>(op);
    follows |=
        isa<WriteOp, CommitOp>(op) || (read && written.contains(read.getVariableAttr().getAttr()));
    if (!segment.contains(op) && follows) {
      if (auto write = dyn_cast<WriteOp>(op))
        written.insert(write.getVariableAttr().getAttr());
      moved.insert(op);
      op->moveAfter(end);
      end = op;
    }
    op = next;
  }
}

/// `whole`, whose tokens lie along one dimension, as the value that it takes the place of.
Value SegmentTiler::shape(Value whole, OpResult original) {
  RankedTensorType type = tensorType(original);
  if (tensorType(whole) == type)
    return whole;
  SmallVector<ReassociationIndices> groups =
      groupTokens(type.getRank(), segment.getTokenDims(original));
  Value flat = tensor::CollapseShapeOp::create(builder, original.getLoc(), whole, groups);
  Value shaped = tensor::ExpandShapeOp::create(builder, original.getLoc(), type, flat, groups);
  if (Phase phase = getPhase(original.getOwner()); phase != Phase::Forward)
    for (Value made : {flat, shaped})
      setPhase(made.getDefiningOp(), phase);
  return shaped;
}

/// Gives what is outside the whole values, and lets go of the members.
void SegmentTiler::finish() {
  number = -1;
  auto replace = [&](Value old, Value made) {
    old.replaceUsesWithIf(made, [&](OpOperand &use) { return !segment.contains(use.getOwner()); });
  };
  for (Operation *op : segment.getOps()) {
    if (segment.isSameForAll(op))
      continue;
    for (OpResult result : op->getResults()) {
      bool isNeeded = llvm::any_of(
          result.getUses(), [&](OpOperand &use) { return !segment.contains(use.getOwner()); });
      if (!isNeeded)
        continue;
      if (Value sum = sums.lookup(result)) {
        if (AccumulateOp accumulation = findAccumulation(result)) {
          auto old = accumulation->getOperand(0).getDefiningOp<ReadOp>();
          accumulation.replaceAllUsesWith(sum);
          accumulation.erase();
          if (old->use_empty())
            old->erase();
          continue;
        }
        if (sum.getType() != result.getType()) {
          sum = convertFloats(builder, result.getLoc(), sum, tensorType(result).getElementType());
          setPhase(sum.getDefiningOp(), getPhase(op));
        }
        replace(result, sum);
        continue;
      }
      replace(result, shape(join(result, pieces.lookup(result)), result));
    }
  }
  for (Operation *op : llvm::reverse(segment.getOps()))
    if (op->use_empty())
      op->erase();
}

void SegmentTiler::run(int64_t parts) {
  for (Operation *op : segment.getOps())
    if (auto loss = dyn_cast<CrossEntropyOp>(op))
      separateCount(loss);
  separateShapes(segment);
  moveBehind(segment);
  builder.setInsertionPoint(segment.getOps().back());
  SmallVector<Rows> tiles = cutIntoTiles(segment.getTokens());
  for (ArrayRef<Rows> part : groupTiles(tiles, parts ? parts : static_cast<int64_t>(tiles.size())))
    buildPart(part);
  finish();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

static bool isLinear(MatmulOp op) {
  return tensorType(op.getResult()).getRank() == 2 && !op.getTransposeA();
}

/// A product that makes much of little: of a size where its result leaves the caches.
static bool isWideProduct(MatmulOp op) {
  constexpr int64_t leastTokens = 64, leastBytes = 4 << 20, leastGrowth = 4;
  RankedTensorType type = tensorType(op.getResult());
  bool isRead = llvm::any_of(op->getUses(), TokenSegment::isRead);
  if (!isRead || !isLinear(op) || getPhase(op) != Phase::Forward || op->hasAttr(kTileAttr))
    return false;
  return type.getDimSize(0) >= leastTokens && getTensorBytes(type) >= leastBytes &&
         type.getDimSize(1) >= leastGrowth * tensorType(op.getA()).getDimSize(1);
}

namespace {
/// One module's ops of a block, forwards and backwards.
struct ModuleOps {
  StringRef name;
  llvm::SetVector<Operation *> forward, backward;
};

struct TileTokensPass : mlir::memopt::impl::TileTokensPassBase<TileTokensPass> {
  using TileTokensPassBase::TileTokensPassBase;

  void runOnOperation() override {
    FailureOr<ModulePatterns> patterns =
        ModulePatterns::parse(llvm::to_vector_of<std::string>(modules), getOperation());
    if (failed(patterns))
      return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (Block *block : getProgramBlocks(function.getBody().front())) {
        if (failed(tileModules(*block, *patterns)))
          return signalPassFailure();
        tileWideProducts(*block);
      }
    }
    if (std::optional<StringRef> pattern = patterns->getUnmet()) {
      getOperation().emitError() << "no module matches '" << *pattern << "'"
                                 << patterns->describeModules(*pattern);
      signalPassFailure();
    }
  }

private:
  SmallVector<ModuleOps> collectModules(Block &block, ModulePatterns &patterns);
  LogicalResult tileModules(Block &block, ModulePatterns &patterns);
  LogicalResult tileModule(const ModuleOps &module);
  LogicalResult tileForward(const ModuleOps &module, MatmulOp seed);
  void tileBackward(const ModuleOps &module);
  void tileWideProducts(Block &block);
};
} // namespace

SmallVector<ModuleOps> TileTokensPass::collectModules(Block &block, ModulePatterns &patterns) {
  llvm::MapVector<StringRef, ModuleOps> found;
  for (Operation &op : block)
    if (std::optional<StringRef> name = patterns.match(getModulePath(op.getLoc()))) {
      if (op.hasAttr(kTileAttr))
        continue;
      ModuleOps &module = found[*name];
      module.name = *name;
      if (getPhase(&op) == Phase::Forward)
        module.forward.insert(&op);
      else if (getPhase(&op) == Phase::Backward)
        module.backward.insert(&op);
    }
  return llvm::map_to_vector(found, [](auto &entry) { return std::move(entry.second); });
}

/// The segment of one module may hold others, so that they are looked for anew.
LogicalResult TileTokensPass::tileModules(Block &block, ModulePatterns &patterns) {
  llvm::SmallDenseSet<StringRef> done;
  while (true) {
    SmallVector<ModuleOps> found = collectModules(block, patterns);
    auto next = llvm::find_if(
        found, [&](const ModuleOps &module) { return done.insert(module.name).second; });
    if (next == found.end())
      return success();
    if (failed(tileModule(*next)))
      return failure();
  }
}

static MatmulOp findLinear(ArrayRef<Operation *> ops) {
  for (Operation *op : ops)
    if (auto product = dyn_cast<MatmulOp>(op); product && isLinear(product))
      return product;
  return nullptr;
}

/// An op of the module that reads tokens of the segment and is no part of it, or null.
static Operation *findMixing(const ModuleOps &module, const TokenSegment &segment) {
  for (Operation *op : module.forward)
    for (OpOperand &use : op->getOpOperands())
      if (segment.getTokenDims(use.get()) && TokenSegment::isRead(use) && !segment.contains(op))
        return op;
  return nullptr;
}

/// Forwards and backwards in one where the gradient needs nothing but the tokens themselves.
LogicalResult TileTokensPass::tileModule(const ModuleOps &module) {
  MatmulOp seed = findLinear(module.forward.getArrayRef());
  if (!seed) // of a loop in front, which counts; or nothing of the module runs here
    return success();
  FailureOr<TokenSegment> both = TokenSegment::create(seed.getResult(), [&](Operation *op) {
    return module.forward.contains(op) || module.backward.contains(op);
  });
  if (failed(both))
    return tileForward(module, seed);
  if (Operation *op = findMixing(module, *both))
    return op->emitError() << "'" << op->getName() << "' of module '" << module.name
                           << "' mixes tokens: it cannot run in parts of them";
  SegmentTiler(*both).run(moduleParts);
  return success();
}

LogicalResult TileTokensPass::tileForward(const ModuleOps &module, MatmulOp seed) {
  FailureOr<TokenSegment> forward = TokenSegment::create(
      seed.getResult(), [&](Operation *op) { return module.forward.contains(op); });
  Operation *mixing = failed(forward) ? seed.getOperation() : findMixing(module, *forward);
  if (mixing)
    return mixing->emitError() << "'" << mixing->getName() << "' of module '" << module.name
                               << "' mixes tokens: it cannot run in parts of them";
  tileBackward(module);
  SegmentTiler(*forward).run(moduleParts);
  return success();
}

/// The backward pass on a forward pass of its own, so that nothing of a tile waits for it.
void TileTokensPass::tileBackward(const ModuleOps &module) {
  llvm::SetVector<Operation *> again;
  SmallVector<Operation *> open(module.backward.getArrayRef());
  while (!open.empty())
    for (Value operand : open.pop_back_val()->getOperands())
      if (Operation *maker = operand.getDefiningOp();
          module.forward.contains(maker) && again.insert(maker))
        open.push_back(maker);
  if (module.backward.empty())
    return;
  SmallVector<Operation *> sorted = again.takeVector();
  llvm::sort(sorted, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  Operation *first = module.backward.front();
  OpBuilder builder(first);
  IRMapping mapping;
  SmallVector<Operation *> ops;
  for (Operation *op : sorted) {
    Operation *copy = builder.clone(*op, mapping);
    copy->setAttr(MemoptDialect::kCloneAttr, builder.getI64IntegerAttr(1));
    setPhase(copy, Phase::Backward);
    ops.push_back(copy);
  }
  for (Operation *op : module.backward)
    for (OpOperand &operand : op->getOpOperands())
      operand.set(mapping.lookupOrDefault(operand.get()));
  llvm::append_range(ops, module.backward);
  llvm::SmallPtrSet<Operation *, 32> members(ops.begin(), ops.end());
  MatmulOp seed = findLinear(ops);
  if (!seed)
    return;
  FailureOr<TokenSegment> backward =
      TokenSegment::create(seed.getResult(), [&](Operation *op) { return members.contains(op); });
  if (succeeded(backward))
    SegmentTiler(*backward).run(moduleParts);
}

/// A segment holds further products, so that each is looked for anew.
void TileTokensPass::tileWideProducts(Block &block) {
  constexpr size_t mostOps = 512; // each is written out for every tile
  DenseSet<Operation *> seen;
  auto findNext = [&]() -> MatmulOp {
    for (auto op : block.getOps<MatmulOp>())
      if (isWideProduct(op) && seen.insert(op).second)
        return op;
    return nullptr;
  };
  while (MatmulOp op = findNext()) {
    FailureOr<TokenSegment> segment = TokenSegment::create(op.getResult());
    if (succeeded(segment) && segment->getOps().size() <= mostOps)
      SegmentTiler(*segment).run(parts);
  }
}
