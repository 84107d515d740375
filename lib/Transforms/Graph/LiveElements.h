//===- LiveElements.h - which elements are read and are no zeros -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For each value of a training graph a box of elements. Outside of it nobody reads the value, or it is
// zero: zeros follow from constants forward, readers from slices backward. Boxes are narrower than a
// value only along dimensions where they make some product half as long, or shorter.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_GRAPH_LIVEELEMENTS_H
#define MEMOPT_LIB_TRANSFORMS_GRAPH_LIVEELEMENTS_H

#include "Places.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/IntEqClasses.h"

namespace mlir::memopt {

/// The loops of an op that may run over some of their places alone.
struct CuttableLoops {
  explicit CuttableLoops(IterationOpInterface op);

  /// The loop that indexes `dim` of an operand (results follow operands), if it may be cut.
  std::optional<unsigned> find(unsigned value, unsigned dim) const;

  IterationSpace space;
  SmallVector<bool> mayCut;
};

/// Where an operand lies in the result of a concatenation, or of a pad.
struct Piece {
  unsigned operand;
  SmallVector<int64_t> offsets;
};
SmallVector<Piece> getPieces(Operation *op);

/// Of a reshape: the dimensions of its finer side for each of the other one.
SmallVector<ReassociationIndices> getGroups(Operation *op);
/// A box of the collapsed shape, of one of the expanded shape.
Box collapseBox(ArrayRef<ReassociationIndices> groups, ArrayRef<Places> box);
/// The other direction: all of the dimensions that a set of places cannot be split into.
Box expandBox(ArrayRef<ReassociationIndices> groups, ArrayRef<Places> box, ArrayRef<int64_t> shape);

class LiveElements {
public:
  LiveElements(Block &block, const SymbolTable &symbols);

  /// Whether only some elements of anything are live.
  bool hasCuts() const { return isAnythingCut; }
  /// Of a tensor that the block makes or gets.
  const Box &getBox(Value value) const { return live.find(value)->second; }
  /// Whether the op may be written for some elements of its result.
  bool mayRewrite(Operation *op) const;
  /// What each loop of an op that has loops runs over.
  Box getLoopPlaces(Operation *op) const;
  /// Iterations of all products, as the graph has them and with live elements alone.
  std::pair<int64_t, int64_t> countProducts() const;

private:
  /// A set of dimensions that are cut together: (value, dimension), numbered.
  using Axis = unsigned;

  void number(Value value);
  Axis getAxis(Value value, unsigned dim) const { return axes.find(value)->second + dim; }
  void join(Value a, unsigned dimOfA, Value b, unsigned dimOfB);
  void joinAxes(Operation *op);
  bool isWanted(Value value, unsigned dim) const;

  void findZeros(Operation *op);
  std::optional<Box> findOwnZeros(Operation *op) const;
  std::optional<Box> passZeros(Operation *op) const;
  std::optional<Box> passZerosOfProduct(Operation *op) const;
  Box getSupport(Value value) const;
  bool isFinite(Value value) const;
  bool isFiniteVariable(ReadOp read) const;

  void findReaders();
  void read(Value value, ArrayRef<Places> box);
  void readOperands(Operation *op, ArrayRef<Places> box);
  Box coarsen(Operation *op, Box box) const;
  void want();

  Block &block;
  const SymbolTable &symbols;
  DenseMap<Value, unsigned> axes; ///< of the first dimension
  unsigned numAxes = 0;
  llvm::IntEqClasses classes;
  DenseSet<Axis> wanted;                     ///< leaders of the classes that are cut
  bool wantsAll = true;                      ///< until `wanted` is known
  mutable DenseMap<StringAttr, bool> finite; ///< of variables
  DenseMap<Value, Box> support;              ///< outside are zeros; whole where it is missing
  DenseMap<Value, Box> readBoxes;            ///< what is read; nothing where it is missing
  DenseMap<Value, Box> live;
  bool isAnythingCut = false;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_GRAPH_LIVEELEMENTS_H
