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

#include "SegmentTiler.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/TilePasses.h"
#include "memopt/Transforms/Utils/ModulePatterns.h"
#include "memopt/Transforms/Utils/TokenTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_TILETOKENSPASS
#include "memopt/Transforms/TilePasses.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

static bool isLinear(MatmulOp op) {
  return tensorType(op.getResult()).getRank() == 2 && !op.getTransposeA();
}

/// How many elements a product makes of one.
static int64_t getGrowth(MatmulOp op) {
  return tensorType(op.getResult()).getDimSize(1) / tensorType(op.getA()).getDimSize(1);
}

/// A product of the forward pass whose result leaves the caches.
static bool isLargeProduct(MatmulOp op) {
  constexpr int64_t leastTokens = 64, leastBytes = 4 << 20;
  RankedTensorType type = tensorType(op.getResult());
  bool isRead = llvm::any_of(op->getUses(), TokenSegment::isRead);
  return isRead && isLinear(op) && getPhase(op) == Phase::Forward && !op->hasAttr(kTileAttr) &&
         type.getDimSize(0) >= leastTokens && getTensorBytes(type) >= leastBytes;
}

/// Such a product that makes much of little.
static bool isWideProduct(MatmulOp op) { return isLargeProduct(op) && getGrowth(op) >= 4; }

/// Such a product whose result, and what is half as wide, is wider than what it is made of.
static bool isInnerProduct(MatmulOp op) {
  return isLargeProduct(op) &&
         tensorType(op.getResult()).getNumElements() > 2 * tensorType(op.getA()).getNumElements();
}

/// What evaluation returns is what it is for.
static bool hasGradients(ModuleOp module) {
  WalkResult result = module.walk([](Operation *op) {
    return getPhase(op) == Phase::Backward ? WalkResult::interrupt() : WalkResult::advance();
  });
  return result.wasInterrupted();
}

namespace {
/// One module's ops of a block, forwards and backwards.
struct ModuleOps {
  StringRef name;
  llvm::SetVector<Operation *> forward, backward;
};

/// Wide products that were left whole, of which one remark tells.
struct WholeProducts {
  void add(MatmulOp product, const TokenSegment::Obstacle &obstacle);
  void report() const;

  int64_t count = 0, bytes = 0, largest = 0;
  std::optional<Location> place; ///< of the largest
  std::string reason;            ///< why that is whole
};

struct TileTokensPass : mlir::memopt::impl::TileTokensPassBase<TileTokensPass> {
  using TileTokensPassBase::TileTokensPassBase;

  void runOnOperation() override {
    SmallVector<std::string> names = llvm::to_vector_of<std::string>(modules);
    bool isForAll = llvm::is_contained(names, kAllLayers);
    llvm::erase(names, kAllLayers);
    FailureOr<ModulePatterns> patterns = ModulePatterns::parse(names, getOperation());
    if (failed(patterns))
      return signalPassFailure();
    WholeProducts whole;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (Block *block : getProgramBlocks(function.getBody().front())) {
        if (failed(tileModules(*block, *patterns)))
          return signalPassFailure();
        tileWideProducts(*block, whole);
        if (isForAll)
          tileInnerLayers(*block);
      }
    }
    if (std::optional<StringRef> pattern = patterns->getUnmet()) {
      getOperation().emitError() << "no module matches '" << *pattern << "'"
                                 << patterns->describeModules(*pattern);
      signalPassFailure();
    }
    if (whole.count && hasGradients(getOperation()))
      whole.report();
  }

private:
  SmallVector<ModuleOps> collectModules(Block &block, ModulePatterns &patterns);
  LogicalResult tileModules(Block &block, ModulePatterns &patterns);
  LogicalResult tileModule(const ModuleOps &module);
  LogicalResult tileForward(const ModuleOps &module, MatmulOp seed);
  bool tileBackward(const ModuleOps &module);
  void tileWideProducts(Block &block, WholeProducts &whole);
  bool tileApart(MatmulOp product, size_t mostOps);
  void tileInnerLayers(Block &block);
  void tileInnerLayer(MatmulOp product);
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
  SegmentTiler(*both).writeOut(moduleParts);
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
  SegmentTiler(*forward).runInLoop(moduleParts);
  return success();
}

