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
// bytes). What remains is merged greedily along edges in program order, sources with much data
// first, then with neighbours that read the same data. A cluster must have rows: leading indices
// that all its members share, so that a value is only needed in the row that makes it.
//
// Greedy is enough here: edges carry most of the traffic, and the order of ops follows the model.
// Each attempt searches for a cycle through the other clusters, so the whole is O(nodes * edges).
//
//===----------------------------------------------------------------------===//

#include "KernelFusion.h"
#include "GenericBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringMap.h"

#include <numeric>
#include <set>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

bool memopt::isFreeInKernels(Operation *op) {
  return isa<ViewOpInterface, tensor::EmptyOp, linalg::FillOp, arith::ConstantOp, IotaOp>(op);
}

double memopt::getScalarWork(Operation *op) {
  if (isa<linalg::IndexOp, linalg::YieldOp>(op))
    return 0;
  if (isa<tensor::ExtractOp>(op))
    return 1;
  switch (getScalarCost(op->getName())) {
  case ScalarCost::None:
    return 0;
  case ScalarCost::Simple:
    return 0.2;
  case ScalarCost::Division:
    return 1;
  case ScalarCost::Series:
    return 4;
  case ScalarCost::Call:
    return 20;
  }
  llvm_unreachable("all costs are listed");
}

static double getPoints(ArrayRef<int64_t> domain) {
  double points = 1;
  for (int64_t size : domain)
    points *= size;
  return points;
}

static double getResultBytes(Operation *op) {
  double bytes = 0;
  for (Value result : op->getResults())
    bytes += getTensorBytes(result.getType());
  return bytes;
}

//===----------------------------------------------------------------------===//
// Nodes and edges
//===----------------------------------------------------------------------===//

KernelFusion::KernelFusion(Block &block) : block(block) {
  collectStoredViews();
  collectNodes();
  collectEdges();
  chooseInlined();
  collectMemberEdges();
  formClusters();
}

/// A view or constant whose value something other than a kernel reads, reshapes aside.
void KernelFusion::collectStoredViews() {
  for (Operation &op : block) {
    if (isFreeInKernels(&op) || isa<linalg::GenericOp>(op) || op.hasTrait<OpTrait::FillsKernel>())
      continue;
    for (Value operand : op.getOperands()) {
      while (isReshape(operand.getDefiningOp()))
        operand = operand.getDefiningOp()->getOperand(0);
      if (Operation *source = operand.getDefiningOp(); source && isFreeInKernels(source))
        storedViews.insert(source);
    }
  }
}

void KernelFusion::collectNodes() {
  for (Operation &op : block)
    if (!isFreeInKernels(&op) || storedViews.contains(&op))
      addNode(&op);
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
    generic.getBody()->walk([&](Operation *inner) { node.work += getScalarWork(inner); });
  } else if (op->hasTrait<OpTrait::FillsKernel>()) {
    node.isMember = node.isAlone = true;
  } else if (storedViews.contains(op)) {
    node.isMember = node.isBuffer = true;
    for (int64_t size : cast<RankedTensorType>(op->getResult(0).getType()).getShape())
      addLoop(size, true);
  }
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
    Read read = resolveViews({value, map});
    value = read.value;
    map = read.map;
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return;
  auto number = numbers.find(op);
  if (number == numbers.end()) {
    for (Value operand : op->getOperands())
      addEdges(reader, operand, AffineMap(), isGather);
    return;
  }
  if (map && !writesRows(nodes[number->second]))
    map = AffineMap();
  edges.push_back({number->second, reader, map, isGather});
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
  // A view: what it shows of a buffer, or the leaves of what is inlined behind it.
  llvm::SetVector<Value> behind;
  for (Value operand : op->getOperands())
    addLeaves(operand, behind);
  bool showsBuffers =
      llvm::all_of(behind, [&](Value leaf) { return llvm::is_contained(op->getOperands(), leaf); });
  if (showsBuffers && !behind.empty())
    leaves.insert(value);
  else
    leaves.insert(behind.begin(), behind.end());
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
      node.inlinedWork += source.inlinedWork;
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
      readers[number].empty())
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
    stored += bytes;
    inlined += getEvaluations(nodes[edge.to].domain, edge.map) * node.inlinedWork + inputBytes;
  }
  return inlined <= stored;
}

/// Sources first: a reader that computes a chain of them reads what stands at the chain's ends.
void KernelFusion::chooseInlined() {
  for (unsigned number = 0; number < nodes.size(); ++number) {
    collectInlined(number);
    nodes[number].isInlined = shouldInline(number);
  }
}

/// Adds `edge`, read by `reader` at `map`, and if its source is inlined what that reads in turn.
void KernelFusion::addMemberEdges(unsigned reader, const FusionEdge &edge, AffineMap map,
                                  bool isGather) {
  const FusionNode &source = nodes[edge.from];
  if (!source.isInlined) {
    memberEdges.push_back({edge.from, reader, map, isGather});
    return;
  }
  for (unsigned number : sources[edge.from]) {
    const FusionEdge &next = edges[number];
    AffineMap composed = map && next.map ? next.map.compose(map) : AffineMap();
    addMemberEdges(reader, next, composed, isGather || next.isGather);
  }
}

