//===- TokenSegment.cpp - what can run for some tokens at a time -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenSegment.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

static SmallVector<Value> getValues(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  return values;
}

//===----------------------------------------------------------------------===//
// Growing
//===----------------------------------------------------------------------===//

FailureOr<TokenSegment> TokenSegment::create(Value seed, Belongs belongs, Obstacle *obstacle) {
  RankedTensorType type = tensorType(seed);
  TokenSegment segment(seed.getParentBlock(), type.getDimSize(0),
                       belongs ? 0 : type.getNumElements() / 2);
  std::optional<Obstacle> found = segment.build(seed, belongs);
  if (!found && !belongs)
    if (Operation *reader = segment.findReaderOfWhole(/*mayLeaveForGradient=*/false))
      found = {reader, "needs the value of all tokens as a whole"};
  if (!found)
    return segment;
  if (obstacle)
    *obstacle = *found;
  return failure();
}

FailureOr<TokenSegment> TokenSegment::createOfPhase(Value seed, Phase phase) {
  RankedTensorType type = tensorType(seed);
  TokenSegment segment(seed.getParentBlock(), type.getDimSize(0), type.getNumElements() / 2);
  auto isOfPhase = [phase](Operation *op) { return getPhase(op) == phase; };
  if (segment.build(seed, isOfPhase) || segment.findReaderOfWhole(phase == Phase::Forward))
    return failure();
  return segment;
}

std::optional<TokenSegment::Obstacle> TokenSegment::build(Value seed, Belongs belongs) {
  tokenDims[seed] = 1;
  open.push_back(seed);
  grow(belongs);
  // Whatever lies between two members is one.
  for (SmallVector<Operation *> between = findBetween(); !between.empty();
       between = findBetween()) {
    for (Operation *op : between)
      if (!add(op))
        return Obstacle{op, "mixes tokens"};
    grow(belongs);
  }
  sortOps();
  if (ops.empty())
    return Obstacle{seed.getDefiningOp(), "mixes tokens"};
  if (Operation *waiting = findWaiting())
    return Obstacle{waiting, "waits for what all tokens come to"};
  return std::nullopt;
}

void TokenSegment::sortOps() {
  ops = members.takeVector();
  members.insert(ops.begin(), ops.end());
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
}

bool TokenSegment::isWide(Value value) const {
  return tensorType(value).getNumElements() >= leastElements;
}

void TokenSegment::grow(Belongs belongs) {
  auto mayAdd = [&](Operation *op) { return !belongs || belongs(op); };
  while (!open.empty()) {
    Value value = open.pop_back_val();
    Operation *maker = value.getDefiningOp();
    bool isMember = maker && mayAdd(maker) && add(maker);
    // Whoever else reads what is the same for all tokens has nothing to do with the segment.
    if (matchPattern(value, m_Constant()) || (isMember && isSameForAll(maker)))
      continue;
    for (OpOperand &use : value.getUses())
      if (isRead(use) && mayAdd(use.getOwner()))
        add(use.getOwner());
  }
}

bool TokenSegment::isRead(OpOperand &use) {
  Operation *user = use.getOwner();
  if (user->hasTrait<OpTrait::ReadsShapeOnly>())
    return false;
  auto loss = dyn_cast<CrossEntropyOp>(user);
  bool isCount = loss && loss.getTotal().use_empty() && loss.getLargest().use_empty() &&
                 loss.getLogSum().use_empty();
  return !(isCount && use.get() == loss.getLogits());
}

/// False where the op does not treat tokens by themselves.
bool TokenSegment::add(Operation *op) {
  if (members.contains(op))
    return true;
  if (refused.contains(op) || op->getBlock() != block || op->getNumResults() == 0)
    return false;
  bool isGood =
      isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op) ? addReshape(op) : addLoops(op);
  if (!isGood) {
    refused.insert(op);
    return false;
  }
  members.insert(op);
  return true;
}

