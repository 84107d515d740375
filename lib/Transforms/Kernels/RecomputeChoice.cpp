//===- RecomputeChoice.cpp - what backward keeps, what it recomputes --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The cut alone would recompute without end: of a chain of residual additions it keeps the addends
// and none of the sums, and each sum then costs the whole chain. So the cut is repeated: wherever
// an element would cost more than a bound, the op that passes it is fixed and the next cut keeps
// its result or something after it. Each round fixes at least one op, and in practice two or three
// rounds do.
//
//===----------------------------------------------------------------------===//

#include "RecomputeChoice.h"

#include "BackwardReaders.h"
#include "KernelFusion.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Planning/Utils/MinCut.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::memopt;
using ::memopt::planning::MinCut;

/// Bytes below which a recomputation costs more (starting a kernel) than it frees.
static constexpr int64_t kLeastRecomputedBytes = 4096;
/// Tables that stay in the first cache: gathers from them are as cheap as any other operand.
static constexpr int64_t kSmallTableBytes = 32 << 10;
/// What an element may cost, in bytes of memory traffic that take as long: about eight f32 operands
/// that are read again.
static constexpr double kMaximumCost = 32;

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Whether the op reads a large tensor at addresses that data decides.
static bool isGather(linalg::GenericOp generic) {
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(generic->getRegions(), captured);
  return llvm::any_of(captured, [](Value value) {
    return isa<TensorType>(value.getType()) && getTensorBytes(value.getType()) > kSmallTableBytes;
  });
}

/// Whether the op adds a bias to what a library computes. Libraries do that on the way, if the sum
/// is the only reader.
static bool isBiasOfLibraryCall(linalg::GenericOp generic) {
  if (generic.getNumDpsInputs() != 2 || generic.getBody()->getOperations().size() != 2)
    return false;
  for (Value input : generic.getDpsInputs()) {
    while (isReshape(input.getDefiningOp()) && input.hasOneUse())
      input = input.getDefiningOp()->getOperand(0);
    if (input.hasOneUse() && isa_and_nonnull<MatmulOp, ConvolutionOp>(input.getDefiningOp()))
      return true;
  }
  return false;
}

/// Whether the elements are random booleans: kept as bits (memopt-pack-masks) they take less time,
/// and leave a residual sum behind them cheap enough to be made again.
static bool isRandomMask(linalg::GenericOp generic) {
  return cast<RankedTensorType>(generic.getResult(0).getType()).getElementType().isInteger(1) &&
         !generic.getBody()->getOps<RandomWordOp>().empty();
}

RecomputeChoice::Role RecomputeChoice::classify(Operation *op) {
  if (isa<arith::ConstantOp, tensor::EmptyOp, linalg::FillOp, ReadOp>(op))
    return Role::Free;
  auto view = dyn_cast<ViewOpInterface>(op);
  if (view && view.getViewKind() != ViewKind::Assembled)
    return Role::View;
  for (Value result : op->getResults())
    if (!isa<RankedTensorType>(result.getType()) ||
        getTensorBytes(result.getType()) < kLeastRecomputedBytes)
      return Role::Fixed;
  if (view || isa<IotaOp>(op))
    return Role::Pointwise;
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumReductionLoops() != 0 || isGather(generic) ||
      isBiasOfLibraryCall(generic) || isRandomMask(generic))
    return Role::Fixed;
  return Role::Pointwise;
}

RecomputeChoice::Role RecomputeChoice::getRole(Value value) const {
  Operation *op = value.getDefiningOp();
  return op ? roles.lookup_or(op, Role::Fixed) : Role::Free;
}

