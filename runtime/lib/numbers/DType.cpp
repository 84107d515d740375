//===- DType.cpp - element types and their sizes --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/numbers/DType.h"
#include <cmath>
#include <cstring>

using namespace memopt;

namespace {
struct DTypeFacts {
  std::string_view name, safetensorsName;
  int64_t bytes;
  bool isFloat;
};
} // namespace

static constexpr DTypeFacts dtypeFacts[] = {
#define FLOAT_DTYPE(NAME, TEXT, SAFETENSORS, BITS) {TEXT, SAFETENSORS, (BITS + 7) / 8, true},
#define INTEGER_DTYPE(NAME, TEXT, SAFETENSORS, BITS) {TEXT, SAFETENSORS, (BITS + 7) / 8, false},
#define UNSIGNED_DTYPE(NAME, TEXT, SAFETENSORS, BITS) {TEXT, SAFETENSORS, (BITS + 7) / 8, false},
#include "memopt-runtime/interface/DTypes.def"
};

static const DTypeFacts &getFacts(DType type) { return dtypeFacts[static_cast<int>(type)]; }

int64_t memopt::getByteSize(DType type) { return getFacts(type).bytes; }
bool memopt::isFloat(DType type) { return getFacts(type).isFloat; }
std::string_view memopt::getName(DType type) { return getFacts(type).name; }
std::string_view memopt::getSafetensorsName(DType type) { return getFacts(type).safetensorsName; }

static std::optional<DType> findDType(std::string_view name,
                                      std::string_view DTypeFacts::*spelling) {
  for (size_t i = 0; i < std::size(dtypeFacts); ++i)
    if (dtypeFacts[i].*spelling == name)
      return static_cast<DType>(i);
  return std::nullopt;
}

bool memopt::isSummable(DType type) {
  return type == DType::F32 || type == DType::F64 || type == DType::I32 || type == DType::I64;
}

std::optional<DType> memopt::parseDType(std::string_view name) {
  return findDType(name, &DTypeFacts::name);
}
std::optional<DType> memopt::parseSafetensorsDType(std::string_view name) {
  return findDType(name, &DTypeFacts::safetensorsName);
}

int64_t memopt::getElementCount(const Shape &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

StatusOr<int64_t> memopt::getTensorBytes(DType type, const Shape &shape) {
  int64_t bytes = getByteSize(type);
  bool isEmpty = false;
  for (int64_t size : shape) {
    if (size < 0)
      return badInput("dimension " + std::to_string(size) + " is negative");
    isEmpty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes))
      return badInput("the size of " + toString(type, shape) + " does not fit 64 bits");
  }
  return isEmpty ? int64_t(0) : bytes;
}

std::string memopt::toString(DType type, const Shape &shape) {
  std::string text(getName(type));
  text += "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string memopt::toIndexText(const Shape &shape, int64_t element) {
  std::string text;
  for (size_t i = shape.size(); i-- > 0;) {
    text = (i ? ", " : "") + std::to_string(element % shape[i]) + text;
    element /= shape[i];
  }
  return "[" + text + "]";
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

template <typename T> static T load(const void *data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}
template <typename T> static void store(void *data, int64_t index, T value) {
  std::memcpy(static_cast<char *>(data) + index * int64_t(sizeof(T)), &value, sizeof(T));
}

static float halfToFloat(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                    : exponent == 0 ? std::ldexp(float(mantissa), -24)
                                    : std::ldexp(float(mantissa + 1024), exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}
static float bfloatToFloat(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

static double readFloat(DType type, const void *data, int64_t index) {
  switch (type) {
  case DType::F64:
    return load<double>(data, index);
  case DType::F32:
    return load<float>(data, index);
  case DType::F16:
    return halfToFloat(load<uint16_t>(data, index));
  default:
    return bfloatToFloat(load<uint16_t>(data, index));
  }
}

static int64_t readInteger(DType type, const void *data, int64_t index) {
  switch (type) {
  case DType::I64:
    return load<int64_t>(data, index);
  case DType::I32:
    return load<int32_t>(data, index);
  case DType::I16:
    return load<int16_t>(data, index);
  case DType::I8:
    return load<int8_t>(data, index);
  default:
    return load<uint8_t>(data, index);
  }
}

double memopt::readElement(DType type, const void *data, int64_t index) {
  return isFloat(type) ? readFloat(type, data, index) : double(readInteger(type, data, index));
}

static bool tryStoreFloat(DType type, void *data, int64_t index, double value) {
  if (type == DType::F64)
    return store<double>(data, index, value), true;
  store<float>(data, index, float(value));
  return double(float(value)) == value || std::isnan(value);
}

static bool tryStoreInteger(DType type, void *data, int64_t index, int64_t value) {
  switch (type) {
  case DType::I64:
    return store<int64_t>(data, index, value), true;
  case DType::I32:
    store<int32_t>(data, index, int32_t(value));
    return int32_t(value) == value;
  case DType::I16:
    store<int16_t>(data, index, int16_t(value));
    return int16_t(value) == value;
  case DType::I8:
    store<int8_t>(data, index, int8_t(value));
    return int8_t(value) == value;
  case DType::U8:
    store<uint8_t>(data, index, uint8_t(value));
    return uint8_t(value) == value;
  default:
    store<uint8_t>(data, index, value != 0);
    return value == 0 || value == 1;
  }
}

Status memopt::convertElements(DType from, const void *source, DType to, void *target,
                               int64_t count) {
  if (from == to && from != DType::I1) {
    if (count)
      std::memcpy(target, source, size_t(count * getByteSize(from)));
    return Status::ok();
  }
  bool bothFloat = isFloat(from) && (to == DType::F64 || to == DType::F32);
  if (!bothFloat && (isFloat(from) || isFloat(to)))
    return badInput(std::string(getName(from)) + " does not convert to " +
                    std::string(getName(to)) + " without loss");
  for (int64_t i = 0; i < count; ++i) {
    bool isExact = bothFloat ? tryStoreFloat(to, target, i, readFloat(from, source, i))
                             : tryStoreInteger(to, target, i, readInteger(from, source, i));
    if (!isExact)
      return badInput("element " + std::to_string(i) + " is " +
                      std::to_string(readElement(from, source, i)) + ", which " +
                      std::string(getName(to)) + " does not hold exactly");
  }
  return Status::ok();
}

template <typename T>
static int64_t findNonFiniteIn(const void *data, int64_t count, bool onlyNan) {
  for (int64_t i = 0; i < count; ++i) {
    T value = load<T>(data, i);
    if (onlyNan ? std::isnan(value) : !std::isfinite(value))
      return i;
  }
  return -1;
}

int64_t memopt::findNonFinite(DType type, const void *data, int64_t count, bool onlyNan) {
  if (type == DType::F64)
    return findNonFiniteIn<double>(data, count, onlyNan);
  if (type == DType::F32)
    return findNonFiniteIn<float>(data, count, onlyNan);
  if (!isFloat(type))
    return -1;
  for (int64_t i = 0; i < count; ++i) {
    double value = readFloat(type, data, i);
    if (onlyNan ? std::isnan(value) : !std::isfinite(value))
      return i;
  }
  return -1;
}