/// The groups in front hold all tokens, or none of the reshape's are.
bool TokenSegment::addReshape(Operation *op) {
  bool expands = isa<tensor::ExpandShapeOp>(op);
  Value fine = expands ? op->getResult(0) : op->getOperand(0);
  Value coarse = expands ? op->getOperand(0) : op->getResult(0);
  auto groups = expands ? cast<tensor::ExpandShapeOp>(op).getReassociationIndices()
                        : cast<tensor::CollapseShapeOp>(op).getReassociationIndices();
  ArrayRef<int64_t> shape = tensorType(fine).getShape();
  int64_t tokens = 1;
  for (auto [number, group] : llvm::enumerate(groups)) {
    for (int64_t dim : group)
      tokens *= shape[dim];
    if (tokens != count)
      continue;
    for (auto [value, dims] : {std::pair(fine, static_cast<unsigned>(group.back() + 1)),
                               std::pair(coarse, static_cast<unsigned>(number + 1))})
      if (tokenDims.try_emplace(value, dims).second && isWide(value))
        open.push_back(value);
    return true;
  }
  return false;
}

/// Whether `exprs` begin with all of `loops`, in their order, and have none behind; `dims` counts
/// those in front. A dimension of one element may be any.
bool TokenSegment::isLeading(ArrayRef<AffineExpr> exprs, ArrayRef<int64_t> shape,
                             const llvm::SetVector<unsigned> &loops, unsigned &dims) const {
  int64_t tokens = 1;
  size_t next = 0;
  for (auto [expr, size] : llvm::zip_equal(exprs, shape)) {
    if (tokens == count)
      break;
    auto plain = dyn_cast<AffineDimExpr>(expr);
    if (size != 1 && (!plain || next == loops.size() || plain.getPosition() != loops[next++]))
      return false;
    tokens *= size;
    ++dims;
  }
  return tokens == count && llvm::none_of(exprs.drop_front(dims), [&](AffineExpr expr) {
           return llvm::any_of(loops, [&](unsigned loop) { return expr.isFunctionOfDim(loop); });
         });
}

/// Whether an operand of a result's own shape is mixed where the result has `loops`: a softmax over
/// tokens reads all of them for each, and makes no part of its result out of the whole operand.
static bool mixesInShape(Operation *op, const IterationSpace &space,
                         const llvm::SetVector<unsigned> &loops) {
  auto isOver = [](AffineMap map, auto &&condition) {
    return map && llvm::any_of(llvm::seq(map.getNumDims()), [&](unsigned loop) {
             return map.isFunctionOfDim(loop) && condition(loop);
           });
  };
  auto isOfTokens = [&](unsigned loop) { return loops.contains(loop); };
  auto isMixed = [&](unsigned loop) { return space.kinds[loop] == LoopKind::Mix; };
  ArrayRef<AffineMap> maps = space.maps;
  for (auto [result, made] : llvm::zip_equal(op->getResults(), maps.take_back(op->getNumResults())))
    for (auto [operand, read] : llvm::zip(op->getOperands(), maps))
      if (isOver(made, isOfTokens) && !isOver(read, isOfTokens) && isOver(read, isMixed) &&
          tensorType(operand).getShape() == tensorType(result).getShape())
        return true;
  return false;
}

