//===- KernelFusion.h - which ops share a kernel --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decision of form-kernels, apart from its rewriting. Nodes are generics and those views that
// somebody needs as a buffer; every other view and constant is free and belongs to whoever reads
// it. A node is either inlined (computed again by each reader, never stored) or a member of exactly
// one cluster. One cluster becomes one kernel.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_KERNELS_KERNELFUSION_H
#define MEMOPT_LIB_TRANSFORMS_KERNELS_KERNELFUSION_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Block.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace mlir::memopt {

/// Views, constants and initial values: computed where they are read, at no cost.
bool isFreeInKernels(Operation *op);

/// One op that is not free: a generic or stored view (a member of kernels), or anything else.
struct FusionNode {
  Operation *op;
  /// False for library calls, writes and whatever else stands between kernels.
  bool isMember = false;
  /// Sizes of the loops.
  SmallVector<int64_t> domain;
  /// Sizes of the loops that are not reduced, in order: the shape of each result.
  SmallVector<int64_t> rows;
  /// Numbers of these loops.
  SmallVector<unsigned> parallel;
  /// Cost of one point, in bytes of memory traffic that take as long.
  double work = 0;
  bool isReduction = false;
  /// A code generator of its own computes it: no company.
  bool isAlone = false;
  /// Someone outside of kernels needs a result as a buffer.
  bool isBuffer = false;
  /// Each reader computes it again.
  bool isInlined = false;
  /// What computing it from stored values reads, and the cost of one point then.
  SmallVector<Value> leaves;
  double inlinedWork = 0;
  /// Scalar ops on the longest way from a stored value to this one, and how many ways there are at
  /// different indices: what bounds the code for one element.
  unsigned scalarOps = 0, depth = 0;
  double ways = 1;
  unsigned cluster = 0;
  /// How many loops stand before it: nothing moves over one, for it changes variables. Where tiles
  /// begin and end is counted, too.
  unsigned section = 0;
  /// The tile of tokens that it belongs to, or null.
  Attribute tile;
};

/// How a node reads another.
struct FusionEdge {
  unsigned from, to;
  /// From the reader's loops to the index of the read element; null when no map says it (reshapes,
  /// slices).
  AffineMap map;
  /// The address is computed from data, or elements are read many times.
  bool isGather = false;
  /// How many pieces of the joined views in between come from the source.
  double times = 1;
};

/// Clusters of a block's nodes. Deterministic: follows from the order of ops alone.
class KernelFusion {
public:
  explicit KernelFusion(Block &block);

  /// Whether `op` is computed by each kernel that reads it.
  bool isInlined(Operation *op) const {
    auto it = numbers.find(op);
    return it != numbers.end() && nodes[it->second].isInlined;
  }
  /// Whether kernels compute `op` themselves: it is inlined, or a free view of few pieces.
  bool isComputedInReaders(Operation *op) const {
    return isInlined(op) || (isFreeInKernels(op) && !tooManyPieces.contains(op));
  }
  /// What becomes one kernel, or one op that is none; ordered so that sources come first, members
  /// in program order.
  SmallVector<SmallVector<Operation *>> getUnits() const;
  /// One line per node: its cluster or that it is inlined.
  void print(raw_ostream &os) const;

private:
  void collectNodes();
  void addNode(Operation *op);
  void collectStoredViews();
  void collectBehind(Operation *view);
  void collectEdges();
  void addEdges(unsigned reader, Value value, AffineMap map, bool isGather);
  void collectLeavesOf(Operation *view);
  void addLeaves(Value value, llvm::SetVector<Value> &leaves) const;
  void collectInlined(unsigned node);
  void chooseInlined();
  void measureInlined(unsigned node);
  static bool isTooLarge(const FusionNode &node);
  bool shouldInline(unsigned node) const;
  void collectMemberEdges();
  void addMemberEdges(unsigned reader);
  void formClusters();
  bool isSharedScalar(unsigned source, unsigned node) const;
  void mergeWithSources(unsigned node);
  void mergeWithSiblings(unsigned node);
  void mergeWithSharers(unsigned node);
  SmallVector<unsigned> collectDearWork(unsigned node) const;
  bool areLastReaders(unsigned first, unsigned last) const;
  void mergeSmallLeaves();
  bool isSmallLeaf(unsigned cluster) const;
  bool tryMerge(unsigned a, unsigned b);
  bool areCompatible(ArrayRef<unsigned> members) const;
  bool isShort(ArrayRef<unsigned> members, size_t rows) const;
  bool isRowLocal(const FusionEdge &edge) const;
  unsigned countSharedRows(const FusionEdge &edge) const;
  bool idlesMachine(const FusionEdge &edge, double points) const;
  LogicalResult collectBetween(unsigned from, unsigned to, llvm::DenseSet<unsigned> &reached) const;

  Block &block;
  int64_t elementsAtOnce; ///< of the target
  /// Views that are nodes, and those of them that no kernel but their own computes.
  llvm::SmallPtrSet<Operation *, 16> storedViews, tooManyPieces;
  /// Nodes behind the views that are none, with the pieces that come from each.
  llvm::DenseMap<Operation *, SmallVector<std::pair<unsigned, double>, 2>> behind;
  /// What kernels read that compute such a view.
  llvm::DenseMap<Operation *, SmallVector<Value, 2>> viewLeaves;
  std::vector<FusionNode> nodes;
  llvm::DenseMap<Operation *, unsigned> numbers;
  std::vector<FusionEdge> edges;
  /// Edges between nodes that are not inlined, maps composed through those that are.
  std::vector<FusionEdge> memberEdges;
  std::vector<SmallVector<unsigned>> readers, sources, memberReaders,
      memberSources;                           ///< edges by node
  std::vector<SmallVector<unsigned>> clusters; ///< nodes by cluster; empty once merged away
  /// Members so far that compute an inlined node that takes long.
  llvm::DenseMap<unsigned, SmallVector<unsigned, 2>> sharers;
  unsigned loops = 0;        ///< so far, with borders of tiles
  bool isBehindTile = false; ///< the last node was of a tile
  /// Of one way through a kernel. Machine code of longer ways takes longer than in proportion, runs
  /// no faster, and equal kernels share it.
  static constexpr double kMostWork = 96;
  /// A topological order of clusters, with holes, and where each stands in it.
  static constexpr unsigned kNoCluster = ~0u;
  std::vector<unsigned> order, places;
};

/// Time of a scalar op, in bytes that memory moves meanwhile (about 10 GB/s and 60 G simple ops/s).
double getScalarWork(Operation *op);
/// How many there are in loops of these sizes.
double getPoints(ArrayRef<int64_t> domain);
/// Of all results, which are tensors.
double getResultBytes(Operation *op);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_KERNELS_KERNELFUSION_H