/// The forward ops of a module that its backward pass needs, in program order.
static SmallVector<Operation *> findNeeded(const ModuleOps &module) {
  llvm::SetVector<Operation *> needed;
  SmallVector<Operation *> open(module.backward.getArrayRef());
  while (!open.empty())
    for (Value operand : open.pop_back_val()->getOperands())
      if (Operation *maker = operand.getDefiningOp();
          module.forward.contains(maker) && needed.insert(maker))
        open.push_back(maker);
  SmallVector<Operation *> sorted = needed.takeVector();
  llvm::sort(sorted, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return sorted;
}

static void replaceOperands(ArrayRef<Operation *> ops, const IRMapping &mapping) {
  for (Operation *op : ops)
    for (OpOperand &operand : op->getOpOperands())
      operand.set(mapping.lookupOrDefault(operand.get()));
}

/// The backward pass on a forward pass of its own, so that nothing of a tile waits for it. False
/// where it mixes tokens: it stays as it was.
bool TileTokensPass::tileBackward(const ModuleOps &module) {
  if (module.backward.empty())
    return false;
  OpBuilder builder(module.backward.front());
  IRMapping again, before;
  SmallVector<Operation *> ops;
  for (Operation *op : findNeeded(module)) {
    Operation *copy = builder.clone(*op, again);
    before.map(copy->getResults(), op->getResults());
    copy->setAttr(MemoptDialect::kCloneAttr, builder.getI64IntegerAttr(1));
    setPhase(copy, Phase::Backward);
    ops.push_back(copy);
  }
  SmallVector<Operation *> copies = ops;
  replaceOperands(module.backward.getArrayRef(), again);
  llvm::append_range(ops, module.backward);
  llvm::SmallPtrSet<Operation *, 32> members(ops.begin(), ops.end());
  if (MatmulOp seed = findLinear(ops)) {
    FailureOr<TokenSegment> segment =
        TokenSegment::create(seed.getResult(), [&](Operation *op) { return members.contains(op); });
    if (succeeded(segment)) {
      SegmentTiler(*segment).runInLoop(moduleParts);
      return true;
    }
  }
  replaceOperands(module.backward.getArrayRef(), before);
  for (Operation *copy : llvm::reverse(copies))
    copy->erase();
  return false;
}

/// The product by which the gradient of `product` goes on, whose first operand follows from what
/// members leave for the backward pass; or null.
static MatmulOp findGradient(MatmulOp product, const TokenSegment &forward) {
  auto follows = [&](Value value) {
    SmallVector<Value> open{value};
    DenseSet<Operation *> seen;
    while (!open.empty()) {
      Operation *maker = open.pop_back_val().getDefiningOp();
      if (!maker || !seen.insert(maker).second)
        continue;
      if (forward.contains(maker) && !forward.isSameForAll(maker))
        return true;
      if (getPhase(maker) == Phase::Backward)
        llvm::append_range(open, maker->getOperands());
    }
    return false;
  };
  for (auto op : product->getBlock()->getOps<MatmulOp>())
    if (getPhase(op) == Phase::Backward && isLinear(op) && !op->hasAttr(kTileAttr) &&
        tensorType(op.getA()).getShape() == tensorType(product.getResult()).getShape() &&
        follows(op.getA()))
      return op;
  return nullptr;
}

/// Where the gradient waits for what all tokens come to (a preference loss), forward and backward
/// pass are tiled each by itself. A tile of the second reads what the same tile of the first has
/// left, or what the planner makes again of it. False where that cannot be either.
bool TileTokensPass::tileApart(MatmulOp product, size_t mostOps) {
  auto create = [&](Value seed, Phase phase) -> FailureOr<TokenSegment> {
    FailureOr<TokenSegment> segment = TokenSegment::createOfPhase(seed, phase);
    if (failed(segment) || segment->getOps().size() > mostOps)
      return failure();
    return segment;
  };
  FailureOr<TokenSegment> forward = create(product.getResult(), Phase::Forward);
  MatmulOp gradient = succeeded(forward) ? findGradient(product, *forward) : MatmulOp();
  if (!gradient || failed(create(gradient.getA(), Phase::Backward)))
    return false;
  SegmentTiler(*forward).writeOut(parts);
  FailureOr<TokenSegment> backward = create(gradient.getA(), Phase::Backward);
  if (succeeded(backward))
    SegmentTiler(*backward).writeOut(parts);
  return true;
}

void WholeProducts::add(MatmulOp product, const TokenSegment::Obstacle &obstacle) {
  int64_t size = getTensorBytes(tensorType(product.getResult()));
  ++count;
  bytes += size;
  if (size <= largest)
    return;
  largest = size;
  place = product.getLoc();
  StringRef module = getModulePath(obstacle.op->getLoc());
  reason = llvm::formatv("'{0}'{1}{2} {3}", obstacle.op->getName(), module.empty() ? "" : " of ",
                         module, obstacle.reason);
}

void WholeProducts::report() const {
  StringRef module = getModulePath(*place);
  emitRemark(*place) << "left the results of " << count << " wide product"
                     << (count == 1 ? "" : "s") << " whole, " << bytes << " bytes; the largest"
                     << (module.empty() ? "" : ", of ") << module << (module.empty() ? "" : ",")
                     << " has " << largest << " bytes, for " << reason;
}

/// A segment holds further products, so that each is looked for anew.
static MatmulOp findUnseen(Block &block, bool (*isWanted)(MatmulOp), DenseSet<Operation *> &seen) {
  for (auto op : block.getOps<MatmulOp>())
    if (isWanted(op) && seen.insert(op).second)
      return op;
  return nullptr;
}

void TileTokensPass::tileWideProducts(Block &block, WholeProducts &whole) {
  constexpr size_t mostOps = 512; // each is written out for every tile
  constexpr int64_t headGrowth = 8;
  DenseSet<Operation *> seen;
  while (MatmulOp op = findUnseen(block, isWideProduct, seen)) {
    TokenSegment::Obstacle obstacle{op, "has too many ops behind it to write out for each tile"};
    FailureOr<TokenSegment> segment = TokenSegment::create(op.getResult(), nullptr, &obstacle);
    if (failed(segment) || segment->getOps().size() > mostOps) {
      // An MLP between two attentions has less to win: tiles of it are many ops in each layer, of
      // which the planner finds worse plans than of few. It is tiled by hand.
      if (getGrowth(op) >= headGrowth && !tileApart(op, mostOps))
        whole.add(op, obstacle);
      continue;
    }
    segment->absorb(mostOps);
    SegmentTiler(*segment).writeOut(parts);
  }
}

/// A layer between two ops that mix tokens, such as an MLP between two attentions: its gradient waits
/// for those behind it. What is as wide as `product` makes up the layer.
void TileTokensPass::tileInnerLayer(MatmulOp product) {
  FailureOr<TokenSegment> forward =
      TokenSegment::createOfPhase(product.getResult(), Phase::Forward);
  MatmulOp gradient = succeeded(forward) ? findGradient(product, *forward) : MatmulOp();
  if (!gradient)
    return;
  FailureOr<TokenSegment> backward = TokenSegment::createOfPhase(gradient.getA(), Phase::Backward);
  if (failed(backward))
    return;
  ModuleOps layer;
  layer.forward.insert_range(forward->getOps());
  layer.backward.insert_range(backward->getOps());
  if (tileBackward(layer))
    SegmentTiler(*forward).runInLoop(moduleParts);
}

void TileTokensPass::tileInnerLayers(Block &block) {
  DenseSet<Operation *> seen;
  while (MatmulOp op = findUnseen(block, isInnerProduct, seen))
    tileInnerLayer(op);
}