bool TokenSegment::addLoops(Operation *op) {
  auto iteration = dyn_cast<IterationOpInterface>(op);
  auto draw = dyn_cast<DrawOpInterface>(op);
  if (!iteration || (draw && draw.drawsNumbers()) || op->getNumRegions() != 0)
    return false;
  IterationSpace space = iteration.getIterationSpace();
  SmallVector<Value> values = getValues(op);
  // Loops over tokens, by a value that is known.
  llvm::SetVector<unsigned> loops;
  for (auto [value, map] : llvm::zip_equal(values, space.maps)) {
    unsigned dims = getTokenDims(value);
    if (!map || dims == 0 || !loops.empty())
      continue;
    for (AffineExpr expr : map.getResults().take_front(dims))
      if (auto plain = dyn_cast<AffineDimExpr>(expr); plain && space.sizes[plain.getPosition()] > 1)
        loops.insert(plain.getPosition());
  }
  int64_t tokens = 1;
  for (unsigned loop : loops) {
    tokens *= space.sizes[loop];
    if (space.kinds[loop] != LoopKind::Parallel && space.kinds[loop] != LoopKind::Sum)
      return false;
  }
  if (tokens != count)
    return false;
  SmallVector<std::pair<Value, unsigned>> found;
  for (auto [value, map] : llvm::zip_equal(values, space.maps)) {
    if (!map)
      continue;
    bool hasTokens =
        llvm::any_of(loops, [map = map](unsigned loop) { return map.isFunctionOfDim(loop); });
    unsigned dims = 0;
    if (hasTokens && !isLeading(map.getResults(), tensorType(value).getShape(), loops, dims))
      return false;
    if (unsigned known = getTokenDims(value); (known != 0) != hasTokens)
      if (known)
        return false;
    if (hasTokens)
      found.push_back({value, dims});
  }
  if (mixesInShape(op, space, loops))
    return false;
  for (auto [value, dims] : found)
    if (tokenDims.try_emplace(value, dims).second && isWide(value))
      open.push_back(value);
  return true;
}

//===----------------------------------------------------------------------===//
// Borders
//===----------------------------------------------------------------------===//

bool TokenSegment::isOfTokens(OpResult result) const {
  auto loss = dyn_cast<CrossEntropyOp>(result.getOwner());
  if (!loss || result != loss.getCount())
    return true;
  return llvm::any_of(loss->getOpOperands(), [&](OpOperand &use) {
    Operation *maker = use.get().getDefiningOp();
    return use.get() != loss.getLogits() && maker && members.contains(maker) &&
           !isSameForAll(maker);
  });
}

/// Ops that are no members, read what members make, and make what members read.
SmallVector<Operation *> TokenSegment::findBetween() const {
  DenseSet<Value> after;
  SmallVector<Operation *> behind;
  for (Operation &op : *block) {
    bool isBehind = llvm::any_of(op.getOpOperands(), [&](OpOperand &use) {
      return after.contains(use.get()) && isRead(use);
    });
    if (!members.contains(&op) && !isBehind)
      continue;
    if (!members.contains(&op))
      behind.push_back(&op);
    for (OpResult result : op.getResults())
      if (!members.contains(&op) || (!isSameForAll(&op) && isOfTokens(result)))
        after.insert(result);
  }
  DenseSet<Operation *> before;
  SmallVector<Operation *> between;
  for (Operation &op : llvm::reverse(*block)) {
    if (!members.contains(&op) && !before.contains(&op))
      continue;
    for (OpOperand &use : op.getOpOperands())
      if (Operation *maker = use.get().getDefiningOp();
          maker && isRead(use) && maker->getBlock() == block)
        before.insert(maker);
  }
  return llvm::filter_to_vector(behind, [&](Operation *op) { return before.contains(op); });
}

/// A member that reads what all tokens together come to, or null.
Operation *TokenSegment::findWaiting() const {
  auto isWaitedFor = [&](OpOperand &use) {
    auto result = dyn_cast<OpResult>(use.get());
    return result && members.contains(result.getOwner()) && !isSameForAll(result.getOwner()) &&
           getTokenDims(result) == 0 && isOfTokens(result) && isRead(use);
  };
  const auto *found = llvm::find_if(
      ops, [&](Operation *op) { return llvm::any_of(op->getOpOperands(), isWaitedFor); });
  return found == ops.end() ? nullptr : *found;
}

