//===- LibraryCallBuilder.h - one op on its way to a library call -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the families of library calls share. Views of operands become element strides and an offset
// of the underlying buffer, where the library reads such strides well; a transposition that every
// user of a result applies becomes strides of the result; a bias added to the result right away
// becomes an operand, and where the result is rounded behind that the call stores it rounded.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_LIBRARIES_LIBRARYCALLBUILDER_H
#define MEMOPT_TRANSFORMS_LIBRARIES_LIBRARYCALLBUILDER_H

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Libraries/FormLibraryCalls.h"
#include "memopt/Transforms/Utils/StridedView.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::memopt {

/// result + bias, with the bias repeated along all dimensions but one.
struct BiasAddition {
  linalg::GenericOp add;
  Operation *reshape; ///< between the op and the addition, or null
  Value bias;
  linalg::GenericOp rounding; ///< of the sum, by takeRounding
  bool isRounded = false;     ///< the bias has the type that the sum is rounded to

  linalg::GenericOp getLast() const { return rounding ? rounding : add; }
};

/// Collects a call's buffers in their order.
class LibraryCallBuilder {
public:
  explicit LibraryCallBuilder(Operation *op) : op(op) {}

  void addOperand(const StridedView &view);
  /// As a packed row-major tensor.
  void addPacked(Value value);
  /// Of the buffer that was added last.
  RankedTensorType getLastOperandType() const { return tensorType(operands.back()); }
  /// Chooses the type in which `result` is stored and gives its strides in the op's own order.
  /// Lines are as long as a multiple of `unit` elements, and there are `rows` of them in the op's
  /// own order, which may be more than the result's.
  SmallVector<int64_t> addResult(Value result, bool mayPermute, int64_t unit = 1,
                                 std::optional<int64_t> rows = std::nullopt);
  /// Finds the addition of a bias along dimension `axis` as the only use of `result`; the bias,
  /// which must be known where the op stands, becomes the next operand.
  std::optional<BiasAddition> takeBias(Value result, int64_t axis, bool mayReshape);
  /// The same where the sum with the bias is rounded to `type` right away, for libraries that add a
  /// bias of that type alone: the bias is rounded, too.
  std::optional<BiasAddition> takeRoundedBias(Value result, int64_t axis, Type type);
  /// Finds the addition of the op's only result to what is read of a variable, which the sum is
  /// written to, as the only use; what was read becomes the next operand, and is read where the op
  /// stands. To be called before addResult, whose result takes the sum's place; with `mayPermute`
  /// it may lie in another order than the op's.
  linalg::GenericOp takeAccumulation(bool mayPermute, const VariableWrites &writes);
  /// Finds the rounding of the op's only result, or of its sum with a bias, to `type` as the only
  /// use, and makes it part of the call: the op's result has that type from then on. Gives the
  /// element type in which the call stores its result.
  Type takeRounding(std::optional<BiasAddition> &bias, Type type);

  /// Makes the call in front of the op, as the preferred implementation of the module's target
  /// computes it.
  FailureOr<LibraryCallOp> create(LibraryCallAttrInterface call);
  /// What the call made, without what its lines are longer.
  Value getResult(LibraryCallOp made) const;
  /// Lets users of the op's result read what the call made.
  void replaceResult(OpResult old, Value made) const;

private:
  Operation *op;
  SmallVector<Value> operands;
  SmallVector<int64_t> offsets;
  SmallVector<Type> resultTypes;
  /// For each result the order in which it is stored; empty for its own.
  SmallVector<SmallVector<int64_t>> orders;
  SmallVector<SmallVector<int64_t>> shapes; ///< of the results as they are stored
};

/// `shape` with lines as long as a multiple of `unit` elements.
SmallVector<int64_t> padLines(ArrayRef<int64_t> shape, int64_t unit);
/// The first elements of each line of `value`, which make a tensor of `shape`.
Value cutLines(OpBuilder &builder, Value value, ArrayRef<int64_t> shape);

/// The one order other than the identity that all uses of `result` want.
std::optional<SmallVector<int64_t>> getCommonOrder(Value result);

/// The relu that is the only use of `value`, in its type; null where there is none.
linalg::GenericOp findRelu(Value value);

/// A call of `call`, by the target's preferred implementation, where `builder` stands and for `op`,
/// whose place and phase it has. Fails, with a diagnostic at `op`, where the target has none.
FailureOr<LibraryCallOp> createLibraryCall(OpBuilder &builder, Operation *op, TypeRange results,
                                           ValueRange operands, LibraryCallAttrInterface call,
                                           ArrayRef<int64_t> offsets);

/// Lets users of the sum read `made`, the call's result with the bias in it.
void replaceWithBias(const BiasAddition &match, Value made);

/// What `from` made is the result of `to` from now on: so is its number among activations, if any.
void moveActivationNumber(Operation *from, Operation *to);

/// Lets users of the sum that takeAccumulation found read `made`, the call's result, in its order.
void replaceAccumulation(linalg::GenericOp add, Value made);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_LIBRARIES_LIBRARYCALLBUILDER_H
