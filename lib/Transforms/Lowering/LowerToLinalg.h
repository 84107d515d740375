//===- LowerToLinalg.h - lowerings by family ----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A lowering builds the replacement of one op from its operands. Each family registers its own; the
// pass walks the function once, in order, so that no pattern driver is needed.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_LOWERING_LOWERTOLINALG_H
#define MEMOPT_LIB_TRANSFORMS_LOWERING_LOWERTOLINALG_H

#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "llvm/ADT/DenseMap.h"

#include <functional>

namespace mlir::memopt {

/// The lowerings that are known, by op.
class LinalgLowerings {
public:
  /// Gives one value per result, or fails after a diagnostic.
  using Function =
      std::function<FailureOr<SmallVector<Value>>(Operation *, ImplicitLocOpBuilder &)>;

  template <typename OpType>
  void add(FailureOr<SmallVector<Value>> (*lower)(OpType, ImplicitLocOpBuilder &)) {
    functions[TypeID::get<OpType>()] = [lower](Operation *op, ImplicitLocOpBuilder &b) {
      return lower(cast<OpType>(op), b);
    };
  }

  /// Null when the op stays as it is.
  const Function *find(Operation *op) const {
    auto found = functions.find(op->getName().getTypeID());
    return found == functions.end() ? nullptr : &found->second;
  }

private:
  llvm::DenseMap<TypeID, Function> functions;
};

using Lowered = FailureOr<SmallVector<Value>>;

/// A read of `value` by the domain dimensions `dims`.
inline Read readDims(ImplicitLocOpBuilder &b, Value value, unsigned rank, ArrayRef<int64_t> dims) {
  return {value, selectDims(b.getContext(), rank, dims)};
}
/// A read of a value that has the domain's shape.
inline Read readAll(ImplicitLocOpBuilder &b, Value value) {
  return {value, b.getMultiDimIdentityMap(tensorType(value).getRank())};
}

void populateActivationLowerings(LinalgLowerings &lowerings);
void populateBatchNormLowerings(LinalgLowerings &lowerings);
void populateLossLowerings(LinalgLowerings &lowerings);
void populateNormLowerings(LinalgLowerings &lowerings);
void populateOptimizerLowerings(LinalgLowerings &lowerings);
void populatePoolingLowerings(LinalgLowerings &lowerings);
void populateInterpolationLowerings(LinalgLowerings &lowerings);
void populateRandomLowerings(LinalgLowerings &lowerings);
void populateShapeLowerings(LinalgLowerings &lowerings);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_LOWERING_LOWERTOLINALG_H
