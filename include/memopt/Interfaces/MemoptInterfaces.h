//===- MemoptInterfaces.h - contracts between ops and passes ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_INTERFACES_MEMOPTINTERFACES_H
#define MEMOPT_INTERFACES_MEMOPTINTERFACES_H

#include "memopt/Interfaces/IterationSpace.h"
#include "memopt/Interfaces/Work.h"

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/Support/JSON.h"

#include <functional>

#include "memopt/Interfaces/MemoptEnums.h.inc"

namespace mlir::memopt {

inline constexpr unsigned kNumSpaces = getMaxEnumValForSpace() + 1;

/// Scratch memory of one execution of an instruction.
struct Workspace {
  int64_t bytes;
  Space space = Space::Device;
  int64_t alignment = 1; ///< it begins at a multiple of this, beside what its size asks for
};

/// An operand whose buffer a result may take over.
struct InPlaceOperand {
  unsigned operand;
  bool byRow; ///< only where the target finishes a row's reads before it writes the row
};

/// What one scalar op costs beside others, as code generation computes it.
enum class ScalarCost {
  None,     ///< nothing
  Simple,   ///< an instruction of the machine
  Division, ///< a slow instruction: quotients and roots
  Series,   ///< a polynomial of ours (MathExpansion.h), or random bits
  Call,     ///< a call of libm for each lane
};
/// By the op's ScalarOpInterface; Simple where it has none.
ScalarCost getScalarCost(OperationName name);

/// Dimensions of an op that one dimension of a value stands for, outermost first.
using DimGroup = SmallVector<int64_t, 2>;

/// Operands and results of an op that follow one order of the op's dimensions, whichever it is.
struct TiedValues {
  SmallVector<OpOperand *> operands;
  SmallVector<OpResult> results;
  /// Sizes of the op's dimensions.
  SmallVector<int64_t> shape;
  /// For each value, operands first, the dimensions that its own stand for; a value may lack some,
  /// but not both the first operand and the first result. Empty: all values have the op's.
  SmallVector<SmallVector<DimGroup>> dims;
  /// The result has the elements of the operand, row-major as they are numbered by the op's
  /// dimensions. Only then a dimension may stand for several.
  bool rearranges = false;
  /// The op knows channels-first (row-major) and channels-last only.
  bool hasLayoutAttribute = false;
  /// Channels-last is what it is fastest in.
  bool prefersChannelsLast = false;

  /// All values, operands first.
  SmallVector<Value> getAll() const;
};

/// A box of a view's result and where its elements come from.
struct ViewPart {
  unsigned operand;
  SmallVector<int64_t> offsets, sizes; ///< of the box, in elements of the result
  AffineMap map;                       ///< from indices of the result to those of the operand
};
/// Whether each element of a view's result, of `shape`, lies in one of its parts, which do not
/// overlap; one that does not is zero.
bool areComplete(ArrayRef<ViewPart> parts, ArrayRef<int64_t> shape);

/// How a library call sees one buffer; strides count elements.
struct BufferView {
  SmallVector<int64_t> extents, strides;
  Type elementType;

  /// The number of the last element that it reaches, counted from the first.
  int64_t getReach() const;
};

/// The operand of a library call that may be packed weights.
inline constexpr unsigned kPackedOperand = 1;

/// One way in which a library computes a call.
struct CallImplementation {
  std::string name;       ///< of the library's code, for reports
  int64_t workspaceBytes; ///< on the device
  double slowdown = 1;    ///< its time by that of the preferred one, as far as is known
};

/// The most elements of a tensor. Shapes come from files; within this bound no size times bytes
/// overflows.
inline constexpr int64_t kMaxElements = int64_t(1) << 48;
/// Of matrices that a library takes apart, the smaller extent and any. LAPACK counts in 32 bits,
/// workspaces of a few squares of the smaller extent among them.
inline constexpr int64_t kMaxMatrixSquare = int64_t(1) << 14;
inline constexpr int64_t kMaxMatrixExtent = int64_t(1) << 24;
/// Whether a tensor's sizes are known and within the bound, those behind a size of 0 too.
bool hasBoundedShape(Type type);

/// Where counts of costs end: they are compared, not trusted to the last digit, and a sum of many
/// still fits.
inline constexpr int64_t kMaxCount = int64_t(1) << 56;
/// The product of counts that are not negative, at most kMaxCount.
int64_t multiplyCounts(ArrayRef<int64_t> factors);
/// The sum of two counts, at most kMaxCount.
inline int64_t addCounts(int64_t a, int64_t b) { return std::min(kMaxCount, a + b); }

/// Bytes of a statically shaped tensor as it lies in memory: packed, row-major, i1 as one byte. At
/// most kMaxCount.
int64_t getTensorBytes(Type type);
/// At multiples of which a buffer of so many bytes begins. Vector loads want 64 bytes; what is
/// smaller only wants not to straddle a cache line, or what the target asks of all (`least`).
int64_t getBufferAlignment(int64_t bytes, int64_t least);
/// Of a value that is known to be a ranked tensor.
inline RankedTensorType tensorType(Value value) { return cast<RankedTensorType>(value.getType()); }
/// Sum of the bytes of all tensor operands and results of `op`.
int64_t getOperandAndResultBytes(Operation *op);

/// What holds for every instruction: offsets, where there are any, are one for each tensor among
/// the results and one for each workspace, none negative.
LogicalResult verifyInstruction(Operation *op);

/// What an operand is for an op that has parameters, and so for an optimizer's groups.
enum class ParameterRole {
  None,
  Norm,  ///< scales or shifts what a normalization gives
  Table, ///< rows of it are looked up
};

/// An operand that holds indices into a tensor.
struct IndexUse {
  OpOperand *operand;
  int64_t size;                  ///< indices are 0 to size - 1
  std::optional<int64_t> ignore; ///< another value, which stands for nothing
  StringRef what;                ///< what is indexed, for messages: "rows of an embedding"
  bool skips;                    ///< the op does nothing for an index outside
};
} // namespace mlir::memopt

#include "memopt/Interfaces/MemoptAttrInterfaces.h.inc"

#include "memopt/Interfaces/MemoptInterfaces.h.inc"

#endif // MEMOPT_INTERFACES_MEMOPTINTERFACES_H
