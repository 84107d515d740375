//===- KernelFusion.cpp - which ops share a kernel --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Inlining first, then clusters. A pointwise op is inlined when computing it in each reader costs
// less than storing it once and reading it back (roofline of bytes and operations, both counted in
// bytes). What remains is merged (KernelClusters.cpp).
//
//===----------------------------------------------------------------------===//

#include "KernelFusion.h"
#include "memopt/Dialect/Kernels/ScalarWeights.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"
#include "memopt/Transforms/Utils/TokenTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringMap.h"

#include <set>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

bool mlir::memopt::isFreeInKernels(Operation *op) {
  return isa<ViewOpInterface, tensor::EmptyOp, linalg::FillOp, arith::ConstantOp, IotaOp>(op);
}

double mlir::memopt::getScalarWork(Operation *op) {
  if (isa<linalg::IndexOp, linalg::YieldOp>(op))
    return 0;
  if (isa<tensor::ExtractOp>(op))
    return 1;
  return getScalarWeights(getScalarCost(op->getName())).again;
}

double mlir::memopt::getPoints(ArrayRef<int64_t> domain) {
  double points = 1;
  for (int64_t size : domain)
    points *= size;
  return points;
}

double mlir::memopt::getResultBytes(Operation *op) {
  double bytes = 0;
  for (Value result : op->getResults())
    bytes += getTensorBytes(result.getType());
  return bytes;
}

//===----------------------------------------------------------------------===//
// Nodes and edges
//===----------------------------------------------------------------------===//

KernelFusion::KernelFusion(Block &block)
    : block(block), elementsAtOnce(getTarget(block.getParentOp()).getElementsAtOnce()) {
  collectStoredViews();
  collectNodes();
  collectEdges();
  chooseInlined();
  collectMemberEdges();
  formClusters();
}

/// A view or constant whose value something other than a kernel reads, reshapes aside, or which
/// kernels do not compute themselves: it has so many pieces, those of its pieces counted, that code
/// for an element would ask long which one it lies in, or so many views lie one behind another. Of
/// what is stored anyway, few pieces are too many.
void KernelFusion::collectStoredViews() {
  // A device's threads have each piece's address in registers, of which there are few.
  constexpr unsigned mostViews = 256, mostPiecesBeside = 2;
  unsigned mostPieces = getTarget(block.getParentOp()).isDevice() ? 16 : 32;
  struct Size {
    unsigned pieces = 1, views = 0;
  };
  llvm::DenseMap<Operation *, Size> sizes;
  for (Operation &op : block) {
    if (isa<tensor::ConcatOp>(op) && op.hasAttr(kTileAttr))
      storedViews.insert(&op); // whoever read through it would wait for all tiles
    if (isa<ViewOpInterface>(op)) {
      Size size{0, 0};
      for (Value operand : op.getOperands()) {
        Size source = sizes.lookup_or(operand.getDefiningOp(), Size());
        size.pieces += source.pieces;
        size.views = std::max(size.views, source.views + 1);
      }
      size.pieces = std::max(size.pieces, 1u);
      if (size.pieces > mostPieces || size.views > mostViews) {
        storedViews.insert(&op);
        tooManyPieces.insert(&op);
        size = Size();
      }
      sizes[&op] = size;
    }
    if (isFreeInKernels(&op) || isa<linalg::GenericOp>(op) || op.hasTrait<OpTrait::FillsKernel>())
      continue;
    for (Value operand : op.getOperands()) {
      while (isReshape(operand.getDefiningOp()))
        operand = operand.getDefiningOp()->getOperand(0);
      if (Operation *source = operand.getDefiningOp(); source && isFreeInKernels(source))
        storedViews.insert(source);
    }
  }
  for (Operation *view : storedViews)
    if (sizes.lookup_or(view, Size()).pieces > mostPiecesBeside)
      tooManyPieces.insert(view);
}

void KernelFusion::collectNodes() {
  for (Operation &op : block) {
    if (!isFreeInKernels(&op) || storedViews.contains(&op))
      addNode(&op);
    else
      collectBehind(&op);
  }
}

/// Sources stand before their views.
void KernelFusion::collectBehind(Operation *view) {
  llvm::MapVector<unsigned, double> pieces;
  for (Value operand : view->getOperands()) {
    Operation *source = operand.getDefiningOp();
    if (auto number = numbers.find(source); source && number != numbers.end())
      ++pieces[number->second];
    else if (auto known = behind.find(source); source && known != behind.end())
      for (auto [node, count] : known->second)
        pieces[node] += count;
  }
  if (!pieces.empty())
    llvm::append_range(behind[view], pieces);
}

