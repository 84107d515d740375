//===- DType.h - element types and their sizes ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The element types of packages (f32 f64 bf16 i64 i32 i8 u8 i1) and of data files (f16 and i16
// besides), and checked arithmetic on shapes that come from outside.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_NUMBERS_DTYPE_H
#define MEMOPT_RUNTIME_NUMBERS_DTYPE_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memopt {

enum class DType {
#define FLOAT_DTYPE(NAME, TEXT, SAFETENSORS, BITS) NAME,
#define INTEGER_DTYPE(NAME, TEXT, SAFETENSORS, BITS) NAME,
#define UNSIGNED_DTYPE(NAME, TEXT, SAFETENSORS, BITS) NAME,
#include "memopt-runtime/interface/DTypes.def"
};

using Shape = std::vector<int64_t>;

/// Bytes of one element; an i1 takes one byte, 0 or 1.
int64_t getByteSize(DType type);
bool isFloat(DType type);
/// Whether ranks can sum elements of the type.
bool isSummable(DType type);

/// The name in manifests: "f32".
std::string_view getName(DType type);
std::optional<DType> parseDType(std::string_view name);

/// The name in safetensors files: "F32", "BOOL".
std::string_view getSafetensorsName(DType type);
std::optional<DType> parseSafetensorsDType(std::string_view name);

/// Number of elements; the shape was checked before.
int64_t getElementCount(const Shape &shape);

/// Bytes of a contiguous tensor. An error when a dimension is negative or the size does not fit
/// int64.
StatusOr<int64_t> getTensorBytes(DType type, const Shape &shape);

/// "f32[16, 1, 48, 48]", for messages.
std::string toString(DType type, const Shape &shape);

/// "[2, 5]": the place of a flat element index in a tensor, for messages.
std::string toIndexText(const Shape &shape, int64_t element);

/// Copies `count` elements, changing their type; both sides may be unaligned. An error names the
/// first element (by its index) whose value the new type cannot hold exactly. Floating-point types
/// convert to wider ones, integers to any integer type that holds the value; nothing converts
/// between the two kinds.
Status convertElements(DType from, const void *source, DType to, void *target, int64_t count);

/// Index of the first element that is not finite, or -1. Integers are finite. `onlyNan` passes over
/// infinities.
int64_t findNonFinite(DType type, const void *data, int64_t count, bool onlyNan = false);

/// One element as a number; exact for all types but large i64.
double readElement(DType type, const void *data, int64_t index);

} // namespace memopt

#endif // MEMOPT_RUNTIME_NUMBERS_DTYPE_H