/// The value whose bytes a view shows.
Value RecomputeChoice::getRoot(Value value) const {
  while (value.getDefiningOp() && getRole(value) == Role::View)
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

//===----------------------------------------------------------------------===//
// The cut
//===----------------------------------------------------------------------===//

RecomputeChoice::RecomputeChoice(Block &block) {
  collect(block);
  do
    cut();
  while (banLongChains());
}

void RecomputeChoice::collect(Block &block) {
  for (Operation &op : block.without_terminator())
    if (!isAfterForward(&op) && op.getNumResults() != 0) {
      forward.push_back(&op);
      roles[&op] = classify(&op);
    }
  for (Operation &op : block.without_terminator())
    if (isAfterForward(&op))
      for (Value value : getTensorsRead(&op))
        if (value.getDefiningOp() && roles.contains(value.getDefiningOp()))
          needed.insert(value);
  for (Value value : block.getTerminator()->getOperands())
    returned.insert(getRoot(value));
  llvm::SmallDenseSet<Value> roots;
  for (Value value : needed)
    if (Value root = getRoot(value); getRole(root) != Role::Free && !returned.contains(root))
      if (roots.insert(root).second)
        bytesBefore = addCounts(bytesBefore, getTensorBytes(root.getType()));
}

/// Bytes that count as one, so that all values together stay below what the cut can add up.
static int64_t chooseUnit(ArrayRef<Operation *> ops) {
  double bytes = 0;
  for (Operation *op : ops)
    for (Value result : op->getResults())
      if (isa<RankedTensorType>(result.getType()))
        bytes += getTensorBytes(result.getType());
  return static_cast<int64_t>(bytes / static_cast<double>(MinCut::infinite / 2)) + 1;
}

void RecomputeChoice::cut() {
  int64_t unit = chooseUnit(forward);
  MinCut network;
  MinCut::Node source = network.addNode(), sink = network.addNode();
  llvm::DenseMap<Value, MinCut::SplitNode> nodes;
  for (Operation *op : forward) {
    Role role = roles.lookup(op);
    if (role == Role::Free)
      continue;
    MinCut::Node made = role == Role::Fixed ? source : network.addNode();
    if (role != Role::Fixed)
      for (Value value : getTensorsRead(op))
        if (auto it = nodes.find(value); it != nodes.end())
          network.addEdge(it->second.out, made, MinCut::infinite);
    for (Value result : op->getResults()) {
      if (!isa<RankedTensorType>(result.getType()))
        continue;
      int64_t bytes = returned.contains(result) ? 0 : getTensorBytes(result.getType());
      MinCut::SplitNode node = network.addNodeWithCapacity(
          role == Role::View ? MinCut::infinite : llvm::divideCeil(bytes, unit));
      network.addEdge(made, node.in, MinCut::infinite);
      nodes[result] = node;
    }
  }
  for (Value value : needed)
    if (auto it = nodes.find(value); it != nodes.end())
      network.addEdge(it->second.out, sink, MinCut::infinite);

  // Of equal cuts the one nearest to the sink: it recomputes least.
  MinCut::Result result = network.solve(source, sink, MinCut::Side::Sink);
  assert(result.finite && "each fixed value has a finite capacity");
  kept.clear();
  recomputed.clear();
  bytesAfter = 0;
  llvm::DenseSet<Value> isKept;
  for (Operation *op : forward)
    for (Value value : op->getResults())
      if (auto it = nodes.find(value);
          it != nodes.end() && (returned.contains(value) || (result.onSource[it->second.in] &&
                                                             !result.onSource[it->second.out]))) {
        isKept.insert(value);
        if (!returned.contains(value)) {
          kept.push_back(value);
          bytesAfter = addCounts(bytesAfter, getTensorBytes(value.getType()));
        }
      }
  // What backward reads and is not kept is made again, and so on up to what is kept.
  SmallVector<Value> todo(needed.getArrayRef());
  llvm::DenseSet<Operation *> repeated;
  while (!todo.empty()) {
    Value value = todo.pop_back_val();
    Operation *op = value.getDefiningOp();
    Role role = getRole(value);
    if (role == Role::Free || role == Role::Fixed || isKept.contains(value) ||
        !repeated.insert(op).second)
      continue;
    llvm::append_range(todo, getTensorsRead(op));
  }
  for (Operation *op : forward)
    if (repeated.contains(op))
      recomputed.insert(op);
}

//===----------------------------------------------------------------------===//
// Chains
//===----------------------------------------------------------------------===//

static double getElements(Value value) {
  return static_cast<double>(cast<RankedTensorType>(value.getType()).getNumElements());
}

/// Work per element of the first result to make `op` again from kept values: scalar operations of
/// all ops on the way, and the bytes that they read. Stops above `limit`.
double RecomputeChoice::getCost(Operation *op, double limit) const {
  double elements = getElements(op->getResult(0)), cost = 0;
  llvm::DenseSet<Value> read;
  llvm::SmallPtrSet<Operation *, 16> seen{op};
  SmallVector<Operation *> todo{op};
  while (!todo.empty() && cost <= limit * elements) {
    Operation *next = todo.pop_back_val();
    double work = 0;
    next->walk([&](Operation *inner) { work += getScalarWork(inner); });
    if (roles.lookup(next) == Role::Pointwise)
      cost += work * getElements(next->getResult(0));
    for (Value value : getTensorsRead(next)) {
      Value root = getRoot(value);
      Operation *producer = root.getDefiningOp();
      if (producer && isRecomputed(producer)) {
        if (seen.insert(producer).second)
          todo.push_back(producer);
      } else if (!isa_and_nonnull<tensor::EmptyOp, linalg::FillOp, arith::ConstantOp>(producer) &&
                 read.insert(value).second) {
        cost += std::min<double>(getTensorBytes(value.getType()), getTensorBytes(root.getType()));
      }
    }
  }
  return cost / elements;
}

/// Fixes each op at which a chain of recomputations gets too long. True when there was one.
bool RecomputeChoice::banLongChains() {
  bool banned = false;
  for (Operation *op : llvm::to_vector(recomputed)) {
    if (roles.lookup(op) != Role::Pointwise || getCost(op, kMaximumCost) <= kMaximumCost)
      continue;
    roles[op] = Role::Fixed;
    recomputed.remove(op);
    banned = true;
  }
  return banned;
}