void KernelFusion::addNode(Operation *op) {
  numbers[op] = nodes.size();
  FusionNode node;
  node.op = op;
  auto addLoop = [&](int64_t size, bool isParallel) {
    if (isParallel) {
      node.parallel.push_back(node.domain.size());
      node.rows.push_back(size);
    }
    node.isReduction |= !isParallel;
    node.domain.push_back(size);
  };
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    node.isMember = true;
    for (auto [size, kind] :
         llvm::zip_equal(generic.getStaticLoopRanges(), generic.getIteratorTypesArray()))
      addLoop(size, kind == utils::IteratorType::parallel);
    generic.getBody()->walk([&](Operation *inner) {
      node.work += getScalarWork(inner);
      ++node.scalarOps;
    });
  } else if (op->hasTrait<OpTrait::FillsKernel>()) {
    node.isMember = node.isAlone = true;
  } else if (storedViews.contains(op)) {
    node.isMember = node.isBuffer = true;
    for (int64_t size : cast<RankedTensorType>(op->getResult(0).getType()).getShape())
      addLoop(size, true);
  }
  node.tile = op->getDiscardableAttr(kTileAttr);
  bool isTiled = node.isMember ? node.tile != nullptr : isBehindTile; // calls do not say it
  if (isTiled != isBehindTile) // else what tiles wait for would wait for them
    ++loops;
  isBehindTile = isTiled;
  node.section = loops;
  if (auto instruction = dyn_cast<InstructionOpInterface>(op))
    loops += !instruction.getBodies().empty();
  node.cluster = clusters.size();
  clusters.push_back({static_cast<unsigned>(nodes.size())});
  nodes.push_back(std::move(node));
}

/// Whether result i of the node has the index of its parallel loops, for all i.
static bool writesRows(const FusionNode &node) {
  auto generic = dyn_cast<linalg::GenericOp>(node.op);
  if (!generic)
    return true;
  for (OpOperand &init : generic.getDpsInitsMutable()) {
    AffineMap map = generic.getMatchingIndexingMap(&init);
    if (map.getNumResults() != node.parallel.size())
      return false;
    for (auto [expr, dim] : llvm::zip_equal(map.getResults(), node.parallel))
      if (expr != getAffineDimExpr(dim, map.getContext()))
        return false;
  }
  return true;
}

