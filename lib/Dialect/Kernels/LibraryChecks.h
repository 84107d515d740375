//===- LibraryChecks.h - what attributes of library calls share -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_DIALECT_KERNELS_LIBRARYCHECKS_H
#define MEMOPT_LIB_DIALECT_KERNELS_LIBRARYCHECKS_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"

namespace mlir::memopt {

inline BufferView getContiguous(ArrayRef<int64_t> extents, Type type) {
  return {SmallVector<int64_t>(extents), computeStrides(extents), type};
}

inline BufferView getStrided(ArrayRef<int64_t> extents, ArrayRef<int64_t> strides, Type type) {
  return {SmallVector<int64_t>(extents), SmallVector<int64_t>(strides), type};
}

inline std::string getTypeName(Type type) {
  std::string name;
  llvm::raw_string_ostream(name) << type;
  return name;
}

/// What every description begins with.
inline llvm::json::Object describe(StringRef kind, Type type, Type accumulator, Type result = {}) {
  llvm::json::Object object{{"kind", kind}, {"dtype", getTypeName(type)}};
  if (accumulator != type)
    object["accumulator"] = getTypeName(accumulator);
  if (result && result != type)
    object["result_dtype"] = getTypeName(result);
  return object;
}

inline llvm::json::Array toArray(ArrayRef<int64_t> numbers) { return llvm::json::Array(numbers); }

/// Collects the conditions of one attribute; the first that does not hold is reported.
class Checks {
public:
  explicit Checks(function_ref<InFlightDiagnostic()> emitError) : emitError(emitError) {}

  void extent(StringRef name, int64_t value) { range(name, value, 1); }
  void extents(StringRef name, ArrayRef<int64_t> values) {
    atLeast(name, values, 1);
    require(!ok || isProductSmall(values), name + " has more than 2^48 elements");
  }
  void count(StringRef name, ArrayRef<int64_t> values, size_t expected) {
    require(values.size() == expected,
            name + " needs " + Twine(expected) + " numbers, found " + Twine(values.size()));
  }
  void atLeast(StringRef name, ArrayRef<int64_t> values, int64_t least) {
    for (int64_t value : values)
      range(name, value, least);
  }
  /// Bytes of whole elements.
  void elements(StringRef name, int64_t bytes, Type type) {
    range(name, bytes, 0);
    require(!ok || 8 * bytes % type.getIntOrFloatBitWidth() == 0,
            name + " must be bytes of whole elements, found " + Twine(bytes));
  }
  void strides(StringRef name, ArrayRef<int64_t> values, size_t expected) {
    count(name, values, expected);
    atLeast(name, values, 0);
  }
  /// Sums are made in the type itself or a wider one.
  void types(Type type, Type accumulator) {
    bool areFloats = isa<FloatType>(type) && isa<FloatType>(accumulator);
    require(areFloats, "expects floating-point types, found " + getTypeName(type) + " and " +
                           getTypeName(accumulator));
    require(!areFloats || accumulator.getIntOrFloatBitWidth() >= type.getIntOrFloatBitWidth(),
            "accumulator " + getTypeName(accumulator) + " is narrower than " + getTypeName(type));
  }
  /// What is stored is a sum as it is, or rounded to the operands' type.
  void resultType(Type result, Type type, Type accumulator) {
    require(!result || result == type || result == accumulator,
            "result_type must be " + getTypeName(type) +
                (type == accumulator ? std::string() : " or " + getTypeName(accumulator)) +
                ", found " + (result ? getTypeName(result) : std::string()));
  }
  void require(bool condition, const Twine &message) {
    if (!condition && ok)
      emitError() << message;
    ok &= condition;
  }
  LogicalResult get() const { return success(ok); }

private:
  void range(StringRef name, int64_t value, int64_t least) {
    require(value >= least && value <= kMaxElements,
            name + " must lie in [" + Twine(least) + ", 2^48], found " + Twine(value));
  }
  static bool isProductSmall(ArrayRef<int64_t> values) {
    return multiplyCounts(values) <= kMaxElements;
  }

  function_ref<InFlightDiagnostic()> emitError;
  bool ok = true;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_DIALECT_KERNELS_LIBRARYCHECKS_H