/// An op outside that reads a wide value, or null; of the backward pass it may where that is said.
Operation *TokenSegment::findReaderOfWhole(bool mayLeaveForGradient) const {
  auto mayRead = [&](Operation *user) {
    return members.contains(user) || (mayLeaveForGradient && getPhase(user) == Phase::Backward);
  };
  for (Operation *op : members)
    for (OpResult result : op->getResults())
      if (!isSameForAll(op) && getTokenDims(result) && isWide(result))
        for (OpOperand &use : result.getUses())
          if (isRead(use) && !mayRead(use.getOwner()))
            return use.getOwner();
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Neighbors
//===----------------------------------------------------------------------===//

/// Whether each tile would make a sum of its own that is larger than all that it is made of, as the
/// gradient of a table is. Products add to the sum of the tiles in front.
static bool makesLargeSum(Operation *op) {
  if (isa<MatmulOp>(op) || !isa<IterationOpInterface>(op) || TokenSegment::isPointwise(op))
    return false;
  auto count = [](ValueRange values) {
    int64_t bytes = 0;
    for (Value value : values)
      bytes += getTensorBytes(tensorType(value));
    return bytes;
  };
  return count(op->getResults()) > count(op->getOperands());
}

/// Ops behind members that treat tokens by themselves, and whose values end in sums over tokens.
llvm::SetVector<Operation *> TokenSegment::findSumsBehind() const {
  TokenSegment grown = *this;
  llvm::SetVector<Operation *> behind;
  DenseSet<Value> late; // follow from members, and are no values of tokens in the segment
  for (Operation &op : *block) {
    bool isMember = members.contains(&op);
    bool reads = false, waits = false;
    for (OpOperand &use : op.getOpOperands())
      if (Operation *maker = use.get().getDefiningOp(); maker && isRead(use)) {
        waits |= late.contains(use.get());
        reads |= grown.contains(maker) && !grown.isSameForAll(maker) &&
                 grown.isOfTokens(cast<OpResult>(use.get()));
      }
    if (!isMember && !reads && !waits)
      continue;
    if (!isMember && !waits && !makesLargeSum(&op) && grown.add(&op))
      behind.insert(&op);
    for (OpResult result : op.getResults())
      if (!grown.contains(&op) ||
          (grown.getTokenDims(result) == 0 && !grown.isSameForAll(&op) && grown.isOfTokens(result)))
        late.insert(result);
  }
  for (size_t number = behind.size(); number-- > 0;) {
    Operation *op = behind[number];
    bool escapes = llvm::any_of(op->getResults(), [&](OpResult result) {
      return grown.getTokenDims(result) && llvm::any_of(result.getUses(), [&](OpOperand &use) {
               return isRead(use) && !behind.contains(use.getOwner());
             });
    });
    if (escapes)
      behind.remove(op);
  }
  return behind;
}

/// Those of `behind` that a member's value waits for alone, with what they share values with.
SmallVector<Operation *>
TokenSegment::findFreeing(const llvm::SetVector<Operation *> &behind) const {
  SmallVector<Operation *> open;
  for (Operation *op : ops)
    for (OpResult result : op->getResults()) {
      auto outside = llvm::make_filter_range(result.getUses(), [&](OpOperand &use) {
        return isRead(use) && !members.contains(use.getOwner());
      });
      if (getTokenDims(result) && !isSameForAll(op) &&
          llvm::all_of(outside, [&](OpOperand &use) { return behind.contains(use.getOwner()); }))
        for (OpOperand &use : outside)
          open.push_back(use.getOwner());
    }
  DenseSet<Operation *> found;
  while (!open.empty()) {
    Operation *op = open.pop_back_val();
    if (!behind.contains(op) || !found.insert(op).second)
      continue;
    llvm::append_range(open, op->getUsers());
    for (Value operand : op->getOperands())
      if (Operation *maker = operand.getDefiningOp())
        open.push_back(maker);
  }
  return llvm::filter_to_vector(behind, [&](Operation *op) { return found.contains(op); });
}

/// Whether the count of labels follows from the value, which is made in front of the segment.
static bool isCounted(OpOperand &use) {
  auto loss = dyn_cast<CrossEntropyOp>(use.getOwner());
  return loss && !loss.getCount().use_empty() && use.get() != loss.getLogits();
}

/// Whether members alone read what the op makes, all of which counts tokens.
bool TokenSegment::isForMembers(Operation *op) const {
  return op->getNumResults() != 0 && llvm::all_of(op->getResults(), [&](OpResult result) {
           return getTokenDims(result) && llvm::all_of(result.getUses(), [&](OpOperand &use) {
                    return !isRead(use) || (members.contains(use.getOwner()) && !isCounted(use));
                  });
         });
}

/// Bytes that are there whole for this member alone, which no argument's are nor those that other
/// members read, less those that are no longer.
int64_t TokenSegment::countNewBytes(Operation *op) const {
  int64_t bytes = 0;
  for (Value result : op->getResults())
    bytes -= getTensorBytes(tensorType(result));
  for (Value operand : op->getOperands()) {
    bool isShared = llvm::any_of(
        operand.getUsers(), [&](Operation *user) { return user != op && members.contains(user); });
    if (operand.getDefiningOp() && !isShared && getTokenDims(operand) &&
        !matchPattern(operand, m_Constant()))
      bytes += getTensorBytes(tensorType(operand));
  }
  return bytes;
}

bool TokenSegment::addAll(ArrayRef<Operation *> added) {
  bool isWhole = llvm::all_of(added, [&](Operation *op) { return add(op); });
  open.clear(); // narrow values end here
  return isWhole;
}

/// The makers from `last` on upwards, as many as leave the fewest bytes; those of chains that save
/// none stay where they are.
void TokenSegment::addMakers(Operation *last) {
  constexpr int mostMakers = 32;
  TokenSegment wider = *this, best = *this;
  int64_t bytes = 0, fewest = 0;
  auto isOfChain = [&](Operation *op) {
    return op == last || llvm::any_of(op->getUsers(), [&](Operation *user) {
             return wider.contains(user) && !contains(user);
           });
  };
  int count = 0;
  for (Operation *op = last; op && count < mostMakers; op = op->getPrevNode()) {
    if (wider.contains(op) || !wider.isForMembers(op) || !isOfChain(op))
      continue;
    if (!wider.addAll(op))
      break;
    ++count;
    bytes += wider.countNewBytes(op);
    if (bytes < fewest) {
      fewest = bytes;
      best = wider;
    }
  }
  *this = std::move(best);
}

void TokenSegment::absorb(size_t mostOps) {
  TokenSegment grown = *this;
  if (!grown.addAll(findFreeing(findSumsBehind())))
    return;
  for (Operation *op = &block->back(); op; op = op->getPrevNode())
    if (!grown.contains(op) && grown.isForMembers(op))
      grown.addMakers(op);
  grown.sortOps();
  if (grown.ops.size() <= mostOps)
    *this = std::move(grown);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// All tokens lie along the last dimension of theirs that is not 1, so that ops keep their numbers
/// of dimensions.
RankedTensorType TokenSegment::getTileType(Value value, int64_t tokens) const {
  RankedTensorType type = tensorType(value);
  unsigned dims = getTokenDims(value);
  if (dims == 0)
    return type;
  SmallVector<int64_t> shape(type.getShape());
  unsigned place = dims - 1;
  while (place > 0 && shape[place] == 1)
    --place;
  for (unsigned dim = 0; dim < dims; ++dim)
    shape[dim] = dim == place ? tokens : 1;
  return type.clone(shape);
}

bool TokenSegment::isPointwise(Operation *op) {
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
    return true;
  IterationSpace space = cast<IterationOpInterface>(op).getIterationSpace();
  return llvm::all_of(space.kinds, [](LoopKind kind) { return kind == LoopKind::Parallel; });
}