/// Adds the edges by which `reader` reads `value` at `map`, through free ops.
void KernelFusion::addEdges(unsigned reader, Value value, AffineMap map, bool isGather) {
  if (map) {
    Read read = resolveViews(
        {value, map}, [&](Value view) { return tooManyPieces.contains(view.getDefiningOp()); });
    value = read.value;
    map = read.map;
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return;
  auto addEdge = [&](unsigned source, AffineMap at, double times) {
    edges.push_back(
        {source, reader, at, isGather || tooManyPieces.contains(nodes[source].op), times});
  };
  if (auto number = numbers.find(op); number != numbers.end()) {
    addEdge(number->second, map && writesRows(nodes[number->second]) ? map : AffineMap(), 1);
    return;
  }
  if (auto known = behind.find(op); known != behind.end())
    for (auto [source, times] : known->second)
      addEdge(source, AffineMap(), times);
}

void KernelFusion::collectEdges() {
  for (unsigned reader = 0; reader < nodes.size(); ++reader) {
    FusionNode &node = nodes[reader];
    auto generic = dyn_cast<linalg::GenericOp>(node.op);
    for (OpOperand &operand : node.op->getOpOperands()) {
      AffineMap map;
      if (generic)
        map = generic.getMatchingIndexingMap(&operand);
      addEdges(reader, operand.get(), map, /*isGather=*/!node.isMember || node.isAlone);
    }
    if (generic)
      generic.getBody()->walk([&](tensor::ExtractOp extract) {
        addEdges(reader, extract.getTensor(), AffineMap(), /*isGather=*/true);
      });
  }
  readers.resize(nodes.size());
  sources.resize(nodes.size());
  for (auto [number, edge] : llvm::enumerate(edges)) {
    readers[edge.from].push_back(number);
    sources[edge.to].push_back(number);
    if (!nodes[edge.to].isMember || nodes[edge.to].isAlone)
      nodes[edge.from].isBuffer = true;
  }
}

//===----------------------------------------------------------------------===//
// Inlining
//===----------------------------------------------------------------------===//

/// How often a reader with loops `domain` evaluates what it reads at `map`: loops run in order, and
/// a value is computed in the innermost loop that it depends on.
static double getEvaluations(ArrayRef<int64_t> domain, AffineMap map) {
  if (!map)
    return getPoints(domain);
  unsigned depth = 0;
  for (unsigned dim = 0; dim < map.getNumDims(); ++dim)
    if (map.isFunctionOfDim(dim))
      depth = dim + 1;
  return getPoints(domain.take_front(depth));
}

/// Adds what a kernel reads that computes `value` itself: the leaves of inlined ops, or `value`.
void KernelFusion::addLeaves(Value value, llvm::SetVector<Value> &leaves) const {
  Operation *op = value.getDefiningOp();
  if (!op) {
    leaves.insert(value);
    return;
  }
  if (isa<tensor::EmptyOp, arith::ConstantOp>(op))
    return;
  if (auto number = numbers.find(op); number != numbers.end()) {
    const FusionNode &node = nodes[number->second];
    if (node.isInlined)
      leaves.insert(node.leaves.begin(), node.leaves.end());
    else
      leaves.insert(value);
    return;
  }
  if (auto known = viewLeaves.find(op); known != viewLeaves.end())
    leaves.insert(known->second.begin(), known->second.end());
}

/// What a view shows of a buffer, or the leaves of what is inlined behind it.
void KernelFusion::collectLeavesOf(Operation *view) {
  llvm::SetVector<Value> leaves;
  for (Value operand : view->getOperands())
    addLeaves(operand, leaves);
  bool showsBuffers = llvm::all_of(
      leaves, [&](Value leaf) { return llvm::is_contained(view->getOperands(), leaf); });
  if (showsBuffers && !leaves.empty())
    viewLeaves[view] = {view->getResult(0)};
  else if (!leaves.empty())
    llvm::append_range(viewLeaves[view], leaves);
}

/// What the node reads and computes for a point when its inlined sources are part of it.
void KernelFusion::collectInlined(unsigned number) {
  FusionNode &node = nodes[number];
  llvm::SetVector<Value> leaves;
  for (Value operand : node.op->getOperands())
    addLeaves(operand, leaves);
  node.leaves = leaves.takeVector();
  node.inlinedWork = node.work;
  for (unsigned edge : sources[number])
    if (const FusionNode &source = nodes[edges[edge].from]; source.isInlined)
      node.inlinedWork += edges[edge].times * source.inlinedWork;
}

/// How deep and how wide the expression of an element is. A view of too many is stored.
void KernelFusion::measureInlined(unsigned number) {
  FusionNode &node = nodes[number];
  llvm::SmallDenseSet<std::pair<unsigned, const void *>> seen;
  node.depth = 0;
  double ways = 0;
  for (unsigned position : sources[number]) {
    const FusionEdge &edge = edges[position];
    const FusionNode &source = nodes[edge.from];
    bool isComputed = isComputedInReaders(source.op);
    if (isComputed)
      node.depth = std::max(node.depth, source.depth);
    if (seen.insert({edge.from, edge.map.getAsOpaquePointer()}).second || !edge.map)
      ways += edge.times * (isComputed ? source.ways : 1);
  }
  node.depth += node.scalarOps + 1;
  node.ways = std::max(ways, 1.0);
  if (isFreeInKernels(node.op) && isTooLarge(node))
    tooManyPieces.insert(node.op);
}

bool KernelFusion::isTooLarge(const FusionNode &node) {
  constexpr unsigned mostDepth = 512;
  constexpr double mostWays = 512;
  return node.depth > mostDepth || node.ways > mostWays || node.inlinedWork > kMostWork;
}

/// Of the largest that is not alive anyway, as variables are.
static double getLargestKeptBytes(ArrayRef<Value> leaves) {
  double bytes = 0;
  for (Value leaf : leaves)
    if (Operation *maker = leaf.getDefiningOp(); maker && !isa<ReadOp>(maker))
      bytes = std::max(bytes, static_cast<double>(getTensorBytes(leaf.getType())));
  return bytes;
}

bool KernelFusion::shouldInline(unsigned number) const {
  const FusionNode &node = nodes[number];
  if (!node.isMember || node.isAlone || node.isReduction || node.isBuffer ||
      readers[number].empty() || isTooLarge(node))
    return false;
  double bytes = getResultBytes(node.op), points = getPoints(node.domain), inputBytes = 0;
  for (Value leaf : node.leaves)
    inputBytes += getTensorBytes(leaf.getType());
  constexpr double launch = 4096;
  // What is kept for the backward pass is the result where that is smaller than what it is made of.
  Phase phase = getPhase(node.op);
  bool isSmaller = bytes < getLargestKeptBytes(node.leaves);
  double stored = points * node.inlinedWork + bytes + launch, inlined = -inputBytes;
  for (unsigned number : readers[number]) {
    const FusionEdge &edge = edges[number];
    if (edge.isGather || nodes[edge.to].section != node.section ||
        (isSmaller && phase == Phase::Forward && getPhase(nodes[edge.to].op) != phase))
      return false;
    double evaluations = getEvaluations(nodes[edge.to].domain, edge.map);
    double part = std::min(evaluations / std::max(points, 1.0), 1.0); // of a slice, no more
    stored += edge.times * part * bytes;
    inlined += edge.times * (evaluations * node.inlinedWork + part * inputBytes);
  }
  return inlined <= stored;
}

/// Sources first: a reader that computes a chain of them reads what stands at the chain's ends.
void KernelFusion::chooseInlined() {
  for (Operation &op : block) {
    auto number = numbers.find(&op);
    if (number == numbers.end()) {
      collectLeavesOf(&op);
      continue;
    }
    collectInlined(number->second);
    measureInlined(number->second);
    nodes[number->second].isInlined = shouldInline(number->second);
  }
}

/// Adds what `reader` reads, and for what is inlined what that reads in turn. Ways that meet at one
/// map are one.
void KernelFusion::addMemberEdges(unsigned reader) {
  std::set<std::tuple<unsigned, const void *, bool>> seen;
  SmallVector<FusionEdge> todo;
  auto add = [&](unsigned node, auto adapt) {
    for (unsigned number : llvm::reverse(sources[node]))
      todo.push_back(adapt(edges[number]));
  };
  add(reader, [](const FusionEdge &edge) { return edge; });
  while (!todo.empty()) {
    FusionEdge edge = todo.pop_back_val();
    if (!seen.insert({edge.from, edge.map.getAsOpaquePointer(), edge.isGather}).second)
      continue;
    if (!nodes[edge.from].isInlined) {
      memberEdges.push_back(edge);
      continue;
    }
    add(edge.from, [&](const FusionEdge &next) {
      AffineMap composed = edge.map && next.map ? next.map.compose(edge.map) : AffineMap();
      return FusionEdge{next.from, reader, composed, edge.isGather || next.isGather};
    });
  }
}

void KernelFusion::collectMemberEdges() {
  for (unsigned reader = 0; reader < nodes.size(); ++reader)
    if (!nodes[reader].isInlined)
      addMemberEdges(reader);
  // What stands behind the commit stays there, though it reads nothing of it.
  std::optional<unsigned> commit;
  for (auto [number, node] : llvm::enumerate(nodes)) {
    if (isa<CommitOp>(node.op))
      commit = number;
    else if (commit && isa<WriteOp>(node.op))
      memberEdges.push_back({*commit, unsigned(number), AffineMap(), /*isGather=*/true});
  }
  memberReaders.resize(nodes.size());
  memberSources.resize(nodes.size());
  for (auto [number, edge] : llvm::enumerate(memberEdges)) {
    memberReaders[edge.from].push_back(number);
    memberSources[edge.to].push_back(number);
  }
}

//===----------------------------------------------------------------------===//
// Result
//===----------------------------------------------------------------------===//

SmallVector<SmallVector<Operation *>> KernelFusion::getUnits() const {
  // Kahn's algorithm; among the ready clusters the one whose last op comes first in the program.
  std::vector<unsigned> waiting(clusters.size());
  auto forEachReader = [&](unsigned cluster, llvm::function_ref<void(unsigned)> visit) {
    for (unsigned node : clusters[cluster])
      for (unsigned number : memberReaders[node])
        if (unsigned next = nodes[memberEdges[number].to].cluster; next != cluster)
          visit(next);
  };
  for (unsigned cluster = 0; cluster < clusters.size(); ++cluster)
    forEachReader(cluster, [&](unsigned next) { ++waiting[next]; });
  std::set<std::pair<unsigned, unsigned>> ready;
  auto enqueue = [&](unsigned cluster) {
    if (!clusters[cluster].empty() && !nodes[clusters[cluster].front()].isInlined)
      ready.insert({clusters[cluster].back(), cluster});
  };
  for (unsigned cluster = 0; cluster < clusters.size(); ++cluster)
    if (waiting[cluster] == 0)
      enqueue(cluster);
  SmallVector<SmallVector<Operation *>> units;
  while (!ready.empty()) {
    unsigned cluster = ready.begin()->second;
    ready.erase(ready.begin());
    units.emplace_back();
    for (unsigned node : clusters[cluster])
      units.back().push_back(nodes[node].op);
    forEachReader(cluster, [&](unsigned next) {
      if (--waiting[next] == 0)
        enqueue(next);
    });
  }
  return units;
}

void KernelFusion::print(raw_ostream &os) const {
  for (const FusionNode &node : nodes) {
    if (!node.isMember)
      continue;
    os << node.op->getName() << " ";
    node.isInlined ? os << "inlined" : os << "kernel " << node.cluster;
    os << " loops [";
    llvm::interleaveComma(node.domain, os);
    os << "] at " << node.op->getLoc() << "\n";
  }
}
