//===- KernelClusters.cpp - which members of kernels are merged -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nodes that are not inlined are merged greedily along edges in program order, sources with much
// data first, then with neighbours that read the same data. A cluster must have rows: leading
// indices that all its members share, so that a value is only needed in the row that makes it.
//
// Greedy is enough here: edges carry most of the traffic, and the order of ops follows the model.
// Each attempt searches for a cycle through the other clusters, so the whole is O(nodes * edges).
//
//===----------------------------------------------------------------------===//

#include "KernelFusion.h"

#include "memopt/Dialect/Memopt.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

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

/// Whether a sum by columns, each of which a thread adds up, would take what it reads down to its
/// own few threads. What is small beside the `points` of the kernel is rather stored in between.
bool KernelFusion::idlesMachine(const FusionEdge &edge, double points) const {
  constexpr double small = 1.0 / 8;
  const FusionNode &from = nodes[edge.from], &to = nodes[edge.to];
  double few = getPoints(from.rows) < small * points ? 1 : 0.25;
  if (!to.isReduction || to.parallel.empty() || to.parallel.back() + 1 != to.domain.size())
    return false;
  double busy = std::min(getPoints(from.rows), static_cast<double>(elementsAtOnce));
  return getPoints(to.rows) < few * busy;
}

/// Whether no way through the members, which stand in the order of the program, is long: code
/// generation recurses along it, and machine code for a thousand functions of one element takes
/// many seconds. Pieces of a long chain that are cut alike are compiled once. A sum with several
/// results for one of `rows` is made anew for each turn of a sum that reads them, so of such there
/// are few: a maximum and a sum that needs it, as a logsumexp has.
bool KernelFusion::isShort(ArrayRef<unsigned> members, size_t rows) const {
  constexpr double mostWays = 4096;
  constexpr unsigned mostDepth = 1024, mostNestedSums = 2;
  struct Way {
    double work = 0;
    unsigned depth = 0, nestedSums = 0;
  };
  llvm::SmallDenseMap<unsigned, Way> longest;
  double ways = 0;
  for (unsigned member : members) {
    Way way;
    for (unsigned number : memberSources[member]) {
      Way source = longest.lookup(memberEdges[number].from);
      way = {std::max(way.work, source.work), std::max(way.depth, source.depth),
             std::max(way.nestedSums, source.nestedSums)};
    }
    way.work += nodes[member].inlinedWork;
    way.depth += nodes[member].depth;
    way.nestedSums += nodes[member].isReduction && nodes[member].parallel.size() > rows;
    ways += nodes[member].ways;
    if (way.work > kMostWork || way.depth > mostDepth || way.nestedSums > mostNestedSums ||
        ways > mostWays)
      return false;
    longest[member] = way;
  }
  return true;
}

/// Kernels do not reach across phases. Updates stay apart because whoever runs the program may look
/// at loss and gradients before any state changes; what backward recomputes must not be computed
/// early and kept after all. Tiles stay apart, for one is to be done before the next begins.
bool KernelFusion::areCompatible(ArrayRef<unsigned> members) const {
  constexpr size_t maximumMembers = 48, maximumBuffers = 32;
  constexpr int64_t minimumRows = 16;
  constexpr double smallWork = 1 << 15;
  if (members.size() > maximumMembers)
    return false;
  llvm::SmallDenseSet<unsigned> inside(members.begin(), members.end());
  llvm::SmallDenseSet<Value> buffers;
  double points = 0, mostPoints = 0;
  for (unsigned member : members)
    mostPoints = std::max(mostPoints, getPoints(nodes[member].domain));
  ArrayRef<int64_t> rows = nodes[members.front()].rows;
  Phase phase = getPhase(nodes[members.front()].op);
  unsigned section = nodes[members.front()].section;
  Attribute tile = nodes[members.front()].tile;
  for (unsigned member : members) {
    const FusionNode &node = nodes[member];
    if (!node.isMember || node.isAlone || getPhase(node.op) != phase || node.section != section ||
        node.tile != tile)
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
      if (!isRowLocal(edge) || idlesMachine(edge, mostPoints))
        return false;
      rows = rows.take_front(std::min<size_t>(rows.size(), countSharedRows(edge)));
    }
    for (Value operand : node.op->getOperands())
      buffers.insert(operand);
    for (Value result : node.op->getResults())
      buffers.insert(result);
  }
  if (buffers.size() > 2 * maximumBuffers || !isShort(members, rows.size()))
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