void KernelFusion::collectMemberEdges() {
  for (const FusionEdge &edge : edges)
    if (!nodes[edge.to].isInlined)
      addMemberEdges(edge.to, edge, edge.map, edge.isGather);
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
// Clusters
//===----------------------------------------------------------------------===//

/// Whether the reader needs of the source only what the same row computes.
bool KernelFusion::isRowLocal(const FusionEdge &edge) const {
  if (!edge.map || edge.isGather)
    return false;
  const FusionNode &from = nodes[edge.from], &to = nodes[edge.to];
  SmallVector<unsigned> read;
  for (AffineExpr expr : edge.map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim)
      return false;
    read.push_back(dim.getPosition());
  }
  bool isPrefix = true;
  for (auto [position, dim] : llvm::enumerate(read))
    isPrefix &= dim == position;
  // What is known per column feeds sums per column of the same row: variance after mean.
  bool isColumn = to.isReduction && ArrayRef(read) == ArrayRef(to.parallel) && from.rows == to.rows;
  return isPrefix || isColumn;
}

/// How many of the reader's leading rows are those that the source is read at. Sizes alone do not
/// say it: a sum over leading loops may have as many columns as its source has rows.
unsigned KernelFusion::countSharedRows(const FusionEdge &edge) const {
  unsigned count = 0;
  for (auto [expr, row] : llvm::zip(edge.map.getResults(), nodes[edge.to].parallel)) {
    if (expr != getAffineDimExpr(row, edge.map.getContext()))
      break;
    ++count;
  }
  return count;
}

/// Kernels do not reach across phases. Updates stay apart because whoever runs the program may look
/// at loss and gradients before any state changes; what backward recomputes must not be computed
/// early and kept after all.
bool KernelFusion::areCompatible(ArrayRef<unsigned> members) const {
  constexpr size_t maximumMembers = 48, maximumBuffers = 32;
  constexpr int64_t minimumRows = 16;
  constexpr double smallWork = 1 << 15;
  if (members.size() > maximumMembers)
    return false;
  llvm::SmallDenseSet<unsigned> inside(members.begin(), members.end());
  llvm::SmallDenseSet<Value> buffers;
  double points = 0;
  ArrayRef<int64_t> rows = nodes[members.front()].rows;
  Phase phase = getPhase(nodes[members.front()].op);
  unsigned section = nodes[members.front()].section;
  for (unsigned member : members) {
    const FusionNode &node = nodes[member];
    if (!node.isMember || node.isAlone || getPhase(node.op) != phase || node.section != section)
      return false;
    points += getPoints(node.domain);
    size_t common = 0;
    while (common < std::min(rows.size(), node.rows.size()) && rows[common] == node.rows[common])
      ++common;
    rows = rows.take_front(common);
    for (unsigned number : memberSources[member]) {
      const FusionEdge &edge = memberEdges[number];
      if (!inside.contains(edge.from))
        continue;
      if (!isRowLocal(edge))
        return false;
      rows = rows.take_front(std::min<size_t>(rows.size(), countSharedRows(edge)));
    }
    for (Value operand : node.op->getOperands())
      buffers.insert(operand);
    for (Value result : node.op->getResults())
      buffers.insert(result);
  }
  if (buffers.size() > 2 * maximumBuffers)
    return false;
  return points <= smallWork || ShapedType::getNumElements(rows) >= minimumRows;
}

/// Collects the clusters that `from` leads to and that stand before `to`. Fails when one of them
/// leads to `to`: merging the two would close a cycle.
LogicalResult KernelFusion::collectBetween(unsigned from, unsigned to,
                                           llvm::DenseSet<unsigned> &reached) const {
  SmallVector<unsigned> todo{from};
  while (!todo.empty()) {
    unsigned cluster = todo.pop_back_val();
    for (unsigned node : clusters[cluster])
      for (unsigned number : memberReaders[node]) {
        unsigned next = nodes[memberEdges[number].to].cluster;
        if (next == to && cluster != from)
          return failure();
        if (next == from || places[next] >= places[to] || !reached.insert(next).second)
          continue;
        todo.push_back(next);
      }
  }
  return success();
}