/// Whether both read `value`, which has about as many elements as their loops have points. What
/// rounds an activation joins those, too, that have inlined ops in between, and so do those that
/// read a rounded one; whoever joined all neighbours so would make kernels that no small budget has
/// room for.
static bool readBoth(const FusionNode &node, const FusionNode &sibling, Value value) {
  if (isa_and_nonnull<tensor::EmptyOp, linalg::FillOp>(value.getDefiningOp()) ||
      cast<RankedTensorType>(value.getType()).getNumElements() * 2 < getPoints(node.domain))
    return false;
  auto isNarrowed = [](Operation *op) { return op && op->hasAttr(MemoptDialect::kNarrowedAttr); };
  if (isNarrowed(node.op) || isNarrowed(sibling.op) || isNarrowed(value.getDefiningOp()))
    return llvm::is_contained(sibling.leaves, value);
  return llvm::is_contained(node.op->getOperands(), value) &&
         llvm::is_contained(sibling.op->getOperands(), value);
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
    auto isShared = [&](Value value) { return readBoth(node, sibling, value); };
    if (llvm::any_of(node.op->getOperands(), isShared) || llvm::any_of(node.leaves, isShared))
      tryMerge(sibling.cluster, node.cluster);
  }
}

/// Inlined nodes that the node computes at its own index and that take as long as an exponential.
SmallVector<unsigned> KernelFusion::collectDearWork(unsigned number) const {
  constexpr double dear = 4;
  SmallVector<unsigned> found, todo{number};
  llvm::SmallDenseSet<unsigned> seen;
  while (!todo.empty())
    for (unsigned position : sources[todo.pop_back_val()]) {
      const FusionEdge &edge = edges[position];
      if (!nodes[edge.from].isInlined || !edge.map || !edge.map.isIdentity() ||
          !seen.insert(edge.from).second)
        continue;
      todo.push_back(edge.from);
      if (nodes[edge.from].inlinedWork >= dear)
        found.push_back(edge.from);
    }
  return found;
}

/// Whether nobody behind `last` reads what both read: then results of both lie in its place.
bool KernelFusion::areLastReaders(unsigned first, unsigned last) const {
  auto isRead = [&](unsigned node, unsigned source) {
    return llvm::any_of(memberSources[node],
                        [&](unsigned edge) { return memberEdges[edge].from == source; });
  };
  return llvm::all_of(memberSources[first], [&](unsigned number) {
    unsigned source = memberEdges[number].from;
    return !isRead(last, source) || llvm::all_of(memberReaders[source], [&](unsigned edge) {
      return memberEdges[edge].to <= last;
    });
  });
}

/// Members that would compute the same for long, as an activation that backward makes again and its
/// gradient would, compute it once. The first one waits for what the last one reads meanwhile, so
/// this is done only where it takes no bytes.
void KernelFusion::mergeWithSharers(unsigned number) {
  llvm::SmallSetVector<unsigned, 4> others;
  for (unsigned shared : collectDearWork(number)) {
    others.insert_range(sharers[shared]);
    sharers[shared].push_back(number);
  }
  for (unsigned other : others)
    if (nodes[other].domain == nodes[number].domain && areLastReaders(other, number))
      tryMerge(nodes[other].cluster, nodes[number].cluster);
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
    mergeWithSharers(number);
  }
  mergeSmallLeaves();
}