/// Merges `b` into `a`, unless they do not suit or data flows from one to the other through a
/// third. `order` stays a topological order of clusters (as Pearce and Kelly keep one, A Dynamic
/// Topological Sort Algorithm for Directed Acyclic Graphs, 2006), so only what stands between is
/// searched.
bool KernelFusion::tryMerge(unsigned a, unsigned b) {
  if (a == b)
    return false;
  SmallVector<unsigned> members(clusters[a]);
  llvm::append_range(members, clusters[b]);
  llvm::sort(members);
  unsigned first = places[a] < places[b] ? a : b, last = first == a ? b : a;
  llvm::DenseSet<unsigned> reached;
  if (!areCompatible(members) || failed(collectBetween(first, last, reached)))
    return false;
  for (unsigned member : members)
    nodes[member].cluster = a;
  clusters[a] = std::move(members);
  clusters[b].clear();
  // What the first leads to comes behind both; everything else in between may stay in front.
  SmallVector<unsigned> front, back{a};
  unsigned begin = places[first], end = places[last];
  for (unsigned place = begin; place <= end; ++place)
    if (unsigned cluster = order[place]; cluster != a && cluster != b && cluster != kNoCluster)
      (reached.contains(cluster) ? back : front).push_back(cluster);
  llvm::append_range(front, back);
  front.resize(end - begin + 1, kNoCluster);
  for (auto [offset, cluster] : llvm::enumerate(front)) {
    order[begin + offset] = cluster;
    if (cluster != kNoCluster)
      places[cluster] = begin + offset;
  }
  return true;
}

/// Whether `source` is a scalar that others beside `node` wait for, such as a bias correction that
/// every update reads. In one kernel with `node`, it would let them wait for what that reads.
bool KernelFusion::isSharedScalar(unsigned source, unsigned node) const {
  auto isScalar = [&](unsigned number) { return getPoints(nodes[number].rows) == 1; };
  return isScalar(source) && !isScalar(node) &&
         llvm::any_of(memberReaders[source], [&](unsigned number) {
           return nodes[memberEdges[number].to].cluster != nodes[node].cluster;
         });
}

void KernelFusion::mergeWithSources(unsigned node) {
  SmallVector<unsigned> sources;
  for (unsigned number : memberSources[node])
    if (unsigned source = memberEdges[number].from; nodes[source].isMember &&
                                                    !isSharedScalar(source, node) &&
                                                    !llvm::is_contained(sources, source))
      sources.push_back(source);
  llvm::sort(sources, [&](unsigned a, unsigned b) {
    return std::pair(-getResultBytes(nodes[a].op), a) < std::pair(-getResultBytes(nodes[b].op), b);
  });
  for (unsigned source : sources)
    tryMerge(nodes[source].cluster, nodes[node].cluster);
}

/// Neighbours that read the same tensor over equal loops save one pass over it.
void KernelFusion::mergeWithSiblings(unsigned number) {
  constexpr unsigned neighbourhood = 24;
  const FusionNode &node = nodes[number];
  for (unsigned other = number - std::min(number, neighbourhood); other < number; ++other) {
    const FusionNode &sibling = nodes[other];
    if (!sibling.isMember || sibling.isInlined || sibling.cluster == node.cluster ||
        sibling.domain != node.domain || sibling.domain.empty())
      continue;
    bool shares = llvm::any_of(node.op->getOperands(), [&](Value operand) {
      return !isa_and_nonnull<tensor::EmptyOp, linalg::FillOp>(operand.getDefiningOp()) &&
             cast<RankedTensorType>(operand.getType()).getNumElements() * 2 >=
                 getPoints(node.domain) &&
             llvm::is_contained(sibling.op->getOperands(), operand);
    });
    if (shares)
      tryMerge(sibling.cluster, node.cluster);
  }
}

/// Whether `cluster` is little pointwise work whose results no kernel reads.
bool KernelFusion::isSmallLeaf(unsigned cluster) const {
  constexpr double smallPoints = 1 << 12;
  return !clusters[cluster].empty() && llvm::all_of(clusters[cluster], [&](unsigned number) {
    const FusionNode &node = nodes[number];
    return node.isMember && !node.isInlined && !node.isAlone && !node.isReduction &&
           getPoints(node.domain) <= smallPoints &&
           llvm::none_of(memberReaders[number],
                         [&](unsigned edge) { return nodes[memberEdges[edge].to].isMember; });
  });
}

/// Counters and updates of biases are launches rather than work: neighbours run together, whatever
/// their shapes.
void KernelFusion::mergeSmallLeaves() {
  llvm::SmallDenseMap<int, unsigned> open; ///< by phase
  for (unsigned cluster = 0; cluster < clusters.size(); ++cluster) {
    if (!isSmallLeaf(cluster))
      continue;
    Phase phase = getPhase(nodes[clusters[cluster].front()].op);
    auto [place, isNew] = open.try_emplace(static_cast<int>(phase), cluster);
    if (!isNew && !tryMerge(place->second, cluster))
      place->second = cluster;
  }
}

void KernelFusion::formClusters() {
  order.resize(clusters.size());
  std::iota(order.begin(), order.end(), 0);
  places = order;
  for (unsigned number = 0; number < nodes.size(); ++number) {
    const FusionNode &node = nodes[number];
    if (!node.isMember || node.isInlined || node.isAlone)
      continue;
    mergeWithSources(number);
    mergeWithSiblings(number);
  }
  mergeSmallLeaves();
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
